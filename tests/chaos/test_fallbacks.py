"""A provider dies at each fault of the table: the conversation goes on with another one, effects once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py import (
    ChatResult,
    ProviderProtocolError,
    ProviderUnavailableError,
    RateLimitError,
    StreamInterruptedError,
    TurnError,
)
from goaitools_py.states import inspect_state, pending_calls, read_history, state_messages
from goaitools_py.testing import check_history

from ..conftest import ChatFace, Simulator
from ..turn._reading import ALL, texts, users
from ._house import ASKED, KNOWN, SHORT_SECONDS, House, Meeting
from ._table import meetings

DOWN = (ProviderUnavailableError, RateLimitError, StreamInterruptedError, ProviderProtocolError)


class TwoHouses(House):
    """A house whose chats fall back to a healthy simulator of the next provider API."""

    def __init__(self) -> None:
        super().__init__()
        self.beside = Simulator()

    def __enter__(self) -> TwoHouses:
        super().__enter__()
        self.beside.start()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__(*_)
        self.beside.stop()

    def chat(self, wire: str, colour: str, patience: str = "plenty") -> ChatFace:
        key = (wire, colour, "socket" if patience == "socket" else "plenty")
        if key not in self._chats:
            face, self.sim.wire, self.beside.wire = self._faces[colour], wire, other(wire)
            hasty = {"timeout": SHORT_SECONDS, "max_retries": 1} if key[2] == "socket" else {"max_retries": 2}
            backend = self.sim.backend(is_async=face.is_async, **hasty)
            fallback = self.beside.backend("other-model", is_async=face.is_async)
            face._open += [backend, fallback]
            self._chats[key] = face.chat(
                backend, tools=[self.get_score], fallbacks=[fallback], fallback_rest=0
            )
        return self._chats[key]


def other(wire: str) -> str:
    """The provider API that a chat falls back to."""
    return ALL[(ALL.index(wire) + 1) % len(ALL)]


@pytest.fixture(scope="module")
def houses() -> Iterator[TwoHouses]:
    with TwoHouses() as made:
        yield made


@pytest.mark.parametrize(
    ("row", "wire", "mode", "colour", "after_tool"),
    [pytest.param(*each, id=name) for name, *each in meetings()],
)
def test_the_conversation_goes_on_elsewhere(
    houses: TwoHouses, clock: Any, row: Any, wire: str, mode: Any, colour: str, after_tool: bool
) -> None:
    """A provider that is down is replaced. A refused request, a wrong key and the end of time are errors."""
    before = houses.known_ada(wire, colour)
    houses.beside.clear()
    meeting = Meeting(
        house=houses,
        clock=clock,
        row=row,
        wire=wire,
        colour=colour,
        mode=mode,
        after_tool=after_tool,
        before=before,
    )

    end = meeting.run()

    ends = row.ends[wire]
    is_down = isinstance(ends, type) and ends in DOWN and row.retryable[wire]
    meeting.check_tools()
    assert inspect_state(end.state).open_calls == 0
    assert pending_calls(end.state) == ()
    if not is_down:
        meeting.check_end(end)
        assert houses.beside.requests == []
        return
    assert isinstance(end, ChatResult)
    assert end.status == "complete"
    assert KNOWN in end.text
    assert len(houses.beside.requests) == 1
    assert houses.beside.problems == []
    assert len(houses.sim.requests) - after_tool == row.sends[wire]
    _check_state(end, wire, after_tool=after_tool, before=before)
    _check_telling(end, wire, after_tool=after_tool)
    _check_ways_on(houses, end, wire, colour)


def _check_state(end: ChatResult, wire: str, *, after_tool: bool, before: bytes) -> None:
    to = other(wire)
    assert inspect_state(end.state).wire == to
    assert check_history(to, state_messages(end.state)) == []
    assert users(end.state)[: len(users(before))] == users(before)
    assert users(end.state).count(ASKED) == 1
    assert texts(end.state, "tool") == ["Red has 7 points"] * after_tool


def _check_telling(end: ChatResult, wire: str, *, after_tool: bool) -> None:
    """Warnings, the turn's record and the list of models say so; usage and iterations count on."""
    turn = read_history(end.state).turns[-1]
    assert [warning.code for warning in end.warnings if warning.code == "fell_back"] == ["fell_back"]
    assert turn.facts["fallback"] == [f"{wire}:sim-model"]
    assert [one.model for one in turn.iterations] == ["sim-model"] * after_tool + ["other-model"]
    assert end.model.endswith("other-model")
    assert (end.iterations, len(end.tool_log)) == (1 + after_tool, after_tool)
    counted = sum(one.usage.output_tokens for one in turn.iterations)
    assert end.usage.output_tokens >= counted > 0


def _check_ways_on(houses: TwoHouses, end: ChatResult, wire: str, colour: str) -> None:
    """The next turn is the chat's own provider's again; a redelivery is answered once."""
    chat = houses.chat(wire, colour)
    again = chat.chat_with_state(end.state, user=ASKED, turn_id=ASKED)
    after = chat.chat_with_state(end.state, user="And who am I?")
    assert (again.duplicate, again.text) == (True, end.text)
    assert inspect_state(after.state).wire == wire
    assert KNOWN in after.text
    assert houses.sim.problems == []


def test_all_providers_are_down(houses: TwoHouses) -> None:
    """The last one's error has the state of the turn; `resume` goes on once one of them is back."""
    from goaitools_py.sim import Fault

    before = houses.known_ada("openai", "sync")
    houses.beside.clear()
    houses.sim.push(*[Fault.overloaded()] * 3)
    houses.beside.push(*[Fault.overloaded()] * 1)
    chat = houses.chat("openai", "sync")

    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat_with_state(before, user=ASKED)
    result = chat.resume(caught.value.state)

    assert isinstance(caught.value, TurnError)
    assert [warning.code for warning in caught.value.warnings].count("fell_back") == 1
    assert KNOWN in result.text
    assert users(result.state).count(ASKED) == 1
