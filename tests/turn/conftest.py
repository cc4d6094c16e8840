"""Shared by the tests of a turn: unary and streamed runs, a clock that is not waited for, counted tools."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import ChatResult
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.turn.edges import async_edge
from goaitools_py.turn.edges import async_wait as wait
from goaitools_py.turn.edges import sync_edge as edge

from ._reading import HISTORY


class Run:
    """Runs turns in one of two ways; what they leave behind is the same."""

    def __init__(self, is_streamed: bool) -> None:
        self.is_streamed = is_streamed

    def __call__(self, chat: Any, state: bytes | None = None, **fields: Any) -> ChatResult:
        if self.is_streamed:
            return chat.start(state, **fields).result()
        return chat.chat_with_state(state, **fields)


@pytest.fixture(params=["unary", "streamed"])
def run(request: pytest.FixtureRequest) -> Run:
    """Each test that asks for it runs its turns once with `chat_with_state` and once with `start`."""
    return Run(request.param == "streamed")


class SkippingClock:
    """The clock of both edges. A sleep moves it on at once; `naps` are the seconds that were asked for."""

    def __init__(self) -> None:
        self.naps: list[float] = []
        self._ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.advance(seconds)

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)


class _With:
    """A module with some of its names replaced, for whoever holds this instead of the module."""

    def __init__(self, module: Any, **names: Any) -> None:
        self.__dict__.update(names, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SkippingClock:
    """The edges' clock, under the test's control; no sleep of a turn takes time."""
    made = SkippingClock()
    monkeypatch.setattr(edge, "time", _With(time, monotonic=made.monotonic, sleep=made.sleep))
    monkeypatch.setattr(async_edge, "time", _With(time, monotonic=made.monotonic))
    monkeypatch.setattr(wait, "time", _With(time, monotonic=made.monotonic))
    monkeypatch.setattr(async_edge, "asyncio", _With(asyncio, sleep=made.sleep_async))
    return made


@pytest.fixture
def own(face: Any, sim: Any) -> Any:
    """Makes chats that take the simulator for the provider itself."""

    def make(**fields: Any) -> Any:
        backend = sim.backend(is_async=face.is_async)
        backend.dialect = dialect_of(sim.wire)
        return face.chat(backend, **fields)

    return make


class Scores:
    """A tool that counts its runs; what it answers is fixed."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self._lock = threading.Lock()

    def get_score(self, team: str) -> str:
        """Current score of one team."""
        with self._lock:
            self.runs.append(team)
        return f"{team} has 7 points"


@pytest.fixture
def scores() -> Scores:
    """A tool box with one tool, ``get_score(team)``, that counts its runs."""
    return Scores()


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for the simulator speaks all wires with it, unless it names some."""
    return str(request.param)


def texts_in(value: Any) -> list[str]:
    """The texts that a history's entry, or a part of one, has."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, list):
        return [text for part in value for text in texts_in(part)]
    if not isinstance(value, dict) or value.get("type") in ("thinking", "reasoning"):
        return []
    found = [value["text"]] if value.get("text") else []
    return found + texts_in(value.get("content")) + texts_in(value.get("output"))


@pytest.fixture
def texts_sent() -> Callable[..., list[str]]:
    """Reads the texts of one request to the simulator, the last one unless another is named."""

    def read(sim: Any, request: int = -1) -> list[str]:
        parsed = sim.requests[request].parsed
        return texts_in(parsed.get("system")) + texts_in(parsed[HISTORY[sim.wire]])

    return read
