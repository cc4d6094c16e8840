"""A conversation as a head, and parts that the store keeps beside it.

Owns: the choice of parts that go into the store or are loaded with the head, and the way from a blob to a
head and back. Must never know: a store's engine, or the content of a part.

A turn needs the head, and the parts that are history or media. The archive stays in the store: the head lists
its parts, and each new blob of the conversation carries that list on. A cut adds a part. If the newest part
in the store has room, it is loaded for the save, and both become one.

The row decides how it is read, and ``parts=`` only how it is written. So a handle with ``parts="inline"``
loads all parts that a head lists. Its save has them in the blob, and drops them from the store, in one step.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from ...history.archive_keeping import with_joined, with_room
from ...state.blob_header import HAS_DIRECTORY
from ...state.codec import HEADER_BYTES, Codec
from ...state.parts import ARCHIVE, ELSEWHERE, MEDIA, SEALED_HISTORY, part_missing
from ...state.state import dump_state, hard_limits, load_state
from ...state.whole_blobs import attach, detach, outline, parts_of
from ...stores.base import StoredHead
from ...stores.layout import StoredPart
from ...types.errors import StateError

__all__ = ["LOADED", "Pieces", "joined", "lists_parts", "part_with_room", "pieces_of", "with_shared_part"]

LOADED: Final = (SEALED_HISTORY, MEDIA)
"""The kinds of parts that a turn needs. They are loaded with the head."""


_FLAGS: Final = 7
"""The byte of the header that says whether a blob has a directory."""


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
    """Name the stored part that a new part of the archive in a blob may join; None: no part has room."""
    try:
        part = with_room(parts_of(blob, codec=codec, binding=binding))
    except StateError:
        return None
    return None if part is None else part.digest


def with_shared_part(blob: bytes, stored: bytes, codec: Codec, binding: Any) -> bytes:
    """Join the new part of the archive in a blob with the part that `part_with_room` named.

    `stored`: the bytes of the named part. Gives the same blob if they are damaged.
    """
    state = load_state(blob, codec=codec, binding=binding)
    shared = with_joined(state, stored, codec, binding)
    if shared is state:
        return blob
    # Hard limits: a turn that was paid for must not fail here because of its size.
    return dump_state(shared, codec=codec, binding=binding, limits=hard_limits(codec))


def lists_parts(blob: bytes, codec: Codec) -> bool:
    """True if a blob lists parts that are not in it. For most blobs one byte tells that it does not. False
    for bytes that are no blob."""
    if len(blob) < HEADER_BYTES or not blob[_FLAGS] & HAS_DIRECTORY:
        return False
    try:
        return any(part.place == ELSEWHERE for part in outline(blob, hard_limits(codec))[1])
    except StateError:
        return False


def joined(
    found: StoredHead, codec: Codec, binding: Any, *, kinds: Collection[int] | None = None
) -> tuple[bytes, frozenset[bytes]]:
    """Give the blob with the loaded parts, and the names of all its parts that the store keeps.

    A head that cannot be read is given unchanged: the caller treats it as any unreadable blob.

    Args:
        found: The head and its parts.
        codec: How the blob is protected.
        binding: The owner of the blob.
        kinds: The kinds of parts that were asked for; None for all.

    Raises:
        StatePartMissingError: The head lists a part of these kinds that is not there.
        StateCorruptError: The bytes of a part do not match the digest in the head.
    """
    loaded = {part.name: part.data for part in found.parts}
    try:
        parts = parts_of(found.blob, codec=codec, binding=binding)
    except StateError:
        # The names all the same: the save that replaces this head drops these parts.
        return bytes(found.blob), frozenset(loaded)
    listed = [part for part in parts if part.place == ELSEWHERE]
    for part in listed:
        if part.digest not in loaded and (kinds is None or part.kind in kinds):
            raise part_missing(part)
    blob = attach(found.blob, loaded, codec=codec, binding=binding)
    # A loaded part that the head does not list counts, too: the next save drops it.
    return blob, frozenset([part.digest for part in listed]) | loaded.keys()


def _listed(head: bytes, codec: Codec, binding: Any) -> frozenset[bytes]:
    parts = parts_of(head, codec=codec, binding=binding)
    return frozenset(part.digest for part in parts if part.place == ELSEWHERE)
