"""The figures of the package's layout stay within ceilings, which only fall.

Owns: what is counted, and how far it may go. Must never know: why a file is where it is.

A ceiling that has to rise needs its reason beside it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from .test_imports import PACKAGE, ROOMS, all_imports, room

TOP = 5
"""Files at the top: `__init__`, `__main__`, and three doors."""
FILES = 557
SHORT, SHORT_LINES = 63, 60
"""How many files may have fewer lines than that."""
ARROWS = 112
LEVELS = 11
DOORS = {"history": 34, "state": 21, "types": 17, "base": 16, "backends": 15}
"""Files of a room that other rooms import from. Every other room has at most `FEW_DOORS`."""
FEW_DOORS = 12
CLASSES = 53
"""Names that more than one class has."""
NAMES = 66
"""Names that more than one file has, `__init__.py` not counted."""
WORDS = 5
"""Vague words for each 1,000 sentences of docstrings: see `VAGUE`."""

VAGUE = re.compile(r"\b(?:whose|nobody|none|such|what|that of|those of)\b")
NOT_COUNTED = re.compile(r"\bNone\b|[Ss]uch as")
SENTENCE = re.compile(r"(?<=[.:;!?])\s+")


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax trees of the package, by path."""
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def docstrings() -> Iterator[str]:
    """Every docstring, with single spaces."""
    for tree in trees().values():
        for node in ast.walk(tree):
            has_one = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            if has_one and (text := ast.get_docstring(node, clean=False)):
                yield " ".join(text.split())


def twice(names: Iterator[str]) -> list[str]:
    """The names that come more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def test_few_files_lie_at_the_top() -> None:
    """All others stand in a room."""
    assert len(list(PACKAGE.glob("*.py"))) <= TOP


def test_files_are_worth_opening() -> None:
    """They are not too many, and few are short."""
    short = [
        path
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py" and len(path.read_text(encoding="utf-8").splitlines()) < SHORT_LINES
    ]

    assert len(trees()) <= FILES
    assert len(short) <= SHORT


def test_rooms_know_few_others() -> None:
    """The table of rooms has few entries, and its longest way down is short."""
    rows = {name: row.split() for name, row in ROOMS.items()}

    def level(name: str) -> int:
        return 1 + max(map(level, rows[name]), default=0)

    assert sum(map(len, rows.values())) <= ARROWS
    assert max(map(level, rows)) <= LEVELS


def test_a_room_has_few_doors() -> None:
    """Other rooms import from few of its files."""
    doors: dict[str, set[str]] = {}
    for found in all_imports(with_types=True):
        if room(found.source) != room(found.target):
            doors.setdefault(room(found.target), set()).add(found.target)

    assert {
        name: len(files) for name, files in doors.items() if len(files) > DOORS.get(name, FEW_DOORS)
    } == {}


def test_names_mean_one_thing() -> None:
    """Few classes share a name, and few files do."""
    classes = (node.name for tree in trees().values() for node in tree.body if isinstance(node, ast.ClassDef))
    files = (path.rpartition("/")[2] for path in trees() if not path.endswith("__init__.py"))

    assert len(twice(classes)) <= CLASSES
    assert len(twice(files)) <= NAMES


def test_docstrings_are_plain() -> None:
    """Vague words are few: a sentence names what it speaks of."""
    sentences = vague = 0
    for text in docstrings():
        sentences += len(SENTENCE.split(text))
        vague += len(VAGUE.findall(NOT_COUNTED.sub("", text).lower()))

    print(f"{vague} vague words in {sentences} sentences")
    assert 1000 * vague <= WORDS * sentences
