"""Provisional. The `goaitools` command.

Owns: exit codes, and how errors are printed. Must never know: the effect of a command.

Begin with `table.py`, the list of all commands. Each command has a file of its own.

Exit codes: 0 for success, 1 for a problem (one line on standard error describes it), 2 for wrong usage.
A command imports its modules when it runs, so `inspect` does not wait for a provider's SDK.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence

from .table import COMMANDS

__all__ = ["main"]

_INTERRUPTED = 130  # 128 + SIGINT, as shells expect


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
    except SystemExit as stop:  # argparse has printed the error or the help
        return stop.code if isinstance(stop.code, int) else 2


def _parser(named: Sequence[str]) -> argparse.ArgumentParser:
    """Make the parser of the named command. If no command is named, it lists all commands."""
    from .. import __version__

    parser = argparse.ArgumentParser(
        prog="goaitools", description="Chat with language models; the whole conversation is one value."
    )
    parser.add_argument("--version", action="version", version=f"goaitools {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    if named and named[0] in COMMANDS:
        COMMANDS[named[0]].add(commands)
        return parser
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.help)
    return parser


def _run(args: argparse.Namespace) -> int:
    import logging  # here, because `goaitools --version` does not need it

    from ..types.errors import GoAIToolsError

    # A command prints the error of a turn. Without a handler Python would print the log's line beside it.
    turns = logging.getLogger("goaitools_py.turn")
    if not turns.handlers:
        turns.addHandler(logging.NullHandler())
    try:
        code = args.run(args)
        sys.stdout.flush()
        return int(code)
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`). Python flushes again at exit, which must not fail.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except GoAIToolsError as error:
        print(f"goaitools: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        is_named = error.filename is not None and error.strerror is not None
        print(f"goaitools: {f'{error.filename}: {error.strerror}' if is_named else error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return _INTERRUPTED


def _write_anything() -> None:
    """Escape characters that the terminal cannot show, so that no character of a conversation stops a
    command."""
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
