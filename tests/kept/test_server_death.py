"""The server dies in the middle of turns: what was paid for is in the error, and is saved when it is back.

The servers are the test's own; they keep what they have answered for.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest

from goaitools_py import (
    AsyncChat,
    Chat,
    StateConflictError,
    StoreCommitError,
    StoreUnavailableError,
    TurnInProgressError,
)
from goaitools_py.testing import ScriptedBackend
from goaitools_py.testing._store_case import Loop
from goaitools_py.testing._store_case import opened as entered

from ..stores._places import Place, maker
from ..stores._private import Server, wait_for
from ..stores.test_server_death import folder, postgres, served  # noqa: F401 - fixtures
from ._racer import Echo, texts_in
from .conftest import said

WORKERS, TURNS, DEATHS = 4, 15, 2
KEYS = ("chat-0", "chat-1")


class Paused:
    """Tries again and again while the server is away."""

    def __init__(self) -> None:
        self.refused = threading.Event()
        self._pause = threading.Event()

    def __call__(self, call: Callable[[], Any]) -> Any:
        for _ in range(2_000):
            try:
                return call()
            except (StoreUnavailableError, TurnInProgressError):
                self.refused.set()
                self._pause.wait(0.03)
        raise AssertionError("the server did not come back")


@pytest.mark.parametrize("served", ["postgresql", "postgresql-async", "redis", "redis-async"], indirect=True)
def test_a_paid_answer_outlives_the_server(served: tuple[Server, Place]) -> None:  # noqa: F811
    """It dies during the model call: `StoreCommitError` has the turn, and a later commit saves it."""
    server, place = served
    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        store = stack.enter_context(entered(maker(place), loop))

        def answer(_: Any) -> str:
            server.kill()
            return "Paid."

        is_async = "async" in place.kind
        chat: Any = (AsyncChat if is_async else Chat)(ScriptedBackend("Hi.", answer))
        conversation = chat.conversation(store, "ada", lease_ttl=1.0)

        def do(method: str, *args: Any, **fields: Any) -> Any:
            made = getattr(conversation, method)(*args, **fields)
            return loop.run(made) if is_async else made

        do("send", "Hi?")
        with pytest.raises(StoreCommitError) as caught:
            do("send", "Pay.")
        with pytest.raises(StoreUnavailableError):
            do("commit", caught.value)
        with pytest.raises(StoreUnavailableError):
            do("send", "And now?")
        server.start()
        stored = Paused()(lambda: do("commit", caught.value))

        assert caught.value.text == "Paid."
        assert said(caught.value.state) == said(stored) == ["Hi?", "Hi.", "Pay.", "Paid."]
        assert Paused()(lambda: do("info")).state.turns == 2


class Load:
    """Workers that send turns, whatever happens to the server."""

    def __init__(self, store: Any) -> None:
        self.accepted: Counter[tuple[str, str]] = Counter()
        self.asked: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self.tries = [Paused() for _ in range(WORKERS)]
        self.committed = 0
        self._store = store
        self._changed = threading.Condition()
        self.threads = [threading.Thread(target=self._work, args=(number,)) for number in range(WORKERS)]

    def wait_for_accepted(self, count: int) -> None:
        """Wait until this many turns were accepted."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.accepted.total() >= count or self.errors, 120.0)

    def all_were_refused(self) -> bool:
        """Whether each worker that is not done was refused."""
        pairs = zip(self.tries, self.threads, strict=True)
        return all(tries.refused.is_set() or not thread.is_alive() for tries, thread in pairs)

    def _work(self, worker: int) -> None:
        try:
            chat = Chat(Echo(self._note))
            for turn in range(TURNS):
                self._take(chat, self.tries[worker], KEYS[turn % len(KEYS)], f"{worker}-{turn}")
        except BaseException as error:
            self.errors.append(error)

    def _note(self, id: str) -> None:
        self.asked[id] += 1

    def _take(self, chat: Chat, until: Paused, key: str, id: str) -> None:
        """One turn, until it is stored. What was paid for is saved, not asked for again, if that can be."""
        conversation = chat.conversation(self._store, key, lease_ttl=0.5)
        while True:
            try:
                until(lambda: conversation.send(f"delivery {id}", turn_id=id))
                break
            except StoreCommitError as error:
                until.refused.set()
                failed = error
            except StateConflictError:
                continue
            try:
                until(lambda failed=failed: conversation.commit(failed))
            except StateConflictError:
                continue
            self.committed += 1
            break
        with self._changed:
            self.accepted[key, id] += 1
            self._changed.notify_all()


@pytest.mark.parametrize("served", ["postgresql", "redis"], indirect=True)
def test_a_server_that_dies_under_load_costs_nothing(served: tuple[Server, Place]) -> None:  # noqa: F811
    """Killed twice: each turn is stored once, in the end."""
    server, place = served
    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        store = stack.enter_context(entered(maker(place), loop))
        load = Load(store)
        for thread in load.threads:
            thread.start()

        for death in range(1, DEATHS + 1):
            load.wait_for_accepted(WORKERS * TURNS * death // (DEATHS + 2))
            server.kill()
            for tries in load.tries:
                tries.refused.clear()
            wait_for(load.all_were_refused, "every worker has met the dead server")
            server.start()
        for thread in load.threads:
            thread.join(180.0)

        assert load.errors == []
        wanted = Counter(
            (KEYS[turn % len(KEYS)], f"{worker}-{turn}") for worker in range(WORKERS) for turn in range(TURNS)
        )
        assert load.accepted == wanted
        blobs = {key: Paused()(lambda key=key: store.load(key)).blob for key in KEYS}
        assert Counter((key, id) for key, blob in blobs.items() for id in texts_in(blob)) == wanted
        print(f"{place.kind}: {load.asked.total()} calls, {load.committed} committed later")
