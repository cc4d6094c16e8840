"""The `goaitools` command: demo, chat, inspect, sim.

Owns: the list of commands, exit codes, and what becomes of an error. Must never know: what a command does.

Exit codes: 0 fine, 1 a problem (one line on standard error says which), 2 wrong usage.
A command imports what it needs when it runs, so that `inspect` never waits for a provider's SDK.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["main"]

_COMMANDS = ("demo", "chat", "inspect", "sim")
_INTERRUPTED = 130  # 128 + SIGINT, what shells expect


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; None takes the process's own.

    Returns:
        The exit code.
    """
    _write_anything()
    argv = sys.argv[1:] if argv is None else argv
    parser = _parser(argv[:1])
    try:
        args = parser.parse_args(argv)
        if "run" not in args:
            parser.print_help(sys.stderr)
            return 2
        return _run(args)
    except SystemExit as stop:  # argparse has said what is wrong, or what was asked for
        return stop.code if isinstance(stop.code, int) else 2


def _parser(named: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that was named, else of all."""
    from .. import __version__

    parser = argparse.ArgumentParser(
        prog="goaitools", description="Chat with language models; the whole conversation is one value."
    )
    parser.add_argument("--version", action="version", version=f"goaitools {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in named if named and named[0] in _COMMANDS else _COMMANDS:
        _add(name, commands)
    return parser


def _add(name: str, commands: Any) -> None:
    match name:
        case "demo":
            from .demo import add_to
        case "chat":
            from .chat import add_to
        case "inspect":
            from .inspect import add_to
        case _:
            from .sim import add_to
    add_to(commands)


def _run(args: argparse.Namespace) -> int:
    from ..errors import GoAIToolsError

    try:
        code = args.run(args)
        sys.stdout.flush()
        return int(code)
    except BrokenPipeError:
        # The reader has gone (`| head`). Python flushes once more at exit, which must not fail again.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (GoAIToolsError, OSError) as error:
        print(f"goaitools: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return _INTERRUPTED


def _write_anything() -> None:
    """No character of a conversation is a reason to stop: what a terminal cannot show is escaped."""
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
