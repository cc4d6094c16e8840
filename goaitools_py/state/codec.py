"""How the body of a blob is protected: the protocol of codecs, and the plain codec.

Owns: suites, bindings, limits, the plain digest. Must never know: a segment, or the content of a body.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Protocol, TypeAlias, runtime_checkable

from ..base.values import ByShape, Given
from ..types.errors import StateAuthError, StateCorruptError, StateTooLargeError
from . import dictionary, frames

__all__ = [
    "DOMAIN",
    "HEADER_BYTES",
    "LIMITS",
    "PLAIN",
    "SEAL_BYTES",
    "SUITES",
    "SUITE_AES_256_GCM",
    "SUITE_HMAC_SHA256",
    "SUITE_PLAIN",
    "UNBOUND",
    "Binding",
    "BlobLimits",
    "Codec",
    "PartCodec",
    "Plain",
    "Unbound",
    "authenticated",
    "check_limit",
    "hard_limits",
    "refused",
    "soft_limits",
]

HEADER_BYTES: Final = 16
DOMAIN: Final = b"goaitools/state/v1"
"""Starts the input of every digest, MAC and key derivation of this format."""

SUITE_PLAIN: Final = 0x00
SUITE_HMAC_SHA256: Final = 0x11
SUITE_AES_256_GCM: Final = 0x21
SUITES: Final = {SUITE_PLAIN: "plain", SUITE_HMAC_SHA256: "signed", SUITE_AES_256_GCM: "encrypted"}
_DIGEST_BYTES: Final = 16
SEAL_BYTES: Final = {SUITE_PLAIN: _DIGEST_BYTES, SUITE_HMAC_SHA256: 32, SUITE_AES_256_GCM: 64}
"""The length of the seal, in bytes. It stands between the header and the directory, or else the body."""


class BlobLimits(Given, frozen=True, kw_only=True):
    """How large a state may be. Writing checks it, and reading checks it before anything is allocated.

    A paid reply may make a state up to twice as large. This state can be read; see `hard_limits`.

    Raises:
        TypeError: A limit is not a whole number.
        ValueError: A limit is too small for one short exchange and its records.
    """

    max_blob_bytes: int = 4 * 2**20
    """The blob as stored, with the parts that are in it."""
    max_decoded_bytes: int = 16 * 2**20
    """All segments together, inflated."""
    max_entries: int = 10_000
    """Wire entries of all segments together."""
    max_segments: int = 1024
    """Four times the number of 64 KiB segments in 16 MiB."""
    max_meta_bytes: int = 256 * 2**10
    """The meta, inflated. It is read on every turn and does not grow with the history."""
    max_values: int = 1_000_000
    """JSON values of all segments together: the commas and opening brackets outside of strings. A value of
    two bytes takes a hundred in memory, so the limits on bytes would let a small blob take gigabytes."""
    max_archive_bytes: int = 256 * 2**20
    """All parts of the archive as stored, in the blob and elsewhere."""
    max_media_bytes: int = 256 * 2**20
    """All parts with media as stored, in the blob and elsewhere."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an int, not {type(value).__name__}")
            if value < least:
                raise ValueError(
                    f"{name}={value} is too small for one short exchange; expected at least {least}"
                )


_LEAST: Final[Mapping[str, int]] = {
    "max_blob_bytes": 4 * 2**10,
    "max_decoded_bytes": 16 * 2**10,
    "max_entries": 16,
    "max_segments": 8,
    "max_meta_bytes": 8 * 2**10,
    "max_values": 2_000,
    "max_archive_bytes": 0,
    "max_media_bytes": 0,
}
"""The meta data alone have up to 7 KiB inflated, with 64 turn ids, 64 event ids and 16 cuts. Under smaller
limits a cut keeps fewer of them."""

LIMITS: Final = BlobLimits()


def check_limit(name: str, limit: int, found: int) -> None:
    """Raise `StateTooLargeError` if `found` is beyond the limit."""
    if found > limit:
        raise StateTooLargeError(
            f"state is too large: found {found}, expected at most {name}={limit}; "
            f"compact the conversation, or give its codec limits=BlobLimits({name}=…)",
            limit_name=name,
            limit=limit,
        )


class Unbound(enum.Enum):
    """The type of `UNBOUND`."""

    UNBOUND = "UNBOUND"

    def __repr__(self) -> str:
        return "UNBOUND"


UNBOUND: Final = Unbound.UNBOUND
"""Says explicitly that a sealed blob has no owner."""

Binding: TypeAlias = Mapping[str, str] | Unbound | None


