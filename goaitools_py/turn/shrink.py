"""Shrinking the history of a running turn: a compactor asks for it, or a limit forces it.

Owns: the decision to cut during a turn, and the entries in the books after a cut. Must never know: which
turns to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from ..backends.protocols import problems_of
from ..base.values import replace
from ..compaction.base import (
    NO_COMPACTION,
    AskFailed,
    CompactionRequest,
    CompactorLike,
    HasLimit,
    InvalidPlan,
    Kept,
    NoChange,
    Planned,
    TriggerFailed,
    checked_turns,
    name_of,
    of_turns,
)
from ..compaction.compactor import RECALL, with_recall_note
from ..compaction.turn_views import TurnView
from ..history.archive_keeping import without_oldest
from ..history.rewrite.backoff import CompactorQuestions, has_rested, resting, woken
from ..history.rewrite.cut import (
    EMERGENCY,
    LimitCut,
    compaction_request,
    cut_to,
    emergency_turns,
    is_providers,
    limit_cut,
    lost_pins,
    removed_turns,
)
from ..history.rewrite.rewritten import is_signed
from ..open_turn.meter import gauge_of
from ..state.apart import blob_size
from ..state.closed_turns import numbers_of
from ..state.state import ConversationState, closed_entries, closed_turns
from ..types.errors import CheckpointError, StateTooLargeError
from ..types.events import Compacted
from ..types.messages import Text, Usage
from ..types.result import CompactionOutcome, CompactionReport
from ..types.turn_warnings import TurnWarning
from .flow import Emit, Flow, Invoke, computed
from .ledger import Ledger
from .request import Voice
from .strategy_asks import Spent, consult

__all__ = [
    "compact",
    "compact_before_request",
    "cut_to_limits",
    "emergency_cut",
    "shrink_for_context",
    "waits_for_end",
]

T = TypeVar("T")

VoiceOf = Callable[[], Voice]


class _BeforeCutFailed(Exception):  # noqa: N818 - becomes an outcome
    """A compactor's `before_cut` raised. Its exception is the cause of this one."""


def shrink_for_context(ledger: Ledger, voice: VoiceOf) -> Flow[bool]:
    """Cut the history once in a turn, because the model's context is too small. False if that cannot help."""
    if ledger.tried.cut_for_context:
        return False
    ledger.tried.cut_for_context = True
    if (yield from compact(ledger, voice, force=True)):
        return True
    return (yield from emergency_cut(ledger, "the history does not fit into the model's context"))


def compact_before_request(ledger: Ledger, voice: VoiceOf) -> Flow[None]:
    """Compact if the trigger fires on the next request.

    Once in a turn, because the closed turns are the same at every request. Never while the running turn has
    signed blocks: their signature covers the closed turns.
    """
    if ledger.tried.has_compacted or ledger.options.compactor is None or not ledger.state.meta.turns:
        return
    if not waits_for_end(ledger):
        yield from compact(ledger, voice)


def waits_for_end(ledger: Ledger) -> bool:
    """True while the running turn has signed blocks: a cut of the closed turns would make them invalid."""
    opened = ledger.state.open
    return opened is not None and ledger.state.meta.signed and is_signed(opened.entries, ledger.dialect)


def emergency_cut(ledger: Ledger, reason: str) -> Flow[bool]:
    """Drop the older half of the closed turns, because the provider does not tell its limit. Pinned messages
    go last; see `emergency_turns`.

    False if nothing can be dropped, or if cuts are forbidden.
    """
    compactor = ledger.options.compactor
    if compactor is NO_COMPACTION:
        return False
    state = ledger.state
    request = _request(ledger)
    may_empty = bool(state.inbox) or state.open is not None  # the running turn is then the whole history
    kept = yield from _computed(state, lambda: emergency_turns(request, may_empty=may_empty))
    recalls = _recalls(compactor)
    if (not kept and not may_empty) or all(turn.note == RECALL for turn in removed_turns(request, kept)):
        return False
    if recalls:
        kept = with_recall_note(request, kept)
    if (why := (yield from _not_handed(compactor, request, kept))) is not None:
        ledger.warn("compaction_failed", f"nothing was cut: {why}")
        return False
    at, soft = ledger.at_ms, ledger.room.soft
    cut, report = yield from _computed(
        state,
        lambda: cut_to(
            state,
            request,
            kept,
            ledger.dialect,
            by=EMERGENCY,
            at=at,
            limits=soft,
            retention=ledger.retention(ledger.retained_bytes),
        ),
    )
    yield from _dropped(ledger, LimitCut(kept=kept, state=cut, report=report), request, reason)
    return True


