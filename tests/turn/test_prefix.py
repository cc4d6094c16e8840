"""What a provider signed over a prefix goes back under that prefix, or not at all; and prefixes only grow."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from goaitools_py import (
    Compactor,
    KeepRecentTurns,
    MessageLimit,
    ModelSettings,
    Summarize,
    ToolContext,
    TurnError,
    Usage,
    tool,
)
from goaitools_py.sim import Fault
from goaitools_py.states import inspect_state, read_history, state_from_messages, state_messages

SIGNING = ["anthropic", "openai-responses"]
THINK = {
    "anthropic": ModelSettings(thinking_budget_tokens=1024, max_output_tokens=4096),
    "openai-responses": ModelSettings(reasoning_effort="low"),
    "openai": ModelSettings(),
}
BINDING = {
    # A model that is known to bind its thinking, so that a server of any name is told what to do with it.
    "anthropic": ModelSettings(model="claude-opus-5-5", thinking_budget_tokens=1024, max_output_tokens=4096),
    "openai-responses": THINK["openai-responses"],
}
HISTORY = {"anthropic": "messages", "openai-responses": "input", "openai": "messages"}
SYSTEM = "You are the game master of a theatre in Harrogate."


def signed_parts(value: Any) -> int:
    """How many signed blocks stand in a request or a history."""
    if isinstance(value, Mapping):
        own = value.get("type") in ("thinking", "redacted_thinking") or bool(value.get("encrypted_content"))
        return own + sum(map(signed_parts, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return sum(map(signed_parts, value))
    return 0


def sent(sim: Any, number: int = -1) -> Any:
    """The history of one request to the simulator."""
    return sim.requests[number].parsed[HISTORY[sim.wire]]


def codes(result: Any) -> list[str]:
    """The codes of a result's warnings."""
    return [warning.code for warning in result.warnings]


def thinking_chat(face: Any, sim: Any, **fields: Any) -> Any:
    """A chat whose every reply begins with signed thinking."""
    return face.on(sim, **{"settings": THINK[sim.wire], **fields})


def after_two_turns(chat: Any, **fields: Any) -> bytes:
    """A state with two closed turns, both with signed thinking."""
    return chat.run_turns(None, ["My name is Ada.", "I like foxes."], **fields).state


# ------------------------------------------------------------------------------------- same prefix


@pytest.mark.parametrize("wire", SIGNING)
def test_signed_thinking_goes_back_as_it_came(face: Any, sim: Any, run: Any, wire: str) -> None:
    """Under one prefix every signed block of every turn is in the next request, and the provider takes it."""
    chat = thinking_chat(face, sim, system=SYSTEM)
    state = None

    for number in range(4):
        result = run(chat, state, user=f"Story number {number}, please.")
        state = result.state
        assert codes(result) == []
        assert signed_parts(sent(sim)) == number

    assert signed_parts(state_messages(state)) == 4
    assert sim.problems == []


@pytest.mark.parametrize("wire", SIGNING)
def test_signed_thinking_goes_back_in_a_tool_loop(
    face: Any, sim: Any, run: Any, scores: Any, wire: str
) -> None:
    """The thinking before a tool call stands before it in the request that brings the result."""
    chat = thinking_chat(face, sim, tools=[scores.get_score])

    result = run(chat, None, user="Call get_score for team Red.")
    again = run(chat, result.state, user="And get_score for team Blue.")

    assert scores.runs == ["Red", "Blue"]
    assert signed_parts(sent(sim)) == 3
    assert codes(again) == []
    assert sim.problems == []


# ---------------------------------------------------------------------------------- changed prefix

