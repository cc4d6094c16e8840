"""The key that opens a sealed state for a command, and how a refusal is told.

Owns: `--key-env`, `--binding`, and which codec a blob's header asks for. Must never know: what is in a blob.

A key never stands on a command line, where every user of the machine can read it.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..errors import StateAuthError
    from ..state.codec import Binding, Codec

__all__ = ["add_options", "opened_with", "refusal"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of sealed states."""
    parser.add_argument(
        "--key-env",
        metavar="NAME",
        help="environment variable with the key of a signed or encrypted state, as Key.to_text wrote it",
    )
    parser.add_argument(
        "--binding",
        metavar="NAME=VALUE",
        action="append",
        help="what a sealed state belongs to, once for each name (default: UNBOUND)",
    )


def opened_with(args: argparse.Namespace, blob: bytes) -> dict[str, Any]:
    """The `codec` and `binding` that open a blob; nothing where no key is named.

    What is wrong with the options ends the command. Raises StateError if the blob has no header, and
    GoAIToolsError if a package is missing.
    """
    if args.key_env is None:
        if args.binding:
            args.error("--binding is for sealed states: name the variable with their key too, --key-env NAME")
        return {}
    return {"codec": _codec(args, blob), "binding": _binding(args)}


def _codec(args: argparse.Namespace, blob: bytes) -> Codec:
    """The codec that the header names. What is not sealed is for `Signed` to refuse: a key was asked for."""
    from ..errors import GoAIToolsError
    from ..seal import Encrypted, Key, Keyring, Signed
    from ..state.blob import peek
    from ..state.codec import SUITE_AES_256_GCM

    text = os.environ.get(args.key_env)
    if not text:
        args.error(f"--key-env: there is no environment variable {args.key_env}, or it is empty")
    try:
        keyring = Keyring(Key.from_text(str(text)))
    except ValueError as error:
        args.error(f"--key-env {args.key_env}: {error}")
    header = peek(blob)
    if header.suite != SUITE_AES_256_GCM:
        return Signed(keyring)
    try:  # what is written with it is as safe to show as what was read: clients see what is not compressed
        return Encrypted(keyring, visible_to="server" if header.compression else "client")
    except ImportError as error:
        raise GoAIToolsError(str(error)) from error


def _binding(args: argparse.Namespace) -> Binding:
    from ..state.codec import UNBOUND

    binding: dict[str, str] = {}
    for text in args.binding or ():
        name, sign, value = text.partition("=")
        if not name or not sign:
            args.error("--binding is NAME=VALUE, such as --binding user=ada")
        binding[name] = value
    return binding or UNBOUND


def refusal(args: argparse.Namespace, error: StateAuthError) -> str:
    """Why a sealed state was not opened, in the words of the options."""
    from ..state.blob import peek
    from ..state.codec import SUITE_PLAIN

    if args.key_env is None:
        return "the state is sealed; name the environment variable with its key: --key-env NAME"
    if peek(error.blob).suite == SUITE_PLAIN:
        return "the state is not sealed, so that no key vouches for it; leave --key-env out"
    return (
        f"the state was refused: the key in {args.key_env} has not sealed it, or it belongs to something "
        "else than --binding says, or it was changed"
    )
