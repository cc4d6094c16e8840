"""Answers from outside to calls of the conversation: to waiting calls, to calls inside them, and late ones.

Owns: the call that an answer ends, how answers to inner calls become answers to the call around them, which
answers are late, and the reply that followed the first answer. Must never know: a chat, or how a turn runs.

The first answer counts: its call has run or was denied, and the model has read the result. The history is
read only if an answer fits no waiting call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any, Final

from ..backends.base import Dialect
from ..backends.protocols import RunsProviderTools, TranslatesReplies
from ..backends.read_entries import read_entries
from ..base.values import Value, replace
from ..state.closed_turns import ClosedTurn
from ..state.letters import ASSISTANT
from ..state.media_rows import named_results
from ..state.records import JournalCall
from ..state.state import ConversationState, closed_turns
from ..tools import BadArguments, Tool, ToolReturn
from ..tools.call import result_parts, text_parts, whole_text, with_ends
from ..tools.tool_context import MAX_RESULT_BYTES
from ..types.answers import INSIDE, Answer, Answers, Approve, Deny, InnerAnswers, check_answer, pending_inside
from ..types.messages import Message, Part, ResultFlag, Text, ToolCall, ToolResult
from . import journal
from .journal import Keeping, asks_of
from .room import CALL_BYTES, Room, admitted
from .turn_ids import SAME_CALL, TURN_IDS_FACT, StoredReply, reply_text

__all__ = [
    "Answered",
    "Late",
    "approved_arguments",
    "late_answers",
    "under_own_ids",
    "with_answers",
    "with_inner_answers",
]


def with_inner_answers(state: ConversationState, answers: Answers) -> Answers:
    """The answers by the ids of the conversation's own calls.

    Answers to the inner calls of a call become one answer to this outer call. An answer to an inner call that
    no longer waits is left out. If the outer call is done, the answer becomes a late answer to it.
    """
    calls = {call.id: call for call in state.open.calls} if state.open is not None else {}
    made: dict[str, Any] = {}
    for id, answer in answers.items():
        check_answer(answer)
        outer, inside, inner = id.partition(INSIDE) if isinstance(id, str) else ("", "", "")
        if not inside or id in calls or not _is_known(state, outer):
            made[id] = answer
        elif (call := calls.get(outer)) is None or call.state == "done":
            made[outer] = Approve()
        elif any(one.id == id for one in pending_inside(outer, asks_of(call))):
            earlier = made.get(outer)
            given = earlier.given if isinstance(earlier, InnerAnswers) else {}
            made[outer] = InnerAnswers(given={**given, inner: answer})
    return made


def under_own_ids(state: ConversationState, answers: Answers, dialect: Dialect) -> Answers:
    """The answers by the ids that the calls have here.

    A conversion from another provider API gives a call another id if this API does not take the first one. An
    answer under the first id is for the same call.
    """
    calls = {call.id for call in state.open.calls} if state.open is not None else set()
    if answers.keys() <= calls or not isinstance(dialect, TranslatesReplies):
        return answers
    made: dict[str, Any] = {}
    for id, answer in answers.items():
        outer, inside, inner = id.partition(INSIDE) if isinstance(id, str) else ("", "", "")
        if outer and outer not in calls and not _is_known(state, outer):
            other = dialect.call_id(outer)
            if other != outer and _is_known(state, other):
                made[f"{other}{inside}{inner}"] = answer
                continue
        made[id] = answer
    return made


def _is_known(state: ConversationState, id: str) -> bool:
    """True if the conversation may have a call of this id."""
    calls = state.open.calls if state.open is not None else ()
    entries = state.open.entries if state.open is not None else ()
    pieces = (*(segment.raw() for segment in state.segments), *entries)
    named = id.encode("utf-8", "replace")
    return any(call.id == id for call in calls) or any(named in piece for piece in pieces)


_LEFT_OUT: Final = re.compile(r"\[[^\]]*\bleft out\b")
"""The text in place of a result, or of its media, that had no room or that a compaction cleared."""


MAX_PROVIDER_OUTPUT_BYTES: Final = 3 * 2**19
"""The most bytes of JSON in one answer to a provider tool's call, such as a screenshot of 1 MiB in base64."""


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
    # Reading the closed turns is slow, and happens only for an id that the open turn does not know.
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
        parts, is_error = result_parts(answer, max_bytes)
        numbers = named_results([whole_text(result.parts).encode("utf-8", "replace")])
        if numbers and len(whole_text(whole := _whole(answer)).encode()) > max_bytes:
            parts = with_ends(whole, max_bytes, min(numbers))
        return parts, is_error
    call = ToolCall(id=result.call_id, name=result.name, arguments="", kind=result.kind)
    with suppress(ValueError):
        written = dialect.provider_output(call, answer.value, is_error=answer.is_error)
        return (Text(written),), answer.is_error
    return (), answer.is_error


