"""`goaitools export`: a whole conversation as JSON, or as a document for people.

Owns: the command's options, and where the text goes. Must never know: the shape of an export.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from .output import add_json, add_out, tell
from .source import Source, add_source, opened_source, write_bytes

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "export",
        description="Write a whole conversation as JSON, with archive and media; `goaitools import` makes "
        "the same state of it. The text is not protected, also if the state is.",
    )
    add_source(parser)
    add_out(parser, otherwise="standard output")
    parser.add_argument("--markdown", action="store_true", help="a Markdown document for people instead")
    parser.add_argument("--archived", action="store_true", help="with --markdown: also what cuts took out")
    add_json(parser)
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Read the state and write the text."""
    if args.archived and not args.markdown:
        args.error("--archived goes with --markdown; JSON has the archive anyway")
    with opened_source(args) as source:
        text = _markdown(args, source) if args.markdown else _json(source)
    data = text.encode()
    write_bytes(args.out or "-", data)
    if args.out in (None, "-"):
        return 0
    tell(args, {"exported": source.label, "to": args.out, "bytes": len(data)})
    return 0


def _json(source: Source) -> str:
    from ..history.export import export_state

    return json.dumps(export_state(source.blob, **source.opened), indent=2, ensure_ascii=False) + "\n"


def _markdown(args: argparse.Namespace, source: Source) -> str:
    from ..history.turns import to_markdown

    return to_markdown(source.blob, archived=args.archived, **source.opened)
