"""The unfinished turn: how it grows, and how it closes when nobody finishes it.

Owns: the pure steps from one `ConversationState` to the next while a turn is open.
Must never know: who asks the model, when, or with what result; or a clock (repairs carry no time).

Between two requests the results of the last exchange stay in the journal: they become entries when the
model has accepted them. So a refused result can still be replaced, and a history is never wedged by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ..backends.base import Dialect, Reply
from ..citations import rows_of_citations
from ..errors import StateInvalidError
from ..messages import ResultFlag, Text, ToolCall, ToolRecord, ToolResult
from ..reading import read_entries
from ..state.records import (
    MAX_LABEL,
    MAX_NAME,
    InboxItem,
    Iteration,
    JournalCall,
    Meta,
    OpenTurn,
    TurnRecord,
    bounded,
    usage_of,
    usage_row,
)
from ..state.state import ConversationState, with_turn
from ..tokens import TokenCounter
from ..values import replace
from .answers import PendingCall
from .meter import booked, with_unanswered
from .turn_ids import FACT, UNANSWERED, finished

__all__ = [
    "accept",
    "add_reply",
    "calls_started",
    "check_journal",
    "claimed",
    "close_turn",
    "deny_waiting",
    "failure_in",
    "failure_of",
    "is_waiting",
    "not_accepted",
    "paused_text",
    "pending",
    "put_call",
    "ready",
    "refuse_calls",
    "reject_results",
    "reply_text",
    "results",
    "settle",
    "synthetic",
    "tool_call",
    "tool_record",
    "unfinished",
    "waiting_entries",
    "with_failure",
    "with_metadata",
    "without_failure",
]

SYNTHETIC: dict[ResultFlag, str] = {
    "not_run": "This tool was not run.",
    "unknown": "The outcome of this tool call is unknown: it may or may not have taken effect.",
    "cancelled": "This tool call was cancelled.",
    "error": "The result of this tool call could not be delivered.",
    "denied": "This tool call was denied.",
}


_STARTED: Final = "calls_started"
"""The fact of an open turn that says how many calls have started in it before those in the journal."""


_CLAIM: Final = "claim"
"""The fact of an open turn that tells one worker's claim of its calls from any other's."""


def claimed(state: ConversationState, id: str) -> ConversationState:
    """The state with a mark of the worker that is about to start calls.

    Two workers that start the same call in the same millisecond write the same journal. Without the mark each
    would take the other's save for its own.
    """
    opened = state.open
    assert opened is not None
    return replace(state, open=replace(opened, facts={**opened.facts, _CLAIM: id}))


_FAILED: Final = "failed"
"""The fact of a turn that failed: the class of its error, and the provider's code if there is one."""


def with_failure(state: ConversationState, error: str, code: str) -> ConversationState:
    """The state with why its unfinished turn failed; the very object if nothing of a turn is in it.

    Before a model has accepted anything there is no open turn, and the meta data has it.
    """
    row = (error[:MAX_LABEL], code[:MAX_LABEL]) if code else (error[:MAX_LABEL],)
    turn = state.open
    if turn is not None:
        return replace(state, open=replace(turn, facts={**turn.facts, _FAILED: list(row)}))
    if state.inbox:
        return replace(state, meta=msgspec.structs.replace(state.meta, failed=row))
    return state


def without_failure(state: ConversationState) -> ConversationState:
    """The state of a turn that goes on; the very object if it had not failed."""
    turn = state.open
    if turn is not None and _FAILED in turn.facts:
        facts = {name: value for name, value in turn.facts.items() if name != _FAILED}
        state = replace(state, open=replace(turn, facts=facts))
    if state.meta.failed:
        state = replace(state, meta=msgspec.structs.replace(state.meta, failed=()))
    return state


def failure_of(state: ConversationState) -> tuple[str, str] | None:
    """Class and code of the error that the unfinished turn ended with; None if there was none."""
    return failure_in(state.open.facts) if state.open is not None else _failure(state.meta.failed)


def failure_in(facts: Mapping[str, Any]) -> tuple[str, str] | None:
    """As `failure_of`, of one turn's facts."""
    return _failure(facts.get(_FAILED, ()))


def _failure(row: Sequence[str]) -> tuple[str, str] | None:
    return (row[0], row[1] if len(row) > 1 else "") if row else None


def calls_started(turn: OpenTurn) -> int:
    """How many of the turn's calls had started before the ones that its journal has."""
    return int(turn.facts.get(_STARTED, 0))


