"""The state that a command works on: in a file, on standard input, or in a store.

Owns: where a state is read and where it is written. Must never know: the work on the state.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .codec_options import add_options, check_options, opened_with, refusal
from .store_urls import add_store, has_store, opened_store, shown_url

if TYPE_CHECKING:
    from ..chat.kept.full_row import FullRow
    from ..stores import Listing

__all__ = [
    "Source",
    "add_source",
    "from_text",
    "opened_source",
    "read_file",
    "refuse_other",
    "write_bytes",
    "write_file",
]

_SHOWN_KEYS = 10
"""The number of keys that are listed if the given key is not there."""


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a state, and the options that open a sealed one."""
    parser.add_argument(
        "state",
        nargs="?",
        metavar="STATE",
        help="file with the state's bytes, or its text (gas1.…); - for standard input",
    )
    add_store(parser)
    parser.add_argument(
        "--key",
        "--thread",
        dest="key",
        metavar="KEY",
        default="default",
        help="its key in the store (default: %(default)s)",
    )
    add_options(parser)


class Source:
    """A state that was read.

    Attributes:
        label: Its name in messages.
        blob: The whole state.
        opened: The `codec` and `binding` that open it, as keywords.
        store: Its store, or None.
    """

    def __init__(
        self, label: str, blob: bytes, opened: dict[str, Any], *, path: str = "", store: Any = None,
        row: FullRow | None = None, is_text: bool = False,
    ) -> None:  # fmt: skip
        self.label = label
        self.blob = blob
        self.opened = opened
        self.store = store
        self._path = path
        self._row = row
        self._is_text = is_text

    @property
    def place(self) -> str:
        """Where `replace` writes."""
        return "standard output" if self._path == "-" else self.label

    def replace(self, new: bytes) -> None:
        """Write the new state in the place of the old one. For standard input, write to standard output.

        Raises `StateConflictError` if a store's row has changed since it was read.
        """
        if self._row is not None:
            self._row.save(new)
        else:
            write_file(self._path, new, as_text=self._is_text)


@contextmanager
def opened_source(
    args: argparse.Namespace, *, changes: bool = False, unopened: bool = False
) -> Iterator[Source]:
    """Read the state that the options name. Wrong options end the command.

    `changes`: the state will be replaced, so no turn may run on it meanwhile. `unopened`: a sealed state is
    `changes`: the state will be replaced, so no turn may run on it meanwhile. `unopened`: a sealed state is
    accepted without its key. From a store it is then the stored blob, without parts that stand beside it.
    Raises `StateError`, `StoreError` or OSError with the state's name in the text, also for the errors of
    the block.
    """
    if args.state is not None and args.store is not None:
        args.error("name a STATE (a file, or - for standard input) or a --store URL, not both")
    if args.state is None and not has_store(args):
        args.error("name a STATE (a file, or - for standard input) or a --store URL")
    check_options(args)
    label = _label(args)
    with _named(args, label):
        if args.state is not None:
            blob, is_text = read_file(args.state)
            refuse_other(args.state, blob)
            yield Source(label, blob, opened_with(args, blob), path=args.state, is_text=is_text)
            return
        from ..chat.kept.full_row import held, load_row

        with opened_store(args.store, args.table) as store, _leased(held(store, args.key), changes):
            if unopened and (sealed := _sealed_blob(args, store)) is not None:
                yield Source(label, sealed, {}, store=store)
                return
            row = load_row(store, args.key, lambda blob: opened_with(args, blob, key=args.key))
            if row is None:
                raise _missing(label, store)
            yield Source(label, row.blob, row.opened, store=store, row=row)


def _sealed_blob(args: argparse.Namespace, store: Any) -> bytes | None:
    """The stored blob, if it is sealed and no key was named."""
    from ..state.blob_header import peek
    from ..state.codec import SUITE_PLAIN

    stored = store.load(args.key) if args.key_env is None else None
    return bytes(stored.blob) if stored is not None and peek(stored.blob).suite != SUITE_PLAIN else None


@contextmanager
def _leased(lease: Any, changes: bool) -> Iterator[None]:
    if not changes:
        yield
        return
    with lease:
        yield


def _label(args: argparse.Namespace) -> str:
    if args.state is not None:
        return "standard input" if args.state == "-" else str(args.state)
    return f"conversation {args.key!r} in {shown_url(args.store)}"


@contextmanager
def _named(args: argparse.Namespace, label: str) -> Iterator[None]:
    """Put the name of the state before the text of an error."""
    from ..types.errors import GoAIToolsError, StateAuthError, StateError, StoreError

    try:
        yield
    except StateAuthError as error:
        raise GoAIToolsError(f"{label}: {refusal(args, error)}") from error
    except (StateError, StoreError) as error:
        text = str(error)
        raise GoAIToolsError(text if label in text else f"{label}: {text}") from error
    except ValueError as error:
        raise GoAIToolsError(f"{label}: {error}") from error


def _missing(label: str, store: Any) -> Exception:
    from ..types.errors import StoreError

    return StoreError(f"there is no {label}; {_known_keys(store)}")


def _known_keys(store: Listing) -> str:
    """The keys of the store's conversations; the first ones if there are many."""
    page = store.list(limit=_SHOWN_KEYS)
    if not page.keys:
        return "the store is empty"
    names = ", ".join(repr(stored.key) for stored in page.keys)
    return f"name one with --key: {names}{', …' if page.cursor is not None else ''}"


def read_file(path: str) -> tuple[bytes, bool]:
    """The bytes of a state in a file or from standard input (``-``), and whether it was its text form."""
    if path == "-":
        given = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as file:
            given = file.read()
    return from_text(given), given.startswith(b"gas1.")


def refuse_other(path: str, blob: bytes) -> None:
    """Say which option or command takes a file that is no state: a store's, or an export."""
    from ..types.errors import GoAIToolsError

    if blob.startswith(b"SQLite format 3\0"):
        named = "" if path == "-" else f" {path}"
        raise GoAIToolsError(f"{path} is a database of SQLite, not a state; name it with --store{named}")
    if blob[:64].lstrip().startswith(b"{"):
        raise GoAIToolsError(
            f"{path} is JSON, not a state; `goaitools import {path}` makes a state of an export"
        )


def from_text(given: bytes) -> bytes:
    """The blob, if the input is the text that `state_to_text` wrote, with or without a line end."""
    if not given.startswith(b"gas1."):
        return given
    from ..state.whole_blobs import state_from_text

    return state_from_text(given.decode("utf-8", "replace").strip())


def write_file(path: str, blob: bytes, *, as_text: bool = False) -> None:
    """Write a state to a file in one step, or to standard output (``-``).

    Raises OSError; the old file is as it was.
    """
    if as_text:
        from ..state.whole_blobs import state_to_text

        blob = f"{state_to_text(blob)}\n".encode()
    write_bytes(path, blob)


def write_bytes(path: str, data: bytes) -> None:
    """Write a file in one step, or write to standard output (``-``). A new file is for its owner only."""
    if path == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    from ..history.stored_states import replace_file
    from ..types.errors import GoAIToolsError

    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise GoAIToolsError(f"{path} cannot be written: there is no folder {folder}; make it first")
    replace_file(path, data)
