"""Keeps a lease alive beside the turn that it is for.

Owns: a thread, or a timer and its task, for each lease that is held for long. Must never know: a store's
engine, or what a turn does.

A lease that cannot be renewed is let go of: that nothing is lost or doubled does not rest on it.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ..process import PerProcess

if TYPE_CHECKING:
    import asyncio

    from ..stores.base import AsyncLease, Lease

__all__ = ["AsyncRenewal", "Renewal"]

RENEWALS: Final = 3
"""How often a lease is renewed in the time that it lasts: two renewals may fail."""

MAX_SECONDS: Final = 24 * 3600.0
"""How long a lease is kept alive at most: whoever forgot to end it keeps nobody out for ever."""


class Renewal:
    """Renews a lease from a thread between `start` and `end`; either may be called twice, or not at all.

    A turn that ends before the first renewal is due costs no thread.
    """

    def __init__(self, lease: Lease, ttl: float) -> None:
        self._lease = lease
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.pause = ttl / RENEWALS

    def start(self) -> None:
        """Begin."""
        _alarms.get().add(self)

    def is_due(self) -> None:
        """Renew from now on."""
        self._thread = threading.Thread(target=self._run, name="goaitools-lease", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop; no renewal is under way when this returns."""
        self._over.set()
        _alarms.get().remove(self)
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        for _ in range(int(MAX_SECONDS / self.pause)):
            try:
                if self._over.is_set() or not self._lease.renew():
                    return
            except Exception:  # the store is away; the next one may still be in time
                pass
            if self._over.wait(self.pause):
                return


class _Alarm:
    """One thread that waits for all leases of the process, until the first renewal of each is due."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[Renewal, float] = {}
        self._wakes_at = math.inf
        self._has_thread = False

    def add(self, renewal: Renewal) -> None:
        with self._changed:
            due = self._due[renewal] = time.monotonic() + renewal.pause
            if not self._has_thread:
                threading.Thread(target=self._run, name="goaitools-leases", daemon=True).start()
                self._has_thread = True
            elif due < self._wakes_at:
                self._changed.notify()

    def remove(self, renewal: Renewal) -> None:
        with self._changed:
            self._due.pop(renewal, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for renewal in [one for one, due in self._due.items() if due <= now]:
                    del self._due[renewal]
                    with suppress(RuntimeError):  # the system has no more threads: the lease runs out
                        renewal.is_due()
                self._wakes_at = min(self._due.values(), default=math.inf)
                self._changed.wait(None if self._wakes_at == math.inf else max(0.0, self._wakes_at - now))


_alarms: Final = PerProcess[_Alarm](lambda _: _Alarm())
"""A forked process has none of its parent's threads, and its lock may be held by one of them."""


class AsyncRenewal:
    """As `Renewal`, from a task; `end` is awaited."""

    def __init__(self, lease: AsyncLease, ttl: float) -> None:
        self._lease = lease
        self._pause = ttl / RENEWALS
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._left = int(MAX_SECONDS / self._pause)

    def start(self) -> None:
        """Begin."""
        import asyncio

        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._pause, self._begin, loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._over:
            self._task = loop.create_task(self._renew(loop))

    async def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            is_held = await self._lease.renew()
        except Exception:
            is_held = True
        self._left -= 1
        if is_held and self._left > 0 and not self._over:
            self._timer = loop.call_later(self._pause, self._begin, loop)

    async def end(self) -> None:
        """Stop; no renewal is under way when this returns."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._task.done():
            import asyncio

            await asyncio.wait([self._task])
