"""`goaitools rewind`: takes back the newest turns of a conversation, or its newest cut.

Owns: the command's options. Must never know: how a turn is taken out.
"""

from __future__ import annotations

import argparse
from typing import Any

from .output import add_json, add_out, put, tell
from .source import add_source, opened_source

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
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
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
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
