"""Random conversations of a chat with a scripted provider: turns with tools that wait, fail, are answered.

Owns: the steps and the tools. Must never know: what must hold.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Chat,
    ChatResult,
    Compactor,
    KeepRecentTurns,
    ToolError,
    ToolReturn,
    TurnError,
    TurnLimit,
    event,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.turn.edges import sync_edge

__all__ = ["Clock", "random_talk", "talk_tools"]


class Clock:
    """The clock of the edge that runs tools. A tool moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        monkeypatch.setattr(sync_edge, "time", self)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def talk_tools(clock: Clock) -> list[Any]:
    """One that works, one that refuses, one that waits for an approval, one for somebody outside."""

    @tool
    def look(at: str, takes: int = 0) -> str:
        """Look around."""
        clock.ahead += takes
        return f"{at} is quiet"

    @tool
    def fail(at: str) -> str:
        """Fail."""
        raise ToolError(f"no way to {at}")

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    @tool(external=True)
    def clerk(question: str) -> str:
        """Ask the clerk."""
        raise AssertionError("an external tool was run")

    return [look, fail, pay, clerk]


CALLED = [("look", {"at": "a"}), ("look", {"at": "b", "takes": 2}), ("fail", {"at": "c"}), ("nothing", {})]
WAITS = [("pay", {"amount": 5}), ("clerk", {"question": "Who?"})]


def random_talk(r: random.Random, wire: str, tools: list[Any]) -> Iterator[tuple[bytes, ChatResult | None]]:
    """A conversation of random steps. Give the state after each, with the turn's result if it was completed.

    Turns with and without tools, turns that wait, that fail, that are answered or left, events, metadata,
    speakers, cuts with and without an archive.
    """
    backend = ScriptedBackend(wire=wire)
    down = BackendError("down", kind="unavailable")
    state: bytes | None = None
    with Chat(backend, tools=tools, tool_threads=False, on_pending="deny") as chat:
        for number in range(r.randrange(3, 9)):
            script: list[Any] = [
                Calls(r.sample(CALLED, r.randrange(1, 4))) for _ in range(r.choice([0, 0, 1, 2]))
            ]
            end = r.choice(["say", "say", "say", "wait", "fail"])
            script.append({"say": f"Reply {number}.", "wait": Calls(r.sample(WAITS, 2)), "fail": down}[end])
            backend.then(*script)
            said = user(f"Message {number}.", speaker=r.choice([None, "Ada"]))
            context = r.choice([None, f"Hour {number}."])
            result: ChatResult | None = None
            facts = {"n": str(number)}
            try:
                result = chat.chat_with_state(state, messages=[said], context=context, metadata=facts)
                state = result.state
            except TurnError as error:
                state = error.state
            yield state, result
            if result is not None and result.pending and r.random() < 0.6:
                backend.then("Answered.")
                answers: dict[str, Any] = {
                    one.id: ToolReturn("Tom") for one in result.pending if one.name == "clerk"
                }
                answers |= {one.id: Approve() for one in result.pending if one.name == "pay"}
                state = chat.resume(state, answers).state
                yield state, None
            if r.random() < 0.3:
                state = chat.append_to_state(state, event(f"Event {number}.", topic=r.choice([None, "t"])))
                yield state, None
            if r.random() < 0.2:
                cut = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=r.random() < 0.5)
                state = chat.compact_state(state, cut).state
                yield state, None
