"""The figures of the package's layout stay within ceilings, which only fall.

Owns: what is counted, and how far it may go. Must never know: why a file is where it is.

A ceiling that has to rise needs its reason beside it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache

from .test_imports import PACKAGE, ROOMS, all_imports, room

TOP = 5
"""Files at the top: `__init__`, `__main__`, and three doors."""
FILES = 447
"""424 of them, 19 for the rules of hosts: the views of three provider APIs, and the simulated hosts,
`state.apart`, a closed history in parts, `history.message_places`, `turn.ending`, `kept.branches`."""
SHORT, SHORT_LINES = 10, 60
"""How many files may have fewer lines than that."""
ARROWS = 109
LEVELS = 11
DOORS = {"history": 22, "state": 16, "backends": 13}
"""Files of a room that other rooms import from. Every other room has at most `FEW_DOORS`. The 13th of
`backends` is `host_rules`: a turn learns the rules of a host, and does not know any provider API. The 16th of
`state` is `apart`: a kept conversation saves a head and its parts apart."""
FEW_DOORS = 12
CLASSES = 16
"""Names that more than one class has."""
NAMES = 23
"""Names that more than one file has, `__init__.py` not counted. Each provider API has `forms` and `view`."""
WORDS = 4
"""Vague words for each 1,000 sentences of docstrings: see `VAGUE`."""

TURN_FILES, TURN_ROOMS = 70, 9
"""Files, and rooms, that one ordinary turn enters."""
RETURNS = 8
"""How often a state goes back to a room that it had left, in one ordinary turn."""
TWINS = 29
"""Classes `AsyncX` beside a class `X` that is also written by hand, most of them protocols of stores. The
sync half of every other pair is made by `tests/make_sync.py`."""

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


def test_few_classes_are_written_in_both_colours() -> None:
    """A file that `tests/make_sync.py` makes says so in its first line."""
    by_hand = {
        node.name
        for path, tree in trees().items()
        if not (PACKAGE / path).read_text(encoding="utf-8").startswith("# generated from")
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    pairs = sorted(name for name in by_hand if name.startswith("Async") and name[5:] in by_hand)

    print(*pairs)
    assert len(pairs) <= TWINS


TURN = r"""
import os, sys
import goaitools_py
import msgspec
from goaitools_py import Chat

root = os.path.dirname(goaitools_py.__file__) + os.sep
chat, state = Chat("sim", system="Be kind."), None
for number in range(6):
    _, state = chat.chat_with_state(state, user=f"number {number}")
entered, holders = [], []


def holds(value, depth):
    if isinstance(value, bytes):
        return value == state
    if depth and isinstance(value, (tuple, list)):
        return len(value) < 50 and any(holds(one, depth - 1) for one in value)
    fields = value.__struct_fields__ if depth and isinstance(value, msgspec.Struct) else ()
    return any(holds(getattr(value, name, None), depth - 1) for name in fields)


def note(frame, event, argument):
    code = frame.f_code
    path = code.co_filename.removeprefix(root)
    if event != "call" or path == code.co_filename or path.startswith("sim"):
        return
    entered.append(path)
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if any(name != "self" and holds(frame.f_locals.get(name), 2) for name in given):
        holders.append(path.partition(os.sep)[0])


sys.setprofile(note)
chat.chat_with_state(state, user="and again")
sys.setprofile(None)
way = [one for at, one in enumerate(holders) if at == 0 or one != holders[at - 1]]
print(len(set(entered)), len({path.partition(os.sep)[0] for path in entered}))
print(sum(one in way[:at] for at, one in enumerate(way)))
"""


def test_a_turn_enters_few_files() -> None:
    """One ordinary turn, on a conversation of six turns with the simulator."""
    command = [sys.executable, "-c", TURN]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=PACKAGE.parent)
    assert ran.returncode == 0, ran.stderr
    files, rooms, returns = map(int, ran.stdout.split())

    print(f"{files} files in {rooms} rooms; the state returns {returns} times")
    assert files <= TURN_FILES
    assert rooms <= TURN_ROOMS
    assert returns <= RETURNS