CHANGES = {
    "preamble": {"system": "You are a librarian in Leeds."},
    "preamble gone": {"system": None},
    "tools": {"tools": [tool(name="look_round")(lambda: "dark")]},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("wire", SIGNING)
def test_a_changed_prefix_ends_old_thinking_once(
    face: Any, sim: Any, run: Any, wire: str, change: str
) -> None:
    """The thinking of closed turns leaves the stored history; the result says so; text and turns stay."""
    chat = thinking_chat(face, sim)
    state = after_two_turns(chat, system=SYSTEM)
    fields = {"system": SYSTEM} | CHANGES[change]

    changed = run(chat, state, user="What is my name?", **fields)
    after = run(chat, changed.state, user="Who am I?", **fields)

    assert "thinking_removed" in codes(changed)
    assert signed_parts(sent(sim, -2)) == 0
    assert "Your name is Ada." in changed.text
    assert codes(after) == []
    assert signed_parts(sent(sim)) == 1
    assert len(read_history(after.state).turns) == 4
    assert [by for _, by, _, _ in inspect_state(after.state).cuts] == ["unsigned"]
    assert sim.problems == []


@pytest.mark.parametrize("wire", SIGNING)
def test_another_model_does_not_get_old_thinking(face: Any, sim: Any, run: Any, wire: str) -> None:
    """A changed model is a warning, and the end of what the other one signed."""
    chat = thinking_chat(face, sim)
    state = after_two_turns(chat)

    changed = run(chat, state, user="What is my name?", settings=ModelSettings(model="sim-other"))

    assert codes(changed) == ["model_changed", "thinking_removed"]
    assert signed_parts(sent(sim)) == 0
    assert "Your name is Ada." in changed.text
    assert sim.problems == []


@pytest.mark.parametrize("wire", SIGNING)
def test_a_rejected_first_request_gives_the_state_back_as_it_was(face: Any, sim: Any, wire: str) -> None:
    """Row 4: the thinking is taken out of what is sent, and stays in the state if nothing was accepted."""
    chat = thinking_chat(face, sim)
    state = after_two_turns(chat, system=SYSTEM)
    sim.push(Fault.bad_request())

    with pytest.raises(TurnError) as caught:
        chat.chat_with_state(state, user="poison", system="Another.")

    assert caught.value.state == state


@pytest.mark.parametrize("wire", SIGNING)
def test_a_cut_takes_the_thinking_of_what_stays(face: Any, sim: Any, run: Any, wire: str) -> None:
    """After a compaction the kept turns have another prefix: their thinking goes with the cut turns."""
    chat = thinking_chat(face, sim, compactor=Compactor(MessageLimit(5), KeepRecentTurns(2)))
    state = None

    results = []
    for number in range(6):
        results.append(run(chat, state, user=f"Story number {number}, please."))
        state = results[-1].state

    assert [bool(result.compaction) for result in results] == [False, False, True, True, True, True]
    assert "thinking_removed" in codes(results[2])
    assert sim.problems == []


@pytest.mark.parametrize("wire", SIGNING)
def test_compacting_outside_a_turn_takes_the_thinking_too(face: Any, sim: Any, run: Any, wire: str) -> None:
    """`compact_state` leaves no block that was signed over what it cut."""
    chat = thinking_chat(face, sim)
    state = after_two_turns(chat)

    report = chat.compact_state(state, Compactor(MessageLimit(1), KeepRecentTurns(1)))
    result = run(chat, report.state, user="Hello.")

    assert signed_parts(state_messages(report.state)) == 0
    assert report.messages_after == 2
    assert codes(result) == []
    assert sim.problems == []


# ------------------------------------------------------------------------------- in the open turn


def stopped_in_a_tool_loop(face: Any, sim: Any, scores: Any, **fields: Any) -> bytes:
    """A checkpoint after the tool ran and before the model heard of it; its reply had signed thinking."""
    kept: list[bytes] = []
    chat = thinking_chat(
        face, sim, tools=[scores.get_score], on_checkpoint=kept.append, settings=BINDING[sim.wire]
    )
    before = chat.chat_with_state(None, user="My name is Ada.", **fields).state
    kept.clear()
    chat.chat_with_state(before, user="Call get_score for team Red.", **fields)
    return kept[-2]


@pytest.mark.parametrize("wire", ["anthropic"])
def test_a_resume_behind_another_prefix_asks_to_drop(face: Any, sim: Any, scores: Any, wire: str) -> None:
    """Open thinking cannot be taken out: the provider is asked to drop it, until the next turn strips it."""
    blob = stopped_in_a_tool_loop(face, sim, scores, system=SYSTEM)
    chat = thinking_chat(face, sim, tools=[scores.get_score], settings=BINDING[sim.wire])

    resumed = chat.resume(blob, system="You are a librarian in Leeds.")
    after = chat.chat_with_state(
        resumed.state, user="What is my name?", system="You are a librarian in Leeds."
    )

    assert scores.runs == ["Red"]
    assert {"thinking_removed", "thinking_unbound", "input_dropped"} <= set(codes(resumed))
    assert "drop_block" in str(sim.requests[-2].parsed["thinking"])
    assert "thinking-binding-controls-2026-08-01" in sim.requests[-2].headers["anthropic-beta"]
    assert codes(after) == ["thinking_removed"]
    assert signed_parts(sent(sim)) == 0
    assert "Your name is Ada." in after.text
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["openai-responses"])
def test_a_provider_that_drops_reasoning_is_quoted(face: Any, sim: Any, scores: Any, wire: str) -> None:
    """Responses drops reasoning by itself and says why; the result passes the reason on."""
    blob = stopped_in_a_tool_loop(face, sim, scores, system=SYSTEM)
    chat = thinking_chat(face, sim, tools=[scores.get_score], settings=BINDING[sim.wire])

    resumed = chat.resume(blob, system="You are a librarian in Leeds.")

    (dropped,) = (warning for warning in resumed.warnings if warning.code == "input_dropped")
    assert "prefix_mismatch" in dropped.message
    assert scores.runs == ["Red"]
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["anthropic"])
def test_refused_signatures_are_taken_out_once(face: Any, sim: Any, run: Any, wire: str) -> None:
    """A 400 for a signature strips the history and asks again; it does not cost the turn."""
    chat = thinking_chat(face, sim)
    state = after_two_turns(chat)
    words = (
        "messages.1.content.0: Invalid signature in thinking block. The block is bound to a different "
        "conversation."
    )
    sim.push(Fault.bad_request(words))

    result = run(chat, state, user="What is my name?")

    assert codes(result) == ["thinking_removed"]
    assert "Your name is Ada." in result.text
    assert signed_parts(sent(sim)) == 0
    assert len(sim.requests) == 4

    sim.push(Fault.bad_request(words), Fault.bad_request(words))
    with pytest.raises(TurnError) as caught:
        run(chat, result.state, user="And now?")
    assert len(sim.requests) == 6
    assert run(chat, caught.value.state, user="What is my name?").status == "complete"


