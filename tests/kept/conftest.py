"""Kept conversations of both colours behind one face, and stores that fail when they are told to."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import PLAIN, Chat, Conversation, StoreUnavailableError
from goaitools_py.state.parts import ELSEWHERE
from goaitools_py.state.whole_blobs import parts_of
from goaitools_py.states import read_history
from goaitools_py.stores import MemoryStore, Stored, StoredHead, StoredPage, StoredPart
from goaitools_py.testing import ScriptedBackend

from ..conftest import Face, TurnFace

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Another worker is a plain `Chat`, which a store double asks in the middle of an async turn."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.filterwarnings("ignore:a Chat in a coroutine:RuntimeWarning"))


class FaultyStore:
    """A MemoryStore without leases that fails when it is told to, and counts what it is asked for.

    `faults` are taken one by one, each by the next save: "lost" fails before saving, "unanswered" after it, a
    function is called before saving, None lets it pass. `is_down` fails everything.
    """

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.faults: list[str | Callable[[], Any] | None] = []
        self.is_down = False
        self.saves: list[bytes] = []
        self.loads = 0

    def load(self, key: str) -> Stored | None:
        self.loads += 1
        self._check()
        return self.inner.load(key)

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        self._check()
        fault = self.faults.pop(0) if self.faults else None
        if fault == "lost":
            raise StoreUnavailableError("lost on the way")
        if callable(fault):
            fault()
        version = self.inner.save(key, blob, expected=expected)
        self.saves.append(blob)
        if fault == "unanswered":
            raise StoreUnavailableError("no answer came")
        return version

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailableError("down")


class LeasingStore(FaultyStore):
    """The same with leases and a stop flag; it can also delete and list."""

    looks = 0
    """How often the stop flag was read."""
    longest_wait: float

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        return self.inner.delete(key, expected=expected)

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        return self.inner.list(prefix, cursor=cursor, limit=limit)

    def lease(self, key: str, ttl: float) -> AbstractContextManager[Any]:
        self._check()
        return self.inner.lease(key, ttl)

    def is_held(self, key: str) -> bool:
        return self.inner.is_held(key)

    def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        return self.inner.set_stop(key, is_wanted)

    def stop_requested(self, key: str) -> bool:
        self.looks += 1
        return self.inner.stop_requested(key)


class PartedStore(LeasingStore):
    """The same with parts beside the blobs."""

    def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        self._check()
        return self.inner.load_head(key, kinds=kinds)

    def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        self._check()
        return self.inner.load_parts(key, names)

    def save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: Any = None,
    ) -> int:
        self._check()
        return self.inner.save_parts(key, head, new, gone, expected=expected, facts=facts)


class Awaited:
    """A blocking store as an async one."""

    longest_wait: float

    def __init__(self, store: Any) -> None:
        self._store = store

    async def load(self, key: str) -> Any:
        return self._store.load(key)

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> Any:
        return self._store.save(key, blob, expected=expected)


class AwaitedLeasing(Awaited):
    """The same with leases and a stop flag."""

    async def is_held(self, key: str) -> Any:
        return self._store.is_held(key)

    async def set_stop(self, key: str, is_wanted: bool = True) -> Any:
        return self._store.set_stop(key, is_wanted)

    async def stop_requested(self, key: str) -> Any:
        return self._store.stop_requested(key)

    async def delete(self, key: str, *, expected: int | None = None) -> Any:
        return self._store.delete(key, expected=expected)

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> Any:
        return self._store.list(prefix, cursor=cursor, limit=limit)

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[Any]:
        with self._store.lease(key, ttl) as lease:
            yield AwaitedLease(lease)


class AwaitedParted(AwaitedLeasing):
    """The same with parts."""

    async def load_head(self, key: str, **fields: Any) -> Any:
        return self._store.load_head(key, **fields)

    async def load_parts(self, key: str, names: Any) -> Any:
        return self._store.load_parts(key, names)

    async def save_parts(self, *args: Any, **fields: Any) -> Any:
        return self._store.save_parts(*args, **fields)


class AwaitedLease:
    """A blocking lease as an async one."""

    def __init__(self, lease: Any) -> None:
        self._lease = lease

    async def renew(self) -> bool:
        return bool(self._lease.renew())


class Kept:
    """A kept conversation of either colour with the methods of `Conversation`."""

    def __init__(self, inner: Any, run: Callable[[Any], Any]) -> None:
        self.inner = inner
        self._run = run

    def __getattr__(self, name: str) -> Any:
        if isinstance(self.inner, Conversation):
            return getattr(self.inner, name)
        return lambda *args, **fields: self._run(getattr(self.inner, name)(*args, **fields))

    def start(self, *args: Any, **fields: Any) -> TurnFace:
        return TurnFace(self.inner.start(*args, **fields), self._run)

    def start_resume(self, *args: Any, **fields: Any) -> TurnFace:
        return TurnFace(self.inner.start_resume(*args, **fields), self._run)

    def fork(self, key: str, **fields: Any) -> Kept:
        made = self.inner.fork(key, **fields)
        return Kept(made if isinstance(made, Conversation) else self._run(made), self._run)


class Threads:
    """Makes kept conversations of one colour."""

    def __init__(self, face: Face) -> None:
        self.face = face

    def __call__(
        self, backend: Any, store: Any, *, key: str = "ada", chat: Any = None, **fields: Any
    ) -> Kept:
        """A conversation in a blocking store, which is not waited for; `chat`: the options of its chat."""
        fields = {"save_timeout": 0.0, **fields}
        if self.face.is_async:
            plain = AwaitedLeasing if hasattr(store, "lease") else Awaited
            awaited = (AwaitedParted if hasattr(store, "save_parts") else plain)(store)
            if hasattr(store, "longest_wait"):
                awaited.longest_wait = store.longest_wait
            store = awaited
        made = self.face.chat(backend, **(chat or {}))
        return Kept(made.inner.conversation(store, key, **fields), self.face.run)


@pytest.fixture
def kept(face: Face) -> Threads:
    """Each test that asks for it runs with `Conversation` and with `AsyncConversation`."""
    return Threads(face)


@pytest.fixture(params=["turn", "checkpoint"])
def save(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs with both ways of saving."""
    return str(request.param)


