"""A state as readable lines: its facts, its messages, and pictures of how full it is and when it was cut.

Owns: the text, columns, bars and colours of `inspect`, `/info` and `/history`, within 80 columns. Must never
know: where the state came from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

from .text_output import WIDTH, columns, counted, printable

if TYPE_CHECKING:
    from datetime import datetime

    from ..history.info import StateInfo
    from ..history.transcript import History
    from ..types.answers import PendingCall
    from ..types.messages import Message, Part, Usage

__all__ = [
    "Style",
    "TurnBar",
    "bars_of",
    "history_lines",
    "info_facts",
    "info_lines",
    "pending_lines",
    "picture_lines",
    "style_for",
]

_INFO_WIDTH = 14
_ROLE_WIDTH = 11
_STATUS = {
    "in_progress": "unfinished: the last turn did not end; resume finishes it",
    "failed": "failed: the last turn broke off; resume finishes it",
}
_REASONS = {
    "approval": "waits for an approval",
    "external": "waits for its result from outside",
    "in_doubt": "had started and not finished; whether it took effect is unknown",
}


def info_lines(
    info: StateInfo, pending: Sequence[PendingCall] = (), *, arguments: bool = False
) -> Iterator[str]:
    """A state's facts, one for each line, without message content. `arguments`: show the calls' arguments."""
    for label, text in info_facts(info, pending, content=arguments):
        yield from columns(label, text, width=_INFO_WIDTH)


def pending_lines(pending: Sequence[PendingCall]) -> Iterator[str]:
    """A line for each call that takes an answer: name, id and reason."""
    for call in pending:
        yield from columns("pending", _pending(call), width=_INFO_WIDTH)


def _pending(call: PendingCall) -> str:
    return f"{call.name} {call.id}: {_REASONS[call.reason]}"


def _status(info: StateInfo, pending: Sequence[PendingCall]) -> str:
    if info.status == "awaiting_tools":
        answers = counted(sum(call.reason != "in_doubt" for call in pending), "answer")
        return f"waits for {answers}; give them to resume"
    return _STATUS.get(info.status, info.status)


def info_facts(
    info: StateInfo, pending: Sequence[PendingCall] = (), *, content: bool = False
) -> Iterator[tuple[str, str]]:
    """Names and texts of a state's facts. `content`: also arguments of calls, topics of events, title and
    metadata."""
    if info.is_sealed:
        yield "status", f"{info.suite}; name the environment variable with its key: --key-env NAME"
        yield "key", f"{info.key_id:08x}"
        yield "size", counted(info.blob_bytes, "byte")
        yield from _parts(info)
        yield "format", f"version {info.format_version}"
        yield "not verified", "nothing of this was checked against the key"
        return
    endpoint = f", endpoint {info.endpoint}" if info.endpoint else ""
    yield "provider API", info.wire + endpoint
    yield "model", info.model or "none has answered yet"
    yield "conversation", f"{info.conversation_id}, revision {info.revision:,}"
    yield "status", _status(info, pending)
    yield "turns", f"{info.turns:,} in the history, {info.turns_processed:,} ever"
    yield "messages", f"{info.messages:,}, and {info.waiting_messages:,} that no model has seen"
    if info.roles:
        yield "entries", ", ".join(f"{role} {count:,}" for role, count in info.roles.items())
    if content and info.title:
        yield "title", info.title
    if content and info.metadata:
        yield "metadata", ", ".join(f"{name}={value}" for name, value in info.metadata.items())
    if content and info.topics:
        yield "topics", ", ".join(info.topics)
    if info.open_calls:
        yield "open calls", f"{info.open_calls:,}"
    for call in pending:
        yield "pending", f"{_pending(call)}\n{call.shown}" if content else _pending(call)
    yield "tokens", f"about {info.tokens:,} for the history"
    yield "last usage", _usage(info.usage)
    yield "total usage", _usage(info.total_usage)
    yield "size", f"{counted(info.blob_bytes, 'byte')} for {info.history_bytes:,} of history"
    yield from _parts(info)
    if info.warning_level:
        of, fullest = max(info.filled.items(), key=lambda pair: pair[1])
        yield "warning", f"{of.replace('_', ' ')}: {fullest:.0%} of the limit is taken"
    if info.key_id:
        yield "key", f"{info.suite} by {info.key_id:08x}"
    yield "format", f"version {info.format_version}"
    preamble, tools = ("yes" if given else "no" for given in (info.has_preamble, info.has_tools))
    yield "sent with", f"system text: {preamble}, tools: {tools}"
    if info.sticky_settings:
        yield "settings", ", ".join(f"{name}={value!r}" for name, value in info.sticky_settings.items())
    if info.turn_ids or info.event_ids:
        yield "remembers", f"{counted(info.turn_ids, 'turn id')}, {counted(info.event_ids, 'event id')}"
    yield "created", _time(info.created_at)
    yield "updated", _time(info.updated_at)
    for at, by, turns, messages in info.cuts:
        removed = f"{counted(turns, 'turn')} and {counted(messages, 'message')} removed"
        yield "cut", f"{_time(at)} by {by}: {removed}"


def _parts(info: StateInfo) -> Iterator[tuple[str, str]]:
    if info.archive_records:
        yield "archive", f"{counted(info.archive_bytes, 'byte')} in {counted(info.archive_records, 'record')}"
    if info.media:
        yield "media", f"{info.media:,} in {counted(info.media_bytes, 'byte')}"
    if info.results:
        yield "results", f"{info.results:,} kept whole in {counted(info.result_bytes, 'byte')}"


def _usage(usage: Usage) -> str:
    return (
        f"{usage.input_tokens:,} tokens in ({usage.cached_input_tokens:,} cached), "
        f"{usage.output_tokens:,} out, {counted(usage.requests, 'request')}"
    )


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def history_lines(history: History, *, open_calls: int = 0) -> Iterator[str]:
    """Every message, turn by turn, waiting ones last. With `open_calls` the last turn is unfinished."""
    for number, turn in enumerate(history.turns, 1):
        is_open = open_calls and number == len(history.turns)
        as_if = ", unfinished: shown as it would close now" if is_open else ""
        yield f"turn {number}, {_time(turn.started_at)}{as_if}"
        for message in turn.messages:
            yield from _message(message)
    if history.waiting:
        yield "waiting, not yet seen by a model"
        for message in history.waiting:
            yield from _message(message)


def _message(message: Message) -> Iterator[str]:
    role = "event" if message.is_event else message.role
    if message.parts or not message.tool_calls:
        yield from columns(role, "\n".join(map(_part, message.parts)), width=_ROLE_WIDTH)
    for call in message.tool_calls:
        yield from columns(role, f"calls {call.name} {call.arguments}", width=_ROLE_WIDTH)


def _part(part: Part) -> str:
    from ..types.messages import Text

    if isinstance(part, Text):
        return part.text
    where = "by URL" if part.url else counted(len(part.data or b""), "byte")
    return f"[{type(part).__name__.lower()}, {part.media_type}, {where}]"


_MOST_BARS: Final = 12
_LABEL: Final = 16
_ROOM: Final = WIDTH - _LABEL


class Style(NamedTuple):
    """The characters of a picture, and whether it has colours."""

    full: str = "█"
    light: str = "▒"
    empty: str = "░"
    line: str = "─"
    turn: str = "●"
    cut: str = "×"
    has_color: bool = False

    def paint(self, text: str, code: str) -> str:
        """The text in a colour, where there are colours. `code`: the number of an ANSI escape."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.has_color and text else text


