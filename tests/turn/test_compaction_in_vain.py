"""A compactor that asks a model in vain: told each time, and not paid for in every turn."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Any

import pytest

from goaitools_py import CompactionError, Compactor, KeepRecentTurns, Summarize, TurnLimit, any_of, first_of
from goaitools_py.backends.base import BackendError
from goaitools_py.compaction import AskModel, CompactionRequest, ProviderCompaction
from goaitools_py.history.rewrite.backoff import GROWTH
from goaitools_py.state.state import load_state
from goaitools_py.states import inspect_state, read_history, rewind_state
from goaitools_py.testing import Calls, Raw, ScriptedBackend

TURNS = 30
SAID = "Something of some length is said here. " * 3
TRIGGER = TurnLimit(2)

REFUSED = {
    "openai": b'{"choices":[{"index":0,"finish_reason":"content_filter","message":{"role":"assistant",'
    b'"content":"I cannot."}}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}',
    "openai-responses": b'{"id":"r","status":"completed","output":[{"type":"message","id":"m","role":'
    b'"assistant","status":"completed","content":[{"type":"refusal","refusal":"I cannot."}]}],'
    b'"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}}',
    "anthropic": b'{"id":"m","type":"message","role":"assistant","model":"x","stop_reason":"refusal",'
    b'"content":[{"type":"text","text":"I cannot."}],"usage":{"input_tokens":9,"output_tokens":2}}',
}
FAILURES: dict[str, Any] = {
    "empty": lambda wire: " ",
    "refused": lambda wire: Raw.body(REFUSED[wire]),
    "too long": lambda wire: "A summary that is longer than all that was said. " * 500,
    "calls a tool": lambda wire: Calls([("look", {})]),
    "rejected": lambda wire: BackendError("no", status=400),
    "unreachable": lambda wire: BackendError("down"),
    "garbage": lambda wire: Raw.body(b"<html></html>"),
}


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
def wire(request: pytest.FixtureRequest) -> str:
    """Both the conversation's and the summariser's."""
    return str(request.param)


def raising(request: CompactionRequest) -> bool:
    raise LookupError("a secret")


def raises(request: CompactionRequest) -> Any:
    raise LookupError("a secret")


def asks_then_raises(request: CompactionRequest) -> Generator[Any, Any, Any]:
    yield AskModel(turns=request.turns[:1], instruction="First.")
    raise LookupError("a secret")


def talk(chat: Any, count: int, state: bytes | None = None, **fields: Any) -> list[Any]:
    """The results of so many turns, one after another."""
    results: list[Any] = []
    for number in range(count):
        results.append(chat.chat_with_state(state, user=f"{SAID}{number}", **fields))
        state = results[-1].state
    return results


def codes(result: Any) -> list[str]:
    return [warning.code for warning in result.warnings]


@pytest.mark.parametrize("kind", FAILURES)
def test_a_summariser_that_fails_is_told_each_time_and_asked_seldom(face: Any, wire: str, kind: str) -> None:
    """Each turn that wanted a summary has a warning; a question comes once it has grown by a quarter."""
    beside = ScriptedBackend(*[FAILURES[kind](wire)] * TURNS, wire=wire)
    chat = face.chat(
        ScriptedBackend(*["Noted."] * TURNS, wire=wire),
        compactor=Compactor(TRIGGER, Summarize(beside, keep_turns=1)),
    )
    asked: list[int] = []

    state, sizes = None, []
    for number in range(TURNS):
        before = len(beside.requests)
        result = chat.chat_with_state(state, user=f"{SAID}{number}")
        state = result.state
        assert codes(result) == (["compaction_failed"] if number > 1 else [])
        if len(beside.requests) > before:
            asked.append(number)
            sizes.append(load_state(state).history_bytes())

    assert asked[0] == 2
    assert 3 <= len(asked) <= 16
    assert all(later >= GROWTH * earlier * 0.9 for earlier, later in itertools.pairwise(sizes))
    assert len(read_history(state).turns) == TURNS


def test_the_wait_survives_a_reload_and_costs_nothing_before(face: Any, wire: str) -> None:
    """It is a number in the state, and only there after a failure; a useful summary takes it out again."""
    beside = ScriptedBackend(" ", "They said something.", wire=wire)
    chat = face.chat(ScriptedBackend(*["Noted."] * TURNS, wire=wire))
    summarise = Compactor(TRIGGER, Summarize(beside, keep_turns=1))
    before = talk(chat, 2)[-1]
    assert b"ask_failed" not in _meta(before.state)

    failed = chat.chat_with_state(before.state, user=SAID, compactor=summarise)
    again = face.chat(ScriptedBackend("Noted.", wire=wire), compactor=summarise)
    waits = again.chat_with_state(bytes(failed.state), user="Short.")

    assert b"ask_failed" in _meta(failed.state)
    assert len(beside.requests) == 1
    assert codes(waits) == ["compaction_failed"]
    assert "grown by 25%" in waits.warnings[0].message
    grown = talk(chat, 2, waits.state)[-1]
    rarely = Compactor(TurnLimit(3), Summarize(beside, keep_turns=1))
    done = chat.chat_with_state(grown.state, user="And now?", compactor=rarely)
    assert len(beside.requests) == 2
    assert done.compaction.outcome == "compacted"
    assert done.warnings == ()
    assert b"ask_failed" not in _meta(done.state)


def _meta(state: bytes) -> bytes:
    from goaitools_py.state import blob

    return bytes(blob.decode(state)[0].raw())


def test_who_asks_for_a_compaction_gets_one(face: Any, wire: str) -> None:
    """`compact_state` does not wait; a rewound conversation does."""
    beside = ScriptedBackend(" ", BackendError("no", status=400), wire=wire)
    chat = face.chat(ScriptedBackend(*["Noted."] * TURNS, wire=wire))
    summarise = Compactor(TRIGGER, Summarize(beside, keep_turns=1))
    state = talk(chat, 4)[-1].state
    state = chat.chat_with_state(state, user=SAID, compactor=summarise).state

    with pytest.raises(CompactionError):
        chat.compact_state(state, summarise)
    assert len(beside.requests) == 2
    result = chat.chat_with_state(rewind_state(state, 2), user=SAID, compactor=summarise)

    assert codes(result) == ["compaction_failed"]
    assert len(beside.requests) == 2


def test_a_compactor_that_takes_the_place_of_a_silent_model_is_told(face: Any, wire: str) -> None:
    """The cut is made, the missing summary is a warning, and the model is not asked in each turn."""
    beside = ScriptedBackend(*[" "] * TURNS, wire=wire)
    compactor = first_of(
        Compactor(TRIGGER, Summarize(beside, keep_turns=1)), Compactor(TRIGGER, KeepRecentTurns(2))
    )
    chat = face.chat(ScriptedBackend(*["Noted."] * TURNS, wire=wire), compactor=compactor)

    results = talk(chat, TURNS)

    told = [result for result in results if "compaction_failed" in codes(result)]
    assert told
    assert "Summarize" in told[0].warnings[0].message
    assert "empty" in told[0].warnings[0].message
    assert all(result.compaction.by == "KeepRecentTurns" for result in told)
    assert len(beside.requests) <= TURNS // 2


def test_a_provider_that_does_not_compact_is_not_asked_in_each_turn(face: Any) -> None:
    """The provider's own compaction is paid for too."""
    wire = "openai-responses"
    refuses = BackendError("no", status=400)
    main = ScriptedBackend(*["Noted."] * 2, wire=wire)
    chat = face.chat(main, compactor=Compactor(TRIGGER, ProviderCompaction(keep_turns=1, fallback=None)))
    state = talk(chat, 2)[-1].state
    main.then("Noted.", refuses, *["Noted."] * 2)

    results = talk(chat, 1, state)
    results += [chat.chat_with_state(results[-1].state, user="Hm.")]

    assert [codes(result) for result in results] == [["compaction_failed"]] * 2
    assert len(main.requests) == 5


