"""The handle of a turn: given up from beside, read by one, asked again after its end; and its result."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from goaitools_py import (
    AsyncChat,
    AsyncTurn,
    Chat,
    ProviderUnavailableError,
    TextDelta,
    ToolStarted,
    Turn,
    TurnError,
    event,
    tool,
)
from goaitools_py.backends.base import BackendError, ResponseHead
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history

from ._reading import LEAD

STORY = "Once upon a time there was a fox."


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a server or a tool waits for; it is set when the test has ended."""
    made = threading.Event()
    yield made
    made.set()


def hold_in_mid_reply(sim: Any, gate: threading.Event) -> Fault:
    return Fault.hold(gate, after=LEAD[sim.wire] + 3, reply=Reply.text(STORY))


def on_a_loop(sim: Any, body: Callable[[AsyncChat], Awaitable[Any]], **fields: Any) -> Any:
    """Run a coroutine with an `AsyncChat` on the simulator."""

    async def go() -> Any:
        async with AsyncChat(sim.backend(is_async=True), **fields) as chat:
            return await asyncio.wait_for(body(chat), 20)

    return asyncio.run(go())


class Reader:
    """Iterates an `AsyncTurn` in a task of its own."""

    def __init__(self, turn: AsyncTurn, kind: type) -> None:
        self.seen: list[Any] = []
        self._reached = asyncio.Event()
        self._turn, self._kind = turn, kind
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> str:
        async for happened in self._turn:
            self.seen.append(happened)
            if isinstance(happened, self._kind):
                self._reached.set()
        task = asyncio.current_task()
        return "ended" if task is not None and not task.cancelling() else "a cancellation is left over"

    async def waits(self) -> None:
        """Return once the event has come and the reader waits for the next."""
        await self._reached.wait()
        for _ in range(3):
            await asyncio.sleep(0)


# ------------------------------------------------------------------------- given up by another task


def test_a_turn_given_up_by_another_task_ends_its_iteration(sim: Any, gate: threading.Event) -> None:
    """The reader sees the end, not an exception; what had come is kept, and the turn can be resumed."""
    sim.push(hold_in_mid_reply(sim, gate))

    async def body(chat: AsyncChat) -> Any:
        turn = chat.start(None, user="Tell me a story.")
        reader = Reader(turn, TextDelta)
        await reader.waits()
        await turn.cancel()
        ended = await reader.task
        return ended, turn.state, await chat.resume(turn.state)

    ended, state, resumed = on_a_loop(sim, body)

    assert ended == "ended"
    assert read_history(state).turns[0].facts["interrupted"].startswith("Once")
    assert resumed.status == "complete"
    assert sim.problems == []


def test_a_turn_given_up_before_its_reply_ends_at_once(sim: Any, gate: threading.Event) -> None:
    """No headers are there yet; the request is dropped, and the message waits in the state."""
    sim.push(Fault.hold(gate))

    async def body(chat: AsyncChat) -> Any:
        turn = chat.start(None, user="Hello.")
        reader = Reader(turn, type(None))
        while not sim.requests:
            await asyncio.sleep(0)
        await turn.cancel()
        return await reader.task, turn.state

    ended, state = on_a_loop(sim, body)

    assert ended == "ended"
    assert inspect_state(state).waiting_messages == 1


class Held:
    """A backend whose one response never comes to its end; it knows whether it was closed."""

    def __init__(self) -> None:
        self._script = ScriptedBackend()
        self.head = ResponseHead(status=200)
        self.read_began = asyncio.Event()
        self.closed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._script, name)

    async def asend(self, request: Any) -> Any:
        return self

    async def read(self) -> bytes:
        self.read_began.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


def test_the_response_is_closed_when_cancel_returns() -> None:
    """Not some time later, when the reader happens to run."""

    async def go() -> tuple[int, str]:
        backend = Held()
        turn = AsyncChat(backend).start(None, user="Hello.")
        reader = Reader(turn, type(None))
        await backend.read_began.wait()
        await turn.cancel()
        return backend.closed, await reader.task

    assert asyncio.run(go()) == (1, "ended")


