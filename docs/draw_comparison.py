"""Draws `docs/behaviour.svg` from the counted table of `docs/behaviour.md`.

    python docs/draw_comparison.py     # writes the picture; a test fails while it is not the table's

Owns: the marks and colours of the cells. Must never know: a figure; `benchmarks/behaviour.py` counts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PAGE: Final = HERE / "behaviour.md"
PICTURE: Final = HERE / "behaviour.svg"
LEFT, WIDTH, HEIGHT, TOP = 320, 175, 30, 62

STYLE: Final = """
text { fill: #1f2328 } .ground { fill: #ffffff } .band { fill: #f6f8fa } .quiet { fill: #59636e }
.planned { fill: #1a7f37 } .other { fill: #bf8700 } .stuck { fill: #cf222e }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .ground { fill: #0d1117 } .band { fill: #151b23 } .quiet { fill: #9198a1 }
.planned { fill: #3fb950 } .other { fill: #d29922 } .stuck { fill: #f85149 } }
"""
MARKS: Final = {
    "planned": "as planned",
    "other": "something else happened",
    "stuck": "and the next message fails, too",
}


def table() -> tuple[list[str], dict[str, list[str]]]:
    """The libraries, and the cells of each mishap."""
    measured = PAGE.read_text(encoding="utf-8").partition("<!-- measured: begin -->")[2]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in measured.splitlines()
        if line.startswith("|")
    ]
    return [name for name in head if name], {row[0]: row[1:] for row in rows if "/" in row[1]}


def said(cell: str) -> str:
    """What a cell says beside its counts, shorter."""
    text = re.sub(r"\(`.*?`\)|;.*|\*\*", "", cell.partition(": ")[2]).strip()
    return text.removesuffix(", stuck").replace("tool ran", "tool").replace("times", "×").replace(" ×", "×")


def mark(cell: str) -> str:
    """The mark of a cell."""
    return "stuck" if "**stuck**" in cell else "planned" if ": as planned" in cell else "other"


def shape(kind: str, x: float, y: float) -> str:
    """A mark that differs by its form, too."""
    if kind == "planned":
        return f'<circle class="{kind}" cx="{x}" cy="{y}" r="6"/>'
    if kind == "stuck":
        return f'<rect class="{kind}" x="{x - 6}" y="{y - 6}" width="12" height="12"/>'
    return f'<path class="{kind}" d="M{x} {y - 7}l7 7l-7 7l-7 -7z"/>'


def lines(text: str) -> list[str]:
    """One line, or two."""
    if len(text) <= 24:
        return [text]
    at = text.rfind(", ", 0, 27)
    return [text] if at < 0 else [text[: at + 1], text[at + 2 :]]


def pieces() -> Iterator[str]:
    """The picture, piece by piece."""
    libraries, mishaps = table()
    width, height = LEFT + WIDTH * len(libraries) + 10, TOP + HEIGHT * len(mishaps) + 76
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, '
        f'sans-serif" font-size="13" role="img" aria-labelledby="title">'
    )
    yield f'<title id="title">What happens after {len(mishaps)} mishaps, with each library</title>'
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="ground" width="{width}" height="{height}"/>'
    for at, name in enumerate(libraries):
        yield f'<text x="{LEFT + WIDTH * at + 2}" y="{TOP - 32}" font-weight="600">{escape(name)}</text>'
        planned = sum(mark(cells[at]) == "planned" for cells in mishaps.values())
        yield f'<text class="quiet" x="{LEFT + WIDTH * at + 2}" y="{TOP - 14}">{planned} as planned</text>'
    for row, (name, cells) in enumerate(mishaps.items()):
        y = TOP + HEIGHT * row
        if row % 2 == 0:
            yield f'<rect class="band" x="0" y="{y}" width="{width}" height="{HEIGHT}"/>'
        label = re.sub(r" \(\d+ / \d+\)$", "", name)
        yield f'<text x="12" y="{y + 20}">{escape(label)}</text>'
        for at, cell in enumerate(cells):
            x = LEFT + WIDTH * at
            yield shape(mark(cell), x + 9, y + HEIGHT / 2)
            if mark(cell) == "planned":
                continue
            text = lines(said(cell))
            for number, line in enumerate(text):
                down = 18.5 if len(text) == 1 else 12.5 + 12 * number
                yield f'<text x="{x + 22}" y="{y + down}" font-size="10.5">{escape(line)}</text>'
    x, y = 18.0, TOP + HEIGHT * len(mishaps) + 28
    for kind, means in MARKS.items():
        yield shape(kind, x, y)
        yield f'<text x="{x + 14}" y="{y + 4.5}">{means}</text>'
        x += 40 + 7.2 * len(means)
    source = "Counted by benchmarks/behaviour.py. The page has the counts, the versions and the method."
    yield f'<text class="quiet" x="12" y="{y + 32}">{source}</text>'
    yield "</svg>\n"


def drawn() -> str:
    """The picture as SVG."""
    return "\n".join(pieces())


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
