"""Segments <-> bytes: the envelope of a stored conversation.

Owns: header, segment heads, compression, format versions. Must never know: a message, any JSON, or how a
body is protected (a `codec` says).

One blob is one value for one database column, and what a release has written stays readable for ever.
Integers in the header are big-endian; a *varint* is unsigned LEB128 in its shortest form, below 2**32.

::

    blob    =  header 16  |  seal  |  body                          (the seal belongs to the suite)

    header     0   4  magic        F5 47 41 53; F5 never occurs in UTF-8, so a text column shows at once
               4   1  version      1; a greater one was written by a newer release, it is not damage
               5   1  suite        00 plain, 11 HMAC-SHA-256, 21 AES-256-GCM; fixes every algorithm
               6   1  compression  00 none, 01 zstd, 02 zstd with shipped dictionary 1;
                                   80-FF are reserved for users' own dictionaries
               7   1  reserved     0
               8   4  decoded_len  sum of all raw_len; 0 in suite 21, where only the body says it
              12   4  key_id       0 in plain

    plain seal =  SHA-256("goaitools/state/v1" | header | dictionary's SHA-256, if one is used | body)[:16]
                  It finds accidents. It stops nobody: who can write the blob can write the digest.
    the others'   are drawn in the package `seal`

    body    =  segment(meta) segment(sealed)* [segment(hot)] [segment(inbox)] [segment(open)]
    segment =  varint kind | varint stored_len | varint raw_len | varint entries | stored_len bytes
               kind     0 meta, 1 sealed, 2 hot, 3 inbox, 4 open; meta first and once, then ascending,
                        only sealed repeats
               bytes    one zstd frame: content size on, checksum off, dictionary id off, window at most
                        8 MiB, nothing behind it; or the raw bytes themselves when stored_len = raw_len
               entries  how many wire entries the raw bytes hold; 0 in meta
               1 <= stored_len <= raw_len

What the raw bytes mean is the business of `state`. Reading goes strictly inwards, and each step may rely
on the ones before: type, size, magic, version, suite, compression and reserved byte, decoded length, seal,
segment heads and frame headers, then the meta. Other segments are inflated when asked for; by then it is
known how large each will be, and that all together are within the limits.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import force_setattr

from ..errors import (
    StateAuthError,
    StateCorruptError,
    StateError,
    StateFormatError,
    StateTooLargeError,
    StateVersionError,
)
from ..values import Value
from . import frames
from .codec import HEADER_BYTES, LIMITS, PLAIN, SUITE_AES_256_GCM, SUITES, Binding, BlobLimits, Codec

__all__ = [
    "FORMAT_VERSIONS",
    "Header",
    "Kind",
    "Segment",
    "compression_of",
    "decode",
    "encode",
    "peek",
    "segment",
]

FORMAT_VERSIONS: Final[dict[int, str]] = {
    1: "16-byte header, sealed body of segments, zstd with a shipped dictionary",
}
"""What each format version changed, in a line. Every version listed here is read."""

MAGIC: Final = b"\xf5GAS"
_WRITTEN_VERSION: Final = 1
_HEADER: Final = struct.Struct(">4sBBBBII")

_UPGRADE: Final = "read it with the release that wrote it, or upgrade goaitools-py"


# ------------------------------------------------------------------------------------------- values


class Kind(enum.IntEnum):
    """What a segment is for; the order of the numbers is the order in the body."""

    META = 0
    SEALED = 1
    HOT = 2
    INBOX = 3
    OPEN = 4


_KINDS: Final = tuple(Kind)


class Header(Value, frozen=True, kw_only=True):
    """The first 16 bytes of a blob, unverified when they come from `peek`.

    With a `version` that is not in `FORMAT_VERSIONS` the other fields may mean something else.
    """

    version: int
    suite: int
    compression: int
    reserved: int = 0
    decoded_len: int
    key_id: int = 0

    def pack(self) -> bytes:
        """The header's 16 bytes."""
        return _HEADER.pack(
            MAGIC, self.version, self.suite, self.compression, self.reserved, self.decoded_len, self.key_id
        )