def synthetic(call: JournalCall, flag: ResultFlag) -> JournalCall:
    """The call with a flagged result that no tool produced."""
    return replace(call, state="done", flag=flag, parts=(Text(SYNTHETIC[flag]),))


def _resolved(call: JournalCall) -> JournalCall:
    if call.state == "done":
        return call
    return synthetic(call, "unknown" if call.state == "started" else "not_run")


def results(calls: Sequence[JournalCall]) -> list[ToolResult]:
    """The journal's results in call order."""
    return [ToolResult(call_id=c.id, name=c.name, parts=c.parts, flag=c.flag, kind=c.kind) for c in calls]


def ready(state: ConversationState) -> bool:
    """True if every call of the last reply has its result."""
    return state.open is None or all(call.state == "done" for call in state.open.calls)


def unfinished(state: ConversationState) -> int:
    """How many calls of the last reply have no result yet."""
    return 0 if state.open is None else sum(call.state != "done" for call in state.open.calls)


def is_waiting(state: ConversationState) -> bool:
    """True if a call of the last reply waits for an answer from outside."""
    return state.open is not None and any(call.state == "waiting" for call in state.open.calls)


def pending(state: ConversationState) -> tuple[PendingCall, ...]:
    """The calls that `resume` takes answers for, in order."""
    calls = state.open.calls if state.open is not None else ()
    return tuple(
        PendingCall(
            id=call.id,
            name=call.name,
            arguments=call.arguments,
            kind=call.kind,
            reason="in_doubt" if call.state == "started" else call.reason or "approval",
        )
        for call in calls
        if call.state in ("waiting", "started")
    )


def deny_waiting(state: ConversationState) -> ConversationState:
    """The state with every waiting call denied."""
    opened = state.open
    assert opened is not None
    calls = tuple(synthetic(call, "denied") if call.state == "waiting" else call for call in opened.calls)
    return replace(state, open=replace(opened, calls=calls))


def check_journal(state: ConversationState, dialect: Dialect) -> None:
    """Refuse a journal that is not of the calls that the open reply made; results for others would be
    strays. Raises `StateInvalidError`."""
    turn = state.open
    if turn is None or not turn.calls:
        return
    reply = read_entries(dialect, _last_reply(turn))
    done = {message.tool_call_id for message in reply if message.role == "tool"}  # by the server itself
    made = [call.id for message in reply for call in message.tool_calls if call.id not in done]
    if made != [call.id for call in turn.calls]:
        raise StateInvalidError("the open turn's journal does not match its reply; the state cannot be used")


def _last_reply(turn: OpenTurn) -> tuple[bytes, ...]:
    roles = turn.iterations[-1].roles if turn.iterations else ""
    return turn.entries[len(turn.entries) - (len(roles) - len(roles.rstrip("a"))) :]


def reply_text(state: ConversationState, dialect: Dialect) -> str:
    """What the open turn's last reply said."""
    if state.open is None:
        return ""
    return "".join(message.text for message in read_entries(dialect, _last_reply(state.open)))


def paused_text(state: ConversationState, dialect: Dialect) -> str:
    """What the open turn's last reply said, if its provider paused it; else ""."""
    turn = state.open
    if turn is None or not _is_paused(turn):
        return ""
    return reply_text(state, dialect)


def _is_paused(turn: OpenTurn) -> bool:
    """True if the turn ends with a reply that had no calls, and was not its last."""
    return bool(turn.iterations) and not turn.calls and not turn.letters


def settle(state: ConversationState, dialect: Dialect) -> ConversationState:
    """The state so that its inbox may follow: what only a continuation of a paused reply could have
    answered is gone. The very object if there is nothing of the kind."""
    turn = state.open
    if turn is None or not state.inbox or not _is_paused(turn):
        return state
    settled = _settled(turn, dialect)
    return state if settled is turn else replace(state, open=settled)


def waiting_entries(state: ConversationState, dialect: Dialect) -> list[bytes]:
    """What the next request adds to what the model has accepted: results first, then the inbox."""
    entries: list[bytes] = []
    if state.open is not None and state.open.calls:
        entries.extend(dialect.results(results(state.open.calls)))
    entries.extend(item.entry for item in state.inbox)
    return entries


