"""The lease of a key: taken before a turn, kept alive, and given back however the turn ends.

Owns: the order of these steps, a thread, or a timer and its task, for each lease that is held for long, and
the lease after an interrupt while it is taken or given back. Must never know: a store's engine, or the
content of a load or save under the lease.

A lease that cannot be renewed runs out. Nothing is lost or done twice then: compare-and-swap ensures that,
not the lease.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...base.watch import Watch
from ...stores.layout import combines
from ...turn.flow import Clock, Flow, Invoke, Sleep
from ...types.errors import LeaseHeldError, StoreUnavailableError, TurnInProgressError
from .parts import LOADED
from .row_calls import FIRST_WAIT, LONGEST_WAIT, RowCalls, RowSettings

if TYPE_CHECKING:
    import asyncio

    from ...stores.base import AsyncLease, Lease, Stored

__all__ = ["AsyncRenewal", "Renewal", "RowLease"]

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


# -------------------------------------------------------------------------------- taking and giving back


class RowLease(RowCalls):
    """The lease in one use of a key."""

    def __init__(self, settings: RowSettings) -> None:
        super().__init__(settings)
        self._context: Any = None
        self._lease: Any = None
        self._taking: tuple[Any, Any] | None = None
        """The call that takes the lease, and the lease's context if it has one; None before and after it."""
        self._leaving: Any = None
        """The call that ends the lease's context."""
        self._found: tuple[Stored | None, bool] | None = None
        """The state that came with the lease, until `load` gives it; and whether it has all parts."""
        self._is_combined = False
        self._renewal: Any = None

    def take_lease(
        self, timeout: float | None, *, is_whole: bool = False, is_patient: bool = True
    ) -> Flow[float]:
        """Take the lease, if the store has leases, and keep it alive. Gives the seconds of the wait.

        `is_whole`: as for the `load` that follows. If the store can, the load is part of this call. Raises
        `TurnInProgressError` if another worker holds it: at once with the gate "reject" or without
        `is_patient`, else after `timeout` seconds. A store that does not answer is awaited as long.
        """
        settings = self.settings
        began = yield Clock()
        # Also for a store without leases: the load that follows waits until then, too.
        if timeout is not None:
            self._deadline = began.monotonic + timeout
        if not hasattr(settings.store, "lease"):
            return 0.0
        in_one = combines(settings.store, in_parts=settings.in_parts)
        pause, waited = FIRST_WAIT, 0.0
        while True:
            try:
                context: Any = None
                if in_one:
                    taking = settings.undisturbed(partial(self._lease_and_load, is_whole), _release_late)
                else:
                    context = settings.store.lease(settings.key, settings.lease_ttl)
                    enter = getattr(context, "__aenter__", None) or context.__enter__
                    taking = settings.undisturbed(enter, partial(_leave_late, context))
                # Before the call: if the call is interrupted, `release` finds the lease here.
                self._taking = taking, context
                taken = yield from self.ask(taking.call)
            except LeaseHeldError as exc:
                self._taking = None
                now = yield Clock()
                waited = now.monotonic - began.monotonic
                waits = is_patient and settings.gate != "reject"
                if not waits or (timeout is not None and waited + pause > timeout):
                    raise TurnInProgressError(
                        "another turn runs on this conversation, and nothing was called: try again later"
                    ) from exc
            except Exception:
                if self._taking is not None and (taken := taking.leave()) is not None:
                    self._note_taken(context, taken)  # it came in the moment in which the wait ended
                self._taking = None
                raise
            else:
                self._note_taken(context, taken)
                if in_one:
                    self._found = taken[1], is_whole or not settings.in_parts
                # Noted before its start: `release` ends it, also if the start is interrupted.
                self._renewal = settings.renewal(self._lease, settings.lease_ttl)
                yield Invoke(self._renewal.start)
                return waited
            yield Sleep(pause)
            pause = min(2 * pause, LONGEST_WAIT)

    def _note_taken(self, context: Any, taken: Any) -> None:
        """Note the lease that was taken. `context`: None if it was loaded together with the lease."""
        self._lease, self._context = taken if context is not None else taken[0], context
        self._is_combined = context is None
        # Last: until here an interrupted caller finds the lease in `_taking`.
        self._taking = None

    def release(self) -> Flow[None]:
        """Give the lease back. While the store is unavailable it is tried again, as a save is. A lease that
        cannot be given back runs out. A caller that was interrupted here, or in `take_lease`, may call it
        again."""
        if self._taking is not None:
            # An interrupted call may still take the lease. On an event loop `rest` waits for it. In plain
            # code a call that ends later gives the lease back itself.
            taking, context = self._taking
            taken = yield Invoke(taking.rest)
            if taken is not None:
                self._note_taken(context, taken)
            self._taking = None
        # Before the lease ends: a renewal must not meet a lease that this worker has given back.
        if self._renewal is not None:
            yield Invoke(self._renewal.end)
            self._renewal = None
        if self._lease is None and self._context is None:
            return
        if self.is_silent and self._patient_until is None:
            self._patient_until = 0.0  # the wait was over before: one moment for the lease is enough
        for step in (self._give_back, self._leave):  # a context is left, too, if the release failed
            with suppress(Exception):  # the outcome of the turn is more important than this error
                yield from step()
        # Only now: if a step above was interrupted, a second `release` still finds the lease.
        self._context = self._lease = self._leaving = None
        self._is_combined = False

    def _leave(self) -> Flow[None]:
        """Leave the context of the lease, once. If the lease has a `release`, the lease has ended already."""
        if self._context is None:
            return
        if hasattr(self._lease, "release"):
            yield from self.ask(_leave, self._context, is_paid=True)
        elif self._leaving is None:
            # The exit ends the lease here, and a context can be left only once. After an interrupt `rest`
            # waits for this exit, and calls no second one.
            self._leaving = self.settings.undisturbed(partial(_leave, self._context))
            yield from self.ask(self._leaving.call, is_paid=True)
        else:
            yield from self.ask(self._leaving.rest, is_paid=True)

    def _give_back(self) -> Flow[None]:
        """Call the lease's own `release`, if it has one. A failed `release` raises; leaving the context does
        not."""
        release = getattr(self._lease, "release", None)
        while release is not None:
            try:
                yield from self.ask(release, is_paid=True)
                return
            except StoreUnavailableError:
                if not (yield from self._wait()):
                    return

    def _lease_and_load(self, is_whole: bool) -> Any:
        settings = self.settings
        if settings.in_parts:
            kinds = None if is_whole else LOADED
            return settings.store.lease_and_load_head(settings.key, settings.lease_ttl, kinds=kinds)
        return settings.store.lease_and_load(settings.key, settings.lease_ttl)


def _release_late(answer: tuple[Any, Any]) -> Any:
    """Give back a lease that came together with a state, but too late."""
    return answer[0].release()


def _leave_late(context: Any, _: Any) -> Any:
    """End the context of a lease that came too late."""
    return _leave(context)


def _leave(context: Any) -> Any:
    """End the context of a lease."""
    return (getattr(context, "__aexit__", None) or context.__exit__)(None, None, None)
