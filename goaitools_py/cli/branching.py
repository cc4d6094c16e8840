"""`goaitools rewind`, `fork` and `diff`: goes back, copies, or compares two states.

Owns: the options of these commands, where a copy goes, and the lines of the comparison. Must never know: the
changes of a command in a state, or how states are compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from .codec_options import add_options, opened_with
from .source import Source, add_source, opened_source, write_file
from .store_urls import add_store, shown_url
from .text_output import add_json, add_out, columns, counted, put, refuse_existing, show_json, tell

if TYPE_CHECKING:
    from ..history.diff import StateDiff

__all__ = ["add_fork", "add_rewind", "add_to"]


def add_rewind(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "rewind",
        description="Take the newest turns out of a conversation. Its usage and cost stay counted. It goes "
        "back across a cut only if the archive has what the cut took out.",
    )
    add_source(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--turns", type=_count, metavar="N", help="how many (default: 1)")
    what.add_argument("--cut", action="store_true", help="undo the newest cut instead; turns since then stay")
    add_out(parser, otherwise="in the place of the old state")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    add_json(parser)
    parser.set_defaults(run=run_rewind, error=parser.error)


def run_rewind(args: argparse.Namespace) -> int:
    """Read the state, take turns out and write it."""
    from ..history.branch import rewind_state, undo_cut
    from ..history.info import inspect_state

    with opened_source(args, changes=args.out is None and not args.dry_run) as source:
        before = inspect_state(source.blob, **source.opened)
        if args.cut:
            new = undo_cut(source.blob, **source.opened)
        else:
            new = rewind_state(source.blob, args.turns or 1, **source.opened)
        to = "nowhere: this is a dry run" if args.dry_run else put(args, source, new)
    info = inspect_state(new, **source.opened)
    tell(
        args,
        {
            "rewound": source.label,
            "to": to,
            "turns_before": before.turns + (before.status != "complete"),
            "turns": info.turns,
            "messages": info.messages,
            "revision": info.revision,
            "bytes": len(new),
        },
        aside=to == "standard output",
    )
    return 0


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"it must be a positive whole number, not {text!r}")


def add_fork(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "fork",
        description="Copy a conversation under an id of its own, so that its tools have idempotency keys of "
        "their own. The new file or key must not exist yet.",
    )
    add_source(parser)
    add_out(parser, otherwise="the store")
    parser.add_argument("--to", metavar="KEY", help="the key of the copy in the same store")
    parser.add_argument(
        "--id", metavar="ID", help="the conversation id of the copy (default: its new key, else a random one)"
    )
    add_json(parser)
    parser.set_defaults(run=run_fork, error=parser.error)


def run_fork(args: argparse.Namespace) -> int:
    """Read the state and save its copy."""
    if (args.out is None) == (args.to is None):
        args.error("name where the copy goes: --out FILE, or --to KEY in the same store; one of them")
    if args.to is not None and args.state is not None:
        args.error("--to KEY needs a --store URL; a copy of a file goes to --out FILE")
    if args.out is not None:
        refuse_existing(args.out)
    from ..history.branch import fork_state
    from ..history.info import inspect_state

    with opened_source(args) as source:
        id = args.id
        if args.to is not None and id is None:
            from ..chat.kept.changes import conversation_id

            id = conversation_id(args.to)
        new = fork_state(source.blob, conversation_id=id, **source.opened)
        info = inspect_state(new, **source.opened)
        if args.to is not None:
            new = _save_fork(args, source, new)
            to = f"conversation {args.to!r} in {shown_url(args.store)}"
        else:
            write_file(args.out, new)
            to = "standard output" if args.out == "-" else args.out
    facts = {
        "forked": source.label,
        "to": to,
        "conversation_id": info.conversation_id,
        "turns": info.turns,
        "messages": info.messages,
        "bytes": len(new),
    }
    tell(args, facts, aside=args.out == "-")
    return 0


def _save_fork(args: argparse.Namespace, source: Source, new: bytes) -> bytes:
    """Save the copy under the new key. If `--binding` has {key}, the copy belongs to that key."""
    from ..chat.kept.full_row import save_new
    from ..state.whole_blobs import rewrap
    from ..types.errors import GoAIToolsError, StateConflictError

    opened = opened_with(args, new, key=args.to)
    if opened and opened["binding"] != source.opened["binding"]:
        new = rewrap(new, **source.opened, to_binding=opened["binding"])
    try:
        save_new(source.store, args.to, new, **opened)
    except StateConflictError as error:
        raise GoAIToolsError(
            f"there is a conversation {args.to!r} in {shown_url(args.store)} already; name another --to"
        ) from error
    return new


# -------------------------------------------------------------------------------------------------- diff


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
