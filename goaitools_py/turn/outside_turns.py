"""Works on a blob outside a turn: compacts it, or asks the provider how many tokens its next request has.

Owns: the flows from a blob to a report, and from a plan to the provider's number; the compactor of a turn
that leaves due cuts to such a flow. Must never know: who carries the effects out, a provider's endpoint, or
how tokens are estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ..backends.base import ProtocolFault
from ..backends.protocols import CountsTokens
from ..base.values import Value, replace
from ..compaction.base import (
    NO_COMPACTION,
    BeforeCut,
    CompactionRequest,
    CompactorLike,
    Planned,
    edits_of,
)
from ..history.rewrite.repair import checked
from ..open_turn import inbox, journal, steps
from ..open_turn.acts import begun
from ..state.blob_header import may_take_long
from ..state.state import ConversationState, hard_limits, new_state, newest_number
from ..types.errors import CompactionError, ProviderProtocolError
from ..types.events import Compacted
from ..types.request_parts import ContextEdit
from ..types.result import CompactionReport
from .convert_on_load import load_converted
from .flow import Emit, Flow, computed
from .ledger import Ledger
from .model_failures import turn_error
from .plan import Plan
from .receive import MAX_REPLY_BYTES
from .request import Voice, request_parts, voice_of
from .retry import fetch, with_retries
from .shrink import compact, waits_for_end
from .timing import CallTimes

__all__ = ["compact_flow", "count_flow", "only_in_need"]

_NOT_DUE: Final = "no compaction is due"


def compact_flow(plan: Plan, *, dry_run: bool, if_due: bool = False) -> Flow[CompactionReport]:
    """Run the plan's compactor without its trigger. `if_due`: ask the trigger, as a turn does; if it does not
    fire, or the compactor rests, nothing changes, and no listener is told.

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
    # A repair is not asked for, but a compactor must not meet a history that no provider accepts.
    check = partial(checked, state, plan.dialect, retention=ledger.retention(ledger.retained_bytes))
    state, _ = yield from computed(check, is_long=is_long)
    ledger.begin(begun(state, state))
    ledger.identify(state.meta, newest_number(state))
    reason = ""
    if waits_for_end(ledger):
        reason = "the unfinished turn has signed thinking, which no cut history fits: compact after its end"
    else:
        voice = partial(_voice, plan, state)
        yield from compact(ledger, voice, force=not if_due, archives=not dry_run)
    report = ledger.report.compaction
    if report is None and if_due:
        return CompactionReport(outcome="no_change", reason=reason or _NOT_DUE, state=plan.blob)
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
            yield Emit(Compacted(report, **ledger.event_ids))
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


def _voice(plan: Plan, state: ConversationState) -> Voice:
    return voice_of(plan, state.meta)[0]


def _loaded(plan: Plan) -> ConversationState:
    return load_converted(plan)[0]


def _blob(ledger: Ledger) -> bytes:
    return ledger.encode(ledger.state.meta.status, limits=hard_limits(ledger.plan.codec))


def count_flow(plan: Plan) -> Flow[int]:
    """Count the input tokens of the request that a turn of this plan would begin with.

    Raises:
        StateError: The blob cannot be read.
        TurnError: The provider did not answer. The error's state is the given one.
        ValueError: The provider API has no endpoint that counts, or there is nothing to count.
    """
    dialect, options = plan.dialect, plan.options
    if not isinstance(dialect, CountsTokens):
        raise ValueError(
            f"the provider API {dialect.wire!r} has no endpoint that counts tokens (Anthropic Messages and "
            "OpenAI Responses have one); inspect_state(state).tokens is an estimate, based on the last usage "
            "that the provider told"
        )
    plan.codec.check(options.binding)
    ledger = Ledger(plan)
    yield from ledger.start_clock()
    if plan.blob:
        state, _ = load_converted(plan)
        journal.check_journal(state, dialect)
    else:
        state = new_state(dialect.wire, id=plan.new_id(), created=ledger.now.wall_ms)
    voice = voice_of(plan, state.meta)[0]
    before = state if journal.ready(state) and not plan.messages else steps.close_turn(state, dialect)
    messages = list(plan.messages)
    if options.context is not None:
        before, messages = inbox.with_new_context(before, messages, options.context, dialect)
    asked = inbox.admit(before, messages, dialect)
    if not asked.inbox and asked.open is None:
        raise ValueError("a turn would send nothing new: pass user=… or messages=…, or append to the state")
    ledger.begin(begun(state, asked))
    request = dialect.count_request(request_parts(ledger, voice))

    def attempt() -> Flow[bytes]:
        yield from ledger.tick()
        ledger.check_deadline()
        # A count is not a model call, so only the turn's own time limit holds.
        times = CallTimes.begin(ledger.now.monotonic, turn=ledger.deadline, call=None, first=None)
        return (yield from fetch(ledger, request, times, max_bytes=MAX_REPLY_BYTES, dialect=dialect))

    body = yield from with_retries(ledger, attempt, error=partial(turn_error, ledger))
    try:
        return dialect.counted(body)
    except ProtocolFault as exc:
        raise ledger.error(
            ProviderProtocolError, "the provider answered 200 with something that is not a count"
        ) from exc


def only_in_need(compactor: Any) -> Any:
    """Make the compactor of a turn that leaves its due cuts to others; None if it has no due cuts."""
    return None if compactor is None or compactor is NO_COMPACTION else _OnlyInNeed(compactor)


class _OnlyInNeed(Value, frozen=True):
    """A compactor that acts only when the provider refuses the history. Its due cuts are made elsewhere."""

    compactor: CompactorLike

    def plan(self, request: CompactionRequest, *, force: bool = False) -> Planned | None:
        """Plan the cut, if it is forced."""
        return self.compactor.plan(request, force=True) if force else None

    @property
    def strategy(self) -> Any:
        return getattr(self.compactor, "strategy", self.compactor)

    @property
    def before_cut(self) -> BeforeCut | None:
        return getattr(self.compactor, "before_cut", None)

    @property
    def retained_bytes(self) -> int:
        return getattr(self.compactor, "retained_bytes", 0)

    @property
    def recalled_tokens(self) -> int:
        return getattr(self.compactor, "recalled_tokens", 0)

    @property
    def context_management(self) -> Sequence[ContextEdit]:
        return edits_of(self.compactor)