@pytest.fixture
def store() -> FaultyStore:
    """A store without leases."""
    return FaultyStore()


@pytest.fixture
def leasing() -> LeasingStore:
    """A store with leases."""
    return LeasingStore()


def check_listed(head: Any, *, codec: Any = PLAIN, binding: Any = None) -> frozenset[bytes]:
    """The names of the parts that a head lists. The store has these parts, and no others."""
    parts = parts_of(head.blob, codec=codec, binding=binding)
    listed = frozenset(part.digest for part in parts if part.place == ELSEWHERE)
    assert listed == {part.name for part in head.parts}
    assert all(hashlib.sha256(part.data).digest() == part.name for part in head.parts)
    return listed


def other(store: Any, *script: Any, key: str = "ada", **fields: Any) -> Conversation:
    """Somebody else on the same conversation."""
    inner = getattr(store, "inner", store)
    wire = fields.pop("wire", "openai")
    return Chat(ScriptedBackend(*script, wire=wire)).conversation(Bare(inner), key, **fields)


class Bare:
    """A store's `load` and `save`, without its leases."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def load(self, key: str) -> Any:
        return self._store.load(key)

    def save(self, key: str, blob: bytes, *, expected: int | None) -> Any:
        return self._store.save(key, blob, expected=expected)


def blob_in(store: Any, key: str = "ada") -> bytes:
    """What is stored; b"" for nothing."""
    found = getattr(store, "inner", store).load(key)
    return found.blob if found is not None else b""


def said(blob: bytes) -> list[str]:
    """Every text of a state, those of tools left out."""
    if not blob:
        return []
    return [message.text for message in read_history(blob).all_messages() if message.role != "tool"]


@pytest.fixture(autouse=True)
def _no_lease_is_left(leasing: LeasingStore) -> Iterator[None]:
    """However a test ended its turns, no lease is held any more."""
    yield
    with suppress(StoreUnavailableError), leasing.inner.lease("ada", 1.0):
        pass
