"""Reads a reply of Chat Completions into neutral pieces, and writes pieces as a reply.

Owns: where a message of this provider API holds its content. Must never know: another provider API, a state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ...base import rawjson
from ...types.messages import ToolCall
from ..wire.reply_pieces import Called, Lost, Piece, Said, id_of_call
from ..wire.tolerance import as_dict, as_str, is_hollow
from .message import call_of

__all__ = ["call_id", "reply_pieces", "write_reply"]

_CALL_ID = re.compile(r".{1,40}", re.DOTALL)  # "expected a string with maximum length 40"


def reply_pieces(entries: Sequence[bytes]) -> Iterator[Piece]:
    """The pieces of one message of the model."""
    for entry in entries:
        view = as_dict(rawjson.view(entry))
        yield from _content(view)
        if any(
            not is_hollow(view.get(key)) for key in ("reasoning_content", "reasoning", "reasoning_details")
        ):
            yield Lost("thinking")
        if not is_hollow(view.get("audio")):
            yield Lost("media")
        if isinstance(annotations := view.get("annotations"), list) and annotations:
            yield Lost("citations", len(annotations))
        calls = view.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            yield Called(call_of(as_dict(call)))
        if not is_hollow(view.get("function_call")):  # the deprecated form has no ids
            yield Lost("unread")


def _content(view: dict[str, Any]) -> Iterator[Piece]:
    content = view.get("content")
    if isinstance(content, str):
        if content:
            yield Said(content)
        elif refusal := as_str(view.get("refusal")):
            yield Said(refusal)
        return
    found = content if isinstance(content, list) else ()
    for part in found:
        match as_dict(part):
            case {"type": "text", "text": str(words)} | {"type": "refusal", "refusal": str(words)}:
                yield Said(words)
            case {"type": "thinking"}:
                yield Lost("thinking")
            case _:
                yield Lost("unread")
    if not found and (refusal := as_str(view.get("refusal"))):
        yield Said(refusal)


def write_reply(text: str, calls: Sequence[ToolCall]) -> tuple[list[bytes], int]:
    """One message. The second value counts arguments that could not be written: always 0."""
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [_tool_call(call) for call in calls]
    return [rawjson.dumps(message)], 0


def _tool_call(call: ToolCall) -> dict[str, Any]:
    kind = "custom" if call.kind == "custom" else "function"
    member = "input" if kind == "custom" else "arguments"
    return {"id": call.id, "type": kind, kind: {"name": call.name, member: call.arguments}}


def call_id(id: str, *, taken: bool = False) -> str:
    """The id of a call on this provider API; see `TranslatesReplies`."""
    return id_of_call(id, "call_", _CALL_ID, taken=taken)
