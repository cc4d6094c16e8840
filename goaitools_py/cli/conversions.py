"""`goaitools export`, `import` and `convert`: a conversation in another form, and a state from another form.

Owns: the options of these commands, which form a file's name asks for, how losses are shown, and that no file
is overwritten. Must never know: the shape of an export, the changes of a conversion, or a store.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from .codec_options import add_options, add_seal, check_options, sealed_anew
from .source import Source, add_source, opened_source, write_bytes
from .store_urls import add_store, has_store, opened_store, shown_url
from .text_output import add_json, add_out, put, refuse_existing, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..history.convert.entries import Loss

__all__ = ["add_convert", "add_export", "add_import", "exported", "file_name", "write_new"]

_GZIP: Final = b"\x1f\x8b"


def add_import(commands: Any) -> None:
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
    parser.set_defaults(run=run_import, error=parser.error)


def run_import(args: argparse.Namespace) -> int:
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
        from ..history.import_messages import import_goaitools_state

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


_WIRES: Final = ("openai", "openai-responses", "anthropic")


def add_convert(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "convert",
        description="Write a conversation for another provider API, and say what could not go along. "
        "Without --out the old state is replaced: what is lost does not come back.",
    )
    add_source(parser)
    parser.add_argument(
        "--to", metavar="API", choices=_WIRES, required=True, help=f"the provider API: {', '.join(_WIRES)}"
    )
    add_out(parser, otherwise="the old state's place")
    add_json(parser)
    parser.set_defaults(run=run_convert, error=parser.error)


def run_convert(args: argparse.Namespace) -> int:
    """Read the state, convert it, and write it."""
    from ..history.convert.state import convert_state
    from ..history.info import inspect_state

    with opened_source(args, changes=args.out is None) as source:
        found = inspect_state(source.blob, **source.opened).wire
        conversion = convert_state(source.blob, args.to, **source.opened)
        is_same = conversion.state == source.blob and args.out is None
        to = source.place if is_same else put(args, source, conversion.state)
    facts = {
        "converted": source.label,
        "to": to,
        "provider_API_before": found,
        "provider_API": args.to,
        "bytes": len(conversion.state),
        "losses": _losses(conversion.losses, as_json=args.json),
    }
    tell(args, facts, aside=to == "standard output")
    return 0


def _losses(losses: Sequence[Loss], *, as_json: bool) -> Any:
    """Each loss with its turn for programs, and the sums for people."""
    if as_json:
        return [{"turn": loss.turn, "kind": loss.kind, "count": loss.count} for loss in losses]
    from ..history.convert.entries import summary

    return [f"{kind} {count}" for kind, count in summary(losses).items()] or "none"


def add_export(commands: Any) -> None:
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
    parser.set_defaults(run=run_export, error=parser.error)


def run_export(args: argparse.Namespace) -> int:
    """Read the state and write the text."""
    if args.archived and not args.markdown:
        args.error("--archived goes with --markdown; JSON has the archive anyway")
    if args.markdown and args.json:
        args.error("--markdown and --json are two forms: give one of them")
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


_UNSAFE: Final = re.compile(r"[^\w.-]+")


def exported(blob: bytes, path: str, opened: Mapping[str, Any]) -> bytes:
    """The bytes of the file: Markdown for ".md", the JSON of `export_state` for ".json", else the state.

    The state keeps its seal. Raises StateError if it cannot be read.
    """
    from ..states import export_state, to_markdown

    match os.path.splitext(path)[1].lower():
        case ".md":
            return to_markdown(blob, **opened).encode("utf-8", "replace")
        case ".json":
            return json.dumps(export_state(blob, **opened), indent=2).encode() + b"\n"
    return blob


def file_name(key: str) -> str:
    """The name of a Markdown file for a conversation, without signs that a file system may refuse."""
    return f"{_UNSAFE.sub('_', key)[:100].lstrip('.') or 'conversation'}.md"


def write_new(path: str, data: bytes) -> None:
    """Write a file that is not there yet, for its owner only. Raises OSError."""
    number = os.open(os.path.expanduser(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(data)
