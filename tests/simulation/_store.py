"""The store of a run: rows with compare-and-swap, leases, and every way in which a store may fail.

Owns: rows, leases, and a second book of who holds a lease, which no planted bug can touch.
Must never know: what is in a blob, or whose turn it is.

A worker reaches it through a `Port`, its connection, which is where the faults strike.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from goaitools_py import StateConflictError, StoreUnavailableError
from goaitools_py.errors import LeaseHeldError
from goaitools_py.stores import Stored

__all__ = ["CombiningPort", "LeasingPort", "Place", "Port", "Rows", "Save"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Place(Protocol):
    """Where a store is: its clock, what is to happen later, and where a broken promise is told."""

    @property
    def now(self) -> float: ...

    def later(self, seconds: float, act: Callable[[], None]) -> None: ...

    def broken(self, what: str) -> None: ...


class Save(NamedTuple):
    """A save that was made. `by`: the worker's name."""

    by: str
    key: str
    before: bytes
    after: bytes


class Rows:
    """What the store holds."""

    def __init__(self, place: Place, on_save: Callable[[Save], None]) -> None:
        self.place = place
        self.rows: dict[str, Stored] = {}
        self.leases: dict[str, tuple[str, float]] = {}
        self.held: dict[str, tuple[str, float]] = {}
        self.away_until = -1.0
        self._on_save = on_save
        self._versions = 0

    def save(self, by: str, key: str, blob: bytes, expected: int | None) -> int:
        """As `Store.save`."""
        old = self.rows.get(key)
        if (old.version if old else None) != expected:
            raise StateConflictError("another version is stored")
        self._versions += 1
        self.rows[key] = Stored(blob=bytes(blob), version=self._versions, updated_at=EPOCH)
        self._on_save(Save(by, key, old.blob if old else b"", bytes(blob)))
        return self._versions

    def delete(self, by: str, key: str) -> bool:
        """As `Deleting.delete`."""
        old = self.rows.pop(key, None)
        if old is not None:
            self._on_save(Save(by, key, old.blob, b""))
        return old is not None

    def take(self, key: str, token: str, ttl: float) -> None:
        """Begin a lease. `LeaseHeldError` if another one has not run out."""
        now = self.place.now
        if self.leases.get(key, ("", -1.0))[1] > now:
            raise LeaseHeldError("held")
        other, end = self.held.get(key, ("", -1.0))
        if end > now and other != token:
            self.place.broken(f"{token} got the lease of {key} that {other} holds")
        self.leases[key] = self.held[key] = (token, now + ttl)

    def renew(self, key: str, token: str, ttl: float) -> bool:
        """Begin the seconds of a lease anew. False if it ran out."""
        now = self.place.now
        mine, end = self.leases.get(key, ("", -1.0))
        if mine != token or end <= now:
            return False
        self.leases[key] = self.held[key] = (token, now + ttl)
        return True

    def release(self, key: str, token: str) -> None:
        """End a lease."""
        if self.held.get(key, ("", 0.0))[0] == token:
            del self.held[key]
        if self.leases.get(key, ("", 0.0))[0] == token:
            self.leases.pop(key, None)


class Port:
    """One worker's connection to a store without leases.

    `fault`, with its `amount`, strikes the next call that it can strike, and is then gone.
    """

    CAN_STRIKE = frozenset({"fail"})

    def __init__(self, rows: Rows, name: str) -> None:
        self.rows = rows
        self.name = name
        self.fault = ""
        self.amount = 0.0

    def load(self, key: str) -> Stored | None:
        """As `Store.load`."""
        self._reach()
        return self.rows.rows.get(key)

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """As `Store.save`."""
        if self._takes("late"):
            self.rows.place.later(self.amount, lambda: self._save_late(key, blob, expected))
            raise StoreUnavailableError("no answer came, and the save is still on its way")
        is_unanswered = self._takes("unanswered")
        self._reach()
        version = self.rows.save(self.name, key, blob, expected)
        if is_unanswered:
            raise StoreUnavailableError("no answer came")
        return version

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """As `Deleting.delete`."""
        self._reach()
        return self.rows.delete(self.name, key)

    def _save_late(self, key: str, blob: bytes, expected: int | None) -> None:
        with suppress(StateConflictError):
            self.rows.save(self.name, key, blob, expected)

    def _takes(self, kind: str) -> bool:
        if self.fault != kind:
            return False
        self.fault = ""
        return True

    def _reach(self) -> None:
        if self._takes("fail") or self.rows.place.now < self.rows.away_until:
            raise StoreUnavailableError("down")


class LeasingPort(Port):
    """The same with leases."""

    def __init__(self, rows: Rows, name: str) -> None:
        super().__init__(rows, name)
        self._taken = 0

    def lease(self, key: str, ttl: float) -> Lease:
        """As `Leasing.lease`."""
        self._taken += 1
        return Lease(self, key, f"{self.name}.{self._taken}", ttl)


class CombiningPort(LeasingPort):
    """The same with two steps in one call. What is lost is lost of both."""

    def lease_and_load(self, key: str, ttl: float) -> tuple[Lease, Stored | None]:
        """As `Combining.lease_and_load`."""
        lease = self.lease(key, ttl)
        lease.__enter__()
        return lease, self.rows.rows.get(key)

    def save_and_release(
        self, lease: Lease, key: str, blob: bytes, *, expected: int | None, facts: object = None
    ) -> int:
        """As `Combining.save_and_release`."""
        if self._takes("late"):
            self.rows.place.later(self.amount, lambda: self._end_late(lease, key, blob, expected))
            raise StoreUnavailableError("no answer came, and the save is still on its way")
        is_unanswered = self._takes("unanswered")
        version = self.save(key, blob, expected=expected)
        lease.end()
        if is_unanswered:
            raise StoreUnavailableError("no answer came")
        return version

    def _end_late(self, lease: Lease, key: str, blob: bytes, expected: int | None) -> None:
        with suppress(StateConflictError):
            self.rows.save(self.name, key, blob, expected)
            lease.end()


class Lease:
    """A lease, and the context that holds it."""

    def __init__(self, port: LeasingPort, key: str, token: str, ttl: float) -> None:
        self._port = port
        self._key = key
        self._token = token
        self._ttl = ttl

    def __enter__(self) -> Lease:
        is_unanswered = self._port._takes("unanswered")
        self._port._reach()
        self._port.rows.take(self._key, self._token, self._ttl)
        if is_unanswered:
            raise StoreUnavailableError("no answer came")
        return self

    def __exit__(self, *_: Any) -> None:
        self.release()

    def release(self) -> None:
        """As the end of the context."""
        self._port._reach()
        self.end()

    def end(self) -> None:
        """End it in the store."""
        self._port.rows.release(self._key, self._token)

    def renew(self) -> bool:
        """As `Lease.renew`."""
        if self._port.rows.place.now < self._port.rows.away_until:
            return True  # nothing was renewed; the next one may be in time
        return self._port.rows.renew(self._key, self._token, self._ttl)
