"""The steps of the open turn: how it grows, how it is closed, and the error that it failed with.

Owns: the pure steps from one `ConversationState` to the next while a turn is open, and the place of its
error. Must never know: how a model is called, a clock, or the error object.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from ..backends.base import Dialect, Reply
from ..backends.protocols import CompactsHistory
from ..backends.read_entries import read_entries
from ..base.values import replace
from ..state.closed_turns import UNSENT, ClosedTurn, Iteration
from ..state.letters import ASSISTANT, GIVEN, SYSTEM, TOOL, USER
from ..state.records import InboxItem, JournalCall, OpenTurn, model_index, usage_of, usage_row
from ..state.row_codec import MAX_LABEL, MAX_NAME, bounded, iteration_facts, with_seconds
from ..state.state import ConversationState, closed_turns, with_turn
from ..types.citations import rows_of_citations
from ..types.errors import StateError
from ..types.messages import assistant
from ..types.tokens import TokenCounter
from .attempts import ANSWERS, ends_with_answer, without_marks
from .journal import CLAIM, STARTED, calls_started, resolved, results
from .meter import Before, booked, with_unanswered, without_unsent
from .turn_ids import SAME_CALL, TURN_IDS_FACT, UNANSWERED, finished

__all__ = [
    "accept",
    "add_reply",
    "close_turn",
    "failure_in",
    "failure_of",
    "not_accepted",
    "paused_text",
    "reply_text",
    "settle",
    "with_failure",
    "with_metadata",
    "with_partial_said",
    "without_failure",
]


def reply_text(state: ConversationState, dialect: Dialect) -> str:
    """The text of the open turn's last reply; "" without one."""
    if state.open is None:
        return ""
    return "".join(message.text for message in read_entries(dialect, state.open.last_reply))


def paused_text(state: ConversationState, dialect: Dialect) -> str:
    """The text of the open turn's last reply if its provider paused it, else ""."""
    turn = state.open
    if turn is None or not _is_paused(turn):
        return ""
    return reply_text(state, dialect)


def _is_paused(turn: OpenTurn) -> bool:
    """True if the open turn ends with a reply without calls: the provider paused it."""
    if not turn.iterations or turn.calls or turn.letters:
        return False
    return ANSWERS not in turn.facts or not ends_with_answer(turn)


def settle(state: ConversationState, dialect: Dialect) -> ConversationState:
    """The state, ready for the messages of its inbox. The same object if nothing has to change.

    A paused reply may hold calls of hosted tools that only its continuation would have answered. If messages
    follow instead, these calls are removed.
    """
    turn = state.open
    if turn is None or not state.inbox or not _is_paused(turn):
        return state
    settled = _settled(turn, dialect)
    return state if settled is turn else replace(state, open=settled)


def accept(
    state: ConversationState,
    sent: Sequence[InboxItem],
    dialect: Dialect,
    *,
    at: int,
    metadata: Mapping[str, str] | None = None,
    unsent: Collection[str] = (),
    same_call: Sequence[str] | None = None,
) -> ConversationState:
    """The provider accepted the request: the results and the sent messages enter the open turn.

    Args:
        state: The conversation now.
        sent: The items of the inbox that the request carried. Newer items stay in the inbox.
        dialect: Writes the results.
        at: The beginning of the turn, in milliseconds after the conversation began.
        metadata: The caller's metadata of the turn; see `with_metadata`.
        unsent: Digests of the turn ids of messages that the request did not carry.
        same_call: The fact of this name, if a turn begins here behind another one of the same call.
    """
    meta = state.meta
    # The turn's number is a fact if the stored turn before it does not have the number one below.
    turn = state.open
    if turn is None:
        begun: dict[str, Any] = {"n": meta.processed + 1} if meta.gap else {}
        if same_call is not None:
            begun[SAME_CALL] = list(same_call)
        turn = OpenTurn(at=at, facts=begun)
    # The results first, then the messages: the provider has read them in this order.
    if turn.calls:
        turn = _with_results(turn, dialect)
    facts = turn.facts
    entries, letters = [*turn.entries], ""
    who: list[list[Any]] = []
    pin: list[list[int]] = []
    place = turn.letters.count(USER)
    given = sum(map(turn.letters.count, GIVEN))
    for item in sent:
        entries.append(item.entry)
        letters += item.letter
        if item.more and item.speaker and item.letter == USER:
            who.append([place, item.speaker])
        if item.more and (pinned := item.pinned) is not None and item.letter in GIVEN:
            pin.append([given, int(pinned)])
        place += item.letter == USER
        given += item.letter in GIVEN
    if who:
        facts = {**facts, "who": [*facts.get("who", ()), *who]}
    if pin:
        facts = {**facts, "pin": [*facts.get("pin", ()), *pin]}
    if meta.turn:
        # What an earlier request of this turn carried stays accepted, whatever this one leaves out.
        known = facts.get(TURN_IDS_FACT, ())
        ids = [row.id for row in meta.turn if row.id not in unsent or row.id in known]
        facts = {**facts, TURN_IDS_FACT: ids}
    turn = replace(
        turn,
        entries=tuple(entries),
        letters=turn.letters + letters,
        messages=turn.messages + len(sent),
        partial="",
        facts=facts,
    )
    if SYSTEM in letters and not meta.systems:
        meta = msgspec.structs.replace(meta, systems=True)
    if meta.said:
        metadata = {**meta.said, **(metadata or {})}
        meta = msgspec.structs.replace(meta, said={})
    # Inbox and open turn change in one state. Between the two a message would be in both, and sent twice
    # after a crash, or in neither, and lost.
    accepted = replace(state, meta=meta, open=turn, inbox=_newer(state.inbox, sent))
    return with_metadata(accepted, metadata) if metadata else accepted


