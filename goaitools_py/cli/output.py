"""The output of commands: facts as lines or as JSON, and new states.

Owns: `--json`, `--out`, and the form of a report. Must never know: the meaning of the facts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from .terminal import columns

if TYPE_CHECKING:
    from .source import Source

__all__ = ["add_json", "add_out", "put", "refuse_existing", "show_json", "tell"]

_LABEL_WIDTH: Final = 21


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option for machine-readable output."""
    parser.add_argument("--json", action="store_true", help="machine-readable")


def add_out(parser: argparse.ArgumentParser, *, otherwise: str) -> None:
    """Add the option that names the file for a result. `otherwise`: where it goes without it."""
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help=f"write it to this file; - for standard output (default: {otherwise})",
    )


def show_json(value: Any) -> None:
    """Print JSON-able values."""
    print(json.dumps(value, indent=2))


def tell(args: argparse.Namespace, facts: Mapping[str, Any], *, aside: bool = False) -> None:
    """Print a report. JSON has the names of facts as they are; a line shows them with spaces.

    `aside`: print to standard error, because standard output has the result itself.
    """
    stream = sys.stderr if aside else sys.stdout
    if args.json:
        print(json.dumps(dict(facts), indent=2), file=stream)
        return
    for name, value in facts.items():
        if value is None or value == "":
            continue
        for line in columns(name.replace("_", " "), shown(value), width=_LABEL_WIDTH):
            print(line, file=stream)


def shown(value: Any) -> str:
    """A fact as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value))
    return str(value)


def put(args: argparse.Namespace, source: Source, new: bytes) -> str:
    """Write a new state to `--out`, or in the place of the old one. Gives the name of that place."""
    from .source import write_file

    if args.out is None:
        source.replace(new)
        return source.place
    write_file(args.out, new)
    return "standard output" if args.out == "-" else str(args.out)


def refuse_existing(path: str) -> None:
    """Raise `GoAIToolsError` if there is a file: a command makes a new one and does not know the old one. A
    device or a pipe is allowed: nothing in it is lost."""
    from ..types.errors import GoAIToolsError

    if path != "-" and (os.path.isfile(path) or os.path.isdir(path)):
        raise GoAIToolsError(f"{path} is there already; name a new file, or move it away")
