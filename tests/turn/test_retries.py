"""Whatever is asked of a provider is asked again by one rule: the same pauses, the same end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import ProviderRejectedError, ProviderUnavailableError
from goaitools_py.backends.base import BackendError
from goaitools_py.compaction import AskFailed, AskModel, Compactor, KeepRecentTurns, MessageLimit, Summarize
from goaitools_py.sim import Fault
from goaitools_py.testing import Raw, ScriptedBackend
from goaitools_py.turn import strategy_asks
from goaitools_py.types.errors import CompactionError

from ._reading import ANTHROPIC, RESPONSES

SUMMARY = Compactor(MessageLimit(1), Summarize(keep_turns=1))
COUNT = Raw.body(b'{"input_tokens": 7, "object": "response.input_tokens"}')

ASKS: dict[str, tuple[Callable[[Any, bytes], Any], Any]] = {
    "a turn": (lambda chat, state: chat.chat_with_state(state, user="Four."), "Yes."),
    "a summary": (lambda chat, state: chat.compact_state(state, SUMMARY), "A summary."),
    "a count": (lambda chat, state: chat._call("count_tokens", state, user="Four."), COUNT),
}
"""What is asked, and an answer to it."""


def fails(status: int, **headers: str) -> BackendError:
    """An error answer."""
    return BackendError("no", status=status, headers=headers, body=b"{}")


def said(chat: Any) -> bytes:
    state: bytes = chat.run_turns(None, [word * 60 for word in ("One. ", "Two. ", "Three. ")]).state
    return state


@pytest.fixture
def backend(wire: str) -> ScriptedBackend:
    """It has answered three times."""
    return ScriptedBackend("Yes.", "Yes.", "Yes.", wire=wire, max_retries=2)


@pytest.mark.parametrize("wire", [RESPONSES, ANTHROPIC])
def test_all_requests_pause_alike(face: Any, backend: ScriptedBackend, clock: Any) -> None:
    """A conversation has its own pauses, whatever is asked for: half a second at first, then a whole one."""
    chat = face.chat(backend)
    state = said(chat)
    pauses: list[list[float]] = []

    for ask, answer in ASKS.values():
        backend.then(fails(503), fails(529), answer)
        ask(chat, state)
        pauses.append(clock.naps[:])
        clock.naps.clear()

    assert pauses == [pauses[0]] * len(ASKS)
    assert [0.375 <= pauses[0][0] <= 0.5, 0.75 <= pauses[0][1] <= 1.0, len(pauses[0])] == [True, True, 2]


@pytest.mark.parametrize(("status", "tries"), [(503, 3), (404, 1)])
@pytest.mark.parametrize("asked", ASKS)
@pytest.mark.parametrize("wire", [RESPONSES, ANTHROPIC])
def test_all_requests_end_alike(
    face: Any, backend: ScriptedBackend, clock: Any, asked: str, status: int, tries: int
) -> None:
    """After `max_retries` further tries, or at once if the error does not pass: the next answer is left."""
    chat = face.chat(backend)
    state = said(chat)
    ask, answer = ASKS[asked]
    backend.then(*[fails(status) for _ in range(tries)], answer)

    with pytest.raises((ProviderUnavailableError, ProviderRejectedError, CompactionError)) as caught:
        ask(chat, state)

    assert len(clock.naps) == tries - 1
    assert getattr(caught.value, "status_code", status) == status
    ask(chat, state)


@pytest.mark.parametrize(("seconds", "is_awaited"), [(15, True), (40, False)])
def test_a_turn_waits_longer_than_a_summary(
    face: Any, sim: Any, clock: Any, seconds: int, is_awaited: bool
) -> None:
    """The conversation can do without the summary, so a long pause that the provider asks for is not made."""
    chat = face.on(sim, max_retries=1)
    state = said(chat)
    busy = Fault.error(503, "busy", headers=(("retry-after", str(seconds)),))

    sim.push(busy)
    ASKS["a turn"][0](chat, state)
    sim.push(busy)
    if is_awaited:
        ASKS["a summary"][0](chat, state)
    else:
        with pytest.raises(CompactionError):
            ASKS["a summary"][0](chat, state)

    assert clock.naps == [float(seconds)] * (2 if is_awaited else 1)


@pytest.mark.parametrize(("seconds", "is_awaited"), [(60, True), (61, False)])
def test_a_provider_may_ask_for_a_minute(
    face: Any, sim: Any, clock: Any, seconds: int, is_awaited: bool
) -> None:
    """And for no more: then the error says how long it asked to wait."""
    chat = face.on(sim, max_retries=1)
    state = said(chat)
    sim.push(Fault.error(503, "busy", headers=(("retry-after", str(seconds)),)))

    if is_awaited:
        chat.chat_with_state(state, user="Hello.", timeout=None)
        assert clock.naps == [60.0]
        return
    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat_with_state(state, user="Hello.", timeout=None)
    assert (caught.value.retry_after, clock.naps) == (61.0, [])


@pytest.mark.parametrize(("timeout", "is_awaited"), [(5.0, False), (5.5, True)])
def test_no_pause_lasts_as_long_as_the_turn_may(
    face: Any, sim: Any, clock: Any, timeout: float, is_awaited: bool
) -> None:
    """Behind it no time would be left for the request."""
    chat = face.on(sim, max_retries=1)
    state = said(chat)
    sim.push(Fault.error(503, "busy", headers=(("retry-after", "5"),)))

    if is_awaited:
        chat.chat_with_state(state, user="Hello.", timeout=timeout)
        assert clock.naps == [5.0]
        return
    with pytest.raises(ProviderUnavailableError):
        chat.chat_with_state(state, user="Hello.", timeout=timeout)
    assert clock.naps == []


def test_an_answer_that_is_too_large_is_told_to_the_strategy(
    face: Any, sim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any other answer that is none: it may go on without, and the conversation is compacted."""
    chat = face.on(sim)
    state = said(chat)
    told: list[AskFailed] = []

    class Asking:
        needs_model = True

        def __call__(self, request: Any) -> Any:
            try:
                yield AskModel(turns=request.turns, instruction="Say it in one word.")
            except AskFailed as exc:
                told.append(exc)
            return KeepRecentTurns(1)(request)

    monkeypatch.setattr(strategy_asks, "MAX_ANSWER_BYTES", 10)
    report = chat.compact_state(state, Compactor(MessageLimit(1), Asking()))

    assert report.outcome == "compacted"
    assert [str(exc) for exc in told] == ["the model gave no answer (protocol)"]
