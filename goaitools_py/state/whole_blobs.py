"""Steps from one blob to another, and the facts of a blob that need no content.

Owns: a blob as text, the outline in its header and directory, its parts taken out and put back, its seal made
anew, and the check of all its pieces. Must never know: which place keeps the parts that are elsewhere, a key,
or the content of any segment or part.

All steps are pure. They treat segments and parts as sealed pieces, so revision and times do not change.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ..base.values import replace
from ..types.errors import StateError, StateFormatError
from . import blob as blobs
from . import frames
from .blob_header import FORMAT_VERSIONS, HAS_DIRECTORY, NEWEST, Header, peek
from .codec import (
    HEADER_BYTES,
    PLAIN,
    SEAL_BYTES,
    SUITE_AES_256_GCM,
    SUITES,
    Binding,
    BlobLimits,
    Codec,
    check_limit,
)
from .parts import (
    ARCHIVE,
    ELSEWHERE,
    INLINE,
    MEDIA,
    RESULT,
    Part,
    check_parts,
    key_id_of,
    opened_part,
    read_directory,
)
from .state import hard_limits

__all__ = [
    "attach",
    "detach",
    "outline",
    "parts_of",
    "rewrap",
    "state_from_text",
    "state_to_text",
    "verify_state",
]


def outline(blob: bytes | bytearray | memoryview, limits: BlobLimits) -> tuple[Header, tuple[Part, ...]]:
    """Read the header of a blob, and the list of its parts without their bytes. Nothing of it is verified:
    the seal is not checked.

    Raises:
        StateFormatError: It is not a blob.
        StateVersionError: A newer release wrote it.
        StateCorruptError: It ends too early, or lists parts that cannot be.
        StateTooLargeError: It is beyond a limit.
    """
    header = peek(blob)
    source = bytes(blob)
    try:
        check_limit("max_blob_bytes", limits.max_blob_bytes, len(source))
        if header.version not in FORMAT_VERSIONS or header.suite not in SUITES:
            raise frames.newer(
                f"format version {header.version}, suite 0x{header.suite:02x}",
                f"at most version {max(FORMAT_VERSIONS)}, and a suite that is known",
            )
        end = HEADER_BYTES + SEAL_BYTES[header.suite]
        # The header says nothing of the length of the blob, and a column may have cut it.
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


_PREFIX: Final = "gas1."


def state_to_text(state: bytes | bytearray | memoryview) -> str:
    """The state as one line of ASCII letters, digits, ``-``, ``_`` and one dot; a third longer.

    Raises:
        StateError: Not a state.
        TypeError: Not bytes.
    """
    peek(state)
    return _PREFIX + base64.urlsafe_b64encode(state).decode("ascii").rstrip("=")


def state_from_text(text: str) -> bytes:
    """The state that `state_to_text` wrote. It is not verified here, but when something reads the state.

    Raises:
        StateFormatError: The text is not from `state_to_text`, or was changed on the way.
        TypeError: Not a text.
    """
    if not isinstance(text, str):
        raise TypeError(f"a state's text is a str, not {type(text).__name__}; bytes are the state itself")
    given = text.encode("utf-8", "surrogatepass")
    if not text.startswith(_PREFIX):
        raise StateFormatError(
            f"this is not a state's text; expected it to start with {_PREFIX!r}", blob=given
        )
    coded = given[len(_PREFIX) :]
    try:
        state = base64.b64decode(coded + b"=" * (-len(coded) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        state = b""
    if base64.urlsafe_b64encode(state).rstrip(b"=") != coded or not state:
        raise StateFormatError(
            "this state's text is damaged: expected base64url without padding, spaces or line breaks "
            f"behind {_PREFIX!r}; check what cut or changed it",
            blob=given,
        )
    peek(state)
    return state


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
    kinds: Collection[int] = (ARCHIVE, MEDIA, RESULT),
) -> tuple[bytes, tuple[Part, ...]]:
    """Take the parts of these kinds out of a blob: give the head, which lists them at place 1, and the parts.

    A part keeps its stored bytes and its digest; ``attach(head, {part.digest: part.stored})`` puts it back.

    Raises `StateError` if the blob cannot be read.
    """
    segments, parts = blobs.decode_whole(blob, codec=codec, binding=binding, limits=hard_limits(codec))
    # A part that is elsewhere already stays listed as it is. So a second `detach` changes nothing.
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
    # A turn inflates only the segments that it needs, so a damaged old one may stay unseen for months.
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
    # Before the blob is opened: a binding that does not suit the new codec must not cost a decryption.
    target.check(target_binding)
    segments, parts = blobs.decode_whole(blob, codec=codec, binding=binding, limits=hard_limits(codec))
    header = peek(blob)
    is_same = to is None and to_binding is None and header.version == NEWEST
    if is_same and _is_current(header, parts, codec):
        return bytes(blob)
    if to is not None or to_binding is not None:
        parts = tuple(_bare(part, codec, binding, target) for part in parts)
    return blobs.encode(segments, parts, codec=target, binding=target_binding, limits=hard_limits(target))


def _is_current(header: Header, parts: Sequence[Part], codec: Codec) -> bool:
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