def _whole(answer: ToolReturn) -> tuple[Part, ...]:
    """The parts of an answer with its whole text."""
    return result_parts(answer, 2**63)[0]


def _reply_after(turns: Sequence[ClosedTurn], dialect: Dialect) -> StoredReply | None:
    """The first reply in these turns. An unfinished turn has no reply; then the next turn's reply counts. If
    later turns of the same call follow, the call has returned the last of their replies."""
    for at, first in enumerate(turns):
        if first.letters.endswith(ASSISTANT) or "status" in first.record.facts:
            # Without an id only the turns right behind it are known to be of its call.
            of_call = filter if first.record.facts.get(TURN_IDS_FACT) else takewhile
            turn = [first, *of_call(partial(_is_later, first), turns[at + 1 :])][-1]
            record = turn.record
            return StoredReply(
                text=reply_text(turn, dialect),
                status=record.facts.get("status", "complete"),
                finish_reason=record.iterations[-1].finish_reason,
            )
    return None


def _is_later(first: ClosedTurn, turn: ClosedTurn) -> bool:
    """True if the call of the first turn has returned the reply of this later one."""
    facts, ids = turn.record.facts, first.record.facts.get(TURN_IDS_FACT, ())
    if ids:
        return not set(ids).isdisjoint(facts.get(SAME_CALL, ()))
    is_whole = turn.letters.endswith(ASSISTANT) and not facts.keys() & {"status", "interrupted"}
    return SAME_CALL in facts and is_whole


# --------------------------------------------------------------------------- answers to waiting calls


class Answered(Value, frozen=True, kw_only=True):
    """A state that has taken answers in.

    Attributes:
        state: The state; the same object if there are only approvals.
        left_out: The first media that a text replaces, as (tool, type, bytes); None if all media fit.
        not_kept: The first answer that was to be kept whole, and was cut, as (tool, bytes).
        problem: The answer that is too large, and the limit; "" if all answers fit.
    """

    state: ConversationState
    left_out: tuple[str, str, int] | None = None
    not_kept: tuple[str, int] | None = None
    problem: str = ""