def test_the_response_is_closed_behind_an_exit_of_an_observer(face: Any) -> None:
    """Ctrl-C while `on_event` runs leaves a plain call, and nothing stays open behind it."""
    closed: list[bool] = []

    class Open:
        head = ResponseHead(status=200)

        def read(self) -> bytes:
            return b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hm."}}]}\n\n'

        def close(self) -> None:
            closed.append(True)

    class AsyncOpen(Open):
        async def read(self) -> bytes:  # type: ignore[override]
            return Open.read(self)

        async def aclose(self) -> None:
            self.close()

    class Backend(ScriptedBackend):
        def send(self, request: Any) -> Any:
            return Open()

        async def asend(self, request: Any) -> Any:
            return AsyncOpen()

    def leave(happened: Any) -> None:
        if isinstance(happened, TextDelta):
            raise KeyboardInterrupt

    def ask() -> None:
        with pytest.raises(KeyboardInterrupt):
            Chat(Backend()).chat(user="Hello.", on_event=leave)

    async def ask_async() -> None:
        with pytest.raises(KeyboardInterrupt):
            await AsyncChat(Backend()).chat(user="Hello.", on_event=leave)

    face.run(ask_async()) if face.is_async else ask()

    assert closed


@pytest.mark.parametrize("is_turn_first", [True, False])
def test_a_readers_own_cancellation_is_not_swallowed(is_turn_first: bool) -> None:
    """Cancelled itself in the same instant as its turn, a task ends as cancelled."""

    async def go() -> None:
        backend = Held()
        turn = AsyncChat(backend).start(None, user="Hello.")
        reader = Reader(turn, type(None))
        await backend.read_began.wait()
        if is_turn_first:
            stop = asyncio.create_task(turn.cancel())
            await asyncio.sleep(0)
            reader.task.cancel()
            await stop
        else:
            reader.task.cancel()
            await turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader.task
        assert backend.closed == 1

    asyncio.run(go())


def test_a_reader_cancelled_earlier_is_given_up_all_the_same() -> None:
    """A task that once took a cancellation for its own and went on is told the end like any other."""

    async def go() -> str:
        backend = Held()
        turn = AsyncChat(backend).start(None, user="Hello.")

        async def read() -> str:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                async for _ in turn:
                    pass
            return "ended"

        task = asyncio.create_task(read())
        await asyncio.sleep(0)
        task.cancel()
        await backend.read_began.wait()
        await turn.cancel()
        return await task

    assert asyncio.run(go()) == "ended"


def test_a_turn_given_up_between_two_steps_is_closed_at_once() -> None:
    """The reader is busy with an event; its next step is the end."""

    async def go() -> tuple[int, list[Any]]:
        backend = ScriptedBackend(STORY)
        turn = AsyncChat(backend).start(None, user="A story.")
        rest = []
        async for _ in turn:
            await asyncio.create_task(turn.cancel())
            rest = [late async for late in turn]
        return len(backend.requests), rest

    assert asyncio.run(go()) == (0, [])


def test_running_tools_are_cancelled_with_their_turn() -> None:
    """Whoever gives the turn up while a tool runs may look at the state: the call is in doubt."""
    cancelled: list[bool] = []

    async def go() -> Any:
        running = asyncio.Event()

        @tool
        async def dig() -> str:
            """Dig for ever."""
            running.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise
            return "gold"

        backend = ScriptedBackend(Calls([("dig", {})]), "A pity.")
        chat = AsyncChat(backend, tools=[dig])
        turn = chat.start(None, user="Dig.")
        reader = Reader(turn, ToolStarted)
        await running.wait()
        await turn.cancel()
        assert cancelled == [True]
        assert await reader.task == "ended"
        return await chat.resume(turn.state)

    result = asyncio.run(go())

    assert [record.flag for record in result.tool_log] == ["unknown"]
    assert check_history("openai", state_messages(result.state)) == []


