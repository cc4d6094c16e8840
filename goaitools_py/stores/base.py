"""What a store is: blobs under keys, saved with compare-and-swap.

Owns: the protocol and its values. Must never know: an engine, or what is in a blob.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

__all__ = ["Store", "Stored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A blob with the version that the next save must name."""

    blob: bytes = field(repr=False)
    version: int
    updated_at: datetime


class Store(Protocol):
    """Keeps one blob for each key."""

    def load(self, key: str) -> Stored | None:
        """The blob under `key`, or None. Raises `StoreUnavailableError`."""
        ...

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """Save if the stored version is still `expected` (None: nothing is stored yet).

        Returns the new version. Raises `StateConflictError` if somebody else was first, and
        `StoreUnavailableError`.
        """
        ...