def accept(
    state: ConversationState,
    sent: Sequence[InboxItem],
    dialect: Dialect,
    *,
    at: int,
    metadata: Mapping[str, str] | None = None,
) -> ConversationState:
    """The provider took the request: results and what was sent of the inbox become part of the open turn.

    Args:
        state: The conversation now.
        sent: The inbox as the request carried it. What came in since then waits on.
        dialect: The wire's words.
        at: When the turn began, in milliseconds after the conversation did.
        metadata: What the caller stores with the turn; see `with_metadata`.
    """
    turn = state.open or OpenTurn(at=at, facts=_number(state.meta, at))
    turn = _with_results(turn, dialect)
    meta = state.meta
    turn = replace(
        turn,
        entries=(*turn.entries, *(item.entry for item in sent)),
        letters=turn.letters + "".join(item.letter for item in sent),
        messages=turn.messages + len(sent),
        partial="",
        facts={**turn.facts, FACT: [id for id, _ in meta.turn]} if meta.turn else turn.facts,
    )
    if any(item.letter == "s" for item in sent) and not meta.systems:
        meta = msgspec.structs.replace(meta, systems=True)
    # By identity: somebody may have said the same thing once more.
    waiting = tuple(item for item in state.inbox if not any(item is known for known in sent))
    if meta.said:
        metadata = {**meta.said, **(metadata or {})}
        meta = msgspec.structs.replace(meta, said={})
    return with_metadata(replace(state, meta=meta, open=turn, inbox=waiting), metadata)


def _number(meta: Meta, at: int) -> Mapping[str, Any]:
    """The fact that tells a turn from an equal one: its number, where its time may not, because it begins no
    later than the state was written, within one millisecond or by a clock that was set back."""
    return {"number": meta.processed + 1} if meta.processed and at <= meta.updated else {}


def with_metadata(state: ConversationState, metadata: Mapping[str, str] | None) -> ConversationState:
    """The state with metadata in its open turn: it is there whichever process finishes that. What an earlier
    call gave stays, unless this one says otherwise."""
    turn = state.open
    if turn is None or not metadata:
        return state
    known = {**turn.facts.get("metadata", {}), **metadata}
    return replace(state, open=replace(turn, facts={**turn.facts, "metadata": known}))


def not_accepted(state: ConversationState, before: ConversationState) -> ConversationState:
    """What answered was no model: as `before` the request, and what came into the inbox since waits too."""
    newer = {item.topic for item in state.inbox if item.topic}
    unseen = (item for item in before.inbox if item.topic not in newer)
    return replace(state, open=before.open, inbox=(*unseen, *state.inbox))


def _with_results(turn: OpenTurn, dialect: Dialect) -> OpenTurn:
    if not turn.calls:
        return turn
    entries = dialect.results(results(turn.calls))
    flags = {call.id: call.flag for call in turn.calls if call.flag != "ok"}
    facts: dict[str, Any] = dict(turn.facts)
    if started := calls_started(turn) + sum(call.started > 0 for call in turn.calls):
        facts[_STARTED] = started
    if flags:
        facts["flags"] = {**facts.get("flags", {}), **flags}
    return replace(
        turn,
        entries=(*turn.entries, *entries),
        letters=turn.letters + "t" * len(entries),
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
) -> ConversationState:
    """The open turn with a complete reply at its end; its calls, if they may run, enter the journal.

    `asked`: when the request was sent, in milliseconds after the conversation began; `ms`: until the reply.
    `counter`: the caller's own, for what no usage has counted yet.
    """
    turn = state.open
    assert turn is not None
    sent = turn.entries[len(turn.entries) - len(turn.letters) :]
    iteration = Iteration(
        roles=turn.letters + "a" * len(reply.entries),
        finish_reason=reply.finish_reason,
        usage=reply.usage,
        start=max(0, asked - turn.at),
        ms=ms,
    )
    calls = tuple(
        JournalCall(id=call.id, name=call.name, arguments=call.arguments, kind=call.kind)
        for call in (reply.calls if reply.run_calls else ())
    )
    turn = replace(
        turn,
        entries=(*turn.entries, *reply.entries),
        iterations=(*turn.iterations, iteration),
        letters="",
        messages=turn.messages + (reply.messages if reply.entries else 0),
        calls=calls,
        partial="",
        facts=_with_citations(turn, reply) if reply.citations else turn.facts,
    )
    meta = msgspec.structs.replace(
        booked(state.meta, sent, reply, dialect, counter),
        total=usage_row(usage_of(state.meta.total) + reply.usage),
        usage=usage_row(reply.usage),
        signed=state.meta.signed or reply.signed,
        carry={**state.meta.carry, **_carried(reply)} if reply.carried else state.meta.carry,
    )
    return replace(state, meta=meta, open=turn)


def _with_citations(turn: OpenTurn, reply: Reply) -> Mapping[str, Any]:
    """The turn's facts with the sources of its next reply."""
    rows = rows_of_citations(reply.citations, reply=len(turn.iterations))
    return {**turn.facts, "citations": [*turn.facts.get("citations", ()), *rows]}


