"""Converts a state of another provider API, so that a turn can go on with it.

Owns: loading a state for this turn's provider API, and the report of a conversion. Must never know: how an
entry is converted (the plan has the function), or the later use of the state.
"""

from __future__ import annotations

from ..base.values import Value
from ..open_turn import journal
from ..state.codec import hard_limits
from ..state.state import ConversationState, load_state
from ..types.errors import StateProviderError
from .plan import Plan

__all__ = ["Converted", "converted", "load_converted"]


class Converted(Value, frozen=True, kw_only=True):
    """The report of a conversion.

    Attributes:
        found: The provider API of the given state.
        to: The provider API of this turn.
        lost: The losses: each kind with its count.
    """

    found: str
    to: str
    lost: tuple[tuple[str, int], ...]

    def words(self) -> str:
        """The conversion in words, without content."""
        left = ", ".join(f"{kind}: {count}" for kind, count in self.lost)
        return f"the state was written by {self.found!r} and was converted for {self.to!r}" + (
            f"; left behind: {left}" if left else ""
        )


def load_converted(plan: Plan) -> tuple[ConversationState, Converted | None]:
    """The given state in the form of this turn's provider API, and the conversion; None without one.

    Raises:
        StateProviderError: The state is of another provider API, and cannot be converted; see `converted`.
        StateError: The state cannot be read or converted.
    """
    try:
        return load_state(
            plan.blob,
            wire=plan.dialect.wire,
            codec=plan.codec,
            binding=plan.options.binding,
            min_revision=plan.options.min_revision,
        ), None
    except StateProviderError as error:
        foreign = error
    # Outside of the handler: inside it an error of the conversion would get this one as its context.
    return converted(plan, foreign)


def converted(plan: Plan, foreign: StateProviderError) -> tuple[ConversationState, Converted]:
    """The given state, converted to this turn's provider API, and the report.

    `foreign`: the error of a load without a conversion.

    Raises:
        StateProviderError: `foreign`, if the options do not allow to convert, if this release does not know
            the API, or if a dialect cannot translate.
        StateError: The state cannot be converted.
    """
    dialect, options = plan.dialect, plan.options
    source = plan.dialect_of(foreign.found) if options.on_foreign_state == "convert" else None
    if source is None:
        raise foreign
    state = load_state(
        plan.blob, codec=plan.codec, binding=options.binding, min_revision=options.min_revision
    )
    # Before the conversion: it would write a result for each call of the journal, also for one that the
    # reply does not have.
    journal.check_journal(state, source)
    state, losses = plan.translate(state, source, dialect, hard_limits(plan.codec))
    counts: dict[str, int] = {}
    for loss in losses:
        counts[loss.kind] = counts.get(loss.kind, 0) + loss.count
    lost = tuple(sorted(counts.items()))
    return state, Converted(found=foreign.found, to=dialect.wire, lost=lost)
