"""However a turn ends, it is saved: by an error, a cancellation, Ctrl-C, a reader who leaves."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from goaitools_py import (
    AsyncChat,
    Chat,
    ProviderUnavailableError,
    StateConflictError,
    ToolFailedError,
    event,
    tool,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.states import inspect_state
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.turn.flow import Clock, Moment

from .conftest import AwaitedLeasing, FaultyStore, LeasingStore, Threads, blob_in, other, said


def is_free(store: Any) -> bool:
    """Whether nobody holds the lease."""
    with store.inner.lease("ada", 1.0):
        return True


def test_a_failed_turn_is_saved(kept: Threads, leasing: LeasingStore, save: str) -> None:
    """The message is kept and answered later; the error's state is what is stored."""
    conversation = kept(ScriptedBackend("Hi.", BackendError("down"), "Hello."), leasing, save=save)
    conversation.send("Hi?")
    with pytest.raises(ProviderUnavailableError) as caught:
        conversation.send("Hello?")

    assert caught.value.state == blob_in(leasing)
    assert (said(blob_in(leasing))[-1], caught.value.unsaved) == ("Hello?", None)
    assert is_free(leasing)
    assert said(conversation.resume().state) == ["Hi?", "Hi.", "Hello?", "Hello."]


def test_the_handle_of_a_failed_turn_has_what_is_stored(kept: Threads, store: FaultyStore, save: str) -> None:
    """`turn.state`, the error's state and the row are the same bytes."""
    turn = kept(ScriptedBackend(BackendError("down")), store, save=save).start("Hello?")

    with pytest.raises(ProviderUnavailableError) as caught:
        turn.result()

    assert turn.state == caught.value.state == blob_in(store)


def test_a_failed_turn_has_what_others_said(kept: Threads, store: FaultyStore) -> None:
    """An event that came meanwhile is kept, and in the error's state."""

    def fail(_: Any) -> Any:
        other(store).append(event("E."))
        return BackendError("down")

    with pytest.raises(ProviderUnavailableError) as caught:
        kept(ScriptedBackend(fail), store).send("Hello?")

    assert sorted(said(blob_in(store))) == ["E.", "Hello?"]
    assert caught.value.state == blob_in(store)


def test_a_tool_that_ends_the_turn_is_in_the_store(kept: Threads, leasing: LeasingStore, save: str) -> None:
    """What the tool did before is not done again."""
    ran: list[int] = []

    @tool
    def pay() -> str:
        """Pay."""
        ran.append(1)
        raise RuntimeError("after it was paid")

    fields = {"tools": [pay], "tool_errors": "raise"}
    conversation = kept(ScriptedBackend(Calls([("pay", {})]), "Sorry."), leasing, chat=fields, save=save)
    with pytest.raises(ToolFailedError):
        conversation.send("Pay.")

    assert conversation.resume().text == "Sorry."
    assert ran == [1]


def test_an_error_before_anything_was_called_saves_nothing(kept: Threads, leasing: LeasingStore) -> None:
    """The conversation is as it was, and free."""
    with pytest.raises(ValueError, match="nothing new"):
        kept(ScriptedBackend(), leasing).send()

    assert leasing.saves == []
    assert is_free(leasing)


def test_a_reader_who_leaves_is_a_cancellation(kept: Threads, leasing: LeasingStore, save: str) -> None:
    """The message and the partial text are saved when the block ends."""
    conversation = kept(ScriptedBackend("Hello to you."), leasing, save=save)
    turn = conversation.start("Hello?")
    events = iter(turn)
    while type(next(events)).__name__ != "TextDelta":
        pass
    turn.cancel()

    assert said(blob_in(leasing)) == ["Hello?"]
    assert inspect_state(blob_in(leasing)).status == "in_progress"
    assert turn.state == blob_in(leasing)
    assert is_free(leasing)


def test_a_turn_that_is_cancelled_keeps_what_others_said(kept: Threads, store: FaultyStore) -> None:
    """It is rebased as any other."""
    turn = kept(ScriptedBackend("Hello to you."), store).start("Hello?")
    events = iter(turn)
    while type(next(events)).__name__ != "TextDelta":
        pass
    other(store).append(event("E."))
    turn.cancel()

    assert said(blob_in(store)) == ["Hello?", "E."]


def test_ctrl_c_is_saved_and_goes_on(kept: Threads, leasing: LeasingStore, save: str) -> None:
    """In the middle of the model call; the same exception comes out."""

    def stop(_: Any) -> Any:
        raise KeyboardInterrupt

    conversation = kept(ScriptedBackend("Hi.", stop), leasing, save=save)
    conversation.send("Hi?")
    with pytest.raises(KeyboardInterrupt):
        conversation.send("Hello?")

    assert said(blob_in(leasing)) == ["Hi?", "Hi.", "Hello?"]
    assert is_free(leasing)