class AnswerRoom:
    """Shortens answers to the room that the state has. Its attributes are those of `Answered`."""

    def __init__(self, room: Room, keeping: Keeping | None) -> None:
        self._room = room
        self._keeping = keeping
        self.not_kept: tuple[str, int] | None = None
        self.left_out: tuple[str, str, int] | None = None
        self.problem = ""

    def __call__(self, state: ConversationState, index: int, call: JournalCall) -> JournalCall:
        """Shorten the answered call: a text replaces media that do not fit."""
        found = admitted(self._room, state, index, call)
        if found.left_out and self.left_out is None:
            self.left_out = (call.name, *found.left_out[0])
        if found.problem:
            grown = journal.put_call(state, index, found.logged)
            more = journal.unfinished(grown) * CALL_BYTES
            # A cut can remove the turns before this one. So only a turn that is too large alone is a problem.
            if self._room.problem_alone(grown, more=more) is not None:
                self.problem = self.problem or found.problem
        return found.logged

    def entered(
        self, state: ConversationState, index: int, call: JournalCall, answer: Answer
    ) -> ConversationState:
        """Enter an answered call. A long result is kept whole, if this is wanted and there is room."""
        keeping = self._keeping
        if keeping is None or not isinstance(answer, ToolReturn):
            return journal.put_call(state, index, self(state, index, call))
        whole = _whole(answer)
        size = len(whole_text(whole).encode())
        kept = None
        if size > keeping.shown_bytes:
            kept = journal.kept_whole(state, index, call, whole, keeping)
            if kept is None:
                self.not_kept = self.not_kept or (call.name, size)
        if kept is None:
            return journal.put_call(state, index, self(state, index, call))
        call = replace(call, parts=kept[1])
        fitted = self(kept[0], index, call)
        return journal.put_call(kept[0] if fitted is call else state, index, fitted)


def with_answers(
    state: ConversationState,
    tools: Mapping[str, Tool[..., Any]],
    answers: Answers,
    deps: Any,
    dialect: Dialect,
    room: Room,
    *,
    max_bytes: int = MAX_RESULT_BYTES,
    keeping: Keeping | None = None,
) -> Answered:
    """Enter every denial and result among the answers into the journal.

    An answer may be refused because of its size: the caller still has it, and its call waits. (A tool's
    result must not be refused, because it would be lost.) `keeping`: how long results are kept whole; None:
    they are cut to `max_bytes`.

    All answers enter together, so no blob has only some of them. An approval is not kept: it counts when its
    call starts, and until then the call waits. If a call in doubt was approved before, a second approval ends
    it as `unknown`, see `Approve.again`.

    Raises:
        TypeError: A value is not an answer.
        ValueError: No call waits under an id. An `Approve` is for an unknown or external tool, or its
            arguments do not fit the tool. The answer does not fit a provider tool's call.
    """
    fit = AnswerRoom(room, keeping)
    journaled = state.open.calls if state.open is not None else ()
    calls = {call.id: (index, call) for index, call in enumerate(journaled) if call.state != "done"}
    # Nothing is entered into the books in this loop: if a later answer raises, the given state is still
    # whole.
    for id, answer in answers.items():
        check_answer(answer)
        if id not in calls:
            waiting = ", ".join(map(repr, calls)) or "none"
            raise ValueError(f"no call {str(id)[:64]!r} waits for an answer; those that wait: {waiting}")
        index, call = calls[id]
        if call.kind == "provider":
            ended = _provider_ended(call, answer, dialect)
            state = journal.put_call(state, index, fit(state, index, ended))
        elif isinstance(answer, Approve) and _is_used_up(tools, call, answer):
            state = journal.put_call(state, index, journal.synthetic(call, "unknown"))
        elif isinstance(answer, Approve):
            _check_approval(tools, call, answer, deps)
            if call.state == "started":  # in doubt: note that it was approved once, see `_is_used_up`
                state = journal.put_call(state, index, replace(call, reason="approval"))
        else:
            state = fit.entered(state, index, _ended(call, answer, max_bytes), answer)
    return Answered(state=state, left_out=fit.left_out, not_kept=fit.not_kept, problem=fit.problem)


def _is_used_up(tools: Mapping[str, Tool[..., Any]], call: JournalCall, answer: Approve) -> bool:
    """True for a second approval of a call in doubt.

    Platforms deliver a button press more than once, also to a worker that takes over after another worker
    died in the tool.
    """
    tool = tools.get(call.name)
    may_repeat = answer.again or (tool is not None and tool.idempotent)
    return call.state == "started" and call.reason == "approval" and not may_repeat


