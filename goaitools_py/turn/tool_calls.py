"""The calls of one reply: each gets its result, through the journal, in call order.

Owns: which calls start, when, and the record of each result. Must never know: threads, tasks, or a provider
API's JSON.

A call runs at most once because of the order of three steps: its start enters the journal, the journal is
kept, the tool runs. Its result is not lost because it enters the journal before a listener hears of it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ..backends.base import Dialect
from ..backends.protocols import RunsProviderTools
from ..base.again import once_more
from ..base.values import Value, replace
from ..open_turn import journal
from ..open_turn.admission import admitted, calls_problem
from ..open_turn.inner import asks_of
from ..open_turn.turn_ids import TURN_IDS_FACT
from ..state.records import JournalCall
from ..state.state import ConversationState
from ..tools import BadArguments, Tool, ToolContext, ToolReturn
from ..tools.results import MAX_RESULT_BYTES, result_parts, text_parts
from ..types.answers import Answer, Answers, Approve, Deny, InnerAnswers, check_answer
from ..types.errors import StateSizeError, ToolFailedError, TurnError
from ..types.events import ToolFinished, ToolPending, ToolProgress, ToolStarted
from ..types.messages import Text
from .fitting import tell_left_out
from .flow import AwaitTool, CallTool, Emit, Flow, ToolDone, ToolReport
from .ledger import Ledger
from .recall import ready_to_run
from .tool_failures import tell_failed

__all__ = ["refuse_calls", "run_calls", "tell_pending", "with_answers"]

MAX_PROVIDER_OUTPUT_BYTES: Final = 3 * 2**19
"""The most bytes of JSON in one answer to a provider tool's call, such as a screenshot of 1 MiB in base64."""

MAX_CALLS_PER_REPLY: Final = 128
"""The most calls of one reply that run. A model that asks for more has failed."""


def run_calls(
    ledger: Ledger,
    tools: Mapping[str, Tool[..., Any]],
    *,
    allowed: int | None,
    answers: Answers | None = None,
) -> Flow[bool]:
    """Give every call of the journal its result, or let it wait. False if no call could run.

    A call that a process started before it died is in doubt. An idempotent tool runs again. For another tool,
    without an answer from outside, the model reads that the outcome is unknown. A tool that fails does not
    stop the others.

    Args:
        ledger: The turn's books.
        tools: The tools, by name.
        allowed: The number of calls that may still start; None for any number. The others are flagged
            `not_run`.
        answers: The answers from outside, by call id. `with_answers` has already entered the answers that end
            a call into the journal; here they are only reported.

    Raises:
        ToolFailedError: A tool raised `AbortTurn`, or raised and `tool_errors` is "raise".
    """
    queue: list[tuple[int, _Run]] = []
    settled: list[tuple[int, JournalCall]] = []
    given = answers or {}
    for index, call in enumerate(_calls(ledger)):
        if call.state == "done":
            if call.id in given:
                settled.append((index, call))
            continue
        step = _step(ledger, tools, call, given.get(call.id))
        if isinstance(step, _Run):
            queue.append((index, step))
            continue
        ledger.state = journal.put_call(ledger.state, index, step)
        if step.state == "done":
            settled.append((index, step))
    # Report and keep them only after the loop: every blob that is kept then has all answers.
    for index, step in settled:
        yield from _done(ledger, index, step)
    any_valid = bool(queue)
    if len(queue) > MAX_CALLS_PER_REPLY:
        ledger.warn("limit_reached", f"of one reply {MAX_CALLS_PER_REPLY} calls are run; it had {len(queue)}")
    over = queue[MAX_CALLS_PER_REPLY if allowed is None else min(allowed, MAX_CALLS_PER_REPLY) :]
    del queue[len(queue) - len(over) :]
    running: set[int] = set()
    aborted = False
    if queue and (problem := calls_problem(ledger.room, ledger.state)):
        ledger.overflow = problem  # start no call if its result could not be recorded
    failure: BaseException | None = None
    is_claimed = False
    # A failed checkpoint or the deadline sets this. No tool starts then; the turn waits for running tools.
    halted: TurnError | None = None
    while queue or running:
        while (
            queue
            and not (aborted or ledger.overflow)
            and halted is None
            and _may_start(ledger, queue[0][1].tool, len(running))
        ):
            index, step = queue[0]
            before = _calls(ledger)[index]
            try:
                yield from ledger.tick()
                ledger.check_deadline()
                if not (is_claimed or step.tool.idempotent):
                    # Before the first start: after a crash the claimed calls are in doubt, and not repeated.
                    yield from _claim(ledger, queue)
                    is_claimed = True
                yield from _start(ledger, index, step)
            except TurnError as exc:
                halted = exc
            except Exception as exc:  # for example, the system has no more threads
                ledger.state = journal.put_call(ledger.state, index, before)
                halted = ledger.broken_off(exc).because_of(exc)
            else:
                del queue[0]
                running.add(index)
        if not running:
            break
        done: ToolDone | ToolReport = yield AwaitTool()
        if isinstance(done, ToolReport):
            yield _progress(ledger, done)
            continue
        for report in done.reports:
            yield _progress(ledger, report)
        once_more(_note, ledger, done)  # Ctrl-C at this line must not lose the result
        running.discard(done.index)
        outcome = done.outcome
        _tell(ledger, tools, done)
        ledger.telling.act(outcome.actions)
        try:
            call = _calls(ledger)[done.index]
            yield from _tell_done(ledger, call, checkpoint=halted is None)
        except TurnError as exc:
            halted = exc
        aborted = aborted or outcome.abort
        if outcome.abort or ledger.options.tool_errors == "raise":
            failure = failure or outcome.exception
    if halted is not None:
        raise ledger.refresh(halted)  # tools have finished since the error was made
    for index, _ in (*queue, *over):
        yield from _done(ledger, index, journal.synthetic(_calls(ledger)[index], "not_run"))
    if ledger.overflow:
        raise _overflow(ledger)
    if failure is not None:
        what = "a tool ended the turn" if aborted else f"a tool raised {type(failure).__name__}"
        raise ledger.error(ToolFailedError, f"{what}; resume(err.state) tells the model") from failure
    return any_valid


