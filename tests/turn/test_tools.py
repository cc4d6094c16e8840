"""Tools in a turn: every call gets one result, in call order, whatever happens inside the tools."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py import (
    AbortTurn,
    AsyncChat,
    ModelSettings,
    ProviderUnavailableError,
    Tool,
    ToolContext,
    ToolError,
    ToolFailedError,
    ToolFinished,
    ToolReturn,
    ToolStarted,
    tool,
)
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import read_history
from goaitools_py.testing import Calls, ScriptedBackend

from ._reading import ANTHROPIC, results, tool_choice

# ------------------------------------------------------------------------------------------- failures


@tool
def broken(text: str) -> str:
    """Always raises."""
    raise KeyError("a secret")


@tool
def speaking(text: str) -> str:
    """Raises with words for the model."""
    raise ToolError(f"No such text: {text}")


@tool
def admitting(text: str) -> ToolReturn:
    """Returns an error."""
    return ToolReturn("out of stock", is_error=True)


@tool
def echo(text: str) -> str:
    """Says it again."""
    return text


def test_one_tool_that_raises_does_not_stop_the_others(face: Any, sim: Any, run: Any) -> None:
    """Each call has its result, in call order; a bug shows its class only, a `ToolError` its words."""
    chat = face.on(sim, tools=[broken, speaking, admitting, echo])
    arguments = '{"text":"x"}'
    names = ("broken", "speaking", "admitting", "echo")
    sim.push(Reply.calls(*((name, arguments) for name in names)))

    result = run(chat, user="All of them.")

    assert [(r.call.name, r.flag, r.synthetic) for r in result.tool_log] == [
        ("broken", "error", False),
        ("speaking", "error", False),
        ("admitting", "error", False),
        ("echo", "ok", False),
    ]
    assert results(result.state) == [
        "KeyError while running the tool.",
        "No such text: x",
        "out of stock",
        "x",
    ]
    assert all(r.started is not None for r in result.tool_log)
    # For the developer's own log there is the exception itself, which no repr shows.
    assert [type(r.error) for r in result.tool_log] == [KeyError, ToolError, type(None), type(None)]
    assert "KeyError" not in repr(result.tool_log)
    assert result.status == "complete"
    assert sim.problems == []


def test_calls_that_cannot_run_are_explained_to_the_model(face: Any, sim: Any, run: Any) -> None:
    """An unknown name and bad arguments are error results that say what would be right."""
    chat = face.on(sim, tools=[echo])
    sim.push(
        Reply.calls(
            ("shout", '{"text":"x"}'),
            ("echo", '{"text":'),
            ("echo", '{"word":"x"}'),
            ("echo", '{"text":"x"}'),
        )
    )

    result = run(chat, user="All of them.")

    unknown, cut, wrong, right = results(result.state)
    assert unknown == "There is no tool of this name. The tools are: echo."
    # A whole answer of Anthropic's wire has no form for broken JSON; what it has then lacks the text.
    has_no_form = sim.wire == ANTHROPIC and not run.is_streamed
    assert cut.startswith("Invalid arguments" if has_no_form else "The arguments are not valid JSON")
    assert "text" in wrong
    assert right == "x"
    assert [r.flag for r in result.tool_log] == ["error", "error", "error", "ok"]
    assert [r.started is None for r in result.tool_log] == [True, True, True, False]
    assert result.warnings == ()
    assert sim.problems == []


def test_three_replies_of_invalid_calls_end_the_turn(face: Any, sim: Any, run: Any) -> None:
    """A model that cannot find its way is asked once more, without tools; a warning says why."""
    chat = face.on(sim, tools=[echo])
    sim.push(*[Reply.calls(("shout", "{}"))] * 3, Reply.text("I give up."))

    result = run(chat, user="Shout.")

    assert result.text == "I give up."
    assert result.status == "limited"
    assert [w.code for w in result.warnings] == ["invalid_tool_calls"]
    assert len(sim.requests) == 4
    assert tool_choice(sim.requests[-1]) == "none"
    assert sim.problems == []


def test_a_valid_call_between_invalid_ones_starts_the_count_anew(face: Any) -> None:
    """Only three in a row end a turn."""
    backend = ScriptedBackend(
        *[Calls([("shout", {})])] * 2,
        Calls([("echo", {"text": "x"})]),
        *[Calls([("shout", {})])] * 2,
        "Done.",
    )
    result = face.chat(backend, tools=[echo]).chat(user="Shout.")

    assert (result.text, result.status) == ("Done.", "complete")


def test_a_bug_in_a_tool_can_end_the_turn(face: Any, sim: Any, run: Any) -> None:
    """With `tool_errors="raise"` the others run to their end first; the exception is the error's cause."""
    chat = face.on(sim, tools=[broken, echo], tool_errors="raise")
    sim.push(Reply.calls(("broken", '{"text":"x"}'), ("echo", '{"text":"y"}')))

    with pytest.raises(ToolFailedError) as caught:
        run(chat, user="Both.")
    err = caught.value
    resumed = chat.resume(err.state)

    assert isinstance(err.__cause__, KeyError)
    assert "secret" not in str(err)
    assert [r.flag for r in err.tool_log] == ["error", "ok"]
    assert len(sim.requests) == 2
    assert results(resumed.state) == ["KeyError while running the tool.", "y"]
    assert sim.problems == []


