"""A dot plot as SVG: rows of policies, a dot for each price list.

Owns: geometry, colours, text. Must never know: where the numbers come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["dot_plot"]

_COLOURS = ("#b5442e", "#2f6f9f", "#5b7f3a", "#7a5aa0")
_ROW, _LEFT, _WIDTH, _TOP, _RIGHT = 26, 270, 520, 62, 48
_STYLE = "font-family='system-ui,sans-serif' fill='#333'"


def dot_plot(
    title: str,
    unit: str,
    panels: Sequence[tuple[str, Mapping[str, Mapping[str, float]]]],
    most: float,
    strong: str,
) -> str:
    """Panels under each other; each maps rows to the values of its series.

    Values beyond `most` stand at the edge, with their number. A line marks 100; the first series' numbers
    are written out on the right. The row `strong` is the one to look at.
    """
    drawn: list[str] = []
    at = _TOP
    for name, rows in panels:
        drawn += _panel(name, rows, at, most, strong)
        at += _ROW * len(rows) + 74
    series = list(next(iter(panels[0][1].values())))
    width, height = _LEFT + _WIDTH + _RIGHT, at
    head = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' "
        f"height='{height}' role='img' aria-label='{escape(title)}'>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
        f"<text x='16' y='24' font-size='16' font-weight='600' {_STYLE}>{escape(title)}</text>",
        *_legend(series),
    ]
    axis = (
        f"<text x='{_LEFT + _WIDTH / 2}' y='{at - 8}' font-size='12' text-anchor='middle' {_STYLE}>"
        f"{escape(unit)}</text>"
    )
    return "\n".join([*head, *drawn, axis, "</svg>", ""])


def _legend(series: Sequence[str]) -> list[str]:
    found = []
    x = 16
    for name, colour in zip(series, _COLOURS, strict=False):
        found.append(f"<circle cx='{x + 5}' cy='42' r='5' fill='{colour}'/>")
        found.append(f"<text x='{x + 15}' y='46' font-size='12' {_STYLE}>{escape(name)}</text>")
        x += 36 + 7 * len(name)
    return found


def _panel(
    name: str, rows: Mapping[str, Mapping[str, float]], top: int, most: float, strong: str
) -> list[str]:
    bottom = top + 26 + _ROW * len(rows)
    found = [f"<text x='16' y='{top + 14}' font-size='13' font-weight='600' {_STYLE}>{escape(name)}</text>"]
    for tick in range(0, int(most) + 1, 25):
        x = _x(tick, most)
        ink = "#888" if tick == 100 else "#e4e4e4"
        found.append(f"<line x1='{x}' x2='{x}' y1='{top + 22}' y2='{bottom}' stroke='{ink}'/>")
        found.append(
            f"<text x='{x}' y='{bottom + 14}' font-size='11' text-anchor='middle' {_STYLE}>{tick} %</text>"
        )
    for number, (row, values) in enumerate(rows.items()):
        y = top + 26 + _ROW * number + _ROW // 2
        found.append(
            f"<text x='{_LEFT - 12}' y='{y + 4}' font-size='12' text-anchor='end' "
            f"font-weight='{700 if row == strong else 400}' {_STYLE}>"
            f"{escape(row)}</text>"
        )
        for value, colour in reversed(list(zip(values.values(), _COLOURS, strict=False))):
            found.append(
                f"<circle cx='{_x(value, most)}' cy='{y}' r='5' fill='{colour}' fill-opacity='.85'/>"
            )
        first = next(iter(values.values()))
        found.append(
            f"<text x='{_LEFT + _WIDTH + 36}' y='{y + 4}' font-size='12' text-anchor='end' "
            f"fill='{_COLOURS[0]}' font-family='system-ui,sans-serif'>{first:.0f}</text>"
        )
    return found


def _x(value: float, most: float) -> float:
    return round(_LEFT + _WIDTH * min(value, most) / most, 1)
