"""Runs one call of one tool, and turns the returned value into parts of a message.

Owns: `CallOutcome`, the meaning of a tool's exception, how values are written as text, and the size limits.
Must never know: a clock, a thread, other calls. Whatever happens in the tool becomes a value.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Literal

from ..base.values import Value
from ..types.answers import ToolReturn
from ..types.errors import AbortTurn, ToolError
from ..types.messages import Audio, Document, Image, Part, Text
from ..types.render import valid_text
from ..types.usage import Bill
from .definition import Tool
from .tool_context import MAX_RESULT_BYTES, Action, ToolContext, Waiting

__all__ = [
    "MAX_RESULT_MEDIA_BYTES",
    "CallOutcome",
    "UnknownOutcome",
    "begin_call",
    "end_of_lines",
    "finish_call",
    "result_parts",
    "run_call",
    "text_parts",
    "timed_out",
    "whole_text",
    "with_ends",
]


class CallOutcome(Value, frozen=True, kw_only=True):
    """How a call ended.

    Attributes:
        parts: The result for the model.
        whole: The result before its text was cut, for a call with a result that is kept whole; () if no text
            was cut.
        flag: "ok" or "error", as the tool says; "unknown" or "cancelled" if the tool's end was not seen.
        exception: The exception of the tool, for `tool_errors="raise"`.
        abort: True if the tool raised `AbortTurn`.
        actions: The actions that the tool logged.
        bills: The model calls that the tool made.
        asks: If calls inside of the tool wait for answers: these calls, as JSON text.
    """

    _unshown = frozenset({"parts", "whole", "exception", "asks"})

    parts: tuple[Part, ...] = ()
    whole: tuple[Part, ...] = ()
    flag: Literal["ok", "error", "unknown", "cancelled"] = "ok"
    exception: BaseException | None = None
    abort: bool = False
    actions: tuple[Action, ...] = ()
    bills: tuple[Bill, ...] = ()
    asks: str = ""


class UnknownOutcome(ToolError):  # noqa: N818 - an outcome, which a tool of this package raises
    """It is unknown whether the call took effect: its flag is "unknown". The text is for the model."""


def run_call(tool: Tool[..., Any], ctx: ToolContext[Any], kwargs: Mapping[str, Any]) -> CallOutcome:
    """Run a sync tool in this thread.

    `KeyboardInterrupt`, `SystemExit` and cancellation propagate. Every other exception is an outcome.

    Args:
        tool: The tool to run.
        ctx: The context, for a tool that takes one.
        kwargs: The arguments, as `Tool.bind` returns them.
    """
    begun = begin_call(tool, ctx, kwargs)
    if isinstance(begun, CallOutcome):
        return begun
    if inspect.iscoroutine(begun):
        begun.close()  # or Python warns that it was never awaited
    return _raised(ToolError(f"Tool {tool.name!r} is async: it needs an AsyncChat."), ctx)


def begin_call(
    tool: Tool[..., Any], ctx: ToolContext[Any], kwargs: Mapping[str, Any]
) -> CallOutcome | Awaitable[Any]:
    """Run a tool's function. If it returns an awaitable, pass that to `finish_call`.

    A plain function may return an awaitable too, for example an ``async def`` inside a decorator.
    """
    try:
        value = tool.run(ctx, **kwargs) if tool.takes_context else tool.run(**kwargs)
        return value if inspect.isawaitable(value) else _returned(value, ctx)
    except Exception as error:
        return _raised(error, ctx)


async def finish_call(begun: CallOutcome | Awaitable[Any], ctx: ToolContext[Any]) -> CallOutcome:
    """Await the result of `begin_call`, and give the outcome."""
    if isinstance(begun, CallOutcome):
        return begun
    try:
        return _returned(await begun, ctx)
    except Exception as error:
        return _raised(error, ctx)


def timed_out(ctx: ToolContext[Any], limit: str) -> CallOutcome:
    """The outcome of a call that took too long. Its effect may still happen.

    `limit`: the words for the time that it had, such as "60 s"; "" if they are not known.
    """
    within = f" within {limit}" if limit else ""
    text = f"The tool did not finish{within}; it is unknown whether it took effect."
    return CallOutcome(parts=text_parts(text), flag="unknown", actions=ctx.actions, bills=tuple(ctx._bills))


def _returned(value: Any, ctx: ToolContext[Any]) -> CallOutcome:
    whole, is_error = _written(value)
    flag: Literal["ok", "error"] = "error" if is_error else "ok"
    parts = _cut(whole, ctx.max_result_bytes)
    return CallOutcome(
        parts=parts,
        whole=whole if ctx._keeps and parts is not whole else (),
        flag=flag,
        actions=ctx.actions,
        bills=tuple(ctx._bills),
    )


def _raised(error: Exception, ctx: ToolContext[Any]) -> CallOutcome:
    if isinstance(error, Waiting):
        return CallOutcome(actions=ctx.actions, bills=tuple(ctx._bills), asks=error.asks)
    if isinstance(error, ToolError):
        text = str(error) or "The tool failed."
    elif isinstance(error, AbortTurn):
        text = "The tool ended the turn."
    else:
        # The text of an exception may hold a path, a query or a secret; the name of its class does not.
        text = f"{type(error).__name__} while running the tool."
    whole = (Text(valid_text(text)),)
    parts = _cut(whole, ctx.max_result_bytes)
    return CallOutcome(
        parts=parts,
        whole=whole if ctx._keeps and parts is not whole else (),
        flag="unknown" if isinstance(error, UnknownOutcome) else "error",
        exception=error,
        abort=isinstance(error, AbortTurn),
        actions=ctx.actions,
        bills=tuple(ctx._bills),
    )


MAX_RESULT_MEDIA_BYTES = 1024 * 1024
"""The largest total of all pictures, documents and sounds of one result: bytes before base64, and URLs.

