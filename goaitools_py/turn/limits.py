"""Checks limits: of a conversation before the first paid call, of a turn, and of the state that is written.

Owns: the decision which limit is reached or near, and the cut that makes room. Must never know: the turn's
act at a limit, or a model's reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, Literal

import msgspec

from ..base.values import replace
from ..open_turn import journal
from ..open_turn.acts import begun
from ..open_turn.room import CALL_BYTES, RESULTS, stored_size
from ..state.records import OpenTurn, counts_of, dollars_of, usage_of
from ..state.state import ConversationState
from ..types.errors import BudgetExceededError, LimitExceededError, StateSizeError, StateTooLargeError
from ..types.events import ContextWarning, Filled
from ..types.messages import Message, Usage
from ..types.turn_warnings import WarningCode
from ..types.usage import Charge, total
from . import shrink
from .flow import Flow
from .ledger import Ledger

__all__ = [
    "NOT_STORED",
    "calls_left",
    "check_budget",
    "check_queue",
    "check_size",
    "context_warnings",
    "is_over_budget",
    "reached",
    "stop_at_limit",
    "written",
]


INVALID_REPLIES_IN_A_ROW: Final = 3


_UNKNOWN_COST: Final = (
    "max_cost_usd limits the cost of the turn, but the price of one of its calls is unknown; its tokens "
    "are in err.usage: pass prices=, or use max_tokens instead"
)


def reached(ledger: Ledger) -> str | None:
    """Describe the limit that the turn has reached; None if it has reached no limit.

    A limit on costs also counts as reached if the cost of a call is unknown.
    """
    options, before = ledger.options, _before(ledger)
    if ledger.iteration >= options.max_iterations:
        return f"max_iterations={options.max_iterations} model calls were made"
    limits = options.limits
    if limits is None:
        return None
    # The calls of an earlier process count: the limit is the turn's, and a resume must not give it anew.
    tokens = ledger.spending.account.usage.total_tokens + sum(
        one.usage.total_tokens for one in before.iterations
    )
    if limits.max_tokens is not None and tokens >= limits.max_tokens:
        return f"max_tokens={limits.max_tokens} of this turn are spent"
    if limits.max_cost_usd is not None:
        cost = _cost(ledger, before)
        if cost is None:
            return _UNKNOWN_COST
        if cost >= limits.max_cost_usd:
            return f"max_cost_usd={limits.max_cost_usd} of this turn are spent"
    if calls_left(ledger) == 0:
        return "max_tool_calls of this turn are spent"
    return None


def stop_at_limit(ledger: Ledger, invalid_in_a_row: int = 0) -> str | None:
    """Warn of the limit that the turn has reached, and return its text; None without a reached limit.

    `invalid_in_a_row`: the number of the newest replies that held only invalid tool calls.

    Raises:
        LimitExceededError: A limit is reached, and `on_limit` is "raise".
        BudgetExceededError: Costs are limited, and the cost of a call is unknown.
    """
    code: WarningCode = "limit_reached"
    if invalid_in_a_row >= INVALID_REPLIES_IN_A_ROW:
        code = "invalid_tool_calls"
        limit: str | None = f"{invalid_in_a_row} replies in a row held only invalid tool calls"
    else:
        limit = reached(ledger)
    if limit is None:
        return None
    if limit is _UNKNOWN_COST:
        raise ledger.error(BudgetExceededError, limit)
    ledger.warn(code, limit)
    if ledger.options.on_limit == "raise":
        advice = "resume goes on by one more reply and its calls, or up to a larger limit"
        raise ledger.error(LimitExceededError, f"{limit}; {advice}")
    return limit


def calls_left(ledger: Ledger) -> int | None:
    """Count the tool calls that may still start; None for no limit."""
    limits = ledger.options.limits
    if limits is None or limits.max_tool_calls is None:
        return None
    # The log begins with the calls of the journal.
    started = sum(record.started is not None for record in ledger.report.tool_log)
    return max(0, limits.max_tool_calls - journal.calls_started(_before(ledger)) - started)


def _before(ledger: Ledger) -> OpenTurn:
    """Give the turn as an earlier process left it; an empty turn if this process began it."""
    given = ledger.first_given
    return given.open if given is not None and given.open is not None else OpenTurn(at=0)


def _cost(ledger: Ledger, before: OpenTurn) -> Decimal | None:
    earlier = (_price(ledger, one.usage) for one in before.iterations)
    return total((ledger.spending.account.bill.cost_usd, *earlier))


def _price(ledger: Ledger, usage: Usage) -> Decimal | None:
    """Price a call that an earlier process made for this turn, at today's price; None if unknown."""
    meta = ledger.state.meta if ledger.first_given is None else ledger.first_given.meta
    charge = Charge(
        model=meta.model,
        usage=usage,
        wire=meta.wire,
        family=meta.family,
        at_ms=ledger.now.wall_ms,
    )
    return ledger.spending.price_of(charge, meta.model)


