"""The report of a turn to its caller: warnings, the tool log, actions, a compaction, and the costs.

Owns: these lists, the part of them that is undone together with a change of the history, and the account with
its price list. Must never know: a state (the ledger books there, too), or who reads the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final

from ..base.values import Value
from ..open_turn.meter import BelowZeroError, checked_count
from ..tools import Action
from ..types.errors import StateError
from ..types.messages import Message, ToolRecord, Usage
from ..types.options import Resolved
from ..types.result import CompactionReport, RecallReport
from ..types.tokens import TokenCounter
from ..types.turn_warnings import TurnWarning, WarningCode
from ..types.usage import Bill, Charge, genai_price, priced

__all__ = ["Account", "Recalled", "ReportBuilder", "ReportMark", "Spending", "WarningCounter"]

_LASTING: Final = frozenset({"price_unknown", "token_counter_failed", "tool_failed"})
"""Codes of warnings that stay when a change of the history is undone."""


class Recalled(Action, frozen=True):
    """A search of the tool ``recall``. ``data["turns"]``: the numbers of the turns that it found."""


class ReportMark(Value, frozen=True):
    """The part of the report at one instant that a step back restores."""

    warnings: tuple[TurnWarning, ...]
    compaction: CompactionReport | None


class ReportBuilder:
    """Collects the report of one turn.

    Attributes:
        warnings: The warnings, in order.
        compaction: The report of the compactions; None without a compaction.
        text: The text of the newest reply.
        request_ids: The provider's request ids, one for each model call that had one.
        request_id: The request id of the newest reply; "" without one.
        reply_seconds: The seconds that the newest reply took.
        actions: The actions that tools logged with ``ctx.log_action``.
        recall: The searches of the tool ``recall``; None without a search.
        discarded: The error of the given state, if a fresh state was begun in its place.
    """

    def __init__(self) -> None:
        self.warnings: list[TurnWarning] = []
        self.compaction: CompactionReport | None = None
        self.text = ""
        self.request_ids: list[str] = []
        self.request_id = ""
        self.reply_seconds = 0.0
        self.actions: list[Any] = []
        self.recall: RecallReport | None = None
        self.discarded: StateError | None = None
        self._records: dict[tuple[int, int], ToolRecord] = {}

    def warn(self, code: WarningCode, message: str) -> None:
        """Add a warning."""
        self.warnings.append(TurnWarning(code, message))

    def warn_once(self, code: WarningCode, message: str) -> None:
        """Add a warning, unless there is one with this code."""
        if not any(warning.code == code for warning in self.warnings):
            self.warn(code, message)

    def record(self, index: int, record: ToolRecord) -> None:
        """Enter the result of the call with this index in its reply."""
        self._records[record.iteration, index] = record

    def act(self, actions: Iterable[Action]) -> None:
        """Enter the actions that a tool logged."""
        for action in actions:
            if not isinstance(action, Recalled):
                self.actions.append(action)
                continue
            before, found = self.recall or RecallReport(), tuple(action.data["turns"])
            self.recall = RecallReport(
                calls=before.calls + 1,
                hits=before.hits + bool(found),
                turns=(*before.turns, *(number for number in found if number not in before.turns)),
            )

    @property
    def tool_log(self) -> tuple[ToolRecord, ...]:
        """Every tool call so far, in the order of the calls, not of their ends."""
        return tuple(map(self._records.__getitem__, sorted(self._records)))

    def mark(self) -> ReportMark:
        """The report at this instant, for a later `go_back`."""
        return ReportMark(tuple(self.warnings), self.compaction)

    def go_back(self, mark: ReportMark) -> None:
        """Undo later entries. Warnings that do not depend on the history stay."""
        since = self.warnings[len(mark.warnings) :]
        self.warnings[:] = [*mark.warnings, *(one for one in since if one.code in _LASTING)]
        self.compaction = mark.compaction


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

    def __init__(self, options: Resolved, report: ReportBuilder) -> None:
        limits = options.limits
        asks_prices = limits is not None and limits.limits_cost
        self._report = report
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
        # Usage and bill in one frozen value: an error that is made at any line shows a bill that adds up.
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
        self._report.warn_once("price_unknown", f"what a model call cost is unknown: {why}")
        return None

    def knows_price(self, charge: Callable[[Usage], Charge]) -> bool:
        """True if the price list has a price for the model of a charge."""
        return self.prices is not None and self.prices(charge(_TRIAL)) is not None


class WarningCounter(Value, frozen=True):
    """The caller's token counter. If it raises, or returns a number below 0, it warns, and `meter` estimates
    the message."""

    counter: TokenCounter
    report: ReportBuilder

    def count(self, message: Message, /) -> int:
        """Count with the caller's counter. Its errors pass; a number below 0 raises ValueError."""
        try:
            return checked_count(self.counter, message)
        except Exception as exc:
            why = "gave a number below 0" if isinstance(exc, BelowZeroError) else type(exc).__name__
            self.report.warn_once(
                "token_counter_failed",
                f"token_counter failed ({why}): what it should have counted is estimated",
            )
            raise
