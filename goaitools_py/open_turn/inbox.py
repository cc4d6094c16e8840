"""The inbox: messages that wait until a model has accepted them.

Owns: how messages enter the inbox (topics, event ids, context), and which messages of a call are preamble.
Must never know: how a turn runs, or the JSON of an entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ..backends.base import Dialect
from ..backends.read_entries import read_entries
from ..base.values import Value, replace
from ..state.letters import LETTER_OF, USER, letter_of
from ..state.records import IDS_KEPT, InboxItem, digest8
from ..state.row_codec import inbox_facts
from ..state.state import ConversationState
from ..types.messages import Message, event
from ..types.messages import system as system_message
from ..types.render import is_context, with_context, with_speaker
from .turn_ids import TURN_IDS_FACT

__all__ = [
    "FORMAT",
    "Others",
    "admit",
    "asks",
    "claimed",
    "has_unseen",
    "inbox_messages",
    "merged",
    "released",
    "reminder",
    "said_by_others",
    "split_preamble",
    "with_new_context",
    "withdrawn",
    "without_inbox",
]

FORMAT: Final = "goaitools.answer-format"
"""The topic of the event that tells the model the schema of an answer."""

_MAX_QUOTED: Final = 80
"""A reminder quotes at most this many characters of the unanswered message."""


class Others(Value, frozen=True, kw_only=True):
    """Messages that waited in a shared conversation before a turn began.

    `turn_ids`: the digests of the turn ids that came with these messages. `context`, `metadata`: the context
    mark and the metadata that came with them.
    """

    _unshown = frozenset({"items", "metadata"})

    items: tuple[InboxItem, ...]
    turn_ids: frozenset[str]
    context: str
    metadata: Mapping[str, str]

    def among(self, inbox: Sequence[InboxItem]) -> tuple[InboxItem, ...]:
        """Find these messages in an inbox. By identity: an equal message may have come in since."""
        known = set(map(id, self.items))
        return tuple([item for item in inbox if id(item) in known])

    def besides(self, inbox: Sequence[InboxItem]) -> tuple[InboxItem, ...]:
        """The other messages of an inbox."""
        known = set(map(id, self.items))
        return tuple([item for item in inbox if id(item) not in known])


def split_preamble(
    system: str | None, messages: Sequence[Message]
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Split the messages of a call into the preamble, which is never stored, and the rest.

    The preamble is `system` and the leading system messages.
    """
    lead = 0
    while lead < len(messages) and messages[lead].role == "system":
        lead += 1
    own = (system_message(system),) if system else ()
    return (*own, *messages[:lead]), tuple(messages[lead:])


def _given_letter(message: Message) -> str:
    """The role letter of a message that a caller gives. ValueError for a tool result."""
    if message.role not in LETTER_OF or message.role == "tool":
        raise ValueError(
            f"a message of role {message.role!r} cannot be given to a chat; tool results come from tools"
        )
    return letter_of(message)


def admit(
    state: ConversationState,
    messages: Sequence[Message],
    dialect: Dialect,
    *,
    ids: Sequence[str] = (),
    turn: str = "",
) -> ConversationState:
    """The state with `messages` at the end of its inbox.

    A newer event of the same topic replaces a waiting event, and goes to the end. An event is dropped if its
    id is among the last 64 ids seen.

    `ids`: for each message the id under which it can be withdrawn, or ""; () without ids. `turn`: the digest
    of the id of the turn that they are sent with, in a shared conversation; "" for none.
    """
    if not messages:
        return state
    # Copies: the state that is given stays as it is, for the caller who goes back to it.
    inbox = list(state.inbox)
    seen = list(state.meta.events)
    fresh: list[Message] = []
    marks: list[tuple[str, str]] = []
    for message, id in zip(messages, ids or [""] * len(messages), strict=True):
        mark = ""
        if message.event_id is not None:
            mark = _mark(message.event_id)
            if mark in seen:
                continue
            seen.append(mark)
        fresh.append(with_speaker(message))
        marks.append((mark, id))
    for message, (mark, id), entry in zip(fresh, marks, dialect.entries(fresh), strict=True):
        if message.topic:
            inbox = [item for item in inbox if item.topic != message.topic]
        inbox.append(
            InboxItem(
                entry=entry,
                letter=_given_letter(message),
                topic=message.topic or "",
                event=mark,
                more=inbox_facts(message.speaker, message.pinned, id, turn),
            )
        )
    meta = state.meta
    if len(seen) != len(meta.events):
        meta = msgspec.structs.replace(meta, events=tuple(seen[-IDS_KEPT:]))
    return replace(state, meta=meta, inbox=tuple(inbox))


