"""What the replies of several provider APIs have in common: errors inside a 200, and odd tool calls.

Owns: how a call is changed so that servers accept it in the history. Must never know: a message, an item, a
stream.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from ... import rawjson
from ...messages import CallKind, Usage
from ...render import argument_object, plain
from ..base import Fault, ProtocolFault
from ..http.faults import fault_of_error

__all__ = [
    "OPENAI_FAMILIES",
    "clean_name",
    "error_fault",
    "made_call_id",
    "paid",
    "shape_of",
    "stored_arguments",
]

OPENAI_FAMILIES: Final = frozenset({"openai", "azure"})
"""Families whose servers check requests against the published request type."""

_UNCLEAN: Final = re.compile(r"[^a-zA-Z0-9_-]")


def error_fault(error: object, *, text: str = "") -> ProtocolFault:
    """The fault for an error object inside a 200 response.

    `text`: what the model had said before the error. The reply broke off then, whatever the error is: the
    provider took the request, and has charged for the text.
    """
    fault = fault_of_error(error)
    problem = f"the provider answered 200 with an error ({fault.code or fault.kind})"
    if not text:
        return ProtocolFault(problem, fault)
    interrupted = Fault(kind="interrupted", code=fault.code, retryable=True)
    return ProtocolFault(problem, interrupted, partial_text=plain(text))


def paid(fault: ProtocolFault, usage: Usage) -> ProtocolFault:
    """Add the usage that the response states, if it states one."""
    if fault.usage is None and (usage.input_tokens or usage.output_tokens):
        fault.usage = usage
    return fault


def shape_of(body: bytes, *, lacks: str) -> str:
    """Describe a body that is not a reply, without quoting it. `lacks`: what a JSON object does not have."""
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
    """Make an id for a call that has none. The same response gives the same id."""
    return "call_" + hashlib.sha256(seed + str(position).encode()).hexdigest()[:24]


def clean_name(name: str, *, limit: int) -> str | None:
    """A valid name that replaces an invalid one; None if this name is valid. `limit`: the longest name."""
    if name and len(name) <= limit and not _UNCLEAN.search(name):
        return None
    return _UNCLEAN.sub("_", name)[:limit] or "unnamed"


def stored_arguments(arguments: str, *, kind: CallKind, family: str) -> str:
    """The arguments to store for a call. Where servers of this family refuse all but an object, it is the
    object that they mean, or else "{}"."""
    if kind == "custom" or family in OPENAI_FAMILIES:
        return arguments
    meant = argument_object(arguments)
    try:
        rawjson.members(plain(meant).encode())
    except rawjson.RawJSONError:
        return "{}"
    return meant