def test_ctrl_c_in_a_save_is_looked_into(
    kept: Threads, leasing: LeasingStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes before the store has saved, or after: the turn is there, once, and nobody is alarmed."""

    def stop() -> None:
        assert blob_in(leasing) == b""
        raise KeyboardInterrupt

    leasing.faults = [stop]
    with pytest.raises(KeyboardInterrupt):
        kept(ScriptedBackend("Hello."), leasing).send("Hello?")
    assert said(blob_in(leasing)) == ["Hello?", "Hello."]

    class Late(LeasingStore):
        def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
            version = super().save(key, blob, expected=expected)
            if len(self.saves) == 1:
                raise KeyboardInterrupt
            return version

    late = Late()
    with pytest.raises(KeyboardInterrupt):
        kept(ScriptedBackend("Hello."), late).send("Hello?")
    assert said(blob_in(late)) == ["Hello?", "Hello."]
    assert len(late.saves) == 1
    assert is_free(late)
    assert caplog.records == []


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_tool_that_exits_is_saved(leasing: LeasingStore, save: Any, is_async: bool) -> None:
    """`SystemExit` in a tool ends the process; the call's doubt is in the store.

    In a task it ends the event loop first: the turn is saved as the loop is closed.
    """

    @tool(thread=False)
    def leave() -> str:
        """Leave."""
        raise SystemExit(3)

    backend = ScriptedBackend(Calls([("leave", {})]))

    def talk() -> None:
        if is_async:
            chat = AsyncChat(backend, tools=[leave])
            asyncio.run(chat.conversation(AwaitedLeasing(leasing), "ada", save=save).send("Leave."))
        else:
            Chat(backend, tools=[leave]).conversation(leasing, "ada", save=save).send("Leave.")

    with pytest.raises(SystemExit):
        talk()

    assert inspect_state(blob_in(leasing)).open_calls == 1
    assert is_free(leasing)


def test_what_could_not_be_saved_is_logged(
    kept: Threads, leasing: LeasingStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A cancelled turn raises what cancelled it; that the store was away is in the log, without content."""

    def stop(_: Any) -> Any:
        leasing.is_down = True
        raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING, "goaitools_py"), pytest.raises(KeyboardInterrupt):
        kept(ScriptedBackend(stop), leasing).send("Secret.")
    leasing.is_down = False

    (record,) = [record for record in caplog.records if record.name == "goaitools_py.state"]
    assert "StoreUnavailableError" in record.getMessage()
    assert "Secret" not in caplog.text


@pytest.mark.parametrize("is_failed", [False, True], ids=["complete", "failed"])
def test_what_was_not_saved_is_logged_if_an_exit_hides_its_error(
    kept: Threads, leasing: LeasingStore, caplog: pytest.LogCaptureFixture, is_failed: bool
) -> None:
    """Another worker had a turn, or the store is away. Ctrl-C comes while the lease is given back, before the
    error is raised."""
    lease = leasing.lease

    @contextmanager
    def interrupted(key: str, ttl: float) -> Iterator[Any]:
        with lease(key, ttl) as held:
            yield held
        raise KeyboardInterrupt

    leasing.lease = interrupted  # type: ignore[method-assign, assignment]
    had_turn: Any = lambda: other(leasing, "Theirs.").send("They?")  # noqa: E731
    leasing.faults = ["lost", "lost"] if is_failed else [had_turn]
    script = BackendError("down") if is_failed else "Secret."
    turn = kept(ScriptedBackend(script), leasing).start("Hello?")
    with caplog.at_level(logging.WARNING, "goaitools_py"), pytest.raises(KeyboardInterrupt):
        turn.result()

    (told,) = [record.getMessage() for record in caplog.records if record.name == "goaitools_py.state"]
    assert ("StoreUnavailableError" if is_failed else "StateConflictError") in told
    assert "Secret" not in caplog.text
    assert said(turn.state)[-1] == ("Hello?" if is_failed else "Secret.")


