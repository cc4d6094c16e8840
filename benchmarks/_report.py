"""What a benchmark found, and how it is printed.

Owns: figures, their targets, the table. Must never know: how a figure was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Figure", "Report", "at_least", "at_most", "info", "number"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of a table.

    Attributes:
        name: What was measured.
        value: The number; its meaning is in `unit`.
        unit: Such as "x", "µs" or "%".
        target: The number to reach, None for a line that is only there to compare with.
        is_upper: True if `value` may be at most `target`, False if it must be at least.
        timed: True if another machine, or a busy one, gives another number.
        note: What else the reader should see beside it.
    """

    name: str
    value: float
    unit: str = ""
    target: float | None = None
    is_upper: bool = True
    timed: bool = True
    note: str = ""

    @property
    def ok(self) -> bool:
        """False if there is a target and the value misses it."""
        if self.target is None:
            return True
        return self.value <= self.target if self.is_upper else self.value >= self.target

    def as_json(self) -> dict[str, Any]:
        """The figure as plain values."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "target": self.target,
            "is_upper": self.is_upper,
            "timed": self.timed,
            "ok": self.ok,
            "note": self.note,
        }


def at_most(
    target: float, name: str, value: float, unit: str, *, timed: bool = True, note: str = ""
) -> Figure:
    """A figure that misses its target when it is larger."""
    return Figure(name=name, value=value, unit=unit, target=target, timed=timed, note=note)


def at_least(
    target: float, name: str, value: float, unit: str, *, timed: bool = True, note: str = ""
) -> Figure:
    """A figure that misses its target when it is smaller."""
    return Figure(name=name, value=value, unit=unit, target=target, is_upper=False, timed=timed, note=note)


def info(name: str, value: float, unit: str, *, timed: bool = True, note: str = "") -> Figure:
    """A figure without a target."""
    return Figure(name=name, value=value, unit=unit, timed=timed, note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one benchmark found. `method` says in a sentence how, so that a number can be argued with."""

    title: str
    method: str
    figures: Sequence[Figure]

    def table(self) -> str:
        """The report for a reader: a line per figure, the method under them."""
        width = max(len(figure.name) for figure in self.figures)
        lines = [self.title, *(f"  {_line(figure, width)}" for figure in self.figures), f"  ({self.method})"]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        figures = [figure.as_json() for figure in self.figures]
        return {"title": self.title, "method": self.method, "figures": figures}


def _line(figure: Figure, width: int) -> str:
    target = verdict = ""
    if figure.target is not None:
        target = f"{'<=' if figure.is_upper else '>='} {figure.target:g} {figure.unit}"
        verdict = "ok" if figure.ok else "MISSED"
    line = f"{figure.name:<{width}}  {number(figure.value):>9} {figure.unit:<9} {target:<16} {verdict:<6}"
    return f"{line}  {figure.note}".rstrip()


def number(value: float) -> str:
    """The number as a reader wants it: two places below 10, else one."""
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:,.1f}"