@pytest.mark.parametrize("wire", ["anthropic"])
def test_an_imported_history_with_foreign_thinking_heals(face: Any, sim: Any, run: Any, wire: str) -> None:
    """Thinking that was signed elsewhere is refused by the provider, and then left out."""
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "bm90IG91cnM="},
        {"type": "text", "text": "Hello."},
    ]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "My name is Ada."}]},
        {"role": "assistant", "content": content},
    ]

    result = run(
        thinking_chat(face, sim), state_from_messages("anthropic", messages), user="What is my name?"
    )

    assert "Your name is Ada." in result.text
    assert codes(result) == ["thinking_removed"]


# ------------------------------------------------------------------------------ the prefix only grows


class Teller:
    """Forty turns with tools, events and context."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def look_up(self, ctx: ToolContext[Any], place: str) -> str:
        """What is known of a place.

        Args:
            place: Its name.
        """
        self.told.append(place)
        return f"{place} is quiet tonight."


def common(a: bytes, b: bytes) -> int:
    """How many bytes two requests have in common from their beginning."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


CACHE_MARK = b',"cache_control":{"type":"ephemeral"}'
PLACES = ("Leeds", "York", "Ripon", "Whitby", "Selby")


@pytest.mark.parametrize("compacted", [False, True])
def test_forty_turns_are_read_from_the_cache(face: Any, sim: Any, compacted: bool) -> None:
    """Between two cuts more than 90 % of all input tokens are those of a prefix that was sent before."""
    teller = Teller()
    fields: dict[str, Any] = {"system": f"{SYSTEM} " * 40, "tools": [teller.look_up]}
    if compacted:
        fields["compactor"] = Compactor(MessageLimit(45), KeepRecentTurns(4))
    chat = thinking_chat(face, sim, **fields)
    state = None
    usages: list[Usage] = []
    cuts = 0
    is_cut = True  # nothing has been sent yet

    for number in range(40):
        ask = (
            f"Call look_up for place {PLACES[number % 5]}." if number % 4 == 1 else f"Story {number}, please."
        )
        result = chat.chat_with_state(state, user=ask, context=f"It is {number // 10} o'clock.")
        if not is_cut:
            usages.append(result.usage)
        is_cut = result.compaction is not None
        cuts += is_cut
        state = result.state

    share = sum(u.cached_input_tokens for u in usages) / sum(u.input_tokens for u in usages)
    assert share > 0.9, f"{share:.3f} of the input was cached, with {cuts} cuts"
    assert cuts == (2 if compacted else 0)
    assert len(teller.told) == 10
    assert sim.problems == []