def test_a_tool_may_give_its_own_turn_up() -> None:
    """An async tool that cancels the turn is cancelled with it, and nothing waits for itself."""

    async def go() -> str:
        turns: list[AsyncTurn] = []

        @tool
        async def leave() -> str:
            """Leave the game."""
            await turns[0].cancel()
            return "left"

        backend = ScriptedBackend(Calls([("leave", {})]))
        turn = AsyncChat(backend, tools=[leave]).start(None, user="Leave.")
        turns.append(turn)
        return await asyncio.wait_for(Reader(turn, ToolStarted).task, 10)

    assert asyncio.run(go()) == "ended"


def test_a_checkpoint_may_give_its_own_turn_up(face: Any) -> None:
    """`on_checkpoint` runs inside the turn's step: the turn ends when it returns."""
    turns: list[Any] = []
    kept: list[bytes] = []

    def keep(blob: bytes) -> Any:
        kept.append(blob)
        return turns[0].turn.cancel()

    async def keep_async(blob: bytes) -> None:
        await turns[0].turn.cancel()
        kept.append(blob)

    @tool
    def dig() -> str:
        """Never reached."""
        raise AssertionError

    chat = face.chat(ScriptedBackend(Calls([("dig", {})])), tools=[dig])
    turns.append(chat.start(None, user="Dig.", on_checkpoint=keep_async if face.is_async else keep))

    list(turns[0])

    assert len(kept) == 1
    assert inspect_state(turns[0].state).open_calls == 1


# ----------------------------------------------------------------------- given up by another thread


class ThreadReader:
    """Iterates a `Turn` in a thread of its own."""

    def __init__(self, turn: Turn, kind: type) -> None:
        self.failures: list[BaseException] = []
        self._reached = threading.Event()
        self._turn, self._kind = turn, kind
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for happened in self._turn:
                if isinstance(happened, self._kind):
                    self._reached.set()
        except BaseException as exc:
            self.failures.append(exc)

    def reaches(self) -> None:
        assert self._reached.wait(60)

    def waits_in(self, file: str, function: str) -> None:
        """Return once the thread stands in a function: that of a socket or of a queue."""
        while True:
            code = sys._current_frames()[self._thread.ident or 0].f_code
            if code.co_filename.endswith(file) and code.co_name == function:
                return

    def ends(self) -> bool:
        self._thread.join(60)
        return not self._thread.is_alive()


def sync_chat(sim: Any, **fields: Any) -> Chat:
    return Chat(sim.backend(is_async=False), **fields)


def test_a_turn_given_up_by_another_thread_ends_its_iteration(sim: Any, gate: threading.Event) -> None:
    """A read that waits is woken, the reader sees the end, and the partial text is kept."""
    sim.push(hold_in_mid_reply(sim, gate))
    with sync_chat(sim) as chat:
        turn = chat.start(None, user="Tell me a story.")
        reader = ThreadReader(turn, TextDelta)
        reader.reaches()
        reader.waits_in("_backends/sync.py", "read")

        turn.cancel()

        assert reader.ends()
        assert reader.failures == []
        assert read_history(turn.state).turns[0].facts["interrupted"].startswith("Once")
        assert chat.resume(turn.state).status == "complete"
    assert sim.problems == []


def test_a_turn_given_up_while_its_workers_run_ends(gate: threading.Event) -> None:
    """The reader does not wait for a tool in a thread; the call is in doubt."""
    running = threading.Event()

    @tool(thread=True)
    def dig() -> str:
        """Dig until told otherwise."""
        running.set()
        gate.wait()
        return "gold"

    chat = Chat(ScriptedBackend(Calls([("dig", {})]), "A pity."), tools=[dig])
    turn = chat.start(None, user="Dig.")
    reader = ThreadReader(turn, ToolStarted)
    assert running.wait(60)
    reader.waits_in("sync_edge.py", "_await_tool")

    turn.cancel()

    assert reader.ends()
    assert not gate.is_set()
    assert reader.failures == []
    assert [record.flag for record in chat.resume(turn.state).tool_log] == ["unknown"]