def test_a_tool_can_end_the_turn(face: Any, sim: Any, run: Any) -> None:
    """`AbortTurn` closes its own call as an error and leaves those not started as not run."""
    ran: list[str] = []

    @tool(thread=False)
    def leave(text: str) -> str:
        """Leave the game."""
        ran.append(text)
        raise AbortTurn

    chat = face.on(sim, tools=[leave], tool_threads=False)
    sim.push(Reply.calls(("leave", '{"text":"1"}'), ("leave", '{"text":"2"}')))

    with pytest.raises(ToolFailedError) as caught:
        run(chat, user="Leave.")
    err = caught.value
    resumed = chat.resume(err.state)

    assert ran == ["1"]
    assert [(r.flag, r.synthetic) for r in err.tool_log] == [("error", False), ("not_run", True)]
    assert results(resumed.state) == ["The tool ended the turn.", "This tool was not run."]
    assert sim.problems == []


def test_results_keep_their_flags_in_the_state(face: Any, sim: Any) -> None:
    """Which results were no plain success is stored with the turn, by call id."""
    chat = face.on(sim, tools=[broken, echo])
    sim.push(Reply.calls(("broken", '{"text":"x"}'), ("echo", '{"text":"y"}'), ids=("a", "b")))

    result = chat.chat(user="Both.")

    assert read_history(result.state).turns[0].facts["flags"] == {"a": "error"}


@pytest.mark.parametrize("thread", [None, True, False])
def test_an_async_tool_behind_a_plain_decorator_is_awaited(thread: bool | None) -> None:
    """Decorators that trace or retry often hide an `async def` in a `def`; its answer is the result."""

    async def ask(text: str) -> str:
        await asyncio.sleep(0)
        return text.upper()

    def traced(text: str) -> Any:
        """Ask the oracle."""
        return ask(text)

    chat = AsyncChat(
        ScriptedBackend(Calls([("traced", {"text": "yes"})]), "Done."), tools=[tool(thread=thread)(traced)]
    )

    result = asyncio.run(chat.chat(user="Ask."))

    assert results(result.state) == ["YES"]


def test_an_awaitable_tool_has_its_timeout() -> None:
    """What a plain function returns to be awaited ends with the tool's time."""

    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    @tool(timeout=0.05)
    def hidden() -> Any:
        """Wait."""
        return never()

    chat = AsyncChat(ScriptedBackend(Calls([("hidden", {})]), "Done."), tools=[hidden])

    result = asyncio.run(chat.chat(user="Wait."))

    assert [record.flag for record in result.tool_log] == ["unknown"]


# --------------------------------------------------------------------------------- where and in which order


@pytest.fixture
def meeting() -> Iterator[threading.Barrier]:
    """Three tools that all wait for each other; one alone breaks it after a while instead of hanging."""
    barrier = threading.Barrier(3, timeout=10)
    yield barrier
    barrier.abort()


def meeting_tool(barrier: threading.Barrier, **options: Any) -> Tool[..., Any]:
    @tool(**options)
    def meet(number: int) -> str:
        """Wait for the others."""
        barrier.wait()
        return f"{number} on {threading.current_thread() is threading.main_thread()}"

    return meet


THREE = Reply.calls(*(("meet", f'{{"number":{n}}}') for n in range(3)))


