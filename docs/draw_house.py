"""Draws `docs/architecture.svg` from the table of rooms in `tests/test_imports.py`.

    python docs/draw_house.py          # writes the picture; a test fails while it is not the table's

Owns: where each room of the package stands in the picture. Must never know: a rule of the table; it only
shows them.

A row of the table is one room. Its level is one more than the highest level of what it may
import, so every import points down. Columns are folders.
"""

from __future__ import annotations

import ast
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "test_imports.py"
PICTURE = ROOT / "docs" / "architecture.svg"

COLUMNS = (
    ("doors", ()),
    ("base/ types/", ("base", "types")),
    ("state/ seal/ stores/", ("state", "seal", "stores")),
    ("backends/ sim/", ("backends", "sim")),
    ("compaction/ tools/ mcp/ output/", ("compaction", "tools", "mcp", "output")),
    ("open_turn/ history/", ("open_turn", "history")),
    ("turn/ telemetry/", ("turn", "telemetry")),
    ("chat/ integrations/", ("chat", "integrations")),
    ("frontends/ serve/", ("frontends", "serve")),
    ("testing/ cli/", ("testing", "cli")),
)
"""The rooms of each column. What stands in none of them is a single file of the package's top."""

WIDTH, HEIGHT, GAP, MARGIN, HEAD = 176, 20, 6, 12, 34


def table() -> dict[str, list[str]]:
    """The table: a room, and the rooms that its files may import from."""
    for node in ast.parse(TABLE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOMS":
            return {name: row.split() for name, row in ast.literal_eval(node.value).items()}
    raise SystemExit(f"{TABLE} has no table named ROOMS")


def levels(rows: dict[str, list[str]]) -> dict[str, int]:
    """The level of each part; 0 imports nothing of the package."""

    @cache
    def level(part: str) -> int:
        return 1 + max((level(other) for other in rows[part]), default=-1)

    return {part: level(part) for part in rows}


def column_of(part: str) -> int:
    """The number of the column that a part stands in."""
    folder = part.partition(".")[0]
    return next((n for n, (_, folders) in enumerate(COLUMNS) if folder in folders), 0)


def drawn(rows: dict[str, list[str]]) -> str:
    """The picture as SVG. A box's tooltip names what the part imports."""
    heights = levels(rows)
    cells: dict[tuple[int, int], list[str]] = {}
    for part in sorted(rows):
        cells.setdefault((heights[part], column_of(part)), []).append(part)
    top = max(heights.values())
    width = 2 * MARGIN + len(COLUMNS) * (WIDTH + 2 * GAP)
    boxes: list[str] = []
    y = HEAD
    for level in range(top, -1, -1):
        tallest = max(len(cells.get((level, column), [])) for column in range(len(COLUMNS)))
        depth = tallest * (HEIGHT + GAP) + GAP
        if level % 2:
            boxes.append(f'<rect y="{y}" width="{width}" height="{depth}" fill="#f4f6f8"/>')
        for column in range(len(COLUMNS)):
            x = MARGIN + column * (WIDTH + 2 * GAP) + GAP
            for number, part in enumerate(cells.get((level, column), [])):
                boxes += _box(part, rows[part], x, y + GAP + number * (HEIGHT + GAP))
        y += depth
    middles = [MARGIN + n * (WIDTH + 2 * GAP) + GAP + WIDTH // 2 for n in range(len(COLUMNS))]
    heads = [
        f'<text x="{middle}" y="21" font-weight="bold">{name}</text>'
        for middle, (name, _) in zip(middles, COLUMNS, strict=True)
    ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + MARGIN}" '
        'font-family="sans-serif" font-size="12" text-anchor="middle">',
        "<title>The rooms of the package: a room imports only from rooms that stand in lower rows</title>",
        f'<rect width="{width}" height="{y + MARGIN}" fill="#ffffff"/>',
    ]
    return "\n".join([*lines, *heads, *boxes, "</svg>", ""])


def _box(part: str, imports: list[str], x: int, y: int) -> list[str]:
    told = escape(f"{part} imports {', '.join(imports) or 'nothing of the package'}")
    return [
        f'<g><title>{told}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4" '
        'fill="#e3ebf3" stroke="#4a5664"/>',
        f'<text x="{x + WIDTH // 2}" y="{y + 14}">{escape(part)}</text></g>',
    ]


if __name__ == "__main__":
    PICTURE.write_text(drawn(table()), encoding="utf-8")