def _overflow(ledger: Ledger) -> StateSizeError:
    """The error of a turn that ends because the state has no room for a result."""
    return ledger.error(
        StateSizeError,
        f"{ledger.overflow}; err.tool_log has it all, and calls that had not started were not run: "
        "resume(err.state) tells the model so",
    )


def refuse_calls(ledger: Ledger) -> Flow[None]:
    """Flag every call of the journal `not_run`: the model made them although no call was allowed."""
    for index, call in enumerate(_calls(ledger)):
        yield from _done(ledger, index, journal.synthetic(call, "not_run"))


def tell_pending(ledger: Ledger) -> Flow[None]:
    """Tell the listeners which calls wait for an answer, in call order."""
    if not ledger.listening:
        return
    for call in journal.pending(ledger.state):
        yield Emit(
            ToolPending(
                call.id, call.name, ledger.iteration, call.reason, call.kind, call.arguments, **ledger.of
            )
        )


def _calls(ledger: Ledger) -> tuple[JournalCall, ...]:
    opened = ledger.state.open
    return opened.calls if opened is not None else ()


def _bind(
    tools: Mapping[str, Tool[..., Any]],
    call: JournalCall,
    deps: Any,
    failed: Callable[[Exception], None] | None = None,
) -> tuple[Tool[..., Any], dict[str, Any]] | str:
    """The tool and its arguments, or the text that tells the model the mistake in the call.

    `failed` gets an exception of the caller's own schema or validator.
    """
    tool = tools.get(call.name)
    if tool is None:
        return f"There is no tool of this name. The tools are: {', '.join(sorted(tools)) or 'none'}."
    try:
        return tool, tool.bind(call.arguments, deps)
    except BadArguments as exc:
        if failed is not None and isinstance(exc.__cause__, Exception):
            failed(exc.__cause__)  # a validator failed, and did not just refuse the value
        return str(exc)
    except Exception as exc:
        # A computed schema, or a validator, may raise any exception; the turn goes on.
        if failed is not None:
            failed(exc)
        return f"The arguments could not be checked ({type(exc).__name__})."