def claimed(state: ConversationState, claim: str) -> ConversationState:
    """The state with a mark at each waiting message that could be withdrawn: a turn is about to send it. The
    same object if there is no message to mark.

    `claim`: the mark, another one for each turn of each worker. So no worker releases the later claim of
    another one.
    """
    items = tuple([item.claimed(claim) if item.id else item for item in state.inbox])
    same = all(new is old for new, old in zip(items, state.inbox, strict=True))
    return state if same else replace(state, inbox=items)


def released(state: ConversationState) -> ConversationState:
    """The state without the marks of `claimed`: its waiting messages can be withdrawn."""
    return claimed(state, "")


def withdrawn(state: ConversationState, id: str, *, is_turn: bool = False) -> ConversationState:
    """The state without the waiting messages of this id, as if they had never come. The same object if no
    message has it, or if a turn has claimed one.

    `is_turn`: True for the id of a turn. An event may have been appended under the same id: it stays then,
    and else it goes alone.
    """
    is_turn = is_turn or not any(item.id == id and item.turn != id for item in state.inbox)
    gone: list[InboxItem] = []
    left: list[InboxItem] = []
    for item in state.inbox:
        (gone if item.id == id and (item.turn == id) is is_turn else left).append(item)
    if not id or not gone or any(item.is_taken for item in gone):
        return state
    meta = state.meta
    marks = {item.event for item in gone if item.event}
    # A turn without a message has nothing to be delivered again for: its id is new.
    turns = {item.turn for item in gone} - {item.turn for item in left}
    if state.open is not None:
        turns -= set(state.open.facts.get(TURN_IDS_FACT, ()))
    turn = tuple([row for row in meta.turn if row.id not in turns])
    meta = msgspec.structs.replace(
        meta,
        events=tuple([mark for mark in meta.events if mark not in marks]),
        turn=turn,
        # Its context may have gone with a message of a send: the next turn sends its own context again.
        context=meta.context if len(turn) == len(meta.turn) else "",
        said=meta.said if left else {},
    )
    return replace(state, inbox=tuple(left), meta=meta)


def reminder(messages: Sequence[Message]) -> Message:
    """An event that asks the model to answer messages that the history has already.

    The event quotes only letters and digits of their first words. So the quoted text cannot end the
    quotation, and the model cannot take it for words of the application.
    """
    said = " ".join(message.text for message in messages)[: 4 * _MAX_QUOTED]
    words = " ".join(re.sub(r"[\W_]+", " ", said).split())[:_MAX_QUOTED]
    which = f'that begins with the words "{words}"' if words else "further up"
    return event(
        f"The message {which} has no answer, and was delivered once more. It is the same message, not a "
        "second one: what was done for it stands above, and is not to be done again. Answer it now."
    )


def has_unseen(state: ConversationState, messages: Sequence[Message]) -> bool:
    """True if `admit` would add at least one of the messages."""
    return any(
        message.event_id is None or _mark(message.event_id) not in state.meta.events for message in messages
    )


def _mark(event_id: str) -> str:
    return digest8(event_id)


def without_inbox(state: ConversationState, *, but: Others | None = None) -> ConversationState:
    """The state without its waiting messages.

    The event ids, the context and the turn ids that came with these messages leave the state too. So the
    caller can send the same messages again, and they are not dropped as already seen.

    Args:
        state: The conversation.
        but: Messages that go on waiting. Their ids, context and metadata stay too.
    """
    if not state.inbox:
        return state
    left = but.among(state.inbox) if but is not None else ()
    # Without this the same event, sent again after the error, would count as seen, and be dropped without a
    # word.
    marks = {item.event for item in state.inbox if item.event} - {item.event for item in left}
    events = tuple(mark for mark in state.meta.events if mark not in marks)
    accepted = set(state.open.facts.get(TURN_IDS_FACT, ())) if state.open is not None else set()
    context = ""
    metadata: Mapping[str, str] = {}
    if left and but is not None:
        context, metadata = but.context, but.metadata
        accepted |= but.turn_ids
    turn = tuple(row for row in state.meta.turn if row.id in accepted)
    meta = msgspec.structs.replace(state.meta, events=events, context=context, turn=turn, said=metadata)
    return replace(state, inbox=left, meta=meta)


