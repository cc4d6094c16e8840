"""Compacting a blob outside a turn.

Owns: the flow from blob to report. Must never know: who carries its effects out.
"""

from __future__ import annotations

from ..errors import CompactionError
from ..events import Compacted
from ..result import CompactionReport
from ..state.state import hard_limits, load_state, newest_number
from ..turn.flow import Emit, Flow
from ..turn.ledger import Ledger, Plan
from ..turn.repair import checked
from ..turn.shrink import compact, waits_for_end
from ..turn.voice import voice_of
from ..values import replace

__all__ = ["compact_flow"]


def compact_flow(plan: Plan, *, dry_run: bool) -> Flow[CompactionReport]:
    """Run the plan's compactor whatever its trigger says. With `dry_run` the report's state is the given
    blob, and nothing is archived; a strategy that asks a model asks it all the same.

    Raises:
        StateError: The blob cannot be read.
        CompactionError: The compactor raised, or kept something that no provider would take. What it has
            cost all the same is in the error's `state`.
        ValueError: There is no compactor.
    """
    if dry_run:
        plan = replace(plan, listening=False)  # nothing happens that could be told
    options = plan.options
    if options.compactor is None:
        raise ValueError("there is no compactor: give one to compact_state, or to the chat as compactor=")
    plan.codec.check(options.binding)
    if not plan.blob:
        return CompactionReport(outcome="no_change", reason="the conversation has not begun")
    ledger = Ledger(plan)
    yield from ledger.tick()
    if options.timeout is not None:
        ledger.deadline = ledger.now.monotonic + options.timeout
    state = load_state(
        plan.blob,
        wire=plan.dialect.wire,
        codec=plan.codec,
        binding=options.binding,
        min_revision=options.min_revision,
    )
    state, _ = checked(state, plan.dialect)
    ledger.begin(state, state, has_grown=False)
    ledger.identify(state.meta, newest_number(state))
    reason = ""
    if waits_for_end(ledger):
        reason = "the running turn has signed thinking, which would not fit any more: compact after its end"
    else:
        yield from compact(ledger, lambda: voice_of(plan, state.meta)[0], force=True, archives=not dry_run)
    report = ledger.report
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
        raise error if ledger.compaction_cause is None else error.because_of(ledger.compaction_cause)
    if dry_run or (report.outcome == "no_change" and ledger.state is state):
        return replace(report, state=plan.blob)
    return replace(report, state=_blob(ledger))


def _blob(ledger: Ledger) -> bytes:
    return ledger.encode(ledger.state.meta.status, limits=hard_limits(ledger.plan.codec))
