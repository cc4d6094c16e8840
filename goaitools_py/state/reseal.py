"""Sealing a blob anew: under the primary key, by another codec, for another binding.

Owns: one pure step from blob to blob. Must never know: a key, or what is in a segment.
"""

from __future__ import annotations

from . import blob as blobs
from .codec import Binding, Codec
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
    """Seal a state anew; what is in it does not change, nor do its revision and its times.

    With the codec alone: under the keyring's first key. A blob that is sealed with it already is verified
    and comes back as it is, so a loop over all rows writes only those that an old key sealed.

    Args:
        blob: The stored value.
        codec: The one that opens it.
        binding: What it is bound to.
        to: The codec to seal with, if it is another one. From `PLAIN` to a sealed codec, this vouches for
            bytes that nobody had vouched for.
        to_binding: What it shall be bound to, if that is something else.

    Returns:
        The blob to store.

    Raises:
        StateError: The blob cannot be read.
        ValueError: A binding does not suit its codec.
    """
    target = codec if to is None else to
    target_binding = binding if to_binding is None else to_binding
    target.check(target_binding)
    segments = blobs.decode(blob, codec=codec, binding=binding, limits=hard_limits(codec))
    if to is None and to_binding is None and _is_current(blobs.peek(blob), codec):
        return bytes(blob)
    return blobs.encode(segments, codec=target, binding=target_binding, limits=hard_limits(target))


def _is_current(header: blobs.Header, codec: Codec) -> bool:
    return (header.key_id, header.compression) == (codec.key_id, blobs.compression_of(codec))
