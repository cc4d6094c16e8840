"""Removes items from stored replies, together with the items that are invalid without them.

Owns: which items of a reply depend on each other. Must never know: why an item is removed.

The server refuses a reasoning item "without its required following item". It also refuses a message or call,
if its id shows that it followed reasoning that is missing ("without its required 'reasoning' item"). So the
reasoning before a removed call is removed too. An item after removed reasoning keeps its content and loses
its id; the id refers to nothing, because the server stores nothing. Records of a hosted tool's work need an
id, so they are removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...base import rawjson
from ..wire.tolerance import as_str
from . import client_calls as client
from .items import CALLS, kind_of, spoken

__all__ = [
    "ANSWERS",
    "is_signed",
    "kinds_of",
    "open_calls",
    "settled",
    "unless_silent",
    "unsigned",
    "without_calls",
    "without_orphans",
]

_REASONING: Final = "reasoning"

_NOT_A_REPLYS: Final = frozenset({"user", "system", "developer"})

_GO_ALONG: Final = frozenset(
    {"code_interpreter_call", "file_search_call", "image_generation_call", "mcp_call", "web_search_call"}
)
"""Records of a hosted tool's work. The request types need an id, and nothing else refers to it."""

_NEED_ID: Final = frozenset(
    {"computer_call", "local_shell_call", "mcp_approval_request", "mcp_list_tools", "program"}
)
"""Items that need an id and that others refer to. They stay unchanged."""

_ANSWERED_BY: Final[Mapping[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    **client.OUTPUTS,
}
"""Calls and their answers."""

ANSWERS: Final = frozenset(_ANSWERED_BY.values())
"""Items that answer a call."""


def kinds_of(entries: Sequence[bytes]) -> list[str]:
    """The kind of each entry; see `kind_of`."""
    return [kind_of(_heads(entry)) for entry in entries]


def without_orphans(entries: Sequence[bytes]) -> tuple[bytes, ...]:
    """A reply's entries without reasoning at the end, because nothing follows it."""
    end = len(entries)
    while end and kind_of(_heads(entries[end - 1])) == _REASONING:
        end -= 1
    return tuple(entries[:end])


def without_calls(entries: Sequence[bytes]) -> tuple[bytes, ...]:
    """A reply's entries without the calls that wait for the client; () if nothing else is left."""
    left = _without(entries, kinds_of(entries), open_calls(entries))
    return unless_silent(without_orphans([entry for entry in left if entry]))


def unless_silent(entries: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """A reply's entries; () if they are reasoning and messages without text only."""
    return entries if any(map(_says_something, entries)) else ()


def settled(entries: Sequence[bytes]) -> list[bytes]:
    """A reply's entries, one result for each; b"" for an unanswered call of a provider tool.

    The server refuses a history with an unanswered call ("No tool output found"), and this package does not
    run provider tools.
    """
    # The types of all these items end in this way.
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
    """For each entry of a reply: True if the client has to answer it.

    That is a call of a caller's tool, or of a provider tool that the client runs and that the server has not
    answered in the same reply.
    """
    items = [_heads(entry) for entry in entries]
    answers = _answers(items)

    def waits(item: Mapping[str, Any]) -> bool:
        kind = kind_of(item)
        is_clients = kind in CALLS or client.client_call(item, b"") is not None
        id = as_str(item.get("call_id")) if kind in CALLS else client.call_id_of(item)
        return is_clients and (_ANSWERED_BY[kind], id) not in answers

    return list(map(waits, items))


def _answers(items: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The answers among these items: the type of the answer, and the id of the call."""
    return {(kind, client.answered_id(item)) for item in items if (kind := kind_of(item)) in ANSWERS}


def unsigned(entries: Sequence[bytes]) -> list[bytes]:
    """Entries without encrypted content, one result for each; b"" if nothing is left of an entry.

    Readable reasoning stays, without its encrypted form. Servers that send it accept it (DeepSeek,
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
    """True if a reasoning item is bound to the history before it: encrypted, or only an id."""
    return bool(item.get("encrypted_content")) or not item.get("content")


def _without(entries: Sequence[bytes], kinds: Sequence[str], goes: Sequence[bool]) -> list[bytes]:
    """The entries, with b"" for each removed one and for the reasoning directly before it."""
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
    """True if the next item may belong to the same reply, and to the same reasoning."""
    return kind not in _NOT_A_REPLYS and kind != _REASONING and not kind.endswith("_output")


def _freed(entry: bytes, kind: str) -> bytes:
    """The entry without the id that refers to earlier reasoning; b"" if it needs the id."""
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
        raise rawjson.RawJSONError("an entry of the provider API 'openai-responses' must be a JSON object", 0)
    return item
