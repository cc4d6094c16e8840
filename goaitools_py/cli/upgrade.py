"""`goaitools upgrade`: all states of a place in the newest format, sealed with the newest key.

Owns: the command's options, the loop and the report. Must never know: how a place keeps its states.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from .output import add_json, show_json
from .progress import Progress
from .sealed import add_options, check_options, opened_with
from .source import refuse_other
from .stores import add_store, has_store, opened_store, sqlite_path
from .terminal import columns, counted, printable

if TYPE_CHECKING:
    from .upgrading import Place

__all__ = ["add_to"]

_SHOWN_NAMES: Final = 10
_WIDTH: Final = 14
_TEXTS: Final = {
    "upgraded": "written anew",
    "current": "new already",
    "no_state": "not a state, left alone",
    "gone": "deleted meanwhile",
    "busy": "in use: run the command again when their turns are over",
    "refused": "not opened: the keys or the --binding do not fit, or they were changed",
    "newer": "written by a newer release; this one cannot read them",
    "unreadable": "damaged, or not a state",
    "failed": "not read or not written",
}
"""The words of a report for each outcome."""
_PROBLEMS: Final = ("busy", "refused", "newer", "unreadable", "failed")


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "upgrade",
        description="Write states in the newest version of the format, sealed with the first --key-env. "
        "States that are so already stay as they are. It may be stopped at any time, and run again. No save "
        "of another worker is lost: a state in use is left out, and named in the report.",
    )
    parser.add_argument("path", nargs="?", metavar="PATH", help="a file, or a folder with files")
    add_store(parser, what="all conversations of this store")
    parser.add_argument("--prefix", metavar="TEXT", default="", help="only keys that begin with this")
    parser.add_argument("--column", metavar="NAME", help="the states are in this column of --table instead")
    parser.add_argument(
        "--key-column", metavar="NAME", help="the column that tells the rows of --table apart"
    )
    add_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="only count what would be done")
    add_json(parser)
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Upgrade each state. Returns 1 if a state could not be upgraded."""
    _check(args)
    found: Counter[str] = Counter()
    names: dict[str, list[str]] = {}
    stopped = False
    with _place(args) as place, Progress(place.count()) as progress:
        try:
            for name in place.names():
                outcome = _upgrade(args, place, name)
                found[outcome] += 1
                if outcome in _PROBLEMS and len(shown := names.setdefault(outcome, [])) < _SHOWN_NAMES:
                    shown.append(name)
                progress.step(f"{found['upgraded']:,} written anew")
        except KeyboardInterrupt:
            stopped = True
    _report(args, found, names, stopped)
    if stopped:
        raise KeyboardInterrupt
    return 1 if any(found[name] for name in _PROBLEMS) else 0


def _check(args: argparse.Namespace) -> None:
    if args.path is not None and args.store is not None:
        args.error("name a PATH or a --store URL, not both")
    if args.path is None and not has_store(args):
        args.error("name what to upgrade: a PATH (a file or a folder), or a --store URL")
    if args.column is not None and not (args.store and args.table and args.key_column):
        args.error("--column needs more: --store URL --table NAME --key-column NAME")
    if args.column is None and args.key_column is not None:
        args.error("--key-column goes with --column")
    check_options(args)


@contextmanager
def _place(args: argparse.Namespace) -> Iterator[Place]:
    from .upgrading import Column, Files, Rows

    if args.path is not None:
        if os.path.isfile(args.path):  # a named file must be a state; a folder may hold other files
            with open(args.path, "rb") as file:
                refuse_other(args.path, file.read(64))
        yield Files(args.path)
    elif args.column is not None:
        path = sqlite_path(args.store)
        url = args.store if path is None else f"sqlite:///{path}"
        with closing(Column(url, args.table, args.column, args.key_column)) as column:
            yield column
    else:
        with opened_store(args.store, args.table) as store:
            yield Rows(store, lambda blob, key: opened_with(args, blob, key=key), args.prefix)


def _upgrade(args: argparse.Namespace, place: Place, name: str) -> str:
    from ..history.stored_states import upgrade_state
    from ..types.errors import StateAuthError, StateError, StateVersionError, StoreError

    def new_of(blob: bytes, key: str) -> bytes:
        return upgrade_state(blob, **opened_with(args, blob, key=key))

    try:
        return place.upgrade(name, new_of, dry=args.dry_run)
    except StateAuthError:
        return "refused"
    except StateVersionError:
        return "newer"
    except StateError:
        return "unreadable"
    except (ValueError, StoreError, OSError):
        return "failed"


def _report(
    args: argparse.Namespace, found: Counter[str], names: dict[str, list[str]], stopped: bool
) -> None:
    if args.json:
        facts = {name: found[name] for name in _TEXTS}
        show_json({**facts, "dry_run": args.dry_run, "stopped": stopped, "names": names})
        return
    for name, text in _TEXTS.items():
        if not found[name] and name not in ("upgraded", "current"):
            continue
        if args.dry_run and name == "upgraded":
            text = "would be written anew"
        label = counted(found[name], "file" if name == "no_state" else "state")
        for line in columns(label, text, width=max(_WIDTH, len(label) + 2)):
            print(line)
        for one in names.get(name, ()):  # whole, so that it can be copied
            print(f"      {printable(one)}")
        if found[name] > len(names.get(name, ())) > 0:
            print("      …")
    if stopped:
        print("stopped; run the command again, and it goes on with the rest")
