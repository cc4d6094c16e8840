"""Take parts out of a blob, put them back, and check them.

Owns: the pure steps from one blob to another with the same parts at other places. Must never know: which
place keeps the parts that are elsewhere, or the content of any part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from ..base.values import replace
from ..types.errors import StateError
from . import blob as blobs
from . import frames
from .codec import PLAIN, Binding, Codec
from .parts import ARCHIVE, ELSEWHERE, INLINE, MEDIA, Part
from .state import hard_limits

__all__ = ["attach", "detach", "parts_of", "verify_state"]


def parts_of(
    blob: bytes | bytearray | memoryview, *, codec: Codec = PLAIN, binding: Binding = None
) -> tuple[Part, ...]:
    """Give the parts that a blob lists, in order. Parts that are elsewhere have no bytes.

    Raises `StateError` if the blob cannot be read.
    """
    return blobs.decode_whole(blob, codec=codec, binding=binding, limits=hard_limits(codec))[1]


def attach(
    blob: bytes | bytearray | memoryview,
    stored: Mapping[bytes, bytes],
    *,
    codec: Codec = PLAIN,
    binding: Binding = None,
) -> bytes:
    """Put parts from elsewhere into a blob. A part that is not in `stored` stays elsewhere.

    Args:
        blob: The head: a blob that lists parts at place 1.
        stored: The stored bytes of parts, by their digest.
        codec: How the blob is protected.
        binding: For sealed codecs: the owner of the blob.

    Raises:
        StateCorruptError: The bytes for a digest have another digest.
        StateError: The blob cannot be read.
    """
    segments, parts = blobs.decode_whole(blob, codec=codec, binding=binding, limits=hard_limits(codec))
    placed = []
    for part in parts:
        found = stored.get(part.digest) if part.place == ELSEWHERE else None
        if found is not None:
            # The seal covers the digest only. Without this check a wrong part would get into the blob.
            if hashlib.sha256(found).digest() != part.digest:
                raise frames.corrupt("the bytes of a part are not those that its digest names")
            part = replace(part, place=INLINE, stored=found)
        placed.append(part)
    if all(new is old for new, old in zip(placed, parts, strict=True)):
        return bytes(blob)
    return blobs.encode(segments, placed, codec=codec, binding=binding, limits=hard_limits(codec))


def detach(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Binding = None,
    kinds: Collection[int] = (ARCHIVE, MEDIA),
) -> tuple[bytes, tuple[Part, ...]]:
    """Take the parts of these kinds out of a blob: give the head, which lists them at place 1, and the parts.

    A part keeps its stored bytes and its digest; ``attach(head, {part.digest: part.stored})`` puts it back.

    Raises `StateError` if the blob cannot be read.
    """
    segments, parts = blobs.decode_whole(blob, codec=codec, binding=binding, limits=hard_limits(codec))
    taken = tuple(part for part in parts if part.place == INLINE and part.kind in kinds)
    if not taken:
        return bytes(blob), ()
    left = [replace(part, place=ELSEWHERE, stored=b"") if part in taken else part for part in parts]
    return blobs.encode(segments, left, codec=codec, binding=binding, limits=hard_limits(codec)), taken


def verify_state(
    blob: bytes | bytearray | memoryview, *, codec: Codec = PLAIN, binding: Binding = None
) -> tuple[bytes, ...]:
    """Check a whole blob: its seal, the digest of each part in it, and that each segment and part opens.

    A turn checks only the pieces that it reads. Call this for backups, and after a migration of a database.

    Args:
        blob: The stored value.
        codec: How the blob is protected.
        binding: For sealed codecs: the owner of the blob.

    Returns:
        The digests of the parts that are kept elsewhere. They are not checked: attach them first.

    Raises:
        StateError: A segment or a part is damaged, or cannot be read.
    """
    segments, parts = blobs.decode_whole(blob, codec=codec, binding=binding, limits=hard_limits(codec))
    for segment in segments:
        segment.raw()
    try:
        for part in parts:
            if part.place == INLINE:
                replace(part).raw(codec, binding)  # of a copy, which does not keep the bytes
    except StateError as error:
        error.blob = bytes(blob)
        raise
    return tuple(part.digest for part in parts if part.place == ELSEWHERE)
