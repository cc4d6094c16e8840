"""Sealing a blob again: with the primary key, with another codec, or for another owner.

Owns: one pure step from blob to blob. Must never know: a key, or the content of a segment.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.values import replace
from . import blob as blobs
from .codec import SUITE_AES_256_GCM, Binding, Codec
from .formats import written
from .parts import ELSEWHERE, Part, key_id_of, opened_part
from .state import hard_limits

__all__ = ["rewrap"]


def rewrap(
    blob: bytes | bytearray | memoryview,
    codec: Codec,
    *,
    binding: Binding = None,
    to: Codec | None = None,
    to_binding: Binding = None,
) -> bytes:
    """Seal a state again. Its content, its revision and its times do not change.

    With the codec alone, the first key of the keyring seals it, in the newest version of the format. If the
    blob has both already, it is verified and returned unchanged. So a loop over all rows writes few.

    Args:
        blob: The stored value.
        codec: The codec that opens it.
        binding: The owner of the blob.
        to: The codec to seal with, if it is another one. From `PLAIN` to a sealed codec, you vouch for bytes
            that were not authenticated before.
        to_binding: The new owner, if it is another one.

    Returns:
        The blob to store.

    Raises:
        StateError: The blob cannot be read.
        ValueError: A binding does not suit its codec.
    """
    target = codec if to is None else to
    target_binding = binding if to_binding is None else to_binding
    target.check(target_binding)
    segments, parts = blobs.decode_whole(blob, codec=codec, binding=binding, limits=hard_limits(codec))
    version, _ = written(target, segments, parts)
    header = blobs.peek(blob)
    is_same = to is None and to_binding is None and header.version == version
    if is_same and _is_current(header, parts, codec):
        return bytes(blob)
    if to is not None or to_binding is not None:
        parts = tuple(_bare(part, codec, binding, target) for part in parts)
    return blobs.encode(segments, parts, codec=target, binding=target_binding, limits=hard_limits(target))


def _is_current(header: blobs.Header, parts: Sequence[Part], codec: Codec) -> bool:
    compression = blobs.compression_of(codec)
    if (header.key_id, header.compression) != (codec.key_id, compression):
        return False
    if codec.suite != SUITE_AES_256_GCM:
        return True
    return all(part.place == ELSEWHERE or key_id_of(part) == codec.key_id for part in parts)


def _bare(part: Part, codec: Codec, binding: Binding, target: Codec) -> Part:
    """The part without the protection that ties it to the old codec and owner; a plain one is carried."""
    if SUITE_AES_256_GCM not in (codec.suite, target.suite) and codec.compresses == target.compresses:
        return replace(part, suite=target.suite)
    if part.place == ELSEWHERE:
        raise ValueError("a part of the state is elsewhere and cannot be sealed anew; attach it first")
    return opened_part(part, codec, binding)
