"""Names of conversations in addresses: any key of a store as a name that the server takes, and back.

Owns: that spelling. Must never know: a store, or HTTP.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from ...frontends import AskError

__all__ = ["key_of", "key_of_copy", "name_of"]

_PLAIN: Final = re.compile(r"[A-Za-z0-9._@:+-]{1,128}")
_SIGN: Final = "~"
_MOST: Final = 128


def name_of(key: str) -> str | None:
    """Spell a key as a name. None for a key that is too long: no address leads to it.

    A key of letters, digits and ``. _ @ : + -`` is its own name. Any other is ``~`` and its UTF-8 in base64.
    """
    if _PLAIN.fullmatch(key) and key.strip("."):
        return key
    name = _SIGN + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
    return name if len(name) <= _MOST else None


def key_of(name: str) -> str:
    """Give the key of a name. Raises `AskError` for a name that `name_of` does not write."""
    key = _decoded(name[1:]) if name.startswith(_SIGN) else name
    if not key or "\0" in key or name_of(key) != name:
        raise AskError("this is not the name of a conversation")
    return key


def _decoded(coded: str) -> str:
    try:
        return base64.b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):  # also for text that is not ASCII
        return ""


def key_of_copy(key: str, mark: str) -> str:
    """Give a key for a copy: the key, or as much of it as an address has room for, and a mark behind it."""
    while name_of(copy := f"{key}-{mark}") is None:
        key = key[:-1]
    return copy