def _ended(call: JournalCall, answer: Deny | ToolReturn, max_bytes: int) -> JournalCall:
    """The call with the caller's result in place of a run.

    A call without a reason gets the reason "external", so that a repetition of the answer is recognised.
    """
    call = call if call.reason else replace(call, reason="external")
    if isinstance(answer, Deny):
        text = f"This tool call was denied: {answer.reason}" if answer.reason else journal.SYNTHETIC["denied"]
        return replace(call, state="done", flag="denied", parts=text_parts(text, max_bytes))
    parts, is_error = result_parts(answer, max_bytes)
    return replace(call, state="done", flag="error" if is_error else "ok", parts=parts)


def _provider_ended(call: JournalCall, answer: Answer, dialect: Dialect) -> JournalCall:
    """The call of a provider tool with its answer, written in the provider's form."""
    if not isinstance(dialect, RunsProviderTools):
        raise ValueError(f"call {call.id!r} is of a provider's tool, and the backend's dialect knows none")
    asked = journal.tool_call(call)
    waits_for = dialect.waits_for(asked)
    if isinstance(answer, Approve):
        if waits_for != "approval":
            raise ValueError(f"call {call.id!r} is a {call.name}: answer it with its result, a ToolReturn")
        if answer.arguments is not None:
            raise ValueError(f"call {call.id!r} is approved as it is: a {call.name} takes no other arguments")
        answer = ToolReturn(True)
    if isinstance(answer, Deny):
        if waits_for != "approval":
            return _ended(call, answer, MAX_RESULT_BYTES)
        value: Any = {"approve": False, **({"reason": answer.reason} if answer.reason else {})}
        denied = dialect.provider_output(asked, value)
        return replace(call, state="done", flag="denied", parts=(Text(denied),))
    written = dialect.provider_output(asked, answer.value, is_error=answer.is_error)
    if len(written) > MAX_PROVIDER_OUTPUT_BYTES:
        raise ValueError(
            f"the answer to call {call.id!r} has {len(written)} bytes of JSON; expected at most "
            f"{MAX_PROVIDER_OUTPUT_BYTES}: send a smaller one, for it stays in the history"
        )
    return replace(call, state="done", flag="error" if answer.is_error else "ok", parts=(Text(written),))


def approved_arguments(answer: Answer) -> str | None:
    """The arguments, as JSON, that an approval sets in place of the model's; None if it sets none."""
    if not isinstance(answer, Approve) or answer.arguments is None:
        return None
    if isinstance(answer.arguments, str):
        return answer.arguments
    return json.dumps(dict(answer.arguments), allow_nan=False)


def _check_approval(
    tools: Mapping[str, Tool[..., Any]], call: JournalCall, answer: Approve, deps: Any
) -> None:
    tool = tools.get(call.name)
    if tool is None:
        raise ValueError(
            f"call {call.id!r} cannot be approved: its tool {call.name!r} is not among the tools; pass tools="
        )
    if tool.external:
        raise ValueError(f"call {call.id!r} is of an external tool: answer it with a ToolReturn")
    if (misfit := _misfit(tool, answer, deps)) is not None:
        raise ValueError(
            f"the arguments approved for call {call.id!r} do not fit the tool {call.name!r}: {misfit}"
        )


def _misfit(tool: Tool[..., Any], answer: Approve, deps: Any) -> str | None:
    """Say why the approved arguments do not fit a tool; None if they fit.

    The text names only the tool's own parameters: another name may hold content.
    """
    try:
        given = approved_arguments(answer)
    except (TypeError, ValueError, RecursionError):
        return "JSON cannot say them"
    if given is None:
        return None
    try:
        tool.bind(given, deps)
        return None
    except BadArguments as exc:
        problems = exc.problems
    except Exception as exc:
        return f"they could not be checked ({type(exc).__name__})"
    if not problems:
        return "they are no JSON object, or its validator refuses them"
    own = tool.spec(deps).parameters.get("properties", {})
    names = [(name if (name := field.partition(".")[0]) in own else "another name") for field, _ in problems]
    told = [(name, problem) for name, (_, problem) in zip(names, problems, strict=True)]
    return str(BadArguments.from_problems(told))
