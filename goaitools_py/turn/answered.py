"""Answers that come again: for calls that have their result, in the open turn or in a closed one.

Owns: which of some answers are late, whether they say something else than the first, and the reply that the
first led to. Must never know: how a turn runs. Nothing here is read unless an answer fits no waiting call.

The first answer holds: its call has run, or was denied, and the model has read that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ..backends.base import Dialect, RunsProviderTools
from ..messages import Message, Part, ResultFlag, Text, ToolCall, ToolResult
from ..reading import read_entries
from ..state.records import TurnRecord
from ..state.state import ConversationState, closed_turns
from ..tools import ToolReturn
from ..tools.results import MAX_RESULT_BYTES, result_parts
from ..values import Value
from . import journal
from .answers import Answer, Answers, Approve, Deny, check_answer
from .turn_ids import StoredReply, reply_text

__all__ = ["Late", "late_answers"]

_LEFT_OUT: Final = re.compile(r"\[[^\]]*\bleft out\b")
"""The words that stand where a result, or its media, had no room or were cleared by a compaction."""


class Late(Value, frozen=True, kw_only=True):
    """What is known of answers that came too late.

    Attributes:
        ids: Their calls.
        other: How many of them say something else than the call's result does.
        in_open_turn: True if one of the calls belongs to the turn that is open.
        reply: What the model said after the calls had their results; None if it has not answered yet.
    """

    ids: frozenset[str]
    other: int = 0
    in_open_turn: bool = False
    reply: StoredReply | None = None


def late_answers(
    state: ConversationState, answers: Answers, dialect: Dialect, *, max_bytes: int = MAX_RESULT_BYTES
) -> Late | None:
    """The answers whose calls have a result already; None if there are none.

    `max_bytes`: how much text of an answer is stored.

    Raises TypeError for something that is no answer.
    """
    for answer in answers.values():
        check_answer(answer)
    opened = state.open
    journaled = {call.id: call for call in opened.calls} if opened is not None else {}
    wanted = answers.keys() - journaled.keys()
    ids: set[str] = set()
    other = 0
    in_open_turn = False
    for id in answers.keys() & journaled.keys():
        call = journaled[id]
        if call.state != "done" or not call.reason:
            continue  # it takes the answer, or never waited for one
        given = journal.results([call])[0]
        other += _says_other(
            answers[id], given, read_entries(dialect, dialect.results([given])), dialect, max_bytes
        )
        ids.add(id)
        in_open_turn = True
    if opened is not None and wanted:
        found, differ = _answered_in(opened.entries, opened.facts, wanted, answers, dialect, max_bytes)
        wanted -= found
        ids |= found
        other += differ
        in_open_turn = in_open_turn or bool(found)
    reply: StoredReply | None = None
    turns = closed_turns(state) if wanted else []
    for position in range(len(turns) - 1, -1, -1):
        entries, record = turns[position]
        found, differ = _answered_in(entries, record.facts, wanted, answers, dialect, max_bytes)
        if found and reply is None:
            reply = _reply_after(turns[position:], dialect)
        wanted -= found
        ids |= found
        other += differ
        if not wanted:
            break
    if not ids:
        return None
    return Late(ids=frozenset(ids), other=other, in_open_turn=in_open_turn, reply=reply)


def _answered_in(
    entries: Sequence[bytes],
    facts: Mapping[str, Any],
    ids: set[str],
    answers: Answers,
    dialect: Dialect,
    max_bytes: int,
) -> tuple[set[str], int]:
    """Which of the calls have their result in a turn's entries, and how many answers say something else."""
    if not any(id.encode("utf-8", "replace") in entry for id in ids for entry in entries):
        return set(), 0  # nothing to be parsed
    messages = read_entries(dialect, entries)
    calls = {call.id: call for message in messages for call in message.tool_calls if call.id in ids}
    results = [message for message in messages if message.tool_call_id in calls]
    flags: Mapping[str, ResultFlag] = facts.get("flags", {})
    other = 0
    for message in results:
        id = str(message.tool_call_id)
        call = calls[id]
        given = ToolResult(
            call_id=id, name=call.name, parts=message.parts, flag=flags.get(id, "ok"), kind=call.kind
        )
        other += _says_other(answers[id], given, [message], dialect, max_bytes)
    return {str(message.tool_call_id) for message in results}, other


def _says_other(
    answer: Answer, result: ToolResult, stored: Sequence[Message], dialect: Dialect, max_bytes: int
) -> bool:
    """Whether an answer would have led to another result than the call has. Of an approval only a denial
    tells that."""
    if isinstance(answer, Approve):
        return result.flag == "denied"
    if isinstance(answer, Deny):
        return result.flag != "denied"
    assert isinstance(answer, ToolReturn)
    parts, is_error = _parts_of(answer, result, dialect, max_bytes)
    flag: ResultFlag = "error" if is_error else "ok"
    if flag != result.flag:
        return True
    if any(_LEFT_OUT.match(part.text) for part in result.parts if isinstance(part, Text)):
        return False  # what the first answer said is not there any more
    call = ToolCall(id=result.call_id, name=result.name, arguments="", kind=result.kind)
    meant = ToolResult(call_id=call.id, name=call.name, parts=parts, flag=flag, kind=call.kind)
    now = read_entries(dialect, dialect.results([meant]))
    return [message.parts for message in now] != [message.parts for message in stored]


def _parts_of(
    answer: ToolReturn, result: ToolResult, dialect: Dialect, max_bytes: int
) -> tuple[tuple[Part, ...], bool]:
    """The parts of an answer, as they would have been stored for this call."""
    if result.kind != "provider" or not isinstance(dialect, RunsProviderTools):
        return result_parts(answer, max_bytes)
    call = ToolCall(id=result.call_id, name=result.name, arguments="", kind=result.kind)
    with suppress(ValueError):
        written = dialect.provider_output(call, answer.value, is_error=answer.is_error)
        return (Text(written),), answer.is_error
    return (), answer.is_error


def _reply_after(
    turns: Sequence[tuple[tuple[bytes, ...], TurnRecord]], dialect: Dialect
) -> StoredReply | None:
    """The reply of the first of the turns that has one: a turn that was closed unfinished was answered by
    the next."""
    for entries, record in turns:
        roles = "".join(iteration.roles for iteration in record.iterations)
        if roles.endswith("a") or "status" in record.facts:
            return StoredReply(
                text=reply_text(entries, record, dialect),
                status=record.facts.get("status", "complete"),
                finish_reason=record.iterations[-1].finish_reason,
            )
    return None
