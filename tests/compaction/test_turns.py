"""Compaction inside running turns, on both chats and all wires: when, at what cost, and what it leaves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from goaitools_py import (
    ClearToolResults,
    Compactor,
    ContextTooLongError,
    DropOldest,
    KeepRecentTurns,
    MessageLimit,
    ModelSettings,
    Summarize,
    TurnLimit,
    event,
    first_of,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.base import rawjson
from goaitools_py.compaction import (
    AskModel,
    CollapseToolExchanges,
    CompactionRequest,
    ContextWindow,
    MiddleOut,
    PendingLimit,
    TurnView,
)
from goaitools_py.sim.http_values import read_body
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history

WIRES = ("openai", "openai-responses", "anthropic")
HISTORY = {"openai": "messages", "openai-responses": "input", "anthropic": "messages"}
MARK = b',"cache_control":{"type":"ephemeral"}'


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _history(request: Any, wire: str) -> bytes:
    """The very bytes of a request's history, without marks for the prompt cache."""
    return read_body(request.body).spans[HISTORY[wire]].replace(MARK, b"")


def _users(state: bytes) -> list[str]:
    return [
        m.text for turn in read_history(state).turns for m in turn.messages if m.role == "user" and m.text
    ]


def _talk(chat: Any, count: int, **fields: Any) -> Any:
    return chat.run_turns(None, [f"Note {number}" for number in range(count)], **fields)


TOO_LONG = {
    "openai": b'{"error":{"code":"context_length_exceeded"}}',
    "openai-responses": b'{"error":{"code":"context_length_exceeded"}}',
    "anthropic": b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}',
}


def _never(request: CompactionRequest) -> bool:
    return False


def _after(request: CompactionRequest) -> bool:
    """After every turn, and not before its request."""
    return not request.pending_count


# --------------------------------------------------------------------------------------- the summariser


def test_a_summary_is_asked_behind_the_cached_prefix(face: Any, wire: str) -> None:
    """The request is the conversation's own: the same preamble, tools and first turns byte for byte, no
    other tool choice, and the instruction behind them."""

    def look(place: str) -> str:
        """Look at a place."""
        return place

    backend = ScriptedBackend(*["Noted. " * 20] * 5, "Notes.", wire=wire)
    chat = face.chat(backend, system="You are a guide.", tools=[look])
    before = _talk(chat, 5)

    report = chat.compact_state(before.state, Compactor(_after, Summarize(keep_turns=2)))

    *_, last, asked = backend.requests
    *older, question = _history(asked, wire)[1:-1].split(b",\n")
    assert _history(last, wire)[1:].startswith(b",\n".join(older))
    assert sum(b'"Note ' in entry for entry in older) == 3
    assert b"Summarise the conversation" in question
    ours, theirs = rawjson.loads(asked.body), rawjson.loads(last.body)
    assert ours.get("tool_choice") is None
    assert {k: v for k, v in ours.items() if k != HISTORY[wire]} == {
        k: v for k, v in theirs.items() if k != HISTORY[wire]
    }
    assert report.outcome == "compacted"
    assert report.usage.requests == 1
    assert (report.removed_turns, report.messages_after) == (3, 5)


def test_a_summary_in_a_turn_is_booked_apart(face: Any, wire: str) -> None:
    """Its tokens are in the turn's usage, in the conversation's total, and told apart."""
    backend = ScriptedBackend(*["Noted. " * 20] * 4, "Four notes.", "Fine.", wire=wire)
    chat = face.chat(backend)
    before = _talk(chat, 3)

    result = chat.chat_with_state(
        before.state, user="Note 3", compactor=Compactor(_after, Summarize(keep_turns=2))
    )

    info = inspect_state(result.state)
    assert result.compaction.outcome == "compacted"
    assert result.usage.requests == 2
    assert result.aside_usage.requests == result.compaction.usage.requests == 1
    assert info.aside_usage == result.aside_usage
    assert info.total_usage == result.total_usage
    assert result.total_usage.requests == 5


