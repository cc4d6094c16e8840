"""The acts of a turn on its state, one for each phase: a state and values in, a frozen value out.

Owns: the order of the steps within a phase. Must never know: an effect, a clock, or the books of a turn.

::

    recognise      was a turn with this `turn_id` begun before?             Recognised
    sort_answers   which answers from outside still count?                  SortedAnswers
    close_earlier  the open turn of an earlier call ends                    the state
    begin          messages, context, metadata and id enter the inbox       Begun
    mark           the marks of the next request enter the meta data        the state
    accept         the provider took the request: the inbox is said         the state (`steps`)
    take_reply     the reply enters the open turn, if it has room           TakenReply
    close          the open turn becomes history                            the state

Each act makes a whole new state. A turn enters it into its books with one assignment, so another thread that
asks for a blob sees the state before an act or after it, and never the middle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ..backends.base import Dialect, Reply
from ..base.values import Value, replace
from ..state.records import models_with
from ..state.state import ConversationState, closed_turns, newest_number
from ..types.answers import Answers
from ..types.errors import TurnConflictError
from ..types.messages import Message, Text
from ..types.render import files_in
from ..types.tokens import TokenCounter
from . import inbox, journal, meter, steps, turn_ids
from .attempts import ANSWERS, asked_in_words, without_problems
from .given_answers import late_answers, under_own_ids, with_inner_answers
from .room import Room, reply_problem
from .turn_ids import StoredReply, TurnKey

__all__ = [
    "Begun",
    "Recognised",
    "SortedAnswers",
    "TakenReply",
    "begin",
    "begun",
    "changed_marks",
    "close",
    "close_earlier",
    "has_work",
    "mark",
    "recognise",
    "sort_answers",
    "take_reply",
    "titled",
    "with_fresh_ids",
    "without_id",
]

_COMPARED: Final = ("preamble", "tools", "model", "family")
"""The marks that are compared with the last request's, in the order of their warnings."""


# ------------------------------------------------------------------------------ a turn that came before


class Recognised(Value, frozen=True, kw_only=True):
    """The record of a turn id in a state.

    Attributes:
        key: The key of the turn in the state.
        is_known: True if the turn was begun before.
        waits: True if its messages still wait, and no other turn has claimed them. An open turn is then
            another one.
        messages: The messages that have yet to be sent.
        reply: The reply of a finished turn; None if the turn has to go on.
    """

    _unshown = frozenset({"messages"})

    key: TurnKey
    is_known: bool = False
    waits: bool = False
    messages: tuple[Message, ...] = ()
    reply: StoredReply | None = None


def recognise(
    state: ConversationState,
    turn_id: str,
    messages: tuple[Message, ...],
    dialect: Dialect,
    *,
    is_edit: bool = False,
) -> Recognised:
    """Find out by its `turn_id` whether a turn of these messages was begun before.

    Raises:
        TurnConflictError: Other messages came with the same id.
    """
    key = turn_ids.key_of(turn_id, dialect.entries(messages))
    said = turn_ids.said_under(state.meta, key, is_edit=is_edit and _are_plain(messages))
    if said is None:
        return Recognised(key=key, messages=messages)
    if said != key.said:
        raise TurnConflictError("this turn_id was used for other messages; give each message its own")
    if turn_ids.is_finished(state.meta, key):
        return Recognised(key=key, is_known=True, reply=turn_ids.stored_reply(state, key, dialect))
    # The state has the messages already: sent again, the model would read them twice.
    left = _asked_again(state, key, messages) if turn_ids.is_unanswered(state.meta, key) else ()
    # An event of the application may have the same id.
    waits = any(item.id == item.turn == key.id and not item.is_taken for item in state.inbox)
    return Recognised(key=key, is_known=True, waits=waits, messages=left)


def _are_plain(messages: Sequence[Message]) -> bool:
    """True for texts without a speaker: each provider API has the same for them."""
    return all(
        message.speaker is None and all(type(part) is Text for part in message.parts) for message in messages
    )


def without_id(state: ConversationState, key: TurnKey) -> ConversationState:
    """The state without its rows of a turn id, because a new message takes the id."""
    meta = state.meta
    turn = tuple(row for row in meta.turn if row.id != key.id)
    ring = tuple(row for row in meta.ring if row.id != key.id)
    return replace(state, meta=msgspec.structs.replace(meta, turn=turn, ring=ring))


