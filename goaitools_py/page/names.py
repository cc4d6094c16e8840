"""Names of conversations in addresses: any key of a store as a name that the server takes, and back.

Owns: that spelling. Must never know: a store, or HTTP.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from ..frontends import AskError

__all__ = ["key_of", "name_of"]

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
    if not name.startswith(_SIGN):
        return name
    coded = name[1:]
    try:
        key = base64.b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        key = ""
    if not key or "\0" in key or name_of(key) != name:
        raise AskError("this is not the name of a conversation")
    return key