ASCII: Final = Style(full="#", light="=", empty=".", line="-", turn="o", cut="x")
_LEVEL_COLORS: Final = {"": "32", "approaching": "33", "at_limit": "31"}


def style_for(stream: TextIO) -> Style:
    """The style for a stream: colours on a terminal only, unless NO_COLOR is set (https://no-color.org);
    plain characters where the stream cannot write others."""
    has_color = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    style = Style()
    try:
        "".join(style[:-1]).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        style = ASCII
    return style._replace(has_color=has_color)


class TurnBar(NamedTuple):
    """The tokens of a turn. `context`: input of its last model call. `output`: output of all its calls."""

    number: int
    started_at: datetime
    context: int
    output: int
    status: str


def bars_of(history: History) -> list[TurnBar]:
    """The tokens of each turn that a model has answered, oldest first."""
    found = []
    for turn in history.turns:
        inputs = [one.usage.input_tokens for one in turn.iterations if one.usage.total_tokens]
        if inputs:
            bar = TurnBar(turn.number, turn.started_at, inputs[-1], turn.usage.output_tokens, turn.status)
            found.append(bar)
    return found


def picture_lines(info: StateInfo, bars: Sequence[TurnBar], style: Style) -> Iterator[str]:
    """The lines of the picture; no line is wider than 80 columns."""
    yield from _gauge(info, style)
    if bars:
        yield ""
        yield from _bars(bars, style)
    if bars or info.cuts:
        yield ""
        yield from _time_line(info, bars, style)


