"""A blob as text, for cookies, JSON and columns that hold text only.

Owns: ``gas1.`` and base64url without padding. Must never know: the content of a blob.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from ..types.errors import StateFormatError
from .blob import peek

__all__ = ["state_from_text", "state_to_text"]

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
