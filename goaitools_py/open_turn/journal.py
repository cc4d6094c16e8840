"""The journal: the calls of the open turn's last reply, and the progress of each.

Owns: the questions to the journal, and the steps that change a call in it.
Must never know: how a tool is run, how the turn goes on, or a clock.

Between two requests the results of the last reply's calls stay in the journal. They become entries only when
the provider has accepted them (`steps.accept`). So a result that the provider refuses can still be replaced,
and the conversation can go on.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from ..backends.base import Dialect
from ..backends.read_entries import read_entries
from ..base.values import Value, replace
from ..state.codec import BlobLimits, Codec
from ..state.media_rows import result_named, with_result
from ..state.parts import MAX_PART_BYTES, RESULT, new_part
from ..state.records import JournalCall, OpenTurn
from ..state.state import ConversationState
from ..tools.call import whole_text, with_ends
from ..types.answers import PendingCall, pending_inside
from ..types.errors import StateError, StateInvalidError
from ..types.messages import Part, ResultFlag, Text, ToolCall, ToolRecord, ToolResult
from ..types.result import Action
from .turn_ids import TURN_IDS_FACT

__all__ = [
    "ACTIONS",
    "CLAIM",
    "MOST_ACTION_BYTES",
    "STARTED",
    "SYNTHETIC",
    "Keeping",
    "asks_of",
    "calls_started",
    "check_journal",
    "claimed",
    "deny_waiting",
    "idempotency_key",
    "is_waiting",
    "kept_whole",
    "pending",
    "put_call",
    "ready",
    "reject_results",
    "resolved",
    "results",
    "synthetic",
    "tool_call",
    "tool_record",
    "unfinished",
    "with_actions",
]

SYNTHETIC: dict[ResultFlag, str] = {
    "not_run": "This tool was not run.",
    "unknown": "The outcome of this tool call is unknown: it may or may not have taken effect.",
    "cancelled": "This tool call was cancelled.",
    "error": "The result of this tool call could not be delivered.",
    "denied": "This tool call was denied.",
}

STARTED: Final = "calls_started"
"""A fact of the open turn: the number of its calls that had started before the calls in the journal."""

CLAIM: Final = "claim"
"""A fact of the open turn: the mark of the worker that starts its calls."""


def claimed(state: ConversationState, id: str) -> ConversationState:
    """The state with the mark of a worker that is about to start calls.

    Two workers that start the same call in the same millisecond would write equal journals. Each would take
    the other's save for its own. The mark makes the journals differ.
    """
    opened = state.open
    assert opened is not None
    # The mark goes into the state, not beside it: the save that compares states then sees it.
    return replace(state, open=replace(opened, facts={**opened.facts, CLAIM: id}))


def calls_started(turn: OpenTurn) -> int:
    """The number of the turn's calls that had started before the calls in its journal."""
    return int(turn.facts.get(STARTED, 0))


def synthetic(call: JournalCall, flag: ResultFlag) -> JournalCall:
    """The call, with a flagged result in place of a tool's."""
    return replace(call, state="done", flag=flag, parts=(Text(SYNTHETIC[flag]),))


def resolved(call: JournalCall) -> JournalCall:
    if call.state == "done":
        return call
    # "unknown" and not "not run": a process that died after the start may have done the work. The model must
    # not conclude that it can safely call again.
    return synthetic(call, "unknown" if call.state == "started" else "not_run")


def results(calls: Sequence[JournalCall]) -> list[ToolResult]:
    """The results of these calls, in order."""
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
    """The calls that wait for an answer in `resume`, in order."""
    calls = state.open.calls if state.open is not None else ()
    return tuple(
        found for call in calls if call.state in ("waiting", "started") for found in _waiting_calls(call)
    )


def asks_of(call: JournalCall) -> str:
    """The calls that wait inside of a waiting call, as JSON text; "" without inner calls."""
    return "".join(part.text for part in call.parts if isinstance(part, Text))


def _waiting_calls(call: JournalCall) -> tuple[PendingCall, ...]:
    """The call itself, or the calls that wait inside of it."""
    if call.state == "waiting" and call.parts and (inside := pending_inside(call.id, asks_of(call))):
        return inside
    return (
        PendingCall(
            id=call.id,
            name=call.name,
            arguments=call.arguments,
            kind=call.kind,
            reason="in_doubt" if call.state == "started" else call.reason or "approval",
        ),
    )


def deny_waiting(state: ConversationState) -> ConversationState:
    """The state with every waiting call denied."""
    opened = state.open
    assert opened is not None
    calls = tuple(synthetic(call, "denied") if call.state == "waiting" else call for call in opened.calls)
    return replace(state, open=replace(opened, calls=calls))


def put_call(state: ConversationState, index: int, call: JournalCall) -> ConversationState:
    """The state with one call of its journal replaced."""
    opened = state.open
    assert opened is not None
    # A new tuple: another thread may be writing the old state into a blob at this moment.
    calls = (*opened.calls[:index], call, *opened.calls[index + 1 :])
    return replace(state, open=replace(opened, calls=calls))


MOST_ACTION_BYTES: Final = 16 * 1024
"""Bytes of JSON that the actions of one turn may take."""

ACTIONS: Final = "acts"
"""The name of a turn fact: a row for each action, its text and its data. The last row may count those that
were left out."""

_LEFT_OUT: Final = "left_out"


