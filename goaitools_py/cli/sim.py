"""`goaitools sim`: the offline simulator as a server of its own, for programs in any language.

Owns: the command's options. Must never know: how a request is answered.
"""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "sim",
        help="serve the offline simulator until Ctrl-C",
        description="Serve the offline simulator of a model provider on this machine until Ctrl-C. "
        "It speaks the provider APIs openai, openai-responses and anthropic.",
    )
    parser.add_argument("--port", type=_port, default=0, help="port to listen on (default: a free one)")
    parser.add_argument("--json", action="store_true", help="print the addresses as one line of JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve. The simulator introduces itself, and prints its address."""
    from ..sim import serve

    serve(args.port, as_json=args.json)
    return 0


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"a port is a number between 0 and 65535, not {text!r}")
    return int(text)
