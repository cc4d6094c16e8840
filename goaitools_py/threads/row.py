"""One key of a store: what it holds as far as is known, and how a new state gets there.

Owns: compare-and-swap, rebasing on what somebody else saved, saves that nobody answered, the lease, and
where unreadable bytes go. Must never know: an engine of a store, a model, or which colour calls it.

Everything here is a flow: it yields effects (`flow`), mostly an `Invoke` of one of the store's methods.

Two blobs are known. `stored` is what the store holds. `mine` is what of it its caller knows: they differ once
somebody else has appended something while the caller worked. A new state that grew from `mine` is then
rebased on `stored` before it is saved, so that nobody's addition is lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..backends.base import Dialect
from ..errors import (
    LeaseHeldError,
    StateConflictError,
    StateError,
    StoreUnavailableError,
    TurnInProgressError,
)
from ..events import StateSaved
from ..history.info import refs_of
from ..history.rebase import begun_at, holds_state, rebase_state
from ..state.codec import Codec
from ..state.records import digest8
from ..state.state import dump_state, hard_limits, load_state, new_state
from ..turn.flow import Clock, Emit, Flow, Invoke, Sleep
from ..values import Value, replace

if TYPE_CHECKING:
    from ..stores.base import Stored

__all__ = ["DuplicateError", "Row", "RowSettings"]

MAX_REBASES: Final = 5
"""How often a state is rebased on what somebody else saved before it is a conflict."""

FIRST_WAIT: Final = 0.01
LONGEST_WAIT: Final = 0.25
"""Seconds between two tries for a lease; each wait is twice as long as the one before it."""

MAX_KEY_BYTES: Final = 512
"""The longest key that a store takes."""


class RowSettings(Value, frozen=True, kw_only=True):
    """What does not change between two uses of a key.

    `renewal`: made of a lease and its seconds, keeps it alive in the background from `start` to `end`.
    `save_timeout`: seconds for which a save of what was paid for, or the release of a lease, is tried again
    while the store is unavailable.
    """

    unshown = frozenset({"key", "binding"})

    store: Any
    key: str
    codec: Codec
    binding: Any
    dialect: Dialect
    renewal: Callable[[Any, float], Any]
    gate: str = "queue"
    lease_ttl: float = 10.0
    concurrent_turns: bool = False
    save_timeout: float = 5.0


class DuplicateError(Exception):
    """Somebody else has finished the same turn meanwhile; a signal between a commit and its caller."""


class Row:
    """One use of a key, from its load to its last save."""

    def __init__(self, settings: RowSettings) -> None:
        self.settings = settings
        self.mine = b""
        self.stored = b""
        self._version: int | None = None
        self._sent: tuple[bytes, bytes] | None = None
        self._created: int | None = None
        self._context: Any = None
        self._saves = self._told = 0
        self._lease: Any = None
        self._renewal: Any = None
        self._patient_until: float | None = None
        self._pause = FIRST_WAIT

    @property
    def has_saved(self) -> bool:
        """True once something was saved."""
        return self._saves > 0

    def tell(self, of: dict[str, str] | None = None) -> Flow[None]:
        """Tell of a save that was not told of yet. `of`: what the event carries; read from what is stored if
        it is no running turn's."""
        if self._told == self._saves:
            return
        self._told = self._saves
        settings = self.settings
        if of is None:
            of = refs_of(self.stored, codec=settings.codec, binding=settings.binding)
        yield Emit(StateSaved(self._version, len(self.stored), **of))

    # ------------------------------------------------------------------------------------ loading

    def load(self) -> Flow[Stored | None]:
        """Read what is stored; from here on that is what is known."""
        found: Stored | None = yield Invoke(self._load)
        self._version = None if found is None else found.version
        self._sent = self._created = None
        self.mine = self.stored = b"" if found is None else bytes(found.blob)
        return found

    def _load(self) -> Any:
        return self.settings.store.load(self.settings.key)

    def _save(self, blob: bytes, expected: int | None) -> Any:
        return self.settings.store.save(self.settings.key, blob, expected=expected)

    # ------------------------------------------------------------------------------------- saving

    def commit(
        self,
        new: bytes,
        *,
        is_there: Callable[[bytes], bool] | None = None,
        most: int = MAX_REBASES,
        is_paid: bool = True,
    ) -> Flow[bytes]:
        """Save a state that grew from `mine`. Gives what is stored then: that, or that and others' additions.

        Whoever was interrupted in here may call it again: a save that was sent is looked for first.

        Args:
            new: The state.
            is_there: Says of somebody else's state that the turn of `new` is in it.
            most: How often it may be rebased.
            is_paid: It cost model calls or tools: while the store is unavailable it is tried again for
                `save_timeout` seconds.

        Raises:
            StateConflictError: Somebody else had a turn, or deleted the conversation.
            DuplicateError: `is_there` was true.
            Exception: What the store raised, if it did not say that it saved and does not hold it either.
        """
        refused = failed = 0
        new = self.timed(new)
        if self._sent is not None:
            known = self.mine
            yield from self._look(is_there, is_paid)
            new = self.mine if new == known else self.timed(new)
        while new != self.mine:
            blob = self._rebased(new)
            self._sent = (new, blob)
            failure = conflict = None
            try:
                version = yield Invoke(self._save, (blob, self._version))
            except StateConflictError as exc:
                refused += 1
                if not failed:
                    self._sent = None  # this one was not saved: what is stored is somebody else's
                    if refused > most:
                        raise
                conflict = exc  # where a save was not answered, it may be this one that others stand on
            except Exception as exc:
                failed += 1
                failure = exc
            else:
                self._version, self.stored, self._sent = version, blob, None
                self._patient_until = None
                new = self._became(new)
                continue
            is_newer = yield from self._look(is_there, is_paid)
            new = self.timed(new)
            if failure is not None and failed > 1 and not is_newer:
                may_pass = is_paid and isinstance(failure, StoreUnavailableError)
                if not (may_pass and (yield from self._wait())):
                    raise failure
            if conflict is not None and refused > most and new != self.mine:
                raise conflict
        return self.stored

    def find_sent(self, is_there: Callable[[bytes], bool] | None) -> Flow[None]:
        """Look for a save that was not answered, if there is one: `mine` is that state if it was made."""
        if self._sent is not None:
            yield from self._look(is_there, False)

    def _rebased(self, new: bytes) -> bytes:
        """The state as it is to be saved; the very same bytes again, if they were sent and not answered."""
        if self._sent is not None and self._sent[0] == new:
            return self._sent[1]
        if self.stored == self.mine:
            return new
        settings = self.settings
        try:
            return rebase_state(
                new,
                base=self.mine,
                theirs=self.stored,
                concurrent_turns=settings.concurrent_turns,
                codec=settings.codec,
                binding=settings.binding,
                dialect=settings.dialect,
            )
        except StateError as exc:
            raise StateConflictError("somebody else saved a state that cannot be read here") from exc

    def _wait(self) -> Flow[bool]:
        """Wait before the unavailable store is tried again; False if that has been done for `save_timeout`
        seconds since the first failure."""
        now = yield Clock()
        if self._patient_until is None:
            self._patient_until = now.monotonic + self.settings.save_timeout
            self._pause = FIRST_WAIT
        if now.monotonic + self._pause > self._patient_until:
            return False
        yield Sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_WAIT)
        return True

    def _look(self, is_there: Callable[[bytes], bool] | None, is_paid: bool) -> Flow[bool]:
        """See what is stored after a save that did not succeed. True if that is something newer."""
        while True:
            try:
                found = yield Invoke(self._load)
                break
            except StoreUnavailableError:
                if not (is_paid and (yield from self._wait())):
                    raise
        if (None if found is None else found.version) == self._version:
            return False
        sent, self._sent = self._sent, None
        if found is None:
            raise StateConflictError("the conversation was deleted meanwhile; begin it anew")
        before, self.stored, self._version = self.stored, bytes(found.blob), found.version
        if sent is not None and self._holds(sent[1], before):
            self._became(sent[0])
        elif is_there is not None and is_there(self.stored):
            raise DuplicateError
        return True

    def _became(self, new: bytes) -> bytes:
        """Note that a state is stored now, and give it as it is known from here on."""
        self._saves += 1
        if not self.mine and self.stored != new:  # somebody else began it too: it keeps their time
            settings = self.settings
            stored = load_state(self.stored, codec=settings.codec, binding=settings.binding)
            self._created = stored.meta.created
        self.mine = self.timed(new)
        return self.mine

    def timed(self, blob: bytes) -> bytes:
        """A state of this worker's with the time at which the stored conversation began.

        It differs from the worker's own time only where two workers began the conversation at once.
        """
        settings = self.settings
        if self._created is None or not blob:
            return blob
        return begun_at(blob, self._created, codec=settings.codec, binding=settings.binding)

    def _holds(self, blob: bytes, base: bytes) -> bool:
        if self.stored == blob:
            return True
        if not self.stored:
            return False
        settings = self.settings
        try:
            return holds_state(self.stored, blob, base=base, codec=settings.codec, binding=settings.binding)
        except StateError:
            return False

    def grew_from(self, base: bytes, new: bytes) -> None:
        """Say that `new`, which is to be saved, grew from `base`, and may have been saved already."""
        self.mine = base
        if self.stored != base and self._holds(new, base):
            self.mine = new

    def overwrite(self, new: bytes) -> Flow[None]:
        """Save a state that did not grow from what is stored; `StateConflictError` if that has changed."""
        self._version = yield Invoke(self._save, (new, self._version))
        self.mine = self.stored = new

    def taken_back(self, old: bytes) -> bytes:
        """A state of before `mine` that is to be saved over it: no model accepted what came since."""
        settings = self.settings
        now = load_state(self.mine, codec=settings.codec, binding=settings.binding).meta
        if old:
            state = load_state(old, codec=settings.codec, binding=settings.binding)
        else:
            state = new_state(now.wire, id=now.id, created=now.created)
        if state.meta.rev >= now.rev:
            return old
        meta = msgspec.structs.replace(state.meta, rev=now.rev + 1, parent=digest8(self.mine[:112]))
        return dump_state(
            replace(state, meta=meta),
            codec=settings.codec,
            binding=settings.binding,
            limits=hard_limits(settings.codec),
        )

    def set_aside(self) -> Flow[str]:
        """Keep what is stored, which cannot be read, under a key of its own; the next save begins anew.

        Gives what that key has behind this one. The same bytes get the same key, so that they are kept once.
        """
        suffix = f".unreadable.{hashlib.sha256(self.stored).hexdigest()[:24]}"
        room = MAX_KEY_BYTES - len(suffix)
        key = self.settings.key.encode()[:room].decode(errors="ignore") + suffix
        store = self.settings.store
        try:
            yield Invoke(lambda: store.save(key, self.stored, expected=None))
        except StateConflictError:
            there = yield Invoke(lambda: store.load(key))
            if there is None or bytes(there.blob) != self.stored:
                raise
        self.mine = self.stored = b""
        return suffix

    # ------------------------------------------------------------------------------------- the lease

    def take_lease(self, timeout: float | None) -> Flow[float]:
        """Take the lease, if the store has leases, and keep it alive. Gives the seconds that it waited.

        Raises `TurnInProgressError` if somebody else holds it, by the gate: at once, or after `timeout`.
        """
        settings = self.settings
        if not hasattr(settings.store, "lease"):
            return 0.0
        began = yield Clock()
        pause, waited = FIRST_WAIT, 0.0
        while True:
            context = settings.store.lease(settings.key, settings.lease_ttl)
            enter = getattr(context, "__aenter__", None) or context.__enter__
            try:
                lease = yield Invoke(enter)
            except LeaseHeldError as exc:
                now = yield Clock()
                waited = now.monotonic - began.monotonic
                if settings.gate == "reject" or (timeout is not None and waited + pause > timeout):
                    raise TurnInProgressError(
                        "another turn runs on this conversation, and nothing was called: try again later"
                    ) from exc
            else:
                self._context, self._lease = context, lease
                self._renewal = settings.renewal(lease, settings.lease_ttl)
                yield Invoke(self._renewal.start)
                return waited
            yield Sleep(pause)
            pause = min(2 * pause, LONGEST_WAIT)

    def release(self) -> Flow[None]:
        """Give the lease back. While the store is unavailable that is tried again, as a save is; a lease that
        cannot be given back ends by itself. Whoever was interrupted in here may call it again."""
        if self._renewal is not None:
            yield Invoke(self._renewal.end)
            self._renewal = None
        if self._context is None:
            return
        with suppress(Exception):  # what happened under the lease matters more
            yield from self._give_back()
            leave = getattr(self._context, "__aexit__", None) or self._context.__exit__
            yield Invoke(leave, (None, None, None))
        self._context = self._lease = None

    def _give_back(self) -> Flow[None]:
        """Call the lease's own `release`, if it has one: unlike its context's end it says if it fails."""
        release = getattr(self._lease, "release", None)
        while release is not None:
            try:
                yield Invoke(release)
                return
            except StoreUnavailableError:
                if not (yield from self._wait()):
                    return
