"""`goaitools import`: makes a state from an export, or from a state of the Go library.

Owns: the command's options, and the choice between the two inputs. Must never know: the shape of an input.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

from .output import add_json, add_out, refuse_existing, tell
from .sealed import add_options, add_seal, check_options, sealed_anew
from .stores import add_store, has_store, opened_store, shown_url

__all__ = ["add_to"]

_GZIP: Final = b"\x1f\x8b"


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "import",
        description="Make a state of what `goaitools export` wrote, or of a state of the Go library "
        "(JSON, gzipped or not). All of it is checked. The new file or key must not exist yet.",
    )
    parser.add_argument("file", metavar="FILE", help="the JSON; - for standard input")
    add_out(parser, otherwise="the store")
    add_store(parser, what="save the state in this store")
    parser.add_argument("--key", metavar="KEY", help="its new key in the store")
    add_options(parser)
    add_seal(parser)
    add_json(parser)
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Read the JSON, make the state and save it."""
    if args.out is not None and (args.store is not None or args.key is not None):
        args.error("name an --out FILE or a --store URL with --key KEY, not both")
    if args.out is None and not (has_store(args) and args.key):
        args.error("name where the state goes: --out FILE, or --store URL with --key KEY")
    check_options(args)
    if args.out is not None:
        refuse_existing(args.out)
    sealed = sealed_anew(args, key=args.key or "")
    blob, kind = _state(args, sealed)
    if args.out is not None:
        from .source import write_file

        write_file(args.out, blob)
        to = "standard output" if args.out == "-" else args.out
    else:
        to = f"conversation {args.key!r} in {shown_url(args.store)}"
        _save(args, blob, sealed)
    from ..history.info import inspect_state

    info = inspect_state(blob, **sealed)
    facts = {"imported": kind, "to": to, "turns": info.turns, "messages": info.messages, "bytes": len(blob)}
    tell(args, facts, aside=args.out == "-")
    return 0


def _state(args: argparse.Namespace, sealed: dict[str, Any]) -> tuple[bytes, str]:
    """The state, and the format that it was made of. Raises GoAIToolsError with the input's name."""
    from ..types.errors import GoAIToolsError

    label = "standard input" if args.file == "-" else args.file
    if args.file == "-":
        data = sys.stdin.buffer.read()
    else:
        with open(args.file, "rb") as file:
            data = file.read()
    if data.startswith((b"\xf5GAS", b"gas1.")):
        raise GoAIToolsError(f"{label}: this is a state already; an import takes the JSON of an export")
    found = _as_json(data)
    is_export = isinstance(found, dict) and ("format" in found or "meta" in found)
    if not (is_export or data.startswith(_GZIP) or (isinstance(found, dict) and "messages" in found)):
        what = "no JSON" if found is None else "other JSON"
        raise GoAIToolsError(
            f"{label}: found {what}, expected what `goaitools export` writes, or a state of the Go library"
        )
    try:
        if is_export:
            from ..history.export import import_state

            return import_state(found, **sealed), "an export"
        from ..history.go_states import import_goaitools_state

        id = None
        if args.key:
            from ..chat.kept.changes import conversation_id

            id = conversation_id(args.key)
        return import_goaitools_state(data, conversation_id=id, **sealed), "a state of the Go library"
    except (GoAIToolsError, ValueError, RecursionError) as error:
        raise GoAIToolsError(f"{label}: {error}") from error


def _as_json(data: bytes) -> Any:
    """The JSON value. None for other data, also if gzipped: the Go library's reader gives a better error."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _save(args: argparse.Namespace, blob: bytes, sealed: dict[str, Any]) -> None:
    from ..chat.kept.full_row import save_new
    from ..types.errors import GoAIToolsError, StateConflictError

    with opened_store(args.store, args.table, make=True) as store:
        try:
            save_new(store, args.key, blob, **sealed)
        except StateConflictError as error:
            raise GoAIToolsError(
                f"there is a conversation {args.key!r} in {shown_url(args.store)} already; name a new --key"
            ) from error
