"""The checks of a keyed codec beside the body: the owner of the blob, and when it was written.

Owns: bindings as bytes, PAE, the age of a state. Must never know: a key or an algorithm.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Mapping
from typing import Final

from ..state.codec import UNBOUND, Binding, refused

__all__ = ["bound_pieces", "check_age", "check_max_age", "pae"]

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