def _newer(inbox: tuple[InboxItem, ...], sent: Sequence[InboxItem]) -> tuple[InboxItem, ...]:
    """The items that were not sent. Compared by identity: an equal message may have come in since."""
    if inbox is sent:
        return ()
    known = set(map(id, sent))
    return tuple([item for item in inbox if id(item) not in known])


def with_metadata(state: ConversationState, metadata: Mapping[str, str] | None) -> ConversationState:
    """The state with the caller's metadata in its open turn, so that it is kept if another process finishes
    the turn.

    Metadata of an earlier call stays, except for names that are given again.
    """
    turn = state.open
    if turn is None or not metadata:
        return state
    known = {**turn.facts.get("metadata", {}), **metadata}
    return replace(state, open=replace(turn, facts={**turn.facts, "metadata": known}))


def not_accepted(state: ConversationState, before: ConversationState) -> ConversationState:
    """Undo `accept`, because the answer did not come from a model.

    The state gets the open turn, the inbox and the waiting metadata of `before`, and keeps the messages that
    came in since.
    """
    newer = {item.topic for item in state.inbox if item.topic}
    left = {id(item) for item in state.inbox}  # items that the request did not carry are still here
    # The order of the inbox is the order of arrival: what was sent came before what has arrived since.
    unseen = (item for item in before.inbox if item.topic not in newer and id(item) not in left)
    meta = state.meta
    if before.meta.said:
        meta = msgspec.structs.replace(meta, said={**before.meta.said, **meta.said})
    return replace(state, meta=meta, open=before.open, inbox=(*unseen, *state.inbox))


def _with_results(turn: OpenTurn, dialect: Dialect) -> OpenTurn:
    """The turn with the results of the calls in its journal as entries."""
    entries = dialect.results(results(turn.calls))
    flags = {call.id: call.flag for call in turn.calls if call.flag != "ok"}
    facts: dict[str, Any] = dict(turn.facts)
    if started := calls_started(turn) + sum(call.started > 0 for call in turn.calls):
        facts[STARTED] = started
    if flags:
        facts["flags"] = {**facts.get("flags", {}), **flags}
    iterations = turn.iterations
    if iterations and any(call.seconds for call in turn.calls):
        last = iterations[-1]
        more = with_seconds(last.more, [call.seconds for call in turn.calls])
        iterations = (*iterations[:-1], replace(last, more=more))
    return replace(
        turn,
        iterations=iterations,
        entries=(*turn.entries, *entries),
        letters=turn.letters + TOOL * len(entries),
        messages=turn.messages + len(turn.calls),
        calls=(),
        facts=facts,
    )


