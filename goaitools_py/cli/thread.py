"""One conversation in a store, saved with compare-and-swap.

Owns: the newest blob and the version that the next save must name. Must never know: a model or a terminal.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import StateConflictError

if TYPE_CHECKING:
    from ..stores import Store

__all__ = ["Thread"]


class Thread:
    """The conversation under one key. `blob` is b"" before its first turn.

    Where the store does not answer, `StoreUnavailableError` is raised and `blob` is the newest all the same.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self.blob = b""
        self._store = store
        self._version: int | None = None
        self._load()

    def _load(self) -> None:
        stored = self._store.load(self.name)
        self._version = None if stored is None else stored.version
        if stored is not None:
            self.blob = stored.blob

    def save(self, blob: bytes) -> str | None:
        """Make `blob` the newest state.

        Returns:
            None. Or, if somebody else has saved meanwhile: the name of a new thread that holds `blob`;
            this thread goes on from what the other one saved.
        """
        self.blob = blob
        try:
            self._version = self._store.save(self.name, blob, expected=self._version)
        except StateConflictError:
            aside = f"{self.name}~{os.urandom(3).hex()}"
            self._store.save(aside, blob, expected=None)
            self._load()
            return aside
        return None