def test_a_tool_of_the_turns_thread_may_give_it_up() -> None:
    """The turn ends when the tool returns, and the tool's result is in the state."""
    turns: list[Turn] = []

    @tool
    def leave() -> str:
        """Leave the game."""
        turns[0].cancel()
        return "left"

    backend = ScriptedBackend(Calls([("leave", {})]), "Goodbye.")
    chat = Chat(backend, tools=[leave])
    turns.append(chat.start(None, user="Leave."))

    list(turns[0])
    asked = len(backend.requests)
    result = chat.resume(turns[0].state)

    assert asked == 1
    assert [(record.flag, record.result) for record in result.tool_log] == [("ok", "left")]


# ----------------------------------------------------------------------------- one reader, one end


def test_a_second_task_cannot_read_a_running_turn() -> None:
    """It is told so, and the first one is not disturbed."""

    async def go() -> str:
        backend = Held()
        turn = AsyncChat(backend).start(None, user="Hello.")
        reader = Reader(turn, type(None))
        await backend.read_began.wait()
        with pytest.raises(RuntimeError, match="one reader at a time"):
            await turn.result()
        assert not reader.task.done()
        await turn.cancel()
        return await reader.task

    assert asyncio.run(go()) == "ended"


def test_a_tool_cannot_read_its_own_turn() -> None:
    """The sync twin: a step inside a step would wait for itself."""
    turns: list[Turn] = []
    refused: list[str] = []

    @tool
    def peek() -> str:
        """Ask for the result too early."""
        try:
            turns[0].result()
        except RuntimeError as exc:
            refused.append(str(exc))
        return "patience"

    chat = Chat(ScriptedBackend(Calls([("peek", {})]), "Done."), tools=[peek])
    turns.append(chat.start(None, user="Peek."))

    assert turns[0].result().text == "Done."
    assert len(refused) == 1
    assert "one reader at a time" in refused[0]


def test_a_failed_turn_raises_its_error_again(face: Any) -> None:
    """`result` is asked twice and answers alike; an iteration after the end has nothing to tell."""
    turn = face.chat(ScriptedBackend(BackendError("down"))).start(None, user="Hello.")

    with pytest.raises(ProviderUnavailableError) as first:
        turn.result()
    with pytest.raises(ProviderUnavailableError) as second:
        turn.result()

    assert second.value is first.value
    assert list(turn) == []


