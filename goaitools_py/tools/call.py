"""One call of one tool: whatever happens inside it, as a value.

Owns: `Outcome` and the meaning of what a tool raises. Must never know: a clock, a thread, other calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from typing import Any, Literal

from ..errors import AbortTurn, ToolError
from ..messages import Part
from ..values import Value
from .context import Action, ToolContext
from .definition import Tool
from .results import result_parts, text_parts

__all__ = ["Outcome", "begin_call", "finish_call", "run_call", "timed_out"]


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
    begun = begin_call(tool, ctx, kwargs)
    if isinstance(begun, Outcome):
        return begun
    if inspect.iscoroutine(begun):
        begun.close()  # or Python warns that it was never awaited
    return _raised(ToolError(f"Tool {tool.name!r} is async: it needs an AsyncChat."), ctx)


def begin_call(
    tool: Tool[..., Any], ctx: ToolContext[Any], kwargs: Mapping[str, Any]
) -> Outcome | Awaitable[Any]:
    """Run a tool's own function; an awaitable that it returns is `finish_call`'s.

    A plain function may return one too: a decorator that wraps an ``async def`` in a ``def``.
    """
    try:
        value = tool.run(ctx, **kwargs) if tool.takes_context else tool.run(**kwargs)
        return value if inspect.isawaitable(value) else _returned(value, ctx)
    except Exception as error:
        return _raised(error, ctx)


async def finish_call(begun: Outcome | Awaitable[Any], ctx: ToolContext[Any]) -> Outcome:
    """The outcome of what `begin_call` returned."""
    if isinstance(begun, Outcome):
        return begun
    try:
        return _returned(await begun, ctx)
    except Exception as error:
        return _raised(error, ctx)


def timed_out(ctx: ToolContext[Any], seconds: float | None) -> Outcome:
    """The outcome of a call that nobody waits for any longer. Its effect may still take place."""
    limit = f" within {seconds:g} s" if seconds is not None else ""
    text = f"The tool did not finish{limit}; it is unknown whether it took effect."
    return Outcome(parts=text_parts(text), flag="unknown", actions=ctx.actions)


def _returned(value: Any, ctx: ToolContext[Any]) -> Outcome:
    parts, is_error = result_parts(value, ctx.max_result_bytes)
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
        parts=text_parts(text, ctx.max_result_bytes),
        flag="error",
        exception=error,
        abort=isinstance(error, AbortTurn),
        actions=ctx.actions,
    )
