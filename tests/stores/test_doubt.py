"""A connection that breaks around a write: the store looks whether it was done, and says what it knows."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from goaitools_py import StateConflictError, StoreUnavailableError
from goaitools_py.stores import AsyncCallableStore, CallableStore, MemoryStore, Stored
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
