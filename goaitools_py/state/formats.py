"""The versions of the state's format, and the steps between an older version and the newest one.

Owns: the table of versions, the choice of the version that a blob is written in, and the codec that asks for
an older one. Must never know: bytes, or the content of a segment.

All of the package works with segments and parts of the newest version. A blob of an older version is brought
up when it is read, and brought down when it has to be written for workers of an older release. No value is
dropped. If an older version has no place for a value, the blob is written in the next version that has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from .codec import Binding, BlobLimits, Codec, PartCodec
from .parts import Part

__all__ = ["FORMAT_VERSIONS", "NEWEST", "OLDER", "Pieces", "Steps", "brought_up", "writing", "written"]

FORMAT_VERSIONS: Final[dict[int, str]] = {
    1: "16-byte header, sealed body of segments, zstd with a shipped dictionary",
}
"""The changes of each format version, in one line. This release reads and writes all of these versions."""

NEWEST: Final = 1

Pieces: TypeAlias = tuple[Sequence[Any], Sequence[Part]]
"""The segments and the parts of a blob."""


class Steps(NamedTuple):
    """Convert between an older version and the newest one. Both steps are pure.

    Attributes:
        up: From the segments and parts of the older version to the newest.
        down: The way back; it gives None if the older version has no place for something in them.
    """

    up: Callable[[Sequence[Any], Sequence[Part]], Pieces]
    down: Callable[[Sequence[Any], Sequence[Part]], Pieces | None]


OLDER: Final[dict[int, Steps]] = {}
"""The older versions of `FORMAT_VERSIONS`. Empty: version 1 is the first."""


def brought_up(version: int, segments: Sequence[Any], parts: Sequence[Part]) -> Pieces:
    """Convert the content of a blob of this version to the newest version."""
    return OLDER[version].up(segments, parts)


def written(codec: Codec, segments: Sequence[Any], parts: Sequence[Part]) -> tuple[int, Pieces]:
    """Choose the version to write, and give the segments and parts of a blob of that version.

    It is the newest one, unless `codec` comes from `writing`. Then it is the version that was asked for, or
    the first one after it that has a place for everything.
    """
    least: int | None = getattr(codec, "write_format", None)
    for version in sorted(OLDER) if least is not None else ():
        if version >= (least or 0) and (down := OLDER[version].down(segments, parts)) is not None:
            return version, down
    return NEWEST, (segments, parts)


def writing(codec: Codec, version: int | None) -> Codec:
    """Give a codec that protects and opens as `codec` does, for blobs of an older version.

    Args:
        codec: The codec.
        version: The version to write; None for the newest one, which gives `codec` itself.

    Raises:
        TypeError: The version is not an int.
        ValueError: This release does not write this version.
    """
    if version is None:
        return codec
    if not isinstance(version, int) or isinstance(version, bool):
        raise TypeError(f"write_format must be an int or None, not {type(version).__name__}")
    if version not in FORMAT_VERSIONS:
        known = ", ".join(map(str, sorted(FORMAT_VERSIONS)))
        raise ValueError(f"write_format={version} is not a version that this release writes; it has {known}")
    return _WritingParts(codec, version) if isinstance(codec, PartCodec) else _Writing(codec, version)


class _Writing:
    """A codec, and the version that its blobs have."""

    def __init__(self, codec: Any, version: int) -> None:
        self._codec = codec
        self.write_format = version

    def __repr__(self) -> str:
        return f"writing({self._codec!r}, {self.write_format})"

    @property
    def suite(self) -> int:
        """As the codec has it; so are all members below."""
        suite: int = self._codec.suite
        return suite

    @property
    def compresses(self) -> bool:
        compresses: bool = self._codec.compresses
        return compresses

    @property
    def key_id(self) -> int:
        key_id: int = self._codec.key_id
        return key_id

    @property
    def limits(self) -> BlobLimits | None:
        return getattr(self._codec, "limits", None)

    def check(self, binding: Binding) -> None:
        self._codec.check(binding)

    def check_age(self, written_ms: int) -> None:
        self._codec.check_age(written_ms)

    def seal(self, header: bytes, body: bytes, binding: Binding, directory: bytes = b"", /) -> bytes:
        sealed: bytes = self._codec.seal(header, body, binding, *((directory,) if directory else ()))
        return sealed

    def open(self, blob: bytes, binding: Binding, directory: bytes = b"", /) -> bytes:
        body: bytes = self._codec.open(blob, binding, *((directory,) if directory else ()))
        return body


class _WritingParts(_Writing):
    """A codec of suite 21, which protects each part for itself."""

    def seal_part(self, named: tuple[bytes, ...], packed: bytes, binding: Binding) -> bytes:
        part: bytes = self._codec.seal_part(named, packed, binding)
        return part

    def open_part(self, named: tuple[bytes, ...], stored: bytes, binding: Binding) -> bytes:
        packed: bytes = self._codec.open_part(named, stored, binding)
        return packed
