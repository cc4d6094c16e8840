"""The report of a turn to its caller: warnings, the tool log, actions, the report of a compaction.

Owns: these lists, and the part of them that is undone together with a change of the history. Must never know:
a state, or who reads the report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..base.values import Value
from ..tools import Action
from ..types.errors import StateError
from ..types.messages import ToolRecord
from ..types.result import CompactionReport, RecallReport
from ..types.turn_warnings import TurnWarning, WarningCode

__all__ = ["Recalled", "Telling", "Told"]

_LASTING: Final = frozenset({"price_unknown", "token_counter_failed", "tool_failed"})
"""Codes of warnings that stay when a change of the history is undone."""


class Recalled(Action, frozen=True):
    """A search of the tool ``recall``. ``data["turns"]``: the numbers of the turns that it found."""


class Told(Value, frozen=True):
    """The part of the report at one instant that a step back restores."""

    warnings: tuple[TurnWarning, ...]
    report: CompactionReport | None


class Telling:
    """Collects the report of one turn.

    Attributes:
        warnings: The warnings, in order.
        report: The report of the compactions; None without a compaction.
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
        self.report: CompactionReport | None = None
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

    def told(self) -> Told:
        """The report at this instant, for a later `go_back`."""
        return Told(tuple(self.warnings), self.report)

    def go_back(self, told: Told) -> None:
        """Undo later entries. Warnings that do not depend on the history stay."""
        since = self.warnings[len(told.warnings) :]
        self.warnings[:] = [*told.warnings, *(one for one in since if one.code in _LASTING)]
        self.report = told.report
