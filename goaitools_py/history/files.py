"""A state in a file of its own.

Owns: the replacement of a file in one step, the files that are never replaced, and the read permission. Must
never know: the content of a state.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from ..state.blob_header import peek
from ..state.codec import check_limit

__all__ = ["load_state", "replace_file", "save_state"]

_MOST_BYTES: Final = 64 * 2**20
"""No larger file is read; see `load_state`."""


def save_state(blob: bytes | bytearray | memoryview, path: str | os.PathLike[str]) -> None:
    """Write a state to a file. After a crash the file has either the old state or the new one, whole.

    The bytes are written to a file beside it and flushed to the disk. That file then takes the place of the
    old one, and its permissions. Without an old one only its owner may read it (mode 600). A symbolic link is
    followed: the file that it names is replaced. A device or a pipe is written into, and stays.

    Args:
        blob: The state, sealed or not; it is not decoded.
        path: The file. Its folder must exist.

    Raises:
        StateFormatError: The bytes are not a state.
        OSError: The file cannot be written; the old one is as it was.
    """
    peek(blob)
    replace_file(path, blob)


def replace_file(path: str | os.PathLike[str], data: bytes | bytearray | memoryview) -> None:
    """Write a file in one step; see `save_state`."""
    old = _status(path)
    if old is not None and (not stat.S_ISREG(old.st_mode) or _is_open_file(path)):
        with open(path, "wb") as file:  # nothing may take the place of a device, and root could do it
            file.write(data)
        return
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():  # the error of `mkstemp` would name its own file
        raise FileNotFoundError(errno.ENOENT, "There is no folder for the file; make it first", str(path))
    number, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            if old is not None:
                _make_alike(file.fileno(), old)
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    _flush_folder(target.parent)


def _status(path: str | os.PathLike[str]) -> os.stat_result | None:
    """The status of the file behind symbolic links; None if there is no file."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_open_file(path: str | os.PathLike[str]) -> bool:
    """True for a name of a file that this process has open, such as ``/dev/stdout``. A reader that has it
    open would not see a new file in its place."""
    return os.path.abspath(path).startswith(("/dev/", "/proc/"))


def _make_alike(number: int, old: os.stat_result) -> None:
    """Give a new file the owner and the permissions of an old one, as far as the system lets us."""
    if not hasattr(os, "fchown"):  # Windows
        return
    own = os.fstat(number)
    if (own.st_uid, own.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(number, old.st_uid, old.st_gid)
        except PermissionError:
            # The file belongs to this user now. Only the old owner may allow a group or others to read it.
            return
    os.fchmod(number, stat.S_IMODE(old.st_mode))


def _flush_folder(folder: Path) -> None:
    """Have the new name on the disk, where the system can: Windows opens no folders."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def load_state(path: str | os.PathLike[str]) -> bytes:
    """Read a state from a file that `save_state` wrote, or any program.

    Raises:
        FileNotFoundError, OSError: The file cannot be read.
        StateFormatError: It holds something else than a state.
        StateTooLargeError: It is larger than 64 MiB.
    """
    with open(path, "rb") as file:
        found = file.read(_MOST_BYTES + 1)
    check_limit("max_blob_bytes", _MOST_BYTES, len(found))
    peek(found)
    return found