def _asked_again(
    state: ConversationState, key: TurnKey, messages: tuple[Message, ...]
) -> tuple[Message, ...]:
    """The messages for a repeated turn that failed before, and that a newer message closed.

    If its messages and the results of its tools are in the history, a reminder is enough. If a cut removed
    them, the same messages are sent again.
    """
    for turn in closed_turns(state):
        if key.id in turn.record.facts.get(turn_ids.TURN_IDS_FACT, ()):
            return (inbox.reminder(messages),)
    return messages


class SortedAnswers(Value, frozen=True, kw_only=True):
    """Answers from outside, without those that come too late.

    Attributes:
        answers: The answers that still count.
        ignored: The number of late answers that differ from the first answer.
        reply: The reply to return if no answer is left, and the state has nothing to go on with; else None.
    """

    _unshown = frozenset({"answers"})

    answers: Answers
    ignored: int = 0
    reply: StoredReply | None = None


def sort_answers(
    state: ConversationState, answers: Answers, dialect: Dialect, *, max_bytes: int
) -> SortedAnswers:
    """Leave out answers to calls that have a result already: the first answer holds.

    If no other answer is left, the reply that followed the first answer is returned, too.

    `max_bytes`: the most bytes of text that are stored of an answer.
    """
    answers = with_inner_answers(state, under_own_ids(state, answers, dialect))
    if not answers and journal.is_waiting(state):
        return SortedAnswers(answers=answers, reply=_still_waiting(state, dialect))
    late = late_answers(state, answers, dialect, max_bytes=max_bytes)
    if late is None:
        return SortedAnswers(answers=answers)
    left = {id: answer for id, answer in answers.items() if id not in late.ids}
    reply: StoredReply | None = None
    if not left:
        if late.reply is not None and not late.in_open_turn:
            reply = late.reply
        elif journal.is_waiting(state):
            reply = _still_waiting(state, dialect)
        elif state.open is None and not state.inbox:
            reply = StoredReply(text="", status="truncated")
    return SortedAnswers(answers=left, ignored=late.other, reply=reply)


def _still_waiting(state: ConversationState, dialect: Dialect) -> StoredReply:
    return StoredReply(
        text=steps.reply_text(state, dialect), status="awaiting_tools", number=newest_number(state)
    )


# ------------------------------------------------------------------------------------------ the beginning


def close_earlier(
    state: ConversationState, dialect: Dialect, *, denied: bool, keep_partial: bool
) -> ConversationState:
    """Close the open turn of an earlier call, because a new message came in place of `resume`.

    `denied`: True if the message has denied the calls that the turn waited for: the turn is then over. A
    failed turn is answered if its message comes again.
    """
    if state.open is not None and ANSWERS in state.open.facts:
        state = without_problems(state)
    if keep_partial:
        # Before the close: a closed turn keeps a partial reply as a fact only, which no model reads.
        state = steps.with_partial_said(state, dialect)
    return steps.close_turn(state, dialect, status="truncated" if denied else turn_ids.UNANSWERED)


def has_work(state: ConversationState, messages: Sequence[Message]) -> bool:
    """True if a turn with these messages has something to send or to finish."""
    return state.open is not None or bool(state.inbox) or inbox.has_unseen(state, messages)


class Begun(Value, frozen=True, kw_only=True):
    """A turn at its beginning.

    Attributes:
        given: The state before the turn's messages entered it.
        state: The same state with the messages.
        without_input: `given` without waiting messages: what is left if the provider refuses all of them.
        has_grown: True if `given` says more than its blob: a turn was closed, or calls were answered.
        unedited: For an edit, the state with the message that is replaced, and all that followed it: it stays
            if the provider refuses the new message. Else None.
    """

    _unshown = frozenset({"given", "state", "without_input", "unedited"})

    given: ConversationState
    state: ConversationState
    without_input: ConversationState
    has_grown: bool = False
    unedited: ConversationState | None = None


def begun(given: ConversationState, state: ConversationState, *, has_grown: bool = False) -> Begun:
    """The beginning of a turn from these two states; see `Begun`."""
    return Begun(given=given, state=state, without_input=inbox.without_inbox(given), has_grown=has_grown)


