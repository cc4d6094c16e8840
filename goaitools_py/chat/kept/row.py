"""One key of a store: the state that this worker knows under it, and the save of a new state.

Owns: compare-and-swap, rebasing on the state of another worker, saves without an answer, and the place for
unreadable bytes. Must never know: an engine of a store, a model, or whether its caller is async.

It is built on three files: the calls of the store (`row_calls`), the lease (`row_lease`), and the load and
save of head and parts (`row_parts`). All of them are flows: they yield effects (`flow`), in most cases an
`Invoke` of one of the store's methods.

A row knows two blobs. `stored` is the blob in the store. `mine` is the state that the caller of this row has
seen. They differ if another worker has appended something while the caller worked. Then a new state that grew
from `mine` is rebased on `stored` before it is saved, so that the addition is not lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from ...base.values import replace
from ...history.info import refs_of
from ...history.rebase import begun_at, holds_state, rebase_state
from ...state.apart import blob_size
from ...state.blob_header import may_take_long
from ...state.records import digest8
from ...state.state import dump_state, hard_limits, load_state, new_state
from ...stores.layout import MAX_KEY_BYTES, StoredPart
from ...turn.flow import Emit, Flow, computed
from ...types.errors import StateConflictError, StateError, StoreUnavailableError
from ...types.events import StateSaved
from .row_calls import RowSettings
from .row_parts import DROPPED, RowParts

__all__ = ["DuplicateError", "Row", "aside_prefix", "branch_key", "is_aside"]

MAX_REBASES: Final = 5
"""How often a state is rebased on the states of other workers. After that it is a conflict."""

_UNREADABLE: Final = "another worker saved a state that cannot be read here: load again and redo the turn"

_REFUSED: Final = (
    "the store refused a save, and holds the version that the save was to replace: try again later"
)

_ASIDE: Final = ".unreadable."
_BRANCH: Final = ".branch."
_DIGITS: Final = 24


def aside_prefix(key: str) -> str:
    """The beginning of the keys under which unreadable bytes of this key are kept. A very long key is cut
    there, so that a store takes the new key."""
    return _cut(key, len(_ASIDE) + _DIGITS) + _ASIDE


def branch_key(key: str, revision: int, number: int = 1) -> str:
    """The key of the copy that an edit makes of the conversation, at this revision of its state. `number`: 2
    and more if there is a branch under this key already."""
    end = f"{_BRANCH}{revision}" + (f"-{number}" if number > 1 else "")
    return _cut(key, len(end)) + end


def _cut(key: str, room: int) -> str:
    return key.encode()[: MAX_KEY_BYTES - room].decode(errors="ignore")


def is_aside(other: str, key: str) -> bool:
    """True for a key under which unreadable bytes of `key` are kept."""
    prefix = aside_prefix(key)
    digits = other[len(prefix) :]
    return other.startswith(prefix) and len(digits) == _DIGITS and not digits.strip("0123456789abcdef")


class DuplicateError(Exception):
    """A signal from a commit to its caller: another worker has finished the same turn meanwhile."""


class Row(RowParts):
    """One use of a key, from its load to its last save."""

    def __init__(self, settings: RowSettings) -> None:
        super().__init__(settings)
        self._saves = self._told = 0
        self.has_doubt = False  # a save got no answer, so it may have been done

    @property
    def has_saved(self) -> bool:
        """True once a state was saved."""
        return self._saves > 0

    def tell(self, of: dict[str, Any] | None = None) -> Flow[None]:
        """Emit the event of a save, once for each. `of`: the references and counts in the event; without them
        they are read from the stored state."""
        if self._told == self._saves:
            return
        self._told = self._saves
        if of is None:
            of = yield from self.refs()
        yield Emit(StateSaved(self._version, blob_size(self.stored), self._written, **of))

    def refs(self) -> Flow[dict[str, Any]]:
        """The references and counts of an event about the stored state."""
        read = partial(refs_of, self.stored, codec=self.settings.codec, binding=self.settings.binding)
        return computed(read, is_long=may_take_long(self.stored))

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
        new = self.timed((yield from self._formed(new, is_paid)))
        if self._sent is not None:
            # An earlier commit was interrupted, and its save may be done. If the caller has no newer state,
            # that save is the result: the older state must not replace it.
            known = self.mine
            yield from self._look(is_there, is_paid)
            new = self.mine if new == known else self.timed(new)
        while new != self.mine:
            is_long = self.stored != self.mine and (may_take_long(new) or may_take_long(self.stored))
            blob = yield from computed(partial(self._rebased, new), is_long=is_long)
            # Before the call: after an interrupt, the next commit must know that this save may be done.
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
                failure, self.has_doubt = exc, True
            else:
                if ends_lease:
                    # The save has ended the lease in the store, so `release` has nothing to ask.
                    self._lease, self._is_combined = None, False
                # First, and the others in one line: an exit in between leaves `_sent`, so that the next
                # commit looks at the store.
                stored = self._saved(blob)
                self._version, self.stored, self._sent = version, stored, None
                # The store is back: the next failure gets the whole `save_timeout` again.
                self._patient_until = None
                new = self._became(new)
                continue
            is_newer = yield from self._look(is_there, is_paid)
            new = self.timed(new)
            is_base = conflict is not None and is_paid and not is_newer and conflict.args != (DROPPED,)
            if is_base:
                # The row is the base of this save, so no other worker was first. A server that changes its
                # role may refuse all the same. Save again, as for a store without an answer.
                failure = StoreUnavailableError(_REFUSED)
                failure.__cause__, conflict = conflict, None
                refused, failed = refused - 1, failed + 1
            # `_look` got an answer, so the first failure is tried again at once. Later failures wait.
            if failure is not None and failed > 1 and not is_newer:
                without = None if is_base else self._without_parts(new)
                if without is not None:
                    new, self._sent = without, None
                    continue
                may_pass = is_paid and isinstance(failure, StoreUnavailableError)
                if not (may_pass and (yield from self._wait())):
                    raise failure
            if new == self.mine:
                continue
            if conflict is not None and refused > most:
                raise conflict
            if is_newer and not most:
                # A save without an answer was overtaken. The next try would be a rebase.
                raise StateConflictError("another worker saved first: try again") from failure
        return self.stored

    def find_sent(self, is_there: Callable[[bytes], bool] | None) -> Flow[None]:
        """Look for a save that got no answer, if there is one. If it was done, `mine` is its state."""
        if self._sent is not None:
            yield from self._look(is_there, False)

    def look(self) -> Flow[bool]:
        """Look for a newer state of another worker, and load it. True if `stored` is not `mine`.

        Only the head is loaded, if it is the known one. A store that is away has nothing new: the next save
        of the turn tells.
        """
        store, key = self.settings.store, self.settings.key
        if self._is_parted:
            found = yield from self.asked_beside(partial(store.load_head, key, kinds=()))
        else:
            found = yield from self.asked_beside(store.load, key)
        if found is not None and found.version != self._version:
            until = self._patient_until
            try:
                yield from self._look(None, True)
            except (StateConflictError, StateError, StoreUnavailableError):
                self._patient_until = until
                return False
        return self.stored != self.mine

    def _rebased(self, new: bytes) -> bytes:
        """Give the state to save, rebased. After a save without an answer these are the same bytes again."""
        if self._sent is not None and self._sent[0] == new:
            return self._sent[1]
        if self.stored == self.mine:
            return new
        settings = self.settings
        try:
            if not (self.mine or settings.converts):  # two began at once: refuse a state of another API
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

    def _look(self, is_there: Callable[[bytes], bool] | None, is_paid: bool) -> Flow[bool]:
        """Load after a save that did not succeed. True if the store has a newer state."""
        while True:
            try:
                found = yield from self.ask(self._load, is_paid=is_paid)
                if (None if found is None else found.version) == self._version:
                    # `_sent` stays: that save may still arrive, and the next try must send the same bytes.
                    return False
                found, blob = yield from self._with_parts(found, is_paid=is_paid)
                break
            except StoreUnavailableError:
                if not (is_paid and (yield from self._wait())):
                    raise
        sent, self._sent = self._sent, None
        if found is None:
            # Not saved again: an erased conversation must not come back.
            raise StateConflictError("the conversation was deleted meanwhile; begin it anew")
        if self.damage is not None:
            raise StateConflictError(_UNREADABLE) from self.damage
        before, self.stored, self._version = self.stored, blob, found.version
        # Another worker may have gone on from this save. Then the store holds it, but not the same bytes.
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
        new = yield from self._formed(new, False)
        self._version = yield from self.ask(self._save, new, self._version)
        self.mine = self.stored = self._saved(new)

    def taken_back(self, old: bytes) -> bytes:
        """Make an earlier state ready to replace `mine`: no model accepted the additions since then."""
        settings = self.settings
        now = load_state(self.mine, codec=settings.codec, binding=settings.binding).meta
        if old:
            state = load_state(old, codec=settings.codec, binding=settings.binding)
        else:
            state = new_state(now.wire, id=now.id, created=now.created)
        if state.meta.rev >= now.rev:
            return old
        # A rebase refuses a revision that fell, so the earlier content gets a newer revision.
        meta = msgspec.structs.replace(state.meta, rev=now.rev + 1, parent=digest8(self.mine[:112]))
        return dump_state(
            replace(state, meta=meta),
            codec=settings.codec,
            binding=settings.binding,
            limits=hard_limits(settings.codec),
        )

    def set_aside(self) -> Flow[str]:
        """Keep the stored bytes, which cannot be read, under another key. The next save begins anew.

        Gives the suffix of that key. The same bytes of head and parts get the same key, so that they are kept
        once. A store of parts keeps all parts of the key there too, also the parts of other writers.
        """
        store, head = self.settings.store, self.stored
        parts: tuple[StoredPart, ...] = ()
        if self._is_parted:
            found = yield from self.ask(self._load_all)
            if found is None or found.version != self._version:
                # The parts must belong to the head that could not be read. A newer row may be readable.
                raise StateConflictError("another worker saved meanwhile; load again and redo the turn")
            head, parts = bytes(found.blob), found.parts
            # All parts of the key: the save that begins anew drops them.
            self._kept_parts = frozenset(part.name for part in parts)
        # With the parts: of two damaged copies of one head, each may have a part that the other has lost.
        of_all = hashlib.sha256(head)
        for part in sorted(parts, key=lambda part: part.name):
            of_all.update(part.data)
        digest = of_all.hexdigest()[:_DIGITS]
        suffix = _ASIDE + digest
        key = aside_prefix(self.settings.key) + digest
        try:
            if parts:
                yield from self.ask(lambda: store.save_parts(key, head, parts, (), expected=None))
            else:
                yield from self.ask(lambda: store.save(key, head, expected=None))
        except StateConflictError:
            # The key comes from the bytes. Another worker, or a process that was killed after this save, may
            # have kept the same bytes already.
            there = yield from self.ask(lambda: store.load(key))
            if there is None or bytes(there.blob) != head:
                raise
        # `_version` stays: the next save replaces these bytes, and no newer ones.
        self.mine = self.stored = b""
        return suffix
