"""Cuts a scripted text into the pieces of a stream.

Owns: where a text is cut. Must never know: a provider API.
"""

from __future__ import annotations

__all__ = ["words"]


def words(text: str) -> list[str]:
    """The words of the text, each with the space after it. Empty text has no words."""
    pieces = text.split(" ")
    return [piece + " " for piece in pieces[:-1]] + pieces[-1:] if text else []
