"""Facts about `goaitools_py.tools.call`: whatever happens inside a tool is one value."""

import asyncio
import contextvars
import dataclasses
import gc
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from goaitools_py.tools import (
    MAX_RESULT_BYTES,
    Action,
    CallOutcome,
    Tool,
    ToolContext,
    ToolReturn,
    begin_call,
    finish_call,
    result_parts,
    run_call,
    tool,
)
from goaitools_py.tools.call import timed_out
from goaitools_py.types.errors import AbortTurn, ToolError
from goaitools_py.types.messages import Text


class Game:
    """The kind of thing an application hands to its tools."""

    def __init__(self) -> None:
        self.scores = {"blue": 3}


@tool
def get_score(ctx: ToolContext[Game], team: str) -> int:
    """Current score of one team.

    Args:
        team: Team name as the player typed it.
    """
    ctx.log_action(f"Read score of {team}", team=team)
    return ctx.deps.scores[team]


@pytest.fixture
def ctx() -> ToolContext[Game]:
    return ToolContext(deps=Game(), call_id="call_1", turn_id="turn_1", iteration=2, idempotency_key="key_1")


def text_of(outcome: CallOutcome) -> str:
    return "".join(part.text for part in outcome.parts if isinstance(part, Text))


class Opaque:
    """Something that JSON has no word for."""

    def __repr__(self) -> str:
        return "SECRET"


def test_the_limit_holds_for_json_and_for_errors(ctx: ToolContext[Game]) -> None:
    """However text gets into a result."""

    @tool
    def wordy() -> str:
        raise ToolError("x" * (MAX_RESULT_BYTES + 1))

    (as_json,), _ = result_parts(["x" * MAX_RESULT_BYTES])

    assert isinstance(as_json, Text)
    assert as_json.text.endswith("characters removed]")
    assert text_of(run_call(wordy, ctx, {})).endswith("characters removed]")


async def awaited(a_tool: Tool, ctx: ToolContext[Any], kwargs: dict[str, Any]) -> CallOutcome:
    return await finish_call(begin_call(a_tool, ctx, kwargs), ctx)


def run_sync(a_tool: Tool, ctx: ToolContext[Any], kwargs: dict[str, Any]) -> CallOutcome:
    return run_call(a_tool, ctx, kwargs)


def run_async(a_tool: Tool, ctx: ToolContext[Any], kwargs: dict[str, Any]) -> CallOutcome:
    return asyncio.run(awaited(a_tool, ctx, kwargs))


def run_awaited(a_tool: Tool, ctx: ToolContext[Any], kwargs: dict[str, Any]) -> CallOutcome:
    """The same tool, declared with `async def`."""

    async def run(*args: Any, **kwargs: Any) -> Any:
        return a_tool.run(*args, **kwargs)

    return asyncio.run(awaited(dataclasses.replace(a_tool, run=run), ctx, kwargs))


every_way = pytest.mark.parametrize("run", [run_sync, run_async, run_awaited])


Run = Callable[[Tool, ToolContext[Any], dict[str, Any]], CallOutcome]


@every_way
def test_a_call_gives_its_result_and_its_actions(run: Run, ctx: ToolContext[Game]) -> None:
    """The good case."""
    outcome = run(get_score, ctx, get_score.bind('{"team": "blue"}'))

    assert outcome == CallOutcome(
        parts=(Text("3"),), actions=(Action("Read score of blue", {"team": "blue"}),)
    )
    assert (outcome.flag, outcome.exception, outcome.abort) == ("ok", None, False)


@every_way
def test_a_tool_return_can_make_the_result_an_error(run: Run, ctx: ToolContext[Game]) -> None:
    """Without any exception."""

    @tool
    def buy(n: int) -> ToolReturn:
        return ToolReturn({"left": n}, is_error=True)

    outcome = run(buy, ctx, {"n": 0})

    assert (outcome.flag, outcome.exception, text_of(outcome)) == ("error", None, '{"left":0}')


