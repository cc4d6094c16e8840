"""How the body of a blob is protected: what a codec is, and the plain one.

Owns: suites, bindings, limits, the plain digest. Must never know: a segment, or what a body holds.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections.abc import Mapping
from typing import ClassVar, Final, Protocol, TypeAlias

from ..errors import StateAuthError, StateCorruptError
from ..values import Value
from . import dictionary, frames

__all__ = [
    "DOMAIN",
    "HEADER_BYTES",
    "LIMITS",
    "PLAIN",
    "SUITES",
    "SUITE_AES_256_GCM",
    "SUITE_HMAC_SHA256",
    "SUITE_PLAIN",
    "UNBOUND",
    "Binding",
    "BlobLimits",
    "Codec",
    "Plain",
    "Unbound",
    "authenticated",
    "refused",
]

HEADER_BYTES: Final = 16
DOMAIN: Final = b"goaitools/state/v1"
"""Starts the input of every digest, MAC and key derivation of this format."""

SUITE_PLAIN: Final = 0x00
SUITE_HMAC_SHA256: Final = 0x11
SUITE_AES_256_GCM: Final = 0x21
SUITES: Final = {SUITE_PLAIN: "plain", SUITE_HMAC_SHA256: "signed", SUITE_AES_256_GCM: "encrypted"}
_DIGEST_BYTES: Final = 16


class BlobLimits(Value, frozen=True, kw_only=True):
    """How large a state may be. Enforced when writing and, before anything is allocated, when reading.

    What is paid for may take a state up to twice these limits, and is read again; see `hard_limits`.

    Raises:
        TypeError: A limit is no whole number.
        ValueError: A limit is too small for a short exchange and what a state records beside it.
    """

    max_blob_bytes: int = 4 * 2**20
    """The blob as stored."""
    max_decoded_bytes: int = 16 * 2**20
    """All segments together, inflated."""
    max_entries: int = 10_000
    """Wire entries of all segments together."""
    max_segments: int = 1024
    """Four times what 16 MiB fill when segments are sealed at 64 KiB."""
    max_meta_bytes: int = 256 * 2**10
    """The meta, inflated. It is read on every turn and does not grow with the history."""

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
}
"""The meta alone, with 64 turn ids, 64 event ids and 16 cuts in it, has up to 7 KiB inflated; of these a cut
keeps fewer where the blob is smaller."""

LIMITS: Final = BlobLimits()


class Unbound(enum.Enum):
    """The type of `UNBOUND`."""

    UNBOUND = "UNBOUND"

    def __repr__(self) -> str:
        return "UNBOUND"


UNBOUND: Final = Unbound.UNBOUND
"""Says on purpose that a sealed blob belongs to nobody in particular."""

Binding: TypeAlias = Mapping[str, str] | Unbound | None


class Codec(Protocol):
    """How a body is protected. The suite byte fixes every algorithm; nothing is negotiated.

    Errors need not carry the blob: `decode` puts it there.
    """

    @property
    def suite(self) -> int:
        """The header's suite byte, the only one this codec opens."""
        ...

    @property
    def compresses(self) -> bool:
        """False where the length of a blob must not tell how well its content compresses."""
        ...

    @property
    def key_id(self) -> int:
        """The key id in the header of what this codec seals; 0 without a key."""
        ...

    def check(self, binding: Binding) -> None:
        """Refuse a binding that this codec cannot use, before anything is done.

        Raises ValueError or TypeError. `None` says that the caller named none.
        """
        ...

    def check_age(self, written_ms: int) -> None:
        """Refuse a state that was written too long ago, in milliseconds since the epoch.

        Raises `StateAuthError`. Asked once the time is known, so after `open`.
        """
        ...

    def seal(self, header: bytes, body: bytes, binding: Binding) -> bytes:
        """The finished blob. `header` has key id 0, which a keyed codec replaces by its own."""
        ...

    def open(self, blob: bytes, binding: Binding) -> bytes:
        """The body of a blob whose header is known to be sound.

        Raises `StateCorruptError` (plain) or `StateAuthError` (keyed) if any byte differs from what
        `seal` made, including those of ``authenticated(header)``.
        """
        ...


def authenticated(header: bytes) -> bytes:
    """What every codec must authenticate beside the body: the header and the dictionary's hash, if any.

    With the hash in it, a body can never be inflated with another dictionary than its writer's.
    """
    number = frames.DICTIONARIES[header[6]]
    return header if number is None else header + dictionary.sha256(number)


def refused() -> StateAuthError:
    """What every failed authentication says: whoever tries blobs learns nothing from the answers."""
    return StateAuthError(
        "state was refused: it is not authentic under the codec's keys and this binding, or older than "
        "allowed; check the keyring, binding=, max_age= and min_revision=, and if they are as they should "
        "be, treat the state as forged"
    )


class Plain(Value, frozen=True, kw_only=True):
    """A digest against accidents, for storage that is trusted; `PLAIN` is one with the usual limits.

    ``Chat(backend, codec=Plain(limits=BlobLimits(max_decoded_bytes=64 * 2**20)))``. What is larger than usual
    is read only where the same limits are given.
    """

    suite: ClassVar[int] = SUITE_PLAIN
    compresses: ClassVar[bool] = True
    key_id: ClassVar[int] = 0

    limits: BlobLimits | None = None
    """How large a state may be; None for the usual limits."""

    def __repr__(self) -> str:
        return "PLAIN" if self.limits is None else f"Plain(limits={self.limits!r})"

    def seal(self, header: bytes, body: bytes, binding: Binding) -> bytes:
        """Header, digest, body."""
        self.check(binding)
        return b"".join((header, self._digest(header, body), body))

    def open(self, blob: bytes, binding: Binding) -> bytes:
        """The body, if the digest is its own; else `StateCorruptError`."""
        self.check(binding)
        header, found, body = (
            blob[:HEADER_BYTES],
            blob[HEADER_BYTES : HEADER_BYTES + _DIGEST_BYTES],
            blob[HEADER_BYTES + _DIGEST_BYTES :],
        )
        if not hmac.compare_digest(found, self._digest(header, body)):
            raise StateCorruptError(
                f"state is damaged: the digest does not match, so some of its {len(blob)} bytes were changed "
                f"or others are missing; {frames.RESTORE}"
            )
        if header[12:] != bytes(4):
            raise StateCorruptError(
                f"state is damaged: a plain blob names a key, expected none; {frames.RESTORE}"
            )
        return body

    @staticmethod
    def _digest(header: bytes, body: bytes) -> bytes:
        digest = hashlib.sha256(DOMAIN + authenticated(header))
        digest.update(body)
        return digest.digest()[:_DIGEST_BYTES]

    def check(self, binding: Binding) -> None:
        """ValueError for a binding: nothing would authenticate it."""
        if binding is not None and binding is not UNBOUND:
            raise ValueError(
                "a plain blob authenticates nothing, so it cannot be bound to anybody; "
                "expected binding=None, or a signed or encrypted codec"
            )

    def check_age(self, written_ms: int) -> None:
        """A plain state has no end."""


PLAIN: Final[Codec] = Plain()
"""The codec for storage that you trust: finds accidents, hides nothing, stops nobody."""
