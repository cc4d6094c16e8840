"""One key of a store: the state that this worker knows under it, and the save of a new state.

Owns: compare-and-swap, rebasing on the state of another worker, saves without an answer, the lease, and the
place for unreadable bytes. Must never know: an engine of a store, a model, or whether its caller is async.

Everything here is a flow: it yields effects (`flow`), in most cases an `Invoke` of one of the store's
methods.

A row knows two blobs. `stored` is the blob in the store. `mine` is the state that the caller of this row has
seen. They differ if another worker has appended something while the caller worked. Then a new state that grew
from `mine` is rebased on `stored` before it is saved, so that the addition is not lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..backends.base import Dialect
from ..errors import (
    LeaseHeldError,
    StateConflictError,
    StateCorruptError,
    StateError,
    StatePartMissingError,
    StoreUnavailableError,
    TurnInProgressError,
)
from ..events import StateSaved
from ..history.info import refs_of
from ..history.rebase import begun_at, holds_state, rebase_state
from ..state.codec import Codec
from ..state.parts import ARCHIVE
from ..state.placing import attach
from ..state.records import Meta, digest8
from ..state.state import dump_state, hard_limits, load_state, new_state
from ..stores.layout import MAX_KEY_BYTES, RowFacts, StoredPart, combines, takes_facts
from ..turn.flow import Clock, Emit, Flow, Invoke, Sleep, Unanswered
from ..values import Value, replace
from .facts import row_facts
from .parts import LOADED, Pieces, joined, lists_parts, part_with_room, pieces_of, with_shared_part

if TYPE_CHECKING:
    from ..stores.base import Stored

__all__ = ["DuplicateError", "Row", "RowSettings", "aside_prefix", "is_aside"]

MAX_REBASES: Final = 5
"""How often a state is rebased on the states of other workers. After that it is a conflict."""

FIRST_WAIT: Final = 0.01
LONGEST_WAIT: Final = 0.25
"""Seconds between two tries for a lease. Each wait is twice as long as the wait before it."""

LEAST_ANSWER, LONGEST_ANSWER = 1.0, 60.0
"""Seconds for which one answer of the store is awaited: at least, and where no turn sets a limit."""

_UNREADABLE: Final = "another worker saved a state that cannot be read here: load again and redo the turn"

_DROPPED: Final = "another worker dropped a part of the conversation that this state still lists; load again and redo the turn"

_ASIDE: Final = ".unreadable."
_DIGITS: Final = 24


def aside_prefix(key: str) -> str:
    """The beginning of the keys under which unreadable bytes of this key stand aside. A very long key is cut
    there, so that a store takes the new one."""
    room = MAX_KEY_BYTES - len(_ASIDE) - _DIGITS
    return key.encode()[:room].decode(errors="ignore") + _ASIDE


def is_aside(other: str, key: str) -> bool:
    """True for a key under which unreadable bytes of `key` stand aside."""
    prefix = aside_prefix(key)
    digits = other[len(prefix) :]
    return other.startswith(prefix) and len(digits) == _DIGITS and not digits.strip("0123456789abcdef")


class RowSettings(Value, frozen=True, kw_only=True):
    """The settings of a key: they are the same for each use.

    `renewal`: takes a lease and its seconds; what it makes renews the lease in the background, from `start`
    to `end`.
    `undisturbed`: makes the call that takes or ends a lease; see `undisturbed`.
    `gate`: "queue" waits for a lease that another worker holds, "reject" raises at once.
    `lease_ttl`: how long a lease lasts without a renewal, in seconds.
    `concurrent_turns`: True puts a turn behind another worker's turn instead of raising a conflict.
    `save_timeout`: for how many seconds the save of a paid turn, or the release of a lease, is tried again
    while the store is unavailable.
    `with_title`: True if the title stands in a plain column beside the blob.
    `converts`: True if turns convert states of other provider APIs, so that one may be stored.
    `longest_wait`: seconds after which a call of the store has ended in any case, for a store that does not
    say so itself. A wait that may last longer needs no limit.
    `in_parts`: True if saves put archive and media into the store as parts of their own; see `parts`. What is
    read follows from the row.
    `stop_every`: seconds between two looks of a turn at the stop flag; None if it does not look.
    """

    _unshown = frozenset({"key", "binding"})

    store: Any
    key: str
    codec: Codec
    binding: Any
    dialect: Dialect
    renewal: Callable[[Any, float], Any]
    undisturbed: Callable[..., Any]
    gate: str = "queue"
    lease_ttl: float = 10.0
    concurrent_turns: bool = False
    save_timeout: float = 5.0
    with_title: bool = False
    in_parts: bool = False
    stop_every: float | None = None
    converts: bool = False
    longest_wait: float = 0.0

    @property
    def reader(self) -> Dialect | None:
        """The dialect that reads what is stored; None for the one of the state's own provider API."""
        return None if self.converts else self.dialect


