"""The signed suite: HMAC-SHA-256 by the standard library; and the checks that both keyed suites make.

Owns: suite 11, bindings as bytes, PAE, and the age of a state. Must never know: the content of a body. The
layout is drawn in the package's docstring.
"""

from __future__ import annotations

import hmac
import math
import struct
import time
from collections.abc import Mapping
from typing import Final

from ..state.codec import (
    DOMAIN,
    HEADER_BYTES,
    SUITE_HMAC_SHA256,
    UNBOUND,
    Binding,
    BlobLimits,
    authenticated,
    refused,
)
from .keys import Keyring

__all__ = ["Signed", "bound_pieces", "check_age", "check_max_age", "pae"]

_LE64: Final = struct.Struct("<Q").pack


def pae(*pieces: bytes | memoryview) -> bytes:
    """The pieces as one value. Different pieces give different values: PASETO's pre-authentication encoding.

    https://github.com/paseto-standard/paseto-spec/blob/master/docs/01-Protocol-Versions/Common.md
    """
    out: list[bytes | memoryview] = [_LE64(len(pieces))]
    for piece in pieces:
        out += (_LE64(len(piece)), piece)
    return b"".join(out)


def bound_pieces(binding: Binding) -> tuple[bytes, ...]:
    """A binding as names and values in turn, in the order of the names' bytes; nothing for `UNBOUND`.

    Raises:
        ValueError: The binding is missing or empty, or its text is not Unicode.
        TypeError: It is not a mapping from text to text.
    """
    if binding is UNBOUND:
        return ()
    if binding is None:
        raise ValueError(
            "a sealed state needs a binding, and none was given; name the owner: binding={'user': …} here, "
            "in the Chat or in chat.conversation(…); pass binding=UNBOUND for a state without an owner"
        )
    if not isinstance(binding, Mapping):
        raise TypeError(f"binding must be a dict of texts, or UNBOUND, not {type(binding).__name__}")
    if not binding:
        raise ValueError("the binding is empty; name what the state belongs to, or pass binding=UNBOUND")
    pairs = []
    for name, value in binding.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(
                f"a binding holds texts, found {type(name).__name__} and {type(value).__name__}; use str()"
            )
        try:
            pairs.append((name.encode(), value.encode()))
        except UnicodeEncodeError:
            raise ValueError("a binding holds half a surrogate pair, which is no text") from None
    return tuple(piece for pair in sorted(pairs) for piece in pair)


def check_max_age(max_age: float | None) -> None:
    """Refuse a `max_age` that no state could keep. TypeError or ValueError."""
    if max_age is None:
        return
    if isinstance(max_age, bool) or not isinstance(max_age, (int, float)):
        raise TypeError(f"max_age must be seconds or None, not {type(max_age).__name__}")
    if not math.isfinite(max_age) or max_age <= 0:
        raise ValueError(f"max_age must be positive seconds, or None for no end, not {max_age}")


def check_age(written_ms: int, max_age: float | None) -> None:
    """Refuse a state that was written more than `max_age` seconds ago. Raises `StateAuthError`."""
    if max_age is not None and time.time() - written_ms / 1000 > max_age:
        raise refused()


# --------------------------------------------------------------------------------------------- the suite


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

    suite: int = SUITE_HMAC_SHA256
    compresses: bool = True

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
