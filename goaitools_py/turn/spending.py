"""The costs of a running turn: tokens, model calls, money.

Owns: the turn's account and its price list. Must never know: a state (the ledger books there, too), or when a
model is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from ..base.values import Value
from ..types.messages import Usage
from ..types.options import Resolved
from ..types.usage import Bill, Charge, genai_price, priced
from .telling import Telling

__all__ = ["Account", "Spending"]

_TRIAL: Usage = Usage(input_tokens=1_000, output_tokens=1_000, requests=1)
"""A sample usage. Its price shows whether a price list knows a model."""


class Account(Value, frozen=True):
    """The costs of a turn at one instant.

    Attributes:
        usage: The sum of all its model calls.
        bill: The calls one by one, each with its price if prices are kept.
    """

    usage: Usage
    bill: Bill


class Spending:
    """The account of one turn. Each booking replaces one frozen value.

    Attributes:
        account: The costs until now.
        prices: The caller's price list; without one, genai-prices if a limit on costs needs it; else None.
    """

    def __init__(self, options: Resolved, telling: Telling) -> None:
        limits = options.limits
        asks_prices = limits is not None and limits.limits_cost
        self._telling = telling
        self.prices = options.prices or (genai_price if asks_prices else None)
        self.account = Account(Usage(), Bill(booked=() if self.prices is not None else None))

    def book(self, charge: Charge, *, asked: str) -> Decimal | None:
        """Add one model call, and return its price; None if it is unknown, or if prices are not kept.

        `asked`: the model's name in the request.
        """
        bill, cost = self.account.bill, None
        charges, booked = (*bill.charges, (asked, charge)), bill.booked
        if self.prices is not None:
            cost = self.price_of(charge, asked)
            booked = (*(booked or ()), cost)
        self.account = Account(self.account.usage + charge.usage, Bill(charges=charges, booked=booked))
        return cost

    def price_of(self, charge: Charge, asked: str) -> Decimal | None:
        """The price of a call; None with a warning if it is unknown.

        A price list that fails does not fail the turn: the reply is paid for already.
        """
        if self.prices is None:
            return None
        try:
            found = priced(self.prices, charge, asked)
            if found is not None and found >= 0:
                return found
        except Exception as exc:
            why = f"prices raised {type(exc).__name__}"
        else:
            why = "prices does not know the model"
        self._telling.warn_once("price_unknown", f"what a model call cost is unknown: {why}")
        return None

    def knows_price(self, charge: Callable[[Usage], Charge]) -> bool:
        """True if the price list has a price for the model of a charge."""
        return self.prices is not None and self.prices(charge(_TRIAL)) is not None