FAULTS: dict[str, Fault] = {
    "server error": Fault.server_error(),
    "rate limit": Fault.rate_limit(),
    "unauthorized": Fault.unauthorized(),
    "bad request": Fault.bad_request(),
    "null": Fault.null(),
    "reset": Fault.reset(after=0),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("calls", [0, 1])
def test_a_failed_turn_has_the_state_of_its_error(face: Any, sim: Any, fault: str, calls: int) -> None:
    """Whether a caller saves `turn.state` or the error's, it is the same bytes: the failure is in them, and
    what no model accepted is not."""

    def look() -> str:
        """Look around."""
        return "It is dark."

    chat = face.on(sim, tools=[look])
    state = chat.append_to_state(chat.chat(user="Hello.").state, event("It rains."))
    sim.push(*[Reply.calls(("look", "{}"))] * calls, FAULTS[fault])
    turn = chat.start(state, user="What is there?")

    with pytest.raises(TurnError) as caught:
        turn.result()

    assert turn.state == caught.value.state
    if not caught.value.pending_input:
        assert inspect_state(turn.state).status == "failed"
    assert chat.chat_with_state(turn.state, user="Go on.").status == "complete"


def test_a_whole_turn_is_asked_again(face: Any) -> None:
    """After the end `result` is the same object, and iterating yields nothing."""
    turn = face.chat(ScriptedBackend("Hello.")).start(None, user="Hello.")

    first = turn.result()

    assert turn.result() is first
    assert list(turn) == []


@pytest.mark.parametrize("how", ["ended", "failed", "given up"])
def test_nothing_is_appended_after_the_end(face: Any, how: str) -> None:
    """The state that the caller has would not hold it, so it is refused with words."""
    step = BackendError("down") if how == "failed" else "Hello."
    turn = face.chat(ScriptedBackend(step)).start(None, user="Hello.")
    if how == "given up":
        turn.cancel()
    elif how == "failed":
        with pytest.raises(ProviderUnavailableError):
            turn.result()
    else:
        turn.result()

    with pytest.raises(RuntimeError, match="over; use append_to_state"):
        turn.append(event("It rains."))


def test_a_tool_in_a_thread_may_append(face: Any) -> None:
    """The model's next call has it, after the results."""
    turns: list[Any] = []

    @tool(thread=True)
    def look() -> str:
        """Look around, and have something happen."""
        turns[0].append(event("It rains."))
        return "a fox"

    backend = ScriptedBackend(Calls([("look", {}), ("look", {})]), "Wet foxes.")
    turns.append(face.chat(backend, tools=[look]).start(None, user="Look."))

    turns[0].result()

    sent = backend.bodies()[1]["messages"]
    assert [message["role"] for message in sent[:4]] == ["user", "assistant", "tool", "tool"]
    assert str(sent[4:]).count("It rains.") == 2


# ---------------------------------------------------------------------------------------- observers


def test_an_async_observer_is_awaited_or_refused(face: Any) -> None:
    """`AsyncChat` awaits it for each event; a `Chat` says at once that it cannot."""
    told: list[Any] = []

    async def observe(happened: Any) -> None:
        await asyncio.sleep(0)
        told.append(happened)

    backend = ScriptedBackend("Hello.")
    chat = face.chat(backend)

    if face.is_async:
        events = list(chat.start(None, user="Hello.", on_event=observe))
        assert told == events
        assert len(told) > 2
    else:
        with pytest.raises(TypeError, match="on_event is async"):
            chat.chat(user="Hello.", on_event=observe)
        assert backend.requests == []


class Observer:
    """An object that is called like an ``async def``."""

    async def __call__(self, happened: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize("option", ["on_event", "on_checkpoint"])
def test_an_object_with_an_async_call_is_refused_too(option: str) -> None:
    """A Chat would make coroutines and drop them."""
    chat = Chat(ScriptedBackend("Hello."))

    with pytest.raises(TypeError, match=f"{option} is async.*AsyncChat"):
        chat.chat(user="Hello.", **{option: Observer()})


def test_a_failing_async_observer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """By class, as a sync one; the turn goes on."""

    async def observe(happened: Any) -> None:
        await asyncio.sleep(0)
        raise LookupError("a secret")

    chat = AsyncChat(ScriptedBackend("Hello."), on_event=observe)
    with caplog.at_level(logging.WARNING, logger="goaitools_py"):
        result = asyncio.run(chat.chat(user="Hello."))

    assert result.text == "Hello."
    assert "on_event raised LookupError for TurnStarted" in caplog.text
    assert "secret" not in caplog.text


def test_an_observer_that_hides_a_coroutine_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can see beforehand that a function returns an awaitable; a Chat says so in its log."""

    async def later() -> None:
        raise AssertionError

    chat = Chat(ScriptedBackend("Hello."), on_event=lambda _: later())
    with caplog.at_level(logging.WARNING, logger="goaitools_py"):
        result = chat.chat(user="Hello.")

    assert result.text == "Hello."
    assert "on_event raised TypeError for TurnStarted" in caplog.text


# ---------------------------------------------------------------------------------------- the result


@pytest.mark.parametrize(
    "again",
    [lambda r: pickle.loads(pickle.dumps(r)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
def test_a_result_can_be_copied(again: Callable[[Any], Any], scores: Any) -> None:
    """It goes through a process pool or a cache whole: the pair, and everything beside it."""
    backend = ScriptedBackend(Calls([("get_score", {"team": "Red"})]), "Red has 7.")
    result = Chat(backend, tools=[scores.get_score]).chat_with_state(b"no state", user="The score?")

    copied = again(result)

    assert type(copied) is type(result)
    assert tuple(copied) == (copied.text, copied.state) == tuple(result)
    assert {**vars(copied), "discarded": None} == {**vars(result), "discarded": None}
    assert type(copied.discarded) is type(result.discarded)
    assert copied.tool_log[0].result == "Red has 7 points"
