"""A compactor whose cut cannot reach its limit: said once, and not paid for in every turn."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import (
    Compactor,
    DropOldest,
    KeepRecentTurns,
    MessageLimit,
    Summarize,
    TokenLimit,
    TurnLimit,
    all_of,
    any_of,
    first_of,
    tool,
)
from goaitools_py.compaction import (
    ByteLimit,
    ColdCache,
    CompactionRequest,
    ContextWindow,
    PendingLimit,
    ProviderCompaction,
    TurnView,
)
from goaitools_py.state import blob as blobs
from goaitools_py.states import read_history
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.messages import Usage

TURNS = 14
SAID = "Something of some length is said here. " * 3
RULES = "You are a guide, and these are the rules. " * 400  # some 4,000 tokens


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
def wire(request: pytest.FixtureRequest) -> str:
    """The conversation's and the summariser's."""
    return str(request.param)


def codes(result: Any) -> list[str]:
    return [warning.code for warning in result.warnings]


def rows(state: bytes) -> bool:
    return b'"rests"' in bytes(blobs.decode(state)[0].raw())


class Talk:
    """A conversation that is bare or kept, each turn in a chat of its own, as in another process.

    Attributes:
        cuts: The numbers of the turns in which the history was compacted.
        told: The numbers of the turns that warned that this was in vain.
    """

    def __init__(self, face: Any, wire: str, *, kept: bool = False) -> None:
        self.backend = ScriptedBackend(wire=wire)
        self.cuts: list[int] = []
        self.told: list[int] = []
        self.state: bytes | None = None
        self.number = 0
        self._face = face
        self._store = (AsyncMemoryStore() if face.is_async else MemoryStore()) if kept else None

    def say(self, compactor: Any, *steps: Any, times: int = 1, said: str = SAID, **fields: Any) -> Any:
        for _ in range(times):
            self.backend.then(*(steps or ("Noted.",)))
            chat = self._face.chat(self.backend, compactor=compactor, **fields)
            if self._store is None:
                result = chat.chat_with_state(self.state, user=f"{said}{self.number}")
            else:
                said_now = chat.inner.conversation(self._store, "ada").send(f"{said}{self.number}")
                result = self._face.run(said_now) if self._face.is_async else said_now
            self.state = result.state
            if result.compaction is not None and result.compaction.outcome == "compacted":
                self.cuts.append(self.number)
            if "compaction_in_vain" in codes(result):
                self.told.append(self.number)
            assert set(codes(result)) <= {"compaction_in_vain", "preamble_changed", "tools_changed"}
            self.number += 1
        return result


def summariser(wire: str) -> ScriptedBackend:
    return ScriptedBackend(*["They talked."] * TURNS, wire=wire)


@pytest.mark.parametrize("kept", [False, True], ids=["bare", "kept"])
@pytest.mark.parametrize("fixed", ["system", "tools"])
def test_no_summary_is_paid_in_vain_in_each_turn(face: Any, wire: str, fixed: str, kept: bool) -> None:
    """The fixed part alone is above the limit: one summary, one warning, and then it rests."""

    def look() -> str:
        return "A door."

    beside = summariser(wire)
    compactor = Compactor(TokenLimit(2_000), Summarize(beside, keep_turns=2))
    fields = {"system": RULES} if fixed == "system" else {"tools": [tool(description=RULES)(look)]}
    talk = Talk(face, wire, kept=kept)

    talk.say(compactor, times=TURNS, **fields)

    assert talk.told == talk.cuts == talk.cuts[:1]
    assert len(beside.requests) == 1
    assert len(read_history(talk.state).turns) == 1 + TURNS - (talk.cuts[0] - 1)
    assert rows(talk.state)


SMALL = "Here."
IN_VAIN = {
    "tokens": (lambda wire: Compactor(TokenLimit(2_000), KeepRecentTurns(2)), {"system": RULES}),
    "chain": (
        lambda wire: first_of(
            Compactor(TokenLimit(2_000), DropOldest(target_tokens=500)),
            Compactor(TokenLimit(3_000), Summarize(summariser(wire), keep_turns=2)),
        ),
        {"system": RULES},
    ),
    "any": (
        lambda wire: Compactor(any_of(TurnLimit(50), TokenLimit(2_000)), KeepRecentTurns(2)),
        {"system": RULES},
    ),
    "messages": (lambda wire: Compactor(MessageLimit(3), Summarize(summariser(wire), keep_turns=2)), {}),
    "bytes": (lambda wire: Compactor(ByteLimit(300), Summarize(summariser(wire), keep_turns=2)), {}),
    "turns": (lambda wire: Compactor(TurnLimit(2), Summarize(summariser(wire), keep_turns=3)), {}),
    "own": (
        lambda wire: Compactor(
            lambda request: request.turn_count > 2, Summarize(summariser(wire), keep_turns=3)
        ),
        {},
    ),
}


@pytest.mark.parametrize("kind", IN_VAIN)
def test_each_kind_of_limit_is_told_once_and_rests(face: Any, wire: str, kind: str) -> None:
    """Whatever measures the limit, and whatever is above it: nothing is paid for in vain in each turn."""
    make, fields = IN_VAIN[kind]
    talk = Talk(face, wire)

    talk.say(make(wire), times=TURNS, **fields)

    assert len(talk.told) == 1
    assert talk.told[0] == talk.cuts[0]
    assert len(talk.cuts) <= 4


FREE = {
    "window": (lambda: ContextWindow(max_tokens=100, min_recent_turns=3), 3),
    "window of messages": (
        lambda: ContextWindow(max_messages=4, min_recent_turns=3, strategy="recent_turns_only"),
        3,
    ),
    "messages": (lambda: Compactor(MessageLimit(1), KeepRecentTurns(1)), 1),
    "bytes": (lambda: Compactor(ByteLimit(300), KeepRecentTurns(2)), 3),  # is looked at before a request
    "turns": (lambda: Compactor(TurnLimit(2), KeepRecentTurns(3)), 3),
}


@pytest.mark.parametrize("kind", FREE)
def test_a_free_cut_is_made_as_its_user_wants(face: Any, wire: str, kind: str) -> None:
    """It is told once that the limit is not reached, and the history stays as short as the strategy says."""
    make, most = FREE[kind]
    talk = Talk(face, wire)

    for _ in range(TURNS):
        result = talk.say(make())
        assert len(read_history(result.state).turns) <= most

    assert len(talk.told) == 1
    assert len(talk.cuts) >= TURNS - most - 1


REACHES = {
    "tokens": lambda wire: Compactor(TokenLimit(250), KeepRecentTurns(2)),
    "turns": lambda wire: Compactor(TurnLimit(3), KeepRecentTurns(3)),
    "summary": lambda wire: Compactor(TurnLimit(3), Summarize(summariser(wire), keep_turns=2, at_least=1)),
    "messages": lambda wire: ContextWindow(max_messages=8, min_recent_turns=2),
    "always": lambda wire: Compactor(lambda request: True, KeepRecentTurns(2)),
    "pending": lambda wire: Compactor(any_of(PendingLimit(1), TurnLimit(4)), KeepRecentTurns(2)),
}


@pytest.mark.parametrize("kind", REACHES)
def test_a_compactor_that_reaches_its_limit_never_rests(face: Any, wire: str, kind: str) -> None:
    """Also one that cuts often, because its user wants that, or because it waits for no size."""
    talk = Talk(face, wire)

    talk.say(REACHES[kind](wire), times=TURNS)

    assert talk.told == []
    assert not rows(talk.state)
    assert len(talk.cuts) >= 2


@pytest.mark.parametrize(
    ("trigger", "fires", "is_above"),
    [
        (ColdCache(), True, False),
        (PendingLimit(2), True, False),
        (all_of(ColdCache(), TokenLimit(9)), True, True),
        (any_of(ColdCache(), TokenLimit(9)), True, False),
        (TokenLimit(11), False, False),
        (lambda request: request.turns == (), False, False),
    ],
)
def test_a_trigger_without_a_size_has_no_limit(trigger: Any, fires: bool, is_above: bool) -> None:
    """A pause or waiting messages are no limit that a cut could miss."""
    one = TurnView(position=0, message_count=2, tokens=10, entries=(b"{}",), roles=("u",), words=None)  # type: ignore[arg-type]
    request = CompactionRequest(
        message_count=2,
        turn_count=1,
        token_count=10,
        history_bytes=2,
        usage=Usage(),
        load_turns=lambda: (one,),
        load_blob_bytes=lambda: 100,
        write_note=lambda text, kind: one,
        pending_count=3,
        is_cold=True,
    )
    compactor = Compactor(trigger, KeepRecentTurns(1))

    assert trigger(request) == fires
    assert compactor.is_above(request) == is_above


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_a_provider_that_compacts_in_vain_is_asked_once(face: Any, sim: Any, wire: str) -> None:
    """The provider's own compaction is paid for too."""
    compactor = Compactor(TokenLimit(2_000), ProviderCompaction(keep_turns=1, at_least=1, fallback=None))
    chat = face.on(sim, compactor=compactor, system=RULES)

    results = [chat.chat_with_state(None, user=SAID)]
    for _ in range(TURNS):
        results.append(chat.chat_with_state(results[-1].state, user=SAID))

    told = [result for result in results if "compaction_in_vain" in codes(result)]
    assert [result.compaction.outcome for result in told] == ["compacted"]
    # Once more when the history has grown by a quarter of the whole request.
    assert len(results) + 1 <= len(sim.requests) <= len(results) + 2


