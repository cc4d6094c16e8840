"""Keep a lease alive while its turn runs.

Owns: a thread, or a timer and its task, for each lease that is held for long. Must never know: a store's
engine, or the acts of a turn.

A lease that cannot be renewed runs out. Nothing is lost or done twice then: compare-and-swap ensures
that, not the lease.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from ...base.watch import Watch

if TYPE_CHECKING:
    import asyncio

    from ...stores.base import AsyncLease, Lease

__all__ = ["AsyncRenewal", "Renewal"]

RENEWALS: Final = 3
"""How often a lease is renewed in the time that it lasts. So two renewals in a row may fail."""

LAST_SECONDS: Final = 1.0
"""How long the end of a turn waits for a renewal that is under way."""

MAX_SECONDS: Final = 24 * 3600.0
"""The longest time for which a lease is kept alive, in seconds. A lease that is never ended must not last for
ever."""


class Renewal:
    """Renews a lease from a thread between `start` and `end`; either may be called twice, or not at all.

    A turn that ends before the first renewal is due costs no thread.
    """

    def __init__(self, lease: Lease, ttl: float) -> None:
        self._lease = lease
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._watch: Watch | None = None
        self.pause = ttl / RENEWALS

    def start(self) -> None:
        """Begin. The first renewal comes after a pause; until then one thread watches all leases."""
        if self._watch is None:
            self._watch = Watch(self._begin)
        self._watch.set(self.pause)

    def _begin(self) -> None:
        # From now on the lease has a thread of its own: a store may be slow, and other watches must not wait
        # for it. If the system cannot start another thread, the lease runs out.
        self._thread = threading.Thread(target=self._run, name="goaitools-lease", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop, and wait for a renewal that is under way. A renewal without an answer of the store
        continues."""
        # In this order: once the watch is closed no thread can begin, and a thread that began sees `_over`.
        self._over.set()
        watch, self._watch = self._watch, None  # drop the reference: the watch holds this renewal
        if watch is not None:
            watch.close()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(LAST_SECONDS)

    def _run(self) -> None:
        for _ in range(int(MAX_SECONDS / self.pause)):
            try:
                if self._over.is_set() or not self._lease.renew():
                    return
            except Exception:  # the store is unavailable; the next renewal may still be in time
                pass
            if self._over.wait(self.pause):
                return


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
        from ...base.late_calls import await_within

        try:
            # A limit for each renewal: a silent store must not hold up the next one, which may be answered.
            is_held = await await_within(self._pause, self._lease.renew())
        except Exception:
            # The store is away. The lease may still be held, and the next renewal may be in time.
            is_held = True
        self._left -= 1
        if is_held and self._left > 0 and not self._over:
            self._timer = loop.call_later(self._pause, self._begin, loop)

    async def end(self) -> None:
        """As `Renewal.end`, awaited."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._task.done():
            import asyncio

            # Not `wait_for`: it waits until the driver has cleaned up a cancelled call, which may never end.
            await asyncio.wait([self._task], timeout=LAST_SECONDS)
