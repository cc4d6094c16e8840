"""One row of a store as a whole state, for programs that run no turn: tools, migrations, backups.

Owns: a blob together with the parts that its store keeps, the facts for the plain columns beside the blob,
and the save that no other worker's save is lost to. Must never know: an engine of a store, or why a state is
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ...state.apart import StateHead
from ...state.blob_header import peek
from ...state.codec import PLAIN, SUITE_PLAIN, Codec
from ...state.parts import ELSEWHERE
from ...state.records import Meta, usage_of
from ...state.state import dump_state, hard_limits, load_state
from ...state.whole_blobs import parts_of
from ...stores.base import Leasing, Parted, Stored, StoredHead
from ...stores.layout import RowFacts, StoredPart, takes_facts
from ...types.errors import LeaseHeldError, StatePartMissingError, TurnInProgressError
from .parts import PartsPlace, as_head, head_of, names_of, parts_in, whole_or_unreadable

__all__ = ["FullRow", "held", "load_row", "row_facts", "save_new", "shows_title"]

Opening = Callable[[bytes], Mapping[str, Any]]
"""Gives the `codec` and `binding` that open a stored blob."""

LEASE_SECONDS: Final = 10.0
"""How long a change may take, and how long turns wait if its process dies."""


class FullRow:
    """A stored state. `load_row` makes it.

    Attributes:
        blob: The whole state.
        saved: The store's answer to the load.
    """

    def __init__(self, store: Any, key: str, found: Stored, opening: Opening) -> None:
        self._store = store
        self._key = key
        opened = opening(bytes(found.blob))
        self._codec: Codec = opened.get("codec", PLAIN)
        self._binding = opened.get("binding")
        self._kept: frozenset[bytes] = frozenset()
        self._head: StateHead | None = None
        self.blob = bytes(found.blob)
        self.saved = found
        parts = parts_of(self.blob, codec=self._codec, binding=self._binding)
        is_apart = any(part.place == ELSEWHERE for part in parts)
        # Parts that the head does not list are kept, too: the next save drops them.
        if isinstance(found, StoredHead) and (is_apart or found.parts):
            try:
                head, self._kept = head_of(found, self._codec, self._binding)
            except StatePartMissingError:  # head and parts of two moments, say of a replica
                found = store.load_head(key) or found
                head, self._kept = head_of(found, self._codec, self._binding)
            self._head = head if head.names else None
            self.blob = whole_or_unreadable(head)
            # `save` names the version of this second load: another worker may have saved between the two.
            self.saved = found

    def _in_parts(self, new: bytes) -> bytes:
        """The head to save for this state. Parts that are there already keep their names."""
        if self._head is None or new != self.blob:
            return as_head(new, self._codec, self._binding)
        state = load_state(self._head, codec=self._codec, binding=self._binding)
        return dump_state(state, codec=self._codec, binding=self._binding, limits=hard_limits(self._codec))

    @property
    def opened(self) -> dict[str, Any]:
        """The codec and the binding, as keywords."""
        return {"codec": self._codec, "binding": self._binding}

    def differs(self, new: bytes, *, place: PartsPlace | None = None) -> bool:
        """True if a save of this state in this place would change the row; see `save`.

        Reading a row with parts of its own may seal them with a newer key already.
        """
        if new != self.blob:
            return True
        stored, made = peek(self.saved.blob), peek(new)
        if (stored.version, stored.key_id) != (made.version, made.key_id):
            return True
        if place is None and not self._kept:
            return False
        return names_of(self._placed(new, place), self._codec).keys() != self._kept

    def save(self, new: bytes, *, place: PartsPlace | None = None, with_title: bool | None = None) -> None:
        """Replace the state, if the row is still as it was loaded. One atomic step changes head and parts.

        Args:
            new: The state.
            place: Where its parts are kept: "store" or "inline", as for `Chat.conversation`. None: beside the
                row if the row has parts there, else in it.
            with_title: True if the title is in a plain column beside the blob; None: only if the blob is
                plain.

        Raises `StateConflictError` if another worker saved meanwhile.
        """
        facts = _facts(new, self._codec, self._binding, with_title)
        head = self._placed(new, place)
        names = names_of(head, self._codec)
        if not (self._kept or names):
            _save(self._store, self._key, new, self.saved.version, facts)
            return
        at_hand = parts_in(head, self._codec, self._binding)
        self._store.save_parts(
            self._key,
            bytes(head),
            [
                StoredPart(name=name, kind=names[name], data=at_hand[name])
                for name in names.keys() - self._kept
            ],
            self._kept - names.keys(),
            expected=self.saved.version,
            facts=facts,
        )

    def _placed(self, new: bytes, place: PartsPlace | None) -> bytes:
        is_apart = self._head is not None if place is None else place == "store"
        return self._in_parts(new) if is_apart else new


def load_row(store: Any, key: str, opening: Opening) -> FullRow | None:
    """Load the whole state under a key; None if nothing is stored there.

    Raises `StateError` if the row cannot be read.
    """
    found = store.load_head(key) if isinstance(store, Parted) else store.load(key)
    return None if found is None else FullRow(store, key, found, opening)


def save_new(store: Any, key: str, blob: bytes, *, codec: Codec = PLAIN, binding: Any = None) -> None:
    """Save a state under a new key. Raises `StateConflictError` if the key has a state."""
    _save(store, key, blob, None, _facts(blob, codec, binding, None))


def _facts(blob: bytes, codec: Codec, binding: Any, with_title: bool | None) -> RowFacts:
    meta = load_state(blob, codec=codec, binding=binding).meta
    return row_facts(meta, with_title=shows_title(codec, with_title))


def _save(store: Any, key: str, blob: bytes, expected: int | None, facts: RowFacts) -> None:
    if takes_facts(store):
        store.save(key, blob, expected=expected, facts=facts)
    else:
        store.save(key, blob, expected=expected)


@contextmanager
def held(store: Any, key: str) -> Iterator[None]:
    """Hold the lease of a key, if the store has leases: a turn that runs would lose its save to the change.

    Raises `TurnInProgressError` if a worker holds it.
    """
    if not isinstance(store, Leasing):
        yield
        return
    lease = store.lease(key, LEASE_SECONDS)
    try:
        # Not `with lease:` around the `yield`: a LeaseHeldError of the block must pass unchanged.
        lease.__enter__()
    except LeaseHeldError as error:
        raise TurnInProgressError("a turn runs on this conversation; try again when it is over") from error
    try:
        yield
    finally:
        lease.__exit__(None, None, None)


def row_facts(meta: Meta, *, with_title: bool) -> RowFacts:
    """Make the facts of a state from its meta data. The cost is None if the price of a call is unknown."""
    known, unknown = (*meta.cost, 0, 0)[:2]
    has_unknown = bool(unknown) or (not meta.cost and bool(meta.total))
    return RowFacts(
        title=meta.title if with_title else "",
        status=meta.status,
        turns=meta.processed,
        total_tokens=usage_of(meta.total).total_tokens,
        cost_nano_dollars=None if has_unknown else known,
    )


def shows_title(codec: Codec, plain_title: bool | None) -> bool:
    """True if the title may be in a plain column beside the blob. `plain_title` None: only if the blob is
    plain too."""
    return codec.suite == SUITE_PLAIN if plain_title is None else plain_title
