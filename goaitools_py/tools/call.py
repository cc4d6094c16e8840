"""Runs one call of one tool. Whatever happens in the tool becomes a value.

Owns: `CallOutcome`, and the meaning of a tool's exception. Must never know: a clock, a thread, other calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from typing import Any, Literal

from ..base.values import Value
from ..types.errors import AbortTurn, ToolError
from ..types.messages import Part
from ..types.usage import Bill
from .context import Action, ToolContext, Waiting
from .definition import Tool
from .results import result_parts, text_parts

__all__ = ["CallOutcome", "UnknownOutcome", "begin_call", "finish_call", "run_call", "timed_out"]


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
