"""Runs one call of one tool, and turns the returned value into parts of a message.

Owns: `CallOutcome`, the meaning of a tool's exception, how values are written as text, and the size limits.
Must never know: a clock, a thread, other calls. Whatever happens in the tool becomes a value.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Literal

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
    "finish_call",
    "result_parts",
    "run_call",
    "text_parts",
    "timed_out",
]


class CallOutcome(Value, frozen=True, kw_only=True):
    """How a call ended.

    Attributes:
        parts: The result for the model.
        flag: "ok" or "error", as the tool says; "unknown" or "cancelled" if the tool's end was not seen.
        exception: The exception of the tool, for `tool_errors="raise"`.
        abort: True if the tool raised `AbortTurn`.
        actions: The actions that the tool logged.
        bills: The model calls that the tool made.
        asks: If calls inside of the tool wait for answers: these calls, as JSON text.
    """

    _unshown = frozenset({"parts", "exception", "asks"})

    parts: tuple[Part, ...] = ()
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
    parts, is_error = result_parts(value, ctx.max_result_bytes)
    flag: Literal["ok", "error"] = "error" if is_error else "ok"
    return CallOutcome(parts=parts, flag=flag, actions=ctx.actions, bills=tuple(ctx._bills))


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
    return CallOutcome(
        parts=text_parts(text, ctx.max_result_bytes),
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
    if isinstance(value, ToolReturn):
        parts, is_error = result_parts(value.value, max_bytes)
        return parts, is_error or value.is_error
    try:
        return _limited(_parts(value), max_bytes), False
    except _NotJSONError as error:
        text = f"The tool returned a value of type {error}, which cannot be written as JSON."
        return text_parts(text, max_bytes), True


def text_parts(text: str, max_bytes: int = MAX_RESULT_BYTES) -> tuple[Part, ...]:
    """Text within the limits of a result."""
    return _limited((Text(text),), max_bytes)


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


def _limited(parts: Sequence[Part], max_bytes: int) -> tuple[Part, ...]:
    """The parts within both limits, with text that is valid UTF-8."""
    parts = _limited_media(parts)
    clean = [Text(valid_text(part.text)) if isinstance(part, Text) else part for part in parts]
    if sum(len(part.text.encode()) for part in clean if isinstance(part, Text)) <= max_bytes:
        return tuple(clean)
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
