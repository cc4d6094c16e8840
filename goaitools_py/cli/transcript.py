"""A stored conversation as a list for a screen: texts and tool calls, in order.

Owns: these entries, and which result belongs to which call. Must never know: a screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from .terminal import counted, printable
from .told import outcome

if TYPE_CHECKING:
    from ..history.turns import History
    from ..types.answers import PendingCall
    from ..types.messages import Message

__all__ = ["CallShown", "Entry", "TextShown", "clipped", "transcript", "waits_words"]

MAX_TURNS: Final = 50
"""A screen begins with the newest turns. `/history` shows all."""


class TextShown(NamedTuple):
    """A text: of the user, the model, an event or the system; or a "note" of this program."""

    who: Literal["user", "assistant", "event", "system", "note"]
    text: str


class CallShown(NamedTuple):
    """A tool call. `waits`: why it takes an answer, "" if it takes no answer; see `PendingCall.reason`."""

    id: str
    name: str
    arguments: str
    state: str
    output: str = ""
    waits: str = ""


Entry = TextShown | CallShown


def transcript(history: History, pending: Sequence[PendingCall]) -> Iterator[Entry]:
    """The entries of a conversation, the newest turns of a long one."""
    turns = history.turns[-MAX_TURNS:]
    if left := len(history.turns) - len(turns):
        yield TextShown("note", f"{counted(left, 'earlier turn')}: /history shows all.")
    messages = [message for turn in turns for message in turn.messages]
    results = {message.tool_call_id: message for message in messages if message.tool_call_id}
    waiting = {call.id: call for call in pending}
    for message in (*messages, *history.waiting):
        yield from _entries(message, results, waiting)


def _entries(
    message: Message, results: Mapping[str, Message], waiting: Mapping[str, PendingCall]
) -> Iterator[Entry]:
    if message.role != "tool" and (text := _text(message)):
        yield TextShown("event" if message.is_event else message.role, text)
    for call in message.tool_calls:
        result, wait = results.get(call.id), waiting.get(call.id)
        if wait is not None:
            yield CallShown(call.id, call.name, call.arguments, waits_words(wait.reason), waits=wait.reason)
        elif result is None:
            yield CallShown(call.id, call.name, call.arguments, "not run")
        else:
            yield CallShown(call.id, call.name, call.arguments, outcome("ok"), _text(result))


def waits_words(reason: str) -> str:
    """Why a call takes an answer, in words."""
    return {
        "approval": "waits for your approval",
        "external": "waits for its result from outside",
        "in_doubt": "had started; its outcome is unknown",
    }.get(reason, reason)


def _text(message: Message) -> str:
    """The author's text; a file is a line."""
    from ..types.render import files_in

    names = ((part, f" {part.name}" if part.name else "") for part in files_in(message))
    lines = (f"[{type(part).__name__.lower()}{name}, {part.media_type}]" for part, name in names)
    return "\n".join(filter(None, (message.said, *lines)))


def clipped(text: str, lines: int) -> str:
    """The first lines of a text, and how many are left."""
    every = printable(text).split("\n")
    left = len(every) - lines
    return "\n".join(every[:lines]) + (f"\n… {counted(left, 'line')} more" if left > 0 else "")
