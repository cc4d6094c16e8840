"""A conversation as Markdown, for people.

Owns: the form of the text, and the escapes that keep a message from changing it. Must never know: a
provider's JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ..backends.base import Dialect
from ..state.codec import PLAIN, Codec
from ..types.messages import Message, Text
from ..types.render import files_in, is_file
from .turns import HistoryTurn, read_history

__all__ = ["to_markdown"]

_NAMES: Final = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool result"}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def to_markdown(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
    archived: bool = False,
) -> str:
    """Write a conversation as a Markdown document: a heading for each turn, each message in a fenced block.

    Each text is in a code block with a fence that is longer than any fence in the text. So no heading, link
    or HTML in it takes effect. Control characters are shown as ``�``. Thinking is left out; a picture,
    document or sound is a line with its name, type and size. A file of text has its text below that line.

    Args:
        blob: The state.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        min_revision: The least revision that it may have.
        dialect: The dialect of a provider API that is not built in.
        archived: Also the turns that compactions took away, from the archive.

    Raises:
        StateError: The blob cannot be read.
    """
    history = read_history(
        blob, codec=codec, binding=binding, min_revision=min_revision, dialect=dialect, archived=archived
    )
    lines: list[str] = ["# Conversation", ""]
    for turn in history.turns:
        lines += _turn(turn)
    if history.waiting:
        lines += ["## Waiting for the model", ""]
        for message in history.waiting:
            lines += _message(message)
    return "\n".join(lines).rstrip() + "\n"


def _turn(turn: HistoryTurn) -> Iterator[str]:
    name = f"Turn {turn.number}" if turn.number else "Note of a compaction"
    yield f"## {name}, {turn.started_at:%Y-%m-%d %H:%M:%S} UTC"
    yield ""
    for message in turn.messages:
        yield from _message(message)


def _message(message: Message) -> Iterator[str]:
    name = "Event" if message.is_event else _NAMES[message.role]
    speaker = f" ({_inline(message.speaker)})" if message.speaker else ""
    shown = message.text or message.parts or not message.tool_calls
    if shown:
        yield f"**{name}{speaker}**"
        yield ""
        texts = [part for part in message.parts if isinstance(part, Text) and not is_file(part)]
        if text := "".join(part.text for part in texts):
            yield from _block(text)
        for file in files_in(message):
            named = f" {_inline(file.name)}" if file.name else ""
            size = "" if file.data is None else f", {len(file.data)} bytes"
            yield f"- {type(file).__name__.lower()}{named} of type {_inline(file.media_type)}{size}"
            yield ""
            if file.data is not None and file.media_type.startswith("text/"):
                yield from _block(file.data.decode("utf-8", "replace"))
    for call in message.tool_calls:
        yield f"**Tool call: {_inline(call.name)}**"
        yield ""
        yield from _block(call.arguments, "json")


def _block(text: str, language: str = "text") -> Iterator[str]:
    text = _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield text
    yield fence
    yield ""


def _inline(text: str) -> str:
    """A name within a line: only letters, digits and a few signs, so that it cannot be Markdown or HTML."""
    return re.sub(r"[^\w .,:/+-]", "\ufffd", text)[:200]
