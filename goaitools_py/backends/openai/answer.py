"""What the answers of both OpenAI wires have in common: errors inside a 200, calls that would be refused.

Owns: how a call has to look so that servers take it back. Must never know: a message, an item, a stream.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from ... import rawjson
from ...messages import CallKind, Usage
from ...render import plain
from ..base import ProtocolFault
from ..http.faults import fault_of_error

__all__ = [
    "FIRST_PARTY",
    "clean_name",
    "error_fault",
    "made_call_id",
    "paid",
    "shape_of",
    "stored_arguments",
]

FIRST_PARTY: Final = frozenset({"openai", "azure"})
"""Families whose servers hold requests to the published request type."""

_UNCLEAN: Final = re.compile(r"[^a-zA-Z0-9_-]")


def error_fault(error: object) -> ProtocolFault:
    """The finding for an error object inside a 200 answer."""
    fault = fault_of_error(error)
    return ProtocolFault(f"the provider answered 200 with an error ({fault.code or fault.kind})", fault)


def paid(fault: ProtocolFault, usage: Usage) -> ProtocolFault:
    """The finding with the usage that the answer states, unless it states none."""
    if fault.usage is None and (usage.input_tokens or usage.output_tokens):
        fault.usage = usage
    return fault


def shape_of(body: bytes, *, lacks: str) -> str:
    """What a body is that is no answer, without quoting it. `lacks`: what a JSON object must be missing."""
    start = body.lstrip()[:1]
    if not start:
        return "it is empty"
    if start == b"<":
        return "it is HTML or XML"
    if start == b"{":
        return f"it has no {lacks}, or is cut off"
    return "it is not a JSON object"


# --------------------------------------------------------------------------------------------- calls


def made_call_id(seed: bytes, position: int) -> str:
    """An id for a call that came without one of its own: the same for the same answer."""
    return "call_" + hashlib.sha256(seed + str(position).encode()).hexdigest()[:24]


def clean_name(name: str, *, limit: int) -> str | None:
    """A name that the wire takes in place of one that it would refuse; None if it takes this one.

    `limit`: the characters that a name may have.
    """
    if name and len(name) <= limit and not _UNCLEAN.search(name):
        return None
    return _UNCLEAN.sub("_", name)[:limit] or "unnamed"


def stored_arguments(arguments: str, *, kind: CallKind, family: str) -> str:
    """What is stored for a call's arguments: "{}" for what servers of this family would choke on."""
    if kind == "custom" or family in FIRST_PARTY:
        return arguments
    try:
        rawjson.members(plain(arguments).encode())
    except rawjson.RawJSONError:
        return "{}"
    return arguments