class Segment(Value, frozen=True, kw_only=True, eq=False):
    """One piece of a state: made by `segment`, or taken from a blob by `decode`.

    A segment that came from a blob can be given to `encode` as it is; it is not compressed again.

    Attributes:
        kind: What it is for.
        entries: How many wire entries it holds; 0 in a meta.
        raw_len: Its size in bytes when inflated.
        stored: Its bytes as they stand in a blob whose compression byte is `compression`.
    """

    unshown = frozenset({"stored", "_raw", "_blob", "_head"})

    kind: Kind
    entries: int
    raw_len: int
    stored: bytes
    compression: int
    _raw: bytes | None = None
    _blob: bytes = b""
    _head: bytes = b""

    def raw(self) -> bytes:
        """The inflated bytes. Inflated on the first call and then kept.

        Raises:
            StateCorruptError: The stored bytes do not inflate to exactly `raw_len` bytes.
        """
        if self._raw is not None:
            return self._raw
        try:
            raw = frames.inflate(self.stored, self.raw_len, self.compression)
        except StateCorruptError as error:
            error.blob = self._blob
            raise
        force_setattr(self, "_raw", raw)  # a cache: equal for everybody who fills it
        return raw


# -------------------------------------------------------------------------------------- compressing


_QUICK: Final = frames.Effort(1, uses_dictionary=False)
_LIGHT: Final = frames.Effort(3)
_USUAL: Final = frames.Effort(4)
_LONGER: Final = frames.Effort(5)
_ONCE: Final = frames.Effort(9, uses_dictionary=False, min_match=6)


def _effort(kind: Kind, raw_len: int, *, is_minor: bool) -> frames.Effort:
    """How hard a segment is worth to be compressed.

    Measured on real conversations (Xeon): per cent of the raw bytes, CPU time in µs.
    At 4 KiB, with the dictionary: level 3 31.8, 10; level 4 30.1, 19; level 5 29.8, 25.
    At 20 KiB: level 3 21.1, 44; level 4 19.9, 116; level 5 19.6, 166. Without it: level 1 23.3, 27.
    At 44 KiB: level 1 19.5, 75; level 4 17.4, 225; level 5 17.1, 319. Without it: level 1 20.0, 53.
    That is of one frame after the other; in a turn, with nothing in the caches, it is twice to three times as
    much. What is written on every turn is compressed well while it is small, and again where many messages
    are most of a blob; beyond 24 KiB it would be the largest part of a turn, and where most of a blob was
    compressed before, it is not worth it. What is sealed is compressed once, and inflated with every turn: of
    64 KiB level 9 makes as little without the dictionary as level 6 with it, in as much time (15.5 per cent,
    600 µs), and is inflated in 26 instead of 30 µs; without repetitions of less than six bytes it makes 15.8
    per cent, and is inflated in 22. A piece beyond 256 KiB is a picture or a document in base64, where levels
    differ in time but hardly in size.
    """
    if kind is Kind.SEALED:
        return _ONCE if raw_len <= 256 * 2**10 else _LIGHT
    if raw_len <= 12 * 2**10:
        return _USUAL if raw_len <= 2 * 2**10 else _LIGHT
    return _LONGER if raw_len <= 24 * 2**10 and not is_minor else _QUICK


