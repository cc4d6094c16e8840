"""What a turn has used of its limits, over all the processes that worked on it.

Owns: which limit of a turn is reached, and how many calls may still start. Must never know: what a turn does
about it; or a conversation's limits, which are checked before anything is paid for.
"""

from __future__ import annotations

from decimal import Decimal

from ..errors import BudgetExceededError
from ..prices import total
from ..state.records import OpenTurn
from . import journal
from .ledger import Ledger

__all__ = ["calls_left", "reached"]


def reached(ledger: Ledger) -> str | None:
    """Which limit of the turn is reached, in words; None if none is.

    Raises `BudgetExceededError` where costs are limited and not known.
    """
    options, before = ledger.options, _before(ledger)
    if len(before.iterations) + ledger.iteration >= options.max_iterations:
        return f"max_iterations={options.max_iterations} model calls were made"
    limits = options.limits
    if limits is None:
        return None
    tokens = ledger.usage.total_tokens + sum(one.usage.total_tokens for one in before.iterations)
    if limits.max_tokens is not None and tokens >= limits.max_tokens:
        return f"max_tokens={limits.max_tokens} of this turn are spent"
    if limits.max_cost_usd is not None and _cost(ledger, before) >= limits.max_cost_usd:
        return f"max_cost_usd={limits.max_cost_usd} of this turn are spent"
    if calls_left(ledger) == 0:
        return "max_tool_calls of this turn are spent"
    return None


def calls_left(ledger: Ledger) -> int | None:
    """How many calls may still start; None for any number."""
    limits = ledger.options.limits
    if limits is None or limits.max_tool_calls is None:
        return None
    # The log begins with what stood in the journal.
    started = sum(record.started is not None for record in ledger.tool_log)
    return max(0, limits.max_tool_calls - journal.calls_started(_before(ledger)) - started)


def _before(ledger: Ledger) -> OpenTurn:
    """The turn as an earlier process left it; an empty one if this one began it."""
    given = ledger.given
    return given.open if given is not None and given.open is not None else OpenTurn(at=0)


def _cost(ledger: Ledger, before: OpenTurn) -> Decimal:
    cost = total((ledger.bill.cost_usd, *(ledger.price_of_earlier(one.usage) for one in before.iterations)))
    if cost is None:
        raise ledger.error(
            BudgetExceededError,
            "the turn's cost is limited by max_cost_usd, and what a call of it cost is not known; it is in "
            "err.usage",
        )
    return cost