def begin(
    given: ConversationState,
    messages: Sequence[Message],
    dialect: Dialect,
    *,
    context: str | None = None,
    metadata: Mapping[str, str] | None = None,
    key: TurnKey | None = None,
    turn: str = "",
    words: str = "",
    has_grown: bool = False,
    is_shared: bool = False,
    is_steering: bool = False,
) -> Begun:
    """Take a turn's messages, their context, their metadata and the turn's id into the state.

    Args:
        given: The conversation.
        messages: The new messages.
        dialect: Writes them.
        context: The context of the messages; None for no change.
        metadata: The caller's metadata of the turn.
        key: The key of the turn; None without a `turn_id`.
        turn: See `inbox.admit`.
        words: The description of the answer's type, for a provider that takes no schema; "" for none.
        has_grown: See `Begun`.
        is_shared: True if other workers may put messages into the conversation.
        is_steering: True if the messages wait for a turn that runs elsewhere: they get the id of their turn,
            so that they can be withdrawn.
    """
    state = given
    if context is not None:
        state, messages = inbox.with_new_context(
            state, messages, context, dialect, is_shared=(is_shared or is_steering) and bool(messages)
        )
    ids = [key.id] * len(messages) if is_steering and key is not None else ()
    state = inbox.admit(state, messages, dialect, ids=ids, turn=turn)
    if metadata and state.inbox:
        # Keep the metadata with the waiting messages, so that a resume need not give it again.
        said = {**state.meta.said, **metadata}
        state = replace(state, meta=msgspec.structs.replace(state.meta, said=said))
    if key is not None:
        # In the same state as the messages: a crash after a save then leaves both or neither. With the id
        # alone, a redelivery would count as known, and its messages would be lost.
        state = replace(state, meta=turn_ids.begun(state.meta, key))
    if words:
        state = asked_in_words(state, words, dialect, turn=turn)
    return Begun(given=given, state=state, without_input=inbox.without_inbox(given), has_grown=has_grown)


_TITLE: Final = 60
"""The most characters of a title that is made of a message."""


def titled(state: ConversationState, messages: Sequence[Message]) -> ConversationState:
    """The state with the first words of a user's message as its title, or the names of its files."""
    said = next((one for one in messages if one.role == "user" and not one.is_event), None)
    if said is None:
        return state
    words = " ".join(said.said.split()) or ", ".join(part.name or part.media_type for part in files_in(said))
    title = words if len(words) <= _TITLE else words[: _TITLE - 1].rsplit(" ", 1)[0][: _TITLE - 1] + "…"
    return replace(state, meta=msgspec.structs.replace(state.meta, title=title))


