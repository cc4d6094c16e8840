"""Names of conversations: free names, and rules for names.

Owns: how a new name is made. Must never know: a store.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import count
from typing import Final

__all__ = ["MAX_BYTES", "check_name", "copy_name", "free_name"]

MAX_BYTES: Final = 512
_NUMBER: Final = re.compile(r"-\d+$")


def check_name(name: str) -> str:
    """Return the name. ValueError if a conversation cannot have it."""
    if not name.isprintable() or len(name.encode("utf-8", "replace")) > MAX_BYTES:
        raise ValueError(f"a name is one line of at most {MAX_BYTES} bytes")
    return name


def free_name(taken: Collection[str]) -> str:
    """A name for a new conversation: "chat-1", "chat-2", …"""
    return _next("chat", taken)


def copy_name(name: str, taken: Collection[str]) -> str:
    """A name for a copy: "ada-2" for a copy of "ada"."""
    return _next(_NUMBER.sub("", name) or name, {*taken, f"{name}-1"}, 2)


def _next(beginning: str, taken: Collection[str], first: int = 1) -> str:
    return next(name for number in count(first) if (name := f"{beginning}-{number}") not in taken)
