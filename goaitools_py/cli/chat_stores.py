"""Stores that only a chat in a terminal needs: files of one folder, and any plain store on an event loop.

Owns: which file a key of `goaitools chat --session FILE` names, its compare-and-swap, and methods that run in
threads. Must never know: the contents of a state, or an engine of a store.

A file holds one state. It is replaced in one step, and only its owner may read it. Its sibling files are the
other conversations.

Drivers for plain code and for an event loop differ, and a URL names one. So the chat app takes the store that
line mode takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ..state.blob_header import peek
from ..states import save_state
from ..stores import RowFacts, Stored, StoredHead, StoredKey, StoredPage, StoredPart
from ..types.errors import StateConflictError, StateError, StoreUnavailableError

__all__ = ["FolderStore", "FullThreadedStore", "ThreadedStore"]

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


class ThreadedStore:
    """The methods that every listed store has. The caller closes `store`."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def load(self, key: str) -> Stored | None:
        """As `Store.load`."""
        found: Stored | None = await asyncio.to_thread(self._store.load, key)
        return found

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """As `Store.save`."""
        version: int = await asyncio.to_thread(self._store.save, key, blob, expected=expected)
        return version

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """As `Deleting.delete`."""
        return bool(await asyncio.to_thread(self._store.delete, key, expected=expected))

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        """As `Listing.list`."""
        page: StoredPage = await asyncio.to_thread(self._store.list, prefix, cursor=cursor, limit=limit)
        return page


class FullThreadedStore(ThreadedStore):
    """`ThreadedStore` of a store with facts, parts, stop flags and leases, such as a store on a server."""

    async def save(
        self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None
    ) -> int:
        """As `Describing.save`."""
        version: int = await asyncio.to_thread(self._store.save, key, blob, expected=expected, facts=facts)
        return version

    async def save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        *,
        expected: int | None,
        facts: RowFacts | None = None,
    ) -> int:
        """As `Parted.save_parts`."""
        version: int = await asyncio.to_thread(
            self._store.save_parts, key, head, new, gone, expected=expected, facts=facts
        )
        return version

    async def load_head(self, key: str, *, kinds: Collection[int] | None = None) -> StoredHead | None:
        """As `Parted.load_head`."""
        found: StoredHead | None = await asyncio.to_thread(self._store.load_head, key, kinds=kinds)
        return found

    async def load_parts(self, key: str, names: Collection[bytes]) -> tuple[StoredPart, ...]:
        """As `Parted.load_parts`."""
        return tuple(await asyncio.to_thread(self._store.load_parts, key, names))

    async def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        """As `Stopping.set_stop`."""
        return bool(await asyncio.to_thread(self._store.set_stop, key, is_wanted))

    async def stop_requested(self, key: str) -> bool:
        """As `Stopping.stop_requested`."""
        return bool(await asyncio.to_thread(self._store.stop_requested, key))

    async def is_held(self, key: str) -> bool:
        """As `Peeking.is_held`."""
        return bool(await asyncio.to_thread(self._store.is_held, key))

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[_ThreadedLease]:
        """As `Leasing.lease`."""
        held = self._store.lease(key, ttl)
        lease = _ThreadedLease(await asyncio.to_thread(held.__enter__))
        try:
            yield lease
        finally:
            await asyncio.to_thread(held.__exit__, None, None, None)


class _ThreadedLease:
    def __init__(self, lease: Any) -> None:
        self._lease = lease

    async def renew(self) -> bool:
        return bool(await asyncio.to_thread(self._lease.renew))

    async def release(self) -> None:
        await asyncio.to_thread(self._lease.release)