def changed_marks(state: ConversationState, marks: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the marks that differ from the last request's; () if there was no request yet."""
    meta = state.meta
    if not meta.model or not (meta.processed or state.open is not None):
        return ()
    return tuple([name for name in _COMPARED if getattr(meta, name) != marks[name]])


def mark(
    state: ConversationState,
    marks: Mapping[str, Any],
    changed: Sequence[str],
    *,
    sticky: Mapping[str, Any] | None = None,
) -> ConversationState:
    """Note the marks of the next request, and forget what holds only for a request with the old ones.

    Args:
        state: The conversation.
        marks: By name: the conversation's id, the model, and digests of the other parts of the request.
        changed: The marks that differ; see `changed_marks`.
        sticky: Settings for later turns, over the kept ones. None as a value removes a setting.
    """
    meta = state.meta
    if not changed and not sticky:
        return replace(state, meta=msgspec.structs.replace(meta, **marks))
    kept, carry, models, counted = meta.sticky, meta.carry, meta.models, meta
    if sticky:
        kept = {name: value for name, value in {**kept, **sticky}.items() if value is not None}
    if carry and "family" in changed:
        # A value that expires belongs to the server that gave it. No other server knows it.
        carry = {name: row for name, row in carry.items() if not row[1]}
    if changed:
        counted = meter.unanchored(meta)
        models = models_with(meta, marks["family"], marks["model"])
        if "family" in changed or "model" in changed:
            counted = meter.elsewhere(counted)
    noted = msgspec.structs.replace(counted, **marks, sticky=kept, models=models, carry=carry)
    return replace(state, meta=noted)


# ------------------------------------------------------------------------------------------------ a reply


class TakenReply(Value, frozen=True, kw_only=True):
    """A state after a complete reply.

    Attributes:
        state: The state with the reply; or with its text as a partial reply, if it has no room for it.
        problem: Why the state does not hold the reply; "" if it does.
        window: The tokens at which the server has cut the prompt; 0 without a cut.
    """

    _unshown = frozenset({"state"})

    state: ConversationState
    problem: str = ""
    window: int = 0


def take_reply(
    state: ConversationState,
    reply: Reply,
    dialect: Dialect,
    room: Room,
    *,
    text: str,
    asked: int,
    ms: int,
    counter: TokenCounter | None = None,
    calibrates: bool = True,
    request_id: str = "",
    watches: bool = True,
) -> TakenReply:
    """Put a complete reply into the open turn.

    If the state cannot hold it, its text is kept as a partial reply, as far as there is room, and its usage
    counts: it is paid for.

    Args:
        state: The conversation, after `accept`.
        reply: The reply, without calls that may not run.
        dialect: Reads the entries that were sent.
        room: The room in the state.
        text: The text of the reply as it came.
        asked: See `steps.add_reply`, as for the other arguments.
        ms: The milliseconds that the reply took.
        counter: The caller's token counter.
        calibrates: True if the reply's usage calibrates estimates of tokens.
        request_id: The provider's id of the request; "" to keep no id.
        watches: False: do not look for a cut of the prompt.
    """
    grown = steps.add_reply(
        state,
        reply,
        dialect,
        asked=asked,
        ms=ms,
        counter=counter,
        calibrates=calibrates,
        request_id=request_id,
        watches=watches,
    )
    window = meter.server_window(grown.meta) if grown.meta.gauge[5:] else 0  # most servers cut nothing
    problem = reply_problem(room, grown, reply)
    if not problem:
        return TakenReply(state=grown, window=window)
    spent = msgspec.structs.replace(state.meta, total=grown.meta.total, usage=grown.meta.usage)
    return TakenReply(
        state=room.with_partial(replace(state, meta=spent), text), problem=problem, window=window
    )


def with_fresh_ids(state: ConversationState, reply: Reply, dialect: Dialect) -> tuple[Reply, int]:
    """Replace call ids that the conversation has already, and count them.

    With a repeated id, a result would answer two calls. The new ids depend only on the place of the call, so
    a request that is sent again in another process gets the same ids.
    """
    pieces: list[bytes] = [segment.raw() for segment in state.segments]
    if state.open is not None:
        pieces.extend(state.open.entries)
    used = {
        call.id
        for call in reply.calls
        if any(b'"%s"' % call.id.encode("utf-8", "replace") in p for p in pieces)
    }
    if not used:
        return reply, 0
    asked = len(state.open.iterations) if state.open is not None else 0
    seed = f"{state.meta.id}/{state.meta.processed}/{asked}"
    ids = [
        f"call_{hashlib.sha256(f'{seed}/{n}'.encode()).hexdigest()[:24]}" if call.id in used else call.id
        for n, call in enumerate(reply.calls)
    ]
    return dialect.with_call_ids(reply, ids), len(used)


# ------------------------------------------------------------------------------------------------ the end


_AT_ONCE_MS: Final = 100


def close(
    state: ConversationState,
    dialect: Dialect,
    *,
    status: str,
    now: int,
    settings: Mapping[str, Any] | None = None,
    fallback: Sequence[str] = (),
    is_unsent: bool = False,
) -> ConversationState:
    """Make the open turn a part of the history, with its record.

    The fact `done` is the end of the turn, in milliseconds after its beginning. A turn that ends within
    100 ms of its last reply has no such fact: the end of the reply counts as its end.

    Args:
        state: The conversation.
        dialect: Writes results, and reads entries to count them.
        status: The status of the turn's result.
        now: Milliseconds since the epoch.
        settings: The settings to keep in the record.
        fallback: The providers that were down.
        is_unsent: True if the provider would refuse each later request that has the turn.
    """
    facts: dict[str, Any] = {}
    if status != "complete":
        facts["status"] = status
    if settings:
        facts["settings"] = settings
    if fallback:
        facts["fallback"] = list(fallback)
    turn = state.open
    if turn is not None:
        last = turn.iterations[-1] if turn.iterations else None
        done = max(0, now - state.meta.created - turn.at)
        if last is None or done > last.start + last.ms + _AT_ONCE_MS:
            facts["done"] = done
    return steps.close_turn(state, dialect, facts=facts, status=status, is_unsent=is_unsent)