def test_a_tool_loop_is_not_cut_at_each_request(face: Any, wire: str) -> None:
    """What the running turn holds cannot be cut; at the turn's end nothing is cut once more."""

    @tool
    def look() -> str:
        """Look around."""
        return "A door. " * 1_000

    beside = summariser(wire)
    compactor = Compactor(TokenLimit(2_000), Summarize(beside, keep_turns=2))
    talk = Talk(face, wire)
    talk.say(compactor, times=4)

    for _ in range(3):
        talk.say(compactor, *[Calls([("look", {})])] * 3, "A door.", tools=[look])

    assert talk.told == [5]
    assert len(beside.requests) == len(talk.cuts) <= 2


# ------------------------------------------------------------------------------------- and wakes again


def at_rest(face: Any, wire: str) -> tuple[Talk, ScriptedBackend]:
    beside = summariser(wire)
    talk = Talk(face, wire)
    talk.say(Compactor(TokenLimit(2_000), Summarize(beside, keep_turns=2)), times=6, system=RULES)
    assert len(beside.requests) == 1
    return talk, beside


def test_another_limit_wakes_it(face: Any, wire: str) -> None:
    """A larger one is reached, and the row goes with the next cut."""
    talk, beside = at_rest(face, wire)

    talk.say(Compactor(TokenLimit(2_100), Summarize(beside, keep_turns=2)), system=RULES)

    assert len(beside.requests) == 2
    assert len(talk.told) == 2


