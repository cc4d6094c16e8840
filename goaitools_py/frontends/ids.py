"""Ids of messages that stay the same when a page is loaded again.

Owns: how a turn's messages are named. Must never know: a front end's protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..history.turns import HistoryTurn
from ..types.messages import Message, Text
from .pieces import parts_of

__all__ = ["TurnIds", "said_in", "turn_ids"]


class TurnIds(NamedTuple):
    """The ids of a turn's messages. `said`: one for each message that is not the reply."""

    reply: str
    said: Iterator[str]


def turn_ids(conversation_id: str, turn: HistoryTurn) -> TurnIds:
    """Name the messages of a turn. The reply has the turn's `turn_ref`, see `Event`."""
    ref = f"{conversation_id}-{turn.number}"
    return TurnIds(ref, _ids(ref))


def _ids(ref: str) -> Iterator[str]:
    yield f"{ref}u"
    number = 2
    while True:
        yield f"{ref}u{number}"
        number += 1


def said_in(turn: HistoryTurn) -> list[Message]:
    """Give the messages of a turn that people see, without its reply: messages of the user, and greetings of
    the application."""
    sent = [message for iteration in turn.iterations for message in parts_of(iteration)[0]]
    return [one for one in sent if one.role in ("user", "assistant") and not one.is_event and _is_shown(one)]


def _is_shown(message: Message) -> bool:
    return bool(message.said) or any(not isinstance(part, Text) for part in message.parts)
