"""Shrinking the history of a running turn: because a compactor says so, or because it must.

Owns: when a cut is made during a turn and what follows from it. Must never know: which turns to keep.
"""

from __future__ import annotations

from collections.abc import Sequence

from .backends import rules
from .compaction.base import NO_COMPACTION, CompactionRequest, InvalidPlan, TurnView, apply_compactor
from .cut import compaction_request, cut_to, emergency_turns
from .events import Compacted
from .flow import Emit, Flow
from .ledger import Ledger
from .state import closed_turns

__all__ = ["compact", "emergency_cut", "shrink_for_context"]


def shrink_for_context(ledger: Ledger) -> Flow[bool]:
    """The model's context is too small for the history: cut once in a turn. False if that cannot help."""
    if ledger.cut_for_context:
        return False
    ledger.cut_for_context = True
    if (yield from compact(ledger, force=True)):
        return True
    return (yield from emergency_cut(ledger, "the history does not fit into the model's context"))


def emergency_cut(ledger: Ledger, reason: str) -> Flow[bool]:
    """Drop the older half of the closed turns. False if there is nothing to drop, or it is forbidden."""
    if ledger.options.compactor is NO_COMPACTION:
        return False
    state = ledger.state
    request = compaction_request(state, ledger.dialect)
    kept = emergency_turns(request)
    if len(kept) == len(request.turns):
        if not kept or (not state.inbox and state.open is None):
            return False
        kept = ()  # the only closed turn goes; the running one is the history then
    removed = len(request.turns) - len(kept)
    _cut(ledger, request, kept, by="emergency")
    ledger.warn("emergency_cut", f"{reason}; {removed} turns were dropped")
    yield from _tell(ledger)
    return True


def compact(ledger: Ledger, *, force: bool = False) -> Flow[bool]:
    """Run the turn's compactor, if there is one. It never fails the turn: what goes wrong is a warning.

    `force`: the provider has refused the history, so the trigger is not asked.
    """
    compactor = ledger.options.compactor
    if compactor is None or compactor is NO_COMPACTION:
        return False
    base = ledger.base()
    request = compaction_request(ledger.state, ledger.dialect)
    try:
        planned = apply_compactor(compactor, request, force=force)
        if planned is None:
            return False
        name, kept = planned
        _cut(ledger, request, kept, by=name)
        problems = check_rewritten(ledger)
        if problems:
            raise InvalidPlan(f"{name} left a history that the provider would refuse: {problems[0]}")
    except Exception as exc:
        ledger.go_back(base)
        reason = str(exc) if isinstance(exc, InvalidPlan) else f"it raised {type(exc).__name__}"
        ledger.warn("compaction_failed", f"the compactor failed and the history stays as it is: {reason}")
        return False
    yield from _tell(ledger)
    return True


def check_rewritten(ledger: Ledger) -> list[str]:
    """What the provider would refuse in the closed history; a rewritten one is always checked."""
    if ledger.dialect.wire not in rules.WIRES:
        return []
    entries = [entry for turn, _ in closed_turns(ledger.state) for entry in turn]
    return rules.check_history(ledger.dialect.wire, entries, unique_ids=False)


def _cut(ledger: Ledger, request: CompactionRequest, kept: Sequence[TurnView], *, by: str) -> None:
    state = ledger.state
    cut, ledger.report = cut_to(state, request, kept, ledger.dialect, by=by, at=ledger.at_ms)
    ledger.set_base(cut)
    if state.meta.signed:
        ledger.tell_unsigned("earlier turns were cut")


def _tell(ledger: Ledger) -> Flow[None]:
    if ledger.listening and ledger.report is not None:
        yield Emit(Compacted(ledger.report))
