"""Compacts a blob outside a turn.

Owns: the flow from a blob to a report. Must never know: who carries its effects out.
"""

from __future__ import annotations

from functools import partial

from ..base.values import replace
from ..history.rewrite.repair import checked
from ..state.blob_header import may_take_long
from ..state.state import ConversationState, hard_limits, newest_number
from ..types.errors import CompactionError
from ..types.events import Compacted
from ..types.result import CompactionReport
from .flow import Emit, Flow, computed
from .foreign import load_own
from .ledger import Ledger
from .plan import Plan
from .request import voice_of
from .shrink import compact, waits_for_end

__all__ = ["compact_flow"]


def compact_flow(plan: Plan, *, dry_run: bool) -> Flow[CompactionReport]:
    """Run the plan's compactor without its trigger.

    With `dry_run` the report's state is the given blob, and no turn is archived. A strategy that asks a model
    still asks it.

    Raises:
        StateError: The blob cannot be read.
        CompactionError: The compactor raised, or left a history that the provider would refuse. The error's
            `state` counts the costs.
        ValueError: There is no compactor.
    """
    if dry_run:
        plan = replace(plan, listening=False)  # nothing changes, so there is nothing to tell
    options = plan.options
    plan.codec.check(options.binding)
    # Read the state first: without a readable state the advice to give a compactor would not help.
    is_long = may_take_long(plan.blob)
    state = (yield from computed(lambda: _loaded(plan), is_long=is_long)) if plan.blob else None
    if options.compactor is None:
        raise ValueError("there is no compactor: give one to compact_state, or to the chat as compactor=")
    if state is None:
        return CompactionReport(outcome="no_change", reason="the conversation has not begun")
    ledger = Ledger(plan)
    yield from ledger.start_clock()
    check = partial(checked, state, plan.dialect, retention=ledger.retention(ledger.retained_bytes))
    state, _ = yield from computed(check, is_long=is_long)
    ledger.begin(state, state, has_grown=False)
    ledger.identify(state.meta, newest_number(state))
    reason = ""
    if waits_for_end(ledger):
        reason = "the unfinished turn has signed thinking, which no cut history fits: compact after its end"
    else:
        yield from compact(ledger, lambda: voice_of(plan, state.meta)[0], force=True, archives=not dry_run)
    report = ledger.telling.report
    if report is None:
        meta, size = state.meta, state.history_bytes()
        report = CompactionReport(
            outcome="no_change",
            reason=reason,
            messages_before=meta.messages,
            messages_after=meta.messages,
            bytes_before=size,
            bytes_after=size,
            tokens_before=meta.tokens,
            tokens_after=meta.tokens,
        )
        if ledger.listening:
            yield Emit(Compacted(report, **ledger.of))
    if report.outcome in ("invalid", "failed"):
        error = CompactionError(
            f"{report.reason}; the history is unchanged",
            state=b"" if dry_run or ledger.state is state else _blob(ledger),
            usage=report.usage,
        )
        cause = ledger.tried.compaction_cause
        raise error if cause is None else error.because_of(cause)
    if dry_run or (report.outcome == "no_change" and ledger.state is state):
        return replace(report, state=plan.blob)
    return replace(report, state=_blob(ledger))


def _loaded(plan: Plan) -> ConversationState:
    return load_own(plan)[0]


def _blob(ledger: Ledger) -> bytes:
    return ledger.encode(ledger.state.meta.status, limits=hard_limits(ledger.plan.codec))
