"""`goaitools redact`: removes a text from a conversation.

Owns: the command's options, and how places are shown. Must never know: how a text is found.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from .source import Source, add_source, opened_source
from .text_output import add_json, add_out, put, tell

if TYPE_CHECKING:
    from ..history.redact.redaction import RedactedPlace

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "redact",
        description="Take a text out of a conversation: messages, tool calls and results, archive, title, "
        "metadata. What remains keeps the known rules of the provider API. No content is printed.",
    )
    parser.__class__ = _AnyOrder
    add_source(parser)
    parser.add_argument("match", metavar="MATCH", help="the text, with upper and lower case as given")
    parser.add_argument(
        "--match-file",
        action="store_true",
        help="MATCH is a file that has the text as its first line: other users of the machine can read "
        "a command line",
    )
    parser.add_argument("--regex", action="store_true", help="the text is a regular expression of Python")
    parser.add_argument(
        "--with",
        dest="replacement",
        metavar="TEXT",
        default="[redacted]",
        help="what stands there from then on (default: %(default)s)",
    )
    add_out(parser, otherwise="in the place of the old state")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    add_json(parser)
    parser.set_defaults(run=run, error=parser.error)


class _AnyOrder(argparse.ArgumentParser):
    """Takes options also between STATE and MATCH, which argparse by itself reads as one group."""

    _is_inside = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._is_inside:
            return super().parse_known_args(args, namespace)
        self._is_inside = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_inside = False


def run(args: argparse.Namespace) -> int:
    """Read the state, take the text out and write it."""
    from ..history.info import inspect_state
    from ..history.redact.redaction import redact_state

    match = _match(args)
    with opened_source(args, changes=args.out is None and not args.dry_run) as source:
        found = redact_state(source.blob, match, args.replacement, **source.opened)
        if args.dry_run:
            to = "nowhere: this is a dry run"
        elif args.out is None and found.state == source.blob and source.place != "standard output":
            to = "nowhere: there is nothing to change"
        else:
            to = put(args, source, found.state)
        aside = _aside(args, source)
    tell(
        args,
        {
            "redacted": source.label,
            "to": to,
            "count": found.count,
            "places": [_place(one, as_json=args.json) for one in found.places],
            "kept": found.kept,
            "unsigned": found.unsigned,
            "sealed": found.sealed,
            "dropped": found.dropped,
            "set_aside": aside,
            "revision": inspect_state(found.state, **source.opened).revision,
            "bytes": len(found.state),
        },
        aside=to == "standard output",
    )
    return 0


def _match(args: argparse.Namespace) -> str | re.Pattern[str]:
    """The text or pattern to search. Wrong options end the command; no error quotes the text."""
    from ..history.redact.matching import Finder, Match

    text: str = args.match
    if args.match_file:
        with open(text, encoding="utf-8", errors="surrogateescape") as file:
            text = file.readline().rstrip("\r\n")
    match: str | re.Pattern[str] = text
    if args.regex:
        try:
            match = re.compile(text)
        except re.error as error:
            args.error(f"MATCH is not a regular expression: {error.msg} at position {error.pos}")
    searched: Match = match
    try:
        Finder(searched, args.replacement)
    except ValueError as error:
        args.error(str(error).replace("with_", "--with"))
    return match


def _place(place: RedactedPlace, *, as_json: bool) -> Any:
    if as_json:
        return {"where": place.where, "turn": place.turn, "count": place.count}
    turn = "" if place.turn is None else f" turn {place.turn}"
    return f"{place.where.replace('_', ' ')}{turn} ({place.count})"


def _aside(args: argparse.Namespace, source: Source) -> int | None:
    """How many rows of unreadable bytes the store has of this conversation. They are not redacted."""
    if source.store is None:
        return None
    from ..chat.kept.row import aside_prefix, is_aside

    prefix, count, cursor = aside_prefix(args.key), 0, None
    while True:
        page = source.store.list(prefix, cursor=cursor)
        count += sum(is_aside(one.key, args.key) for one in page.keys)
        cursor = page.cursor
        if cursor is None:
            return count