def cut_to_limits(
    ledger: Ledger,
    problem: StateTooLargeError,
    fits: Callable[[ConversationState], bool],
    *,
    least: int,
) -> Flow[bool]:
    """Drop the fewest oldest turns that bring the state within its limits.

    False if that cannot help, or is forbidden. The state has not changed then.

    Args:
        ledger: The turn's books.
        problem: The error that names the exceeded limit.
        fits: Returns True for a state within the limits.
        least: The number of turns that stay in any case.
    """
    compactor = ledger.options.compactor
    at, soft = ledger.at_ms, ledger.room.soft
    state = ledger.state
    if problem.limit_name == "max_blob_bytes":
        # Drop the archive first, then turns: requests do not contain the archive.
        state = without_oldest(state, fits, at=at)
        if state is not ledger.state and fits(state):
            # The new base, so that dropping the input later does not bring the archive back.
            ledger.set_base(state)
            return True
    if compactor is NO_COMPACTION or state.meta.turns <= least:
        return False
    request = _request(ledger)
    found = yield from _computed(
        state,
        lambda: limit_cut(
            state,
            request,
            ledger.dialect,
            codec=ledger.plan.codec,
            limits=soft,
            fits=fits,
            least=least,
            at=at,
            retention=ledger.retention(ledger.retained_bytes),
            recalls=_recalls(compactor),
        ),
    )
    if found is None:
        return False
    if (why := (yield from _not_handed(compactor, request, found.kept))) is not None:
        ledger.warn("compaction_failed", f"nothing was cut: {why}")
        return False
    name = problem.limit_name
    yield from _dropped(ledger, found, request, f"beyond {name}={getattr(soft, name)}")
    return True


def _lost(ledger: Ledger, cut: LimitCut, request: CompactionRequest) -> list[tuple[int, str]]:
    """The pinned messages that a cut drops: the number of each one's turn, and its kind."""
    lost = lost_pins(request.turns, cut.kept)
    if not lost:
        return []
    numbers = numbers_of([turn.record for turn in closed_turns(ledger.state)])
    return [(numbers[at], kind) for at, kind in lost]


def _recalls(compactor: Any) -> bool:
    """True if the model has the tool that searches the removed turns."""
    return bool(getattr(compactor, "recalled_tokens", 0))


_LARGE: Final = 256 * 1024
"""Bytes. A cut of a larger history takes more than about 5 ms, and an event loop should not wait for it."""


def _computed(state: ConversationState, function: Callable[[], T]) -> Flow[T]:
    """Call a function, beside the event loop if the history is large, and return its result."""
    return (yield from computed(function, is_long=state.history_bytes() > _LARGE))


def _not_handed(
    compactor: Any, request: CompactionRequest, kept: Sequence[TurnView]
) -> Flow[_BeforeCutFailed | None]:
    """Pass the turns of the next cut to the compactor's callback. Returns its failure; None without one."""
    try:
        yield from _before_cut(getattr(compactor, "before_cut", None), request, kept)
    except _BeforeCutFailed as exc:
        return exc
    return None


def _dropped(ledger: Ledger, cut: LimitCut, request: CompactionRequest, reason: str) -> Flow[None]:
    """Enter an emergency cut into the books, and report it."""
    lost = _lost(ledger, cut, request)
    _enter_cut(ledger, cut.state, request, cut.kept)
    ledger.report.compaction = _together(ledger.report.compaction, cut.report)
    ledger.warn("emergency_cut", f"{reason}; {cut.report.removed_turns} turns were dropped")
    if lost:
        named = ", ".join(f"{kind} of turn {number}" for number, kind in lost)
        ledger.warn("pinned_dropped", f"nothing else was left to drop: {named}")
    yield from _tell(ledger)


