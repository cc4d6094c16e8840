"""The methods of every async store in SQL: each runs one step of `sql_steps`.

Owns: the methods, and the handle of a lease. Must never know: a driver, a statement, or a blob's contents.

A lease is a row with a time, not a lock: nothing is open between the statements.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import ClassVar, TypeVar

from ..base.late_calls import AsyncUndisturbed
from .base import RowFacts, Stored, StoredHead, StoredPage, StoredPart
from .sql_steps import LeaseToken, SQLSteps, Step
from .taking import held_async, taking_async

if False:  # SYNC
    from .taking import taking

__all__ = ["AsyncSQLLease", "AsyncSQLStore"]

T = TypeVar("T")


class AsyncSQLStore:
    """A store in tables of a database. A subclass sets `_steps`, and says how a step is run."""

    _steps: SQLSteps
    if True:  # ASYNC
        _finishes: ClassVar[bool] = False
        """Whether a step that takes a lease goes on to its end if its caller is cancelled."""

    async def _run(self, step: Step[T]) -> T:
        """Do the commands of a step."""
        raise NotImplementedError

    async def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None."""
        return await self._run(self._steps.load(key))

    async def save(
        self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """Save if the stored version is still `expected`; None: only if nothing is stored yet.

        If the connection breaks after the write was sent, the row is read once to see whether it was done.
        """
        return await self._run(self._steps.save(key, blob, expected, facts))

    async def save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save`; in the same atomic step add parts and drop parts. See `Parted.save_parts`."""
        return await self._run(self._steps.save_parts(key, head, new, gone, expected, facts))

    async def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """The head and its parts of these kinds (None: all kinds), read in one statement."""
        return await self._run(self._steps.load_head(key, kinds))

    async def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """The named parts that are stored."""
        return await self._run(self._steps.load_parts(key, names))

    async def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """Set the stop flag of a key, or clear it. False if nothing is stored there."""
        return await self._run(self._steps.set_stop(key, is_wanted))

    async def stop_requested(self, key: str) -> bool:
        """The stop flag of a key."""
        return await self._run(self._steps.stop_requested(key))

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the entry under `key`, with `expected` only that version. False if there was no entry."""
        return await self._run(self._steps.delete(key, expected))

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, in code point order."""
        return await self._run(self._steps.list(prefix, cursor, limit))

    async def recent(self, prefix: str = "", *, before: str | None = None, limit: int = 100) -> StoredPage:
        """A page of the keys that begin with `prefix`, the one that was saved last first."""
        return await self._run(self._steps.recent(prefix, before, limit))

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[AsyncSQLLease]:
        """Hold the lease of `key` for at most `ttl` seconds, then renew it. `LeaseHeldError`: it is taken.

        It is a row with a time, not a lock: nothing is open between the statements.
        """
        lease = AsyncSQLLease(self, LeaseToken(key, ttl))
        async with held_async(lease, lambda: self._run(self._steps.take(lease.token))):
            yield lease

    async def is_held(self, key: str) -> bool:
        """True while a holder has the lease of `key`. It only reads."""
        return await self._run(self._steps.is_held(key))

    async def lease_and_load(self, key: str, ttl: float) -> tuple[AsyncSQLLease, Stored | None]:
        """Take a lease, and then load, on one connection. See `Combining.lease_and_load`."""
        lease = AsyncSQLLease(self, LeaseToken(key, ttl))
        return lease, await self._taken(lease, lambda: self._steps.take_and_load(lease.token))

    async def lease_and_load_head(
        self, key: str, ttl: float, *, kinds: Collection[int] | None = None
    ) -> tuple[AsyncSQLLease, StoredHead | None]:
        """Take a lease, and then load the head, on one connection. See `CombiningParts`."""
        lease = AsyncSQLLease(self, LeaseToken(key, ttl))
        return lease, await self._taken(lease, lambda: self._steps.take_and_load_head(lease.token, kinds))

    async def _taken(self, lease: AsyncSQLLease, step: Callable[[], Step[T]]) -> T:
        if True:  # ASYNC
            if self._finishes:
                call = AsyncUndisturbed(lambda: self._run(step()))
                async with taking_async(lease, call.rest):
                    found: T = await call.call()
                    return found
            async with taking_async(lease):
                return await self._run(step())
        else:
            with taking(lease):
                return self._run(step())

    async def save_and_release(
        self,
        lease: AsyncSQLLease,
        key: str,
        blob: bytes,
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save`, and the lease ends with it. See `Combining.save_and_release`."""
        version = await self._run(self._steps.save(key, blob, expected, facts, lease.token))
        lease.note_end()
        return version

    async def save_parts_and_release(
        self,
        lease: AsyncSQLLease,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `save_parts`; the same step ends the lease. See `CombiningParts.save_parts_and_release`."""
        version = await self._run(self._steps.save_parts(key, head, new, gone, expected, facts, lease.token))
        lease.note_end()
        return version


class AsyncSQLLease:
    """A lease that is held in a database."""

    def __init__(self, store: AsyncSQLStore, token: LeaseToken) -> None:
        self._store = store
        self.token = token
        self._is_over = False

    @property
    def is_taken(self) -> bool:
        """True once the database has confirmed it."""
        return self.token.is_taken

    def note_end(self) -> None:
        """Note that a save has ended the lease."""
        self._is_over = True

    async def renew(self) -> bool:
        """Begin the `ttl` anew. False if the lease ran out."""
        return await self._store._run(self._store._steps.renew(self.token))

    async def release(self) -> None:
        """End the lease now. Raises `StoreUnavailableError`; may be called again."""
        if not self._is_over:
            await self._store._run(self._store._steps.release(self.token))
            self._is_over = True
