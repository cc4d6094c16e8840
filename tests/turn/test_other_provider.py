"""A turn on a state of another provider API: converted if the options say so, and told."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from goaitools_py import Approve, StateProviderError, event, tool, user
from goaitools_py.backends.base import BackendError
from goaitools_py.backends.dialects import WIRES
from goaitools_py.compaction import Compactor, KeepRecentTurns, TurnLimit
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.states import (
    convert_state,
    inspect_state,
    pending_calls,
    read_history,
    rebase_state,
    state_from_messages,
    state_messages,
)
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.types.events import StateConverted

from ..conftest import Face

PAIRS = [pytest.param(*pair, id="-to-".join(pair)) for pair in permutations(WIRES, 2)]
ran: list[int] = []


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    ran.append(amount)
    return f"paid {amount}"


def begun(face: Face, wire: str, *replies: Any, said: str = "I am Ada.", **fields: Any) -> bytes:
    chat = face.chat(ScriptedBackend(*replies, wire=wire), **fields)
    return chat.chat_with_state(None, user=said, turn_id="t-1").state


@pytest.mark.parametrize(("wire", "to"), PAIRS)
def test_a_conversation_survives_a_change_of_provider(face: Face, wire: str, to: str) -> None:
    """The model reads what was said; the result, an event and the list of cuts say that it was converted."""
    state = begun(face, wire, "Hello Ada.")
    backend = ScriptedBackend("You are Ada.", wire=to)
    heard: list[Any] = []

    result = face.chat(backend, on_foreign_state="convert").chat_with_state(
        state, user="Who am I?", on_event=heard.append
    )

    said = [message.text for message in read_history(result.state).all_messages()]
    assert said == ["I am Ada.", "Hello Ada.", "Who am I?", "You are Ada."]
    (warning,) = [one for one in result.warnings if one.code == "state_converted"]
    assert repr(wire) in warning.message and repr(to) in warning.message  # noqa: PT018
    (told,) = [one for one in heard if isinstance(one, StateConverted)]
    assert (told.found, told.to, told.lost) == (wire, to, ())
    assert told.to_dict()["turn_ref"].endswith("-2")
    assert inspect_state(result.state).wire == to
    assert check_history(to, state_messages(result.state)) == []
    assert b"I am Ada." in backend.requests[0].body


def test_without_the_option_nothing_is_converted(face: Face) -> None:
    """It raises, and names the ways on."""
    state = begun(face, "openai", "Hello Ada.")

    with pytest.raises(StateProviderError, match="on_foreign_state='convert'"):
        face.chat(ScriptedBackend("Hi.", wire="anthropic")).chat_with_state(state, user="Who am I?")


@pytest.mark.parametrize(("wire", "to"), PAIRS)
def test_an_approval_is_given_to_another_provider(face: Face, wire: str, to: str) -> None:
    """The call waits in one provider's state, and runs once with the other."""
    ran.clear()
    state = begun(face, wire, Calls([("pay", {"amount": 5})]), tools=[pay])
    (call,) = pending_calls(state)
    chat = face.chat(ScriptedBackend("Paid.", wire=to), tools=[pay], on_foreign_state="convert")

    result = chat.resume(state, {call.id: Approve()})

    assert (ran, result.text) == ([5], "Paid.")
    assert chat.chat_with_state(result.state, user="I am Ada.", turn_id="t-1").duplicate


@pytest.mark.parametrize(("wire", "to"), PAIRS)
def test_events_wait_in_the_states_own_words(face: Face, wire: str, to: str) -> None:
    """An append converts nothing, so nothing is lost by it; the next turn does."""
    state = begun(face, wire, "Hello Ada.")
    chat = face.chat(ScriptedBackend("It rains.", wire=to), on_foreign_state="convert")

    appended = chat.append_to_state(state, event("Rain began."))
    result = chat.chat_with_state(appended)

    assert inspect_state(appended).wire == wire
    assert [message.text for message in read_history(result.state).all_messages()][2:] == [
        "Rain began.",
        "It rains.",
    ]


def test_a_compaction_converts_too(face: Face) -> None:
    """What it gives is a state of the chat's own provider API."""
    state = face.chat(ScriptedBackend("A.", "B.")).run_turns(None, ["1", "2"]).state
    chat = face.chat(ScriptedBackend(wire="anthropic"), on_foreign_state="convert")

    report = chat.compact_state(state, Compactor(TurnLimit(1), KeepRecentTurns(1)))

    assert (report.outcome, inspect_state(report.state).wire) == ("compacted", "anthropic")