Media stay in the history: every later request and every saved state holds them again.
"""

_NOTE = "\n[{} characters removed]"
_NOTE_BYTES = 64
_PARTS = (Text, Image, Document, Audio)


def result_parts(value: Any, max_bytes: int = MAX_RESULT_BYTES) -> tuple[tuple[Part, ...], bool]:
    """Write a tool's return value as parts, and say whether it is an error.

    A `str` is text. A part (`Image`, …) is a part. A list or tuple with at least one part in it is a list of
    parts, in which a `str` is text. Anything else becomes JSON text: None is ``null``; dates, Decimal, UUID,
    Enum, sets, dataclasses and pydantic models are written as pydantic writes them; bytes must be UTF-8. A
    value that JSON cannot express becomes an error result, which names the type and never the content.

    Text longer than `max_bytes` is cut off, and a note counts the removed characters. A picture, document or
    sound that does not fit `MAX_RESULT_MEDIA_BYTES` is replaced by a note with its kind and size.
    """
    parts, is_error = _written(value)
    return _cut(parts, max_bytes), is_error


def text_parts(text: str, max_bytes: int = MAX_RESULT_BYTES) -> tuple[Part, ...]:
    """Text within the limits of a result."""
    return _cut((Text(valid_text(text)),), max_bytes)


def whole_text(parts: Sequence[Part]) -> str:
    """The text of all parts, with nothing between them."""
    return "".join(part.text for part in parts if isinstance(part, Text))


_ENDS_NOTE: Final = "\n[{:,} of {:,} bytes left out; for all of it call recall with result {:08x}]\n"
"""The note in a result that is kept whole. `state.media_rows` finds the number in it."""
_ENDS_NOTE_BYTES: Final = 128
_TAIL: Final = 4
"""The end has this part of the room for the text, the beginning has the rest."""


def with_ends(parts: Sequence[Part], max_bytes: int, number: int) -> tuple[Part, ...]:
    """Shorten a result that is kept whole: its text is the beginning, a note, and the end.

    The text is cut between characters, and at a line break if there is one near. Media stay in their places.

    Args:
        parts: The result, with text beyond `max_bytes`.
        max_bytes: The most bytes of text, with the note.
        number: The number by which the whole can be read.
    """
    texts = [part.text.encode() for part in parts if isinstance(part, Text)]
    whole = b"".join(texts)
    room = max_bytes - _ENDS_NOTE_BYTES
    begin = end_of_lines(whole, room - room // _TAIL)
    end = len(whole) - room // _TAIL
    line = whole.find(b"\n", end, end + (len(whole) - end) // _TAIL)
    end = line + 1 if line >= 0 else end
    while end < len(whole) and whole[end] & 0xC0 == 0x80:
        end += 1
    note = _ENDS_NOTE.format(end - begin, len(whole), number)
    kept: list[Part] = []
    at = 0
    for part in parts:
        if not isinstance(part, Text):
            kept.append(part)
            continue
        own = texts.pop(0)
        head, tail = own[: max(0, begin - at)], own[max(0, end - at) :]
        # The note stands in the part in which the beginning ends.
        middle = note if at <= begin < at + len(own) else ""
        at += len(own)
        if text := head.decode() + middle + tail.decode():
            kept.append(Text(text))
    return tuple(kept)


def end_of_lines(text: bytes, most: int) -> int:
    """Where to cut UTF-8 text, at most after `most` bytes: after the last line break of the last quarter,
    else between two characters."""
    if len(text) <= most:
        return len(text)
    line = text.rfind(b"\n", most - most // 4, most)
    if line >= 0:
        return line + 1
    while most and text[most] & 0xC0 == 0x80:
        most -= 1
    return most


def _written(value: Any) -> tuple[tuple[Part, ...], bool]:
    """A tool's return value as parts with their whole text; True if it is an error."""
    if isinstance(value, ToolReturn):
        parts, is_error = _written(value.value)
        return parts, is_error or value.is_error
    try:
        parts = tuple(_limited_media(_parts(value)))
    except _NotJSONError as error:
        return (Text(f"The tool returned a value of type {error}, which cannot be written as JSON."),), True
    return tuple(Text(valid_text(one.text)) if isinstance(one, Text) else one for one in parts), False


