"""The compression dictionaries that this package ships, by number.

Owns: their bytes, their frozen hashes. Must never know: the texts that are compressed with them.
A dictionary is kept for ever, byte for byte: blobs written with it cannot be read without it. A better
one gets the next number. `tests/golden/dictionary` has the text that number 1 was made from, and the
script that made it.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache

from ...types.errors import GoAIToolsError

__all__ = ["SHA256", "load", "sha256"]

SHA256: dict[int, str] = {
    1: "9f75d1afbf71528a56aba9adb962f4fbacc649d39b5ca4daa998c796270a4eee",
}
"""Number -> SHA-256 of the dictionary's file. A line is only ever added."""


@cache
def load(number: int) -> bytes:
    """The bytes of a dictionary, read from disk on first use.

    Raises:
        KeyError: There is no dictionary of that number.
        GoAIToolsError: The installed file differs from the shipped file. The blob is good. So this is not a
            `StateError`, and no policy may discard the blob for it.
    """
    expected = SHA256[number]
    with open(os.path.join(os.path.dirname(__file__), f"dict{number}.zdict"), "rb") as file:
        content = file.read()
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise GoAIToolsError(
            f"the installed compression dictionary {number} is damaged: its SHA-256 starts with "
            f"{found[:16]}, expected {expected[:16]}; reinstall goaitools-py"
        )
    return content


@cache
def sha256(number: int) -> bytes:
    """The 32-byte hash of a dictionary, which every digest of a blob written with it covers."""
    return bytes.fromhex(SHA256[number])