def add_reply(
    state: ConversationState,
    reply: Reply,
    dialect: Dialect,
    *,
    asked: int,
    ms: int,
    counter: TokenCounter | None = None,
    calibrates: bool = True,
    request_id: str = "",
    watches: bool = True,
) -> ConversationState:
    """The state with a complete reply at the end of its open turn. Calls that may run enter the journal.

    Args:
        state: The conversation, after `accept`.
        reply: The reply.
        dialect: Reads the entries that were sent.
        asked: The time of the request, in milliseconds after the conversation began.
        ms: The milliseconds that the reply took.
        counter: The caller's token counter, for entries that no usage has counted yet.
        calibrates: True if the reply's usage calibrates estimates of tokens; see `meter.booked`.
        request_id: The provider's id of the request, to be kept with the iteration; "" without an id.
        watches: False: the provider edited the context on request, so its usage is not a sign of a cut.
    """
    turn = state.open
    assert turn is not None
    sent = turn.unanswered
    iteration = Iteration(
        roles=turn.letters + ASSISTANT * len(reply.entries),
        finish_reason=reply.finish_reason,
        usage=reply.usage,
        start=max(0, asked - turn.at),
        ms=ms,
        more=iteration_facts(
            model_index(state.meta), turn.facts.get("who"), request_id, turn.facts.get("pin")
        ),
    )
    before = None
    if watches:
        size = partial(_bytes_before, state, turn, len(sent))
        before = Before(size=size, load=partial(_before, state, turn, len(sent), dialect))
    # The calls enter the journal in the same state as the reply. After a crash
    # between the two, the calls of the reply would never get a result.
    calls: tuple[JournalCall, ...] = ()
    if reply.calls and reply.run_calls:
        calls = tuple(
            [
                JournalCall(id=call.id, name=call.name, arguments=call.arguments, kind=call.kind)
                for call in reply.calls
            ]
        )
    turn = replace(
        turn,
        entries=(*turn.entries, *reply.entries),
        iterations=(*turn.iterations, iteration),
        letters="",
        messages=turn.messages + (reply.messages if reply.entries else 0),
        calls=calls,
        partial="",
        facts=_facts_with(turn, reply),
    )
    meta = msgspec.structs.replace(
        booked(state.meta, sent, reply, dialect, counter, calibrates=calibrates, before=before),
        total=usage_row(usage_of(state.meta.total) + reply.usage),
        usage=usage_row(reply.usage),
        signed=state.meta.signed or reply.signed,
        carry=_carries(state.meta.carry, reply) if reply.carried else state.meta.carry,
    )
    return replace(state, meta=meta, open=turn)


def _bytes_before(state: ConversationState, turn: OpenTurn, sent: int) -> int:
    return state.history_bytes() + sum(map(len, turn.entries[: len(turn.entries) - sent]))


def _before(state: ConversationState, turn: OpenTurn, sent: int, dialect: Dialect) -> list[bytes]:
    """The entries that the model read before the last request's new ones.

    Leaves out the entries before a compaction of the provider, and refused turns, which may not be sent.
    """
    closed: list[ClosedTurn] = []
    with suppress(StateError):  # the reply is paid for, so damage in older turns must not lose it
        closed = closed_turns(state)
    entries = [one for own in closed if own.record.facts.get("status") != "refused" for one in own.entries]
    entries += turn.entries[: len(turn.entries) - sent]
    if isinstance(dialect, CompactsHistory):
        ends = [at for at, entry in enumerate(entries) if dialect.is_boundary(entry)]
        return entries[ends[-1] :] if ends else entries
    return entries


def _facts_with(turn: OpenTurn, reply: Reply) -> Mapping[str, Any]:
    """The turn's facts after the reply. Speakers and pins leave them, because the iteration has them now."""
    facts = _with_citations(turn, reply) if reply.citations else turn.facts
    if "who" not in facts and "pin" not in facts:
        return facts
    return {name: value for name, value in facts.items() if name not in ("who", "pin")}


def _with_citations(turn: OpenTurn, reply: Reply) -> Mapping[str, Any]:
    """The facts of the turn, with the sources that the reply names."""
    rows = rows_of_citations(reply.citations, reply=len(turn.iterations))
    return {**turn.facts, "citations": [*turn.facts.get("citations", ()), *rows]}


_MAX_CARRIED = 8
_MOST_CARRIED = 16
"""The format's limit."""


def _carries(known: Mapping[str, tuple[str, int]], reply: Reply) -> dict[str, tuple[str, int]]:
    """The values that later requests repeat. Beyond the format's limit, values that expire first leave."""
    found = {**known, **_carried(reply)}
    spare = sorted((name for name, (_, until) in found.items() if until), key=lambda name: found[name][1])
    for name in spare[: max(0, len(found) - _MOST_CARRIED)]:
        del found[name]
    return found if len(found) <= _MOST_CARRIED else dict(list(found.items())[-_MOST_CARRIED:])


def _carried(reply: Reply) -> dict[str, tuple[str, int]]:
    return {
        name: (value, bounded(until))
        for name, (value, until) in list(reply.carried.items())[:_MAX_CARRIED]
        if len(value) <= MAX_NAME
    }


def with_partial_said(state: ConversationState, dialect: Dialect) -> ConversationState:
    """The state, with the text of a partial reply as the reply of its open turn, so that the model reads it.

    The same object if no reply broke off, or if it broke off before its first word.
    """
    turn = state.open
    if turn is None or turn.calls or not turn.letters or not turn.partial.strip():
        return state
    said = dialect.entries([assistant(turn.partial)])
    replied = replace(
        turn,
        entries=(*turn.entries, *said),
        letters=turn.letters + ASSISTANT * len(said),
        messages=turn.messages + 1,
        partial="",
    )
    return replace(state, open=replied)