class _Run(Value, frozen=True, kw_only=True):
    """A call that is to run now.

    `arguments`: set if they differ from the model's. `inner`: answers to calls inside of it.
    """

    _unshown = frozenset({"bound", "arguments", "inner"})

    tool: Any
    bound: dict[str, Any]
    arguments: str | None = None
    inner: Mapping[str, Any] = {}


def _step(
    ledger: Ledger, tools: Mapping[str, Tool[..., Any]], call: JournalCall, answer: Answer | None
) -> _Run | JournalCall:
    """The next step of a call: a `_Run`, or the call with its new state, done or waiting."""
    given = _given_arguments(answer)
    if answer is None and call.state == "waiting":
        return call
    if call.kind == "provider":
        return _provider_step(ledger, call)
    bound = _bind(
        tools,
        call if given is None else replace(call, arguments=given),
        ledger.options.deps,
        partial(_tell_check, ledger, tools, call, "could not check its arguments:"),
    )
    if call.state == "started" and answer is None and (isinstance(bound, str) or not bound[0].idempotent):
        return journal.synthetic(call, "unknown")
    if isinstance(bound, str):
        return replace(call, state="done", flag="error", parts=(Text(bound),))
    tool, arguments = bound
    if call.state == "new" and answer is None:
        undecided = partial(_tell_check, ledger, tools, call, "could not say whether it waits:")
        if reason := tool.waits_for(arguments, undecided):
            return replace(call, state="waiting", reason=reason)
    inner = answer.given if isinstance(answer, InnerAnswers) else {}
    return _Run(tool=tool, bound=arguments, arguments=given, inner=inner)


def _provider_step(ledger: Ledger, call: JournalCall) -> JournalCall:
    """A provider tool's call waits: the caller runs it, and answers with the result."""
    dialect = ledger.dialect
    if not isinstance(dialect, RunsProviderTools):
        return journal.synthetic(call, "not_run")
    return replace(call, state="waiting", reason=dialect.waits_for(journal.tool_call(call)))


def _given_arguments(answer: Answer | None) -> str | None:
    if not isinstance(answer, Approve) or answer.arguments is None:
        return None
    if isinstance(answer.arguments, str):
        return answer.arguments
    return json.dumps(dict(answer.arguments), allow_nan=False)


def with_answers(
    state: ConversationState,
    tools: Mapping[str, Tool[..., Any]],
    answers: Answers,
    deps: Any,
    dialect: Dialect,
    *,
    max_bytes: int = MAX_RESULT_BYTES,
    fitted: Callable[[ConversationState, int, JournalCall], JournalCall] = lambda _state, _index, call: call,
) -> ConversationState:
    """The state with every denial and result among the answers; the same object if there are only approvals.

    `fitted` shortens the answered call to the room that the state has.

    All answers enter together, so no blob has only some of them. An approval is not kept: it counts when its
    call starts, and until then the call waits. If a call in doubt was approved before, a second approval ends
    it as `unknown`, see `Approve.again`.

    Raises:
        TypeError: A value is not an answer.
        ValueError: No call waits under an id. An `Approve` is for an unknown or external tool, or its
            arguments do not fit the tool. The answer does not fit a provider tool's call.
    """
    journaled = state.open.calls if state.open is not None else ()
    calls = {call.id: (index, call) for index, call in enumerate(journaled) if call.state != "done"}
    for id, answer in answers.items():
        check_answer(answer)
        if id not in calls:
            waiting = ", ".join(map(repr, calls)) or "none"
            raise ValueError(f"no call {str(id)[:64]!r} waits for an answer; those that wait: {waiting}")
        index, call = calls[id]
        if call.kind == "provider":
            ended = _provider_ended(call, answer, dialect)
            state = journal.put_call(state, index, fitted(state, index, ended))
        elif isinstance(answer, Approve) and _is_used_up(tools, call, answer):
            state = journal.put_call(state, index, journal.synthetic(call, "unknown"))
        elif isinstance(answer, Approve):
            _check_approval(tools, call, answer, deps)
            if call.state == "started":  # in doubt: note that it was approved once, see `_is_used_up`
                state = journal.put_call(state, index, replace(call, reason="approval"))
        else:
            ended = _ended(call, answer, max_bytes)
            state = journal.put_call(state, index, fitted(state, index, ended))
    return state


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


