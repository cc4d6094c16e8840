"""A lease is lost, and two workers have a turn on one conversation: no message and no paid reply is lost.

The rule holds in every store with leases, in both colours, and for both ways of saving. The lease is lost
before the model is called, during the call, or before the save.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, StateConflictError
from goaitools_py.state import apart
from goaitools_py.states import state_messages
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import ScriptedBackend, check_history
from goaitools_py.testing._store_case import Loop
from goaitools_py.testing._store_case import opened as entered
from goaitools_py.types.events import TurnStarted

from ..stores._places import Place, maker, place_of
from .conftest import said

KINDS = (
    "memory", "memory-async", "sqlite", "sqlite-async", "postgres", "postgres-async",
    "mariadb", "mariadb-async", "redis", "redis-async",
)  # fmt: skip
SAVES = ("save", "save_parts", "save_and_release", "save_parts_and_release")
MOMENTS = ("before the call", "during the call", "before the save")


class Watched:
    """A store that calls a function before its next save."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.before_save: Callable[[], Any] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in SAVES:
            return method

        def save(*args: Any, **fields: Any) -> Any:
            act, self.before_save = self.before_save, None
            if act is not None:
                act()
            return method(*args, **fields)

        return save


class Engine:
    """A store of one kind, a second worker on it, and the loss of a lease in it."""

    def __init__(self, place: Place, store: Any, other: Any, loop: Loop) -> None:
        self.place, self.store, self.other, self.loop = place, Watched(store), other, loop
        self.is_async = "async" in place.kind

    def chat(self, *script: Any) -> tuple[Any, ScriptedBackend]:
        backend = ScriptedBackend(*script)
        return (AsyncChat if self.is_async else Chat)(backend), backend

    def do(self, made: Any) -> Any:
        """Wait for an answer of either colour."""
        return self.loop.run(made) if inspect.isawaitable(made) else made

    def lose(self, key: str) -> None:
        """The store forgets the lease of a key."""
        assert self.other.is_held(key)
        if isinstance(self.other, MemoryStore):
            self.other._leases.clear()
        elif self.place.kind.startswith("redis"):
            client = self.other._client
            for name in client.scan_iter(f"*:lease:*{key}*"):
                client.delete(name)
        elif self.place.kind.startswith("sqlite"):
            import sqlite3

            with closing(sqlite3.connect(self.place.url, isolation_level=None)) as connection:
                connection.execute("DELETE FROM goaitools_state_lease")
        else:
            import sqlalchemy

            url = sqlalchemy.make_url(self.place.url.replace("mysql+asyncmy", "mysql+pymysql"))
            database = sqlalchemy.create_engine(
                url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool
            )
            with database.connect() as connection:
                connection.execute(sqlalchemy.text("DELETE FROM goaitools_state_lease"))
        assert not self.other.is_held(key)


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place for each kind of store, for all tests of this file: each test has a key of its own."""
    with place_of(request.param, tmp_path_factory.mktemp("place")) as made:
        yield made


@pytest.fixture
def engine(place: Place) -> Iterator[Engine]:
    """A store at the place, for each worker one."""
    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        store = stack.enter_context(entered(maker(place), loop))
        if place.kind.startswith("memory"):
            other = getattr(store, "_store", store)
        else:
            url = place.url.replace("mysql+asyncmy", "mysql+pymysql")
            kind = place.kind.removesuffix("-async")
            other = stack.enter_context(entered(maker(Place(kind, url)), loop))
        yield Engine(place, store, other, loop)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "SMALL", 150)  # so that a few turns are parts


pytestmark = pytest.mark.filterwarnings("ignore:a Chat in a coroutine:RuntimeWarning")
_keys = itertools.count()


class Case:
    """A worker whose lease is lost at a moment of its second turn, and a worker that has a turn then."""

    def __init__(
        self, engine: Engine, parts: Any, moment: str, theirs: str, turn_id: str, **how: Any
    ) -> None:
        self.engine, self.parts, self.key, self.how = engine, parts, f"lost-{next(_keys)}", how
        self.moment, self._theirs = moment, (theirs, turn_id)
        self.replies = [f"Theirs to {theirs}", self._during, "Mine again."]
        self.chat, self.backend = engine.chat("Hi.", *self.replies[1:])
        self.do("send", "Hi?", turn_id="m-0")

    def conversation(self, chat: Any) -> Any:
        return chat.conversation(self.engine.store, self.key, parts=self.parts, save_timeout=60.0, **self.how)

    def do(self, method: str, *args: Any, chat: Any = None, **fields: Any) -> Any:
        """Call a method of a new conversation object, as a webhook does."""
        return self.engine.do(getattr(self.conversation(chat or self.chat), method)(*args, **fields))

    def _meanwhile(self) -> None:
        self.engine.lose(self.key)
        text, turn_id = self._theirs
        chat = Chat(ScriptedBackend(self.replies[0]))
        theirs = chat.conversation(self.engine.other, self.key, parts=self.parts, save_timeout=60.0)
        theirs.send(text, turn_id=turn_id)

    def _during(self, _: Any) -> str:
        if self.moment == "during the call":
            self._meanwhile()
        return "Mine."

    def send(self) -> Any:
        """Send the turn in which the lease is lost."""

        def on_event(event: Any) -> None:
            if isinstance(event, TurnStarted):
                if self.moment == "before the call":
                    self._meanwhile()
                elif self.moment == "before the save":
                    self.engine.store.before_save = self._meanwhile

        return self.do("send", "I?", turn_id="m-1", on_event=on_event)

    def texts(self) -> list[str]:
        """What is stored, after the laws of a history were checked; and no lease is left."""
        blob = self.do("state")
        assert check_history("openai", state_messages(blob)) == []
        assert not self.engine.other.is_held(self.key)
        return said(blob)


BOTH = ["Hi?", "Hi.", "They?", "Theirs to They?", "I?", "Mine."]


def cases(engine: Engine, theirs: str = "They?", turn_id: str = "m-2", **how: Any) -> Iterator[Case]:
    """A case for each moment and each way of saving. Another message is answered meanwhile, or the same."""
    for moment in MOMENTS:
        for parts in ("inline", "store"):
            yield Case(engine, parts, moment, theirs, turn_id, **how)


def test_the_same_turn_id_gives_the_paid_reply(engine: Engine) -> None:
    """It stands behind the other turn, the model is asked once, and a third delivery changes nothing."""
    for case in cases(engine):
        with pytest.raises(StateConflictError) as caught:
            case.send()
        assert (caught.value.text, case.texts()) == ("Mine.", BOTH[:4])

        result = case.do("send", "I?", turn_id="m-1")
        assert (result.text, result.duplicate, case.texts()) == ("Mine.", True, BOTH)
        assert case.do("send", "I?", turn_id="m-1").text == "Mine."
        case.do("commit", caught.value)
        assert (len(case.backend.requests), case.texts()) == (2, BOTH)
        assert case.do("send", "And now?").text == "Mine again."


def test_a_commit_saves_the_paid_reply(engine: Engine) -> None:
    """Behind the other turn, in any process that has the error; then the same `turn_id` gives it."""
    for case in cases(engine):
        with pytest.raises(StateConflictError) as caught:
            case.send()
        elsewhere, backend = engine.chat()
        assert said(case.do("commit", caught.value, chat=elsewhere)) == BOTH
        assert case.do("send", "I?", turn_id="m-1", chat=elsewhere).text == "Mine."
        assert case.do("send", "I?", turn_id="m-1").text == "Mine."
        assert (len(case.backend.requests), backend.requests, case.texts()) == (2, [], BOTH)
        assert case.chat._unsaved == {}


def test_another_process_answers_the_message_after_the_other(engine: Engine) -> None:
    """The paid reply was in the process that died. The message is there once, with a reply of its own."""
    for case in cases(engine):
        with pytest.raises(StateConflictError):
            case.send()
        elsewhere, _ = engine.chat("Anew.")
        assert case.do("send", "I?", turn_id="m-1", chat=elsewhere).text == "Anew."
        assert case.texts() == [*BOTH[:5], "Anew."]
        assert case.do("send", "I?", turn_id="m-1").text == "Anew."  # the chat's own reply is not used
        assert (len(case.backend.requests), case.texts()) == (2, [*BOTH[:5], "Anew."])


def test_one_turn_twice_is_one_turn(engine: Engine) -> None:
    """Both workers answer the same message: the reply that was saved first is the result of both."""
    for case in cases(engine, "I?", "m-1"):
        result = case.send()
        assert (result.text, result.duplicate) == ("Theirs to I?", True)
        assert case.do("send", "I?", turn_id="m-1").text == "Theirs to I?"
        assert case.texts() == ["Hi?", "Hi.", "I?", "Theirs to I?"]
        assert len(case.backend.requests) == 2


def test_with_checkpoints_the_other_turn_answers_the_message(engine: Engine) -> None:
    """It is in the store before the call: the other worker's model reads it, and both get that reply."""
    for case in cases(engine, save="checkpoint"):
        result = case.send()
        at_once = case.moment == "during the call"
        assert (result.text, result.duplicate) == (("Theirs to They?", True) if at_once else ("Mine.", False))
        assert case.texts() == (["Hi?", "Hi.", "I?", "They?", "Theirs to They?"] if at_once else BOTH)
        assert case.do("send", "I?", turn_id="m-1").duplicate
        assert len(case.backend.requests) == 2