def compact(ledger: Ledger, voice: VoiceOf, *, force: bool = False, archives: bool = True) -> Flow[bool]:
    """Run the turn's compactor, if there is one. Its failure never fails the turn: it becomes a warning.

    Args:
        ledger: The turn's books.
        voice: Makes the other parts of a request, if the strategy asks a model.
        force: True if the provider refused the history, or the caller demands a cut: skip the trigger.
        archives: False: do not give the removed turns to `before_cut`.
    """
    compactor = ledger.options.compactor
    if compactor is None or compactor is NO_COMPACTION:
        return False
    if ledger.tried.compaction_cause is not None and ledger.tried.has_compacted and not force:
        return False  # it has failed in this turn already, and a second failure could cost money again
    # Before the strategy runs: it may cut, ask, fail, and leave the history half changed.
    before = ledger.return_point()
    questions = CompactorQuestions(ledger.state, is_free=force)
    report: CompactionReport | None = None
    try:
        report = yield from _compacted(ledger, compactor, voice, questions, force, archives)
    finally:  # an exit out of a strategy, such as Ctrl-C, must undo a half-done change, too
        if report is None or report.outcome != "compacted":
            ledger.go_back(before)
    if report is None:
        return False
    if report.outcome == "compacted":
        for why in questions.vain:
            ledger.warn("compaction_failed", f"{why}; another compactor took its place")
    elif report.outcome != "no_change" or questions.asked:
        why = report.reason or f"{report.by} asked a model and changed nothing"
        warning = TurnWarning("compaction_failed", f"the history stays as it is: {why}")
        if warning in ledger.report.warnings and not force:
            return False  # warn once about a trigger that raises at each request of the turn
        ledger.report.warnings.append(warning)
        report = replace(report, error=_raised(ledger.tried.compaction_cause))
    if not force:
        ledger.state = questions.noted(ledger.state, has_compacted=report.outcome == "compacted")
    usage = sum(questions.spent, Usage())
    ledger.report.compaction = _together(ledger.report.compaction, replace(report, usage=usage))
    ledger.tried.compacted += (ledger.return_point(),)
    yield from _tell(ledger)
    return report.outcome == "compacted"


def _compacted(
    ledger: Ledger,
    compactor: CompactorLike,
    voice: VoiceOf,
    questions: CompactorQuestions,
    force: bool,
    archives: bool,
) -> Flow[CompactionReport | None]:
    """Carry out the plan of a compactor; None if it has no plan. The caller undoes a failed compaction.

    `questions` counts the strategy's questions and their tokens, which are in the books already.
    """
    request = _request(ledger)
    by = name_of(getattr(compactor, "strategy", compactor))
    try:
        if force:  # a forced plan reads the turns: read them beside the loop, and the request caches them
            yield from _computed(ledger.state, lambda: request.turns)
        planned = compactor.plan(request, force=force)
        if planned is None:
            return None
        ledger.tried.has_compacted = True
        by, turns = planned.by, planned.turns
        questions.pass_over(planned)
        while isinstance(turns, (Generator, Planned)):
            if isinstance(turns, Planned):
                planned, by, turns = turns, turns.by, turns.turns
                questions.pass_over(planned)
            else:
                booked = partial(_book, ledger, questions.spent)
                turns = yield from consult(ledger, voice, turns, booked, questions.ask)
        if isinstance(turns, NoChange):
            if questions.asked:  # it has paid for a question and changed nothing: not again in this turn
                ledger.tried.compaction_cause = InvalidPlan(turns.reason)
            return _unchanged(ledger, request, "no_change", by, turns.reason)
        reason = ""
        if isinstance(turns, Kept):
            reason, turns = turns.reason, turns.turns
        kept = checked_turns(by, turns, request, planned.preserve_system)
        if kept is None:
            return (
                _unchanged(ledger, request, "no_change", by, reason)
                if force or questions.asked or reason
                else None
            )
        report = yield from _cut(ledger, request, kept, by=by, retain_bytes=planned.retain_bytes)
        if problems := (yield from _computed(ledger.state, lambda: check_rewritten(ledger))):
            raise InvalidPlan(f"{by} left a history that the provider would refuse: {problems[0]}")
        if archives:  # after all checks, so that the turns which it gets do leave the history
            yield from _before_cut(planned.before_cut, request, kept)
        if not force and planned.compactor is not None:
            _look_at_limit(ledger, planned, planned.compactor, kept, is_paid=questions.asked > 0)
        return replace(report, reason=reason)
    except InvalidPlan as exc:
        ledger.tried.compaction_cause = exc
        return _unchanged(ledger, request, "invalid", by, str(exc))
    except _BeforeCutFailed as exc:
        ledger.tried.compaction_cause = exc
        return _unchanged(ledger, request, "failed", by, str(exc))
    except AskFailed as exc:
        ledger.tried.compaction_cause = exc
        return _unchanged(ledger, request, "failed", by, f"{by} got no answer: {exc}")
    except CheckpointError:
        raise
    except TriggerFailed as exc:
        cause = ledger.tried.compaction_cause = exc.__cause__ if isinstance(exc.__cause__, Exception) else exc
        return _unchanged(ledger, request, "failed", exc.by, f"{exc.by} raised {type(cause).__name__}")
    except Exception as exc:
        ledger.tried.compaction_cause = exc
        return _unchanged(ledger, request, "failed", by, f"{by} raised {type(exc).__name__}")


