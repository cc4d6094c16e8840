"""`goaitools inspect`: shows the contents of a state blob, without a model or an SDK.

Owns: the command's options, where the bytes come from, and the state as one self-contained HTML page: no
script, no font, no picture, no network. Must never know: the layout of a blob, or where the page goes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any, Final

from ..base.escaping import visible
from ..base.values import replace
from .source import add_source, opened_source, write_bytes
from .text_output import add_json, printable, show_json

if TYPE_CHECKING:
    from ..history.info import StateInfo
    from ..history.transcript import History, HistoryCall, HistoryTurn
    from ..types.messages import Message, Part
    from .state_report import TurnBar

__all__ = ["add_to", "page"]

_CONTENT: Final = ("metadata", "sticky_settings", "title", "topics")
"""Facts that an application or a user has written. They are shown with --show only."""


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "inspect",
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


# --------------------------------------------------------------------------------------------- as a page


_MINUTES: Final = 600.0
"""Times nearer than that, in seconds, are shown with their seconds."""

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2126; --soft: #5c6670; --line: #d5dae0; --back: #fff;
  --context: #5b8dd6; --reply: #a0569f; --cut: #c0392b; --good: #2e8b57; --near: #b7791f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #9aa5b1; --line: #3a424b;
  --back: #15191d; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0; font-weight: normal; }
th { color: var(--soft); width: 9rem; }
.meter, .bar { display: flex; height: .9rem; border-radius: 3px; overflow: hidden; }
.meter { background: var(--line); } .meter i { background: var(--good); }
.approaching i { background: var(--near); } .at_limit i { background: var(--cut); }
.context { background: var(--context); } .reply { background: var(--reply); }
.bars td { width: 100%; } .bars th { width: auto; white-space: nowrap; } .bar { margin-top: .3rem; }
.bars td + td { width: auto; white-space: nowrap; text-align: right; }
.key { color: var(--soft); } .key i { display: inline-block; width: .8em; height: .8em; margin-right: .3em; }
.key i.dot { border-radius: 50%; } .key i.cut { width: 3px; background: var(--cut); }
.time { position: relative; height: 1.6rem; border-bottom: 2px solid var(--line); margin: 0 .5rem; }
.time i { position: absolute; bottom: -5px; width: 8px; height: 8px; margin-left: -4px; border-radius: 50%;
  background: var(--context); }
.time i.cut { border-radius: 0; height: 1.4rem; width: 3px; margin-left: -1px; background: var(--cut); }
.ends { display: flex; justify-content: space-between; color: var(--soft); }
details { border-top: 1px solid var(--line); padding: .4rem 0; } summary { cursor: pointer; }
.who { color: var(--soft); margin: .6rem 0 0; } pre { margin: 0; white-space: pre-wrap; font: inherit; }
@media (max-width: 40rem) { .bars tr { display: grid; grid-template-columns: 5rem 1fr; }
  .bars td + td { grid-column: 2; text-align: left; white-space: normal; padding-top: 0; }
  th { width: 6.5rem; } .ends span { max-width: 45%; } }
.call { border-left: 3px solid var(--line); padding-left: .6rem; } .block { color: var(--soft); }
"""


def page(
    info: StateInfo,
    facts: Iterable[tuple[str, str]],
    bars: Sequence[TurnBar],
    history: History | None = None,
) -> str:
    """The page. `facts`: names and texts. `history`: the messages, if they are to be shown."""
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>Conversation {_text(info.conversation_id)}</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>Conversation {_text(info.conversation_id)}</h1>",
        *_gauges(info),
        "<h2>Facts</h2><table>",
        *(f"<tr><th>{_text(name)}</th><td><pre>{_text(text)}</pre></td></tr>" for name, text in facts),
        "</table>",
    ]
    if bars:
        lines += ["<h2>Tokens by turn</h2>", *_bars_drawn(bars)]
    if bars or info.cuts:
        lines += ["<h2>Time</h2>", *_time(info, bars)]
    if history is not None:
        lines += ["<h2>What was said</h2>", *_history(history)]
    return "\n".join([*lines, "</body></html>", ""])


def _text(text: str) -> str:
    """Escape a text for the page, so that it opens no tag, ends no attribute, and reverses no line."""
    return escape(printable(text), quote=True)


def _gauges(info: StateInfo) -> Iterator[str]:
    for name, fraction in sorted(info.filled.items()):
        words = f"{fraction:.1%} of the limit on {name.replace('_', ' ')}"
        if name == "tokens":
            words = f"{info.tokens:,} of {info.context_window:,} tokens of the context window"
        width = min(100.0, 100 * fraction)
        yield f'<p>{_text(words)}</p><div class="meter {info.warning_level}">'
        yield f'<i style="width:{width:.2f}%"></i></div>'


