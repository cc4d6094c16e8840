"""The shared parts of the store contract: one blocking interface for sync and async stores.

Owns: the faces, the loop of async stores, the keys that were used. Must never know: an engine.
"""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

from ..stores import (
    Combining,
    CombiningParts,
    Deleting,
    Leasing,
    Listing,
    Parted,
    Peeking,
    RowFacts,
    Stopping,
    Stored,
    StoredHead,
    StoredPage,
    StoredPart,
)
from ..stores.layout import takes_facts
from ..types.errors import StateConflictError

__all__ = ["Face", "Findings", "Loop", "StoreCase", "StoreCheck", "check", "opened", "part_of"]

Findings: TypeAlias = Iterator[str]

_ANSWER_WITHIN = 120.0


class StoreCheck(NamedTuple):
    """One requirement of the protocol, and the function that looks for violations."""

    wants: str
    run: Callable[[StoreCase], Findings]


def check(wants: str) -> Callable[[Callable[[StoreCase], Findings]], StoreCheck]:
    """Make a check of a generator that yields violations of the rule `wants`."""

    def make(run: Callable[[StoreCase], Findings]) -> StoreCheck:
        return StoreCheck(wants, run)

    return make


def part_of(data: bytes, kind: int = 64) -> StoredPart:
    """A part with the name of its content; kind 64 is the archive."""
    return StoredPart(name=hashlib.sha256(data).digest(), kind=kind, data=data)


class Loop:
    """An event loop on a thread of its own, so that checks may be written without ``await``."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store-contract", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run an awaitable in the loop, and give its result."""
        import asyncio

        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWER_WITHIN)

    def close(self) -> None:
        """End the loop."""
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Face:
    """A store, called the same way whether its methods are async or not."""

    def __init__(self, store: Any, loop: Loop) -> None:
        self._store = store
        self._loop = loop
        self.is_async = inspect.iscoroutinefunction(getattr(store, "load", None))
        self.can_delete = isinstance(store, Deleting)
        self.can_list = isinstance(store, Listing)
        self.has_recent = callable(getattr(store, "recent", None))
        self.can_lease = isinstance(store, Leasing)
        self.can_peek = isinstance(store, Peeking)
        self.can_describe = self.can_list and takes_facts(store)
        self.can_stop = isinstance(store, Stopping)
        self.can_part = isinstance(store, Parted)
        self.can_combine = isinstance(store, Combining)
        self.can_combine_parts = isinstance(store, CombiningParts)

    def load(self, key: str) -> Stored | None:
        answer: Stored | None = self._call(self._store.load, key)
        return answer

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        answer: int = self._call(self._store.save, key, blob, expected=expected)
        return answer

    def describe(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts) -> int:
        """Save with facts."""
        answer: int = self._call(self._store.save, key, blob, expected=expected, facts=facts)
        return answer

    def set_stop(self, key: str, *is_wanted: bool) -> bool:
        answer: bool = self._call(self._store.set_stop, key, *is_wanted)
        return answer

    def stop_requested(self, key: str) -> bool:
        answer: bool = self._call(self._store.stop_requested, key)
        return answer

    def save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart] = (),
        gone: Collection[bytes] = (),
        *,
        expected: int | None,
    ) -> int:
        answer: int = self._call(self._store.save_parts, key, head, new, gone, expected=expected)
        return answer

    def load_head(self, key: str, **fields: Any) -> StoredHead | None:
        answer: StoredHead | None = self._call(self._store.load_head, key, **fields)
        return answer

    def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        answer: tuple[StoredPart, ...] = self._call(self._store.load_parts, key, names)
        return answer

    def delete(self, key: str, **fields: Any) -> bool:
        answer: bool = self._call(self._store.delete, key, **fields)
        return answer

    def list(self, *fields: Any, **named: Any) -> StoredPage:
        answer: StoredPage = self._call(self._store.list, *fields, **named)
        return answer

    def recent(self, *fields: Any, **named: Any) -> StoredPage:
        answer: StoredPage = self._call(self._store.recent, *fields, **named)
        return answer

    def lease_and_load(self, key: str, ttl: float) -> tuple[Any, Stored | None]:
        answer: tuple[Any, Stored | None] = self._call(self._store.lease_and_load, key, ttl)
        return answer

    def save_and_release(
        self, lease: Any, key: str, blob: bytes, *, expected: int | None, facts: RowFacts
    ) -> int:
        saved = self._call(self._store.save_and_release, lease, key, blob, expected=expected, facts=facts)
        answer: int = saved
        return answer

    def lease_and_load_head(self, key: str, ttl: float, **fields: Any) -> tuple[Any, StoredHead | None]:
        answer: tuple[Any, StoredHead | None] = self._call(
            self._store.lease_and_load_head, key, ttl, **fields
        )
        return answer

    def save_parts_and_release(
        self,
        lease: Any,
        key: str,
        head: bytes,
        new: Collection[StoredPart] = (),
        gone: Collection[bytes] = (),
        *,
        expected: int | None,
        facts: RowFacts,
    ) -> int:
        save = self._store.save_parts_and_release
        answer: int = self._call(save, lease, key, head, new, gone, expected=expected, facts=facts)
        return answer

    def renew(self, lease: Any) -> bool:
        answer: bool = self._call(lease.renew)
        return answer

    def release(self, lease: Any) -> None:
        self._call(lease.release)

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[Callable[[], bool]]:
        """Hold a lease. Gives its `renew`."""
        with self._entered(self._store.lease(key, ttl)) as lease:
            yield lambda: self._call(lease.renew)

    def is_held(self, key: str) -> bool:
        answer: bool = self._call(self._store.is_held, key)
        return answer

    def _call(self, method: Callable[..., Any], *fields: Any, **named: Any) -> Any:
        answer = method(*fields, **named)
        if self.is_async:
            return self._loop.run(_result(answer))
        if inspect.isawaitable(answer):
            raise TypeError(f"{method.__name__} is awaited and load is not; make all of them async, or none")
        return answer

    def _entered(self, manager: Any) -> AbstractContextManager[Any]:
        return _awaited(manager, self._loop) if self.is_async else manager


