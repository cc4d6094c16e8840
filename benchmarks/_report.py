"""The figures of a benchmark: how one run is printed, and how several runs become a table in a page.

Owns: figures, their targets, the tables, and the lines between which a page has one. Must never know: how a
figure was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Figure", "Report", "at_least", "at_most", "info", "markdown", "number", "put_into"]


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
        width = max((len(figure.name) for figure in self.figures), default=0)
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


BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"


def markdown(runs: Sequence[Mapping[str, Report]]) -> str:
    """Write a table of the figures: the lowest and the highest value of all runs, and the aim.

    Args:
        runs: The reports of each run by benchmark; the figures of all runs have the same names.
    """
    lines = ["| what | measured | aim |", "|---|---|---|"]
    for name, report in runs[0].items():
        for at, figure in enumerate(report.figures):
            values = [run[name].figures[at].value for run in runs]
            lines.append(f"| {figure.name.strip()} | {_range(values, figure.unit)} | {_aim(figure)} |")
    return "\n".join(lines)


def _range(values: Sequence[float], unit: str) -> str:
    low, high = number(min(values)), number(max(values))
    return f"{low if low == high else f'{low} to {high}'} {unit}".rstrip()


def _aim(figure: Figure) -> str:
    if figure.target is None:
        return ""
    return f"{'at most' if figure.is_upper else 'at least'} {figure.target:g} {figure.unit}".rstrip()


def put_into(page: Path, table: str) -> None:
    """Replace the table of a page, which stands between the two marks.

    Raises:
        ValueError: The page does not have both marks, each once and in order.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in after or END in after:
        raise ValueError(f"{page} must have one line {BEGIN} and behind it one line {END}")
    page.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")