def _look_at_limit(
    ledger: Ledger, planned: Planned, compactor: HasLimit, kept: Sequence[TurnView], *, is_paid: bool
) -> None:
    """If a cut has left more than the compactor's limit, let the compactor rest, and warn the first time.

    The inbox and the open turn do not count, because no cut removes them. (They do count in a blob's size.)
    """
    state, request = ledger.state, _request(ledger)
    frame = gauge_of(state.meta).frame
    left = of_turns(request, kept, beside=frame, blob_bytes=lambda: request.blob_bytes)
    if not compactor.is_above(left):
        ledger.set_base(woken(state, compactor))
        return
    # Fewer turns cannot help if the tools and `system=` alone are above the limit.
    others_help = not compactor.is_above(of_turns(request, (), beside=frame))
    if not (planned.has_next or has_rested(state, compactor)):
        stays = f"the {len(kept)} turns that stay" if others_help else "tools and system="
        cuts_again = others_help and not is_paid
        then = "cuts again in each turn" if cuts_again else "rests until another cut may help"
        ledger.warn(
            "compaction_in_vain",
            f"{planned.by} cut the history, and it is still above the trigger's limit, because of {stays}; "
            f"the compactor {then}: give it a larger limit",
        )
    turns = (max(1, len(kept)) if is_paid else None) if others_help else 0
    ledger.set_base(resting(state, compactor, tokens=request.token_count, turns=turns))


def _raised(cause: Exception | None) -> Exception | None:
    """The exception of the caller's code that made a compaction fail; None for another reason."""
    found = cause.__cause__ if isinstance(cause, (InvalidPlan, AskFailed, _BeforeCutFailed)) else cause
    return found if isinstance(found, Exception) else None


def _book(ledger: Ledger, spent: list[Usage], one: Spent) -> None:
    ledger.book_aside(
        one.usage, asked=one.asked, answered=one.answered, dialect=one.dialect, cost_usd=one.cost_usd
    )
    spent.append(one.usage)


def _together(first: CompactionReport | None, second: CompactionReport) -> CompactionReport:
    """Merge the reports of two compactions of one turn.

    A compaction without a change is reported only if both changed nothing.
    """
    if first is None or first.outcome != "compacted":
        return second if first is None else replace(second, usage=first.usage + second.usage)
    if second.outcome != "compacted":
        return replace(first, usage=first.usage + second.usage)
    return replace(
        second,
        by=first.by if first.by == second.by else f"{first.by}, {second.by}",
        removed_turns=first.removed_turns + second.removed_turns,
        rewritten_turns=first.rewritten_turns + second.rewritten_turns,
        removed_messages=first.removed_messages + second.removed_messages,
        usage=first.usage + second.usage,
        messages_before=first.messages_before,
        bytes_before=first.bytes_before,
        tokens_before=first.tokens_before,
    )


