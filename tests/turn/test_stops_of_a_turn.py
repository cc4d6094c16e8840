"""docs/architecture.md walks one turn: its stops exist, and a turn enters them in that order."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from goaitools_py import Chat, tool
from goaitools_py.testing import Calls, ScriptedBackend

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
STOP = re.compile(r"^\| (\d+) \| `([\w/]+)\.py` \| `([\w.]+)` \|", re.MULTILINE)
STOPS = STOP.findall(PAGE.read_text(encoding="utf-8"))
MOST = 12


@tool
def look(place: str) -> str:
    """Look at a place."""
    return place


def code_of(file: str, name: str) -> CodeType:
    """The code of a function, which is named as in `file`, perhaps with its class."""
    found: Any = importlib.import_module(f"goaitools_py.{file.replace('/', '.')}")
    for part in name.split("."):
        found = getattr(found, part)
    code: CodeType = inspect.unwrap(found).__code__
    return code


def first_entries(run: Callable[[], object]) -> list[CodeType]:
    """The functions that are entered, each at its first time."""
    seen: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            seen.setdefault(frame.f_code)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(seen)


def test_a_turn_makes_the_stops_of_the_page() -> None:
    """A turn with one tool call, on a conversation that has begun before."""
    backend = ScriptedBackend("Hello.", Calls([("look", {"place": "x"})]), "Done.")
    chat = Chat(backend, tools=[look])
    state = chat.chat_with_state(None, user="Hi.").state
    stops = {code_of(file, name): name for _, file, name in STOPS}

    entered = first_entries(lambda: chat.chat_with_state(state, user="Look at x."))

    assert [int(number) for number, _, _ in STOPS] == list(range(1, len(STOPS) + 1))
    assert 10 <= len(STOPS) <= MOST
    assert [stops[code] for code in entered if code in stops] == list(stops.values())