def _gauge(info: StateInfo, style: Style) -> Iterator[str]:
    fraction = info.context_fraction
    if fraction is None:
        yield f"{'context':<{_LABEL}}{info.tokens:,} tokens; the model's context window is not known"
    else:
        words = f" {fraction:.0%} of {info.context_window:,} tokens"
        yield f"{'context':<{_LABEL}}{_meter(fraction, _ROOM - len(words), info, style)}{words}"
    of, fullest = max(
        ((name, value) for name, value in info.filled.items() if name != "tokens"), key=lambda pair: pair[1]
    )
    words = f" {fullest:.0%} of the limit on {of.replace('_', ' ')}"
    yield f"{'state':<{_LABEL}}{_meter(fullest, _ROOM - len(words), info, style)}{words}"


def _meter(fraction: float, width: int, info: StateInfo, style: Style) -> str:
    filled = min(width, max(0, round(fraction * width)))
    done = style.paint(style.full * filled, _LEVEL_COLORS[info.warning_level])
    return done + style.empty * (width - filled)


def _bars(bars: Sequence[TurnBar], style: Style) -> Iterator[str]:
    shown = bars[-_MOST_BARS:]
    left = len(bars) - len(shown)
    yield f"tokens by turn: {style.light} in the context, {style.full} in replies" + (
        f"; {left:,} earlier turns are not shown" if left else ""
    )
    most = max(1, *(bar.context + bar.output for bar in shown))
    words = [f" {bar.context:,} + {bar.output:,}" for bar in shown]
    room = _ROOM - max(map(len, words))
    for bar, text in zip(shown, words, strict=True):
        output = max(int(bar.output > 0), round(room * bar.output / most))
        context = min(room - output, round(room * bar.context / most))
        name = f"turn {bar.number:,}" if bar.number else "note"
        mark = "" if bar.status in ("complete", "awaiting_tools", "in_progress") else "!"
        drawn = style.paint(style.light * context, "36") + style.paint(style.full * output, "35")
        yield f"{name + mark:<{_LABEL}}{drawn}{text}"


def _time_line(info: StateInfo, bars: Sequence[TurnBar], style: Style) -> Iterator[str]:
    """A line of time, with turns and cuts at their places between the first and the last one."""
    times = [
        info.created_at,
        info.updated_at,
        *(bar.started_at for bar in bars),
        *(cut[0] for cut in info.cuts),
    ]
    first, last = min(times), max(times)
    whole = (last - first).total_seconds()

    def place(at: datetime) -> int:
        return round((_ROOM - 1) * ((at - first).total_seconds() / whole if whole else 0))

    line = [style.line] * _ROOM
    for bar in bars:
        line[place(bar.started_at)] = style.turn
    for at, *_ in info.cuts:
        line[place(at)] = style.cut
    drawn = "".join(style.paint(one, "31") if one == style.cut else one for one in line)
    yield f"{'time':<{_LABEL}}{drawn}"
    begin, end = (printable(f"{at:%Y-%m-%d %H:%M} UTC") for at in (first, last))
    yield f"{'':<{_LABEL}}{begin}{end:>{_ROOM - len(begin)}}"
    if info.cuts:
        yield f"{'':<{_LABEL}}{style.turn} a turn, {style.cut} a cut"
