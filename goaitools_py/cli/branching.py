"""`goaitools rewind` and `goaitools fork`: takes back turns of a conversation, or copies it under a new id.

Owns: the options of both commands, and where a copy goes. Must never know: the changes of either in a state.
"""

from __future__ import annotations

import argparse
from typing import Any

from .codec_options import opened_with
from .source import Source, add_source, opened_source, write_file
from .store_urls import shown_url
from .text_output import add_json, add_out, put, refuse_existing, tell

__all__ = ["add_fork", "add_rewind"]


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