def _progress(ledger: Ledger, report: ToolReport) -> Emit:
    call = _calls(ledger)[report.index]
    return Emit(
        ToolProgress(
            call.id,
            call.name,
            ledger.iteration,
            report.progress,
            report.total,
            report.message,
            **ledger.of,
        )
    )


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
        given = _given_arguments(answer)
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


def _may_start(ledger: Ledger, tool: Tool[..., Any], running: int) -> bool:
    """True if a tool may start now. In the caller's thread tools run one at a time, elsewhere in parallel."""
    threads = ledger.options.tool_threads if tool.thread is None else tool.thread
    inline = not tool.is_async and not threads
    return not running if inline else running < ledger.options.tool_concurrency


def _claim(ledger: Ledger, queue: list[tuple[int, _Run]]) -> Flow[None]:
    """Announce every call of this reply that must not run twice, before the first of them starts.

    All are announced at once, because another worker may take the conversation over between two starts. It
    then finds all of them in doubt, also calls that this worker starts later. The calls of a later reply are
    claimed again. By then the claim of an overtaken worker fails.
    """
    if not ledger.plan.claims:
        return
    announced = ledger.state
    for index, step in queue:
        if not step.tool.idempotent:
            announced = journal.put_call(announced, index, _started(ledger, index, step))
    yield from ledger.claim(journal.claimed(announced, ledger.plan.new_id()))


def _started(ledger: Ledger, index: int, step: _Run) -> JournalCall:
    """The journal's record of a call that has started."""
    call = _calls(ledger)[index]
    if step.arguments is not None:
        call = replace(call, arguments=step.arguments)
    return replace(call, state="started", started=ledger.now.wall_ms / 1000, parts=())


def _start(ledger: Ledger, index: int, step: _Run) -> Flow[None]:
    """Enter the start into the journal, have it kept, and only then run the tool.

    So a call that the journal does not show as started has not run. Arguments that an approval changed enter
    the journal here, too. Before, the call has the model's arguments.
    """
    before = _calls(ledger)[index]
    tool = yield from ready_to_run(ledger, step.tool)
    call = _started(ledger, index, step)
    ledger.state = journal.put_call(ledger.state, index, call)
    if ledger.plan.is_shared and not step.tool.idempotent:
        ledger.state = journal.claimed(ledger.state, ledger.plan.new_id())
    try:
        yield from ledger.checkpoint(undo=lambda state: journal.put_call(state, index, before))
        if ledger.listening:
            yield Emit(ToolStarted(call.id, call.name, ledger.iteration, call.arguments, **ledger.of))
    except BaseException:  # the turn ends before the tool has run: undo the start, or the call is in doubt
        ledger.state = journal.put_call(ledger.state, index, before)
        raise
    context: ToolContext[Any] = ToolContext(
        deps=ledger.options.deps,
        call_id=call.id,
        turn_id=ledger.options.turn_id or ledger.of["turn_ref"],
        iteration=ledger.iteration,
        idempotency_key=_idempotency_key(ledger.state, index, call),
        max_result_bytes=ledger.options.max_tool_result_bytes,
        conversation_id=ledger.of["conversation_id"],
        answers=step.inner,
        _asked=asks_of(before) if step.inner else "",
    )
    timeout, limit = _limit_of(ledger, tool)
    ledger.has_acted = True
    yield CallTool(
        index=index,
        tool=tool,
        context=context,
        arguments=step.bound,
        timeout=timeout,
        limit=limit,
        is_heard=ledger.listening,
        keep=partial(_keep, ledger, tool),
    )