_MAX_CARRIED = 8


def _carried(reply: Reply) -> dict[str, tuple[str, int]]:
    return {
        name: (value, bounded(until))
        for name, (value, until) in list(reply.carried.items())[:_MAX_CARRIED]
        if len(value) <= MAX_NAME
    }


def put_call(state: ConversationState, index: int, call: JournalCall) -> ConversationState:
    """The state with one call of the journal replaced."""
    opened = state.open
    assert opened is not None
    calls = tuple(call if n == index else old for n, old in enumerate(opened.calls))
    return replace(state, open=replace(opened, calls=calls))


def refuse_calls(state: ConversationState, flag: ResultFlag) -> ConversationState:
    """The state with a flagged result for every call of the journal."""
    opened = state.open
    assert opened is not None
    return replace(state, open=replace(opened, calls=tuple(synthetic(call, flag) for call in opened.calls)))


def reject_results(state: ConversationState) -> ConversationState:
    """The provider refused the last exchange's results: flagged errors take their place."""
    return refuse_calls(state, "error")


def close_turn(
    state: ConversationState,
    dialect: Dialect,
    *,
    facts: dict[str, Any] | None = None,
    status: str = UNANSWERED,
) -> ConversationState:
    """Close the open turn: calls without a result get a flagged one, partial text leaves the history.

    `status`: how the turn ended, for who asks for it by its id. A turn that ends with a reply which its
    provider had paused is not unanswered, but truncated.

    Deterministic and idempotent: the same state gives the same bytes, and a closed one stays as it is.
    The inbox waits on.
    """
    turn = state.open
    if turn is None:
        return state
    if turn.calls:
        turn = _with_results(replace(turn, calls=tuple(_resolved(call) for call in turn.calls)), dialect)
    elif _is_paused(turn):
        turn = _settled(turn, dialect)
    iterations = turn.iterations
    if status == UNANSWERED and _is_paused(turn):
        status = "truncated"
    if turn.letters:
        iterations = (*iterations, Iteration(roles=turn.letters))
    known: dict[str, Any] = {**turn.facts, **(facts or {})}
    known.pop(_STARTED, None)
    known.pop(_CLAIM, None)
    if turn.partial:
        known["interrupted"] = turn.partial
    record = TurnRecord(at=turn.at, messages=turn.messages, iterations=iterations, facts=known)
    unanswered = turn.entries[len(turn.entries) - len(turn.letters) :]
    counted = with_unanswered(state.meta, unanswered, dialect)
    closed = with_turn(replace(state, open=None), turn.entries, record)
    meta = msgspec.structs.replace(
        finished(counted, turn.facts.get(FACT, ()), status) if counted.turn else counted,
        messages=state.meta.messages + turn.messages,
        turns=state.meta.turns + (1 if turn.entries else 0),
        processed=state.meta.processed + 1,
    )
    return replace(closed, meta=meta)


def _settled(turn: OpenTurn, dialect: Dialect) -> OpenTurn:
    """The turn without what only a continuation of its last, paused replies could have answered."""
    roles = "".join(iteration.roles for iteration in turn.iterations)
    reply = turn.entries[len(roles.rstrip("a")) :]
    settled = dialect.settled(reply)
    if all(new is old for new, old in zip(settled, reply, strict=True)):
        return turn
    left = iter((*turn.entries[: len(turn.entries) - len(reply)], *settled))
    iterations = tuple(
        replace(iteration, roles="".join(letter for letter in iteration.roles if next(left)))
        for iteration in turn.iterations
    )
    gone = sum(
        "a" in old.roles and "a" not in new.roles
        for old, new in zip(turn.iterations, iterations, strict=True)
    )
    return replace(
        turn,
        entries=(*turn.entries[: len(turn.entries) - len(reply)], *filter(None, settled)),
        iterations=iterations,
        messages=turn.messages - gone,
    )


def tool_call(call: JournalCall) -> ToolCall:
    """The journal's call as a caller sees it."""
    return ToolCall(id=call.id, name=call.name, arguments=call.arguments, kind=call.kind)


def tool_record(call: JournalCall, *, iteration: int, error: BaseException | None = None) -> ToolRecord:
    """The journal's finished call as a line of the tool log. `error` is what its tool raised."""
    return ToolRecord(
        call=tool_call(call),
        result="".join(part.text for part in call.parts if isinstance(part, Text)),
        flag=call.flag,
        started=call.started or None,
        seconds=call.seconds,
        iteration=iteration,
        error=error,
    )
