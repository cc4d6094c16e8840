"""`goaitools diff`: the differences between two states of a conversation.

Owns: the command's options, and the lines of the report. Must never know: how states are compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from .codec_options import add_options
from .source import opened_source
from .store_urls import add_store
from .text_output import add_json, columns, counted, show_json

if TYPE_CHECKING:
    from ..history.diff import StateDiff
    from .source import Source

__all__ = ["add_to"]

_WIDTH: Final = 17
_DIGESTS: Final = ("system", "tools", "context")
_CONTENT: Final = ("title", "metadata")


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diff",
        description="Compare two states of a conversation: which turns were added, removed or changed, and "
        "which facts differ. With --store A and B are keys, else files.",
    )
    parser.add_argument("a", metavar="A", help="the older state: a file, or a key in the store")
    parser.add_argument("b", metavar="B", help="the newer state")
    add_store(parser, what="take both states from this store", otherwise="two files")
    add_options(parser)
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if the states differ")
    parser.add_argument("--show", action="store_true", help="also title and metadata, which are content")
    add_json(parser)
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Read both states and print the differences."""
    if args.store is None and args.a == args.b == "-":
        args.error("only one of the two states can come from standard input")
    in_store = args.store is not None
    with opened_source(_one(args, args.a, in_store)) as a, opened_source(_one(args, args.b, in_store)) as b:
        found = _diff(a, b)
    if args.json:
        show_json(_hidden(found.to_dict(), args.show))
    else:
        print(*(_lines(found, args.show) if found else ("no difference",)), sep="\n")
    return 1 if args.exit_code and found else 0


def _one(args: argparse.Namespace, name: str, in_store: bool) -> argparse.Namespace:
    given = {**vars(args), "state": None if in_store else name, "key": name}
    return argparse.Namespace(**given)


def _diff(a: Source, b: Source) -> StateDiff:
    """Compare. If owners or codecs differ, the second state gets the first state's ones, in memory."""
    from ..history.diff import diff_states
    from ..state.blob_header import peek
    from ..state.whole_blobs import rewrap

    new = b.blob
    if a.opened and (a.opened["binding"] != b.opened["binding"] or peek(a.blob).suite != peek(new).suite):
        new = rewrap(new, **b.opened, to=a.opened["codec"], to_binding=a.opened["binding"])
    return diff_states(a.blob, new, **a.opened)


def _hidden(found: dict[str, Any], show: bool) -> dict[str, Any]:
    """Leave content out, unless it was asked for: only that it differs."""
    if not show:
        found["facts"] |= {name: None for name in _CONTENT if name in found["facts"]}
    return found


def _lines(found: StateDiff, show: bool) -> Iterator[str]:
    for label, text in _facts(found, show):
        yield from columns(label, text, width=_WIDTH)


def _facts(found: StateDiff, show: bool) -> Iterator[tuple[str, str]]:
    if found.first is not None:
        yield "first", f"turn {found.first} is the first that differs"
    for name in ("added", "removed", "changed"):
        if turns := getattr(found, name):
            yield name, _numbers(turns)
    if found.notes_added:
        yield "notes", f"{counted(found.notes_added, 'note')} of compactions added"
    for name in ("waiting", "unfinished", "cuts"):
        one, other = getattr(found, name)
        if one != other:
            yield name, f"{_shown(one)} → {_shown(other)}"
    for name, (one, other) in found.facts.items():
        if name in _DIGESTS or (name in _CONTENT and not show):
            yield name.replace("_", " "), "differs"
        else:
            yield name.replace("_", " "), f"{_shown(one)} → {_shown(other)}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value) if value else "nothing"


def _numbers(turns: Sequence[int]) -> str:
    """Turn numbers with ranges: "turns 3-5, 9"."""
    ranges: list[list[int]] = []
    for number in turns:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    text = ", ".join(str(one) if one == last else f"{one}-{last}" for one, last in ranges)
    return f"{'turn' if len(turns) == 1 else 'turns'} {text}"
