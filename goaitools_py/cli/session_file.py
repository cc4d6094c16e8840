"""Conversations in files of one folder: `goaitools chat --session FILE`.

Owns: which file a key names, and its compare-and-swap. Must never know: the contents of a state.

A file holds one state. It is replaced in one step, and only its owner may read it. Its siblings with the same
ending are the other conversations. The key of a conversation is the name of its file without the ending.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ..state.blob_header import peek
from ..states import save_state
from ..stores import Stored, StoredKey, StoredPage
from ..types.errors import StateConflictError, StateError, StoreUnavailableError

__all__ = ["FolderStore"]

_HEADER_BYTES: Final = 4096
"""How much of a file is read to see whether it is a state."""


class FolderStore:
    """A store of files in one folder.

    Args:
        folder: The folder; it must exist.
        suffix: How the names of its files end, such as ".goai".
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self._folder, self._suffix = folder, suffix
        self._lock = threading.Lock()

    def load(self, key: str) -> Stored | None:
        """The state of a file, or None."""
        path = self._path(key)
        with _errors():
            try:
                blob, status = path.read_bytes(), path.stat()
            except FileNotFoundError:
                return None
        return Stored(blob=blob, version=_version(blob, status), updated_at=_time(status))

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """Replace the file if it is still the expected one; None: only if there is no file."""
        path = self._path(key)
        with self._held():
            self._compare(key, expected)
            with _errors():
                save_state(blob, path)
                return _version(blob, path.stat())

    def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Delete the file. False if the file does not exist."""
        path = self._path(key)
        with self._held():
            if expected is not None:
                self._compare(key, expected)
            with _errors():
                try:
                    path.unlink()
                except FileNotFoundError:
                    return False
        return True

    def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """The files of the folder that are states, by name."""
        with _errors():
            names = sorted(
                path.name[: len(path.name) - len(self._suffix)]
                for path in self._folder.iterdir()
                if path.name.endswith(self._suffix) and path.name != self._suffix and path.is_file()
            )
        wanted = [name for name in names if name.startswith(prefix) and (cursor is None or name > cursor)]
        page = wanted[:limit]
        keys = tuple(self._listed(name) for name in page if self._is_state(name))
        return StoredPage(keys=keys, cursor=page[-1] if len(wanted) > limit else None)

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> FolderStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _path(self, key: str) -> Path:
        """The file of a key. ValueError for a key that no file can have."""
        name = f"{key}{self._suffix}"
        if not key or key.startswith(".") or not name.isprintable() or os.path.basename(name) != name:
            raise ValueError(f"{key!r} cannot be the name of a file in {self._folder}")
        return self._folder / name

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Keep other threads out, and other programs where the system can lock a folder."""
        with self._lock, contextlib.ExitStack() as opened:
            with contextlib.suppress(ImportError):
                import fcntl

                with _errors():
                    number = os.open(self._folder, os.O_RDONLY)
                    opened.callback(os.close, number)
                    fcntl.flock(number, fcntl.LOCK_EX)
            yield

    def _compare(self, key: str, expected: int | None) -> None:
        stored = self.load(key)
        if (stored.version if stored else None) != expected:
            raise StateConflictError("another program has saved this file meanwhile")

    def _is_state(self, key: str) -> bool:
        try:
            with open(self._path(key), "rb") as file:
                peek(file.read(_HEADER_BYTES))
        except (OSError, ValueError, StateError):
            return False
        return True

    def _listed(self, key: str) -> StoredKey:
        stored = self.load(key)
        version, at = (stored.version, stored.updated_at) if stored else (0, datetime.now(UTC))
        return StoredKey(key=key, version=version, updated_at=at)


def _version(blob: bytes, status: os.stat_result) -> int:
    """A number that differs for each save: a new file has another inode, time or content."""
    facts = f"{status.st_ino} {status.st_mtime_ns} ".encode() + blob
    return int.from_bytes(hashlib.sha256(facts).digest()[:7])


def _time(status: os.stat_result) -> datetime:
    return datetime.fromtimestamp(status.st_mtime, UTC)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailableError(f"the file was not read or written: {error.strerror}") from error
