"""One key of a store as head and parts: the loads, and the choice of the call that saves a new state.

Owns: the stored state as this worker knows it, with the parts that are at hand. Must never know: the time of
a save, or the acts after a conflict.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from ...state.apart import StateHead, whole
from ...state.records import Meta
from ...state.state import load_meta
from ...state.whole_blobs import attach
from ...stores.layout import RowFacts, StoredPart, combines, takes_facts
from ...turn.flow import Flow
from ...types.errors import StateConflictError, StateError, StatePartMissingError, StateTooLargeError
from .full_row import row_facts
from .parts import (
    LOADED,
    as_head,
    as_loaded,
    has_new_archive,
    head_of,
    names_of,
    part_with_room,
    parts_in,
    whole_or_unreadable,
    with_shared_part,
)
from .row_calls import RowSettings
from .row_lease import RowLease

if TYPE_CHECKING:
    from ...stores.base import Stored

__all__ = ["DROPPED", "RowParts"]

DROPPED: Final = (
    "another worker dropped a part of the conversation that this state still lists; load again and redo "
    "the turn"
)


_keeps_parts: Final[WeakSet[Any]] = WeakSet()
"""The stores that have saved parts in this process. If one of them fails once, it is not for good."""
_refuses_parts: Final[WeakSet[Any]] = WeakSet()
"""The stores that have refused to save parts. Their conversations are saved whole."""


def _is_noted(stores: WeakSet[Any], store: Any) -> bool:
    try:
        return store in stores
    except TypeError:  # it cannot be hashed, or not be referred to weakly
        return False


def _note(stores: WeakSet[Any], store: Any) -> None:
    with suppress(TypeError):
        stores.add(store)


class RowParts(RowLease):
    """The stored state in one use of a key, with its parts."""

    def __init__(self, settings: RowSettings) -> None:
        super().__init__(settings)
        self.meta_of: Callable[[bytes], Meta | None] = lambda blob: None
        """Gives the meta data of a blob that the running turn has made, without decoding; else None."""
        self.mine = b""
        self.stored = b""
        self.damage: StateError | None = None
        """The error of the parts, if they cannot be used. Then `stored` is the head alone."""
        self.has_unlisted = False
        """True if the store keeps parts that the loaded head does not list; see `load`."""
        self._version: int | None = None
        self._kept_parts: frozenset[bytes] = frozenset()
        """The names of the parts that the store keeps of `stored`."""
        self._sent_parts: frozenset[bytes] = frozenset()
        self._at_hand: dict[bytes, bytes] = {}
        self._form: tuple[bytes, bytes, Meta | None] | None = None
        """A new state, the form in which it is saved, and its meta data if the running turn has made it."""
        self._saves_whole = settings.in_parts and _is_noted(_refuses_parts, settings.store)
        self._written = 0
        """How many bytes the newest save has sent, without the facts."""
        self._sent: tuple[bytes, bytes] | None = None
        self._created: int | None = None

    @property
    def version(self) -> int | None:
        """The version of the stored state, as far as this worker knows it; None if nothing is stored."""
        return self._version

    def load(self, *, is_whole: bool = False, tolerates_damage: bool = False) -> Flow[Stored | None]:
        """Load the stored state. From here on `stored` and `mine` are this state.

        Args:
            is_whole: Load all parts, not only the parts that a turn needs; also parts that no head lists.
            tolerates_damage: Leave the error of a damaged part in `damage`, and do not raise it.

        Raises:
            StatePartMissingError: A listed part is not in the store.
            StateCorruptError: A part is damaged.
        """
        found: Stored | None
        # Only once: a turn that begins anew needs a newer state than the one that came with the lease.
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
        """Give the loaded row, and its blob: a head with the parts at hand, or with `parts="inline"` the
        whole blob.

        The head decides whether there are parts, not `in_parts`: a handle that writes whole blobs loads all
        parts, in a second load. A reader of a replica may see head and parts of two moments, so a missing
        part is loaded once more.
        """
        settings = self.settings
        self.damage, self.has_unlisted = None, False
        if found is not None and not settings.in_parts:
            # With `is_whole` also for parts that no head lists: a program of its own may have saved a whole
            # blob over the head with `Store.save`. The next save drops them.
            if not (self._is_parted and (is_whole or names_of(found.blob, settings.codec))):
                self._kept_parts = frozenset()
                return found, bytes(found.blob)
            found = yield from self.ask(self._load_all, is_paid=is_paid)
        takes_all = is_whole or not settings.in_parts
        kinds = None if takes_all else LOADED
        for is_last in (False, True):
            if found is None:
                break
            loaded: Any = found
            try:
                head, self._kept_parts = head_of(loaded, settings.codec, settings.binding, kinds=kinds)
            except StatePartMissingError:
                if is_last:
                    raise
                again = self._load_all if takes_all else self._load
                found = yield from self.ask(again, is_paid=is_paid)
                continue
            self.has_unlisted = len(self._kept_parts) > len(head.names)
            if settings.in_parts:
                return found, head
            if not head.names:
                return found, bytes(head)
            # For a state of another handle that lists these parts: see `_formed`.
            self._at_hand = dict(head.at_hand)
            try:
                return found, whole_or_unreadable(head)
            except StateTooLargeError:
                raise  # that is no damage: the archive of another handle is larger than one blob may be
            except StateError as exc:
                exc.blob = bytes(head)
                self.damage = exc
            return found, bytes(head)
        self._kept_parts = frozenset()
        return None, b""

    @property
    def _is_parted(self) -> bool:
        store = self.settings.store
        return all(callable(getattr(store, name, None)) for name in ("load_head", "save_parts"))

    def _load_all(self) -> Any:
        return self.settings.store.load_head(self.settings.key)

    def _load(self) -> Any:
        settings = self.settings
        if settings.in_parts:
            return settings.store.load_head(settings.key, kinds=LOADED)
        return settings.store.load(settings.key)

    def _load_whole(self) -> Any:
        return self._load_all() if self.settings.in_parts else self._load()

    def read_parts(self, names: Collection[bytes], *, is_paid: bool = False) -> Flow[dict[bytes, bytes]]:
        """Give the stored bytes of these parts, as far as they are at hand or in the store. `is_paid`: as for
        `ask`."""
        found = {name: self._at_hand[name] for name in names if name in self._at_hand}
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
        self._written, self._sent_parts = len(blob), frozenset()
        if self._has_parts(blob):
            return self._save_parts(blob, expected)
        self._check_whole(blob)
        if self._kept_parts:
            return self._save_inline(blob, expected)
        if not takes_facts(settings.store):
            return settings.store.save(settings.key, blob, expected=expected)
        return settings.store.save(settings.key, blob, expected=expected, facts=self._facts(blob))

    def _save_and_release(self, blob: bytes, expected: int | None) -> Any:
        settings = self.settings
        self._written, self._sent_parts = len(blob), frozenset()
        if self._has_parts(blob) or (settings.in_parts and not combines(settings.store)):
            return self._save_parts(blob, expected, (self._lease,))
        self._check_whole(blob)
        if self._kept_parts:
            return self._save_inline(blob, expected, (self._lease,))
        return settings.store.save_and_release(
            self._lease, settings.key, blob, expected=expected, facts=self._facts(blob)
        )

    def _has_parts(self, blob: bytes) -> bool:
        """True if the save changes parts. A short conversation has no part, and needs no table of parts."""
        settings = self.settings
        return settings.in_parts and bool(self._kept_parts or names_of(blob, settings.codec))

    def _take_stored(self) -> None:
        """Take the parts out of the stored blob, because a handle has saved it whole."""
        settings = self.settings
        if self.stored and not self._kept_parts:
            with suppress(StateError):
                self._at_hand = {**parts_in(self.stored, settings.codec, settings.binding), **self._at_hand}

    def _check_whole(self, blob: bytes) -> None:
        """Raise `StateConflictError` for a blob that lists parts which its save would not keep."""
        if self._is_parted and names_of(blob, self.settings.codec):
            raise StateConflictError(DROPPED)

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
        # A blob that cannot be a head is saved whole. Its list of parts is then the list of its archive.
        names = names_of(blob, settings.codec)
        at_hand = blob.at_hand if isinstance(blob, StateHead) else {}
        lacking = names.keys() - self._kept_parts
        if not lacking <= at_hand.keys() | self._at_hand.keys():
            self._take_stored()
        at_hand = at_hand if lacking <= at_hand.keys() else {**self._at_hand, **at_hand}
        if not lacking <= at_hand.keys():
            # Saved with a part missing, the conversation could not be read again.
            raise StateConflictError(DROPPED)
        # Not yet `_kept_parts`: the store may refuse this save.
        self._sent_parts = frozenset(names)
        new = [StoredPart(name=name, kind=names[name], data=at_hand[name]) for name in lacking]
        self._written = len(blob) + sum([len(part.data) for part in new])
        store = settings.store
        return (store.save_parts_and_release if lease else store.save_parts)(
            *lease,
            settings.key,
            bytes(blob),
            new,
            self._kept_parts - names.keys(),
            expected=expected,
            facts=self._facts(blob),
        )

    def _saved(self, blob: bytes) -> bytes:
        """Note that the save of this blob was done. Gives it as it would be loaded now: without the bytes of
        the archive."""
        self._kept_parts = self._sent_parts
        if self._kept_parts:
            _note(_keeps_parts, self.settings.store)
        elif self._saves_whole:
            self._note_refusal()
        return as_loaded(blob)

    def _without_parts(self, blob: bytes) -> bytes | None:
        """Give the whole blob of a head, after the store has refused to save the head with new parts. None if
        the blob has no new part, or cannot be whole.

        The reason may be that this program may not make the table of parts. Then a paid turn is saved whole
        all the same, and so are all later ones of this process.
        """
        if not isinstance(blob, StateHead) or blob.names.keys() <= self._kept_parts:
            return None
        try:
            found = blob.whole
        except StateError:
            return None
        self._saves_whole = True
        return found

    def _note_refusal(self) -> None:
        """Note that the store has saved a whole blob after it had refused parts. If it has never saved parts,
        that is no short trouble: it is not asked again."""
        store = self.settings.store
        if _is_noted(_keeps_parts, store) or _is_noted(_refuses_parts, store):
            return
        _note(_refuses_parts, store)
        logging.getLogger("goaitools_py.state").warning(
            "%s does not save parts: in this process conversations are saved whole; look at their table",
            type(store).__name__,
            extra={"event": "state.parts_refused"},
        )

    def _formed(self, blob: bytes, is_paid: bool) -> Flow[bytes]:
        """Give a new state the form in which this handle saves it: a head, or a whole blob. The same state
        gives the same bytes, though encryption is random.

        A new part of the archive is joined with the newest part in the store, which is loaded for this. If
        the load fails, both stay apart.
        """
        settings = self.settings
        if not blob:
            return blob
        if not settings.in_parts or self._saves_whole:
            return self._whole(blob)
        if self._form is not None and self._form[0] == blob:
            return self._form[1]
        head = as_head(blob, settings.codec, settings.binding)
        if isinstance(head, StateHead) and has_new_archive(head, self._kept_parts):
            name = part_with_room(head)
            if name is not None:
                with suppress(Exception):  # a paid turn is saved whether or not its record shares a part
                    found = yield from self.read_parts([name], is_paid=is_paid)
                    head = with_shared_part(head, found[name])
                    # The running turn still lists the part, and its next state joins the two anew.
                    self._at_hand[name] = found[name]
        if head is not blob:
            self._form = blob, head, self.meta_of(blob)
        return head

    def _whole(self, blob: bytes) -> bytes:
        """The state of another handle may list parts that this row has loaded: the blob gets them."""
        settings, blob = self.settings, whole(blob)
        if not (self._is_parted and names_of(blob, settings.codec)):
            return blob
        self._take_stored()
        return attach(blob, self._at_hand, codec=settings.codec, binding=settings.binding)

    def _facts(self, blob: bytes) -> RowFacts:
        settings = self.settings
        meta = self.meta_of(blob)
        if self._form is not None and self._form[1] is blob:
            # The engine knows the blob that it made, and not the form of it that is saved.
            meta = self._form[2]
        if meta is None:  # the state was rebased, or no turn has made it
            meta = load_meta(blob, codec=settings.codec, binding=settings.binding)
        return row_facts(meta, with_title=settings.with_title)

    def _ends_with_parts(self) -> bool:
        """True if the save drops no parts, or if the lease may end with a save that drops parts."""
        settings = self.settings
        return settings.in_parts or not self._kept_parts or combines(settings.store, in_parts=True)