def _unchanged(
    ledger: Ledger, request: CompactionRequest, outcome: CompactionOutcome, by: str, reason: str
) -> CompactionReport:
    meta = ledger.state.meta
    turns: Sequence[TurnView] | None = vars(request).get("turns")  # if a strategy has read them
    size = request.history_bytes if turns is None else sum(turn.entry_bytes for turn in turns)
    tokens = request.token_count if turns is None else sum(turn.tokens for turn in turns)
    return CompactionReport(
        outcome=outcome,
        by=by,
        reason=reason,
        messages_before=meta.messages,
        messages_after=meta.messages,
        bytes_before=size,
        bytes_after=size,
        tokens_before=tokens,
        tokens_after=tokens,
    )


def _request(ledger: Ledger) -> CompactionRequest:
    return compaction_request(
        ledger.state,
        ledger.dialect,
        blob_bytes=lambda: _blob_bytes(ledger),
        most_blob_bytes=_most_blob_bytes(ledger),
        context_window=ledger.context_window,
        idle_seconds=ledger.idle_seconds,
        is_cold=ledger.is_cold,
    )


_BOOKS: Final = 4096
"""An upper bound of the bytes that a turn adds to a blob beside its messages: meta data, columns, frames."""


def _most_blob_bytes(ledger: Ledger) -> int:
    """An upper bound of a blob of this instant: the given blob, and all new bytes uncompressed."""
    before = _raw_bytes(ledger.given) if ledger.given is not None else 0
    return blob_size(ledger.plan.blob) + max(0, _raw_bytes(ledger.state) - before) + _BOOKS


def _raw_bytes(state: ConversationState) -> int:
    size = state.history_bytes() + sum(len(item.entry) for item in state.inbox)
    opened = state.open
    if opened is None:
        return size
    size += sum(map(len, opened.entries))
    for call in opened.calls:
        size += len(call.arguments)
        for part in call.parts:
            size += 4 * len(part.text) if isinstance(part, Text) else 2 * len(part.data or b"") + 1024
    return size


def _blob_bytes(ledger: Ledger) -> int:
    try:
        return blob_size(ledger.snapshot())
    except StateTooLargeError as exc:  # larger than any blob may be
        return 1 + max(exc.limit, _most_blob_bytes(ledger))


def _before_cut(before_cut: Any, request: CompactionRequest, kept: Sequence[TurnView]) -> Flow[None]:
    """Pass the turns of the next cut to the compactor's callback. Its failure raises `_BeforeCutFailed`."""
    if before_cut is None:
        return
    try:
        yield Invoke(before_cut, (removed_turns(request, kept),))
    except Exception as exc:
        reason = f"before_cut raised {type(exc).__name__}, and nothing goes without it"
        raise _BeforeCutFailed(reason) from exc


def check_rewritten(ledger: Ledger) -> list[str]:
    """The problems that make the provider refuse a rewritten history; empty without a problem."""
    return problems_of(ledger.dialect, closed_entries(ledger.state))


def _cut(
    ledger: Ledger, request: CompactionRequest, kept: Sequence[TurnView], *, by: str, retain_bytes: int
) -> Flow[CompactionReport]:
    state, at, soft = ledger.state, ledger.at_ms, ledger.room.soft
    retention = ledger.retention(retain_bytes)
    cut, report = yield from _computed(
        state,
        lambda: cut_to(state, request, kept, ledger.dialect, by=by, at=at, limits=soft, retention=retention),
    )
    _enter_cut(ledger, cut, request, kept)
    return report


def _enter_cut(
    ledger: Ledger, cut: ConversationState, request: CompactionRequest, kept: Sequence[TurnView]
) -> None:
    was_signed = ledger.state.meta.signed
    ledger.set_base(cut)
    if was_signed and not is_providers(kept, request):
        ledger.tell_unsigned("earlier turns were cut")


def _tell(ledger: Ledger) -> Flow[None]:
    if ledger.listening and ledger.report.compaction is not None:
        yield Emit(Compacted(ledger.report.compaction, **ledger.event_ids))
