"""Reads a reply of Anthropic's Messages API into neutral pieces, and writes pieces as a reply.

Owns: the content of each block of this provider API. Must never know: another provider API, a state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...base import rawjson
from ...types.messages import CallKind, ToolCall
from ...types.render import argument_object, valid_json
from ..wire.reply_pieces import Called, Lost, Piece, Said, hosted, id_of_call, outcome
from ..wire.tolerance import as_dict, as_str

__all__ = ["call_id", "reply_pieces", "write_reply"]

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # "should match '^[a-zA-Z0-9_-]+$'"

_THINKING: Final = ("thinking", "redacted_thinking")
_HOSTED: Final = ("server_tool_use", "mcp_tool_use")


def reply_pieces(entries: Sequence[bytes]) -> Iterator[Piece]:
    """The pieces of one message of the model."""
    for entry in entries:
        content = rawjson.members(entry).get("content", b"")
        if not content.startswith(b"["):
            words = as_str(rawjson.view(content or b'""'))
            if words:
                yield Said(words)
            continue
        blocks = rawjson.items(content)
        objects = [raw for raw in blocks if raw.startswith(b"{")]
        for raw in objects:
            yield from _block(raw, as_dict(rawjson.view(raw)))
        if len(objects) < len(blocks):
            yield Lost("unread", len(blocks) - len(objects))


def _block(raw: bytes, block: dict[str, Any]) -> Iterator[Piece]:
    kind = as_str(block.get("type"))
    if kind == "text":
        yield Said(as_str(block.get("text")))
        if isinstance(citations := block.get("citations"), list) and citations:
            yield Lost("citations", len(citations))
    elif kind in _THINKING:
        yield Lost("thinking")
    elif kind == "tool_use":
        arguments = rawjson.members(raw).get("input", b"{}").decode("utf-8", "replace")
        id, name = as_str(block.get("id")), as_str(block.get("name"))
        kind_of: CallKind = "provider" if block.get("toolset_name") else "function"
        yield Called(ToolCall(id=id, name=name, arguments=arguments, kind=kind_of))
    elif kind in _HOSTED:
        yield hosted(as_str(block.get("name")) or kind, block.get("input"))
        yield Lost("hosted_tool")
    elif kind.endswith("_tool_result") or kind == "tool_result":
        yield hosted(outcome(kind.removesuffix("_result").removesuffix("_tool")), block.get("content"))
        yield Lost("hosted_tool")
    elif kind == "compaction":
        words = as_str(block.get("content"))
        form = "" if words else " in a form that cannot be read here"
        yield hosted(f"earlier messages, compacted by the provider{form}", None)
        if words:
            yield Said(words, is_hosted=True)
        yield Lost("compaction")
    else:
        yield Lost("unread")


def write_reply(text: str, calls: Sequence[ToolCall]) -> tuple[list[bytes], int]:
    """One message, and how many calls had arguments that are not a JSON object. No message if nothing is left
    that this provider API takes."""
    blocks: list[bytes] = []
    if text and (calls or text.strip()):
        blocks.append(rawjson.dumps({"type": "text", "text": text}))
    odd = 0
    for call in calls:
        given = _input(call)
        odd += given is None
        head = rawjson.dumps({"type": "tool_use", "id": call.id, "name": call.name})
        blocks.append(head[:-1] + b',"input":' + (given or b"{}") + b"}")
    if not blocks:
        return [], odd
    entry = b'{"role":"assistant","content":[' + b",".join(blocks) + b"]}"
    return [entry], odd


_DEEPEST: Final = rawjson.MAX_DEPTH - 3
"""Around the input of a call stand the block, the content and the message."""


def _input(call: ToolCall) -> bytes | None:
    """The arguments as the bytes of an object; None if they are not an object."""
    if call.kind == "custom":
        return rawjson.dumps({"input": call.arguments})
    try:
        given = rawjson.one_line(valid_json(argument_object(call.arguments)).encode())
        rawjson.members(given)
        rawjson.view(b"[" * (rawjson.MAX_DEPTH - _DEEPEST) + given + b"]" * (rawjson.MAX_DEPTH - _DEEPEST))
    except (rawjson.RawJSONError, UnicodeEncodeError):
        return None
    return given


def call_id(id: str, *, taken: bool = False) -> str:
    """The id of a call on this provider API; see `TranslatesReplies`."""
    return id_of_call(id, "toolu_", _CALL_ID, taken=taken)
