"""The facts in the header and the directory of a blob, which anybody can read.

Owns: the reading of both without a key. Must never know: the sealed content.
"""

from __future__ import annotations

from ..types.errors import StateError
from . import blob as blobs
from . import frames
from .blob import HAS_DIRECTORY, Header
from .codec import HEADER_BYTES, SEAL_BYTES, SUITES, BlobLimits, check_limit
from .formats import FORMAT_VERSIONS
from .parts import Part, check_parts, read_directory

__all__ = ["outline"]


def outline(blob: bytes | bytearray | memoryview, limits: BlobLimits) -> tuple[Header, tuple[Part, ...]]:
    """Read the header of a blob, and the list of its parts without their bytes. Nothing of it is verified:
    the seal is not checked.

    Raises:
        StateFormatError: It is not a blob.
        StateVersionError: A newer release wrote it.
        StateCorruptError: It ends too early, or lists parts that cannot be.
        StateTooLargeError: It is beyond a limit.
    """
    header = blobs.peek(blob)
    source = bytes(blob)
    try:
        check_limit("max_blob_bytes", limits.max_blob_bytes, len(source))
        if header.version not in FORMAT_VERSIONS or header.suite not in SUITES:
            raise frames.newer(
                f"format version {header.version}, suite 0x{header.suite:02x}",
                f"at most version {max(FORMAT_VERSIONS)}, and a suite that is known",
            )
        end = HEADER_BYTES + SEAL_BYTES[header.suite]
        if len(source) <= end:
            raise frames.corrupt(f"{len(source)} bytes are left of header, seal and body")
        if not header.flags & HAS_DIRECTORY:
            return header, ()
        parts, _ = read_directory(
            source, end, suite=header.suite, compression=header.compression, limits=limits
        )
        check_parts(parts, limits)
    except StateError as error:
        error.blob = source
        raise
    return header, tuple(parts)