NOT_STORED: Final = frozenset({"extra_body", "extra_headers"})
"""Settings that no state keeps."""


def check_budget(ledger: Ledger, model: str) -> None:
    """Raise `BudgetExceededError` if the conversation has reached a limit that it must not pass."""
    if ledger.options.limits is not None and (problem := _over_budget(ledger, model)):
        ledger.leave_waiting()
        raise ledger.error(BudgetExceededError, f"{problem}; nothing was sent", drop_input=True)


def is_over_budget(ledger: Ledger, model: str) -> bool:
    """True if `check_budget` would raise."""
    return ledger.options.limits is not None and _over_budget(ledger, model) != ""


def _over_budget(ledger: Ledger, model: str) -> str:
    limits, meta = ledger.options.limits, ledger.state.meta
    assert limits is not None
    spent, most = usage_of(meta.total).total_tokens, limits.conversation_max_tokens
    if most is not None and spent >= most:
        return f"this conversation has used {spent} tokens of its {most}"
    if not limits.limits_cost:
        return ""
    if not ledger.knows_price(model):
        return (
            "there is a limit on costs, and no price is known for the model: pass prices=, or "
            "pip install 'goaitools-py[prices]', or leave the limit out"
        )
    dollars = limits.conversation_max_cost_usd
    if dollars is None:
        return ""
    cost = dollars_of(meta)
    if cost is None:
        return (
            "there is a limit on the conversation's cost, and what it has cost so far is not known: some "
            "calls were made without prices="
        )
    if cost >= dollars:
        return f"this conversation has cost {cost} US dollars of its {dollars}"
    return ""


def check_size(ledger: Ledger) -> Flow[None]:
    """Make sure, before the first paid call, that the new state will fit.

    An open turn may go on up to the hard limits.
    """
    room, state = ledger.room, ledger.state
    more = _facts_bytes(ledger)
    problem = room.soft_problem(state, more=more)
    if problem is None:
        return
    is_open = state.open is not None
    if is_open and (problem := room.problem(state, RESULTS, more=more)) is None:
        return

    def fits(cut: ConversationState) -> bool:
        found = room.problem(cut, RESULTS, more=more) if is_open else room.soft_problem(cut, more=more)
        return found is None

    # Now, while the caller still has its message: after a paid reply a turn that does not fit is lost money.
    if (yield from shrink.cut_to_limits(ledger, problem, fits, least=0)):
        return
    # What others have put in goes on waiting. But if it leaves no room for a message that would fit alone, it
    # is handed back, too: else it would keep out each later message.
    if not is_open and ledger.leave_waiting():
        alone = replace(ledger.state, sealed=(), hot=None, inbox=ledger.to_send())
        if room.soft_problem(alone, more=more) is None:
            ledger.left_waiting = None
    raise ledger.error(StateSizeError, f"{problem}; nothing was sent", drop_input=True) from problem


def check_queue(ledger: Ledger, before: ConversationState, messages: tuple[Message, ...]) -> Flow[None]:
    """Make sure that the messages behind a waiting turn leave room for its end.

    If they do not, the caller gets the new messages back, and earlier waiting messages stay.

    Args:
        ledger: The turn's books, with the queued state.
        before: The state without the new messages.
        messages: The new messages.
    """
    room, state = ledger.room, ledger.state
    # The waiting turn first: no cut can make room for its end, but a cut can make room for a message.
    problem = room.problem_alone(state, more=journal.unfinished(state) * CALL_BYTES)
    if problem is None:
        problem = room.soft_problem(state)
        if problem is None or (yield from shrink.cut_to_limits(ledger, problem, _within(ledger), least=0)):
            return
    # The caller gets the new messages back, so the error's state must not have them, and no edit.
    before = ledger.forget_edit() or before
    ledger.begin(begun(before, before))
    error = ledger.error(StateSizeError, f"{problem}; the message was not queued, nothing was sent")
    error.pending_input = messages
    raise error from problem


