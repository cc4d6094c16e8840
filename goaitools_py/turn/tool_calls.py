"""The calls of one reply: each gets its result, through the journal, in call order.

Owns: which calls start, when, and the record of each result. Must never know: threads, tasks, or a provider
API's JSON.

A call runs at most once because of the order of three steps: its start enters the journal, the journal is
kept, the tool runs. Its result is not lost because it enters the journal before a listener hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ..backends.protocols import RunsProviderTools
from ..base.run_twice import run_twice
from ..base.values import Value, replace
from ..open_turn import journal
from ..open_turn.given_answers import approved_arguments
from ..open_turn.journal import asks_of
from ..open_turn.room import admitted, calls_problem, with_actions
from ..state.records import JournalCall
from ..state.state import ConversationState
from ..tools import BadArguments, Tool, ToolContext
from ..tools.call import text_parts, whole_text
from ..types.answers import Answer, Answers, InnerAnswers
from ..types.errors import StateSizeError, ToolFailedError, TurnError
from ..types.events import ToolFinished, ToolPending, ToolProgress, ToolStarted
from ..types.messages import Part, Text
from .flow import AwaitTool, CallTool, Emit, Flow, ToolDone, ToolReport
from .ledger import Ledger
from .recall import is_recall, keeping_of, ready_to_run
from .report import Recalled
from .tool_reports import tell_failed, tell_left_out, tell_not_kept

__all__ = ["refuse_calls", "run_calls", "tell_pending"]

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
        run_twice(_note, ledger, done)  # Ctrl-C at this line must not lose the result
        running.discard(done.index)
        outcome = done.outcome
        _tell(ledger, tools, done)
        ledger.report.act(outcome.actions)
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
        raise ledger.error(ToolFailedError, f"{what}; resume tells the model") from failure
    return any_valid


def _overflow(ledger: Ledger) -> StateSizeError:
    """The error of a turn that ends because the state has no room for a result."""
    return ledger.error(
        StateSizeError,
        f"{ledger.overflow}; err.tool_log has it all, and calls that had not started were not run: "
        "resume tells the model so",
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
                call.id,
                call.name,
                ledger.iteration,
                call.reason,
                call.kind,
                call.arguments,
                **ledger.event_ids,
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
    given = None if answer is None else approved_arguments(answer)
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
    # The process that started it is gone. Only an idempotent tool may run again without an answer from
    # outside.
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
            **ledger.event_ids,
        )
    )


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
    tool = yield from ready_to_run(ledger, step.tool, step.bound)
    call = _started(ledger, index, step)
    # The order is the promise: journal, save, run. A crash before the save leaves a call that did not run; a
    # crash after it leaves a call in doubt. In the other order a call could run, and no state would know.
    ledger.state = journal.put_call(ledger.state, index, call)
    if ledger.plan.is_shared and not step.tool.idempotent:
        ledger.state = journal.claimed(ledger.state, ledger.plan.new_id())
    try:
        yield from ledger.checkpoint(undo=lambda state: journal.put_call(state, index, before))
        if ledger.listening:
            yield Emit(ToolStarted(call.id, call.name, ledger.iteration, call.arguments, **ledger.event_ids))
    except BaseException:  # the turn ends before the tool has run: undo the start, or the call is in doubt
        ledger.state = journal.put_call(ledger.state, index, before)
        raise
    context: ToolContext[Any] = ToolContext(
        deps=ledger.options.deps,
        call_id=call.id,
        turn_id=ledger.options.turn_id or ledger.event_ids["turn_ref"],
        iteration=ledger.iteration,
        idempotency_key=journal.idempotency_key(ledger.state, index, call),
        max_result_bytes=ledger.options.max_tool_result_bytes,
        conversation_id=ledger.event_ids["conversation_id"],
        answers=step.inner,
        _beside=partial(journal.keys_beside, ledger.state, index),
        _asked=asks_of(before) if step.inner else "",
        _keeps=ledger.options.keep_results == "store" and not is_recall(tool),
    )
    timeout, limit = _limit_of(ledger, tool)
    # Before the effect: an exit inside it may come after the tool has started.
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
    state, before = ledger.state, _calls(ledger)[done.index]
    is_noted = before.state == "done" and before.seconds == done.seconds  # an exit can run this twice
    if outcome.whole:  # the whole result enters together with the record of the call
        state, call = _kept(ledger, done.index, call, outcome.whole)
    found = admitted(ledger.room, state, done.index, call)
    state = state if found.call is call else ledger.state
    state = journal.put_call(state, done.index, found.call)
    if ledger.options.record_actions and outcome.actions and not is_noted:
        actions = [action for action in outcome.actions if not isinstance(action, Recalled)]
        state = with_actions(ledger.room, state, actions) if actions else state
    ledger.state = state
    logged = journal.tool_record(found.logged, iteration=ledger.iteration, error=outcome.exception)
    ledger.record(done.index, logged)
    ledger.overflow = ledger.overflow or found.problem
    if found.left_out:
        tell_left_out(ledger, call.name, *found.left_out[0])


def _kept(
    ledger: Ledger, index: int, call: JournalCall, whole: Sequence[Part]
) -> tuple[ConversationState, JournalCall]:
    """The state with the whole of a long result, and the call with its beginning and end. A result that the
    state cannot keep stays cut."""
    keeping = keeping_of(ledger)
    assert keeping is not None  # else the tool had no whole result
    found = journal.kept_whole(ledger.state, index, call, whole, keeping)
    if found is None:
        tell_not_kept(ledger, call.name, len(whole_text(whole).encode()))
        return ledger.state, call
    return found[0], replace(call, parts=found[1])


def _enter_bills(ledger: Ledger, done: ToolDone) -> None:
    """Book the model calls that a tool made: their tokens count for this turn, but not for its context.

    The same entry marks the call as done, so that they are added only once.
    """
    call = _calls(ledger)[done.index]
    for bill in done.outcome.bills:
        for asked, charge in bill.charges:
            ledger.book_charge_aside(charge, asked=asked)
    # In the same entry as the booking: after a crash in between, `_note` would book the same calls again.
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
            ToolFinished(
                call.id, call.name, ledger.iteration, call.flag, call.seconds, output, **ledger.event_ids
            )
        )
    if failed is not None:
        raise failed