@pytest.mark.parametrize("other", WIRES)
def test_another_model_gets_a_transcript(face: Any, wire: str, other: str) -> None:
    """A backend of any wire may summarise: it is told who said what, and nothing of preamble and tools."""
    cheaper = ScriptedBackend("Ada has the key.", wire=other, model="cheap")
    backend = ScriptedBackend(Calls([("look", {"at": "x"})]), *["Noted. " * 20] * 4, "Bye.", wire=wire)

    def look(at: str) -> str:
        """Look at something."""
        return "A key"

    chat = face.chat(backend, system="You are a guide.", tools=[look])
    rains = chat.append_to_state(None, event("It rains."))
    state = chat.run_turns(rains, [f"Note {number}" for number in range(4)]).state

    report = chat.compact_state(state, Compactor(_after, Summarize(cheaper, keep_turns=1)))

    (asked,) = cheaper.bodies()
    text = str(asked[HISTORY[other]])
    for line in (
        "event: It rains.",
        "user: Note 0",
        '[calls look {"at":',
        "tool: A key",
        "assistant: Noted.",
        "Summarise",
    ):
        assert line in text
    assert "You are a guide" not in str(asked)
    assert not asked.get("tools")
    assert report.outcome == "compacted"
    assert "Ada has the key." in _users(report.state)[0]
    assert check_history(wire, state_messages(report.state)) == []


def test_a_model_that_calls_a_tool_is_asked_once_more(face: Any, wire: str) -> None:
    """The second time with the same tools and none allowed; both requests are paid for."""

    def look(at: str) -> str:
        """Look at something."""
        raise AssertionError("a summary ran a tool")

    backend = ScriptedBackend(*["Noted. " * 20] * 3, Calls([("look", {"at": "x"})]), "Notes.", wire=wire)
    chat = face.chat(backend, tools=[look])
    before = _talk(chat, 3)

    report = chat.compact_state(before.state, Compactor(_after, Summarize(keep_turns=1)))

    first, second = backend.bodies()[-2:]
    assert first.get("tool_choice") is None
    assert second["tool_choice"] in ("none", {"type": "none"})
    assert first["tools"] == second["tools"]
    assert (report.outcome, report.usage.requests) == ("compacted", 2)


@pytest.mark.parametrize(
    ("answer", "outcome", "warned"),
    [
        ("", "no_change", ["compaction_failed"]),
        ("long " * 2_000, "no_change", ["compaction_failed"]),
        (BackendError("down", status=500), "failed", ["compaction_failed"]),
        (BackendError("no", status=400), "failed", ["compaction_failed"]),
    ],
)
def test_no_summary_is_no_harm(face: Any, wire: str, answer: Any, outcome: str, warned: list[str]) -> None:
    """The turn succeeds with its history as it was, the report says why, and nobody asks twice in a turn."""
    backend = ScriptedBackend(*["Noted. " * 20] * 4, wire=wire)
    chat = face.chat(backend)
    before = _talk(chat, 3)
    backend._steps.insert(0, answer if answer != "" else " ")

    result = chat.chat_with_state(
        before.state, user="Note 3", compactor=Compactor(TurnLimit(2), Summarize(keep_turns=1))
    )

    assert result.text == "Noted. " * 20
    assert _users(result.state) == [f"Note {number}" for number in range(4)]
    assert result.compaction.outcome == outcome
    assert result.compaction.reason
    assert [warning.code for warning in result.warnings] == warned
    assert len(backend.requests) == 5
    assert result.aside_usage.requests == (1 if outcome == "no_change" else 0)


def test_the_simulated_summary_keeps_facts(face: Any, sim: Any, wire: str) -> None:
    """Summaries of summaries, by a model that knows only what it is sent: the name survives them all."""
    sim.wire = wire
    chat = face.on(sim, compactor=Compactor(TurnLimit(4), Summarize(keep_turns=1)))
    result = chat.chat(user="My name is Ada.")
    state = chat.append_to_state(result.state, event("Ada reached the Old Mill: +50 points"))
    for number in range(9):
        result = chat.chat_with_state(state, user=f"I open door {number}.")
        state = result.state

    asked = chat.chat_with_state(state, user="What is my name, where am I, and what is my score?")

    assert len(inspect_state(asked.state).cuts) >= 2
    assert "Your name is Ada." in asked.text
    assert "You are at the Old Mill." in asked.text
    assert "50 points" in asked.text
    assert sim.problems == []


# -------------------------------------------------------------------------------------------- when