@pytest.mark.parametrize(("wire", "to"), PAIRS)
def test_a_refused_message_leaves_the_state_as_it_was_given(face: Face, wire: str, to: str) -> None:
    """No model has accepted anything, so the conversation stays where it was, byte for byte."""
    from goaitools_py import ProviderRejectedError

    state = begun(face, wire, "Hello Ada.")
    refusing = ScriptedBackend(_refusal(), wire=to)

    with pytest.raises(ProviderRejectedError) as caught:
        face.chat(refusing, on_foreign_state="convert").chat_with_state(state, user="Who am I?")

    assert caught.value.state == state


def _refusal() -> Exception:
    from goaitools_py.backends.base import BackendError

    return BackendError("no", status=400, body=b'{"error":{"message":"no","type":"invalid_request_error"}}')


@pytest.mark.parametrize(("wire", "to"), PAIRS)
def test_additions_of_both_provider_apis_are_joined(face: Face, wire: str, to: str) -> None:
    """One worker had a turn with another provider while a second one appended, and the other way round."""
    base = begun(face, wire, "Hello Ada.")
    turned = (
        face.chat(ScriptedBackend("You are Ada.", wire=to), on_foreign_state="convert")
        .chat_with_state(base, user="Who am I?")
        .state
    )
    appended = face.chat(ScriptedBackend(wire=wire)).append_to_state(base, event("Rain began."))

    for mine, theirs in ((turned, appended), (appended, turned)):
        joined = rebase_state(mine, base=base, theirs=theirs)
        history = read_history(joined)
        assert inspect_state(joined).wire == to
        assert [turn.messages[-1].text for turn in history.turns] == ["Hello Ada.", "You are Ada."]
        assert [message.text for message in history.waiting] == ["Rain began."]


def test_an_unknown_provider_api_is_not_converted(face: Face) -> None:
    """This release cannot read its entries."""
    from goaitools_py.state.state import dump_state, new_state

    state = dump_state(new_state("of-another-package", id="x", created=1))

    with pytest.raises(StateProviderError):
        face.chat(ScriptedBackend(), on_foreign_state="convert").chat_with_state(state, user="Hello?")
    assert convert_state(begun(face, "openai", "Hi."), "anthropic").losses == ()


def many_calls(codec: Plain) -> bytes:
    """A conversation on Anthropic: 10 turns of 25 calls. It is 40 entries, and 270 or more on other APIs."""
    messages: list[Any] = []
    for turn in range(10):
        ids = [f"toolu_{turn}_{place}" for place in range(25)]
        uses = [{"type": "tool_use", "id": id, "name": "nod", "input": {}} for id in ids]
        results = [{"type": "tool_result", "tool_use_id": id, "content": "x"} for id in ids]
        messages += [
            {"role": "user", "content": f"Q{turn}"},
            {"role": "assistant", "content": uses},
            {"role": "user", "content": results},
            {"role": "assistant", "content": "Done."},
        ]
    return state_from_messages("anthropic", messages, codec=codec)


@pytest.mark.parametrize("falls_back", [False, True])
@pytest.mark.parametrize("to", ["openai", "openai-responses"])
def test_a_conversation_may_have_more_calls_than_entries_are_allowed(
    face: Face, to: str, falls_back: bool
) -> None:
    """One entry of Anthropic has the results of many calls. On another API the oldest turns are cut."""
    codec = Plain(limits=BlobLimits(max_entries=100))
    state = many_calls(codec)
    there = ScriptedBackend("Hi.", wire=to)
    if falls_back:
        down = [BackendError("down", kind="overloaded", status=529)] * 3
        chat = face.chat(ScriptedBackend(*down, wire="anthropic"), fallbacks=[there], codec=codec)
    else:
        chat = face.chat(there, on_foreign_state="convert", codec=codec)

    result = chat.chat_with_state(state, user="Next.")

    turns = read_history(result.state, codec=codec).turns
    assert result.text == "Hi."
    assert "emergency_cut" in [warning.code for warning in result.warnings]
    assert [turn.number for turn in turns][-2:] == [10, 11]
    assert check_history(to, state_messages(result.state, codec=codec)) == []


def test_a_message_is_put_onto_a_conversation_that_has_moved_to_another_provider(face: Face) -> None:
    """Also where that conversation was cut, and the one with the message has more calls than entries."""
    codec = Plain(limits=BlobLimits(max_entries=100))
    base = many_calls(codec)
    here = face.chat(ScriptedBackend(wire="anthropic"), codec=codec)
    mine = here.append_to_state(base, user("By the way."))
    there = face.chat(ScriptedBackend("Hi.", wire="openai"), codec=codec, on_foreign_state="convert")
    theirs = there.chat_with_state(base, user="Next.").state

    merged = rebase_state(mine, base=base, theirs=theirs, codec=codec)

    said = [message.text for message in read_history(merged, codec=codec).all_messages()]
    assert said[-3:] == ["Next.", "Hi.", "By the way."]