@contextmanager
def _awaited(manager: Any, loop: Loop) -> Iterator[Any]:
    entered = loop.run(manager.__aenter__())
    try:
        yield entered
    except BaseException as error:
        if not loop.run(manager.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        loop.run(manager.__aexit__(None, None, None))


async def _result(work: Awaitable[Any]) -> Any:
    return await work


@contextmanager
def opened(make_store: Callable[[], Any], loop: Loop) -> Iterator[Any]:
    """Make a store with `make_store`, and enter it if it is a context manager."""
    made = make_store()
    if inspect.isawaitable(made):
        made = loop.run(_result(made))
    with ExitStack() as stack:
        if hasattr(made, "__aenter__"):
            made = stack.enter_context(_awaited(made, loop))
        elif hasattr(made, "__enter__"):
            made = stack.enter_context(made)
        yield made


class StoreCase:
    """The input of a check.

    Attributes:
        store, other: Two stores over the same storage.
        max_blob_bytes: The largest blob that has to fit.
        lease_ttl: Seconds of a lease that is left to run out.
        expire: Makes the save under a key older than the stores' `ttl`; None if they have none.
    """

    def __init__(
        self,
        store: Face,
        other: Face,
        *,
        prefix: str,
        max_blob_bytes: int,
        lease_ttl: float,
        expire: Callable[[str], None] | None = None,
    ) -> None:
        self.store = store
        self.other = other
        self.prefix = prefix
        self.max_blob_bytes = max_blob_bytes
        self.lease_ttl = lease_ttl
        self.expire = expire
        self._used: dict[str, None] = {}

    def key(self, name: str) -> str:
        """Make a key that no other user of the store has. It ends with `name`."""
        key = self.prefix + name
        self._used[key] = None
        return key

    def forget(self) -> None:
        """Delete the saved keys, if the store can."""
        if self.store.can_delete:
            for key in self._used:
                with suppress(Exception):  # a key that stores refuse, or a store that failed a check
                    self.store.delete(key)

    def append(self, face: Face, key: str, word: bytes, *, gate: threading.Barrier | None = None) -> None:
        """Add to the stored bytes. After a conflict, load and try again.

        With a gate, all callers that share it have loaded before the first of them saves.
        """
        for _ in range(1_000):
            stored = face.load(key)
            if gate is not None:
                gate.wait(_ANSWER_WITHIN)
                gate = None
            try:
                face.save(
                    key, (stored.blob if stored else b"") + word, expected=stored.version if stored else None
                )
            except StateConflictError:
                continue
            return
        raise RuntimeError("1,000 saves in a row were refused, each with the version just loaded")

    def race(self, jobs: Sequence[Callable[[], None]]) -> list[BaseException]:
        """Run all jobs at the same time. Gives the exceptions that they raised."""
        raised: list[BaseException] = []
        gate = threading.Barrier(len(jobs))

        def run(job: Callable[[], None]) -> None:
            gate.wait()
            try:
                job()
            except Exception as error:
                raised.append(error)

        threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return raised