def test_worker_threads_run_beside_each_other(
    face: Any, sim: Any, run: Any, meeting: threading.Barrier
) -> None:
    """With `tool_threads` three calls are in their tools at once, and the results stand in call order."""
    chat = face.on(sim, tools=[meeting_tool(meeting)], tool_threads=True)
    sim.push(THREE)

    result = run(chat, user="Meet.")

    assert results(result.state) == ["0 on False", "1 on False", "2 on False"]
    assert [r.call.parsed["number"] for r in result.tool_log] == [0, 1, 2]
    assert sim.problems == []


def test_the_default_is_the_callers_thread_or_workers(face: Any, sim: Any) -> None:
    """On `Chat` a sync tool runs in the caller's thread, on `AsyncChat` in a worker; a tool may differ."""

    @tool
    def where() -> bool:
        """Which thread?"""
        return threading.current_thread() is threading.main_thread()

    @tool(thread=not face.is_async)
    def elsewhere() -> bool:
        """Which thread?"""
        return threading.current_thread() is threading.main_thread()

    chat = face.on(sim, tools=[where, elsewhere])
    sim.push(Reply.calls(("where", ""), ("elsewhere", "")))

    result = chat.chat(user="Where?")

    assert results(result.state) == (["false", "true"] if face.is_async else ["true", "false"])


def test_tools_of_the_callers_thread_run_one_after_another(face: Any, sim: Any) -> None:
    """Without threads no call starts before the one before it has ended."""
    notes: list[str] = []

    @tool
    def note(number: int) -> None:
        """Write down when."""
        notes.append(f"in {number}")
        notes.append(f"out {number}")

    chat = face.on(sim, tools=[note], tool_threads=False)
    sim.push(Reply.calls(*(("note", f'{{"number":{n}}}') for n in range(3))))

    chat.chat(user="Go.")

    assert notes == ["in 0", "out 0", "in 1", "out 1", "in 2", "out 2"]


def test_concurrency_is_limited(face: Any, sim: Any) -> None:
    """No more than `tool_concurrency` calls are started before one of them has ended."""
    events: list[Any] = []

    @tool
    def work(number: int) -> int:
        """Work."""
        return number

    chat = face.on(sim, tools=[work], tool_threads=True, tool_concurrency=2, on_event=events.append)
    sim.push(Reply.calls(*(("work", f'{{"number":{n}}}') for n in range(6))))

    result = chat.chat(user="Go.")

    running, most = 0, 0
    for happened in events:
        running += isinstance(happened, ToolStarted) - isinstance(happened, ToolFinished)
        most = max(most, running)
    assert most == 2
    assert results(result.state) == ["0", "1", "2", "3", "4", "5"]


def test_results_stand_in_call_order_whoever_ends_first(face: Any, sim: Any, run: Any) -> None:
    """The last call ends first here; its result is still the last."""
    last_is_done = threading.Event()

    @tool
    def work(number: int) -> int:
        """The first waits for the last."""
        if number == 0:
            assert last_is_done.wait(60)
        else:
            last_is_done.set()
        return number

    chat = face.on(sim, tools=[work], tool_threads=True)
    sim.push(Reply.calls(("work", '{"number":0}'), ("work", '{"number":1}')))

    result = run(chat, user="Go.")

    assert results(result.state) == ["0", "1"]
    assert [r.result for r in result.tool_log] == ["0", "1"]
    assert sim.problems == []


# ------------------------------------------------------------------------------------------- timeouts


def test_a_tool_in_a_thread_that_takes_too_long_is_unknown(face: Any, sim: Any, run: Any) -> None:
    """Nobody waits for it any longer; the model is told that its outcome is unknown, and the turn goes on."""
    release = threading.Event()

    @tool(timeout=0.01)
    def slow(text: str) -> str:
        """Hangs."""
        release.wait(60)
        return "too late"

    chat = face.on(sim, tools=[slow, echo], tool_threads=True)
    sim.push(Reply.calls(("slow", '{"text":"x"}'), ("echo", '{"text":"y"}')))

    result = run(chat, user="Both.")
    release.set()

    assert [(r.flag, r.synthetic) for r in result.tool_log] == [("unknown", True), ("ok", False)]
    assert results(result.state) == [
        "The tool did not finish within 0.01 s; it is unknown whether it took effect.",
        "y",
    ]
    assert result.status == "complete"
    assert sim.problems == []


