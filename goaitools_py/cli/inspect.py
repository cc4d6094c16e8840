"""`goaitools inspect`: what is in a state blob, without a model or an SDK.

Owns: the command's options, and where the bytes come from. Must never know: the layout of a blob.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..values import replace
from .sealed import add_options, opened_with, refusal

if TYPE_CHECKING:
    from ..history.info import StateInfo
    from ..history.transcript import History
    from ..stores import SQLiteStore
    from .picture import TurnBar

__all__ = ["add_to"]

_SHOWN_KEYS = 10
"""The number of keys that are listed if the given key is not there."""


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "inspect",
        help="say what is in a state blob",
        description="Say what is in a state blob: sizes, counts, status, calls that wait. Show how full the "
        "context is, tokens by turn, and cuts. Content only with --show.",
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
    parser.add_argument(
        "--html", metavar="FILE", help="write one page for a browser, which only its owner may read"
    )
    parser.add_argument("--show", action="store_true", help="also what was said")
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Read the blob and print its facts."""
    if (args.blob is None) == (args.store is None):
        args.error("name a BLOB (a file, or - for standard input) or a --store FILE, one of them")
    if args.html is not None and args.json:
        args.error("--html writes a page, and --json prints values: name one of them")
    from ..errors import StateAuthError, StateError
    from ..history.info import inspect_state
    from ..history.turns import read_history

    try:
        blob = _blob(args)
        opened = opened_with(args, blob)
        info = inspect_state(blob, **opened)
        history = read_history(blob, **opened) if args.show else None
        bars = _bars(info, blob, opened, history)
        if args.json:
            print(_json(info, bars, blob, opened, history))
            return 0
    except StateAuthError as error:
        raise StateAuthError(f"{_source(args)}: {refusal(args, error)}") from error
    except StateError as error:
        raise StateError(f"{_source(args)}: {error}") from error
    if args.html is not None:
        return _write_page(args, info, bars, history)
    from .picture import picture_lines, style_for
    from .report import history_lines, info_lines

    print(*info_lines(info, info.pending, arguments=args.show), sep="\n")
    if not info.is_sealed:
        print("", *picture_lines(info, bars, style_for(sys.stdout)), sep="\n")
    if history is not None:
        print("", *history_lines(history, open_calls=info.open_calls), sep="\n")
    return 0


def _source(args: argparse.Namespace) -> str:
    if args.store is not None:
        return f"conversation {args.thread!r} in {args.store}"
    return "standard input" if args.blob == "-" else str(args.blob)


def _blob(args: argparse.Namespace) -> bytes:
    if args.store is None:
        if args.blob == "-":
            return _from_text(sys.stdin.buffer.read())
        with open(args.blob, "rb") as file:
            return _from_text(file.read())
    from ..errors import StoreError
    from ..stores import SQLiteStore

    if not os.path.isfile(args.store):  # opening would create the file
        raise StoreError(f"there is no store {args.store}")
    with SQLiteStore(args.store) as store:
        stored = store.load(args.thread)
        if stored is None:
            raise StoreError(f"there is no {_source(args)}; {_known_keys(store)}")
    return stored.blob


def _from_text(given: bytes) -> bytes:
    """The blob, if the input is the text that `state_to_text` wrote, with or without a line end."""
    if not given.startswith(b"gas1."):
        return given
    from ..states import state_from_text

    return state_from_text(given.decode("utf-8", "replace").strip())


def _known_keys(store: SQLiteStore) -> str:
    """The keys of the store's conversations; the first ones if there are many."""
    page = store.list(limit=_SHOWN_KEYS)
    if not page.keys:
        return "the store is empty"
    names = ", ".join(repr(stored.key) for stored in page.keys)
    return f"name one with --thread: {names}{', …' if page.cursor is not None else ''}"


def _bars(info: StateInfo, blob: bytes, opened: dict[str, Any], history: History | None) -> list[TurnBar]:
    """What each turn weighs; [] for a sealed state, and for one whose messages cannot be read here."""
    from ..errors import StateError
    from ..history.turns import read_history
    from .picture import bars_of

    if info.is_sealed:
        return []
    with suppress(StateError):  # such as that of a provider API that is not built in
        return bars_of(history or read_history(blob, **opened))
    return []


def _write_page(
    args: argparse.Namespace, info: StateInfo, bars: Sequence[TurnBar], history: History | None
) -> int:
    from ..history.files import replace_file
    from .page import page
    from .report import info_facts

    facts = info_facts(info, info.pending, content=args.show)
    replace_file(args.html, page(info, facts, bars, history).encode())
    print(f"written: {args.html}")
    return 0


def _json(
    info: StateInfo,
    bars: Sequence[TurnBar],
    blob: bytes,
    opened: dict[str, Any],
    history: History | None,
) -> str:
    import json

    import msgspec

    facts = msgspec.to_builtins(replace(info, pending=()))
    facts |= {"warning_level": info.warning_level, "context_fraction": info.context_fraction}
    facts["pending"] = [
        {"id": call.id, "name": call.name, "reason": call.reason}
        | ({"arguments": call.arguments} if history is not None else {})
        for call in info.pending
    ]
    facts["tokens_by_turn"] = [{**bar._asdict(), "started_at": bar.started_at.isoformat()} for bar in bars]
    if info.is_sealed:
        facts["created_at"] = facts["updated_at"] = None
    if history is None:
        del facts["topics"]
    else:
        from ..history.convert import state_messages

        facts["history"] = state_messages(blob, **opened)
        facts["transcript"] = history.to_dict()
    return json.dumps(facts, indent=2)