def _bars_drawn(bars: Sequence[TurnBar]) -> Iterator[str]:
    most = max(1, *(bar.context + bar.output for bar in bars))
    yield '<p class="key"><i class="context"></i>in the context &nbsp; <i class="reply"></i>in replies</p>'
    yield '<table class="bars">'
    for bar in bars:
        widths = 100 * bar.context / most, 100 * bar.output / most
        yield f"<tr><th>{_turn_name(bar.number)}</th><td>"
        yield f'<div class="bar"><i class="context" style="width:{widths[0]:.2f}%"></i>'
        yield f'<i class="reply" style="width:{widths[1]:.2f}%"></i></div></td>'
        yield f"<td>{bar.context:,} in, {bar.output:,} out, {_text(bar.status)}</td></tr>"
    yield "</table>"


def _turn_name(number: int) -> str:
    return f"turn {number:,}" if number else "note"


def _time(info: StateInfo, bars: Sequence[TurnBar]) -> Iterator[str]:
    marks = [("", bar.started_at, _turn_name(bar.number)) for bar in bars]
    marks += [("cut", at, f"cut by {by}: {turns} turns") for at, by, turns, _ in info.cuts]
    times = [info.created_at, info.updated_at, *(at for _, at, _ in marks)]
    first, whole = min(times), (max(times) - min(times)).total_seconds() or 1.0
    yield '<div class="time">'
    for kind, at, name in marks:
        place = 100 * (at - first).total_seconds() / whole
        title = _text(f"{name}, {at:%Y-%m-%d %H:%M:%S} UTC")
        yield f'<i class="{kind}" style="left:{place:.2f}%" title="{title}"></i>'
    yield "</div>"
    form = "%Y-%m-%d %H:%M" if whole > _MINUTES else "%Y-%m-%d %H:%M:%S"
    ends = (f"<span>{at:{form}} UTC</span>" for at in (first, max(times)))
    yield f'<p class="ends">{"".join(ends)}</p>'
    yield '<p class="key"><i class="context dot"></i>a turn &nbsp; <i class="cut"></i>a cut</p>'


def _history(history: History) -> Iterator[str]:
    for turn in history.turns:
        yield from _turn(turn)
    if history.waiting:
        yield "<details open><summary>waiting, not yet seen by a model</summary>"
        for message in history.waiting:
            yield from _message(message, iter(()))
        yield "</details>"


def _turn(turn: HistoryTurn) -> Iterator[str]:
    began = f"{turn.started_at:%Y-%m-%d %H:%M:%S} UTC"
    yield f"<details><summary>{_turn_name(turn.number)}, {began}, {_text(turn.status)}</summary>"
    joined = {call.id for call in turn.calls}
    for iteration in turn.iterations:
        calls = iter(iteration.calls)
        for message in iteration.messages:
            if message.role != "tool" or message.tool_call_id not in joined:
                yield from _message(message, calls)
    for action in turn.actions:
        yield f'<p class="who">action</p><pre>{_text(action.text)}</pre>'
    if turn.partial_text:
        yield f'<p class="who">broke off</p><pre>{_text(turn.partial_text)}</pre>'
    yield "</details>"


def _message(message: Message, calls: Iterator[HistoryCall]) -> Iterator[str]:
    who = "event" if message.is_event else message.role
    speaker = f" ({_text(message.speaker)})" if message.speaker else ""
    if message.parts or not message.tool_calls:
        yield f'<p class="who">{_text(who)}{speaker}</p>'
        yield from _parts(message.parts)
    for call in (next(calls) for _ in message.tool_calls):
        yield f'<div class="call"><p class="who">calls {_text(call.name)}</p>'
        yield f"<pre>{_text(visible(call.arguments))}</pre>"
        seconds = f", {call.seconds:.3f} s" if call.seconds else ""
        state = f"waits: {call.waits_for}" if call.waits_for else call.flag or "has not begun"
        yield f'<p class="who">result: {_text(state)}{seconds}</p>'
        yield from _parts(call.parts)
        yield "</div>"


def _parts(parts: Sequence[Part]) -> Iterator[str]:
    from ..types.messages import Text

    for part in parts:
        if isinstance(part, Text):
            kind = ' class="block"' if part.is_block else ""
            yield f"<pre{kind}>{_text(part.text)}</pre>"
            continue
        where = "by URL" if part.url else f"{len(part.data or b''):,} bytes"
        yield f"<pre>[{type(part).__name__.lower()}, {_text(part.media_type)}, {where}]</pre>"
