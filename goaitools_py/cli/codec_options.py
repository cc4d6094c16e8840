"""The keys that open a sealed state for a command, and the text of a refusal.

Owns: `--key-env`, `--binding`, `--seal`, and which codec a blob's header asks for. Must never know: the
contents of a blob.

A key is never given on the command line, because every user of the machine can read that.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..seal import Keyring
    from ..state.codec import Binding, Codec
    from ..types.errors import StateAuthError

__all__ = ["add_options", "add_seal", "check_options", "opened_with", "refusal", "sealed_anew"]

_KINDS: Final = ("signed", "encrypted", "client")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of sealed states."""
    parser.add_argument(
        "--key-env",
        metavar="NAME",
        action="append",
        help="environment variable with the key of a signed or encrypted state, as Key.to_text wrote it; "
        "give it again for older keys: the first key seals, all keys open",
    )
    parser.add_argument(
        "--binding",
        metavar="NAME=VALUE",
        action="append",
        help="the owner of a sealed state, once for each name; {key} stands for the key in the store "
        "(default: UNBOUND)",
    )


def add_seal(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses the codec of a new state."""
    parser.add_argument(
        "--seal",
        choices=_KINDS,
        help="how --key-env protects the new state: signed, encrypted, or encrypted for clients "
        "(default: signed)",
    )


def check_options(args: argparse.Namespace) -> None:
    """End the command if an option is wrong, or needs another one."""
    if args.key_env is None:
        for name in ("binding", "seal"):
            if getattr(args, name, None):
                args.error(
                    f"--{name} is for sealed states: name the variable with their key too, --key-env NAME"
                )
        return
    _keyring(args)
    _binding(args, "")


def opened_with(args: argparse.Namespace, blob: bytes, *, key: str = "") -> dict[str, Any]:
    """The `codec` and `binding` that open a blob; {} if no key is named. `key`: its key in a store.

    Wrong options end the command. Raises StateError if the blob has no header, and GoAIToolsError if a
    package is missing.
    """
    check_options(args)
    if args.key_env is None:
        return {}
    from ..state.blob_header import peek
    from ..state.codec import SUITE_AES_256_GCM

    # `Signed` refuses a blob that is not sealed: a key was given.
    header = peek(blob)
    kind = "signed"
    if header.suite == SUITE_AES_256_GCM:  # keep the form: a state that clients may see is not compressed
        kind = "encrypted" if header.compression else "client"
    return {"codec": _codec(kind, _keyring(args)), "binding": _binding(args, key)}


def sealed_anew(args: argparse.Namespace, *, key: str = "") -> dict[str, Any]:
    """The `codec` and `binding` of a new state; {} for a plain one. As `opened_with`, with ``--seal``."""
    check_options(args)
    if args.key_env is None:
        return {}
    return {"codec": _codec(args.seal or "signed", _keyring(args)), "binding": _binding(args, key)}


def _codec(kind: str, keyring: Keyring) -> Codec:
    from ..seal import Encrypted, Signed
    from ..types.errors import GoAIToolsError

    if kind == "signed":
        return Signed(keyring)
    try:
        return Encrypted(keyring, visible_to="server" if kind == "encrypted" else "client")
    except ImportError as error:
        raise GoAIToolsError(str(error)) from error


def _keyring(args: argparse.Namespace) -> Keyring:
    from ..seal import Key, Keyring

    keys = []
    for name in args.key_env:
        text = os.environ.get(name)
        if not text:
            args.error(f"--key-env: there is no environment variable {name}, or it is empty")
        try:
            keys.append(Key.from_text(str(text)))
        except ValueError as error:
            args.error(f"--key-env {name}: {error}")
    return Keyring(*keys)


def _binding(args: argparse.Namespace, key: str) -> Binding:
    from ..state.codec import UNBOUND

    binding: dict[str, str] = {}
    for text in args.binding or ():
        name, sign, value = text.partition("=")
        if not name or not sign:
            args.error("--binding is NAME=VALUE, such as --binding user=ada")
        binding[name] = value.replace("{key}", key)
    return binding or UNBOUND


def refusal(args: argparse.Namespace, error: StateAuthError) -> str:
    """Why a sealed state was not opened, in terms of the command's options."""
    from ..state.blob_header import peek
    from ..state.codec import SUITE_PLAIN

    if args.key_env is None:
        return "the state is sealed; name the environment variable with its key: --key-env NAME"
    if peek(error.blob).suite == SUITE_PLAIN:
        return "the state is not sealed, so no key protects it; leave --key-env out"
    return (
        f"the state was refused: the key in {' or '.join(args.key_env)} has not sealed it, or it has another "
        "owner than --binding says, or it was changed"
    )
