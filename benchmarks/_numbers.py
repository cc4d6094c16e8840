"""Figures of several runs as a Markdown table, and that table in a page.

Owns: the rows, the ranges, and the lines between which the page has them. Must never know: how a figure was
measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from _report import Figure, Report, number

__all__ = ["markdown", "put_into"]

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
