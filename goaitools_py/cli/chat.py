"""`goaitools chat`: a conversation in the terminal.

Owns: the options, and which of the three ways to talk they ask for: the app, lines, or one message. Must
never know: how a line is answered.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .sealed import add_options
from .stores import add_store

if TYPE_CHECKING:
    from .opening import Opening

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "chat",
        help="talk with a model",
        description="Talk with a model: in an app on a terminal, else line by line. /help lists commands.",
    )
    parser.add_argument(
        "--model",
        metavar="API:MODEL",
        default=os.environ.get("GOAITOOLS_MODEL"),
        help="openai:MODEL, openai-responses:MODEL or anthropic:MODEL; or sim, sim:API for the offline "
        "simulator (default: $GOAITOOLS_MODEL)",
    )
    add_store(
        parser,
        what="the store that keeps the conversations; a SQLite file is made if missing",
        otherwise="$GOAITOOLS_STORE, else they are not kept",
    )
    parser.add_argument(
        "--key",
        "--thread",
        dest="key",
        metavar="KEY",
        help="the conversation's key in the store (default: default)",
    )
    parser.add_argument(
        "--session", metavar="FILE", help="keep the conversation in a file of its own, in place of --store"
    )
    add_options(parser)
    parser.add_argument("--system", metavar="TEXT", help="instructions for the model, never stored")
    parser.add_argument(
        "--tools",
        metavar="MODULE:NAME",
        action="append",
        default=[],
        help="a tool, or a list of tools, of a Python module; may be given again",
    )
    parser.add_argument(
        "--mcp",
        metavar="URL|COMMAND",
        action="append",
        default=[],
        help="tools of an MCP server: its URL, or the command that starts it; may be given again",
    )
    parser.add_argument("--once", metavar="TEXT", help="send one message, print the reply, end; - reads it")
    parser.add_argument("--json", action="store_true", help="with --once: the reply and its facts as JSON")
    parser.add_argument("--lines", action="store_true", help="talk line by line, on a terminal too")
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Talk until the input ends. The exit code is 1 if the last turn failed."""
    if args.json and args.once is None:
        args.error("--json goes with --once TEXT")
    from .opening import opening_of
    from .toolbox import tools_of_servers

    with tools_of_servers(args.mcp) as tools:
        opening = opening_of(args, tools)
        if args.once is not None:
            from .once import run_once

            text = sys.stdin.read() if args.once == "-" else args.once
            if not text.strip():
                args.error("--once needs a message, and this one is empty")
            return run_once(opening, text, as_json=args.json)
        return _talk(opening, on_screen=_is_terminal() and not args.lines)


def _talk(opening: Opening, *, on_screen: bool) -> int:
    if on_screen and find_spec("textual") is not None:
        from .tui import run_app

        return run_app(opening)
    from .lines import run_lines

    return run_lines(opening, hint="pip install 'goaitools-py[tui]' brings the app" if on_screen else "")


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
