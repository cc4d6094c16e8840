"""Cuts a scripted text into the pieces in which a stream says it.

Owns: where a text is cut. Must never know: a wire.
"""

from __future__ import annotations

__all__ = ["words"]


def words(text: str) -> list[str]:
    """The text word by word, each with the space after it; nothing for no text."""
    pieces = text.split(" ")
    return [piece + " " for piece in pieces[:-1]] + pieces[-1:] if text else []