class _NotJSONError(Exception):
    """JSON cannot express the value. The text is the name of its type."""


def _parts(value: Any) -> tuple[Part, ...]:
    if isinstance(value, _PARTS):
        return (value,)
    if isinstance(value, (list, tuple)) and any(isinstance(item, _PARTS) for item in value):
        return tuple(item if isinstance(item, _PARTS) else Text(_text(item)) for item in value)
    return (Text(_text(value)),)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    from pydantic_core import to_json  # on first need: it takes a while to load

    unknown: list[str] = []

    def refuse(item: Any) -> Any:
        unknown.append(type(item).__name__)
        raise TypeError

    try:
        return to_json(value, fallback=refuse).decode()
    except (ValueError, TypeError, RecursionError) as error:  # unknown type, cycle, too deep, no UTF-8
        raise _NotJSONError(unknown[0] if unknown else type(value).__name__) from error


def _limited_media(parts: Sequence[Part]) -> list[Part]:
    room = MAX_RESULT_MEDIA_BYTES
    kept: list[Part] = []
    for part in parts:
        # A URL counts like data, because a data: URL holds the whole picture.
        size = 0 if isinstance(part, Text) else len(part.data or b"") + len(part.url or "")
        if size > room:
            kept.append(Text(f"[{type(part).__name__.lower()} of {size} bytes left out: too large]"))
        else:
            room -= size
            kept.append(part)
    return kept


def _cut(clean: tuple[Part, ...], max_bytes: int) -> tuple[Part, ...]:
    """The parts within the limit of their text. The same object if nothing is cut."""
    if sum(len(part.text.encode()) for part in clean if isinstance(part, Text)) <= max_bytes:
        return clean
    room = max_bytes - _NOTE_BYTES
    removed = 0
    kept: list[Part] = []
    for part in clean:
        if not isinstance(part, Text):
            kept.append(part)
            continue
        head = part.text.encode()[:room].decode("utf-8", "ignore")
        # No text follows the cut, even if a shorter part would fit.
        room = room - len(head.encode()) if head == part.text else 0
        removed += len(part.text) - len(head)
        if head:
            kept.append(Text(head))
    last = max(index for index, part in enumerate(kept) if isinstance(part, Text))
    kept[last] = Text(_as_text(kept[last]) + _NOTE.format(removed))
    return tuple(kept)


def _as_text(part: Part) -> str:
    return part.text if isinstance(part, Text) else ""