@pytest.mark.parametrize("first", ["trigger", "strategy", "generator", "compactor"])
def test_what_raises_first_does_not_stop_the_next(face: Any, run: Any, wire: str, first: str) -> None:
    """In `first_of` a part that raises gives way like one that finds nothing; a warning names it."""

    class Broken:
        def plan(self, request: CompactionRequest, *, force: bool = False) -> Any:
            raise LookupError("a secret")

    broken: dict[str, Any] = {
        "trigger": Compactor(raising, KeepRecentTurns(1)),
        "strategy": Compactor(TRIGGER, raises),
        "generator": Compactor(TRIGGER, asks_then_raises),
        "compactor": Broken(),
    }
    main = ScriptedBackend(*["Noted."] * 5, wire=wire)
    chat = face.chat(main)
    before = talk(chat, 2)[-1].state  # so that the other trigger fires after the turn, and not before
    compactor = first_of(broken[first], Compactor(TRIGGER, KeepRecentTurns(1)))

    result = run(chat, before, user="Once more.", compactor=compactor)

    assert result.compaction.outcome == "compacted"
    assert len(read_history(result.state).turns) == 1
    assert codes(result)[-1] == "compaction_failed"
    assert "raised LookupError" in result.warnings[-1].message
    assert "secret" not in repr(result.warnings)


@pytest.mark.parametrize("first", [raises, asks_then_raises])
def test_what_raises_alone_is_a_failure(face: Any, wire: str, first: Any) -> None:
    """Nobody takes its place: the report has the exception, for the caller's own log."""
    chat = face.chat(ScriptedBackend(*["Noted."] * 5, wire=wire))
    before = talk(chat, 2)[-1].state
    compactor = first_of(Compactor(TRIGGER, first), Compactor(any_of(TRIGGER), KeepRecentTurns(50)))

    result = chat.chat_with_state(before, user="Once more.", compactor=compactor)

    assert result.compaction.outcome == "failed"
    assert isinstance(result.compaction.error, LookupError)
    assert codes(result) == ["compaction_failed"]
    assert inspect_state(result.state).turns == 3
