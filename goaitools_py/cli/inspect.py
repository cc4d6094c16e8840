"""`goaitools inspect`: shows the contents of a state blob, without a model or an SDK.

Owns: the command's options, and where the bytes come from. Must never know: the layout of a blob.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..base.values import replace
from .source import add_source, opened_source, write_bytes
from .text_output import add_json, show_json

if TYPE_CHECKING:
    from ..history.info import StateInfo
    from ..history.transcript import History
    from .state_report import TurnBar

__all__ = ["add_to"]

_CONTENT: Final = ("metadata", "sticky_settings", "title", "topics")
"""Facts that an application or a user has written. They are shown with --show only."""


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "inspect",
        help="say what is in a state blob",
        description="Say what is in a state blob: sizes, counts, status, calls that wait. Show how full the "
        "context is, tokens by turn, and cuts. Content only with --show.",
    )
    add_source(parser)
    add_json(parser)
    parser.add_argument(
        "--html", metavar="FILE", help="write one page for a browser, which only its owner may read"
    )
    parser.add_argument("--show", action="store_true", help="also what was said")
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Read the blob and print its facts."""
    if args.html is not None and args.json:
        args.error("--html writes a page, and --json prints values: name one of them")
    from ..history.info import inspect_state
    from ..history.turns import read_history

    with opened_source(args, unopened=True) as source:
        blob, opened = source.blob, source.opened
        info = inspect_state(blob, **opened)
        history = read_history(blob, **opened) if args.show else None
        bars = _bars(info, blob, opened, history)
        if args.json:
            show_json(_facts(info, bars, blob, opened, history))
            return 0
    if args.html is not None:
        return _write_page(args, info, bars, history)
    from .state_report import history_lines, info_lines, picture_lines, style_for

    print(*info_lines(info, info.pending, arguments=args.show), sep="\n")
    if not info.is_sealed:
        print("", *picture_lines(info, bars, style_for(sys.stdout)), sep="\n")
    if history is not None:
        print("", *history_lines(history, open_calls=info.open_calls), sep="\n")
    return 0


def _bars(info: StateInfo, blob: bytes, opened: dict[str, Any], history: History | None) -> list[TurnBar]:
    """The size of each turn. [] for a sealed state, and for one with messages that cannot be read here."""
    from ..history.turns import read_history
    from ..types.errors import StateError
    from .state_report import bars_of

    if info.is_sealed:
        return []
    with suppress(StateError):  # such as a state of a provider API that is not built in
        return bars_of(history or read_history(blob, **opened))
    return []


def _write_page(
    args: argparse.Namespace, info: StateInfo, bars: Sequence[TurnBar], history: History | None
) -> int:
    from .state_page import page
    from .state_report import info_facts

    facts = info_facts(info, info.pending, content=args.show)
    write_bytes(args.html, page(info, facts, bars, history).encode())
    if args.html != "-":
        print(f"written: {args.html}")
    return 0


def _facts(
    info: StateInfo,
    bars: Sequence[TurnBar],
    blob: bytes,
    opened: dict[str, Any],
    history: History | None,
) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(replace(info, pending=()))
    facts |= {"warning_level": info.warning_level, "context_fraction": info.context_fraction}
    facts["pending"] = [
        {"id": call.id, "name": call.name, "reason": call.reason}
        | ({"arguments": call.arguments} if history is not None else {})
        for call in info.pending
    ]
    facts["tokens_by_turn"] = [{**bar._asdict(), "started_at": bar.started_at.isoformat()} for bar in bars]
    if info.is_sealed:
        facts["created_at"] = facts["updated_at"] = None
    if history is None:
        for name in _CONTENT:
            del facts[name]
    else:
        from ..history.import_messages import state_messages

        facts["history"] = state_messages(blob, **opened)
        facts["transcript"] = history.to_dict()
    return facts
