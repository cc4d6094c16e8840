"""Checkpoints: blobs from which another process finishes the turn without running a finished tool again."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from goaitools_py import Chat, CheckpointError, CheckpointReady, ProviderUnavailableError, ToolContext, tool
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import ScriptedBackend, check_history

from ._reading import results, roles, roles_sent

CALLS = Reply.calls(("get_score", '{"team":"Red"}'), ("get_score", '{"team":"Blue"}'), ids=("a", "b"))


def flags(blob: bytes) -> dict[str, str]:
    """The flags of a state's results, by call id, for those that are no plain success."""
    return read_history(blob).turns[-1].facts.get("flags", {})


def test_a_checkpoint_surrounds_each_tool(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """One after each reply, one before and one after each tool; each is a valid history."""
    kept: list[tuple[bytes, int]] = []
    chat = face.on(
        sim,
        tools=[scores.get_score],
        tool_threads=False,
        on_checkpoint=lambda blob: kept.append((blob, len(scores.runs))),
    )
    sim.push(CALLS)

    run(chat, user="The scores?")

    assert [runs for _, runs in kept] == [0, 0, 1, 1, 2, 2]
    assert [inspect_state(blob).open_calls for blob, _ in kept] == [2, 2, 1, 1, 0, 0]
    assert [inspect_state(blob).status for blob, _ in kept] == [*["in_progress"] * 5, "complete"]
    for blob, _ in kept:
        assert check_history(sim.wire, state_messages(blob)) == []


@pytest.mark.parametrize(
    ("number", "ran_again", "unknown"),
    [(0, ["Red", "Blue"], {}), (1, ["Blue"], {"a"}), (2, ["Blue"], {}), (3, [], {"b"}), (4, [], {})],
    ids=["after the reply", "in the first tool", "between", "in the second tool", "after the tools"],
)
def test_a_killed_turn_is_finished_by_another_process(
    face: Any, sim: Any, scores: Any, number: int, ran_again: list[str], unknown: Any
) -> None:
    """Finished results are reused, calls not begun are run, one that was running is unknown: never twice."""
    kept: list[bytes] = []
    chat = face.on(sim, tools=[scores.get_score], tool_threads=False)
    sim.push(CALLS)
    chat.chat(user="The scores?", on_checkpoint=kept.append)
    scores.runs.clear()

    result = chat.resume(kept[number])

    assert scores.runs == ran_again
    assert set(flags(result.state)) == set(unknown)
    assert set(flags(result.state).values()) <= {"unknown"}
    assert roles(result.state) == ["user", "assistant", "tool", "tool", "assistant"]
    assert [r.call.id for r in result.tool_log] == ["a", "b"]
    assert sim.problems == []


def test_checkpoints_are_events_of_a_listener_too(face: Any, sim: Any, scores: Any) -> None:
    """Who iterates the turn gets the same blobs as `on_checkpoint`."""
    kept: list[bytes] = []
    chat = face.on(sim, tools=[scores.get_score], tool_threads=False)
    sim.push(CALLS)

    events = list(chat.start(None, user="The scores?", on_checkpoint=kept.append))

    assert [e.blob for e in events if isinstance(e, CheckpointReady)] == kept
    assert len(kept) == 6


@pytest.mark.parametrize(
    ("failing", "ran", "states"),
    [(0, [], 2), (1, [], 2), (2, ["Red"], 1), (3, ["Red"], 1), (4, ["Red", "Blue"], 0)],
)
def test_no_tool_starts_behind_a_failed_checkpoint(
    face: Any, sim: Any, run: Any, scores: Any, failing: int, ran: list[str], states: int
) -> None:
    """The turn ends typed; its state knows what ran and what did not, and nothing runs twice."""
    seen: list[bytes] = []

    def keep(blob: bytes) -> None:
        seen.append(blob)
        if len(seen) == failing + 1:
            raise OSError("a secret path")

    chat = face.on(sim, tools=[scores.get_score], tool_threads=False)
    sim.push(CALLS)

    with pytest.raises(CheckpointError) as caught:
        run(chat, user="The scores?", on_checkpoint=keep)
    err = caught.value
    ran_before = list(scores.runs)
    result = chat.resume(err.state)

    assert ran_before == ran
    assert isinstance(err.__cause__, OSError)
    assert "secret" not in str(err)
    assert inspect_state(err.state).open_calls == states
    assert scores.runs == ["Red", "Blue"]
    assert flags(result.state) == {}
    assert len(sim.requests) == 2
    assert sim.problems == []


def test_a_tool_that_ends_after_a_failed_checkpoint_is_in_the_log(face: Any, sim: Any, run: Any) -> None:
    """What ran beside it is waited for: the error's log and its state have both results."""
    seen: list[bytes] = []
    has_failed = threading.Event()

    @tool
    def get_score(team: str) -> str:
        """Current score of one team; Blue's comes late."""
        if team == "Blue":
            assert has_failed.wait(60)
        return f"{team} has 7 points"

    def keep(blob: bytes) -> None:
        seen.append(blob)
        if len(seen) == 4:  # after the reply, before each tool, and now Red's result
            has_failed.set()
            raise OSError

    chat = face.on(sim, tools=[get_score], tool_threads=True)
    sim.push(CALLS)

    with pytest.raises(CheckpointError) as caught:
        run(chat, user="The scores?", on_checkpoint=keep)
    err = caught.value

    assert len(seen) == 4
    assert [(r.call.id, r.flag, r.result) for r in err.tool_log] == [
        ("a", "ok", "Red has 7 points"),
        ("b", "ok", "Blue has 7 points"),
    ]
    assert results(err.state) == ["Red has 7 points", "Blue has 7 points"]
    assert inspect_state(err.state).open_calls == 0


def test_the_last_reply_is_kept_before_anybody_has_it(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """The last checkpoint is the result's state: an answer that was paid for is never only in the air."""
    kept: list[bytes] = []
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(Reply.text("Hello."))

    result = run(chat, user="Hello?", on_checkpoint=kept.append)

    assert kept == [result.state]
    with pytest.raises(ValueError, match="nothing to resume"):
        chat.resume(kept[0])


def test_a_last_checkpoint_that_fails_loses_no_answer(face: Any, sim: Any, run: Any) -> None:
    """The error has the answer, and a state that is complete."""

    def keep(blob: bytes) -> None:
        raise OSError("a secret path")

    chat = face.on(sim)
    sim.push(Reply.text("Hello."))

    with pytest.raises(CheckpointError) as caught:
        run(chat, user="Hello?", on_checkpoint=keep)

    assert caught.value.text == "Hello."
    assert inspect_state(caught.value.state).status == "complete"
    assert roles(caught.value.state) == ["user", "assistant"]


def test_an_async_checkpoint_is_awaited_or_refused(face: Any, sim: Any, scores: Any) -> None:
    """`AsyncChat` awaits it; a `Chat` cannot, and must not pretend that anything was kept."""
    kept: list[bytes] = []

    async def keep(blob: bytes) -> None:
        kept.append(blob)

    chat = face.on(sim, tools=[scores.get_score])
    sim.push(CALLS)

    if face.is_async:
        chat.chat(user="The scores?", on_checkpoint=keep)
        assert len(kept) == 6
    else:
        with pytest.raises(TypeError, match="AsyncChat"):
            chat.chat(user="The scores?", on_checkpoint=keep)
        with pytest.raises(CheckpointError) as caught:
            chat.chat(user="The scores?", on_checkpoint=lambda blob: keep(blob))
        assert "AsyncChat" in str(caught.value.__cause__)
        assert len(sim.requests) == 1
        assert scores.runs == []


def test_a_checkpoint_is_independent_of_its_chat(face: Any, sim: Any, scores: Any) -> None:
    """Another chat object with the same tools finishes the turn: everything needed is in the bytes."""
    kept: list[bytes] = []
    chat = face.on(sim, tools=[scores.get_score], tool_threads=False)
    sim.push(CALLS)
    chat.chat(user="The scores?", on_checkpoint=kept.append)

    backend = ScriptedBackend("Seven each.", wire=sim.wire)
    result = Chat(backend, tools=[scores.get_score]).resume(kept[-2])

    assert result.text == "Seven each."
    assert roles_sent(backend.requests[0]) == ["user", "assistant", "tool", "tool"]


def test_the_key_of_a_call_survives_a_resume(face: Any, sim: Any) -> None:
    """A call run by another process has the idempotency key that it would have had in the first."""
    keys: list[str] = []
    kept: list[bytes] = []

    @tool
    def pay(ctx: ToolContext[Any], amount: int) -> str:
        """Pay."""
        keys.append(ctx.idempotency_key)
        return "paid"

    chat = face.on(sim, tools=[pay], tool_threads=False)
    sim.push(Reply.calls(("pay", '{"amount":1}'), ("pay", '{"amount":1}')))
    chat.chat(user="Pay twice.", on_checkpoint=kept.append)

    chat.resume(kept[0])

    assert keys[:2] == keys[2:]
    assert keys[0] != keys[1]


def test_a_complete_state_has_nothing_to_resume(face: Any, sim: Any) -> None:
    """Resuming a finished turn is the caller's mistake, told before anything is sent."""
    chat = face.on(sim)
    state = chat.chat(user="Hello.").state

    with pytest.raises(ValueError, match="resume"):
        chat.resume(state)

    assert len(sim.requests) == 1


def test_a_new_message_closes_a_checkpoint(face: Any, sim: Any, scores: Any) -> None:
    """Without `resume` nothing pending runs: results are real, not run, or unknown, and flagged so."""
    kept: list[bytes] = []
    chat = face.on(sim, tools=[scores.get_score], tool_threads=False)
    three = [("get_score", f'{{"team":"{team}"}}') for team in ("Red", "Blue", "Green")]
    sim.push(Reply.calls(*three, ids=("a", "b", "c")))
    chat.chat(user="The scores?", on_checkpoint=kept.append)
    scores.runs.clear()

    result = chat.chat_with_state(kept[3], user="Never mind.")

    assert scores.runs == []
    assert [w.code for w in result.warnings] == ["turn_closed"]
    assert read_history(result.state).turns[0].facts["flags"] == {"b": "unknown", "c": "not_run"}
    assert results(result.state)[0] == "Red has 7 points"
    assert sim.problems == []


def test_closing_is_deterministic(face: Any, sim: Any, scores: Any) -> None:
    """The closed view of one blob is the same every time: no clock, nothing random."""
    kept: list[bytes] = []
    chat = face.on(sim, tools=[scores.get_score], tool_threads=False)
    sim.push(CALLS)
    chat.chat(user="The scores?", on_checkpoint=kept.append)

    first, second = (state_messages(chat.chat_with_state(kept[1], user="So?").state) for _ in range(2))

    closed = state_messages(kept[1])
    assert roles(kept[1]) == ["user", "assistant", "tool", "tool"]
    assert first[: len(closed)] == second[: len(closed)] == closed


def test_a_failed_turn_can_fail_again(face: Any, sim: Any, scores: Any) -> None:
    """Resumed as often as need be: one copy of everything, no tool twice."""
    chat = face.on(sim, tools=[scores.get_score])
    sim.push(CALLS, Fault.server_error(), Fault.reset(), Fault.html(503))
    with pytest.raises(ProviderUnavailableError) as first:
        chat.chat(user="The scores?")
    with pytest.raises(ProviderUnavailableError) as second:
        chat.resume(first.value.state)
    with pytest.raises(ProviderUnavailableError) as third:
        chat.resume(second.value.state)

    result = chat.resume(third.value.state)

    assert sorted(scores.runs) == ["Blue", "Red"]
    assert roles(result.state) == ["user", "assistant", "tool", "tool", "assistant"]
    assert result.total_usage.requests == 2
    assert sim.problems == []