def close_turn(
    state: ConversationState,
    dialect: Dialect,
    *,
    facts: dict[str, Any] | None = None,
    status: str = UNANSWERED,
    is_unsent: bool = False,
) -> ConversationState:
    """Close the open turn. Calls without a result get a flagged result; partial text becomes a fact.

    `status`: the end of the turn; the ring of turn ids keeps it. A turn that ends with a paused reply, or
    with an answer that does not fit its type, is "truncated", not "unanswered". Earlier attempts leave the
    turn.

    `is_unsent`: the provider would refuse each later request with this turn. The turn stays for readers.

    The same state always gives the same bytes. A state without an open turn is returned as it is. The inbox
    stays.
    """
    turn = state.open
    if turn is None:
        return state
    if ANSWERS in turn.facts:
        state = without_marks(state, dialect)
        turn = state.open or turn
    # Each call gets a result: a call without one is a 400 at every provider from then on.
    if turn.calls:
        turn = _with_results(replace(turn, calls=tuple(resolved(call) for call in turn.calls)), dialect)
    elif _is_paused(turn):
        turn = _settled(turn, dialect)
    if status == UNANSWERED and _is_paused(turn):
        status = "truncated"
    known: dict[str, Any] = {**turn.facts, **(facts or {})}
    for name in (STARTED, CLAIM):  # only an open turn has a use for them
        known.pop(name, None)
    if turn.partial:
        known["interrupted"] = turn.partial
    if status != "complete" and known.get(SAME_CALL):  # its end is not the end of the call
        known[SAME_CALL] = []
    if state.meta.gap:  # perhaps only since the turn began: a cut has taken the turn before it
        known.setdefault("n", state.meta.processed + 1)
    # Before the entries move: only the open turn knows which of them no reply has answered.
    counted = with_unanswered(state.meta, turn.unanswered, dialect) if turn.letters else state.meta
    if is_unsent:
        known[UNSENT] = True
        counted = without_unsent(counted, turn.entries, dialect)
    closed = with_turn(replace(state, open=None), replace(turn, facts=known).closed())
    ids = turn.facts.get(TURN_IDS_FACT, ())
    meta = msgspec.structs.replace(
        finished(counted, ids, status) if counted.turn else counted,
        messages=state.meta.messages + turn.messages,
        turns=state.meta.turns + (1 if turn.entries else 0),
        processed=state.meta.processed + 1,
        gap=not turn.entries,
    )
    return replace(closed, meta=meta)


def _settled(turn: OpenTurn, dialect: Dialect) -> OpenTurn:
    """The turn without the open hosted calls of its paused replies: only a continuation would answer them."""
    start = len(turn.roles.rstrip(ASSISTANT))
    paused = turn.entries[start:]
    left = dialect.settled(paused)
    if len(left) == len(paused) and all(map(operator.is_, left, paused)):
        return turn
    # A paused turn ends with a reply, so that closing adds no iteration.
    settled = turn.closed().with_entries((*turn.entries[:start], *left))
    record = settled.record
    return replace(turn, entries=settled.entries, iterations=record.iterations, messages=record.messages)


_FAILED: Final = "failed"
"""A fact of a turn that failed: the class of its error, and the provider's code if there is one."""


def with_failure(state: ConversationState, error: str, code: str) -> ConversationState:
    """The state, with the error of its unfinished turn. The same object without an unfinished turn.

    Before a model has accepted any message there is no open turn yet. Then the meta data has the error.
    """
    # Cut to the format's limits: a provider's code may have any length, and a state with a longer one could
    # not be written.
    row = (error[:MAX_LABEL], code[:MAX_LABEL]) if code else (error[:MAX_LABEL],)
    turn = state.open
    if turn is not None:
        return replace(state, open=replace(turn, facts={**turn.facts, _FAILED: list(row)}))
    if state.inbox:
        return replace(state, meta=msgspec.structs.replace(state.meta, failed=row))
    return state


def without_failure(state: ConversationState) -> ConversationState:
    """The state without the error of its unfinished turn. The same object if it has no error."""
    turn = state.open
    if turn is not None and _FAILED in turn.facts:
        facts = {name: value for name, value in turn.facts.items() if name != _FAILED}
        state = replace(state, open=replace(turn, facts=facts))
    if state.meta.failed:
        state = replace(state, meta=msgspec.structs.replace(state.meta, failed=()))
    return state


def failure_of(state: ConversationState) -> tuple[str, str] | None:
    """Class and code of the error that the unfinished turn ended with; None without an error."""
    return failure_in(state.open.facts) if state.open is not None else _failure(state.meta.failed)


def failure_in(facts: Mapping[str, Any]) -> tuple[str, str] | None:
    """Class and code of the error in the facts of one turn; None without an error."""
    return _failure(facts.get(_FAILED, ()))


def _failure(row: Sequence[str]) -> tuple[str, str] | None:
    return (row[0], row[1] if len(row) > 1 else "") if row else None
