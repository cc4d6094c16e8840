"""The signed suite: HMAC-SHA-256 by the standard library.

Owns: suite 11. Must never know: the content of a body. The layout is drawn in the package's docstring.
"""

from __future__ import annotations

import hmac
from typing import ClassVar, Final

from ..state.codec import DOMAIN, HEADER_BYTES, SUITE_HMAC_SHA256, Binding, BlobLimits, authenticated, refused
from .binding import bound_pieces, check_age, check_max_age, pae
from .keys import Keyring

__all__ = ["Signed"]

_BODY_AT: Final = HEADER_BYTES + 32


class Signed:
    """A codec for states that other parties may read but not change.

    Args:
        keyring: The first key signs, all of them verify.
        max_age: Seconds after its last turn for which a state is taken. It counts from the time in the
            state (`StateInfo.updated_at`), which appending does not move. None: for ever.
        limits: How large a state may be.

    Raises:
        TypeError: No keyring, or a `max_age` that is no number.
        ValueError: A `max_age` that is not positive.
    """

    __slots__ = ("_keyring", "_limits", "_max_age")

    suite: ClassVar[int] = SUITE_HMAC_SHA256
    compresses: ClassVar[bool] = True

    def __init__(
        self, keyring: Keyring, *, max_age: float | None = None, limits: BlobLimits | None = None
    ) -> None:
        check_keyring(keyring)
        check_max_age(max_age)
        self._keyring = keyring
        self._max_age = max_age
        self._limits = limits

    @property
    def limits(self) -> BlobLimits | None:
        """How large a state may be; None for the defaults."""
        return self._limits

    @property
    def key_id(self) -> int:
        """The id of the key that signs, as it stands in the header."""
        return self._keyring.primary.id

    def __repr__(self) -> str:
        return f"Signed({self._keyring!r}, max_age={self._max_age})"

    def check(self, binding: Binding) -> None:
        """Refuse an unusable binding. ValueError without a binding, TypeError if it is not a dict."""
        bound_pieces(binding)

    def check_age(self, written_ms: int) -> None:
        """Refuse a state written, in milliseconds since the epoch, too long ago. `StateAuthError`."""
        check_age(written_ms, self._max_age)

    def seal(self, header: bytes, body: bytes, binding: Binding, directory: bytes = b"", /) -> bytes:
        """The signed blob."""
        key = self._keyring.primary
        header = header[:12] + key.id.to_bytes(4, "big")
        message = pae(DOMAIN, authenticated(header), *bound_pieces(binding), *_given(directory), body)
        return b"".join((header, key._tag(message), body))

    def open(self, blob: bytes, binding: Binding, directory: bytes = b"", /) -> bytes:
        """The body of an authentic blob. Raises `StateAuthError`."""
        pieces = bound_pieces(binding)
        header, tag, body = blob[:HEADER_BYTES], blob[HEADER_BYTES:_BODY_AT], blob[_BODY_AT:]
        keys = self._keyring.named(int.from_bytes(header[12:], "big"))
        if keys:
            message = pae(DOMAIN, authenticated(header), *pieces, *_given(directory), body)
            for key in keys:
                if hmac.compare_digest(tag, key._tag(message)):
                    return body
        raise refused()


def _given(directory: bytes) -> tuple[bytes, ...]:
    """Give the directory as a piece of its own; () without parts. The header tells the two apart."""
    return (directory,) if directory else ()


def check_keyring(keyring: object) -> None:
    """TypeError for anything that is not a `Keyring`."""
    if not isinstance(keyring, Keyring):
        raise TypeError(f"expected a Keyring, not {type(keyring).__name__}; pass Keyring(key)")
