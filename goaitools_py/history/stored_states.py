"""States where an application stores them: in a file of its own, checked as a whole, and upgraded.

Owns: the replacement of a file in one step with the files that are never replaced, the check of all of a
blob, and the one step that a migration takes for each state. Must never know: a store, a model, or the
changes of a version of the format.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from ..backends.dialects import known_dialect
from ..open_turn import journal, steps
from ..state import whole_blobs
from ..state.blob_header import peek
from ..state.codec import PLAIN, Binding, Codec, check_limit
from ..state.state import closed_turns
from ..state.state import load_state as opened_state
from ..state.whole_blobs import rewrap
from ..types.errors import StateError
from .archive_reading import check_chain
from .rewrite.repair import checked

__all__ = ["load_state", "replace_file", "save_state", "upgrade_state", "verify_state"]


def verify_state(
    blob: bytes | bytearray | memoryview, *, codec: Codec = PLAIN, binding: Binding = None
) -> tuple[bytes, ...]:
    """Check all of a blob: its seal, the digest of each part in it, and that everything in it can be opened.

    The records of the archive are read too, if the journal of cuts names one and all parts of the archive are
    in the blob. Each names the record before it, and the journal names the newest. Each entry must be a JSON
    object, and each row must have a form that this release writes. The calls of an unfinished turn must be
    the calls of its last reply.

    A turn checks only the parts that it reads. Call this for backups, and after a migration of a database.

    Args:
        blob: The stored value.
        codec: How the blob is protected.
        binding: For sealed codecs: the owner of the blob.

    Returns:
        The digests of the parts that are kept elsewhere. They are not checked: attach them first.

    Raises:
        StateError: Something in it is damaged, or cannot be read.
    """
    elsewhere = whole_blobs.verify_state(blob, codec=codec, binding=binding)
    state = opened_state(blob, codec=codec, binding=binding)
    try:
        closed_turns(state)
        if (dialect := known_dialect(state.meta.wire)) is not None:
            journal.check_journal(state, dialect)
            checked(steps.close_turn(state, dialect), dialect)
        check_chain(state, codec, binding)
    except StateError as error:
        error.blob = bytes(blob)
        raise
    return elsewhere


def upgrade_state(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Binding = None,
    min_revision: int | None = None,
) -> bytes:
    """Write a state in the newest version of the format, sealed with the first key of its codec.

    Its content, its revision and its times do not change. A state that is up to date is checked and returned
    as it is. So a loop over all states writes only outdated states, and may be stopped and run again.

    Args:
        blob: The state. Its parts must be in it, if they are to get the newest key too.
        codec: How it is protected.
        binding: For sealed codecs: the owner of the blob.
        min_revision: Refuse a state that is older than this.

    Returns:
        The state to store.

    Raises:
        StateError: The state cannot be read.
    """
    opened_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    return rewrap(blob, codec, binding=binding)


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
