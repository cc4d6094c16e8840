"""What a turn does not use costs it nothing: its Python calls are those of benchmarks/README.md, and no call
is in a feature that is off.

The numbers are of Python 3.11; newer releases make fewer calls. A change that needs more changes the table.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import goaitools_py
from goaitools_py import AsyncChat, Chat, tool
from goaitools_py.testing import Calls, ScriptedBackend

HOME = Path(goaitools_py.__file__).parent
PAGE = HOME.parent / "benchmarks" / "README.md"
ROW = re.compile(r"^\| `(Chat|AsyncChat)`, (.*?) \| (\d+) \|$", re.MULTILINE)
TABLE = {(chat, turn): int(number) for chat, turn, number in ROW.findall(PAGE.read_text(encoding="utf-8"))}
MAY_BE_MORE = 1.02
HISTORY_TURNS = 12
OFF = (
    "output/",
    "chat/hand_off.py",
    "base/display.py",
    "backends/gate.py",
    "backends/gate.py",
    "open_turn/given_answers.py",
    "turn/answer.py",
    "testing/cassette.py",
    "serve/",
    "frontends/",
    "backends/read_entries.py",  # no entry is read that was just written or sent
    "types/token_rules.py",
)
"""What is off in these turns, by the beginnings of file names."""


@tool
def look(place: str) -> str:
    """Look at a place."""
    return place


TURNS: dict[str, tuple[list[Any], bool, dict[str, Any]]] = {
    "a plain turn": (["Hi."], False, {}),
    "streamed": (["Hi."], True, {}),
    "with one tool call": ([Calls([("look", {"place": "x"})]), "Done."], False, {"tools": [look]}),
}


class Counting:
    """Counts the functions that are called while it is on, by their files."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __call__(self, frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            self.calls[frame.f_code.co_filename] += 1


def chat_with_history(make: Callable[..., Any], how: dict[str, Any]) -> tuple[Any, ScriptedBackend, bytes]:
    """A chat, its script, and a state of a few turns."""
    backend = ScriptedBackend(*["Hello."] * HISTORY_TURNS)
    before = Chat(backend, tools=how.get("tools", ()))
    state = b""
    for number in range(HISTORY_TURNS):
        state = before.chat_with_state(state, user=f"Message {number}").state
    return make(backend, **how), backend, state


def counted(turn: str) -> Counter[str]:
    """The calls of a turn of a `Chat`, by file. The first such turn is not counted: it imports and caches."""
    steps, stream, how = TURNS[turn]
    chat, backend, state = chat_with_history(Chat, how)
    counting = Counting()
    for profile in (None, counting):
        backend.then(*steps)
        sys.setprofile(profile)
        try:
            if stream:
                for _ in chat.start(state, user="Now?"):
                    pass
            else:
                chat.chat_with_state(state, user="Now?")
        finally:
            sys.setprofile(None)
    return counting.calls


def counted_async(turn: str) -> Counter[str]:
    """The same of an `AsyncChat`."""
    steps, stream, how = TURNS[turn]
    chat, backend, state = chat_with_history(AsyncChat, {**how, "tool_threads": False})
    counting = Counting()

    async def run() -> None:
        for profile in (None, counting):
            backend.then(*steps)
            sys.setprofile(profile)
            try:
                await once()
            finally:
                sys.setprofile(None)

    async def once() -> None:
        if stream:
            async for _ in chat.start(state, user="Now?"):
                pass
        else:
            await chat.chat_with_state(state, user="Now?")

    asyncio.run(run())
    return counting.calls


@pytest.fixture(autouse=True)
def _no_garbage_of_other_tests() -> Iterator[None]:
    """Its finalizers would be counted as calls of the turn."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.skipif(
    sys.gettrace() is not None or sys.getprofile() is not None, reason="calls are traced already"
)
@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("chat", ["Chat", "AsyncChat"])
def test_what_is_not_used_costs_nothing(chat: str, turn: str) -> None:
    """No more calls than the page says, and none in a file of what is off."""
    calls = counted(turn) if chat == "Chat" else counted_async(turn)
    own = {name.removeprefix(f"{HOME}/"): count for name, count in calls.items()}

    assert {name: count for name, count in own.items() if name.startswith(OFF)} == {}
    print(f"{chat}, {turn}: {calls.total()}")
    assert calls.total() <= TABLE[chat, turn] * MAY_BE_MORE


def test_a_feature_that_is_on_is_seen() -> None:
    """So the list of files would show it."""
    counting = Counting()
    chat = Chat(ScriptedBackend("3", "3"))
    chat.chat(user="Count.", output_type=int)
    sys.setprofile(counting)
    try:
        chat.chat(user="Count.", output_type=int)
    finally:
        sys.setprofile(None)

    assert any(name.removeprefix(f"{HOME}/").startswith("output/") for name in counting.calls)
