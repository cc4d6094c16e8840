"""One call of one tool: whatever happens inside it, as a value.

Owns: `Outcome` and the meaning of what a tool raises. Must never know: a clock, a thread, other calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Literal

from ..errors import AbortTurn, ToolError
from ..messages import Part
from ..values import Value
from .context import Action, ToolContext
from .definition import Tool
from .results import result_parts, text_parts

__all__ = ["Outcome", "arun_call", "run_call", "timed_out"]


class Outcome(Value, frozen=True, kw_only=True):
    """How a call ended.

    Attributes:
        parts: What the model is told.
        flag: "ok" or "error" as the tool says; "unknown" and "cancelled" when nobody saw its end.
        exception: What the tool raised, for `tool_errors="raise"`.
        abort: True if the tool raised `AbortTurn`.
        actions: What it logged.
    """

    unshown = frozenset({"parts", "exception"})

    parts: tuple[Part, ...] = ()
    flag: Literal["ok", "error", "unknown", "cancelled"] = "ok"
    exception: BaseException | None = None
    abort: bool = False
    actions: tuple[Action, ...] = ()


def run_call(tool: Tool[..., Any], ctx: ToolContext[Any], kwargs: Mapping[str, Any]) -> Outcome:
    """Run a sync tool in this thread.

    `KeyboardInterrupt`, `SystemExit` and cancellation pass through; every other exception is an outcome.

    Args:
        tool: What to run.
        ctx: Handed to the tool if it takes one.
        kwargs: As `Tool.bind` returns them.
    """
    try:
        value = _start(tool, ctx, kwargs)
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()  # or Python warns that it was never awaited
            raise ToolError(
                f"Tool {tool.name!r} returned an awaitable: declare it with 'async def' and use AsyncChat."
            )
        return _returned(value, ctx)
    except Exception as error:
        return _raised(error, ctx)


async def arun_call(tool: Tool[..., Any], ctx: ToolContext[Any], kwargs: Mapping[str, Any]) -> Outcome:
    """As `run_call`, for a tool of either kind, in this task. A sync tool blocks the loop meanwhile."""
    try:
        value = _start(tool, ctx, kwargs)
        if inspect.isawaitable(value):
            value = await value
        return _returned(value, ctx)
    except Exception as error:
        return _raised(error, ctx)


def timed_out(ctx: ToolContext[Any], seconds: float | None) -> Outcome:
    """The outcome of a call that nobody waits for any longer. Its effect may still take place."""
    limit = f" within {seconds:g} s" if seconds is not None else ""
    text = f"The tool did not finish{limit}; it is unknown whether it took effect."
    return Outcome(parts=text_parts(text), flag="unknown", actions=ctx.actions)


def _start(tool: Tool[..., Any], ctx: ToolContext[Any], kwargs: Mapping[str, Any]) -> Any:
    if tool.takes_context:
        return tool.run(ctx, **kwargs)
    return tool.run(**kwargs)


def _returned(value: Any, ctx: ToolContext[Any]) -> Outcome:
    parts, is_error = result_parts(value)
    return Outcome(parts=parts, flag="error" if is_error else "ok", actions=ctx.actions)


def _raised(error: Exception, ctx: ToolContext[Any]) -> Outcome:
    if isinstance(error, ToolError):
        text = str(error) or "The tool failed."
    elif isinstance(error, AbortTurn):
        text = "The tool ended the turn."
    else:
        # The text of an exception may hold a path, a query or a secret; its class does not.
        text = f"{type(error).__name__} while running the tool."
    return Outcome(
        parts=text_parts(text),
        flag="error",
        exception=error,
        abort=isinstance(error, AbortTurn),
        actions=ctx.actions,
    )
