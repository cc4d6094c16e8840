"""A state as a picture of characters: how full the context is, tokens by turn, cuts on a line of time.

Owns: bars and lines within 80 columns, in colour or without. Must never know: a message, or the words of a
report.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

from .terminal import WIDTH, printable

if TYPE_CHECKING:
    from ..history.info import StateInfo
    from ..history.transcript import History

__all__ = ["Style", "TurnBar", "bars_of", "picture_lines", "style_for"]

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
