"""Cancellation, Ctrl-C and exits: they pass through unchanged, and the turn's state goes on from there."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from goaitools_py import AsyncChat, AsyncTurn, Chat, TextDelta, Timeouts, ToolFinished, ToolStarted, tool
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history

from ._reading import LEAD, roles, users


def on_a_loop(sim: Any, body: Callable[[AsyncChat], Awaitable[Any]], **fields: Any) -> Any:
    """Run a coroutine with an `AsyncChat` on the simulator."""

    async def go() -> Any:
        async with AsyncChat(sim.backend(is_async=True), **fields) as chat:
            return await body(chat)

    return asyncio.run(go())


async def cancelled_at(turn: AsyncTurn, kind: type) -> None:
    """Run a turn in a task until an event of a kind has come and the task waits again; then cancel it."""
    reached = asyncio.Event()

    async def iterate() -> None:
        async for event in turn:
            if isinstance(event, kind):
                reached.set()

    task = asyncio.create_task(iterate())
    await asyncio.wait_for(reached.wait(), 60)
    await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=60)
    assert done, "the cancelled turn does not end"
    assert task.cancelled()


def test_a_cancelled_task_leaves_a_message_that_waits(sim: Any) -> None:
    """Cancelled before the provider answered: the message is in the state, unseen, and is answered later."""
    gate = threading.Event()
    sim.push(Fault.hold(gate))

    async def body(chat: AsyncChat) -> Any:
        turn = chat.start(None, user="My name is Ada.")
        task = asyncio.create_task(turn.result())
        while not sim.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        return turn.state, await chat.resume(turn.state)

    state, result = on_a_loop(sim, body)

    assert inspect_state(state).waiting_messages == 1
    assert "Noted: your name is Ada." in result.text
    assert roles(result.state) == ["user", "assistant"]


def test_a_cancelled_stream_keeps_its_partial_text(sim: Any) -> None:
    """What had come is kept beside the history, flagged, and is not sent back as an answer."""
    gate = threading.Event()
    sim.push(
        Fault.hold(gate, after=LEAD[sim.wire] + 3, reply=Reply.text("Once upon a time there was a fox."))
    )

    async def body(chat: AsyncChat) -> Any:
        turn = chat.start(None, user="Tell me a story.")
        await cancelled_at(turn, TextDelta)
        gate.set()
        return turn.state, await chat.chat_with_state(turn.state, user="Never mind.")

    state, result = on_a_loop(sim, body)

    facts = read_history(state).turns[0].facts
    assert facts["interrupted"].startswith("Once")
    assert roles(result.state) == ["user", "user", "assistant"]
    assert sim.problems == []


def test_a_cancelled_tool_is_unknown(sim: Any) -> None:
    """The running coroutine is cancelled with its turn; resumed, the model is told that nobody knows."""
    was_cancelled: list[bool] = []

    @tool
    async def dig() -> str:
        """Dig for ever."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.append(True)
            raise
        return "gold"

    sim.push(Reply.calls(("dig", "")))

    async def body(chat: AsyncChat) -> Any:
        turn = chat.start(None, user="Dig.")
        await cancelled_at(turn, ToolStarted)
        return await chat.resume(turn.state)

    result = on_a_loop(sim, body, tools=[dig], timeout=Timeouts(tool=None))

    assert was_cancelled == [True]
    assert [r.flag for r in result.tool_log] == ["unknown"]
    assert sim.problems == []


def test_a_turn_cancelled_from_beside_has_no_result(sim: Any) -> None:
    """`turn.cancel()` in another task ends the wait with words, not with an accident."""
    gate = threading.Event()
    sim.push(Fault.hold(gate))

    async def body(chat: AsyncChat) -> Any:
        turn = chat.start(None, user="Hello.")
        task = asyncio.create_task(turn.result())
        while not sim.requests:
            await asyncio.sleep(0)
        await turn.cancel()
        gate.set()
        with pytest.raises(RuntimeError, match="given up"):
            await task
        return turn.state

    state = on_a_loop(sim, body)

    assert (roles(state), users(state)) == (["user"], ["Hello."])


@pytest.mark.parametrize("threads", [False, True], ids=["in this thread", "in a worker"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exit_in_a_tool_passes_through(error: type[BaseException], threads: bool) -> None:
    """It is no outcome of the tool: the caller gets it unchanged, and the state resumes."""

    @tool
    def leave() -> None:
        """Leave the program."""
        raise error

    backend = ScriptedBackend(Calls([("leave", {})]), "Back again.")
    chat = Chat(backend, tools=[leave], tool_threads=threads)
    turn = chat.start(None, user="Leave.")

    with pytest.raises(error):
        turn.result()
    resumed = chat.resume(turn.state)

    assert resumed.text == "Back again."
    assert [r.flag for r in resumed.tool_log] == ["unknown"]
    assert check_history("openai", state_messages(resumed.state)) == []


def test_an_exit_of_a_listener_passes_through(face: Any) -> None:
    """Ctrl-C while an event is handled is not swallowed as an observer's failure."""

    def observe(event: Any) -> None:
        if isinstance(event, TextDelta):
            raise KeyboardInterrupt

    backend = ScriptedBackend("Once upon a time.", "Hello.")
    turn = face.chat(backend).start(None, user="A story.", on_event=observe)

    with pytest.raises(KeyboardInterrupt):
        turn.result()
    turn.cancel()

    assert face.chat(backend).resume(turn.state).text == "Hello."


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exit_out_of_a_plain_calls_listener_loses_nothing_that_was_kept(
    face: Any, wire: str, error: type[BaseException]
) -> None:
    """At whichever event: what `on_checkpoint` has goes on, nothing runs twice, and a result that the
    listener was told of is real. The given state takes the next message as before."""
    exits = 0
    for stop in itertools.count():
        effects: list[str] = []
        kept: list[bytes] = [b""]
        told: list[Any] = []

        @tool
        def dig(place: str, effects: list[str] = effects) -> str:
            """Dig somewhere."""
            effects.append(place)
            return f"gold at {place}"

        def observe(event: Any, told: list[Any] = told, stop: int = stop) -> None:
            told.append(event)
            if len(told) == stop + 1:
                raise error

        backend = ScriptedBackend(
            Calls([("dig", {"place": "a"}), ("dig", {"place": "b"})]), *["Done."] * 3, wire=wire
        )
        chat = face.chat(backend, tools=[dig], tool_threads=False)
        try:
            chat.chat_with_state(None, user="Dig.", on_event=observe, on_checkpoint=kept.append)
        except error:
            exits += 1
        else:
            break
        before = list(effects)
        if not kept[-1]:
            finished = chat.chat_with_state(None, user="Dig.")
        elif inspect_state(kept[-1]).status == "complete":
            finished = None
        else:
            finished = chat.resume(kept[-1])
        state = finished.state if finished is not None else kept[-1]
        after = chat.chat_with_state(state, user="Thanks.")

        assert max(map(effects.count, effects), default=0) <= 1
        assert effects[: len(before)] == before
        done = [event.call_id for event in told if isinstance(event, ToolFinished)]
        flagged = read_history(state).turns[0].facts.get("flags", {})
        assert not set(done) & set(flagged)
        assert users(after.state) == ["Dig.", "Thanks."]
        assert check_history(wire, state_messages(after.state)) == []
    assert exits > 10