def written(ledger: Ledger, status: str) -> Flow[bytes | StateTooLargeError]:
    """The state as a blob within the soft limits, after one cut if necessary. The newest turn stays.

    If a cut does not help either, the state has not changed, and the error is returned.
    """
    try:
        return ledger.encode(status)
    except StateTooLargeError as exc:
        problem = exc
    # The newest closed turn is the reply that was just paid for: it is never cut to write it.
    least = 0 if ledger.state.open is not None else 1
    if (yield from shrink.cut_to_limits(ledger, problem, _within(ledger), least=least)):
        return ledger.encode(status)
    return problem


def _within(ledger: Ledger) -> Callable[[ConversationState], bool]:
    return lambda state: ledger.room.soft_problem(state) is None


def _facts_bytes(ledger: Ledger) -> int:
    """The most bytes that the turn will record beside its messages."""
    options = ledger.options
    if not (options.metadata or options.settings):
        return 0
    stored = {name: value for name, value in options.settings.items() if name not in NOT_STORED}
    return 6 * sum(len(str(known)) for known in (options.metadata, stored) if known)


_DIGIT_BITS: Final = 4
_DIGIT: Final = 15
"""`Meta.warned` has four bits for each limit: the number of marks that were warned of."""

_SHRINK: Final = "a compactor would shrink it; without one, old turns are dropped at the limit"
_FILLED: Final[Mapping[Filled, tuple[str, str]]] = {
    "tokens": ("the model's {} tokens", "a compactor would shrink it"),
    "blob_bytes": ("the state's max_blob_bytes={}", _SHRINK),
    "decoded_bytes": ("the state's max_decoded_bytes={}", _SHRINK),
    "entries": ("the state's max_entries={}", _SHRINK),
}


def context_warnings(ledger: Ledger, state: ConversationState) -> list[ContextWarning]:
    """Warn once for each mark that the history has passed, and return the events.

    The state counts the marks that were warned of. If the history shrinks below a mark, the mark counts as
    new again. The warnings and the new state are in the books.
    """
    marks, meta = ledger.options.context_marks, state.meta
    told = meta.warned
    if not told and _is_far_below(ledger, state, marks[0]):
        return []
    found: list[ContextWarning] = []
    for at, (of, used, limit) in enumerate(_fillings(ledger, state)):
        if limit is None:
            continue
        passed = min(_DIGIT, sum(used >= mark * limit for mark in marks))
        known = meta.warned >> _DIGIT_BITS * at & _DIGIT
        told += passed - known << _DIGIT_BITS * at
        if passed > known:
            unit, advice = _FILLED[of]
            ledger.warn(
                "context_mark",
                f"the history takes about {used} of {unit.format(limit)}, which is beyond the mark of "
                f"{marks[passed - 1]:.0%}; {advice}",
            )
            level: Literal["approaching", "at_limit"] = "at_limit" if passed == len(marks) else "approaching"
            count = counts_of(meta, state.open)["message_count"]
            found.append(ContextWarning(level, used, limit, of, count, **ledger.event_ids))
    if told != meta.warned:
        ledger.state = replace(state, meta=msgspec.structs.replace(meta, warned=told))
    return found


def _is_far_below(ledger: Ledger, state: ConversationState, mark: float) -> bool:
    """True if numbers that are cheap to get show that no mark is reached."""
    soft, window = ledger.room.soft, ledger.context_window
    if state.inbox or (window and state.meta.tokens >= mark * window):
        return False
    size = entries = 0
    for segment in state.segments:
        size += segment.raw_len + segment.added
        entries += segment.entries
    least = min(soft.max_blob_bytes, soft.max_decoded_bytes)
    return size < mark * least and entries < mark * soft.max_entries


def _fillings(ledger: Ledger, state: ConversationState) -> tuple[tuple[Filled, int, int | None], ...]:
    """For each limit of the history: its name, the size that is used, and the limit."""
    size, soft = stored_size(state, ledger.plan.codec), ledger.room.soft
    return (
        ("tokens", state.meta.tokens, ledger.context_window),
        ("blob_bytes", size.blob, soft.max_blob_bytes),
        ("decoded_bytes", size.decoded, soft.max_decoded_bytes),
        ("entries", size.entries, soft.max_entries),
    )
