"""`goaitools fork`: copies a conversation under a new id.

Owns: the command's options, and where the copy goes. Must never know: the changes of a fork in a state.
"""

from __future__ import annotations

import argparse
from typing import Any

from .output import add_json, add_out, refuse_existing, tell
from .sealed import opened_with
from .source import Source, add_source, opened_source, write_file
from .stores import shown_url

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
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
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
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
            new = _save(args, source, new)
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


def _save(args: argparse.Namespace, source: Source, new: bytes) -> bytes:
    """Save the copy under the new key. If `--binding` has {key}, the copy belongs to that key."""
    from ..chat.kept.full_row import save_new
    from ..state.reseal import rewrap
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
