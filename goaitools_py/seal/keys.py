"""Keys and keyrings.

Owns: the values derived from a key, the text form of a key, and which key opens which blob. Must never know:
a blob.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from typing import Final

from ..state.codec import DOMAIN

__all__ = ["Key", "Keyring", "hkdf"]

_KEY_BYTES: Final = 32
_TEXT_PREFIX: Final = "gask1."
_MAX_KEYS: Final = 16
_HASH_BYTES: Final = 32


def hkdf(secret: bytes, info: bytes, size: int, salt: bytes = b"") -> bytes:
    """HKDF-SHA-256, extract and expand (RFC 5869, https://www.rfc-editor.org/rfc/rfc5869)."""
    extracted = hmac.digest(salt or bytes(_HASH_BYTES), secret, "sha256")
    block = out = b""
    for number in range(1, -(-size // _HASH_BYTES) + 1):
        block = hmac.digest(extracted, block + info + bytes((number,)), "sha256")
        out += block
    return out[:size]


class Key:
    """A secret of 32 random bytes. Its repr shows only its id, which each blob of the key also contains.

    Args:
        secret: 32 bytes from a source of randomness, such as a key store. A password is not one.

    Raises:
        TypeError: The secret is no bytes.
        ValueError: The secret does not have 32 bytes.
    """

    __slots__ = ("_hedge", "_id", "_mac", "_secret")

    def __init__(self, secret: bytes, /) -> None:
        if not isinstance(secret, bytes):
            raise TypeError(
                f"a key is made of {_KEY_BYTES} bytes, not of {type(secret).__name__}; "
                "read a text with Key.from_text"
            )
        if len(secret) != _KEY_BYTES:
            raise ValueError(
                f"a key has {_KEY_BYTES} random bytes, found {len(secret)}; make one with Key.generate()"
            )
        self._secret = secret
        self._id = int.from_bytes(hkdf(secret, DOMAIN + b"/kid", 4), "big")
        self._mac = hmac.new(hkdf(secret, DOMAIN + b"/mac", 32), digestmod="sha256")
        self._hedge = hkdf(secret, DOMAIN + b"/salt", 32)

    def _tag(self, message: bytes) -> bytes:
        """HMAC-SHA-256 of a message. The key is prepared once, a third of the time of a short one."""
        mac = self._mac.copy()
        mac.update(message)
        return mac.digest()

    def _salt(self, message: bytes) -> bytes:
        """32 bytes for a new blob that depend on the whole message. A reader does not compute them again, so
        the fastest keyed hash will do."""
        return hashlib.blake2b(message, key=self._hedge, digest_size=32).digest()

    @property
    def id(self) -> int:
        """The id of the key in the header of a blob. It is derived from the key, and is not secret."""
        return self._id

    @classmethod
    def generate(cls) -> Key:
        """A new key from the random numbers of the system."""
        return cls(os.urandom(_KEY_BYTES))

    @classmethod
    def from_text(cls, text: str) -> Key:
        """The key that `to_text` wrote; white space around it does not matter.

        Raises:
            TypeError: Not a text.
            ValueError: Not the text of a key. The error does not show it.
        """
        if not isinstance(text, str):
            raise TypeError(f"a key's text is a str, not {type(text).__name__}")
        text = text.strip()
        expected = f"expected {_TEXT_PREFIX!r} and 43 characters of base64url; make one with Key.generate()"
        if not text.startswith(_TEXT_PREFIX):
            raise ValueError(f"this is not the text of a key: it has another beginning; {expected}")
        coded = text.removeprefix(_TEXT_PREFIX)
        try:
            secret = base64.b64decode(coded + "=", altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            secret = b""
        if len(secret) != _KEY_BYTES or _coded(secret) != coded:
            raise ValueError(
                f"this is not the text of a key: it was cut or changed, {len(coded)} characters are behind "
                f"its beginning; {expected}"
            )
        return cls(secret)

    def to_text(self) -> str:
        """The key as a text of one line, to be kept where secrets are kept."""
        return _TEXT_PREFIX + _coded(self._secret)

    def __repr__(self) -> str:
        return f"Key(id={self._id:08x})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash(self._id)


def _coded(secret: bytes) -> str:
    return base64.urlsafe_b64encode(secret).decode("ascii").rstrip("=")


class Keyring:
    """Keys of one purpose: the first one writes, all of them read.

    Args:
        primary: The key that seals.
        fallbacks: Keys that still open, or that will seal after the next deployment.

    Raises:
        TypeError: Something is no `Key`.
        ValueError: More than 16 keys.
    """

    __slots__ = ("_by_id", "_keys")

    def __init__(self, primary: Key, /, *fallbacks: Key) -> None:
        keys = (primary, *fallbacks)
        for key in keys:
            if not isinstance(key, Key):
                raise TypeError(f"a keyring holds keys, not {type(key).__name__}; see Key.from_text")
        if len(keys) > _MAX_KEYS:
            raise ValueError(f"a keyring holds at most {_MAX_KEYS} keys, found {len(keys)}; retire old ones")
        self._keys = tuple(dict.fromkeys(keys))
        by_id: dict[int, tuple[Key, ...]] = {}
        for key in self._keys:
            by_id[key.id] = (*by_id.get(key.id, ()), key)
        self._by_id = by_id

    @property
    def primary(self) -> Key:
        """The key that seals."""
        return self._keys[0]

    def named(self, id: int) -> tuple[Key, ...]:
        """The keys with this id: usually one or zero. By a rare chance several keys have one id."""
        return self._by_id.get(id, ())

    def __repr__(self) -> str:
        return f"Keyring({', '.join(map(repr, self._keys))})"
