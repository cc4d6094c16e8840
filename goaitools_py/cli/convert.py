"""`goaitools convert`: the same conversation for another provider API.

Owns: the command's options, and how losses are shown. Must never know: the changes of a conversion.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from .output import add_json, add_out, put, tell
from .source import add_source, opened_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..history.translate.losses import Loss

__all__ = ["add_to"]

_WIRES: Final = ("openai", "openai-responses", "anthropic")


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "convert",
        description="Write a conversation for another provider API, and say what could not go along. "
        "Without --out the old state is replaced: what is lost does not come back.",
    )
    add_source(parser)
    parser.add_argument(
        "--to", metavar="API", choices=_WIRES, required=True, help=f"the provider API: {', '.join(_WIRES)}"
    )
    add_out(parser, otherwise="the old state's place")
    add_json(parser)
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Read the state, convert it, and write it."""
    from ..history.info import inspect_state
    from ..history.translate.door import convert_state

    with opened_source(args, changes=args.out is None) as source:
        found = inspect_state(source.blob, **source.opened).wire
        conversion = convert_state(source.blob, args.to, **source.opened)
        is_same = conversion.state == source.blob and args.out is None
        to = source.place if is_same else put(args, source, conversion.state)
    facts = {
        "converted": source.label,
        "to": to,
        "provider_API_before": found,
        "provider_API": args.to,
        "bytes": len(conversion.state),
        "losses": _losses(conversion.losses, as_json=args.json),
    }
    tell(args, facts, aside=to == "standard output")
    return 0


def _losses(losses: Sequence[Loss], *, as_json: bool) -> Any:
    """Each loss with its turn for programs, and the sums for people."""
    if as_json:
        return [{"turn": loss.turn, "kind": loss.kind, "count": loss.count} for loss in losses]
    from ..history.translate.losses import summary

    return [f"{kind} {count}" for kind, count in summary(losses).items()] or "none"