def test_a_call_behind_a_hanging_tool_gets_a_thread_of_its_own(face: Any, sim: Any) -> None:
    """A tool that nobody waits for any longer does not hold the place of the next one."""
    release, is_out = threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def slow() -> None:
        """Hangs."""
        release.wait(60)
        is_out.set()

    @tool
    def quick() -> bool:
        """Does not."""
        return is_out.is_set()

    chat = face.on(sim, tools=[slow, quick], tool_threads=True, tool_concurrency=1)
    sim.push(Reply.calls(("slow", ""), ("quick", "")))

    result = chat.chat(user="Both.")
    release.set()

    assert [r.result for r in result.tool_log][1] == "false"


def test_async_tools_run_on_the_loop(sim: Any) -> None:
    """Coroutines of one reply run beside each other; one that takes too long is cancelled and unknown."""

    async def go() -> Any:
        both = asyncio.Event()
        waiting: list[int] = []
        cancelled: list[bool] = []

        @tool
        async def meet(number: int) -> int:
            """Wait for the other."""
            waiting.append(number)
            if len(waiting) == 2:
                both.set()
            await both.wait()
            return number

        @tool(timeout=0.01)
        async def slow() -> str:
            """Hangs."""
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise
            return "never"

        async with AsyncChat(sim.backend(is_async=True), tools=[meet, slow]) as chat:
            result = await chat.chat(user="Go.")
        return result, cancelled

    sim.push(Reply.calls(("meet", '{"number":0}'), ("slow", ""), ("meet", '{"number":1}')))
    result, cancelled = asyncio.run(go())

    assert [r.flag for r in result.tool_log] == ["ok", "unknown", "ok"]
    assert cancelled == [True]
    assert sim.problems == []


# ------------------------------------------------------------------------------------------- what tools get


def test_a_tool_is_told_about_its_call(face: Any, sim: Any, run: Any) -> None:
    """Deps are the caller's own object, keys differ by call, and what was logged is in the result."""
    deps = object()
    seen: list[ToolContext[Any]] = []

    @tool
    def look(ctx: ToolContext[Any], place: str) -> str:
        """Look around."""
        seen.append(ctx)
        ctx.log_action(f"looked at {place}", place=place)
        return "nothing"

    chat = face.on(sim, tools=[look])
    sim.push(Reply.calls(("look", '{"place":"a"}'), ("look", '{"place":"b"}'), ids=("c1", "c2")))

    result = run(chat, user="Look.", deps=deps)
    seen.sort(key=lambda ctx: ctx.call_id)

    assert [ctx.deps is deps for ctx in seen] == [True, True]
    assert [(ctx.call_id, ctx.iteration) for ctx in seen] == [("c1", 1), ("c2", 1)]
    assert len({ctx.idempotency_key for ctx in seen}) == 2
    assert len({ctx.turn_id for ctx in seen}) == 1
    assert sorted(action.text for action in result.actions) == ["looked at a", "looked at b"]


def test_tool_choice_holds_for_the_first_call_only(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """A forced call is forced once; otherwise the model could never answer."""
    chat = face.on(sim, tools=[scores.get_score], settings=ModelSettings(tool_choice="required"))

    result = run(chat, user="Which is the team Red?")

    assert [tool_choice(request) for request in sim.requests] == ["required", None]
    assert result.status == "complete"
    assert scores.runs != []


def test_tool_choice_does_not_come_back_with_resume(face: Any, sim: Any, scores: Any) -> None:
    """A resumed turn whose first call was answered is not forced to call again."""
    chat = face.on(sim, tools=[scores.get_score], settings=ModelSettings(tool_choice="get_score"))
    sim.push(Reply.calls(("get_score", '{"team":"Red"}')), Fault.server_error())
    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat(user="The score of Red?")

    chat.resume(caught.value.state)

    assert [tool_choice(request) for request in sim.requests] == ["get_score", None, None]
    assert scores.runs == ["Red"]


def test_a_call_that_never_reached_a_model_is_still_the_first(face: Any, sim: Any, scores: Any) -> None:
    """Resuming a turn whose first call failed forces the tool that the failed call would have forced."""
    chat = face.on(sim, tools=[scores.get_score], settings=ModelSettings(tool_choice="required"))
    sim.push(Fault.server_error())
    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat(user="The score of Red?")

    chat.resume(caught.value.state)

    assert tool_choice(sim.requests[1]) == "required"
    assert scores.runs == ["Red"]