class Codec(Protocol):
    """Protects the body of a blob. The suite byte fixes every algorithm; nothing is negotiated.

    A codec raises its errors without `blob`: `decode` adds it.
    """

    @property
    def suite(self) -> int:
        """The header's suite byte, the only one this codec opens."""
        ...

    @property
    def compresses(self) -> bool:
        """False if the length of a blob must not show how well its content compresses."""
        ...

    @property
    def key_id(self) -> int:
        """The key id in the header of new blobs; 0 without a key."""
        ...

    def check(self, binding: Binding) -> None:
        """Refuse a binding that this codec cannot use. A turn calls it before any other work.

        Raises ValueError or TypeError. `None` means that the caller gave no binding.
        """
        ...

    def check_age(self, written_ms: int) -> None:
        """Refuse a state that is too old. `written_ms`: when it was written, in milliseconds since the epoch.

        Raises `StateAuthError`. It is called after `open`: the time stands in the body.
        """
        ...

    def seal(self, header: bytes, body: bytes, binding: Binding, directory: bytes = b"", /) -> bytes:
        """Give header, seal and body. `header` has key id 0, which a keyed codec replaces by its own.

        `directory` is authenticated, and is not in the result. It is passed only if there are parts.
        """
        ...

    def open(self, blob: bytes, binding: Binding, directory: bytes = b"", /) -> bytes:
        """Check the seal and give the body. The header is known to be valid. `blob` is header, seal and body.

        Raises `StateCorruptError` (plain) or `StateAuthError` (keyed) if any byte has changed since `seal`,
        also in ``authenticated(header)`` and in the directory.
        """
        ...


@runtime_checkable
class PartCodec(Protocol, metaclass=ByShape):
    """Additional methods of a codec of suite 21. It encrypts each part once, and turns carry it unchanged."""

    def seal_part(self, named: tuple[bytes, ...], packed: bytes, binding: Binding) -> bytes:
        """Encrypt a part. `named` is authenticated with it: kind, raw length and entries."""
        ...

    def open_part(self, named: tuple[bytes, ...], stored: bytes, binding: Binding) -> bytes:
        """Decrypt a part: give its packed bytes. Raises `StateAuthError`."""
        ...


def authenticated(header: bytes) -> bytes:
    """Give the bytes that every codec must authenticate beside the body: the header, and a dictionary's hash.

    The hash is there if the compression uses a dictionary. It ensures that the reader uses the same one.
    """
    number = frames.DICTIONARIES[header[6]]
    return header if number is None else header + dictionary.sha256(number)


def refused() -> StateAuthError:
    """Make the error of a failed authentication. It is always the same, and tells an attacker nothing."""
    return StateAuthError(
        "state was refused: it is not authentic under the codec's keys and this binding, or older than "
        "allowed; check the keyring, binding=, max_age= and min_revision=, and if they are as they should "
        "be, treat the state as forged"
    )


class Plain(Given, frozen=True, kw_only=True):
    """A digest that finds accidental damage, for trusted storage. `PLAIN` is this codec with default limits.

    ``Chat(backend, codec=Plain(limits=BlobLimits(max_decoded_bytes=64 * 2**20)))``. Give the same limits
    wherever this state is read.
    """

    suite: int = SUITE_PLAIN
    compresses: bool = True
    key_id: int = 0

    limits: BlobLimits | None = None
    """How large a state may be; None for the default limits."""

    def __repr__(self) -> str:
        return "PLAIN" if self.limits is None else f"Plain(limits={self.limits!r})"

    def seal(self, header: bytes, body: bytes, binding: Binding, directory: bytes = b"", /) -> bytes:
        """Give header, digest and body."""
        self.check(binding)
        return b"".join((header, self._digest(header, directory, body), body))

    def open(self, blob: bytes, binding: Binding, directory: bytes = b"", /) -> bytes:
        """Give the body. Raises `StateCorruptError` if the digest does not match."""
        self.check(binding)
        header, found, body = (
            blob[:HEADER_BYTES],
            blob[HEADER_BYTES : HEADER_BYTES + _DIGEST_BYTES],
            blob[HEADER_BYTES + _DIGEST_BYTES :],
        )
        if not hmac.compare_digest(found, self._digest(header, directory, body)):
            raise StateCorruptError(
                f"state is damaged: the digest does not match, so some of its {len(blob)} bytes were changed "
                f"or others are missing; {frames.RESTORE}"
            )
        # Behind the digest, so that a changed byte is named as damage, and not as a key.
        if header[12:] != bytes(4):
            raise StateCorruptError(
                f"state is damaged: a plain blob names a key, expected none; {frames.RESTORE}"
            )
        return body

    @staticmethod
    def _digest(header: bytes, directory: bytes, body: bytes) -> bytes:
        digest = hashlib.sha256(DOMAIN + authenticated(header) + directory)
        digest.update(body)
        return digest.digest()[:_DIGEST_BYTES]

    def check(self, binding: Binding) -> None:
        """Raise ValueError for a binding: a plain blob authenticates nothing."""
        if binding is not None and binding is not UNBOUND:
            raise ValueError(
                "a plain blob authenticates nothing, so it cannot be bound to an owner; "
                "expected binding=None, or a signed or encrypted codec"
            )

    def check_age(self, written_ms: int) -> None:
        """A plain state never expires."""


PLAIN: Final[Codec] = Plain()
"""The codec for trusted storage. It finds accidental damage. It hides nothing and stops no attacker."""


def soft_limits(codec: Codec) -> BlobLimits:
    """Give the limits that a turn must keep when it writes: the codec's limits, else the defaults."""
    return getattr(codec, "limits", None) or LIMITS


def hard_limits(codec: Codec) -> BlobLimits:
    """Give twice the soft limits. Up to these a paid reply is stored, and its state can be read again."""
    return _twice(soft_limits(codec))


@lru_cache(maxsize=16)  # every turn needs it, and a program uses few different limits
def _twice(soft: BlobLimits) -> BlobLimits:
    return BlobLimits(**{name: 2 * getattr(soft, name) for name in BlobLimits.__struct_fields__})
