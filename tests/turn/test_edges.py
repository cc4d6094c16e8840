"""Tools that run beside a turn: late ones, cancelled ones, ones that do not stop. No result is mixed up."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, ToolStarted, tool
from goaitools_py.states import state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.turn.edges import async_edge


def flags(result: Any) -> list[tuple[str, str]]:
    return [(record.call.name, record.flag) for record in result.tool_log]


# ------------------------------------------------------------------------------------- late results


def test_a_late_result_is_not_that_of_a_later_call(face: Any) -> None:
    """A call of the next reply has the same place in it; what comes in late was given up and stays so."""
    late: list[threading.Thread] = []
    gate = threading.Event()

    @tool(timeout=0.01)
    def dig() -> str:
        """Dig for long."""
        late.append(threading.current_thread())
        gate.wait(60)
        return "mud"

    @tool
    def fill() -> str:
        """Fill the hole, while the other call ends."""
        gate.set()
        late[0].join(60)
        return "filled"

    backend = ScriptedBackend(Calls([("dig", {})]), Calls([("fill", {})]), "Done.")
    result = face.chat(backend, tools=[dig, fill], tool_threads=True).chat(user="Dig, then fill.")

    assert flags(result) == [("dig", "unknown"), ("fill", "ok")]
    assert result.tool_log[1].result == "filled"
    assert "mud" not in str(state_messages(result.state))


def test_a_late_exit_is_nobodys(face: Any) -> None:
    """A call that was given up ends nothing any more, not even with an exit."""
    late: list[threading.Thread] = []
    gate = threading.Event()

    @tool(timeout=0.01)
    def dig() -> str:
        """Dig, then leave."""
        late.append(threading.current_thread())
        gate.wait(60)
        raise SystemExit

    @tool
    def fill() -> str:
        """Fill the hole, while the other call ends."""
        gate.set()
        late[0].join(60)
        return "filled"

    backend = ScriptedBackend(Calls([("dig", {})]), Calls([("fill", {})]), "Done.")
    result = face.chat(backend, tools=[dig, fill], tool_threads=True).chat(user="Dig, then fill.")

    assert flags(result) == [("dig", "unknown"), ("fill", "ok")]


def test_the_shortest_timeout_ends_first(face: Any) -> None:
    """Of calls beside each other the one whose time is up is given up, and the others go on."""
    gate = threading.Event()

    @tool(timeout=0.01)
    def short() -> str:
        """Wait, but not for long."""
        gate.wait(60)
        return "short"

    @tool(timeout=60)
    def long() -> str:
        """Wait until the turn has gone on."""
        gate.wait(60)
        return "long"

    backend = ScriptedBackend(Calls([("long", {}), ("short", {})]), "Done.")
    turn = face.chat(backend, tools=[short, long], tool_threads=True).start(None, user="Both.")
    for event in turn:
        if getattr(event, "flag", "") == "unknown":
            gate.set()

    assert flags(turn.result()) == [("long", "ok"), ("short", "unknown")]


# ------------------------------------------------------------------------------------ cancelled tools


def test_a_tool_cancelled_by_itself_has_a_flagged_result() -> None:
    """It awaited something that was cancelled; nobody cancelled the turn, which goes on and says so."""

    @tool
    async def dig() -> str:
        """Await a cancelled task."""
        other = asyncio.ensure_future(asyncio.Event().wait())
        other.cancel()
        await other
        return "gold"

    backend = ScriptedBackend(Calls([("dig", {})]), "A pity.")
    result = asyncio.run(AsyncChat(backend, tools=[dig]).chat(user="Dig."))

    assert flags(result) == [("dig", "cancelled")]
    assert "cancelled" in result.tool_log[0].result
    assert result.text == "A pity."
    assert check_history("openai", state_messages(result.state)) == []


def test_a_cancelled_worker_has_a_flagged_result() -> None:
    """The same of a sync tool that ran a loop of its own in its thread."""

    @tool
    def dig() -> str:
        """Raise what a cancelled loop raises."""
        raise asyncio.CancelledError

    backend = ScriptedBackend(Calls([("dig", {})]), "A pity.")
    result = asyncio.run(AsyncChat(backend, tools=[dig]).chat(user="Dig."))

    assert flags(result) == [("dig", "cancelled")]
    assert result.text == "A pity."


def test_a_tool_that_ignores_its_cancellation_is_not_waited_for() -> None:
    """Its time is up, the model is told so, and the turn ends while the tool still runs."""

    async def go() -> Any:
        gate = asyncio.Event()

        @tool(timeout=0.01)
        async def dig() -> str:
            """Dig on, whatever is said."""
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue
            return "gold"

        backend = ScriptedBackend(Calls([("dig", {})]), "Never mind.")
        try:
            return await asyncio.wait_for(AsyncChat(backend, tools=[dig]).chat(user="Dig."), 10)
        finally:
            gate.set()

    result = asyncio.run(go())

    assert flags(result) == [("dig", "unknown")]
    assert result.text == "Never mind."


def test_a_tool_that_was_left_is_kept_until_it_ends() -> None:
    """The loop holds tasks weakly: what still runs is neither collected nor complained about."""
    complaints: list[Any] = []

    async def go() -> tuple[int, int]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        gate = asyncio.Event()
        ended = asyncio.Event()

        @tool(timeout=0.01)
        async def dig() -> str:
            """Ignore the first word, then fail."""
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.shield(gate.wait())
            ended.set()
            raise BaseException

        chat = AsyncChat(ScriptedBackend(Calls([("dig", {})]), "Done."), tools=[dig])
        await chat.chat(user="Dig.")
        gc.collect()
        left = len(async_edge._left)
        gate.set()
        await asyncio.wait_for(ended.wait(), 10)
        await asyncio.sleep(0)
        gc.collect()
        return left, len(async_edge._left)

    assert asyncio.run(go()) == (1, 0)
    assert complaints == []


def test_a_cancelled_tool_may_tidy_up() -> None:
    """Giving a turn up waits, within bounds, until its tools have closed what they had open."""
    tidied: list[bool] = []

    @tool
    async def dig() -> str:
        """Dig for ever, and put the spade away."""
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.append(True)
        return "gold"

    async def go() -> list[bool]:
        turn = AsyncChat(ScriptedBackend(Calls([("dig", {})])), tools=[dig]).start(None, user="Dig.")
        async for event in turn:
            if isinstance(event, ToolStarted):
                task = asyncio.ensure_future(turn.result())
                break
        while not any(t.get_name() != task.get_name() and "_run" in repr(t) for t in asyncio.all_tasks()):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await turn.cancel()
        with pytest.raises(RuntimeError, match="given up"):
            await task
        return list(tidied)

    assert asyncio.run(go()) == [True]


# ------------------------------------------------------------------------------------------- exits


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exit_in_a_worker_reaches_the_turns_thread(error: type[BaseException]) -> None:
    """It is raised where the turn is iterated, after which the turn is over."""
    threads: list[threading.Thread] = []

    @tool(thread=True)
    def leave() -> None:
        """Leave the program."""
        threads.append(threading.current_thread())
        raise error

    turn = Chat(ScriptedBackend(Calls([("leave", {})])), tools=[leave]).start(None, user="Leave.")

    with pytest.raises(error):
        turn.result()

    assert threads != [threading.current_thread()]
    assert list(turn) == []


# ----------------------------------------------------------------------------------------- a closed chat


def test_a_chat_that_is_closed_takes_nobodys_connection_away(face: Any, sim: Any) -> None:
    """Two chats may share a backend, and a chat may be used again: the next request connects anew."""
    backend = sim.backend(is_async=face.is_async, max_retries=0)
    chats = [face.chat(backend), face.chat(backend)]
    state = None

    for chat in (*chats, *chats):
        state = chat.chat_with_state(state, user="Hello.").state
        if face.is_async:
            face.run(chat.inner.aclose())
        else:
            chat.inner.close()

    assert len(sim.requests) == 4
    assert sim.problems == []
