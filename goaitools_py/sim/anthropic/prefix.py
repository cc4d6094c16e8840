"""The prefix of a Messages request, as the provider compares it: the blocks' bytes without cache marks.

Owns: which prefixes are equal, for the prompt cache and for signatures. Must never know: the users of the
prefix, or whether the request is valid.

These are equal: a string and a list of one text block ("shorthand" in the SDK's documentation); a turn in one
message or in several messages of one role ("will be combined into a single turn"); the members of a block in
any order, and a missing and a null member (the SDK sends parsed values back, in its own order); white space
between tokens; the escapes in a string. These are different: the order of keys in a tool's input or schema,
which the model reads, and the digits of numbers with a fraction or an exponent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..http_values import Body, dump

__all__ = ["Prefix", "PrefixPiece", "block_bytes", "read_messages", "read_prefix"]

_END = b"\x1e"
_FREE = ("input", "input_schema")
_THINKING = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixPiece:
    """One block of one message. `is_marked`: it has a cache breakpoint, or holds one."""

    message: int
    block: int
    content: bytes = field(repr=False)
    value: Mapping[str, Any] = field(repr=False)
    is_marked: bool = False

    @property
    def is_thinking(self) -> bool:
        """True for thinking, readable or redacted."""
        return self.value.get("type") in _THINKING


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A whole request: the tools, the system prompt, and the blocks of all messages.

    Attributes:
        tools_marked: The byte of `tools` up to which a cache breakpoint reaches; 0 without one. The same for
            `system_marked`.
        is_automatic: True if the request asks for a breakpoint on its last block.
    """

    tools: bytes = field(repr=False)
    system: bytes = field(repr=False)
    pieces: tuple[PrefixPiece, ...] = field(repr=False)
    tools_marked: int = 0
    system_marked: int = 0
    is_automatic: bool = False

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.tools) + len(self.system) + sum(len(piece.content) for piece in self.pieces)

    def cacheable(self) -> tuple[bytes, int]:
        """All bytes in the order of the cache, and the number of bytes before the last breakpoint."""
        parts = [self.tools, self.system]
        length = len(self.tools) + len(self.system)
        reach = self.tools_marked
        if self.system_marked:
            reach = len(self.tools) + self.system_marked
        for piece in self.pieces:
            parts.append(piece.content)
            length += len(piece.content)
            if piece.is_marked:
                reach = length
        return b"".join(parts), length if self.is_automatic else reach


def read_prefix(body: Body) -> Prefix:
    """The prefix of a valid request."""
    values = {key: _spelled(body.spans[key]) for key in ("tools", "system", "messages") if key in body.spans}
    tools, tools_marked = _listed(values.get("tools") or [])
    system, system_marked = _listed(_blocks(values.get("system") or []))
    return Prefix(
        tools=tools + _END,
        system=system + _END,
        pieces=tuple(read_messages(values["messages"])),
        tools_marked=tools_marked,
        system_marked=system_marked,
        is_automatic=body.values.get("cache_control") is not None,
    )


def block_bytes(role: str, block: Mapping[str, Any]) -> bytes:
    """The bytes that a block in a message of this role adds to the prefix."""
    return role.encode() + b":" + dump(_bare(block)) + _END


def read_messages(messages: Sequence[Mapping[str, Any]]) -> Iterator[PrefixPiece]:
    """The blocks of messages, in order."""
    for index, message in enumerate(messages):
        beside = {key: message[key] for key in message if key not in ("role", "content")}
        role = message["role"] + (dump(beside).decode() if beside else "")
        for at, block in enumerate(_blocks(message.get("content") or [])):
            yield PrefixPiece(
                message=index,
                block=at,
                content=block_bytes(role, block),
                value=block,
                is_marked=_is_marked(block),
            )


def _listed(blocks: Sequence[Mapping[str, Any]]) -> tuple[bytes, int]:
    content, marked = b"", 0
    for block in blocks:
        content += dump(_bare(block)) + _END
        if _is_marked(block):
            marked = len(content)
    return content, marked


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _bare(block: Mapping[str, Any]) -> dict[str, Any]:
    """The block with sorted members, without its marks and the marks of blocks in a tool's result."""
    bare = {key: value for key, value in block.items() if key != "cache_control"}
    if bare.get("type") == "tool_result" and bare.get("content") is not None:
        bare["content"] = [_bare(inner) for inner in _blocks(bare["content"])]
    free = {key: bare.pop(key) for key in _FREE if key in bare}
    return {**_sorted(bare), **free}


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value) if value[key] is not None}
    return [_sorted(part) for part in value] if isinstance(value, list) else value


def _is_marked(block: Mapping[str, Any]) -> bool:
    if block.get("cache_control") is not None:
        return True
    inner = block.get("content") if block.get("type") == "tool_result" else None
    return isinstance(inner, list) and any(_is_marked(part) for part in inner)


def _spelled(span: bytes) -> Any:
    """The JSON value with fractions as they were written, because 1.0 and 1.00 are different bytes."""
    return json.loads(span, parse_float=lambda digits: f"\0{digits}")
