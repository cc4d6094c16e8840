"""States beyond their limits: refused before anything is paid for, and never at the expense of a reply."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import NO_COMPACTION, StateSizeError, StateTooLargeError
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.sim import Reply
from goaitools_py.state import codec
from goaitools_py.state.state import load_state
from goaitools_py.states import inspect_state

from ._reading import messages, roles, users


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> BlobLimits:
    """States of at most 20 kB inflated."""
    limits = BlobLimits(max_decoded_bytes=20_000)
    monkeypatch.setattr(codec, "LIMITS", limits)
    return limits


def test_a_message_too_large_is_refused_before_the_call(
    face: Any, sim: Any, run: Any, small: BlobLimits
) -> None:
    """Nothing is sent, the message comes back, the state is the input, and the next turn works."""
    chat = face.on(sim, context_marks=())
    before = chat.chat(user="My name is Ada.").state

    with pytest.raises(StateSizeError) as caught:
        run(chat, before, user="x" * 25_000, compactor=NO_COMPACTION)
    err = caught.value

    assert err.state == before
    assert len(err.pending_input[0].text) == 25_000
    assert "max_decoded_bytes" in str(err)
    assert len(sim.requests) == 1
    assert run(chat, err.state, user="Hello.").status == "complete"


def test_old_turns_make_room_for_a_message(face: Any, sim: Any, run: Any, small: BlobLimits) -> None:
    """Without a word against it, as many old turns as it takes go before the call, with a warning."""
    chat = face.on(sim, context_marks=())
    sim.push(*[Reply.text("Noted.")] * 4)
    before = chat.run_turns(None, [f"{number} " + "x" * 3_000 for number in range(4)]).state

    result = run(chat, before, user="y" * 8_000)

    assert [w.code for w in result.warnings] == ["emergency_cut"]
    assert result.compaction.removed_turns == 1
    assert len(sim.requests) == 5
    assert sim.problems == []


def test_a_paid_reply_makes_room_for_itself(face: Any, sim: Any, run: Any, small: BlobLimits) -> None:
    """A reply that takes the state beyond its limit is kept; old turns go for it."""
    chat = face.on(sim, context_marks=())
    sim.push(*[Reply.text("Noted.")] * 4, Reply.text("y" * 12_000))
    before = chat.run_turns(None, [f"{number} " + "x" * 3_000 for number in range(4)]).state

    result = run(chat, before, user="Tell me a story.")

    assert result.text == "y" * 12_000
    assert [w.code for w in result.warnings] == ["emergency_cut"]
    assert (roles(result.state)[-1], messages(result.state)[-1].text) == ("assistant", "y" * 12_000)
    assert run(chat, result.state, user="Thanks.").status == "complete"


def test_a_paid_reply_that_fits_nowhere_is_in_the_error(
    face: Any, sim: Any, run: Any, small: BlobLimits
) -> None:
    """Beyond the limit even alone: the error has its text and a state with the whole turn in it."""
    chat = face.on(sim, context_marks=())
    sim.push(Reply.text("y" * 25_000), Reply.text("Welcome."))

    with pytest.raises(StateSizeError) as caught:
        run(chat, user="Tell me a story.")
    err = caught.value

    assert err.text == "y" * 25_000
    assert err.usage.requests == 1
    assert roles(err.state) == ["user", "assistant"]
    after = run(chat, err.state, user="Thanks.")
    assert after.text == "Welcome."
    assert [w.code for w in after.warnings] == ["emergency_cut"]


@pytest.mark.parametrize("with_checkpoints", [False, True])
def test_a_reply_beyond_twice_the_limit_is_in_the_error(
    face: Any, sim: Any, run: Any, small: BlobLimits, with_checkpoints: bool
) -> None:
    """No blob could hold it, nor be read again: the error has the whole text, the state its beginning."""
    chat = face.on(sim, context_marks=())
    before = chat.chat(user="My name is Ada.").state
    sim.push(Reply.text("y" * 60_000))
    fields = {"on_checkpoint": lambda blob: None} if with_checkpoints else {}

    with pytest.raises(StateSizeError) as caught:
        run(chat, before, user="Tell me a story.", **fields)

    err = caught.value
    assert err.text == "y" * 60_000
    assert "the reply, 60," in str(err)
    assert "max_decoded_bytes=20000" in str(err)
    assert err.pending_input == ()
    assert users(err.state) == ["My name is Ada.", "Tell me a story."]
    opened = load_state(err.state).open
    assert opened is not None
    assert 10_000 < len(opened.partial) < 40_000
    assert set(opened.partial) == {"y"}
    assert inspect_state(err.state).total_usage.requests == 2
    assert run(chat, err.state, user="Hello.").status == "complete"
    assert sim.problems == []


def test_tool_results_beyond_twice_the_limit_end_the_turn_typed(
    face: Any, sim: Any, run: Any, small: BlobLimits
) -> None:
    """What a state has no room for is in the error's log; the journal has that the tool ran."""
    runs: list[int] = []

    def dump(number: int) -> str:
        """A lot of text."""
        runs.append(number)
        return "z" * 30_000

    chat = face.on(sim, tools=[dump], on_checkpoint=lambda blob: None, tool_threads=False)
    sim.push(Reply.calls(("dump", '{"number":1}'), ("dump", '{"number":2}')))

    with pytest.raises(StateSizeError) as caught:
        run(chat, user="Dump it.")

    err = caught.value
    assert len(err.tool_log[0].result) == 30_000
    assert err.pending_input == ()
    assert runs == [1]
    assert len(sim.requests) == 1
    sim.push(Reply.text("It is too much."))
    assert (chat.resume(err.state).text, runs) == ("It is too much.", [1])
    assert "result left out: 30,000 bytes" in sim.requests[-1].body.decode()


def test_wider_limits_go_with_the_codec(face: Any, sim: Any, run: Any, small: BlobLimits) -> None:
    """A plain codec with limits of its own writes and reads what is too large for others, who say so."""
    roomy = Plain(limits=BlobLimits(max_decoded_bytes=200_000))
    chat = face.on(sim, codec=roomy)
    sim.push(Reply.text("y" * 60_000), Reply.text("Welcome."))

    result = chat.chat(user="Tell me a story.")
    after = run(chat, result.state, user="Thanks.")

    assert (after.text, after.warnings) == ("Welcome.", ())
    assert inspect_state(after.state, codec=roomy).messages == 4
    with pytest.raises(StateTooLargeError, match=r"limits=BlobLimits\(max_decoded_bytes=…\)"):
        inspect_state(after.state)


def test_a_state_beyond_the_limit_can_be_read(face: Any, sim: Any, small: BlobLimits) -> None:
    """What was written for a paid reply, up to twice the limit, is read by every function."""
    chat = face.on(sim, context_marks=())
    sim.push(Reply.text("y" * 25_000))
    with pytest.raises(StateSizeError) as caught:
        chat.chat(user="Tell me a story.")

    assert inspect_state(caught.value.state).messages == 2
