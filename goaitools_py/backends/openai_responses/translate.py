"""Reads a reply of the Responses API into neutral pieces, and writes pieces as a reply.

Owns: the content of each item of this provider API. Must never know: another provider API, a state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...base import rawjson
from ...types.messages import ToolCall
from ..wire.reply_pieces import Called, Lost, Piece, Said, hosted, id_of_call, outcome
from ..wire.tolerance import as_dict
from . import client_calls as client
from .items import BETWEEN, CALLS, call_of, kind_of, spoken

__all__ = ["call_id", "reply_pieces", "write_reply"]

_CALL_ID = re.compile(r".{1,64}", re.DOTALL)

_HOSTED: Final = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "mcp_call",
        "shell_call",
        "tool_search_call",
        "web_search_call",
    }
)
_RESULTS: Final = frozenset({"shell_call_output", "tool_search_output"})
_ENVELOPE: Final = frozenset({"call_id", "id", "status", "type"})


def reply_pieces(entries: Sequence[bytes]) -> Iterator[Piece]:
    """The pieces of the items of one reply."""
    has_text = False
    for entry in entries:
        item = as_dict(rawjson.view(entry))
        kind = kind_of(item)
        if kind == "assistant":
            own = bool(spoken(item.get("content")))
            if own and has_text:
                yield Said(BETWEEN)
            has_text = has_text or own
            yield from _content(item.get("content"))
        elif kind == "reasoning":
            yield Lost("thinking")
        elif kind in CALLS:
            yield Called(call_of(item))
        elif (call := client.client_call(item, entry)) is not None:
            arguments = rawjson.without(entry, _ENVELOPE).decode("utf-8", "replace")
            yield Called(ToolCall(id=call.id, name=call.name, arguments=arguments, kind="provider"))
        elif kind in _HOSTED:
            yield hosted(kind.removesuffix("_call"), item)
            yield Lost("hosted_tool")
        elif kind in _RESULTS:
            yield hosted(outcome(kind.removesuffix("_output").removesuffix("_call")), item)
            yield Lost("hosted_tool")
        elif kind == "image_generation_call":
            yield hosted("image_generation", {**item, "result": None})
            yield Lost("media" if item.get("result") else "hosted_tool")
        elif kind == "compaction":
            yield hosted(
                "earlier messages, compacted by the provider in a form that cannot be read here", None
            )
            yield Lost("compaction")
        else:
            yield Lost("unread")


def _content(content: Any) -> Iterator[Piece]:
    if isinstance(content, str):
        yield Said(content)
        return
    for part in content if isinstance(content, list) else ():
        match as_dict(part):
            case {"type": "input_text" | "output_text" | "text", "text": str(words)} as text:
                yield Said(words)
                yield from _sources(text)
            case {"type": "refusal", "refusal": str(words)}:
                yield Said(words)
            case _:
                yield Lost("unread")


def _sources(text: Mapping[str, Any]) -> Iterator[Piece]:
    annotations = text.get("annotations")
    if isinstance(annotations, list) and annotations:
        yield Lost("citations", len(annotations))


def write_reply(text: str, calls: Sequence[ToolCall]) -> tuple[list[bytes], int]:
    """The items. The second value counts arguments that could not be written: always 0.

    The text has a type, so that it is an item of the reply; it needs no id in this form.
    """
    items: list[dict[str, Any]] = []
    if text:
        items.append({"type": "message", "role": "assistant", "content": text})
    for call in calls:
        kind = "custom_tool_call" if call.kind == "custom" else "function_call"
        items.append({"type": kind, "call_id": call.id, "name": call.name, CALLS[kind][1]: call.arguments})
    return [rawjson.dumps(item) for item in items], 0


def call_id(id: str, *, taken: bool = False) -> str:
    """The id of a call on this provider API; see `TranslatesReplies`."""
    return id_of_call(id, "call_", _CALL_ID, taken=taken)
