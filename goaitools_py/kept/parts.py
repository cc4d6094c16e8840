"""A conversation as a head, and parts that the store keeps beside it.

Owns: the choice of parts that go into the store, and of parts that are loaded with the head, and the way from
    a blob to a head and back. Must never know: a store's engine, or what a part says.

A turn needs the head, and the parts that are history or media. The archive stays in the store: the head lists
its parts, and each new blob of the conversation carries that list on. A cut adds a part. If the newest part
in the store has room, it is loaded for the save, and both become one.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ..errors import StateError
from ..history.archive.keeping import with_joined, with_room
from ..state.codec import Codec
from ..state.parts import ARCHIVE, ELSEWHERE, MEDIA, SEALED_HISTORY
from ..state.placing import attach, detach, parts_of
from ..state.state import dump_state, hard_limits, load_state
from ..stores.base import StoredHead
from ..stores.layout import StoredPart

__all__ = ["LOADED", "Pieces", "joined", "part_with_room", "pieces_of", "with_shared_part"]

LOADED: Final = (SEALED_HISTORY, MEDIA)
"""The kinds of parts that a turn needs. They are loaded with the head."""


class Pieces(NamedTuple):
    """A blob as a store of parts keeps it.

    Attributes:
        head: The blob without the parts that the store keeps. It is saved.
        slim: The blob in the form of a load: the head, with the parts that a turn needs.
        at_hand: The parts that were in the blob, by name.
        names: The names of all parts that the head lists and the store keeps.
    """

    head: bytes
    slim: bytes
    at_hand: dict[bytes, StoredPart]
    names: frozenset[bytes]

    @property
    def has_new_archive(self) -> bool:
        """True if a part of the archive was in the blob: a cut has made it, or the blob was whole."""
        return any(part.kind == ARCHIVE for part in self.at_hand.values())


def pieces_of(blob: bytes, codec: Codec, binding: Any) -> Pieces:
    """Take a blob apart. Raises `StateError` if it cannot be read."""
    head, taken = detach(blob, codec=codec, binding=binding, kinds=(ARCHIVE, MEDIA))
    at_hand = {
        part.digest: StoredPart(name=part.digest, kind=part.kind, data=bytes(part.stored)) for part in taken
    }
    needed = {name: part.data for name, part in at_hand.items() if part.kind in LOADED}
    slim = attach(head, needed, codec=codec, binding=binding) if needed else head
    return Pieces(head, slim, at_hand, _listed(head, codec, binding))


def part_with_room(blob: bytes, codec: Codec, binding: Any) -> bytes | None:
    """Name the stored part that a new part of the archive in a blob may join; None if there is none."""
    try:
        part = with_room(parts_of(blob, codec=codec, binding=binding))
    except StateError:
        return None
    return None if part is None else part.digest


def with_shared_part(blob: bytes, stored: bytes, codec: Codec, binding: Any) -> bytes:
    """Give the blob whose new part of the archive is one with the part that `part_with_room` named.

    `stored`: the bytes of that part. The same blob if they are damaged.
    """
    state = load_state(blob, codec=codec, binding=binding)
    shared = with_joined(state, stored, codec, binding)
    if shared is state:
        return blob
    return dump_state(shared, codec=codec, binding=binding, limits=hard_limits(codec))


def joined(found: StoredHead, codec: Codec, binding: Any) -> tuple[bytes, frozenset[bytes]]:
    """Give the blob with the loaded parts, and the names of all its parts that the store keeps.

    A head that cannot be read is given unchanged: the caller treats it as any unreadable blob.
    """
    loaded = {part.name: part.data for part in found.parts}
    try:
        names = _listed(found.blob, codec, binding)
        return attach(found.blob, loaded, codec=codec, binding=binding), names | loaded.keys()
    except StateError:
        return bytes(found.blob), frozenset(loaded)


def _listed(head: bytes, codec: Codec, binding: Any) -> frozenset[bytes]:
    parts = parts_of(head, codec=codec, binding=binding)
    return frozenset(part.digest for part in parts if part.place == ELSEWHERE)
