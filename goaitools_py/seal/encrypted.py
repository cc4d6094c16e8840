"""The encrypted suite: AES-256-GCM with a key for each blob, which the blob commits to.

Owns: suite 21. Must never know: the content of a body. The layout is drawn in the package's docstring.
AES comes from `cryptography` (the extra ``[crypto]``), imported when a codec is made.
"""

from __future__ import annotations

import hmac
import os
from typing import Final, Literal

from ..state.codec import DOMAIN, HEADER_BYTES, SUITE_AES_256_GCM, Binding, BlobLimits, authenticated, refused
from ..state.frames import corrupt
from .keys import Key, Keyring
from .signed import bound_pieces, check_age, check_keyring, check_max_age, pae

__all__ = ["Encrypted"]

_INFO: Final = DOMAIN + b"/aes-256-gcm"
_PART_DOMAIN: Final = DOMAIN + b"/part"
_COMMITMENT_AT: Final = HEADER_BYTES + 32
_SEALED_AT: Final = _COMMITMENT_AT + 32
_PADDED_TO: Final = 256
_LENGTH_BYTES: Final = 4


class Encrypted:
    """A codec for states that other parties may neither read nor change. Needs the extra ``[crypto]``.

    The length of compressed data tells much about its content. An attacker who can add text to a conversation
    and sees the length of its blob can guess secrets in it. So say who sees the blob.

    Args:
        keyring: The first key encrypts, all of them decrypt.
        visible_to: "server": it stays in a database of your own, and is compressed. "client": it goes to
            a browser or a game client, is not compressed, and its length is rounded up to 256 bytes.
        max_age: Seconds after its last turn for which a state is taken. It counts from the time in the
            state (`StateInfo.updated_at`), which appending does not move. None: for ever.
        limits: How large a state may be.

    Raises:
        ImportError: `cryptography` is not installed.
        TypeError: No keyring, or a `max_age` that is no number.
        ValueError: Another `visible_to`, or a `max_age` that is not positive.
    """

    __slots__ = (
        "_aes",
        "_hkdf",
        "_keyring",
        "_limits",
        "_max_age",
        "_refusal",
        "_sha256",
        "_visible_to",
    )

    def __init__(
        self,
        keyring: Keyring,
        *,
        visible_to: Literal["server", "client"] = "server",
        max_age: float | None = None,
        limits: BlobLimits | None = None,
    ) -> None:
        check_keyring(keyring)
        check_max_age(max_age)
        if visible_to not in ("server", "client"):
            raise ValueError(f"visible_to must be 'server' or 'client', not {visible_to!r}")
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ImportError as exc:
            raise ImportError(
                "Encrypted needs the package cryptography: pip install 'goaitools-py[crypto]'"
            ) from exc
        self._aes = AESGCM
        self._hkdf = HKDF
        self._sha256 = SHA256()
        self._refusal = InvalidTag
        self._keyring = keyring
        self._visible_to = visible_to
        self._max_age = max_age
        self._limits = limits

    @property
    def suite(self) -> int:
        """The header's suite byte."""
        return SUITE_AES_256_GCM

    @property
    def compresses(self) -> bool:
        """False if clients see the blob."""
        return self._visible_to == "server"

    @property
    def limits(self) -> BlobLimits | None:
        """How large a state may be; None for the defaults."""
        return self._limits

    @property
    def key_id(self) -> int:
        """The id of the key that encrypts, as it stands in the header."""
        return self._keyring.primary.id

    def __repr__(self) -> str:
        return f"Encrypted({self._keyring!r}, visible_to={self._visible_to!r}, max_age={self._max_age})"

    def check(self, binding: Binding) -> None:
        """Refuse an unusable binding. ValueError without a binding, TypeError if it is not a dict."""
        bound_pieces(binding)

    def check_age(self, written_ms: int) -> None:
        """Refuse a state written, in milliseconds since the epoch, too long ago. `StateAuthError`."""
        check_age(written_ms, self._max_age)

    def seal(self, header: bytes, body: bytes, binding: Binding, directory: bytes = b"", /) -> bytes:
        """The encrypted blob."""
        pieces = bound_pieces(binding)
        key = self._keyring.primary
        header = header[:12] + key.id.to_bytes(4, "big")
        whole = authenticated(header)
        if directory:
            pieces = (*pieces, directory)
        inner = self._inner(body)
        salt = key._salt(pae(os.urandom(32), whole, *pieces, inner))
        aes_key, nonce, commitment = self._derived(key, salt)
        sealed = self._aes(aes_key).encrypt(nonce, inner, pae(DOMAIN, whole, salt, *pieces))
        return b"".join((header, salt, commitment, sealed))

    def seal_part(self, named: tuple[bytes, ...], packed: bytes, binding: Binding) -> bytes:
        """The stored bytes of a part. Each has a salt of its own, and so a key of its own."""
        key = self._keyring.primary
        associated = pae(_PART_DOMAIN, *named, *bound_pieces(binding))
        inner = self._inner(packed)
        salt = key._salt(pae(os.urandom(32), associated, inner))
        aes_key, nonce, commitment = self._derived(key, salt)
        sealed = self._aes(aes_key).encrypt(nonce, inner, associated)
        return b"".join((key.id.to_bytes(4, "big"), salt, commitment, sealed))

    def open_part(self, named: tuple[bytes, ...], stored: bytes, binding: Binding) -> bytes:
        """The packed bytes of an authentic part. Raises `StateAuthError`."""
        associated = pae(_PART_DOMAIN, *named, *bound_pieces(binding))
        salt, commitment, sealed = stored[4:36], stored[36:68], stored[68:]
        for key in self._keyring.named(int.from_bytes(stored[:4], "big")):
            aes_key, nonce, expected = self._derived(key, salt)
            if not hmac.compare_digest(expected, commitment):
                continue
            inner = self._decrypted(aes_key, nonce, sealed, associated)
            if inner is not None:
                return _content(inner)
        raise refused()

    def _inner(self, content: bytes) -> bytes:
        """The bytes to encrypt: length, content, and zeros if clients see how long it is."""
        zeros = b"" if self.compresses else bytes(-(_LENGTH_BYTES + len(content)) % _PADDED_TO)
        return b"".join((len(content).to_bytes(_LENGTH_BYTES, "big"), content, zeros))

    def open(self, blob: bytes, binding: Binding, directory: bytes = b"", /) -> bytes:
        """The body of an authentic blob. Raises `StateAuthError`."""
        pieces = (*bound_pieces(binding), directory) if directory else bound_pieces(binding)
        header, salt = blob[:HEADER_BYTES], blob[HEADER_BYTES:_COMMITMENT_AT]
        for key in self._keyring.named(int.from_bytes(header[12:], "big")):
            aes_key, nonce, commitment = self._derived(key, salt)
            if not hmac.compare_digest(commitment, blob[_COMMITMENT_AT:_SEALED_AT]):
                continue
            associated = pae(DOMAIN, authenticated(header), salt, *pieces)
            inner = self._decrypted(aes_key, nonce, blob[_SEALED_AT:], associated)
            if inner is not None:
                return _body(header, inner)
        raise refused()

    def _derived(self, key: Key, salt: bytes) -> tuple[bytes, bytes, bytes]:
        """The AES key, the nonce and the commitment of one blob."""
        info = _INFO + key.id.to_bytes(4, "big")
        okm = self._hkdf(self._sha256, 76, salt, info).derive(key._secret)
        return okm[:32], okm[32:44], okm[44:]

    def _decrypted(self, aes_key: bytes, nonce: bytes, sealed: bytes, associated: bytes) -> bytes | None:
        try:
            return self._aes(aes_key).decrypt(nonce, sealed, associated)
        except self._refusal:
            return None


def _body(header: bytes, inner: bytes) -> bytes:
    """The body of a decrypted blob. An error here was written by a holder of the key."""
    if header[8:12] != bytes(4):
        raise corrupt("an encrypted blob states a decoded length in its header, expected none")
    return _content(inner)


def _content(inner: bytes) -> bytes:
    end = _LENGTH_BYTES + int.from_bytes(inner[:_LENGTH_BYTES], "big")
    padding = len(inner) - end
    if not 0 <= padding < _PADDED_TO or inner.count(0, end) != padding:
        raise corrupt("what was encrypted is not a length, a body of that length, and fewer than 256 zeros")
    return inner[_LENGTH_BYTES:end]