def _pack(kind: Kind, raw: bytes, entries: int, compression: int, *, is_minor: bool = False) -> Segment:
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
        kind: What it is for.
        raw: Its content, at least one byte; a segment without content is left out of the blob instead.
        entries: How many wire entries `raw` holds; 0 for a meta.
        is_minor: It is the smaller part of its blob: compressed quickly rather than well.

    Raises:
        ValueError: `raw` is empty, or `entries` is negative or given for a meta.
    """
    kind = Kind(kind)
    if not raw:
        raise ValueError(f"a {kind.name.lower()} segment needs at least one byte; leave an empty one out")
    if entries < 0 or (kind is Kind.META and entries):
        raise ValueError(f"a {kind.name.lower()} segment cannot have {entries} entries")
    return _pack(kind, raw, entries, frames.ZSTD_DICTIONARY_1, is_minor=is_minor)


# ------------------------------------------------------------------------------------------ varints


def _varints(*numbers: int) -> bytes:
    out = bytearray()
    for number in numbers:
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def _read_varints(body: bytes, at: int, count: int) -> tuple[list[int], int]:
    """So many numbers, and where the next byte is."""
    numbers: list[int] = []
    number = shift = 0
    for byte in body[at : at + 5 * count]:
        at += 1
        number |= (byte & 0x7F) << shift
        if byte > 0x7F:
            shift += 7
            if shift > 28:
                break
            continue
        if (byte == 0 and shift) or number >= 2**32:
            break
        numbers.append(number)
        if len(numbers) == count:
            return numbers, at
        number = shift = 0
    else:
        raise frames.corrupt("the head of a segment is cut off")
    raise frames.corrupt("a number in the head of a segment is too long")


# ------------------------------------------------------------------------------------------- writing


def encode(
    segments: Sequence[Segment], *, codec: Codec = PLAIN, binding: Binding = None, limits: BlobLimits = LIMITS
) -> bytes:
    """Put segments into a blob.

    Args:
        segments: One meta, any number of sealed ones, at most one each of hot, inbox and open, in this order.
        codec: How the blob is protected.
        binding: Whom a keyed codec ties the blob to; authenticated, not stored.
        limits: What the blob must keep within.

    Raises:
        StateTooLargeError: A limit would be exceeded; `limit_name` and `limit` say which.
        ValueError: The segments are not in order, or the binding does not suit the codec.
    """
    compression = compression_of(codec)
    segments = [_recompressed(each, compression) for each in segments]
    previous: Kind | None = None
    for each in segments:
        if not _may_follow(previous, each.kind):
            raise ValueError(f"{', '.join(s.kind.name.lower() for s in segments)} is no order of segments")
        previous = each.kind
    if previous is None:
        raise ValueError("a state needs at least its meta segment")
    decoded_len = _check_totals(segments, limits)
    header = Header(
        version=_WRITTEN_VERSION,
        suite=codec.suite,
        compression=compression,
        decoded_len=0 if codec.suite == SUITE_AES_256_GCM else decoded_len,
    )
    body = [piece for each in segments for piece in (each._head or _head(each), each.stored)]
    blob = codec.seal(header.pack(), b"".join(body), binding)
    _check_limit("max_blob_bytes", limits.max_blob_bytes, len(blob))
    return blob


def compression_of(codec: Codec) -> int:
    """The compression byte of what is written with this codec."""
    return frames.ZSTD_DICTIONARY_1 if codec.compresses else frames.NONE


def _recompressed(given: Segment, compression: int) -> Segment:
    """A segment as a blob of this compression must hold it: one blob, one way to inflate it."""
    if given.compression == compression:
        return given
    return _pack(given.kind, given.raw(), given.entries, compression)


def _head(given: Segment) -> bytes:
    return _varints(given.kind, len(given.stored), given.raw_len, given.entries)


def _may_follow(previous: Kind | None, kind: Kind) -> bool:
    if previous is None:
        return kind is Kind.META
    return kind > previous or kind is previous is Kind.SEALED


def _check_totals(segments: Sequence[Segment], limits: BlobLimits) -> int:
    decoded_len = sum([each.raw_len for each in segments])
    _check_limit("max_meta_bytes", limits.max_meta_bytes, segments[0].raw_len)
    _check_sums(limits, len(segments), decoded_len, sum([each.entries for each in segments]))
    return decoded_len


def _check_sums(limits: BlobLimits, segments: int, decoded_len: int, entries: int) -> None:
    _check_limit("max_segments", limits.max_segments, segments)
    _check_limit("max_decoded_bytes", limits.max_decoded_bytes, decoded_len)
    _check_limit("max_entries", limits.max_entries, entries)


def _check_limit(name: str, limit: int, found: int) -> None:
    if found > limit:
        raise StateTooLargeError(
            f"state is too large: found {found}, expected at most {name}={limit}; "
            f"compact the conversation, or give its codec limits=BlobLimits({name}=…)",
            limit_name=name,
            limit=limit,
        )


# ------------------------------------------------------------------------------------------- reading


def decode(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Binding = None,
    limits: BlobLimits = LIMITS,
) -> tuple[Segment, ...]:
    """Verify a blob and take it apart. The meta is inflated, the other segments when they are asked for.

    Args:
        blob: The stored value.
        codec: The one it was written with.
        binding: What it was bound to; must be equal.
        limits: What it must keep within.

    Raises:
        StateFormatError: Not a blob; the text names the likely damage.
        StateVersionError: Written by a newer release.
        StateAuthError: Sealed by another codec, or refused by a keyed one.
        StateCorruptError: Bytes were changed or lost.
        StateTooLargeError: Beyond a limit.
        TypeError: Not bytes and not text.
        ValueError: The binding does not suit the codec: a plain one takes none, a keyed one must have one.
    """
    source = _bytes(blob)
    try:
        _check_limit("max_blob_bytes", limits.max_blob_bytes, len(source))
        header = _header(source)
        _check_header(header, codec, limits)
        body = codec.open(source, binding)
        segments = tuple(_segments(body, header, limits, source))
        if header.suite != SUITE_AES_256_GCM:
            _check_decoded_len(segments, header)
    except StateError as error:
        error.blob = source
        raise
    segments[0].raw()
    return segments


def peek(blob: bytes | bytearray | memoryview) -> Header:
    """Read a blob's header without verifying anything but its magic.

    Raises:
        StateFormatError: Not a blob.
        StateCorruptError: Cut off within the header.
        TypeError: Not bytes and not text.
    """
    source = _bytes(blob)
    try:
        return _header(source)
    except StateError as error:
        error.blob = source
        raise


def _bytes(blob: object) -> bytes:
    if isinstance(blob, bytes):
        return blob
    if isinstance(blob, (bytearray, memoryview)):
        return bytes(blob)
    if isinstance(blob, str):
        text = blob.encode("utf-8", "surrogatepass")
        raise StateFormatError(f"a state is bytes, but this is text; {_likely_damage(text)}", blob=text)
    raise TypeError(f"a state must be bytes, bytearray or memoryview, not {type(blob).__name__}")


_BINARY: Final = "use a binary column or file mode"
_JSON: Final = "it is JSON, perhaps a state of the Go library goaitools, which this release cannot read"
_REPR: Final = "it is the repr of a bytes object; store the bytes themselves, never str(state)"
_DAMAGES: Final = (
    (b"gas1.", "it is the text form; state_from_text gives its bytes"),
    (b"9UdBU", "it is base64; decode it with base64.b64decode before passing it on"),
    (b"\\xf5474153", r"it is PostgreSQL's \x form; use a bytea column, or bytes.fromhex behind the \x"),
    (b"f5474153", "it is hexadecimal; decode it with bytes.fromhex before passing it on"),
    (b"F5474153", "it is hexadecimal; decode it with bytes.fromhex before passing it on"),
    (b"b'\\xf5GAS", _REPR),
    (b'b"\\xf5GAS', _REPR),  # where there is a ' among the bytes, and no "
    (b"\xc3\xb5GAS", f"it was decoded as Latin-1 and became UTF-8 on the way; {_BINARY}"),
    (b"\xef\xbf\xbdGAS", f"it was decoded as UTF-8, which lost bytes; {_BINARY}"),
    (b"\xed\xb3\xb5GAS", f"it was decoded with surrogateescape; {_BINARY}"),
)
_OTHERWISE: Final = f"expected it to start with {MAGIC.hex(' ').upper()}; check which value was passed"


def _likely_damage(found: bytes) -> str:
    if not found:
        return "it is empty; pass state=None to start a conversation"
    for start, damage in _DAMAGES:
        if found.startswith(start):
            return damage
    return _JSON if found[:64].lstrip().startswith(b"{") else _OTHERWISE


def _header(source: bytes) -> Header:
    if source[:4] != MAGIC and not (source and MAGIC.startswith(source)):
        raise StateFormatError(f"this is not a state; {_likely_damage(source)}")
    if len(source) < HEADER_BYTES:
        raise frames.corrupt(f"{len(source)} bytes are left of a {HEADER_BYTES}-byte header")
    _, version, suite, compression, reserved, decoded_len, key_id = _HEADER.unpack_from(source)
    return Header(
        version=version,
        suite=suite,
        compression=compression,
        reserved=reserved,
        decoded_len=decoded_len,
        key_id=key_id,
    )


def _check_header(header: Header, codec: Codec, limits: BlobLimits) -> None:
    if header.version == 0:
        raise frames.corrupt("it states format version 0, which never existed")
    if header.version not in FORMAT_VERSIONS:
        raise _newer(f"format version {header.version}", f"at most {max(FORMAT_VERSIONS)}")
    if header.suite not in SUITES:
        raise _newer(f"suite 0x{header.suite:02x}", ", ".join(f"0x{suite:02x}" for suite in SUITES))
    if header.suite != codec.suite:
        raise StateAuthError(
            f"state is {SUITES[header.suite]} (suite 0x{header.suite:02x}), but the codec opens suite "
            f"0x{codec.suite:02x} only; pass the codec that it was written with"
        )
    if header.compression not in frames.DICTIONARIES:
        known = ", ".join(f"0x{known:02x}" for known in frames.DICTIONARIES)
        raise _newer(f"compression 0x{header.compression:02x}", known)
    if header.reserved:
        # A newer release may give the byte a meaning, and what that wrote must never be thrown away.
        raise _newer(f"reserved byte 0x{header.reserved:02x}", "0x00")
    _check_limit("max_decoded_bytes", limits.max_decoded_bytes, header.decoded_len)


def _segments(body: bytes, header: Header, limits: BlobLimits, source: bytes) -> Iterator[Segment]:
    previous: Kind | None = None
    at = count = decoded_len = entries_total = 0
    while (start := at) < len(body):
        (number, stored_len, raw_len, entries), at = _read_varints(body, at, 4)
        if number >= len(_KINDS) or not _may_follow(previous, _KINDS[number]):
            raise frames.corrupt(f"segment kind {number} stands where it may not")
        previous = kind = _KINDS[number]
        if not 1 <= stored_len <= raw_len:
            raise frames.corrupt(f"a segment states {stored_len} stored for {raw_len} raw bytes")
        if stored_len > len(body) - at:
            raise frames.corrupt(f"a segment states {stored_len} bytes, but {len(body) - at} are left")
        if kind is Kind.META:
            _check_limit("max_meta_bytes", limits.max_meta_bytes, raw_len)
            if entries:
                raise frames.corrupt(f"the meta segment states {entries} entries, expected none")
        count += 1
        decoded_len += raw_len
        entries_total += entries
        _check_sums(limits, count, decoded_len, entries_total)

        head, stored = body[start:at], body[at : at + stored_len]
        at += stored_len
        if stored_len == raw_len:
            raw = stored
        elif header.compression == frames.NONE:
            raise frames.corrupt("a segment is compressed in a blob that says it is not")
        else:
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
    decoded_len = sum(each.raw_len for each in segments)
    if decoded_len != header.decoded_len:
        raise frames.corrupt(
            f"its segments hold {decoded_len} bytes, but the header says {header.decoded_len}"
        )


def _newer(found: str, expected: str) -> StateVersionError:
    return StateVersionError(
        f"state was written by a newer release: found {found}, expected {expected}; {_UPGRADE}"
    )
