"""What a call takes whose caller has left is given back, and once only.

A lease of an application's own may be anything, also a lock without an owner: to leave it twice would end the
lease of somebody else.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, StoreUnavailableError
from goaitools_py.base import late_calls as late
from goaitools_py.base.late_calls import AsyncUndisturbed, Undisturbed
from goaitools_py.chat.kept import row_calls
from goaitools_py.testing import ScriptedBackend

from .conftest import Awaited, FaultyStore, LeasingStore

SHORT = 0.01


class Counts:
    """A lease that counts how often it is taken and left. It cannot be released by itself."""

    def __init__(self) -> None:
        self.taken = self.left = 0
        self.goes = asyncio.Event()
        self.rounds = 1

    async def __aenter__(self) -> Counts:
        await self.goes.wait()
        for _ in range(self.rounds):
            await asyncio.sleep(0)
        self.taken += 1
        return self

    async def __aexit__(self, *_: Any) -> None:
        for _ in range(self.rounds):
            await asyncio.sleep(0)
        self.left += 1

    async def renew(self) -> bool:
        return True


class Counted(Awaited):
    """A store with such a lease."""

    def __init__(self) -> None:
        super().__init__(FaultyStore())
        self.its = Counts()

    def lease(self, key: str, ttl: float) -> Counts:
        return self.its


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_cancelled_turn_leaves_its_lease_once(rounds: int) -> None:
    """In whatever round of the event loop the cancellation comes."""

    async def family() -> None:
        for at in range(100):
            store = Counted()
            store.its.rounds = rounds
            store.its.goes.set()
            chat = AsyncChat(ScriptedBackend("Hello."))
            task = asyncio.create_task(chat.conversation(store, "ada").send("Hello?"))
            for _ in range(at):
                await asyncio.sleep(0)
            is_over = task.done()
            task.cancel()
            await asyncio.wait([task])
            for _ in range(20):
                await asyncio.sleep(0)
            assert store.its.left == store.its.taken <= 1, at
            if is_over:
                return
        raise AssertionError("it does not end")

    asyncio.run(family())


def test_a_lease_that_comes_after_its_wait_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn is over, and so is the task that waited for the lease. It is given back all the same."""
    monkeypatch.setattr(row_calls, "LEAST_ANSWER", SHORT)
    for name in ("LEFT_SECONDS", "CLEANING_SECONDS"):
        monkeypatch.setattr(late, name, SHORT)

    async def family() -> None:
        store = Counted()
        conversation = AsyncChat(ScriptedBackend("Hello.")).conversation(store, "ada")
        before = asyncio.all_tasks()
        with pytest.raises(StoreUnavailableError):
            await conversation.send("Hello?", timeout=SHORT)
        async with asyncio.timeout(10.0):
            while len(asyncio.all_tasks() - before) > 1:  # only the call itself is left
                await asyncio.sleep(SHORT)
        assert store.its.taken == 0
        store.its.goes.set()
        async with asyncio.timeout(10.0):
            while asyncio.all_tasks() - before:
                await asyncio.sleep(SHORT)
        assert (store.its.taken, store.its.left) == (1, 1)

    asyncio.run(family())


def test_what_comes_as_the_caller_leaves_goes_to_one_of_both() -> None:
    """Threads: the answer and the end of the wait meet in any order."""
    for _ in range(300):
        given_back: list[int] = []
        both = threading.Barrier(2)

        def function(both: threading.Barrier = both) -> int:
            both.wait(10.0)
            return 7

        call = Undisturbed(function, given_back.append)
        thread = threading.Thread(target=call.call)
        thread.start()
        both.wait(10.0)
        kept = call.leave()
        thread.join(10.0)
        assert [kept, *given_back].count(7) == 1
        assert call.rest() == kept  # a caller that was interrupted asks again


def test_an_awaited_answer_goes_to_one_of_both() -> None:
    """Before, at and after the end of the wait."""

    async def family(at: int) -> None:
        given_back: list[int] = []

        async def function() -> int:
            await asyncio.sleep(0)
            return 7

        async def give_back(answer: int) -> None:
            given_back.append(answer)

        call = AsyncUndisturbed(function, give_back)
        task = asyncio.create_task(call.call())
        for _ in range(at):
            await asyncio.sleep(0)
        task.cancel()
        kept = call.leave()
        for _ in range(10):
            await asyncio.sleep(0)
        assert [kept, *given_back].count(7) == (at > 0)

    for at in range(6):
        asyncio.run(family(at))


class Stubborn:
    """A lease whose `release` fails, so that only its context ends it."""

    def __init__(self) -> None:
        self.left = 0

    def __enter__(self) -> Stubborn:
        return self

    def __exit__(self, *_: Any) -> None:
        self.left += 1

    def renew(self) -> bool:
        return True

    def release(self) -> None:
        raise RuntimeError("no")


def test_a_release_that_fails_leaves_the_context() -> None:
    """The turn is answered, and the context of the lease has ended."""
    lease = Stubborn()

    class Store(FaultyStore):
        def lease(self, key: str, ttl: float) -> Stubborn:
            return lease

    assert Chat(ScriptedBackend("Hello.")).conversation(Store(), "ada").send("Hello?").text == "Hello."
    assert lease.left == 1


def test_a_question_for_a_silent_lease_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """`is_running` of a store that cannot be asked takes the lease for a moment."""
    monkeypatch.setattr(row_calls, "LEAST_ANSWER", SHORT)
    monkeypatch.setattr(row_calls, "LONGEST_ANSWER", SHORT)

    async def family() -> None:
        store = Counted()
        conversation = AsyncChat(ScriptedBackend()).conversation(store, "ada")
        async with asyncio.timeout(10.0):
            with pytest.raises(StoreUnavailableError):
                await conversation.is_running()
        store.its.goes.set()
        before = asyncio.current_task()
        async with asyncio.timeout(10.0):
            while asyncio.all_tasks() - {before}:
                await asyncio.sleep(SHORT)
        assert (store.its.taken, store.its.left) == (1, 1)

    asyncio.run(family())


class Blind(LeasingStore):
    """A store that does not tell whether a stop is wanted, once a turn has begun."""

    def stop_requested(self, key: str) -> bool:
        found = super().stop_requested(key)
        if self.looks > 1:
            raise StoreUnavailableError("away")
        return found


def test_a_look_at_the_stop_flag_that_fails_ends_no_turn() -> None:
    """The turn can do without it: it goes on, and looks again later."""
    store = Blind()
    text = " ".join(f"word{number}" for number in range(40))
    conversation = Chat(ScriptedBackend(text)).conversation(store, "ada", stop_every=1e-9)

    assert conversation.send("Hello?").text == text
    assert store.looks > 3
