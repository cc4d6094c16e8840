"""Two workers on one conversation: the second waits or is told, before anything was called."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from goaitools_py import (
    AsyncChat,
    Chat,
    Compactor,
    DeadlineExceededError,
    KeepRecentTurns,
    MessageLimit,
    TurnInProgressError,
    event,
    tool,
)
from goaitools_py.chat.kept import row_lease as leases
from goaitools_py.stores import AsyncMemoryStore, LeaseHeldError, MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

from .conftest import LeasingStore, Threads, blob_in, said


def test_a_second_worker_is_told(kept: Threads, leasing: LeasingStore, save: str) -> None:
    """`gate="reject"`: nothing was called or saved, and a redelivery is told the same."""
    backend = ScriptedBackend("Hello.")
    conversation = kept(backend, leasing, gate="reject", save=save)

    with leasing.inner.lease("ada", 60.0):
        for act in (
            lambda: conversation.send("Hello?", turn_id="m-1"),
            lambda: conversation.resume(),
            lambda: conversation.compact(Compactor(MessageLimit(2), KeepRecentTurns(1))),
        ):
            with pytest.raises(TurnInProgressError, match="nothing was called"):
                act()
    assert (backend.requests, leasing.saves) == ([], [])

    assert conversation.send("Hello?", turn_id="m-1").text == "Hello."


def test_waiting_ends_with_the_turns_time(kept: Threads, leasing: LeasingStore) -> None:
    """`gate="queue"` waits as long as the turn may take, and then says who is in the way."""
    conversation = kept(ScriptedBackend(), leasing)

    with leasing.inner.lease("ada", 60.0), pytest.raises(TurnInProgressError):
        conversation.send("Hello?", timeout=0.05)


def test_an_append_does_not_wait(kept: Threads, leasing: LeasingStore) -> None:
    """What happened can be noted while a turn runs."""
    with leasing.inner.lease("ada", 60.0):
        kept(ScriptedBackend(), leasing).append(event("E."))

    assert said(blob_in(leasing)) == ["E."]


def test_turns_of_one_conversation_run_one_after_another() -> None:
    """Eight threads, one of them faster: each waits for its turn, and knows what was said before."""
    store, at_once, most = MemoryStore(), 0, 0
    lock = threading.Lock()

    def answer(_: Any) -> str:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        threading.Event().wait(0.002)
        with lock:
            at_once -= 1
        return "Yes."

    def work(number: int) -> None:
        Chat(ScriptedBackend(answer)).conversation(store, "ada").send(f"Turn {number}?")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert most == 1
    assert len(said(store.load("ada").blob)) == 16  # type: ignore[union-attr]


def test_tasks_of_one_conversation_run_one_after_another() -> None:
    """The same with tasks of one loop."""
    store = AsyncMemoryStore()

    async def main() -> list[str]:
        chat = AsyncChat(ScriptedBackend(*["Yes."] * 8))
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(chat.conversation(store, "ada").send(f"Turn {number}?"))
        found = await store.load("ada")
        return said(found.blob) if found else []

    assert len(asyncio.run(main())) == 16


def test_a_redelivery_waits_for_the_reply(leasing: LeasingStore) -> None:
    """The same message comes again while it is answered: one call, and both get the reply."""
    asked, answered = threading.Event(), threading.Event()

    def answer(_: Any) -> str:
        asked.set()
        assert answered.wait(30)
        return "Paid."

    backend = ScriptedBackend(answer)
    chat = Chat(backend)
    results: list[Any] = []

    def work() -> None:
        results.append(chat.conversation(leasing, "ada").send("Pay.", turn_id="m-1"))

    threads = [threading.Thread(target=work) for _ in range(2)]
    threads[0].start()
    assert asked.wait(30)
    threads[1].start()
    answered.set()
    for thread in threads:
        thread.join(30)

    assert [result.text for result in results] == ["Paid.", "Paid."]
    assert sorted(result.duplicate for result in results) == [False, True]
    assert len(backend.requests) == 1


class Renewals:
    """A lease that counts how often it is renewed, and says when it was twice."""

    def __init__(self, *answers: Any) -> None:
        self.count = 0
        self.was_twice = threading.Event()
        self._answers = list(answers)

    def renew(self) -> bool:
        self.count += 1
        if self.count >= 2:
            self.was_twice.set()
        answer = self._answers.pop(0) if self._answers else True
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)


class RenewingStore(MemoryStore):
    """A store whose leases are `Renewals`."""

    def __init__(self, renewals: Renewals) -> None:
        super().__init__()
        self.renewals = renewals

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[Any]:
        yield self.renewals


def test_a_lease_is_renewed_while_the_turn_runs() -> None:
    """Also once a renewal has failed; and no longer once the turn is over."""
    renewals = Renewals(OSError("away"))
    store = RenewingStore(renewals)

    def answer(_: Any) -> str:
        assert renewals.was_twice.wait(30)
        return "Hello."

    Chat(ScriptedBackend(answer)).conversation(store, "ada", lease_ttl=0.01).send("Hello?")

    assert "goaitools-lease" not in [thread.name for thread in threading.enumerate()]


def test_an_async_lease_is_renewed_while_the_turn_runs() -> None:
    """The task that renews ends with the turn; a lease that is lost is let go."""
    renewals, lost = Renewals(OSError("away")), Renewals(False)

    class Lease:
        def __init__(self, inner: Renewals) -> None:
            self._inner = inner

        async def renew(self) -> bool:
            return self._inner.renew()

    async def main() -> None:
        kept = [leases.AsyncRenewal(Lease(lease), 0.01) for lease in (renewals, lost)]
        for renewal in kept:
            renewal.start()
        while renewals.count < 5:
            await asyncio.sleep(0)
        for renewal in kept:
            await renewal.end()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())

    assert lost.count == 1


def test_a_short_turn_starts_no_thread(leasing: LeasingStore) -> None:
    """One thread waits for all leases; a turn that ends before its first renewal has none of its own."""
    begun: list[str] = []

    def answer(_: Any) -> str:
        begun.extend(thread.name for thread in threading.enumerate())
        return "Hello."

    Chat(ScriptedBackend(answer)).conversation(leasing, "ada").send("Hello?")

    assert "goaitools-lease" not in begun


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_renews_its_own_leases(leasing: LeasingStore) -> None:
    """The parent's waiting thread does not exist in it."""
    Chat(ScriptedBackend("Hello.")).conversation(leasing, "ada").send("Hello?")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            renewals = Renewals()
            renewal = leases.Renewal(renewals, 0.01)
            renewal.start()
            status = 0 if renewals.was_twice.wait(30) else 1
            renewal.end()
        finally:
            os._exit(status)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class HeldOnce(LeasingStore):
    """A store whose lease another worker gives up once it has been asked for in vain."""

    is_free = False

    def lease(self, key: str, ttl: float) -> Any:
        if self.is_free:
            return super().lease(key, ttl)
        self.is_free = True
        raise LeaseHeldError("another worker has it")


def test_errors_name_the_time_that_was_given(kept: Threads) -> None:
    """The wait for another worker is a part of it. The error, and what the model reads of a tool that ran
    until then, name `timeout` as it was given, and not what was left of it."""
    release = threading.Event()

    @tool(thread=True)
    def slow() -> None:
        """Hangs."""
        release.wait(60)

    conversation = kept(ScriptedBackend(Calls([("slow", {})])), HeldOnce(), chat={"tools": [slow]})

    with pytest.raises(DeadlineExceededError, match=r"timeout of 0\.4 s passed") as caught:
        conversation.send("Go.", timeout=0.4)
    release.set()

    (record,) = caught.value.tool_log
    assert record.result == (
        "The tool did not finish within the turn's timeout of 0.4 s; it is unknown whether it took effect."
    )
