"""The encodings inside of a blob: zstd frames within exact bounds, and numbers as varints.

Owns: zstd contexts, the shipped dictionaries by compression byte, the checks that bound memory, and the
strict reading of unsigned LEB128 in its shortest form, below 2**32. Must never know: the segment or part that
a frame or a number belongs to.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Final

import zstandard

from ..base.values import Value
from ..types.errors import StateCorruptError, StateVersionError
from . import dictionary

__all__ = [
    "DICTIONARIES",
    "NONE",
    "RESTORE",
    "ZSTD",
    "ZSTD_DICTIONARY_1",
    "Effort",
    "check_frame",
    "compress",
    "corrupt",
    "inflate",
    "newer",
    "read_varints",
    "varints",
]

NONE: Final = 0x00
ZSTD: Final = 0x01
ZSTD_DICTIONARY_1: Final = 0x02
DICTIONARIES: Final[dict[int, int | None]] = {NONE: None, ZSTD: None, ZSTD_DICTIONARY_1: 1}
"""The compression bytes that are known, each with the number of its dictionary."""

_MAX_WINDOW_BYTES: Final = 8 * 2**20
"""The window a zstd frame may ask for, and with it the decompressor's working memory."""

RESTORE: Final = "restore it from a backup, or pass state=None to start afresh"


_UPGRADE: Final = "read it with the release that wrote it, or upgrade goaitools-py"


def newer(found: str, expected: str) -> StateVersionError:
    """The error for a state that a later release wrote, and that this one cannot understand."""
    return StateVersionError(
        f"state was written by a newer release: found {found}, expected {expected}; {_UPGRADE}"
    )


def corrupt(found: str) -> StateCorruptError:
    """Make the error for a state with changed or lost bytes."""
    return StateCorruptError(f"state is damaged: {found}; {RESTORE}")


class Effort(Value, frozen=True):
    """How hard to compress.

    A frame may be compressed without the dictionary; a reader uses the dictionary all the same. This works
    because the frame has its own entropy tables, and because dictionary 1 starts with the repeated offsets
    that zstd starts with by default (RFC 8878, 3.1.1.5).
    """

    level: int
    """zstd's."""
    uses_dictionary: bool = True
    min_match: int | None = None
    """Bytes of the shortest repetition that is worth referring to, None for the level's own number. Fewer and
    longer ones are a little more to store and quicker to follow. Without the dictionary only."""


class _Local(threading.local):
    """zstd contexts cost more to make than to use and must not be shared between threads."""

    def __init__(self) -> None:
        self.compressors: dict[Effort, zstandard.ZstdCompressor] = {}
        self.decompressors: dict[int, zstandard.ZstdDecompressor] = {}


_local = _Local()


def _zstd_dictionary(number: int) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(dictionary.load(number), dict_type=zstandard.DICT_TYPE_FULLDICT)


@cache
def _digested_dictionary(level: int) -> zstandard.ZstdCompressionDict:
    """Dictionary 1 prepared for one level (about 0.5 ms). Read-only from here on, so threads may share it."""
    prepared = _zstd_dictionary(1)
    prepared.precompute_compress(level=level)
    return prepared


def _compressor(effort: Effort) -> zstandard.ZstdCompressor:
    found = _local.compressors.get(effort)
    if found is None:
        found = _local.compressors[effort] = _new_compressor(effort)
    return found


def _new_compressor(effort: Effort) -> zstandard.ZstdCompressor:
    if effort.min_match is not None:
        parameters = zstandard.ZstdCompressionParameters.from_level(
            effort.level,
            source_size=_USUAL_BYTES,
            min_match=effort.min_match,
            write_content_size=True,
            write_checksum=False,
            write_dict_id=False,
        )
        return zstandard.ZstdCompressor(compression_params=parameters)
    return zstandard.ZstdCompressor(
        level=effort.level,
        dict_data=_digested_dictionary(effort.level) if effort.uses_dictionary else None,
        write_content_size=True,
        write_checksum=False,
        write_dict_id=False,
    )


_USUAL_BYTES: Final = 64 * 1024
"""The size that zstd is told to expect. Smaller and larger inputs work too."""


def _decompressor(compression: int) -> zstandard.ZstdDecompressor:
    found = _local.decompressors.get(compression)
    if found is None:
        number = DICTIONARIES[compression]
        found = _local.decompressors[compression] = zstandard.ZstdDecompressor(
            dict_data=None if number is None else _zstd_dictionary(number), max_window_size=_MAX_WINDOW_BYTES
        )
    return found


def compress(raw: bytes, effort: Effort) -> bytes:
    """A frame of `raw` for a reader with dictionary 1. Its header has the content size, and nothing else."""
    return _compressor(effort).compress(raw)


def check_frame(stored: bytes, raw_len: int) -> None:
    """Refuse a frame if its header and the segment's head state different sizes.

    This check bounds memory. python-zstandard ignores `max_output_size` once a frame states its size
    (8 KB became 256 MB, and 13 bytes a MemoryError), and takes a skippable frame for an empty one.
    """
    if not stored.startswith(zstandard.FRAME_HEADER):
        raise corrupt("a segment does not start with a zstd frame")
    try:
        frame = zstandard.get_frame_parameters(stored)
    except zstandard.ZstdError:
        raise corrupt("the header of a zstd frame cannot be read") from None
    # The head's size was counted against the limits, and zstd allocates the frame's size.
    if frame.content_size != raw_len:
        raise corrupt(f"a zstd frame states another size than its segment, which says {raw_len} bytes")
    # zstd allocates the window before the first byte is inflated.
    if frame.window_size > _MAX_WINDOW_BYTES:
        raise corrupt(f"a zstd frame asks for a window beyond {_MAX_WINDOW_BYTES} bytes")
    # One form for each content: a frame with more in its header is not from a writer of this format.
    if frame.dict_id or frame.has_checksum:
        raise corrupt("a zstd frame has a checksum or a dictionary id, which this format leaves out")


def inflate(stored: bytes, raw_len: int, compression: int) -> bytes:
    """Inflate a frame that passed `check_frame`; the output buffer is exactly `raw_len` bytes."""
    try:
        raw = _decompressor(compression).decompress(stored, max_output_size=raw_len, allow_extra_data=False)
    except zstandard.ZstdError:
        raise corrupt(f"a zstd frame does not inflate to the {raw_len} bytes it states") from None
    # A frame may end before its stated size. Later sums count on that size.
    if len(raw) != raw_len:
        raise corrupt(f"a segment inflates to {len(raw)} bytes, expected {raw_len}")
    return raw


def varints(*numbers: int) -> bytes:
    """The numbers, one behind the other."""
    out = bytearray()
    for number in numbers:
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def read_varints(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Read `count` numbers. Give them, and the place of the next byte. Raises `StateCorruptError`."""
    numbers: list[int] = []
    number = shift = 0
    for byte in data[at : at + 5 * count]:
        at += 1
        number |= (byte & 0x7F) << shift
        if byte > 0x7F:
            shift += 7
            if shift > 28:
                break
            continue
        # Each number has one form. With two, equal states could have different digests.
        if (byte == 0 and shift) or number >= 2**32:
            break
        numbers.append(number)
        if len(numbers) == count:
            return numbers, at
        number = shift = 0
    else:
        raise corrupt("the head of a segment is cut off")
    raise corrupt("a number in the head of a segment is too long")