def test_a_loop_is_checked_before_each_request(face: Any, wire: str) -> None:
    """What a tool brings may be what makes it too much: the cut is made before it is sent, closed turns go,
    the open exchange stays."""
    backend = ScriptedBackend(*["Noted."] * 3, Calls([("look", {"at": "x"})]), "Done.", wire=wire)

    def look(at: str) -> str:
        """Look at something."""
        return "A long shelf. " * 10

    chat = face.chat(backend, tools=[look])
    before = _talk(chat, 3)

    result = chat.chat_with_state(
        before.state, user="Look.", compactor=Compactor(MessageLimit(8), KeepRecentTurns(1))
    )

    first, second = (_history(request, wire) for request in backend.requests[-2:])
    assert b"Note 0" in first
    assert b"Note 1" not in second
    assert b"Note 2" in second
    assert b"A long shelf." in second
    assert _users(result.state) == ["Note 2", "Look."]
    assert result.compaction.removed_turns == 2


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_a_loop_with_signed_thinking_is_cut_after_it(face: Any, wire: str) -> None:
    """While the open turn has blocks that are signed over the closed ones, these stay; then they go."""
    backend = ScriptedBackend(
        *["Noted."] * 3,
        Calls([("look", {"at": "x"})], reasoning="They want me to look."),
        Calls([], "Done.", reasoning="That is all."),
        "Bye.",
        wire=wire,
    )

    def look(at: str) -> str:
        """Look at something."""
        return "A shelf."

    chat = face.chat(backend, tools=[look])
    before = _talk(chat, 3)

    result = chat.chat_with_state(
        before.state, user="Look.", compactor=Compactor(MessageLimit(8), KeepRecentTurns(1))
    )

    assert b"Note 0" in _history(backend.requests[-1], wire)
    assert _users(result.state) == ["Look."]
    assert [warning.code for warning in result.warnings] == ["thinking_removed"]
    assert b"scripted-" not in rawjson.dumps(state_messages(result.state))
    assert chat.chat_with_state(result.state, user="Bye.").status == "complete"


def test_what_waits_counts(face: Any, wire: str) -> None:
    """Many appended events make it too much before the model has seen one of them; they are all sent."""
    backend = ScriptedBackend(*["Noted."] * 4, wire=wire)
    chat = face.chat(backend)
    state = _talk(chat, 3).state
    for number in range(5):
        state = chat.append_to_state(state, event(f"Bell {number} rings."))

    result = chat.chat_with_state(
        state, user="Well?", compactor=Compactor(PendingLimit(4), KeepRecentTurns(1))
    )

    sent = _history(backend.requests[-1], wire)
    assert b"Note 1" not in sent
    assert all(f"Bell {number} rings.".encode() in sent for number in range(5))
    assert result.compaction.removed_turns == 2


# ------------------------------------------------------------------------------------------ the archive


def _noted(face: Any, seen: list[Any], failure: Exception | None = None) -> Any:
    """An archive of the face's colour."""

    def keep(turns: Sequence[TurnView]) -> None:
        seen.append([message.text for turn in turns for message in turn.messages])
        if failure is not None:
            raise failure

    async def keep_later(turns: Sequence[TurnView]) -> None:
        keep(turns)

    return keep_later if face.is_async else keep


@pytest.mark.parametrize("composed", [False, True])
def test_what_goes_is_archived_once_as_it_was(face: Any, wire: str, composed: bool) -> None:
    """The turns that go or are rewritten are handed over before they do; awaited on an `AsyncChat`."""
    seen: list[Any] = []
    chat = face.chat(ScriptedBackend(*["Noted."] * 4, wire=wire))
    before = _talk(chat, 3)
    compactor: Any = Compactor(_after, KeepRecentTurns(2), before_cut=_noted(face, seen))

    result = chat.chat_with_state(
        before.state, user="Note 3", compactor=first_of(compactor) if composed else compactor
    )

    assert seen == [["Note 0", "Noted.", "Note 1", "Noted."]]
    assert _users(result.state) == ["Note 2", "Note 3"]


def test_an_archive_that_fails_keeps_everything(face: Any, wire: str) -> None:
    """Nothing goes that nobody has kept; the turn succeeds, a warning says so."""
    seen: list[Any] = []
    chat = face.chat(ScriptedBackend(*["Noted."] * 4, wire=wire))
    before = _talk(chat, 3)
    failing = _noted(face, seen, OSError("a secret"))

    result = chat.chat_with_state(
        before.state, user="Note 3", compactor=Compactor(_after, KeepRecentTurns(2), before_cut=failing)
    )

    assert len(seen) == 1
    assert _users(result.state) == [f"Note {number}" for number in range(4)]
    assert result.compaction.outcome == "failed"
    assert isinstance(result.compaction.error, OSError)
    assert "secret" not in repr(result.compaction)
    (warning,) = result.warnings
    assert warning.code == "compaction_failed"
    assert "OSError" in warning.message
    assert "secret" not in warning.message


