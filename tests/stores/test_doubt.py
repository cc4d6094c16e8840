"""A connection that breaks around a write: the store looks whether it was done, and says what it knows."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from goaitools_py import StateConflictError, StoreUnavailableError
from goaitools_py.stores import AsyncCallableStore, CallableStore, MemoryStore, Stored
from goaitools_py.stores.sql_errors import NoTableError
from goaitools_py.stores.sql_statements import Statements
from goaitools_py.stores.sql_steps import DONE, Rows, Running, SQLSteps, Step
from goaitools_py.testing._store_case import Face, Loop
from goaitools_py.testing._store_case import opened as entered

from ._places import Place, maker
from ._proxy import Proxy, proxy_to

SERVED = (
    "postgresql", "postgresql-async", "postgresql-asyncpg", "mariadb", "mariadb-async",
    "redis", "redis-async",
)  # fmt: skip
BLOB = b"CANARY-7f3a says what Ada said"
KEY = "ada@example.org"
ALL = 1_000


@contextmanager
def through_a_proxy(place: Place) -> Iterator[tuple[Face, Face, Proxy]]:
    """The store at a place, once through a proxy and once past it, and the proxy."""
    at = urlsplit(place.url)
    assert at.hostname is not None
    assert at.port is not None
    with ExitStack() as stack:
        proxy = stack.enter_context(proxy_to(at.hostname, at.port, BLOB[:11]))
        detour = Place(place.kind, place.url.replace(f":{at.port}", f":{proxy.port}", 1))
        loop = stack.enter_context(closing(Loop()))
        stores = [stack.enter_context(entered(maker(where), loop)) for where in (detour, place)]
        yield Face(stores[0], loop), Face(stores[1], loop), proxy


@pytest.mark.parametrize("first", [True, False], ids=["first save", "later save"])
@pytest.mark.parametrize("times", [1, ALL], ids=["once", "again and again"])
@pytest.mark.parametrize("place", SERVED, indirect=True)
def test_an_answer_that_is_lost_does_not_lose_the_save(place: Place, times: int, first: bool) -> None:
    """The write was done and its answer did not come: save finds it, and gives its version."""
    with through_a_proxy(place) as (store, direct, proxy):
        before = None if first else store.save(KEY, b"before", expected=None)
        direct.save("bob@example.org", b"", expected=None)  # so that the table is there
        store.load(KEY)
        proxy.arm("answer", times)

        version = store.save(KEY, BLOB, expected=before)

        assert proxy.times_left < times
        proxy.arm("answer", 0)
        stored = direct.load(KEY)
        assert stored is not None
        assert (stored.blob, stored.version) == (BLOB, version)
        assert version != before
        assert store.save(KEY, BLOB, expected=version) != version


@pytest.mark.parametrize("first", [True, False], ids=["first save", "later save"])
@pytest.mark.parametrize("place", SERVED, indirect=True)
def test_a_request_that_is_lost_is_told(place: Place, first: bool) -> None:
    """The write did not arrive: nothing changed, the error says so, and the same save is done later."""
    with through_a_proxy(place) as (store, direct, proxy):
        before = None if first else store.save(KEY, b"before", expected=None)
        store.load(KEY)
        proxy.arm("request", ALL)

        with pytest.raises(StoreUnavailableError) as caught:
            store.save(KEY, BLOB, expected=before)

        assert caught.value.__cause__ is not None
        stored = direct.load(KEY)
        assert (stored.blob if stored else None) == (None if first else b"before")
        proxy.arm("request", 0)
        version = store.save(KEY, BLOB, expected=before)
        assert direct.load(KEY) == Stored(
            blob=BLOB,
            version=version,
            updated_at=direct.load(KEY).updated_at,  # type: ignore[union-attr]
        )


@pytest.mark.parametrize("place", SERVED, indirect=True)
def test_an_error_tells_neither_key_nor_blob(place: Place) -> None:
    """What a log would print of the error, its causes included, holds no content."""
    with through_a_proxy(place) as (store, _, proxy):
        store.save("other", b"blob", expected=None)
        proxy.arm("request", ALL)

        with pytest.raises(StoreUnavailableError) as caught:
            store.save(KEY, BLOB, expected=None)

    told = "".join(traceback.format_exception(caught.value))
    for word in (KEY, "CANARY", BLOB.hex()[:20]):
        assert word not in told
    error: BaseException | None = caught.value
    while error is not None:
        assert "CANARY" not in repr(vars(error)), "the blob hangs on the exception"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("place", ["redis", "postgresql"], indirect=True)
def test_somebody_elses_save_is_not_taken_for_ones_own(place: Place) -> None:
    """The write was lost, and another one came in between: it is not reported as saved."""
    with through_a_proxy(place) as (store, direct, proxy):
        before = store.save(KEY, b"before", expected=None)
        direct.save(KEY, b"theirs", expected=before)
        proxy.arm("answer", 1)

        with pytest.raises((StateConflictError, StoreUnavailableError)):
            store.save(KEY, BLOB, expected=before)

        stored = direct.load(KEY)
        assert stored is not None
        assert stored.blob == b"theirs"


# ------------------------------------------------------------------------------- tables that are not there


class Unanswering:
    """A server without tables. It does each command, and the answers with these numbers are lost."""

    def __init__(self, *lost: int) -> None:
        self.lost, self.asked = lost, 0
        self.tables: set[str] = set()
        self.rows: dict[str, tuple[bytes, int, int]] = {}

    def does(self, commands: Sequence[Any]) -> Rows:
        ((statement, values),) = commands
        self.asked += 1
        rows: Rows = ()
        if statement.startswith("make "):
            self.tables.add(statement.removeprefix("make "))
            rows = DONE
        elif "threads" not in self.tables or ("INSERT" in statement and "leases" not in self.tables):
            raise NoTableError(StoreUnavailableError("no table"))
        elif "INSERT" in statement:
            self.rows.setdefault(values["key"], (values["blob"], values["version"], values["updated_at"]))
            rows = DONE
        elif values["key"] in self.rows:
            rows = [self.rows[values["key"]]]
        if self.asked in self.lost:
            raise StoreUnavailableError("the line is dead")
        return rows

    def run(self, step: Step[Any]) -> Any:
        running = Running(step)
        while not running.is_over:
            try:
                rows = self.does(running.commands)
            except Exception as error:
                running.fail(error)
            else:
                running.answer(rows)
        return running.result


def made_steps() -> SQLSteps:
    tables = {"all": [[f"make {name}"] for name in ("threads", "leases")]}
    return SQLSteps(Statements("postgresql", "threads", "leases", "parts"), tables)


@pytest.mark.parametrize("lost", [2, 3, 4])
def test_a_first_save_makes_its_tables_though_an_answer_is_lost(lost: int) -> None:
    """That of one of the tables, or of the save behind them."""
    server, steps = Unanswering(lost), made_steps()

    version = server.run(steps.save(KEY, BLOB, None, None))

    assert server.rows[KEY][:2] == (BLOB, version)


def test_two_lost_answers_of_tables_are_told() -> None:
    """Nothing is stored, the error may be retried, and the next save needs nothing else."""
    server, steps = Unanswering(2, 3), made_steps()
    with pytest.raises(StoreUnavailableError) as caught:
        server.run(steps.save(KEY, BLOB, None, None))
    assert caught.value.retryable
    assert server.rows == {}

    version = server.run(steps.save(KEY, BLOB, None, None))

    assert server.rows[KEY][:2] == (BLOB, version)


# ---------------------------------------------------------------------------------- functions of one's own


class Lossy:
    """Load and save functions over a store in memory; the answer of the next save is lost."""

    def __init__(self, *, does_it: bool) -> None:
        self.kept = MemoryStore()
        self.does_it = does_it

    def save(self, key: str, blob: bytes, expected: int | None) -> int | None:
        if self.does_it:
            self.kept.save(key, blob, expected=expected)
        raise ConnectionResetError("the line is dead")

    async def aload(self, key: str) -> Stored | None:
        return self.kept.load(key)

    async def asave(self, key: str, blob: bytes, expected: int | None) -> int | None:
        return self.save(key, blob, expected)

    def stores(self) -> tuple[Any, Any]:
        return CallableStore(self.kept.load, self.save), AsyncCallableStore(self.aload, self.asave)


@pytest.mark.parametrize("colour", [0, 1], ids=["blocking", "async"])
@pytest.mark.parametrize("first", [True, False], ids=["first save", "later save"])
def test_functions_are_asked_again_too(first: bool, colour: int) -> None:
    """After an exception of the save function, the load function tells whether it was done."""
    for does_it in (True, False):
        lossy = Lossy(does_it=does_it)
        before = None if first else lossy.kept.save(KEY, BLOB, expected=None)
        with closing(Loop()) as loop:
            store = Face(lossy.stores()[colour], loop)
            if does_it:
                assert store.save(KEY, BLOB, expected=before) == lossy.kept.load(KEY).version  # type: ignore[union-attr]
            else:
                with pytest.raises(StoreUnavailableError, match="ConnectionResetError") as caught:
                    store.save(KEY, BLOB, expected=before)
                assert isinstance(caught.value.__cause__, ConnectionResetError)
