"""Takes items out of stored replies, and with them what cannot stand without them.

Owns: which items of a reply stand and fall together. Must never know: why something is to go.

The server refuses a reasoning item "without its required following item", and a message or call that it
knows by its id to have followed reasoning that is gone ("without its required 'reasoning' item"). So
reasoning goes together with a call that goes; and what followed reasoning that went keeps its content and
loses its id, which stands for nothing where nothing is stored. Records of a hosted tool's work must have an
id: they go too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ... import rawjson
from ..tolerance import as_str
from . import responses_client as client
from .responses_item import CALLS, kind_of, spoken

__all__ = [
    "ANSWERS",
    "is_signed",
    "kinds_of",
    "open_calls",
    "settled",
    "unsigned",
    "without_calls",
    "without_orphans",
]

_REASONING: Final = "reasoning"

_NOT_A_REPLYS: Final = frozenset({"user", "system", "developer"})

_GO_ALONG: Final = frozenset(
    {"code_interpreter_call", "file_search_call", "image_generation_call", "mcp_call", "web_search_call"}
)
"""What a hosted tool did. The request types demand an id, and nothing else refers to it."""

_NEED_ID: Final = frozenset(
    {"computer_call", "local_shell_call", "mcp_approval_request", "mcp_list_tools", "program"}
)
"""Items that must have an id and that others refer to: they stay as they are."""

_ANSWERED_BY: Final[Mapping[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    **client.OUTPUTS,
}
"""Calls, and what answers them."""

ANSWERS: Final = frozenset(_ANSWERED_BY.values())
"""Items that answer a call."""


def kinds_of(entries: Sequence[bytes]) -> list[str]:
    """What each entry is; see `kind_of`."""
    return [kind_of(_heads(entry)) for entry in entries]


def without_orphans(entries: Sequence[bytes]) -> tuple[bytes, ...]:
    """A reply's entries without reasoning at the end, where nothing follows it any more."""
    end = len(entries)
    while end and kind_of(_heads(entries[end - 1])) == _REASONING:
        end -= 1
    return tuple(entries[:end])


def without_calls(entries: Sequence[bytes]) -> tuple[bytes, ...]:
    """A reply's entries without the calls that wait for the client; () if it said nothing else."""
    left = _without(entries, kinds_of(entries), open_calls(entries))
    kept = without_orphans([entry for entry in left if entry])
    return kept if any(map(_says_something, kept)) else ()


def settled(entries: Sequence[bytes]) -> list[bytes]:
    """A reply's entries, one for each, b"" for a provider tool's call that nobody answered.

    The server refuses a history with one of them ("No tool output found"), and this package runs none.
    """
    # As the names of all of these items end.
    if not any(b'_call"' in entry or b'_request"' in entry for entry in entries):
        return list(entries)
    items = [_heads(entry) for entry in entries]
    kinds = list(map(kind_of, items))
    answers = _answers(items)

    def waits(kind: str, item: Mapping[str, Any]) -> bool:
        if kind not in client.OUTPUTS or (kind == "tool_search_call" and client.is_servers(item)):
            return False
        return (client.OUTPUTS[kind], client.call_id_of(item)) not in answers

    return _without(entries, kinds, [waits(kind, item) for kind, item in zip(kinds, items, strict=True)])


def open_calls(entries: Sequence[bytes]) -> list[bool]:
    """For each of a reply's entries whether it is a call that the client has to answer: one of our own tools,
    or of a provider tool that the client runs, which the server has not answered in the same reply."""
    items = [_heads(entry) for entry in entries]
    answers = _answers(items)

    def waits(item: Mapping[str, Any]) -> bool:
        kind = kind_of(item)
        is_clients = kind in CALLS or client.client_call(item, b"") is not None
        id = as_str(item.get("call_id")) if kind in CALLS else client.call_id_of(item)
        return is_clients and (_ANSWERED_BY[kind], id) not in answers

    return list(map(waits, items))


def _answers(items: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """What was answered among these items: type of the answer, and id of the call."""
    return {(kind, client.answered_id(item)) for item in items if (kind := kind_of(item)) in ANSWERS}


def unsigned(entries: Sequence[bytes]) -> list[bytes]:
    """Entries without what their provider encrypted, one for each; b"" for one of which nothing is left.

    Reasoning that can be read stays, without its encrypted form: such servers take it back so (DeepSeek,
    recorded).
    """
    left: list[bytes] = []
    follows_gone = False
    for entry in entries:
        item = _heads(entry)
        kind = kind_of(item)
        if kind == _REASONING and is_signed(item):
            is_gone = not item.get("content")
            left.append(b"" if is_gone else rawjson.without(entry, {"encrypted_content"}))
            follows_gone = follows_gone or is_gone
        else:
            left.append(_freed(entry, kind) if follows_gone else entry)
            follows_gone = follows_gone and _goes_on(kind)
    return left


def is_signed(item: Mapping[str, Any]) -> bool:
    """Whether a reasoning item is bound to what stands before it: encrypted, or nothing but an id."""
    return bool(item.get("encrypted_content")) or not item.get("content")


def _without(entries: Sequence[bytes], kinds: Sequence[str], goes: Sequence[bool]) -> list[bytes]:
    """The entries, b"" for each that goes and for the reasoning directly before it."""
    gone = list(goes)
    for at in reversed(range(len(entries) - 1)):
        gone[at] = gone[at] or (kinds[at] == _REASONING and gone[at + 1])
    left: list[bytes] = []
    follows_gone = False
    for entry, kind, is_gone in zip(entries, kinds, gone, strict=True):
        if is_gone:
            left.append(b"")
            follows_gone = follows_gone or kind == _REASONING
        else:
            left.append(_freed(entry, kind) if follows_gone else entry)
            follows_gone = follows_gone and _goes_on(kind)
    return left


def _goes_on(kind: str) -> bool:
    """Whether what follows an item of this kind may be of the same reply, led by the same reasoning."""
    return kind not in _NOT_A_REPLYS and kind != _REASONING and not kind.endswith("_output")


def _freed(entry: bytes, kind: str) -> bytes:
    """The entry without what says that reasoning stood before it; b"" if it cannot be without."""
    if kind in _NOT_A_REPLYS or kind in _NEED_ID or kind == _REASONING or kind.endswith("_output"):
        return entry
    return b"" if kind in _GO_ALONG else rawjson.without(entry, {"id"})


def _says_something(entry: bytes) -> bool:
    item = _heads(entry)
    kind = kind_of(item)
    return bool(spoken(item.get("content"))) if kind == "assistant" else kind != _REASONING


def _heads(entry: bytes) -> Mapping[str, Any]:
    item = rawjson.view(entry)
    if not isinstance(item, dict):
        raise rawjson.RawJSONError("an entry of the 'openai-responses' wire must be a JSON object", 0)
    return item
