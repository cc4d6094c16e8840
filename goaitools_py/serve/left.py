"""Tells from a stored conversation if a turn is unfinished, a turn was stopped, or a message waits.

Owns: these readings of a snapshot, and the names in the metadata that remember a stop. Must never know: HTTP,
or how a turn is driven.

The metadata name the number of the stopped turn, and how many messages of the user it had then. A message
that comes later is not stopped, also if it has joined the same turn: the model had accepted nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ..types.errors import TurnStoppedError
from ..types.messages import Message
from .limits import MAX_DIGITS

if TYPE_CHECKING:
    from ..chat.kept.facade import ConversationSnapshot

__all__ = ["GOES_ON", "Left", "TurnStatus", "is_marked", "left_by", "mark_of"]

_STOPPED: Final = "goaitools.stopped"
"""The name in a conversation's metadata of the turn that a user has stopped: no process resumes it."""

_SAID: Final = "goaitools.stopped_said"
"""The name of the number of messages that the stopped turn had."""

GOES_ON: Final[Mapping[str, str | None]] = {_STOPPED: None, _SAID: None}
"""The metadata of a turn that is not stopped any more."""

Left = Literal["unfinished", "messages", "stopped", ""]
"""A turn that `resume` finishes; messages without a turn, which `start` answers; a stopped turn; nothing."""

TurnStatus = Literal["running", "stopped", "waiting", "none"]
"""The status of the newest turn, for clients."""


def left_by(snapshot: ConversationSnapshot | None) -> Left:
    """Tell what to do next. A turn that failed or waits for answers does not count: its client decides."""
    if snapshot is None:
        return ""
    state, said = snapshot.info.state, _said(snapshot)
    if is_marked(snapshot):
        noted = snapshot.info.metadata.get(_SAID, "")
        most = int(noted) if noted.isdecimal() and len(noted) <= MAX_DIGITS else said.in_all
        if said.in_all <= most or state.status == "awaiting_tools":
            return "stopped"
        return "messages" if said.in_turn is not None and said.in_turn <= most else "unfinished"
    if state.failure is not None and state.failure[0] == TurnStoppedError.__name__:
        return "stopped"
    if state.status == "in_progress":
        return "unfinished"
    return "messages" if state.status == "complete" and said.behind else ""


def is_marked(snapshot: ConversationSnapshot) -> bool:
    """True if the metadata name the unfinished turn as stopped. Only the number counts: the same turn in a
    copy of the conversation has another id before it."""
    if snapshot.info.state.status == "complete":
        return False
    _, _, number = snapshot.info.metadata.get(_STOPPED, "").rpartition("-")
    return number == str(_number(snapshot))


def mark_of(snapshot: ConversationSnapshot) -> dict[str, str]:
    """The metadata that remember a stop of the unfinished turn, and how many messages it had then."""
    id = snapshot.info.state.conversation_id
    return {_STOPPED: f"{id}-{_number(snapshot)}", _SAID: str(_said(snapshot).in_all)}


def _number(snapshot: ConversationSnapshot) -> int:
    """The number of the unfinished turn, which the history may not have yet."""
    return snapshot.info.state.turns_processed + 1


class _Said(NamedTuple):
    """How many messages of the user are in the unfinished turn (None: there is no turn yet), and wait behind
    it."""

    in_turn: int | None
    behind: int

    @property
    def in_all(self) -> int:
        return (self.in_turn or 0) + self.behind


def _said(snapshot: ConversationSnapshot) -> _Said:
    turns, waiting = snapshot.history.turns, _of_user(snapshot.history.waiting)
    is_open = bool(turns) and turns[-1].number == _number(snapshot)
    return _Said(_of_user(turns[-1].messages) if is_open else None, waiting)


def _of_user(messages: Sequence[Message]) -> int:
    return sum(message.role == "user" and not message.is_event for message in messages)