def with_actions(
    state: ConversationState, actions: Sequence[Action], *, most: int = MOST_ACTION_BYTES
) -> ConversationState:
    """The state with actions in its open turn, the oldest first, up to `most` bytes of all together."""
    turn = state.open
    if turn is None:
        return state
    rows = list(turn.facts.get(ACTIONS, ()))
    left_out = rows.pop()[1][_LEFT_OUT] if rows and _counts_rest(rows[-1]) else 0
    size = len(msgspec.json.encode(rows))
    for at, action in enumerate(actions):
        row = _action_row(action)
        size += len(msgspec.json.encode(row)) + 1
        if left_out or size > most:
            left_out += len(actions) - at
            break
        rows.append(row)
    if left_out:
        rows.append([f"[{left_out} more actions are not kept]", {_LEFT_OUT: left_out}])
    return replace(state, open=replace(turn, facts={**turn.facts, ACTIONS: rows}))


def _counts_rest(row: Sequence[Any]) -> bool:
    return len(row) == 2 and row[1].keys() == {_LEFT_OUT} and type(row[1][_LEFT_OUT]) is int


def _action_row(action: Action) -> list[Any]:
    text = action.text.encode("utf-8", "replace").decode()
    data: Any = {}
    with suppress(Exception):  # it holds any objects of the tool's own
        data = msgspec.json.decode(msgspec.json.encode(dict(action.data), enc_hook=str))
    return [text, data] if data else [text]


def reject_results(state: ConversationState) -> ConversationState:
    """The state after the provider refused the results: each is replaced by a result flagged as an error."""
    opened = state.open
    assert opened is not None
    # Every result, also a fitting one: the provider does not say which of them it refused.
    return replace(
        state, open=replace(opened, calls=tuple(synthetic(call, "error") for call in opened.calls))
    )


def check_journal(state: ConversationState, dialect: Dialect) -> None:
    """Raise `StateInvalidError` unless the journal has exactly the calls of the last reply.

    The provider would refuse a result of any other call.
    """
    turn = state.open
    if turn is None or not turn.calls:
        return
    reply = read_entries(dialect, turn.last_reply)
    done = {
        message.tool_call_id for message in reply if message.role == "tool"
    }  # the provider ran these itself
    made = [call.id for message in reply for call in message.tool_calls if call.id not in done]
    # Compared in order, too: `put_call` and the idempotency keys name a call by its place.
    if made != [call.id for call in turn.calls]:
        raise StateInvalidError("the open turn's journal does not match its reply; the state cannot be used")


def tool_call(call: JournalCall) -> ToolCall:
    """A call of the journal, as the caller sees it."""
    return ToolCall(id=call.id, name=call.name, arguments=call.arguments, kind=call.kind)


def tool_record(call: JournalCall, *, iteration: int, error: BaseException | None = None) -> ToolRecord:
    """A finished call of the journal, as a row of the tool log. `error`: the exception of its tool."""
    return ToolRecord(
        call=tool_call(call),
        result="".join(part.text for part in call.parts if isinstance(part, Text)),
        flag=call.flag,
        started=call.started or None,
        seconds=call.seconds,
        iteration=iteration,
        error=error,
    )


def idempotency_key(state: ConversationState, index: int, call: JournalCall) -> str:
    """The key of one call of one turn: the same in every process and every run of the call.

    The caller's `turn_id` names the turn. So a redelivery has the same key even if no state of the first try
    was kept. Without a `turn_id` the turn's number in this conversation names it; a reset starts the numbers
    again.
    """
    meta, opened = state.meta, state.open
    ids = opened.facts.get(TURN_IDS_FACT, ()) if opened is not None else ()
    turn = "+".join(ids) or f"{meta.created}-{meta.processed + 1}"
    asked = len(opened.iterations) if opened is not None else 0
    key = f"{meta.id}/{turn}/{asked}/{index}/{call.name}/{call.arguments}".encode("utf-8", "surrogatepass")
    return base64.b32encode(hashlib.sha256(key).digest()[:15]).decode().lower()


def keys_beside(state: ConversationState, index: int) -> tuple[str, ...]:
    """The idempotency keys of the other calls of the same reply."""
    calls = state.open.calls if state.open is not None else ()
    return tuple(idempotency_key(state, at, call) for at, call in enumerate(calls) if at != index)


# ------------------------------------------------------------------------------ results that are kept whole


class Keeping(Value, frozen=True, kw_only=True):
    """How long results are kept whole.

    Attributes:
        shown_bytes: The most bytes of text that the model reads of one result.
        most_bytes: The most stored bytes of all results that a state keeps.
        limits: The soft limits of the state.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
    """

    shown_bytes: int
    most_bytes: int
    limits: BlobLimits
    codec: Codec
    binding: Any


def kept_whole(
    state: ConversationState, index: int, call: JournalCall, whole: Sequence[Part], keeping: Keeping
) -> tuple[ConversationState, tuple[Part, ...]] | None:
    """The state with the whole text of a result, and the parts for the model, which name it. None if the
    state cannot keep it.

    `whole`: the result, with a text that is too long for the model. The oldest results leave if the room is
    needed. Equal calls of equal states give equal numbers.
    """
    raw = whole_text(whole).encode()
    if len(raw) > MAX_PART_BYTES:
        return None
    # Not of the text: a redacted text must not be found by trying out the digests of guesses.
    key = f"{idempotency_key(state, index, call)}/{call.id}".encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.sha256(key).digest()[:4], "big")
    while (known := result_named(state.parts, number)) is not None:
        with suppress(StateError):
            if known.is_here and known.raw(keeping.codec, keeping.binding) == raw:
                return state, with_ends(whole, keeping.shown_bytes, number)  # Ctrl-C, and it is noted again
        number = (number + 1) % 2**32
    part = new_part(RESULT, raw, number, compresses=keeping.codec.compresses)
    parts = with_result(state.parts, part, keeping.most_bytes, keeping.limits)
    if parts is None:
        return None
    return replace(state, parts=parts), with_ends(whole, keeping.shown_bytes, number)
