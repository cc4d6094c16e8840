"""A conversation in a store of parts: its head, and the parts beside it.

Owns: a head with the parts that are at hand, the way from a head to one whole blob, and the choice of the
segments that become parts. Must never know: a store, or the content of an entry.

::

    head            a blob that lists its parts at place 1: sealed history (oldest first), archive, media,
                    results
    closed history  the parts with sealed history | sealed segments of the body | the hot segment
    sealed history  the stored bytes of a part are those of a sealed segment: entries, newline, turn columns

A part never changes, so a save writes the head and the parts that are new. A closed history in parts grows by
one part each time the hot segment has `SMALL` bytes. To keep the number of parts low, the newest parts are
joined as soon as there are `FAN` of about one size. Joining parts is joining their bytes. A part of `CAP`
bytes is joined no more. The three constants are the writer's choice: a reader takes any number and any size
of parts, and parts and sealed segments mixed.

Measured (1,000 messages of real conversations, SMALL 4 KiB): 6 to 8 parts. A join of 64 KiB comes about every
70 turns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from msgspec.structs import force_setattr

from ..base.values import replace
from ..types.errors import StateError
from . import blob as blobs
from . import frames
from .blob import Kind, Segment
from .blob_header import HAS_DIRECTORY, read_header
from .codec import HEADER_BYTES, SEAL_BYTES, Binding, BlobLimits, Codec, check_limit, hard_limits
from .parts import (
    ARCHIVE,
    ELSEWHERE,
    INLINE,
    MAX_PART_BYTES,
    MEDIA,
    RESULT,
    SEALED_HISTORY,
    Part,
    check_parts,
    packed_bytes,
    part_missing,
    read_directory,
    sealed_for,
)

__all__ = [
    "CAP",
    "FAN",
    "JOINED",
    "SMALL",
    "StateHead",
    "blob_size",
    "encode_head",
    "joins",
    "sealed_history",
    "whole",
]

SMALL = 4 * 1024
"""A hot segment of this many raw bytes or more becomes a part before the next turn is added."""
FAN = 4
"""So many parts of about one size are joined."""
CAP = 256 * 1024
"""No join makes a part with more raw bytes."""

JOINED: Final = 2
"""A join of two segments adds two bytes: two between entries, one between columns, and one newline goes."""

_LEVELS: Final = 3
_FLAGS: Final = 7
"""The byte of the header that says whether a blob has a directory."""
_BESIDE: Final = (SEALED_HISTORY, ARCHIVE, MEDIA, RESULT)
"""The kinds of parts that a store keeps beside the head."""


class StateHead(bytes):
    """A head, with the parts that are in memory. Two heads with equal bytes list the same parts.

    Attributes:
        at_hand: The stored bytes of parts, by the digest that is the name of the part.
        names: The kinds of all parts that are elsewhere, by name.
        codec: The codec of the head and the parts.
        binding: The owner, for a sealed codec.
    """

    at_hand: Mapping[bytes, bytes]
    names: Mapping[bytes, int]
    codec: Codec
    binding: Binding
    directory: tuple[list[Part], int] | None = None
    """The parts that the blob lists, and where its body begins, if they were read already."""

    @classmethod
    def of(
        cls,
        blob: bytes,
        at_hand: Mapping[bytes, bytes],
        names: Mapping[bytes, int],
        codec: Codec,
        binding: Binding,
    ) -> StateHead:
        """Make a head of a blob. Nothing is verified here."""
        head = cls(blob)
        head.at_hand, head.names, head.codec, head.binding = at_hand, names, codec, binding
        return head

    @classmethod
    def loaded(cls, blob: bytes, at_hand: Mapping[bytes, bytes], codec: Codec, binding: Binding) -> StateHead:
        """Make a head of a blob that was loaded, and of its parts. Its list is read, and not verified: a blob
        that cannot be read lists no parts."""
        head = cls.of(blob, at_hand, {}, codec, binding)
        if len(blob) < HEADER_BYTES or not blob[_FLAGS] & HAS_DIRECTORY:  # as of most blobs
            return head
        with suppress(StateError, KeyError):
            header = read_header(blob)
            end = HEADER_BYTES + SEAL_BYTES[header.suite]
            limits, compression = hard_limits(codec), header.compression
            head.directory = read_directory(
                blob, end, suite=header.suite, compression=compression, limits=limits
            )
            head.names = {part.digest: part.kind for part in head.directory[0] if part.place == ELSEWHERE}
        return head

    @property
    def size(self) -> int:
        """The bytes of the head and of its parts with sealed history, as they are stored."""
        found = [data for name, data in self.at_hand.items() if self.names.get(name) == SEALED_HISTORY]
        return len(self) + sum(map(len, found))

    def placed(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """Give the parts of this head, those at hand with their bytes, as if they stood in the blob.

        Raises:
            StatePartMissingError: A part with sealed history is not at hand.
            StateCorruptError: The bytes of a part do not have its name.
        """
        found = []
        for part in parts:
            if part.place == ELSEWHERE:
                data = self.at_hand.get(part.digest)
                if data is not None:
                    # `packed_bytes` compares the digest of sealed history, so that it is hashed only once.
                    if part.kind != SEALED_HISTORY and hashlib.sha256(data).digest() != part.digest:
                        raise frames.corrupt("the bytes of a part are not those that its digest names")
                    part = replace(part, place=INLINE, stored=data)
                elif part.kind == SEALED_HISTORY:
                    raise part_missing(part.kind, part.digest)
            found.append(part)
        return tuple(found)

    @cached_property
    def whole(self) -> bytes:
        """The blob with all parts at hand in it, and the closed history in its body. Made when it is read.

        Raises `StateError` if the head or a part cannot be read.
        """
        codec, binding, limits = self.codec, self.binding, hard_limits(self.codec)
        (meta, *others), parts = blobs.decode_whole(self, codec=codec, binding=binding, limits=limits)
        parts = self.placed(parts)
        sealed = [sealed_history(part, codec, binding) for part in parts if part.kind == SEALED_HISTORY]
        kept = [part for part in parts if part.kind != SEALED_HISTORY]
        if not sealed and all(part.place == ELSEWHERE for part in kept):
            return bytes(self)
        return blobs.encode((meta, *sealed, *others), kept, codec=codec, binding=binding, limits=limits)


def whole(blob: bytes) -> bytes:
    """Give a blob that can leave the conversation: without parts of the closed history elsewhere."""
    return blob.whole if isinstance(blob, StateHead) else blob


def blob_size(blob: bytes | bytearray | memoryview) -> int:
    """Count the bytes of a blob as a store keeps them; for a head with its parts of the closed history."""
    return blob.size if isinstance(blob, StateHead) else len(blob)


def encode_head(
    segments: Sequence[Segment], parts: Sequence[Part], *, codec: Codec, binding: Binding, limits: BlobLimits
) -> StateHead:
    """Encode a state as a head. As `blob.encode`, with sealed segments and parts beside the blob.

    The limits hold for head and parts together. So the whole blob, too, is within them.

    Raises `StateTooLargeError` if a limit would be exceeded.
    """
    compression = blobs.compression_of(codec)
    history: list[Part] = []
    body: list[Segment] = []
    for each in segments:
        # A larger segment stays in the body. Parts come before the body, so the later segments stay, too.
        if each.kind == Kind.SEALED and each.raw_len <= MAX_PART_BYTES and body[-1].kind == Kind.META:
            history.append(_part_of(each))
        else:
            body.append(each)
    placed = [sealed_for(part, codec, compression, binding) for part in (*history, *parts)]
    listed: list[Part] = []
    at_hand: dict[bytes, bytes] = {}
    names: dict[bytes, int] = {}
    beside = 0
    for part in placed:
        if part.place == INLINE and part.kind in _BESIDE:
            at_hand[part.digest] = bytes(part.stored)
            beside += part.stored_len
            names[part.digest] = part.kind
            part = replace(part, place=ELSEWHERE, stored=b"")
        elif part.place == ELSEWHERE:
            names[part.digest] = part.kind
        listed.append(part)
    if len(history) < len(placed):
        check_parts(placed, limits)  # `encode` checks the history; the others at their place in a whole blob
    blob = blobs.encode(body, listed, codec=codec, binding=binding, limits=limits)
    check_limit("max_blob_bytes", limits.max_blob_bytes, len(blob) + beside)
    return StateHead.of(blob, at_hand, names, codec, binding)


def _part_of(segment: Segment) -> Part:
    """Give the part of a sealed segment, always the same one: encrypted twice it would have two names."""
    if segment.part is None:
        made = Part(
            kind=SEALED_HISTORY,
            entries=segment.entries,
            raw_len=segment.raw_len,
            stored_len=len(segment.stored),
            stored=segment.stored,
            compression=segment.compression,
        )
        force_setattr(segment, "part", made)
    assert segment.part is not None
    return segment.part


def sealed_history(part: Part, codec: Codec, binding: Binding = None) -> Segment:
    """Read a part with sealed history as a segment, which keeps the part. It is inflated when it is used.

    Raises:
        StatePartMissingError: The part is elsewhere.
        StateCorruptError: Its bytes do not have its digest, or are not what its sizes say.
        StateAuthError: The codec has no key that opens it for this binding.
    """
    packed = bytes(packed_bytes(part, codec, binding))
    raw = None
    if len(packed) == part.raw_len:
        raw = packed
    elif part.compression == frames.NONE:
        raise frames.corrupt("a part is compressed in a blob that says it is not")
    else:
        frames.check_frame(packed, part.raw_len)
    return Segment(
        kind=Kind.SEALED,
        entries=part.entries,
        raw_len=part.raw_len,
        stored=packed,
        compression=part.compression,
        part=part,
        _raw=raw,
    )


# ------------------------------------------------------------------------------------------- joining


def joins(sizes: Sequence[int], new: int) -> int:
    """Count the newest parts that a new part is joined with; 0 for none.

    Args:
        sizes: The raw bytes of the parts, oldest first.
        new: The raw bytes of the new part.
    """
    count, total = 0, new
    while True:
        level, found, size = _level(total), count, total
        for own in reversed(sizes[: len(sizes) - count]):
            joined = size + own + JOINED
            if _level(own) > level or joined > CAP:
                break
            found, size = found + 1, joined
        if found - count < FAN - 1:
            return count
        count, total = found, size


def _level(size: int) -> int:
    """Give the level of a size: 0 below `FAN` times `SMALL`, one more for each further `FAN` times."""
    level, edge = 0, SMALL * FAN
    while level < _LEVELS and size >= edge:
        level, edge = level + 1, edge * FAN
    return level
