"""Common parts of the replies of several provider APIs: errors inside a 200, and odd tool calls.

Owns: how a call is changed so that servers accept it in the history. Must never know: a message, an item, a
stream.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from ...base import rawjson
from ...types.messages import CallKind, Usage
from ...types.render import Halves, argument_object, valid_json, valid_text
from ..base import Delta, Fault, ProtocolFault
from ..http.faults import fault_of_error
from .tolerance import as_dict, count, object_of

__all__ = [
    "BROKEN_OFF",
    "OPENAI_FAMILIES",
    "broken_off",
    "clean_name",
    "error_fault",
    "left_over",
    "made_call_id",
    "misplaced_error",
    "paid",
    "shape_of",
    "stored_arguments",
]

OPENAI_FAMILIES: Final = frozenset({"openai", "azure"})
"""Families that check requests against the published request type."""

_UNCLEAN: Final = re.compile(r"[^a-zA-Z0-9_-]")


def error_fault(error: object, *, text: str = "") -> ProtocolFault:
    """The fault for an error object inside a 200 response.

    `text`: the model's text before the error. With text, the reply broke off, for every kind of error: the
    provider took the request, and has charged for the text.
    """
    fault = fault_of_error(error)
    problem = f"the provider answered 200 with an error ({fault.code or fault.kind})"
    if not text:
        return ProtocolFault(problem, fault)
    interrupted = Fault(kind="interrupted", code=fault.code, retryable=True)
    return ProtocolFault(problem, interrupted, partial_text=valid_text(text))


BROKEN_OFF: Final = frozenset(
    {
        "abort",  # SGLang, vLLM
        "aborted",
        "error",  # OpenRouter, vLLM
        "insufficient_system_resource",  # DeepSeek: "due to insufficient resource of the inference system"
        "internal_error",
        "network_error",  # Zhipu
        "server_error",
        "timeout",
        "MALFORMED_FUNCTION_CALL",  # Gemini: the model wrote a call that cannot be read
    }
)
"""Finish reasons of a reply that did not come to its end: the server failed (2026-11, references of the named
servers)."""


def broken_off(word: str, text: str) -> ProtocolFault:
    """The fault of a reply that ends with one of these words. `text`: the model's text before the end."""
    if text:
        fault = Fault(kind="interrupted", code=word, retryable=True)
    else:
        fault = Fault(kind="unavailable", code=word, retryable=True)
    return ProtocolFault(f"the reply broke off ({word})", fault, partial_text=valid_text(text))


_MINIMAX: Final = {
    **dict.fromkeys((1002, 1041, 2045, 2056), 429),
    **dict.fromkeys((1004, 2049), 401),
    **dict.fromkeys((1000, 1001, 1013, 1024, 1033), 500),
    1008: 402,
}
"""Codes of MiniMax's ``base_resp`` as statuses (platform.minimax.io, error codes, seen 2026-11). Every other
one refuses the request."""


def misplaced_error(body: bytes) -> Mapping[str, Any] | None:
    """The error of an answer without a reply and without a member ``error``; None without an error.

    MiniMax writes ``base_resp`` with its own code, vLLM an object of the kind "error", Cloudflare a list
    ``errors``, DashScope ``code`` and ``message`` at the top.
    """
    root = object_of(body)
    given = as_dict(root.get("base_resp"))
    if code := count(given.get("status_code")):
        said = given.get("status_msg")
        status = _MINIMAX.get(code, 400)
        return {"status_code": status, "code": f"base_resp_{code}", "message": said}
    listed = root.get("errors")
    if isinstance(listed, list) and listed and isinstance(listed[0], dict):
        return as_dict(listed[0])
    if root.get("object") == "error" or (root.get("code") and isinstance(root.get("message"), str)):
        return root
    return None


def paid(fault: ProtocolFault, usage: Usage) -> ProtocolFault:
    """Add the usage that the response states, if it states one."""
    if fault.usage is None and (usage.input_tokens or usage.output_tokens):
        fault.usage = usage
    return fault


def left_over(halves: Halves) -> list[Delta]:
    """The deltas for texts of a stream that ended in half a surrogate pair."""
    return [Delta(kind="text" if kind == "text" else "reasoning", text="\ufffd") for kind in halves.rest()]


def shape_of(body: bytes, *, lacks: str) -> str:
    """Describe a body that is not a reply, without quoting it. `lacks`: the member that an object lacks."""
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
    """Make an id for a call without one. The same response gives the same id."""
    return "call_" + hashlib.sha256(seed + str(position).encode()).hexdigest()[:24]


def clean_name(name: str, *, limit: int) -> str | None:
    """A valid name that replaces an invalid one; None if this name is valid. `limit`: the longest name."""
    if name and len(name) <= limit and not _UNCLEAN.search(name):
        return None
    return _UNCLEAN.sub("_", name)[:limit] or "unnamed"


def stored_arguments(arguments: str, *, kind: CallKind, family: str) -> str:
    """The arguments to store for a call, without half a surrogate pair. Where servers of this family refuse
    all but an object, it is the object that they mean, or else "{}"."""
    if "\\u" in arguments or not arguments.isascii():
        arguments = valid_text(arguments) if kind == "custom" else valid_json(arguments)
    if kind == "custom" or family in OPENAI_FAMILIES:
        return arguments
    meant = argument_object(arguments)
    try:
        rawjson.members(valid_text(meant).encode())
    except rawjson.RawJSONError:
        return "{}"
    return meant