def test_a_smaller_fixed_part_wakes_it(face: Any, wire: str) -> None:
    """Without the long rules the limit can be reached."""
    talk, beside = at_rest(face, wire)
    compactor = Compactor(TokenLimit(100), Summarize(beside, keep_turns=2))
    talk.say(compactor, system=RULES)
    assert len(beside.requests) == 2

    talk.say(compactor, times=2, system="Be short.")

    assert len(beside.requests) == 3


def test_growth_wakes_it(face: Any, wire: str) -> None:
    """A history that has grown by a quarter of the request is worth a cut, though the limit stays unmet."""
    talk, beside = at_rest(face, wire)
    compactor = Compactor(TokenLimit(2_000), Summarize(beside, keep_turns=2))

    talk.say(compactor, said=SAID * 60, system=RULES)
    talk.say(compactor, system=RULES)

    assert len(beside.requests) == 2
    assert len(talk.told) == 1


def test_other_turns_wake_it(face: Any, wire: str) -> None:
    """Large turns that stayed are old by now, and the small ones since then are within the limit."""
    compactor = Compactor(TokenLimit(1_000), KeepRecentTurns(2))
    talk = Talk(face, wire)
    talk.say(compactor, times=4, said=SAID * 30)
    assert len(talk.told) == 1
    assert rows(talk.state)

    talk.say(compactor, times=5)

    assert len(read_history(talk.state).turns) < 7
    assert not rows(talk.state)