def test_an_emergency_is_archived_too(face: Any) -> None:
    """When the provider refuses the history, what goes is handed over; also where compactors are composed."""
    seen: list[Any] = []
    too_long = BackendError("no", status=400, body=b'{"error":{"code":"context_length_exceeded"}}')
    backend = ScriptedBackend(*["Noted."] * 4, too_long, "Fine.")
    chat = face.chat(backend)
    before = _talk(chat, 4)
    compactor = first_of(
        Compactor(lambda request: False, ClearToolResults(), before_cut=_noted(face, seen)),
    )

    result = chat.chat_with_state(before.state, user="Note 4", compactor=compactor)

    assert "emergency_cut" in [warning.code for warning in result.warnings]
    assert seen == [["Note 0", "Noted.", "Note 1", "Noted."]]


def test_a_turn_that_comes_to_the_archive_twice_has_the_same_id(face: Any, wire: str) -> None:
    """A cut in vain is undone, and its turns come again with the cut that is kept: an archive by id has each
    turn once, whoever cuts, and two turns that say the same are two."""
    seen: list[list[str]] = []

    def keep(turns: Sequence[TurnView]) -> None:
        seen.append([turn.id for turn in turns])

    async def keep_later(turns: Sequence[TurnView]) -> None:
        keep(turns)

    too_long = BackendError("no", status=400, body=TOO_LONG[wire])
    backend = ScriptedBackend(*["Noted."] * 4, too_long, too_long, "Fine.", wire=wire)
    chat = face.chat(backend, system="Be brief.")
    first = chat.chat(user="The same.").state
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now:
        pass  # no model answers twice within a millisecond, but this one does
    before = chat.run_turns(first, ["The same.", "Note 2", "Note 3"]).state
    before_cut = keep_later if face.is_async else keep
    compactor = Compactor(_after, KeepRecentTurns(2), before_cut=before_cut)

    with pytest.raises(ContextTooLongError) as caught:
        chat.chat_with_state(
            before, user="Too much. " * 999, compactor=Compactor(_never, KeepRecentTurns(2), before_cut)
        )
    after = chat.chat_with_state(caught.value.state, user="Note 5", compactor=compactor)

    assert _users(caught.value.state) == ["The same.", "The same.", "Note 2", "Note 3"]
    assert _users(after.state) == ["Note 3", "Note 5"]
    assert seen[0] == seen[1][:2]
    assert len(set(seen[1])) == len(seen[1]) == 3


def test_a_dry_run_archives_nothing(face: Any, wire: str) -> None:
    """It says what would go, and gives the blob back."""
    seen: list[Any] = []
    chat = face.chat(ScriptedBackend(*["Noted. " * 9] * 3, "Notes.", wire=wire))
    before = _talk(chat, 3)
    compactor = Compactor(_after, Summarize(keep_turns=1), before_cut=_noted(face, seen))

    report = chat.compact_state(before.state, compactor, dry_run=True)

    assert (report.outcome, report.removed_turns, report.by) == ("compacted", 2, "Summarize")
    assert report.bytes_after < report.bytes_before
    assert report.tokens_after < report.tokens_before
    assert report.usage.requests == 1
    assert report.state == before.state
    assert seen == []


# ------------------------------------------------------------------------------- what a cut leaves behind


COMPACTORS = {
    "deep": Compactor(MessageLimit(20), DropOldest(target_messages=6)),
    "middle": Compactor(TurnLimit(10), MiddleOut(first=1, last=3)),
    "window": ContextWindow(max_messages=20, strategy="summary"),
    "tools": first_of(
        Compactor(MessageLimit(20), ClearToolResults(keep=2, at_least=2)),
        Compactor(MessageLimit(20), CollapseToolExchanges(keep_turns=2)),
        Compactor(MessageLimit(30), DropOldest(target_messages=8)),
    ),
}