class DuplicateError(Exception):
    """A signal from a commit to its caller: another worker has finished the same turn meanwhile."""


class Row:
    """One use of a key, from its load to its last save."""

    def __init__(self, settings: RowSettings) -> None:
        self.settings = settings
        self.meta_of: Callable[[bytes], Meta | None] = lambda blob: None
        """Gives the meta data of a blob that the running turn has made, without decoding; else None."""
        self.mine = b""
        self.stored = b""
        self.damage: StateError | None = None
        """Why the parts of `stored`, which is the head alone then, cannot be used."""
        self._version: int | None = None
        self._kept_parts: frozenset[bytes] = frozenset()
        """The names of the parts that the store keeps of `stored`."""
        self._sent_parts: frozenset[bytes] = frozenset()
        self._at_hand: dict[bytes, StoredPart] = {}
        self._slimmed: tuple[bytes, bytes, Meta | None] | None = None
        self._sent: tuple[bytes, bytes] | None = None
        self._created: int | None = None
        self._context: Any = None
        self._saves = self._told = 0
        self._lease: Any = None
        self._taking: tuple[Any, Any] | None = None
        """The call that takes the lease, and the lease's context if it has one; None before and after it."""
        self._leaving: Any = None
        """The call that ends the lease's context."""
        self._found: tuple[Stored | None, bool] | None = None
        """What was loaded together with the lease, until `load` gives it; and whether it has all parts."""
        self._is_combined = False
        self._renewal: Any = None
        self._deadline: float | None = None
        self._patient_until: float | None = None
        self._is_silent = False
        """True if the last call of the store got no answer in time."""
        self._pause = FIRST_WAIT

    @property
    def has_saved(self) -> bool:
        """True once a state was saved."""
        return self._saves > 0

    def tell(self, of: dict[str, str] | None = None) -> Flow[None]:
        """Emit the event of a save, once for each. `of`: the references in the event; without them they are
        read from the stored state."""
        if self._told == self._saves:
            return
        self._told = self._saves
        settings = self.settings
        if of is None:
            of = refs_of(self.stored, codec=settings.codec, binding=settings.binding)
        yield Emit(StateSaved(self._version, len(self.stored), **of))

    def ask(
        self,
        call: Callable[..., Any],
        *args: Any,
        is_paid: bool = False,
    ) -> Flow[Any]:
        """Call the store. `StoreUnavailableError` if no answer comes in time; the call may still be done.

        Before a turn has called a model, it waits for an answer until its own time is over. After that
        (`is_paid`) it waits as long as a save is tried.

        Args:
            call: A method of the store.
            args: What it takes.
            is_paid: True if model calls or tools were paid for.
        """
        longest: float = getattr(self.settings.store, "longest_wait", self.settings.longest_wait)
        if not longest:
            return (yield Invoke(call, args))
        self._is_silent = False  # an error of the store is an answer, too
        now = yield Clock()
        until = self._end_of_wait(now.monotonic, is_paid)
        if until - now.monotonic >= longest:
            return (yield Invoke(call, args))
        try:
            return (yield Invoke(call, args, until))
        except Unanswered:
            self._is_silent = True
            if is_paid and self._patient_until is None:
                self._patient_until = until + LEAST_ANSWER  # other connections may do: look, and save again
            raise StoreUnavailableError(
                f"the store gave no answer within {until - now.monotonic:.1f} seconds: try again later"
            ) from None

    def asked_beside(self, call: Callable[..., Any], *args: Any) -> Flow[Any]:
        """As `ask` of a paid turn, for what a turn can do without: None if the store fails. The time in which
        the turn's save is tried again does not begin here."""
        until = self._patient_until
        try:
            return (yield from self.ask(call, *args, is_paid=True))
        except Exception:
            self._patient_until = until
            return None

    def _end_of_wait(self, now: float, is_paid: bool) -> float:
        if not is_paid:
            end = now + LONGEST_ANSWER if self._deadline is None else self._deadline
        elif self._patient_until is None:
            end = now + self.settings.save_timeout
        else:
            end = self._patient_until
        return max(end, now + LEAST_ANSWER)

    # ------------------------------------------------------------------------------------ loading

    def load(self, *, is_whole: bool = False, tolerates_damage: bool = False) -> Flow[Stored | None]:
        """Load the stored state. From here on `stored` and `mine` are this state.

        Args:
            is_whole: Load all parts, not only the parts that a turn needs.
            tolerates_damage: Leave the error of a damaged part in `damage`, and do not raise it.

        Raises:
            StatePartMissingError: A listed part is not in the store.
            StateCorruptError: A part is damaged.
        """
        found: Stored | None
        at_hand, self._found = self._found, None
        if at_hand is not None and (at_hand[1] or not is_whole):
            found = at_hand[0]
        else:
            found = yield from self.ask(self._load_whole if is_whole else self._load)
        found, blob = yield from self._with_parts(found, is_whole=is_whole)
        self._version = None if found is None else found.version
        self._sent = self._created = None
        self.mine = self.stored = blob
        if self.damage is not None and not tolerates_damage:
            raise self.damage
        return found

    def _with_parts(
        self, found: Stored | None, *, is_whole: bool = False, is_paid: bool = False
    ) -> Flow[tuple[Stored | None, bytes]]:
        """Give what was loaded, and its blob with the parts that its head lists.

        The head says whether there are any, not `in_parts`: a handle that writes whole blobs loads all of
        them, with one load more. A reader of a replica may see head and parts of two moments, so a part that
        is not there is looked for once more.
        """
        settings = self.settings
        self.damage = None
        if found is not None and not settings.in_parts:
            if not (self._is_parted and lists_parts(found.blob, settings.codec)):
                self._kept_parts = frozenset()
                return found, bytes(found.blob)
            found = yield from self.ask(self._load_all, is_paid=is_paid)
        takes_all = is_whole or not settings.in_parts
        for is_last in (False, True):
            if found is None:
                break
            head: Any = found
            try:
                blob, self._kept_parts = joined(
                    head, settings.codec, settings.binding, kinds=None if takes_all else LOADED
                )
            except StatePartMissingError:
                if is_last:
                    raise
                again = self._load_all if takes_all else self._load
                found = yield from self.ask(again, is_paid=is_paid)
                continue
            except StateCorruptError as exc:
                exc.blob = blob = bytes(head.blob)
                self.damage = exc
                self._kept_parts = frozenset(part.name for part in head.parts)
            if not settings.in_parts:
                self._at_hand = {part.name: part for part in head.parts}
            return found, blob
        self._kept_parts = frozenset()
        return None, b""

    @property
    def _is_parted(self) -> bool:
        return callable(getattr(self.settings.store, "load_head", None))

    def _load_all(self) -> Any:
        return self.settings.store.load_head(self.settings.key)

    def _load(self) -> Any:
        settings = self.settings
        if settings.in_parts:
            return settings.store.load_head(settings.key, kinds=LOADED)
        return settings.store.load(settings.key)

    def _load_whole(self) -> Any:
        return self._load_all() if self.settings.in_parts else self._load()

    def _lease_and_load(self, is_whole: bool) -> Any:
        settings = self.settings
        if settings.in_parts:
            kinds = None if is_whole else LOADED
            return settings.store.lease_and_load_head(settings.key, settings.lease_ttl, kinds=kinds)
        return settings.store.lease_and_load(settings.key, settings.lease_ttl)

    def read_parts(self, names: Collection[bytes], *, is_paid: bool = False) -> Flow[dict[bytes, bytes]]:
        """Give the stored bytes of those of these parts that are at hand or in the store. `is_paid`: as for
        `ask`."""
        found = {name: self._at_hand[name].data for name in names if name in self._at_hand}
        lacking = [name for name in names if name not in found]
        settings = self.settings
        if lacking and settings.in_parts:
            parts: Sequence[StoredPart] = yield from self.ask(
                settings.store.load_parts, settings.key, lacking, is_paid=is_paid
            )
            found |= {part.name: bytes(part.data) for part in parts}
        return found

    def _save(self, blob: bytes, expected: int | None) -> Any:
        settings = self.settings
        if settings.in_parts:
            return self._save_parts(blob, expected)
        self._check_whole(blob)
        if self._kept_parts:
            return self._save_inline(blob, expected)
        if not takes_facts(settings.store):
            return settings.store.save(settings.key, blob, expected=expected)
        return settings.store.save(settings.key, blob, expected=expected, facts=self._facts(blob))

    def _save_and_release(self, blob: bytes, expected: int | None) -> Any:
        settings = self.settings
        if settings.in_parts:
            return self._save_parts(blob, expected, (self._lease,))
        self._check_whole(blob)
        if self._kept_parts:
            return self._save_inline(blob, expected, (self._lease,))
        return settings.store.save_and_release(
            self._lease, settings.key, blob, expected=expected, facts=self._facts(blob)
        )

    def _take_stored(self) -> None:
        """Have the parts at hand that are in the stored blob, since a handle has saved it whole."""
        settings = self.settings
        if self.stored and not self._kept_parts:
            with suppress(StateError):
                self._at_hand = {
                    **pieces_of(self.stored, settings.codec, settings.binding).at_hand,
                    **self._at_hand,
                }

    def _check_whole(self, blob: bytes) -> None:
        """Raise `StateConflictError` for a blob that lists parts which its save would not keep."""
        if self._is_parted and lists_parts(blob, self.settings.codec):
            raise StateConflictError(_DROPPED)

    def _save_inline(self, blob: bytes, expected: int | None, lease: tuple[Any, ...] = ()) -> Any:
        """Save a whole blob, and drop the parts of another writer in the same step. See `_save_parts`."""
        store, self._sent_parts = self.settings.store, frozenset()
        save = store.save_parts_and_release if lease else store.save_parts
        facts = self._facts(blob)
        return save(*lease, self.settings.key, blob, (), self._kept_parts, expected=expected, facts=facts)

    def _save_parts(self, blob: bytes, expected: int | None, lease: tuple[Any, ...] = ()) -> Any:
        """Save the head. The same step adds the parts that the store lacks, and drops the parts that the head
        does not list any more. Both sets come from a comparison with the newest head that was loaded.

        `lease`: the lease that ends with the save, if one does.
        """
        settings = self.settings
        pieces = pieces_of(blob, settings.codec, settings.binding)
        self._at_hand.update(pieces.at_hand)
        lacking = pieces.names - self._kept_parts
        if not lacking <= self._at_hand.keys():
            self._take_stored()
        if not lacking <= self._at_hand.keys():
            raise StateConflictError(_DROPPED)
        self._sent_parts = pieces.names
        store = settings.store
        return (store.save_parts_and_release if lease else store.save_parts)(
            *lease,
            settings.key,
            pieces.head,
            [self._at_hand[name] for name in lacking],
            self._kept_parts - pieces.names,
            expected=expected,
            facts=self._facts(blob),
        )

    def _share(self, blob: bytes, is_paid: bool) -> Flow[None]:
        """Take a new state apart for its save. If it has a new part of the archive, that becomes one with the
        newest part in the store, which is loaded for this. If it cannot be had, both stay apart."""
        settings = self.settings
        if not settings.in_parts or not blob or (self._slimmed is not None and self._slimmed[0] == blob):
            return
        codec, binding = settings.codec, settings.binding
        pieces = pieces_of(blob, codec, binding)
        if pieces.has_new_archive and (name := part_with_room(blob, codec, binding)) is not None:
            with suppress(Exception):  # a paid turn is saved whether or not its record shares a part
                found = yield from self.read_parts([name], is_paid=is_paid)
                pieces = pieces_of(with_shared_part(blob, found[name], codec, binding), codec, binding)
                # The running turn still lists the part, and its next state joins the two anew.
                self._at_hand[name] = StoredPart(name=name, kind=ARCHIVE, data=found[name])
        self._note_pieces(blob, pieces)

    def _slim(self, blob: bytes) -> bytes:
        """Give a new state the form of a loaded one: without the parts that only the store keeps, or whole.
        The row keeps those for the save. The same state gives the same bytes, though encryption is random."""
        settings = self.settings
        if not settings.in_parts:
            # The state of another handle may list parts that this row has loaded: the blob gets them.
            if not (self._is_parted and lists_parts(blob, settings.codec)):
                return blob
            self._take_stored()
            data = {name: part.data for name, part in self._at_hand.items()}
            return attach(blob, data, codec=settings.codec, binding=settings.binding)
        if not blob:
            return blob
        if self._slimmed is None or self._slimmed[0] != blob:
            self._note_pieces(blob, pieces_of(blob, settings.codec, settings.binding))
        assert self._slimmed is not None
        return self._slimmed[1]

    def _note_pieces(self, blob: bytes, pieces: Pieces) -> None:
        self._at_hand.update(pieces.at_hand)
        self._slimmed = blob, pieces.slim, self.meta_of(blob)

    def _facts(self, blob: bytes) -> RowFacts:
        settings = self.settings
        meta = self.meta_of(blob)
        if self._slimmed is not None and self._slimmed[1] is blob:
            meta = self._slimmed[2]
        if meta is None:  # the state was rebased, or no turn has made it
            meta = load_state(blob, codec=settings.codec, binding=settings.binding).meta
        return row_facts(meta, with_title=settings.with_title)

    # ------------------------------------------------------------------------------------- saving

    def commit(
        self,
        new: bytes,
        *,
        is_there: Callable[[bytes], bool] | None = None,
        most: int = MAX_REBASES,
        is_paid: bool = True,
        is_last: bool = False,
    ) -> Flow[bytes]:
        """Save a state that grew from `mine`. Gives the stored state: this one, or this one with additions of
        other workers.

        A caller that was interrupted here may call it again. It then first looks for the save that was sent.

        Args:
            new: The state.
            is_there: Tells whether another worker's state contains the turn of `new`.
            most: How often the state may be rebased.
            is_paid: True if model calls or tools were paid for it. Then the save is tried again for
                `save_timeout` seconds while the store is unavailable.
            is_last: True if only `release` follows. A store that can then gives the lease back with the save.

        Raises:
            StateConflictError: Another worker had a turn, or deleted the conversation.
            DuplicateError: `is_there` was true.
            Exception: The error of the store, if it neither answered that it saved nor holds the state.
        """
        refused = failed = 0
        yield from self._share(new, is_paid)
        new = self.timed(self._slim(new))
        if self._sent is not None:
            known = self.mine
            yield from self._look(is_there, is_paid)
            new = self.mine if new == known else self.timed(new)
        while new != self.mine:
            blob = self._rebased(new)
            self._sent = (new, blob)
            failure = conflict = None
            ends_lease = is_last and self._is_combined and self._ends_with_parts()
            try:
                save = self._save_and_release if ends_lease else self._save
                version = yield from self.ask(save, blob, self._version, is_paid=is_paid)
            except StateConflictError as exc:
                refused += 1
                if not failed:
                    self._sent = None  # this state was not saved: the stored one is another worker's
                    if refused > most:
                        raise
                conflict = exc  # if an earlier save got no answer, others may have continued from this state
            except Exception as exc:
                failed += 1
                failure = exc
            else:
                if ends_lease:
                    self._lease, self._is_combined = None, False
                self._version, self.stored, self._sent = version, blob, None
                self._kept_parts = self._sent_parts
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

    def _ends_with_parts(self) -> bool:
        """True if the lease may end with a save that drops parts, or if the save drops none."""
        settings = self.settings
        return settings.in_parts or not self._kept_parts or combines(settings.store, in_parts=True)

    def find_sent(self, is_there: Callable[[bytes], bool] | None) -> Flow[None]:
        """Look for a save that got no answer, if there is one. If it was done, `mine` is its state."""
        if self._sent is not None:
            yield from self._look(is_there, False)

    def _rebased(self, new: bytes) -> bytes:
        """Give the state to save, rebased. After a save without an answer these are the same bytes again."""
        if self._sent is not None and self._sent[0] == new:
            return self._sent[1]
        if self.stored == self.mine:
            return new
        settings = self.settings
        try:
            if not (self.mine or settings.converts):  # two began at once: do not convert what was not to be
                load_state(
                    self.stored,
                    wire=settings.dialect.wire,
                    codec=settings.codec,
                    binding=settings.binding,
                )
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
            raise StateConflictError(_UNREADABLE) from exc

    def _wait(self) -> Flow[bool]:
        """Wait before the unavailable store is tried again. False once `save_timeout` seconds have passed
        since the first failure."""
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
        """Load after a save that did not succeed. True if the store has a newer state."""
        while True:
            try:
                found = yield from self.ask(self._load, is_paid=is_paid)
                if (None if found is None else found.version) == self._version:
                    return False
                found, blob = yield from self._with_parts(found, is_paid=is_paid)
                break
            except StoreUnavailableError:
                if not (is_paid and (yield from self._wait())):
                    raise
        sent, self._sent = self._sent, None
        if found is None:
            raise StateConflictError("the conversation was deleted meanwhile; begin it anew")
        if self.damage is not None:
            raise StateConflictError(_UNREADABLE) from self.damage
        before, self.stored, self._version = self.stored, blob, found.version
        if sent is not None and self._holds(sent[1], before):
            self._became(sent[0])
        elif is_there is not None and is_there(self.stored):
            raise DuplicateError
        return True

    def _became(self, new: bytes) -> bytes:
        """Note that a state is stored now, and give it with the time at which the conversation began."""
        self._saves += 1
        if not self.mine and self.stored != new:  # another worker began it too: the stored time stays
            settings = self.settings
            stored = load_state(self.stored, codec=settings.codec, binding=settings.binding)
            self._created = stored.meta.created
        self.mine = self.timed(new)
        return self.mine

    def timed(self, blob: bytes) -> bytes:
        """Give a state of this worker the time at which the stored conversation began.

        That time differs from the worker's own only if two workers began the conversation at the same moment.
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
        """Note that `new`, the next state to save, grew from `base`. It may have been saved already."""
        self.mine = base
        if self.stored != base and self._holds(new, base):
            self.mine = new

    def overwrite(self, new: bytes) -> Flow[None]:
        """Save a state that did not grow from the stored one. `StateConflictError` if that has changed."""
        new = self._slim(new)
        self._version = yield from self.ask(self._save, new, self._version)
        self._kept_parts = self._sent_parts
        self.mine = self.stored = new

    def taken_back(self, old: bytes) -> bytes:
        """Make a state from before `mine` ready to replace it: no model accepted what was added since."""
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
        """Keep the stored bytes, which cannot be read, under another key. The next save begins anew.

        Gives the suffix of that key. The same bytes get the same key, so that they are kept once. A store of
        parts keeps all parts of the key there too, whoever has written them.
        """
        store, head, parts = self.settings.store, self.stored, ()
        if self._is_parted:
            found = yield from self.ask(self._load_all)
            if found is None or found.version != self._version:
                raise StateConflictError("another worker saved meanwhile; load again and redo the turn")
            head, parts = bytes(found.blob), found.parts
            self._kept_parts = frozenset(part.name for part in parts)
        digest = hashlib.sha256(head).hexdigest()[:_DIGITS]
        suffix = _ASIDE + digest
        key = aside_prefix(self.settings.key) + digest
        try:
            if parts:
                yield from self.ask(lambda: store.save_parts(key, head, parts, (), expected=None))
            else:
                yield from self.ask(lambda: store.save(key, head, expected=None))
        except StateConflictError:
            there = yield from self.ask(lambda: store.load(key))
            if there is None or bytes(there.blob) != head:
                raise
        self.mine = self.stored = b""
        return suffix

    # ------------------------------------------------------------------------------------- the lease

    def take_lease(self, timeout: float | None, *, is_whole: bool = False) -> Flow[float]:
        """Take the lease, if the store has leases, and keep it alive. Gives the seconds of the wait.

        `is_whole`: as for the `load` that follows. A store that can loads with the lease.
        Raises `TurnInProgressError` if another worker holds it: at once with the gate "reject", else after
        `timeout` seconds. A store that does not answer is awaited as long.
        """
        settings = self.settings
        began = yield Clock()
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
                self._taking = taking, context
                taken = yield from self.ask(taking.call)
            except LeaseHeldError as exc:
                self._taking = None
                now = yield Clock()
                waited = now.monotonic - began.monotonic
                if settings.gate == "reject" or (timeout is not None and waited + pause > timeout):
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
                self._renewal = settings.renewal(self._lease, settings.lease_ttl)
                yield Invoke(self._renewal.start)
                return waited
            yield Sleep(pause)
            pause = min(2 * pause, LONGEST_WAIT)

    def _note_taken(self, context: Any, taken: Any) -> None:
        """Note the lease that was taken. `context`: None if it was loaded together with the lease."""
        self._lease, self._context = taken if context is not None else taken[0], context
        self._is_combined = context is None
        self._taking = None

    def release(self) -> Flow[None]:
        """Give the lease back. While the store is unavailable it is tried again, as a save is. A lease that
        cannot be given back runs out. A caller that was interrupted here may call it again, and so may one
        that was interrupted while the lease was being taken."""
        if self._taking is not None:
            taking, context = self._taking
            taken = yield Invoke(taking.rest)
            if taken is not None:
                self._note_taken(context, taken)
            self._taking = None
        if self._renewal is not None:
            yield Invoke(self._renewal.end)
            self._renewal = None
        if self._lease is None and self._context is None:
            return
        if self._is_silent and self._patient_until is None:
            self._patient_until = 0.0  # the wait was over before: one moment for the lease is enough
        for step in (self._give_back, self._leave):  # a context is left, too, if the release failed
            with suppress(Exception):  # the outcome of the turn is more important than this error
                yield from step()
        self._context = self._lease = self._leaving = None
        self._is_combined = False

    def _leave(self) -> Flow[None]:
        """Leave the context of the lease, once. Where the lease has a `release` it has ended already."""
        if self._context is None:
            return
        if hasattr(self._lease, "release"):
            yield from self.ask(_leave, self._context, is_paid=True)
        elif self._leaving is None:
            self._leaving = self.settings.undisturbed(partial(_leave, self._context))
            yield from self.ask(self._leaving.call, is_paid=True)
        else:
            yield from self.ask(self._leaving.rest, is_paid=True)

    def _give_back(self) -> Flow[None]:
        """Call the lease's own `release`, if it has one. It raises if it fails; its context does not."""
        release = getattr(self._lease, "release", None)
        while release is not None:
            try:
                yield from self.ask(release, is_paid=True)
                return
            except StoreUnavailableError:
                if not (yield from self._wait()):
                    return


def _release_late(answer: tuple[Any, Any]) -> Any:
    """Give back a lease that came together with a state, but too late."""
    return answer[0].release()


def _leave_late(context: Any, _: Any) -> Any:
    """End the context of a lease that came too late."""
    return _leave(context)


def _leave(context: Any) -> Any:
    """End the context of a lease."""
    return (getattr(context, "__aexit__", None) or context.__exit__)(None, None, None)
