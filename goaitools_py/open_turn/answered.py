"""Late answers: answers to calls that already have a result, in the open turn or in a closed one.

Owns: which answers are late, whether they differ from the first answer, and the reply that followed the first
answer. Must never know: how a turn runs.

The first answer counts: its call has run or was denied, and the model has read the result. The history is
read only if an answer fits no waiting call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ..backends.base import Dialect
from ..backends.protocols import RunsProviderTools
from ..backends.read_entries import read_entries
from ..base.values import Value
from ..state.closed_turns import ClosedTurn
from ..state.letters import ASSISTANT
from ..state.state import ConversationState, closed_turns
from ..tools import ToolReturn
from ..tools.results import MAX_RESULT_BYTES, result_parts
from ..types.answers import Answer, Answers, Approve, Deny, check_answer
from ..types.messages import Message, Part, ResultFlag, Text, ToolCall, ToolResult
from . import journal
from .turn_ids import StoredReply, reply_text

__all__ = ["Late", "late_answers"]

_LEFT_OUT: Final = re.compile(r"\[[^\]]*\bleft out\b")
"""The text in place of a result, or of its media, that had no room or that a compaction cleared."""


class Late(Value, frozen=True, kw_only=True):
    """Late answers.

    Attributes:
        ids: The ids of their calls.
        other: The number of answers that differ from the result of the call.
        in_open_turn: True if one of the calls belongs to the open turn.
        reply: The reply that followed the results of the calls; None if no reply has come yet.
    """

    ids: frozenset[str]
    other: int = 0
    in_open_turn: bool = False
    reply: StoredReply | None = None


def late_answers(
    state: ConversationState, answers: Answers, dialect: Dialect, *, max_bytes: int = MAX_RESULT_BYTES
) -> Late | None:
    """The answers to calls that already have a result; None without such answers.

    `max_bytes`: the most bytes of text that are stored of an answer.

    Raises TypeError if a value of `answers` is not an answer.
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
            continue  # the call takes this answer, or did not wait for any
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
        turn = turns[position]
        found, differ = _answered_in(turn.entries, turn.record.facts, wanted, answers, dialect, max_bytes)
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
    """The calls that have their result in these entries, and how many of their answers differ from it."""
    if not any(id.encode("utf-8", "replace") in entry for id in ids for entry in entries):
        return set(), 0  # no entry contains an id of a call, so skip the parsing
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
    """True if the answer would have led to another result than the call has.

    The result of an approval depends on the tool, so an approval differs only from a denial.
    """
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
        return False  # the state no longer has the result of the first answer
    call = ToolCall(id=result.call_id, name=result.name, arguments="", kind=result.kind)
    meant = ToolResult(call_id=call.id, name=call.name, parts=parts, flag=flag, kind=call.kind)
    now = read_entries(dialect, dialect.results([meant]))
    return [message.parts for message in now] != [message.parts for message in stored]


def _parts_of(
    answer: ToolReturn, result: ToolResult, dialect: Dialect, max_bytes: int
) -> tuple[tuple[Part, ...], bool]:
    """The parts that would have been stored for this answer; True if it is an error."""
    if result.kind != "provider" or not isinstance(dialect, RunsProviderTools):
        return result_parts(answer, max_bytes)
    call = ToolCall(id=result.call_id, name=result.name, arguments="", kind=result.kind)
    with suppress(ValueError):
        written = dialect.provider_output(call, answer.value, is_error=answer.is_error)
        return (Text(written),), answer.is_error
    return (), answer.is_error


def _reply_after(turns: Sequence[ClosedTurn], dialect: Dialect) -> StoredReply | None:
    """The first reply in these turns. An unfinished turn has no reply; then the next turn's reply counts."""
    for turn in turns:
        record = turn.record
        if turn.letters.endswith(ASSISTANT) or "status" in record.facts:
            return StoredReply(
                text=reply_text(turn, dialect),
                status=record.facts.get("status", "complete"),
                finish_reason=record.iterations[-1].finish_reason,
            )
    return None