def _limit_of(ledger: Ledger, tool: Tool[..., Any]) -> tuple[float | None, str]:
    """The seconds that a call may take now, and the words for the limit behind them."""
    options = ledger.options
    own = tool.timeout if tool.timeout is not None else options.tool_timeout
    left = ledger.left()
    if left is not None and (own is None or left < own):
        return left, f"the turn's timeout of {options.timeout:g} s"
    return own, "" if own is None else f"{own:g} s"


def _idempotency_key(state: ConversationState, index: int, call: JournalCall) -> str:
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


def _note(ledger: Ledger, done: ToolDone) -> None:
    """Write the outcome of a call into the journal and the log, as far as the state has room for it."""
    outcome = done.outcome
    if outcome.bills and _calls(ledger)[done.index].state == "started":
        ledger.entered(partial(_enter_bills, ledger, done))
    if outcome.asks:  # it waits for answers to calls inside of it, and runs again when they come
        waits = replace(
            _calls(ledger)[done.index], state="waiting", reason="approval", parts=text_parts(outcome.asks)
        )
        ledger.state = journal.put_call(ledger.state, done.index, waits)
        return
    call = replace(
        _calls(ledger)[done.index],
        state="done",
        flag=outcome.flag,
        parts=outcome.parts,
        started=done.started,
        seconds=done.seconds,
    )
    found = admitted(ledger.room, ledger.state, done.index, call)
    ledger.state = journal.put_call(ledger.state, done.index, found.call)
    logged = journal.tool_record(found.logged, iteration=ledger.iteration, error=outcome.exception)
    ledger.record(done.index, logged)
    ledger.overflow = ledger.overflow or found.problem
    if found.left_out:
        tell_left_out(ledger, call.name, *found.left_out[0])


def _enter_bills(ledger: Ledger, done: ToolDone) -> None:
    """Book the model calls that a tool made: their tokens count for this turn, but not for its context.

    The same entry marks the call as done, so that they are added only once.
    """
    call = _calls(ledger)[done.index]
    for bill in done.outcome.bills:
        for asked, charge in bill.charges:
            ledger.book_charge_aside(charge, asked=asked)
    ledger.state = journal.put_call(ledger.state, done.index, replace(call, state="done"))


def _keep(ledger: Ledger, tool: Tool[..., Any], done: ToolDone) -> None:
    """As `_note`, for a call that finished while its turn was given up."""
    _note(ledger, done)
    _tell(ledger, {tool.name: tool}, done)


def _tell(ledger: Ledger, tools: Mapping[str, Tool[..., Any]], done: ToolDone) -> None:
    call = _calls(ledger)[done.index]
    tell_failed(ledger, call, done.outcome.exception, tools[call.name].run)


def _tell_check(
    ledger: Ledger, tools: Mapping[str, Tool[..., Any]], call: JournalCall, what: str, exc: Exception
) -> None:
    tell_failed(ledger, call, exc, tools[call.name].run, what)


def _done(ledger: Ledger, index: int, call: JournalCall) -> Flow[None]:
    """Write a result that no tool produced into the journal and the log."""
    ledger.state = journal.put_call(ledger.state, index, call)
    ledger.record(index, journal.tool_record(call, iteration=ledger.iteration))
    yield from _tell_done(ledger, call)


def _tell_done(ledger: Ledger, call: JournalCall, *, checkpoint: bool = True) -> Flow[None]:
    """Have a result kept, then tell the listeners: a listener that ends the process cannot lose it."""
    failed: TurnError | None = None
    try:
        if checkpoint:
            yield from ledger.checkpoint()
    except TurnError as exc:
        failed = exc
    if ledger.listening and call.state == "done":  # also after a failed checkpoint: the tool has run
        output = "".join(part.text for part in call.parts if isinstance(part, Text))
        yield Emit(
            ToolFinished(call.id, call.name, ledger.iteration, call.flag, call.seconds, output, **ledger.of)
        )
    if failed is not None:
        raise failed