def test_earlier_bytes_of_a_request_never_change(face: Any, sim: Any) -> None:
    """Each request repeats the one before it byte for byte, cache marks aside, to the end of its history."""
    teller = Teller()
    chat = thinking_chat(face, sim, system=SYSTEM, tools=[teller.look_up])
    state = None

    for number in range(6):
        ask = "Call look_up for place York." if number % 2 else f"Story {number}, please."
        state = chat.chat_with_state(state, user=ask).state

    key = HISTORY[sim.wire].encode()
    bodies = [request.body.replace(CACHE_MARK, b"") for request in sim.requests]
    for earlier, later in itertools.pairwise(bodies):
        end = earlier.index(b'"%s":[' % key)
        assert common(earlier, later) >= _end_of_array(earlier, end)
    assert sim.problems == []


def _end_of_array(body: bytes, at: int) -> int:
    """Where the array that begins after `at` ends, its bracket left out."""
    depth, is_text, skip = 0, False, False
    for position in range(at, len(body)):
        char = body[position : position + 1]
        if skip:
            skip = False
        elif is_text:
            skip = char == b"\\"
            is_text = char != b'"'
        elif char == b'"':
            is_text = True
        elif char in b"[{":
            depth += 1
        elif char in b"]}":
            depth -= 1
            if depth == 0:
                return position
    raise AssertionError("the array does not end")


# ------------------------------------------------------------------------------- outside of a turn


@tool
def look(place: str) -> str:
    """Looks around.

    Args:
        place: Where.
    """
    return f"There is a door in {place}."


def test_a_compaction_outside_of_a_turn_asks_behind_the_prefix_of_the_turns(face: Any, sim: Any) -> None:
    """What the chat has not by default goes to `compact_state` as it goes to the turns."""
    beside = {"system": SYSTEM, "tools": [look], "settings": THINK[sim.wire]}
    chat = face.on(sim)
    state = None
    for number in range(4):
        state = chat.chat_with_state(state, user=f"This is number {number}.", **beside).state

    report = chat.compact_state(state, Compactor(MessageLimit(1), Summarize(keep_turns=1)), **beside)

    assert report.outcome == "compacted"
    assert report.usage.cached_input_tokens > 100  # 0 behind another prefix
    assert sim.problems == []


@pytest.mark.parametrize("field", [{"user": "Hello."}, {"turn_id": "1"}, {"metadata": {"a": "b"}}])
def test_a_compaction_takes_nothing_that_a_turn_says(face: Any, sim: Any, field: dict[str, Any]) -> None:
    """It would be lost: no turn begins."""
    chat = face.on(sim)
    state = chat.chat(user="Hello.").state

    with pytest.raises(TypeError, match=f"'{next(iter(field))}' belongs to a turn"):
        chat.compact_state(state, Compactor(MessageLimit(1), KeepRecentTurns(1)), **field)
