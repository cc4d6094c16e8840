"""One key of a store as head and parts: the loads, and the choice of the call that saves a new state.

Owns: the stored state as this worker knows it, with the parts that are at hand. Must never know: the time of
a save, or the acts after a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ...state.parts import ARCHIVE
from ...state.records import Meta
from ...state.state import load_meta
from ...state.whole_blobs import attach
from ...stores.layout import RowFacts, StoredPart, combines, takes_facts
from ...turn.flow import Flow
from ...types.errors import StateConflictError, StateCorruptError, StateError, StatePartMissingError
from .full_row import row_facts
from .parts import LOADED, Pieces, joined, lists_parts, part_with_room, pieces_of, with_shared_part
from .row_calls import RowSettings
from .row_lease import RowLease

if TYPE_CHECKING:
    from ...stores.base import Stored

__all__ = ["RowParts"]

_DROPPED: Final = (
    "another worker dropped a part of the conversation that this state still lists; load again and redo "
    "the turn"
)


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
        self._version: int | None = None
        self._kept_parts: frozenset[bytes] = frozenset()
        """The names of the parts that the store keeps of `stored`."""
        self._sent_parts: frozenset[bytes] = frozenset()
        self._at_hand: dict[bytes, StoredPart] = {}
        self._slimmed: tuple[bytes, bytes, Meta | None] | None = None
        self._sent: tuple[bytes, bytes] | None = None
        self._created: int | None = None

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
        """Give the loaded row, and its blob with the parts that its head lists.

        The head decides whether there are parts, not `in_parts`: a handle that writes whole blobs loads all
        parts, in a second load. A reader of a replica may see head and parts of two moments, so a missing
        part is loaded once more.
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
                # The save that replaces this head has to drop these parts.
                self._kept_parts = frozenset(part.name for part in head.parts)
            if not settings.in_parts:
                # For a state of another handle that lists these parts: see `_slim`.
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

    def read_parts(self, names: Collection[bytes], *, is_paid: bool = False) -> Flow[dict[bytes, bytes]]:
        """Give the stored bytes of these parts, as far as they are at hand or in the store. `is_paid`: as for
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
        """Take the parts out of the stored blob, because a handle has saved it whole."""
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
            # Saved with a part missing, the conversation could not be read again.
            raise StateConflictError(_DROPPED)
        # Not yet `_kept_parts`: the store may refuse this save.
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
        """Take a new state apart for its save. A new part of the archive is joined with the newest part in
        the store, which is loaded for this. If the load fails, both stay apart."""
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
        The row keeps these parts for the save. The same state gives the same bytes, though encryption is
        random."""
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
            # The engine knows the blob that it made, and not the slim form of it.
            meta = self._slimmed[2]
        if meta is None:  # the state was rebased, or no turn has made it
            meta = load_meta(blob, codec=settings.codec, binding=settings.binding)
        return row_facts(meta, with_title=settings.with_title)

    def _ends_with_parts(self) -> bool:
        """True if the save drops no parts, or if the lease may end with a save that drops parts."""
        settings = self.settings
        return settings.in_parts or not self._kept_parts or combines(settings.store, in_parts=True)