@pytest.mark.parametrize("name", COMPACTORS)
def test_between_cuts_the_prefix_only_grows(face: Any, wire: str, name: str) -> None:
    """Over 40 turns each request begins with the very bytes of the one before it, but where a cut was
    reported; and cuts are rare."""

    def say(request: Any) -> Any:
        history = _history(request, wire)
        if b"Summarise the conversation" in history:
            return "What was said."
        has_result = history.rfind(b"A shelf") > history.rfind(b"Note ")
        return "Noted, as ever." if has_result else Calls([("look", {"at": "the shelf"})])

    def look(at: str) -> str:
        """Look at something."""
        return "A shelf of books. " * 9

    backend = ScriptedBackend(*[say] * 200, wire=wire)
    chat = face.chat(backend, tools=[look], system="You are a guide.", compactor=COMPACTORS[name])
    state, cuts, acts, breaks, last = None, 0, 0, 0, b""
    for number in range(40):
        first = len(backend.requests)
        result = chat.chat_with_state(state, user=f"Note {number}")
        state = result.state
        report = result.compaction
        has_cut = report is not None and report.outcome == "compacted"
        assert result.warnings == ()
        sent = [_history(request, wire)[:-1] for request in backend.requests[first:]]
        for history in sent:
            if b"Summarise the conversation" in history:
                continue
            if not history.startswith(last):
                breaks += 1
            last = history
        cuts += has_cut
        acts += len(report.by.split(", ")) if has_cut else 0  # in one turn two of `first_of` may act
        assert check_history(wire, state_messages(state)) == []
    assert breaks <= acts
    assert 1 <= cuts <= 20


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
@pytest.mark.parametrize("name", COMPACTORS)
def test_signed_thinking_goes_well_with_every_cut(face: Any, sim: Any, wire: str, name: str) -> None:
    """The simulator signs its thinking over what stands before it and checks that: it refuses nothing."""
    sim.wire = wire
    thinks = (
        ModelSettings(thinking_budget_tokens=1024, max_output_tokens=4096)
        if wire == "anthropic"
        else ModelSettings(reasoning_effort="low")
    )

    def get_score(team: str) -> str:
        """Current score of one team."""
        return f"{team} has 7 points, " + "and so on " * 20

    chat = face.on(sim, tools=[get_score], settings=thinks, compactor=COMPACTORS[name])
    state, outcomes = None, []
    for number in range(14):
        asks = f"Get the score of Red{number}." if number % 2 else f"My door is {number}."
        result = chat.chat_with_state(state, user=asks)
        state = result.state
        outcomes += [result.compaction.outcome] if result.compaction else []

    assert "compacted" in outcomes
    assert sim.problems == []
    assert check_history(wire, state_messages(state)) == []


def test_the_newest_context_stays_and_no_other(face: Any, wire: str) -> None:
    """After a cut the history has one context block: the newest, also if its turn went."""
    backend = ScriptedBackend(*["Noted."] * 7, wire=wire)
    chat = face.chat(backend)
    state = None
    for number in range(4):
        state = chat.chat_with_state(state, user=f"Note {number}", context=f"Clock {number // 2}").state

    moved = chat.compact_state(state, Compactor(_after, KeepRecentTurns(1))).state
    chat.chat_with_state(moved, user="Note 4", context="Clock 1")
    unchanged = _history(backend.requests[-1], wire)
    chat.chat_with_state(moved, user="Note 4", context="Clock 2")
    changed = _history(backend.requests[-1], wire)
    both = chat.compact_state(state, Compactor(_after, MiddleOut(first=1, last=1, note=""))).state

    assert [unchanged.count(b"Clock %d" % number) for number in range(3)] == [0, 1, 0]
    assert [changed.count(b"Clock %d" % number) for number in range(3)] == [0, 1, 1]
    history = rawjson.dumps(state_messages(both))
    assert [history.count(b"Clock %d" % number) for number in range(2)] == [0, 1]
    assert check_history(wire, state_messages(both)) == []


def test_a_strategy_may_ask_what_it_likes(face: Any, wire: str) -> None:
    """A generator asks through the engine's own effects, and keeps what it makes of the answer."""

    def asking(request: CompactionRequest) -> Any:
        answer = yield AskModel(turns=request.turns[:2], instruction="Which note was the best?")
        return (request.note(f"The best was {answer.text}", kind="best"), *request.turns[2:])

    backend = ScriptedBackend(*["Noted."] * 3, "note 1", wire=wire)
    chat = face.chat(backend)
    before = _talk(chat, 3)

    report = chat.compact_state(before.state, Compactor(_after, asking))

    assert _users(report.state) == ['<app-note kind="best">\nThe best was note 1\n</app-note>', "Note 2"]
    assert report.by == "asking"