def said_by_others(state: ConversationState, turn: str, metadata: Mapping[str, str] | None) -> Others:
    """The waiting messages of a state, without the messages of one turn.

    A turn that is delivered again has its own messages in the inbox. So has one that goes on at another
    provider.

    Args:
        state: The state that the turn begins from.
        turn: The digest of the turn's id; "" if none of the messages are its own.
        metadata: The metadata of the turn's call.
    """
    meta, items = state.meta, state.inbox
    accepted = state.open.facts.get(TURN_IDS_FACT, ()) if state.open is not None else ()
    ids = frozenset(row.id for row in meta.turn if row.id not in accepted and row.id != turn)
    others = tuple([item for item in items if item.turn != turn]) if turn else items
    if len(others) == len(items):
        return Others(items=others, turn_ids=ids, context=meta.context, metadata=meta.said)
    # The mark may be of the turn's own context: without it, a context is sent once more.
    said = meta.said
    if not ids:  # else a turn that waits may have said the same
        said = {name: value for name, value in said.items() if (metadata or {}).get(name) != value}
    return Others(items=others, turn_ids=ids, context="", metadata=said)


def asks(items: Sequence[InboxItem], dialect: Dialect) -> bool:
    """True if these messages are more than a context, and a description of the answer."""
    left = _messages(items, dialect)
    return any(
        one.topic != FORMAT and not (_begins_with_context(one) and len(one.parts) == 1) for one in left
    )


def merged(before: Sequence[InboxItem], now: Sequence[InboxItem]) -> tuple[InboxItem, ...]:
    """The items that waited before, then the new ones. A newer event replaces an older one of its topic."""
    known = set(map(id, before))
    fresh = [item for item in now if id(item) not in known]
    newer = {item.topic for item in fresh if item.topic}
    return (*(item for item in before if item.topic not in newer), *fresh)


def inbox_messages(state: ConversationState, dialect: Dialect) -> tuple[Message, ...]:
    """The waiting messages as neutral `Message` values."""
    return tuple(_messages(state.inbox, dialect))


def _messages(items: Sequence[InboxItem], dialect: Dialect) -> list[Message]:
    found: list[Message] = []
    for item in items:
        for message in read_entries(dialect, [item.entry]):
            topic = item.topic or message.topic
            found.append(replace(message, topic=topic, speaker=item.speaker, pinned=item.pinned))
    return found


def _begins_with_context(message: Message) -> bool:
    return bool(message.parts) and is_context(message.parts[0])


def _bare(message: Message) -> Message:
    """The message without the context block that an earlier try added."""
    return replace(message, parts=message.parts[1:]) if _begins_with_context(message) else message


def _has_context(state: ConversationState, dialect: Dialect) -> bool:
    return any(map(_begins_with_context, _messages(state.inbox, dialect)))


def with_new_context(
    state: ConversationState,
    messages: Sequence[Message],
    context: str,
    dialect: Dialect,
    *,
    is_shared: bool = False,
) -> tuple[ConversationState, list[Message]]:
    """The messages with `context` as the first part of the last user message.

    Nothing is added if the conversation has this context already. In a shared conversation it may wait with
    the message of another turn, and a request may go without that message: then it is added.

    Without a user message the context becomes a message of its own. So it does if all are pinned: a cut takes
    old context out, and a pinned message stays byte for byte.
    """
    mark = digest8(context)
    found = list(messages)
    if not context or (mark == state.meta.context and not (is_shared and _has_context(state, dialect))):
        return state, found
    carrier = next(
        (n for n in reversed(range(len(found))) if _given_letter(found[n]) == USER and not found[n].pinned),
        None,
    )
    if carrier is None:
        found.append(with_context(Message(role="user"), context))
    else:
        found[carrier] = with_context(_bare(found[carrier]), context)
    # The mark enters together with the message that carries the context. If that message is handed back, the
    # mark leaves, too (`without_inbox`), or the next try would be sent without its context.
    return replace(state, meta=msgspec.structs.replace(state.meta, context=mark)), found