@every_way
@pytest.mark.parametrize(
    ("error", "told", "abort"),
    [
        (ToolError("No team of that name."), "No team of that name.", False),
        (ToolError(), "The tool failed.", False),
        (AbortTurn("SECRET"), "The tool ended the turn.", True),
        (ValueError("SECRET"), "ValueError while running the tool.", False),
        (KeyError("SECRET"), "KeyError while running the tool.", False),
        (StopIteration("SECRET"), None, False),
        (TimeoutError("SECRET"), "TimeoutError while running the tool.", False),
        (ExceptionGroup("SECRET", [ValueError("SECRET")]), "ExceptionGroup while running the tool.", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_exception_is_an_error_result(
    run: Run, error: Exception, told: str | None, abort: bool, ctx: ToolContext[Game]
) -> None:
    """The model gets the class name, unless the tool spoke to it; the caller gets the exception."""

    @tool
    def fail(ctx: ToolContext[Game]) -> None:
        ctx.log_action("before")
        raise error

    outcome = run(fail, ctx, {})

    assert outcome.flag == "error"
    assert outcome.abort is abort
    assert outcome.actions == (Action("before"),)
    assert "SECRET" not in text_of(outcome) + repr(outcome)
    if told is not None:  # a coroutine cannot raise StopIteration: Python makes it a RuntimeError
        assert outcome.exception is error
        assert text_of(outcome) == told


@every_way
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_what_is_not_about_the_tool_passes_through(
    run: Run, error: type[BaseException], ctx: ToolContext[Game]
) -> None:
    """Ctrl-C, exit and cancellation are not results."""

    @tool
    def stop() -> None:
        raise error

    with pytest.raises(error):
        run(stop, ctx, {})


@every_way
def test_arguments_that_the_function_does_not_take_are_an_error_result(
    run: Run, ctx: ToolContext[Game]
) -> None:
    """A hand-written schema may promise more than `run` takes; that must not end the turn."""
    hand_written = Tool("t", "", {"type": "object"}, lambda a: a)

    outcome = run(hand_written, ctx, {"b": 1})

    assert (outcome.flag, text_of(outcome)) == ("error", "TypeError while running the tool.")


@every_way
def test_a_result_that_is_not_json_is_an_error_result(run: Run, ctx: ToolContext[Game]) -> None:
    """The call happened; the model learns that its result got lost."""

    @tool
    def find() -> Opaque:
        return Opaque()

    assert run(find, ctx, {}).flag == "error"


def test_an_awaitable_from_a_sync_call_is_explained(ctx: ToolContext[Game]) -> None:
    """It is closed, so that Python does not warn, and the result says what to do."""

    async def later() -> str:
        return "never"

    @tool
    def sneaky() -> Any:
        return later()

    outcome = run_call(sneaky, ctx, {})
    gc.collect()

    assert outcome.flag == "error"
    assert text_of(outcome) == "Tool 'sneaky' is async: it needs an AsyncChat."


def test_an_awaitable_from_a_plain_def_is_awaited_on_the_async_path(ctx: ToolContext[Game]) -> None:
    """A decorated coroutine function often looks like a plain one."""

    async def later() -> str:
        return "at last"

    @tool
    def wrapped() -> Any:
        return later()

    assert text_of(run_async(wrapped, ctx, {})) == "at last"


def test_cancelling_the_task_reaches_the_tool(ctx: ToolContext[Game]) -> None:
    """The tool's `finally` runs, and the task is cancelled, not answered."""
    seen = []

    @tool
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cleaned up")

    async def main() -> None:
        task = asyncio.create_task(awaited(wait, ctx, {}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert seen == ["cleaned up"]


def test_an_outcome_shows_no_content() -> None:
    """Its repr may be logged."""
    outcome = CallOutcome(
        parts=(Text("SECRET"),), exception=ValueError("SECRET"), actions=(Action("SECRET"),)
    )

    assert "SECRET" not in repr(outcome)


def test_a_call_runs_in_the_thread_and_context_of_its_caller() -> None:
    """Where a tool runs is the caller's to say: database handles and context variables stay in place."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @tool
    def where() -> dict[str, Any]:
        return {"thread": threading.get_ident(), "variable": variable.get()}

    def here() -> tuple[int, str]:
        variable.set("set")
        return threading.get_ident(), text_of(run_call(where, ToolContext(deps=None), {}))

    with ThreadPoolExecutor(1) as pool:
        ident, told = pool.submit(contextvars.copy_context().run, here).result()

    assert ident != threading.get_ident()
    assert json.loads(told) == {"thread": ident, "variable": "set"}


def test_actions_logged_after_the_end_do_not_change_the_outcome() -> None:
    """A worker that outlives its call, as after a timeout, writes into a context nobody reads any more."""
    ctx = ToolContext(deps=None)

    @tool
    def quick() -> str:
        return "done"

    outcome = run_call(quick, ctx, {})
    ctx.log_action("late")

    assert outcome.actions == ()


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("60 s", "The tool did not finish within 60 s; it is unknown whether it took effect."),
        ("", "The tool did not finish; it is unknown whether it took effect."),
    ],
)
def test_a_call_nobody_waits_for_is_unknown(limit: str, told: str, ctx: ToolContext[Game]) -> None:
    """Neither done nor failed; what it logged so far is kept."""
    ctx.log_action("began")

    outcome = timed_out(ctx, limit)

    assert outcome == CallOutcome(parts=(Text(told),), flag="unknown", actions=(Action("began"),))