def test_a_turn_given_up_before_its_load_leaves_nothing(
    kept: Threads, leasing: LeasingStore, save: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C in the load, with the lease taken: nothing was said, so nothing is saved or logged."""
    conversation = kept(ScriptedBackend("Hi.", "Hello."), leasing, save=save)
    conversation.send("Hi?")
    before, load = blob_in(leasing), leasing.load

    def stop(key: str) -> Any:
        raise KeyboardInterrupt

    leasing.load = stop  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        conversation.send("Hello?", turn_id="m-1")
    leasing.load = load  # type: ignore[method-assign]

    assert blob_in(leasing) == before
    assert is_free(leasing)
    assert caplog.records == []
    assert conversation.send("Hello?", turn_id="m-1").text == "Hello."


def test_a_handle_that_nobody_ends_is_saved(leasing: LeasingStore) -> None:
    """It is dropped in the middle, without a block: the turn is saved when the handle goes."""
    conversation = Chat(ScriptedBackend("Hello to you.")).conversation(leasing, "ada")
    turn = conversation.start("Hello?")
    for seen in turn:
        if type(seen).__name__ == "TextDelta":
            break
    del turn, seen
    gc.collect()

    assert said(blob_in(leasing)) == ["Hello?"]
    assert is_free(leasing)


def test_an_async_handle_that_nobody_ends_is_saved(leasing: LeasingStore) -> None:
    """By the event loop, soon after the handle goes."""

    async def main() -> None:
        conversation = AsyncChat(ScriptedBackend("Hello to you.")).conversation(
            AwaitedLeasing(leasing), "ada"
        )
        turn = conversation.start("Hello?")
        async for seen in turn:
            if type(seen).__name__ == "TextDelta":
                break
        del turn, seen
        gc.collect()
        for _ in range(50):
            await asyncio.sleep(0)

    asyncio.run(main())

    assert said(blob_in(leasing)) == ["Hello?"]
    assert is_free(leasing)


class Slow(ScriptedBackend):
    """Answers never; says when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    async def asend(self, request: Any) -> Any:
        self.is_asked.set()
        await asyncio.Event().wait()


class Pausing(AwaitedLeasing):
    """A store whose saves take a few turns of the loop."""

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> Any:
        for _ in range(5):
            await asyncio.sleep(0)
        return await super().save(key, blob, expected=expected)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_cancelled_task_has_saved_its_turn(leasing: LeasingStore, times: int) -> None:
    """Also if it is cancelled again and again while it saves, as anyio's scopes do."""

    async def main() -> None:
        backend = Slow()
        conversation = AsyncChat(backend).conversation(Pausing(leasing), "ada")
        task = asyncio.create_task(conversation.send("Hello?"))
        await backend.is_asked.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(main())

    assert said(blob_in(leasing)) == ["Hello?"]
    assert is_free(leasing)


def test_a_timeout_around_a_turn_loses_nothing(leasing: LeasingStore) -> None:
    """`asyncio.timeout` cancels, and the conversation has the message."""

    async def main() -> None:
        conversation = AsyncChat(Slow()).conversation(Pausing(leasing), "ada")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await conversation.send("Hello?")

    asyncio.run(main())

    assert said(blob_in(leasing)) == ["Hello?"]


def test_another_task_cancels_the_turn(leasing: LeasingStore) -> None:
    """When `cancel` returns, the turn is saved; the reader's iteration has ended."""

    async def main() -> None:
        backend = Slow()
        turn = AsyncChat(backend).conversation(Pausing(leasing), "ada").start("Hello?")

        async def read() -> list[Any]:
            return [seen async for seen in turn]

        reader = asyncio.create_task(read())
        await backend.is_asked.wait()
        await turn.cancel()
        assert said(blob_in(leasing)) == ["Hello?"]
        await reader

    asyncio.run(main())

    assert is_free(leasing)


def test_another_thread_cancels_the_turn(leasing: LeasingStore) -> None:
    """A stop button: the thread that reads saves, and both go on."""
    asked = threading.Event()
    go_on = threading.Event()

    def answer(_: Any) -> str:
        asked.set()
        assert go_on.wait(30)
        return "Hello."

    turn = Chat(ScriptedBackend(answer)).conversation(leasing, "ada").start("Hello?")
    reader = threading.Thread(target=lambda: list(turn))
    reader.start()
    assert asked.wait(30)
    turn.cancel()
    go_on.set()
    reader.join(30)

    assert said(blob_in(leasing))[:1] == ["Hello?"]
    assert is_free(leasing)


def test_a_cancellation_while_a_turn_begins_anew_loses_nothing(store: FaultyStore) -> None:
    """Another worker has appended, so the turn has loaded again. It is cancelled before it goes on."""
    chat = Chat(ScriptedBackend())
    work, _ = chat.conversation(store, "ada", save="checkpoint")._work("Hello.", None, {})

    def play(flow: Any, *, loads: int) -> None:
        """Carry a flow out. It is closed at the first reading of the clock after so many loads."""
        answer = None
        while True:
            try:
                effect = flow.send(answer)
            except StopIteration:
                return
            if isinstance(effect, Clock):
                if store.loads >= loads:
                    flow.close()
                    return
                answer = Moment(0, 0.0)
            else:
                answer = None
                try:
                    answer = effect.function(*effect.args)
                except StateConflictError as exc:
                    refused = exc
                    effect = flow.throw(refused)
                    answer = effect.function(*effect.args)

    store.faults.append(lambda: other(store).append(event("It rains.")))
    play(work.run(), loads=2)
    play(work.settle(), loads=10)

    assert said(blob_in(store))[:1] == ["It rains."]
