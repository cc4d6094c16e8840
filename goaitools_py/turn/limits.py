"""The limits of a turn, over all the processes that worked on it.

Owns: the decision which limit of a turn is reached, and how many tool calls may still start. Must never know:
the turn's act at a limit; or the limits of a conversation, which are checked before the first model call.
"""

from __future__ import annotations

from decimal import Decimal

from ..open_turn import journal
from ..state.records import OpenTurn
from ..types.errors import BudgetExceededError
from ..types.messages import Usage
from ..types.usage import Charge, total
from .ledger import Ledger

__all__ = ["calls_left", "reached"]


def reached(ledger: Ledger) -> str | None:
    """Describe the limit that the turn has reached; None if it has reached no limit.

    Raises `BudgetExceededError` if costs are limited and the cost of a call is unknown.
    """
    options, before = ledger.options, _before(ledger)
    if ledger.iteration >= options.max_iterations:
        return f"max_iterations={options.max_iterations} model calls were made"
    limits = options.limits
    if limits is None:
        return None
    tokens = ledger.spending.account.usage.total_tokens + sum(
        one.usage.total_tokens for one in before.iterations
    )
    if limits.max_tokens is not None and tokens >= limits.max_tokens:
        return f"max_tokens={limits.max_tokens} of this turn are spent"
    if limits.max_cost_usd is not None and _cost(ledger, before) >= limits.max_cost_usd:
        return f"max_cost_usd={limits.max_cost_usd} of this turn are spent"
    if calls_left(ledger) == 0:
        return "max_tool_calls of this turn are spent"
    return None


def calls_left(ledger: Ledger) -> int | None:
    """Count the tool calls that may still start; None for no limit."""
    limits = ledger.options.limits
    if limits is None or limits.max_tool_calls is None:
        return None
    # The log begins with the calls of the journal.
    started = sum(record.started is not None for record in ledger.telling.tool_log)
    return max(0, limits.max_tool_calls - journal.calls_started(_before(ledger)) - started)


def _before(ledger: Ledger) -> OpenTurn:
    """Give the turn as an earlier process left it; an empty turn if this process began it."""
    given = ledger.first_given
    return given.open if given is not None and given.open is not None else OpenTurn(at=0)


def _cost(ledger: Ledger, before: OpenTurn) -> Decimal:
    earlier = (_price(ledger, one.usage) for one in before.iterations)
    cost = total((ledger.spending.account.bill.cost_usd, *earlier))
    if cost is None:
        raise ledger.error(
            BudgetExceededError,
            "max_cost_usd limits the cost of the turn, but the price of one of its calls is unknown; its "
            "tokens are in err.usage: pass prices=, or use max_tokens instead",
        )
    return cost


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
