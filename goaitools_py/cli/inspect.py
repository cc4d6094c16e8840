"""`goaitools inspect`: what is in a state blob, without a model or an SDK.

Owns: the command's options, and how its bytes are found. Must never know: how a blob is laid out.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .sealed import add_options, opened_with, refusal

if TYPE_CHECKING:
    from ..history.info import StateInfo
    from ..stores import SQLiteStore
    from ..turn.answers import PendingCall

__all__ = ["add_to"]

_SHOWN_THREADS = 10
"""So many are named to who asks for one that is not there."""


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "inspect",
        help="say what is in a state blob",
        description="Say what is in a state blob: sizes, counts, tokens, status, calls that wait. "
        "Content only with --show.",
    )
    parser.add_argument(
        "blob",
        nargs="?",
        metavar="BLOB",
        help="file with the blob's bytes, or its text (gas1.…); - for standard input",
    )
    parser.add_argument("--store", metavar="FILE", help="take the blob from this SQLite store instead")
    parser.add_argument(
        "--thread", metavar="NAME", default="default", help="its key there (default: %(default)s)"
    )
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument("--show", action="store_true", help="also what was said")
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Read the blob and print what it says of itself."""
    if (args.blob is None) == (args.store is None):
        args.error("name a BLOB (a file, or - for standard input) or a --store FILE, one of them")
    from ..errors import StateAuthError, StateError
    from ..history.info import inspect_state, pending_calls
    from ..history.turns import read_history

    try:
        blob = _blob(args)
        opened = opened_with(args, blob)
        info = inspect_state(blob, **opened)
        pending = pending_calls(blob, **opened) if info.open_calls else ()
        if args.json:
            print(_json(info, pending, blob, opened, show=args.show))
            return 0
        history = read_history(blob, **opened) if args.show else None
    except StateAuthError as error:
        raise StateAuthError(f"{_source(args)}: {refusal(args, error)}") from error
    except StateError as error:
        raise StateError(f"{_source(args)}: {error}") from error
    from .report import history_lines, info_lines

    print(*info_lines(info, pending, arguments=args.show), sep="\n")
    if history is not None:
        print("", *history_lines(history, open_calls=info.open_calls), sep="\n")
    return 0


def _source(args: argparse.Namespace) -> str:
    if args.store is not None:
        return f"thread {args.thread!r} in {args.store}"
    return "standard input" if args.blob == "-" else str(args.blob)


def _blob(args: argparse.Namespace) -> bytes:
    if args.store is None:
        if args.blob == "-":
            return _from_text(sys.stdin.buffer.read())
        with open(args.blob, "rb") as file:
            return _from_text(file.read())
    from ..errors import StoreError
    from ..stores import SQLiteStore

    if not os.path.isfile(args.store):  # opening would make it
        raise StoreError(f"there is no store {args.store}")
    with SQLiteStore(args.store) as store:
        stored = store.load(args.thread)
        if stored is None:
            raise StoreError(f"there is no {_source(args)}; {_threads(store)}")
    return stored.blob


def _from_text(given: bytes) -> bytes:
    """The blob, if its text was given: as `state_to_text` wrote it, with a line's end at most."""
    if not given.startswith(b"gas1."):
        return given
    from .. import state_from_text

    return state_from_text(given.decode("utf-8", "replace").strip())


def _threads(store: SQLiteStore) -> str:
    """The threads that there are, or the first of them."""
    page = store.list(limit=_SHOWN_THREADS)
    if not page.keys:
        return "the store is empty"
    names = ", ".join(repr(stored.key) for stored in page.keys)
    return f"name one with --thread: {names}{', …' if page.cursor is not None else ''}"


def _json(
    info: StateInfo, pending: Sequence[PendingCall], blob: bytes, opened: dict[str, Any], *, show: bool
) -> str:
    import json

    import msgspec

    facts = msgspec.to_builtins(info)
    facts["pending"] = [
        {"id": call.id, "name": call.name, "reason": call.reason}
        | ({"arguments": call.arguments} if show else {})
        for call in pending
    ]
    if show:
        from ..history.convert import state_messages

        facts["history"] = state_messages(blob, **opened)
    return json.dumps(facts, indent=2)
