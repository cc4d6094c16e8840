"""Tool calls and conversations as short lines.

Owns: these lines. Must never know: where they are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ..base.escaping import visible
from .facts import shortened
from .terminal import WIDTH, counted, printable

if TYPE_CHECKING:
    from ..stores import StoredKey
    from ..types.answers import PendingCall
    from ..types.events import ToolFinished, ToolStarted

__all__ = ["call_line", "key_line", "key_lines", "newest_first", "outcome", "result_line", "waiting_lines"]

_WORDS: Final = {
    "ok": "done",
    "error": "failed",
}


def call_line(event: ToolStarted) -> str:
    """A call that begins: "tool get_score {…}"."""
    return _line(f"tool {event.name} {visible(event.arguments)}")


def result_line(event: ToolFinished) -> str:
    """A call that has ended: "tool get_score: 30"."""
    state = f" ({outcome(event.flag)})" if event.flag != "ok" else ""
    return _line(f"tool {event.name}{state}: {event.output}")


def outcome(flag: str) -> str:
    """The flag of a tool's result in words."""
    return _WORDS.get(flag, flag.replace("_", " "))


def waiting_lines(waiting: Sequence[PendingCall]) -> Iterator[str]:
    """The calls that wait, and the commands that answer them."""
    from .answers import question_lines
    from .arguments import pretty
    from .report import pending_lines

    yield f"This conversation waits for {counted(len(waiting), 'answer')}:"
    for call in waiting:
        yield from pending_lines([call])
        asked = list(question_lines(call))
        yield from asked or [f"  {pretty(call.arguments)}"]
    yield "/approve lets them run; /deny WHY denies them, and the model reads why."
    if any(call.reason == "external" for call in waiting):
        yield "/answer TEXT gives the first result that is waited for; a form takes /answer NAME=VALUE."


def key_line(stored: StoredKey) -> str:
    """A conversation of a store: its name, and the facts of the store's plain columns."""
    facts = stored.facts
    title = f": {facts.title}" if facts is not None and facts.title else ""
    turns = f", {counted(facts.turns, 'turn')}" if facts is not None and facts.turns is not None else ""
    open_ = f", {facts.status.replace('_', ' ')}" if facts and facts.status not in ("", "complete") else ""
    return f"{stored.key}{title}{turns}{open_}, {stored.updated_at:%Y-%m-%d %H:%M}"


def key_lines(found: Sequence[StoredKey], at_hand: str) -> Iterator[str]:
    """The conversations, the newest first; the current one has a star."""
    for stored in newest_first(found):
        yield _line(f"{'*' if stored.key == at_hand else ' '} {key_line(stored)}")


def newest_first(found: Sequence[StoredKey]) -> list[StoredKey]:
    """The conversations in the order of a list."""
    return sorted(found, key=lambda stored: (stored.updated_at, stored.key), reverse=True)


def _line(text: str) -> str:
    return shortened(" ".join(printable(text).split("\n")), WIDTH)
