"""The inbox: messages that wait until a model has seen them.

Owns: how messages enter it (topics, seen ids, context) and which of a call's messages are preamble.
Must never know: how a turn runs, or what an entry looks like on the wire.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from ..backends.base import Dialect
from ..messages import Message, event
from ..messages import system as system_message
from ..reading import read_entries
from ..render import is_context, with_context
from ..state.records import IDS_KEPT, InboxItem, digest8
from ..state.state import ConversationState
from ..values import replace
from .turn_ids import FACT

__all__ = [
    "admit",
    "has_unseen",
    "inbox_messages",
    "merged",
    "reminder",
    "split_preamble",
    "with_new_context",
    "without_inbox",
]

_MAX_QUOTED: Final = 80
"""Characters of an unanswered message by which a reminder names it."""

_LETTERS = {"system": "s", "user": "u", "assistant": "a"}


def split_preamble(
    system: str | None, messages: Sequence[Message]
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Split a call's messages into the leading system messages, never stored, and the rest."""
    lead = 0
    while lead < len(messages) and messages[lead].role == "system":
        lead += 1
    own = (system_message(system),) if system else ()
    return (*own, *messages[:lead]), tuple(messages[lead:])


def letter_of(message: Message) -> str:
    """The role letter of a message in the turn columns. ValueError for one that callers cannot send."""
    if message.is_event:
        return "e"
    try:
        return _LETTERS[message.role]
    except KeyError:
        raise ValueError(
            f"a message of role {message.role!r} cannot be given to a chat; tool results come from tools"
        ) from None


def admit(state: ConversationState, messages: Sequence[Message], dialect: Dialect) -> ConversationState:
    """The state with `messages` at the end of its inbox.

    A newer unseen event of the same topic replaces the older one and moves to the end. An event whose id
    is among the last 64 seen ones is dropped.
    """
    if not messages:
        return state
    inbox = list(state.inbox)
    seen = list(state.meta.events)
    fresh: list[Message] = []
    marks: list[str] = []
    for message in messages:
        mark = ""
        if message.event_id is not None:
            mark = _mark(message.event_id)
            if mark in seen:
                continue
            seen.append(mark)
        fresh.append(message)
        marks.append(mark)
    for message, mark, entry in zip(fresh, marks, dialect.entries(fresh), strict=True):
        if message.topic:
            inbox = [item for item in inbox if item.topic != message.topic]
        inbox.append(InboxItem(entry=entry, letter=letter_of(message), topic=message.topic or "", event=mark))
    meta = state.meta
    if len(seen) != len(meta.events):
        meta = msgspec.structs.replace(meta, events=tuple(seen[-IDS_KEPT:]))
    return replace(state, meta=meta, inbox=tuple(inbox))


def reminder(messages: Sequence[Message]) -> Message:
    """An event that asks for an answer to messages which stand further up in the history.

    They are named by their first words. Only letters and digits of these are quoted, so that nothing in them
    can end the quotation and be taken for the application's words.
    """
    said = " ".join(message.text for message in messages)[: 4 * _MAX_QUOTED]
    words = " ".join(re.sub(r"[\W_]+", " ", said).split())[:_MAX_QUOTED]
    which = f'that begins with the words "{words}"' if words else "further up"
    return event(
        f"The message {which} has no answer, and was delivered once more. It is the same message, not a "
        "second one: what was done for it stands above, and is not to be done again. Answer it now."
    )


def has_unseen(state: ConversationState, messages: Sequence[Message]) -> bool:
    """True if `admit` would put one of them into the inbox."""
    return any(
        message.event_id is None or _mark(message.event_id) not in state.meta.events for message in messages
    )


def _mark(event_id: str) -> str:
    return digest8(event_id)


def without_inbox(state: ConversationState) -> ConversationState:
    """The state without its waiting messages. What only they brought, event ids, context and turn ids, is
    forgotten with them, so that it is not taken for seen when the caller sends it again."""
    if not state.inbox:
        return state
    marks = {item.event for item in state.inbox if item.event}
    events = tuple(mark for mark in state.meta.events if mark not in marks)
    accepted = state.open.facts.get(FACT, ()) if state.open is not None else ()
    turn = tuple(row for row in state.meta.turn if row[0] in accepted)
    meta = msgspec.structs.replace(state.meta, events=events, context="", turn=turn, said={})
    return replace(state, inbox=(), meta=meta)


def merged(before: Sequence[InboxItem], now: Sequence[InboxItem]) -> tuple[InboxItem, ...]:
    """What waited before, and what has come since; a newer event of a topic replaces the older one."""
    fresh = [item for item in now if not any(item is known for known in before)]
    newer = {item.topic for item in fresh if item.topic}
    return (*(item for item in before if item.topic not in newer), *fresh)


def inbox_messages(state: ConversationState, dialect: Dialect) -> tuple[Message, ...]:
    """The waiting messages in neutral words."""
    found: list[Message] = []
    for item in state.inbox:
        for message in read_entries(dialect, [item.entry]):
            found.append(replace(message, topic=item.topic or message.topic))
    return tuple(found)


def _bare(message: Message) -> Message:
    """The message without the context that an earlier try put in front of it."""
    parts = message.parts
    return replace(message, parts=parts[1:]) if is_context(parts[0]) else message


def with_new_context(
    state: ConversationState, messages: Sequence[Message], context: str
) -> tuple[ConversationState, list[Message]]:
    """The messages with `context` in front of the last user message, unless it is unchanged.

    Without a user message to carry it, the context becomes a message of its own.
    """
    mark = digest8(context)
    found = list(messages)
    if not context or mark == state.meta.context:
        return state, found
    carrier = next((n for n in range(len(found) - 1, -1, -1) if letter_of(found[n]) == "u"), None)
    if carrier is None:
        found.append(with_context(Message(role="user"), context))
    else:
        found[carrier] = with_context(_bare(found[carrier]), context)
    return replace(state, meta=msgspec.structs.replace(state.meta, context=mark)), found
