"""Write segments as a blob, and read them again: the envelope of a stored conversation.

Owns: segments with their heads and their compression, and the order of the pieces. Must never know: a
message, any JSON, or how a body is protected (that is the codec's part).

One blob is one value for one database column. Each later release reads what this release has written.
A *varint* is unsigned LEB128 in its shortest form, below 2**32.

::

    blob    =  header 16  |  seal  |  [directory]  |  body  |  parts    (each suite has a seal of its own)

    header     see the module `blob_header`
    plain seal =  SHA-256("goaitools/state/v1" | header | dictionary's SHA-256, if one is used
                          | directory | body)[:16]
                  It finds accidents. It does not stop an attacker, who can write a new digest too.
    other seals   see the package `seal`
    directory, parts   see the module `parts`; a blob without parts has no directory

    body    =  segment(meta) segment(sealed)* [segment(hot)] [segment(inbox)] [segment(open)] later*
    segment =  varint kind | varint stored_len | varint raw_len | varint entries | stored_len bytes
               kind     0 meta, 1 sealed, 2 hot, 3 inbox, 4 open; meta first and once, then ascending,
                        only sealed repeats. Later releases may add 5-31: a release that does not know
                        the kind must refuse the blob. They may also add 32-63 ("later"): a release
                        that does not know these carries them unchanged. They stand last, ascending,
                        and may repeat
               bytes    one zstd frame: content size on, checksum off, dictionary id off, window at most
                        8 MiB, nothing behind it; or the raw bytes themselves when stored_len = raw_len
               entries  how many wire entries the raw bytes hold; 0 in meta
               1 <= stored_len <= raw_len

`state` gives the raw bytes their meaning. Reading goes strictly inwards, and each step may rely on the steps
before it. Their order: type, size, magic, version, suite, compression and flags, decoded length, the places
of directory and parts, seal, content of the directory, segment heads and frame headers, then the meta. Other
segments are inflated when they are asked for. By then the size of each is known, and their sum is within the
limits.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import force_setattr

from ..base.values import Value
from ..types.errors import StateCorruptError, StateError
from . import frames
from .blob_header import HAS_DIRECTORY, NEWEST, Header, check_header, given_bytes, read_header
from .codec import (
    HEADER_BYTES,
    LIMITS,
    PLAIN,
    SEAL_BYTES,
    SUITE_AES_256_GCM,
    SUITE_PLAIN,
    Binding,
    BlobLimits,
    Codec,
    check_limit,
    refused,
)
from .frames import read_varints, varints
from .media import Media
from .parts import (
    INLINE,
    SEALED_HISTORY,
    Part,
    check_parts,
    directory_of,
    read_directory,
    sealed_for,
    with_bytes,
)

__all__ = [
    "IGNORABLE",
    "Kind",
    "Segment",
    "compression_of",
    "decode",
    "decode_whole",
    "encode",
    "segment",
]

# ------------------------------------------------------------------------------------------- values


class Kind(enum.IntEnum):
    """The content of a segment. The order of the numbers is the order in the body.

    A segment of a later release has another number; see `IGNORABLE`.
    """

    META = 0
    SEALED = 1
    HOT = 2
    INBOX = 3
    OPEN = 4


_KINDS: Final = tuple(Kind)

IGNORABLE: Final = range(32, 64)
"""The kinds of segments that later releases may add. This release carries these segments unchanged."""


class Segment(Value, frozen=True, kw_only=True, eq=False):
    """One piece of a state: `segment` makes it, or `decode` takes it from a blob.

    `encode` takes a segment from a blob as it is, and does not compress it again.

    Attributes:
        kind: The kind of its content.
        entries: How many wire entries it holds; 0 in a meta.
        raw_len: Its size in bytes when inflated.
        stored: Its bytes as they stand in a blob with the compression byte `compression`.
        media: The media that its entries name by references, or None.
        added: How many bytes its entries grow by when all media are put back.
        part: The same bytes as a part, if a head lists it or was made with it; see `apart`.
    """

    _unshown = frozenset({"stored", "media", "part", "_raw", "_blob", "_head", "_unmarked"})

    kind: int
    entries: int
    raw_len: int
    stored: bytes
    compression: int
    media: Media | None = None
    added: int = 0
    part: Part | None = None
    _raw: bytes | None = None
    _blob: bytes = b""
    _head: bytes = b""
    _unmarked: bool = False

    def raw(self) -> bytes:
        """Give the inflated bytes. The first call inflates them, and the segment keeps them.

        Raises:
            StateCorruptError: The stored bytes do not inflate to exactly `raw_len` bytes.
        """
        if self._raw is not None:
            return self._raw
        try:
            raw = frames.inflate(self.stored, self.raw_len, self.compression)
        except StateCorruptError as error:
            error.blob = bytes(self._blob)
            raise
        force_setattr(self, "_raw", raw)  # a cache: each thread that fills it writes equal bytes
        return raw


# -------------------------------------------------------------------------------------- compressing


_QUICK: Final = frames.Effort(1, uses_dictionary=False)
_LIGHT: Final = frames.Effort(3)
_USUAL: Final = frames.Effort(4)
_LONGER: Final = frames.Effort(5)
_ONCE: Final = frames.Effort(9, uses_dictionary=False, min_match=6)


def _effort(kind: int, raw_len: int, *, is_minor: bool) -> frames.Effort:
    """Choose how hard to compress a segment.

    Measured on real conversations (Xeon): per cent of the raw bytes, CPU time in µs.
    At 4 KiB, with the dictionary: level 3 31.8, 10; level 4 30.1, 19; level 5 29.8, 25.
    At 20 KiB: level 3 21.1, 44; level 4 19.9, 116; level 5 19.6, 166. Without it: level 1 23.3, 27.
    At 44 KiB: level 1 19.5, 75; level 4 17.4, 225; level 5 17.1, 319. Without it: level 1 20.0, 53.
    These times are for many frames in a row. In a turn the CPU's caches are cold, and they are two to three
    times as long.

    A hot segment is compressed with every turn. So it is compressed well while it is small, and also up to
    24 KiB if it is most of its blob. Beyond that, good compression would be the largest part of a turn.

    A sealed segment is compressed once, and inflated with every turn. At 64 KiB, level 9 without the
    dictionary is as small as level 6 with it, and takes as long (15.5 per cent, 600 µs). It is inflated in 26
    instead of 30 µs. With a shortest repetition of six bytes it is 15.8 per cent, and is inflated in 22 µs. A
    segment beyond 256 KiB holds a picture or a document in base64. There a higher level takes more time, and
    saves hardly any bytes.
    """
    if kind == Kind.SEALED:
        if raw_len < 32 * 2**10:
            return _LONGER
        return _ONCE if raw_len <= 256 * 2**10 else _LIGHT
    if raw_len <= 12 * 2**10:
        return _USUAL if raw_len <= 2 * 2**10 else _LIGHT
    return _LONGER if raw_len <= 24 * 2**10 and not is_minor else _QUICK


def _pack(kind: int, raw: bytes, entries: int, compression: int, *, is_minor: bool = False) -> Segment:
    stored = raw
    if compression == frames.ZSTD_DICTIONARY_1:
        frame = frames.compress(raw, _effort(kind, len(raw), is_minor=is_minor))
        if len(frame) < len(raw):
            stored = frame
    return Segment(
        kind=kind, entries=entries, raw_len=len(raw), stored=stored, compression=compression, _raw=raw
    )


def segment(kind: Kind, raw: bytes, entries: int, *, is_minor: bool = False) -> Segment:
    """Make a segment from its raw bytes, compressed unless that makes it larger.

    Args:
        kind: The kind of its content.
        raw: Its content, at least one byte. Leave a segment without content out of the blob instead.
        entries: How many wire entries `raw` holds; 0 for a meta.
        is_minor: True if it is the smaller part of its blob. Then it is compressed quickly rather than well.

    Raises:
        ValueError: `raw` is empty, or `entries` is negative or given for a meta.
    """
    if type(kind) is not Kind:
        kind = Kind(kind)
    if not raw:
        raise ValueError(f"a {kind.name.lower()} segment needs at least one byte; leave an empty one out")
    if entries < 0 or (kind is Kind.META and entries):
        raise ValueError(f"a {kind.name.lower()} segment cannot have {entries} entries")
    return _pack(kind, raw, entries, frames.ZSTD_DICTIONARY_1, is_minor=is_minor)


# ------------------------------------------------------------------------------------------- writing


def encode(
    segments: Sequence[Segment],
    parts: Sequence[Part] = (),
    *,
    codec: Codec = PLAIN,
    binding: Binding = None,
    limits: BlobLimits = LIMITS,
) -> bytes:
    """Put segments and parts into a blob.

    Args:
        segments: One meta, any number of sealed ones, at most one each of hot, inbox and open, in this order.
        parts: The parts of the conversation, in the blob and elsewhere. They are sorted by kind.
        codec: It protects the blob.
        binding: For a keyed codec: the owner of the blob. It is authenticated, and not stored.
        limits: The largest sizes that the blob may have.

    Raises:
        StateTooLargeError: A limit would be exceeded; `limit_name` and `limit` say which.
        ValueError: The segments are not in order, or the binding does not suit the codec.
    """
    compression = compression_of(codec)
    segments = [_recompressed(each, compression) for each in segments]
    previous: int | None = None
    for each in segments:
        # A reader refuses another order, and by then the turn was paid for. So the writer refuses it first.
        if not _may_follow(previous, each.kind):
            found = ", ".join(_name(s.kind) for s in segments)
            raise ValueError(f"segments stand in the order {found}; expected ascending kinds from meta on")
        previous = each.kind
    if previous is None:
        raise ValueError("a state needs at least its meta segment")
    # Before the seal: a state that is too large must raise while the caller still has the one before it.
    decoded_len = _check_totals(segments, limits)
    if parts:
        parts = [sealed_for(part, codec, compression, binding) for part in parts]
        parts = sorted(parts, key=_kind_of)
        check_parts(parts, limits)
    header = Header(
        version=NEWEST,
        suite=codec.suite,
        compression=compression,
        flags=HAS_DIRECTORY if parts else 0,
        decoded_len=0 if codec.suite == SUITE_AES_256_GCM else decoded_len,
    )
    body = [piece for each in segments for piece in (each._head or _head(each), each.stored)]
    if parts:
        directory = directory_of(parts)
        blob = codec.seal(header.pack(), b"".join(body), binding, directory)
        end = HEADER_BYTES + SEAL_BYTES[codec.suite]
        # The seal covers the directory with the digests, not the parts. So a turn verifies a blob without
        # a look at megabytes of archive, and compares the digest of a part when it opens the part.
        inline = [part.stored for part in parts if part.place == INLINE]
        blob = b"".join((blob[:end], directory, memoryview(blob)[end:], *inline))
    else:
        blob = codec.seal(header.pack(), b"".join(body), binding)
    check_limit("max_blob_bytes", limits.max_blob_bytes, len(blob))
    _check_history(segments, parts, limits, len(blob))
    return blob


def _check_history(segments: Sequence[Segment], parts: Sequence[Part], limits: BlobLimits, size: int) -> None:
    """Refuse a closed history that is too large in body and parts together: each head can become whole
    again. `size`: bytes of the blob."""
    if not parts or parts[0].kind != SEALED_HISTORY:
        return
    history = [part for part in parts if part.kind == SEALED_HISTORY]
    size += sum([part.stored_len for part in history if part.place != INLINE])
    check_limit("max_blob_bytes", limits.max_blob_bytes, size)
    both: list[Segment | Part] = [*segments, *history]
    _check_sums(limits, len(both), sum([each.raw_len for each in both]), sum([each.entries for each in both]))


def _kind_of(part: Part) -> int:
    return part.kind


def compression_of(codec: Codec) -> int:
    """Give the compression byte of a blob that this codec protects."""
    return frames.ZSTD_DICTIONARY_1 if codec.compresses else frames.NONE


def _recompressed(given: Segment, compression: int) -> Segment:
    """Give the segment in the form of this compression byte. A blob has one for all its segments."""
    if given.compression == compression:
        return given
    return _pack(given.kind, given.raw(), given.entries, compression)


def _head(given: Segment) -> bytes:
    return varints(given.kind, len(given.stored), given.raw_len, given.entries)


def _name(kind: int) -> str:
    return Kind(kind).name.lower() if kind < len(_KINDS) else str(kind)


def _may_follow(previous: int | None, kind: int) -> bool:
    if previous is None:
        return kind == Kind.META
    if kind == previous:
        return kind == Kind.SEALED or kind in IGNORABLE
    return kind > previous


def _check_totals(segments: Sequence[Segment], limits: BlobLimits) -> int:
    decoded_len = sum([each.raw_len for each in segments])
    check_limit("max_meta_bytes", limits.max_meta_bytes, segments[0].raw_len)
    _check_sums(limits, len(segments), decoded_len, sum([each.entries for each in segments]))
    return decoded_len


def _check_sums(limits: BlobLimits, segments: int, decoded_len: int, entries: int) -> None:
    if (
        segments <= limits.max_segments
        and decoded_len <= limits.max_decoded_bytes
        and entries <= limits.max_entries
    ):
        return
    check_limit("max_segments", limits.max_segments, segments)
    check_limit("max_decoded_bytes", limits.max_decoded_bytes, decoded_len)
    check_limit("max_entries", limits.max_entries, entries)


# ------------------------------------------------------------------------------------------- reading


def decode(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Binding = None,
    limits: BlobLimits = LIMITS,
) -> tuple[Segment, ...]:
    """Verify a blob and take it apart. Only the meta is inflated now, each other segment on its first use.

    Args:
        blob: The stored value.
        codec: The codec that wrote it.
        binding: The owner that it was written for.
        limits: The largest sizes that it may have.

    Raises:
        StateFormatError: It is not a blob. The text names the likely damage.
        StateVersionError: A newer release wrote it.
        StateAuthError: Another codec wrote it, or a keyed codec refuses it.
        StateCorruptError: Bytes were changed or lost.
        StateTooLargeError: It is beyond a limit.
        TypeError: It is neither bytes nor text.
        ValueError: The binding does not suit the codec: only a keyed codec takes a binding, and needs it.
    """
    return decode_whole(blob, codec=codec, binding=binding, limits=limits)[0]


def decode_whole(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Binding = None,
    limits: BlobLimits = LIMITS,
) -> tuple[tuple[Segment, ...], tuple[Part, ...]]:
    """As `decode`, with the parts. No part is opened or compared with its digest."""
    source = given_bytes(blob)
    parts: tuple[Part, ...] = ()
    try:
        # The size comes first: the time of each later step grows with it.
        check_limit("max_blob_bytes", limits.max_blob_bytes, len(source))
        header = read_header(source)
        check_header(header, codec, limits)
        if header.flags:
            body, parts = _opened(source, header, codec, binding, limits)
        else:
            body = codec.open(source, binding)
        segments = tuple(_segments(body, header, limits, source))
        # The header of an encrypted blob does not tell the size of its text to a reader without the key.
        if header.suite != SUITE_AES_256_GCM:
            _check_decoded_len(segments, header)
        _check_history(segments, parts, limits, len(source))
    except StateError as error:
        error.blob = bytes(source)
        raise
    # Each reader needs the meta. If it does not inflate, the blob fails here, before a turn begins.
    segments[0].raw()
    return segments, parts


def _opened(
    source: bytes, header: Header, codec: Codec, binding: Binding, limits: BlobLimits
) -> tuple[bytes, tuple[Part, ...]]:
    """Open a blob with a directory: give its body and its parts.

    The seal covers the directory and the body, and only the directory says where the body ends. So the
    lengths in the directory are read first. Its content is checked after the seal.
    """
    seal_end = HEADER_BYTES + SEAL_BYTES[header.suite]
    found = None
    with suppress(*(() if header.suite == SUITE_PLAIN else (StateCorruptError,))):
        found = read_directory(
            source, seal_end, suite=header.suite, compression=header.compression, limits=limits
        )
    if found is None:
        raise refused()  # the error of every failed authentication: an attacker learns nothing
    listed, at = found
    # Only lengths were used so far. A false length moves the border of the body, and the seal fails.
    parts, end = with_bytes(listed, source)
    body = codec.open(source[:seal_end] + source[at:end], binding, source[seal_end:at])
    check_parts(parts, limits)
    return body, parts


def _segments(body: bytes, header: Header, limits: BlobLimits, source: bytes) -> Iterator[Segment]:
    previous: int | None = None
    at = count = decoded_len = entries_total = 0
    while (start := at) < len(body):
        (number, stored_len, raw_len, entries), at = read_varints(body, at, 4)
        if number >= len(_KINDS) and number not in IGNORABLE:
            raise frames.newer(f"segment kind {number}", f"at most {_KINDS[-1]}, or one that may be ignored")
        kind = _KINDS[number] if number < len(_KINDS) else number
        if not _may_follow(previous, kind):
            raise frames.corrupt(f"segment kind {number} stands where it may not")
        previous = kind
        # Before a byte is copied: a forged head may state sizes of 4 GiB.
        if not 1 <= stored_len <= raw_len:
            raise frames.corrupt(f"a segment states {stored_len} stored for {raw_len} raw bytes")
        if stored_len > len(body) - at:
            raise frames.corrupt(f"a segment states {stored_len} bytes, but {len(body) - at} are left")
        if kind == Kind.META:
            check_limit("max_meta_bytes", limits.max_meta_bytes, raw_len)
            if entries:
                raise frames.corrupt(f"the meta segment states {entries} entries, expected none")
        count += 1
        decoded_len += raw_len
        entries_total += entries
        # With each head, not at the end: a body may hold millions of heads.
        _check_sums(limits, count, decoded_len, entries_total)

        head, stored = body[start:at], body[at : at + stored_len]
        at += stored_len
        if stored_len == raw_len:
            raw = stored
        elif header.compression == frames.NONE:
            raise frames.corrupt("a segment is compressed in a blob that says it is not")
        else:
            # Now, though nothing is inflated yet. A frame with another size than its head would be inflated
            # later, when the sums count as checked.
            raw = None
            frames.check_frame(stored, raw_len)
        yield Segment(
            kind=kind,
            entries=entries,
            raw_len=raw_len,
            stored=stored,
            compression=header.compression,
            _raw=raw,
            _blob=source,
            _head=head,
        )
    if previous is None:
        raise frames.corrupt("it has no segments")


def _check_decoded_len(segments: Sequence[Segment], header: Header) -> None:
    decoded_len = sum([each.raw_len for each in segments])
    if decoded_len != header.decoded_len:
        raise frames.corrupt(
            f"its segments hold {decoded_len} bytes, but the header says {header.decoded_len}"
        )
