"""Parts: pieces of a conversation that stand behind the body of a blob, or outside of it.

Owns: the value of a part, the directory that lists all parts, and how a part is packed and protected. Must
never know: the content of a part's entries, or which place keeps a part that is not in the blob.

::

    directory = varint count | count × entry
    entry     = varints kind, place, stored_len, raw_len, entries | SHA-256(stored bytes) 32
    kind        1 sealed history, 64 archive, 65 media, 66 results; ascending. A release that does not know a
                kind of 64-95 must refuse the blob; it carries an unknown kind of 96-127 unchanged
    entries     the number of entries, records or media; of a result: the number by which the history names it
    place       0 in this blob, 1 elsewhere
    stored      suites 00 and 11:  packed
                suite 21:          key id 4 | salt 32 | commitment 32 | AES-256-GCM(inner), see `seal`
    packed      the raw bytes, or one zstd frame of them if that is shorter, as in a segment

The seal of the blob covers the directory, and so the digest of each part. A turn that does not need a part
only carries it: it copies the bytes once, from the old blob to the new one, and does not read them.
`Part.raw` compares the digest before it opens the bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import force_setattr

from ..base.values import Value, replace
from ..types.errors import StatePartMissingError, StateTooLargeError
from . import frames
from .codec import SUITE_AES_256_GCM, Binding, BlobLimits, Codec, PartCodec, check_limit
from .frames import read_varints, varints

__all__ = [
    "ARCHIVE",
    "ELSEWHERE",
    "IGNORABLE_PARTS",
    "INLINE",
    "MAX_PART_BYTES",
    "MEDIA",
    "RESULT",
    "SEALED_HISTORY",
    "Part",
    "check_parts",
    "directory_of",
    "inflated",
    "key_id_of",
    "most_inflated",
    "new_part",
    "opened_part",
    "packed_bytes",
    "part_missing",
    "read_directory",
    "sealed_for",
    "with_bytes",
]

SEALED_HISTORY: Final = 1
ARCHIVE: Final = 64
MEDIA: Final = 65
RESULT: Final = 66
"""The whole text of one tool result, of which the history has the beginning and the end."""
_KNOWN: Final = (SEALED_HISTORY, ARCHIVE, MEDIA, RESULT)
IGNORABLE_PARTS: Final = range(96, 128)
"""The kinds of parts that later releases may add. This release carries these parts unchanged."""

INLINE: Final = 0
ELSEWHERE: Final = 1

MAX_PART_BYTES: Final = 8 * 2**20
"""The largest raw size of one part."""

_MOST_INFLATED: Final = 32
"""Measured conversations are three to seven times as large when they are inflated; see `blob`."""
_LEAST_INFLATED: Final = 4 * MAX_PART_BYTES
_DIGEST_BYTES: Final = 32
_ENTRY_BYTES: Final = 5 + _DIGEST_BYTES
"""The fewest bytes of an entry of the directory."""
_SEAL_BYTES: Final = 68 + 16 + 4 + 255
"""The most bytes that encryption adds to a part: key id, salt, commitment, tag, length, padding."""

_MEDIA: Final = frames.Effort(1, uses_dictionary=False)
"""Most media are compressed already. Sound, and some pictures and documents, are not."""
_ARCHIVED: Final = frames.Effort(9, uses_dictionary=False, min_match=6)
"""A part is compressed once and carried by many turns, as sealed history is; see `blob`."""
_RESULT: Final = frames.Effort(3, uses_dictionary=False)
"""A result is compressed while its turn runs, perhaps in an event loop: 8 MiB in some 30 ms."""
_EFFORTS: Final = {MEDIA: _MEDIA, RESULT: _RESULT}
_INFLATED: Final = (ARCHIVE, MEDIA, RESULT)


class Part(Value, frozen=True, kw_only=True, eq=False):
    """One part: `new_part` makes it, or a blob lists it.

    Attributes:
        kind: The kind of its content.
        entries: How many entries or records it holds; the number of a result.
        raw_len: Its size in bytes when it is opened.
        place: `INLINE` or `ELSEWHERE`.
        stored_len: The size of its stored bytes. For a new part: the size before encryption.
        digest: The SHA-256 of its stored bytes; b"" for a new part that is not in a blob yet.
        stored: Its stored bytes; b"" if they are elsewhere and were not attached.
        suite: The suite that protects `stored`.
        compression: The compression byte of its blob.
    """

    _unshown = frozenset({"stored", "digest", "_raw", "_made"})

    kind: int
    entries: int
    raw_len: int
    place: int = INLINE
    stored_len: int
    digest: bytes = b""
    stored: bytes | memoryview = b""
    suite: int = 0
    compression: int = frames.ZSTD_DICTIONARY_1
    _raw: bytes | None = None
    _made: tuple[Any, Any, Part] | None = None

    @property
    def is_here(self) -> bool:
        """True if its bytes are in memory."""
        return self._raw is not None or bool(self.stored)

    @property
    def weight(self) -> int:
        """The most bytes that it takes in a blob, with its entry in the directory."""
        own = 0 if self.place == ELSEWHERE else self.stored_len + (0 if self.digest else _SEAL_BYTES)
        return own + _ENTRY_BYTES + 16

    def raw(self, codec: Codec, binding: Binding = None) -> bytes:
        """Open the part. The first call compares the digest and opens the bytes; the part keeps them.

        Raises:
            StatePartMissingError: The part is elsewhere, and was not attached.
            StateCorruptError: The stored bytes do not have the listed digest, or cannot be opened.
            StateAuthError: The codec has no key that opens it for this binding.
        """
        if self._raw is not None:
            return self._raw
        raw = _unpacked(self, packed_bytes(self, codec, binding))
        force_setattr(self, "_raw", raw)  # a cache: each thread that fills it writes equal bytes
        return raw


def new_part(kind: int, raw: bytes, entries: int, *, compresses: bool = True) -> Part:
    """Make a part from its raw bytes. It is compressed now, and encrypted with its first blob.

    `compresses`: True if the codec of its blob compresses; see `Codec.compresses`.

    Raises:
        ValueError: The kind is not one that this release writes, `raw` is empty or larger than 8 MiB, or
            `entries` is negative.
    """
    if kind not in _KNOWN:
        raise ValueError(f"a part of kind {kind} cannot be written; expected one of {_KNOWN}")
    if not 1 <= len(raw) <= MAX_PART_BYTES:
        raise ValueError(f"a part has 1 to {MAX_PART_BYTES} bytes, found {len(raw)}; make several parts")
    if entries < 0:
        raise ValueError(f"a part cannot have {entries} entries")
    return _packed(kind, raw, entries, frames.ZSTD_DICTIONARY_1 if compresses else frames.NONE)


def opened_part(part: Part, codec: Codec, binding: Binding = None) -> Part:
    """Make a new part with the same packed bytes. The codec of the next blob protects it."""
    packed = packed_bytes(part, codec, binding)
    return replace(part, stored=packed, stored_len=len(packed), digest=b"", suite=0, _made=None)


def _packed(kind: int, raw: bytes, entries: int, compression: int) -> Part:
    stored = raw
    if compression == frames.ZSTD_DICTIONARY_1:
        # Of two with one length `min` takes the first. It must be the raw bytes: a reader takes stored bytes
        # of that length for raw ones.
        stored = min(raw, frames.compress(raw, _EFFORTS.get(kind, _ARCHIVED)), key=len)
    return Part(
        kind=kind,
        entries=entries,
        raw_len=len(raw),
        stored_len=len(stored),
        stored=stored,
        compression=compression,
        _raw=raw,
    )


def _unpacked(part: Part, packed: bytes | memoryview) -> bytes:
    packed = bytes(packed)
    if len(packed) == part.raw_len:
        return packed
    if part.compression == frames.NONE:
        raise frames.corrupt("a part is compressed in a blob that says it is not")
    frames.check_frame(packed, part.raw_len)
    return frames.inflate(packed, part.raw_len, part.compression)


# ------------------------------------------------------------------------------------------ protecting


def _named(part: Part) -> tuple[bytes, ...]:
    """Give the numbers that the protection of a part covers beside its bytes."""
    return tuple(number.to_bytes(4, "big") for number in (part.kind, part.raw_len, part.entries))


def packed_bytes(part: Part, codec: Codec, binding: Binding) -> bytes | memoryview:
    """Compare the digest of a part, and give its packed bytes."""
    if not part.digest:
        return part.stored  # a new part, not protected yet
    if not part.stored:
        raise part_missing(part.kind, part.digest)
    # A store that keeps parts beside the blobs may give the part of another conversation, or an old one.
    if hashlib.sha256(part.stored).digest() != part.digest:
        raise frames.corrupt(f"a part (kind {part.kind}) does not have the bytes that its digest names")
    if part.suite != SUITE_AES_256_GCM:
        return part.stored
    return _part_codec(codec).open_part(_named(part), bytes(part.stored), binding)


def part_missing(kind: int, name: bytes) -> StatePartMissingError:
    """The error of a listed part that is not there."""
    digest = name.hex()
    return StatePartMissingError(
        f"a part of the conversation (kind {kind}, {digest[:16]}) is not in the blob and was not found "
        "where the blob came from; load the conversation with conversation.state(), or attach the part",
        digest=digest,
    )


def _part_codec(codec: Codec) -> PartCodec:
    if not isinstance(codec, PartCodec):
        raise TypeError(f"{type(codec).__name__} cannot protect parts: it has no seal_part and open_part")
    return codec


def sealed_for(part: Part, codec: Codec, compression: int, binding: Binding) -> Part:
    """Protect a part for a blob of this codec. Gives the same object if it is protected so already.

    A part is encrypted once: the same new part gives the same bytes in each blob with the same codec and
    binding. An inline part with an older key is encrypted anew with the codec's first key.

    Raises:
        ValueError: The part is elsewhere, and its bytes have to change.
    """
    is_encrypted = codec.suite == SUITE_AES_256_GCM
    if part.digest and part.suite == codec.suite and part.compression == compression:
        is_old = is_encrypted and part.is_here and key_id_of(part) != codec.key_id
        if part.place == ELSEWHERE or not is_old:
            return part
    # Encryption takes a new nonce each time. A part that was encrypted twice would have two digests, and a
    # store of parts would keep it twice.
    if part._made is not None and part._made[0] is codec and part._made[1] == binding:
        return part._made[2]
    if not part.is_here:
        raise ValueError("a part of the state is elsewhere and cannot be sealed anew; attach it first")
    packed = opened_part(part, codec, binding) if part.digest else part
    if part.compression != compression:
        packed = _packed(part.kind, part.raw(codec, binding), part.entries, compression)
    stored = packed.stored
    if is_encrypted:
        stored = _part_codec(codec).seal_part(_named(packed), bytes(stored), binding)
    made = replace(
        packed,
        place=part.place,
        suite=codec.suite,
        stored=stored,
        stored_len=len(stored),
        digest=hashlib.sha256(stored).digest(),
    )
    force_setattr(part, "_made", (codec, binding, made))
    return made


def key_id_of(part: Part) -> int:
    """Give the id of the key that encrypted a part of suite 21."""
    return int.from_bytes(part.stored[:4], "big")


# ------------------------------------------------------------------------------------------- directory


def directory_of(parts: Sequence[Part]) -> bytes:
    """Write the directory of protected parts; b"" without parts."""
    if not parts:
        return b""
    entries = [
        varints(part.kind, part.place, part.stored_len, part.raw_len, part.entries) + part.digest
        for part in parts
    ]
    return varints(len(parts)) + b"".join(entries)


def read_directory(
    source: bytes, at: int, *, suite: int, compression: int, limits: BlobLimits
) -> tuple[list[Part], int]:
    """Read a directory: give its parts, inline ones without their bytes, and where the body begins.

    Checks only that the directory is complete. The seal is not checked yet, so the content may be false; see
    `check_parts`.

    Raises:
        StateCorruptError: The directory is cut off, or lists more than the blob can hold.
        StateVersionError: It lists no part; this release never writes an empty directory.
        StateTooLargeError: It lists more parts than `max_segments`.
    """
    known: tuple[list[Part], int] | None = getattr(source, "directory", None)
    if known is not None:  # a head whose list was read before has it as `directory`; see `apart`
        return known
    (count,), at = read_varints(source, at, 1)
    if not count:
        raise frames.newer("a directory without parts", "at least one")
    check_limit("max_segments", limits.max_segments, count)
    # Before the loop: a forged count may be 4 billion.
    if count * _ENTRY_BYTES > len(source) - at:
        raise frames.corrupt(f"its directory states {count} parts, and the blob ends before")
    parts: list[Part] = []
    left = len(source)
    for _ in range(count):
        (kind, place, stored_len, raw_len, entries), at = read_varints(source, at, 5)
        digest = source[at : at + _DIGEST_BYTES]
        at += _DIGEST_BYTES
        # `left` falls with each inline part, so lengths that add up to more than the blob end the loop early.
        if place == INLINE:
            left -= stored_len
        if at > left:
            raise frames.corrupt("the parts that its directory lists are not all there")
        part = Part(
            kind=kind,
            place=place,
            entries=entries,
            raw_len=raw_len,
            stored_len=stored_len,
            digest=digest,
            suite=suite,
            compression=compression,
        )
        parts.append(part)
    return parts, at


def with_bytes(parts: Iterable[Part], source: bytes) -> tuple[tuple[Part, ...], int]:
    """Give the parts of a directory their bytes, which stand at the end of the blob. Also give their start.

    The bytes are not copied: each part has a view of the blob.
    """
    listed = list(parts)
    at = start = len(source) - sum(part.stored_len for part in listed if part.place == INLINE)
    view = memoryview(source)
    for part in listed:
        if part.place == INLINE:
            force_setattr(part, "stored", view[at : at + part.stored_len])
            at += part.stored_len
    return tuple(listed), start


def most_inflated(limits: BlobLimits) -> int:
    """Count how many bytes archive, media and results in a blob may have when they are inflated. A reader of
    a whole archive has all of it in memory, and a few hundred bytes may stand for 8 MiB.

    A cut leaves the archive half of this. Beside that there is room for the media of the largest history, so
    a turn that has room in the history is never refused for this.
    """
    return max(_MOST_INFLATED * limits.max_blob_bytes, _LEAST_INFLATED) + 2 * limits.max_decoded_bytes


def inflated(parts: Iterable[Part]) -> int:
    """Count the bytes that archive, media and results in a blob have when they are inflated."""
    return sum([part.raw_len for part in parts if part.kind in _INFLATED and part.place == INLINE])


def check_parts(parts: Sequence[Part], limits: BlobLimits) -> None:
    """Refuse parts that a blob may not have.

    Raises:
        StateVersionError: This release does not know a kind or a place, and must not ignore it.
        StateCorruptError: Sizes are impossible, or parts are not in order.
        StateTooLargeError: A limit is exceeded.
    """
    sizes = dict.fromkeys(_KNOWN, 0)
    previous = entries = raw_bytes = 0
    for part in parts:
        if part.kind not in _KNOWN and part.kind not in IGNORABLE_PARTS:
            raise frames.newer(f"a part of kind {part.kind}", "1, 64 to 66, or one that may be ignored")
        if part.place not in (INLINE, ELSEWHERE):
            raise frames.newer(f"a part at place {part.place}", "0 or 1")
        # Sealed history is read first, and media belong to the rows of the meta data by their order.
        if part.kind < previous:
            raise frames.corrupt("the parts of its directory are not in order")
        most = part.raw_len + (_SEAL_BYTES if part.suite == SUITE_AES_256_GCM else 0)
        if not 1 <= part.stored_len <= most or not part.raw_len:
            raise frames.corrupt(f"a part states {part.stored_len} stored for {part.raw_len} raw bytes")
        # A part is inflated as a whole, so this bounds the memory of one read.
        if part.raw_len > MAX_PART_BYTES:
            raise frames.corrupt(f"a part states {part.raw_len} raw bytes, expected at most {MAX_PART_BYTES}")
        previous = part.kind
        sizes[part.kind] = sizes.get(part.kind, 0) + part.stored_len
        if part.kind == SEALED_HISTORY:
            entries += part.entries
            raw_bytes += part.raw_len
    check_limit("max_segments", limits.max_segments, len(parts))
    check_limit("max_archive_bytes", limits.max_archive_bytes, sizes[ARCHIVE])
    check_limit("max_archive_bytes", limits.max_archive_bytes, sizes[RESULT])
    check_limit("max_media_bytes", limits.max_media_bytes, sizes[MEDIA])
    # Each part alone may be within 8 MiB, and a thousand of them together would be gigabytes.
    if (found := inflated(parts)) > (most := most_inflated(limits)):
        raise StateTooLargeError(
            f"state is too large: its archive, media and results have {found} bytes inflated, expected at "
            f"most {most}; compact the conversation, or give its codec limits=BlobLimits(max_blob_bytes=…)",
            limit_name="max_blob_bytes",
            limit=limits.max_blob_bytes,
        )
    check_limit("max_entries", limits.max_entries, entries)
    check_limit("max_decoded_bytes", limits.max_decoded_bytes, raw_bytes)
