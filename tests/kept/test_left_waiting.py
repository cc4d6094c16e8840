"""What others put into a kept conversation stays in it when a provider refuses a request.

It may be the only copy: its author was told that it is stored. A refused message comes back to its own caller
only, whose process may end before it could store what the error hands back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    BudgetExceededError,
    Chat,
    Limits,
    ProviderRejectedError,
    StateSizeError,
    TurnError,
    event,
    tool,
)
from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.states import inspect_state, read_history, state_from_messages, state_messages
from goaitools_py.testing import Calls, Raw, ScriptedBackend, check_history

from ..history._damage import Words
from ..history._lenient import HABITS, base_history
from .conftest import FaultyStore, Threads, blob_in, said

WIRES = ("openai", "openai-responses", "anthropic")
REFUSED = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
DOWN = BackendError("down", status=503)
NAMES = ("Ada won.", "Poison.", "Hello.", "And now?", "Queued.")


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs over every provider API."""
    return str(request.param)


@pytest.fixture
def others(store: FaultyStore, wire: str) -> Callable[..., Any]:
    """Somebody else on the same conversation, with a script."""

    def make(*script: Any, **fields: Any) -> Any:
        return Chat(ScriptedBackend(*script, wire=wire), **fields).conversation(store.inner, "ada")

    return make


def sent(backend: ScriptedBackend) -> list[list[str]]:
    """Which of the texts of these tests stood in each request."""
    return [[name for name in NAMES if name in str(body)] for body in backend.bodies()]


def check(wire: str, blob: bytes) -> None:
    assert check_history(wire, state_messages(blob)) == []


def test_a_refused_message_goes_alone(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """It comes back to its caller. The event of somebody else is not handed to them: the next turn has it."""
    backend = ScriptedBackend(REFUSED, REFUSED, "Hi.", wire=wire)
    conversation = kept(backend, store, save=save)
    others().append(event("Ada won.", id="e-1"))

    with pytest.raises(ProviderRejectedError) as caught:
        conversation.send("Poison.", turn_id="m-1")
    stored = blob_in(store)
    others().append(event("Ada won.", id="e-1"))  # its id is known: it is not said twice
    result = conversation.send("Hello.")

    assert [message.text for message in caught.value.pending_input] == ["Poison."]
    assert (said(stored), caught.value.state) == (["Ada won."], stored)
    assert said(result.state) == ["Ada won.", "Hello.", "Hi."]
    assert sent(backend) == [["Ada won.", "Poison."], ["Poison."], ["Ada won.", "Hello."]]
    check(wire, result.state)


def test_a_poisoned_event_in_a_history_that_is_refused_too(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """Either alone is refused. Both remedies together get the message answered, and the event is not lost."""
    history = base_history(Words(wire))
    HABITS[wire]["names with a dot" if wire != "anthropic" else "ids with other characters"](history)
    store.inner.save("ada", state_from_messages(wire, history), expected=None)
    odd = b"functions.look"

    def strict(request: ModelRequest) -> Any:
        return REFUSED if odd in request.body or b"Poison." in request.body else "Hi."

    backend = ScriptedBackend(*[strict] * 6, wire=wire)
    conversation = kept(backend, store, save=save)
    others().append(event("Poison.", id="e-1"))

    first = conversation.send("Hello.")
    second = conversation.send("And now?")

    assert sent(backend) == [
        ["Poison.", "Hello."],
        ["Hello."],
        ["Hello."],
        ["Poison.", "Hello.", "And now?"],
        ["Hello.", "And now?"],
    ]
    assert (first.text, second.text) == ("Hi.", "Hi.")
    assert "Poison." in said(blob_in(store))
    assert [odd in request.body for request in backend.requests] == [True, True, False, False, False]
    check(wire, second.state)


def test_an_event_that_is_refused_waits_and_the_message_is_answered(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """The provider takes the request without the event, which goes along with each turn until it is taken."""
    backend = ScriptedBackend(REFUSED, "Hi.", REFUSED, "Well.", "I see.", wire=wire)
    conversation = kept(backend, store, save=save)
    others().append(event("Ada won.", id="e-1"))

    first = conversation.send("Hello.")
    second = conversation.send("And now?")
    waiting = inspect_state(second.state).waiting_messages
    third = conversation.send("What?")

    assert [one.text for one in (first, second, third)] == ["Hi.", "Well.", "I see."]
    assert [[w.code for w in one.warnings] for one in (first, second, third)] == [["left_waiting"]] * 2 + [[]]
    assert waiting == 1
    assert said(third.state) == ["Hello.", "Hi.", "And now?", "Well.", "Ada won.", "What?", "I see."]
    assert sent(backend)[:2] == [["Ada won.", "Hello."], ["Hello."]]
    check(wire, third.state)


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_process_that_dies_at_the_save_of_its_refused_turn_loses_nothing(
    store: FaultyStore, others: Any, save: str, wire: str, place: str
) -> None:
    """Nobody hears of what the provider refused. What was acknowledged to others is in the store."""
    others().append(event("Ada won."))
    backend = ScriptedBackend(REFUSED, REFUSED, "Hi.", wire=wire)
    died: list[bool] = []

    class Dying:
        """A store that a process reaches for the last time with a save behind its last request."""

        def load(self, key: str) -> Any:
            self.check()
            return store.inner.load(key)

        def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
            self.check()
            is_last = len(backend.requests) == 2
            if is_last and place == "before":
                self.die()
            version = store.inner.save(key, blob, expected=expected)
            if is_last:
                self.die()
            return version

        def die(self) -> None:
            died.append(True)
            raise KeyboardInterrupt

        def check(self) -> None:
            if died:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Chat(backend).conversation(Dying(), "ada", save=save).send("Poison.", turn_id="m-1")  # type: ignore[arg-type]

    assert died
    assert "Ada won." in said(blob_in(store))
    assert said(others("Hi.").send("Hello.").state).count("Ada won.") == 1
    # The process of the tests lives on, and settles this turn at its end.
    Dying.check = Dying.die = lambda _: None  # type: ignore[method-assign]


def test_a_queued_message_that_is_left_waiting_keeps_its_turn_id(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """It has no reply yet. So its next delivery is answered, and a later one gets that answer again."""

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    one = others(Calls([("pay", {})]), tools=[pay])
    (call,) = one.send("Pay.").pending
    one.send("Queued.", turn_id="q-1", on_pending="queue")
    backend = ScriptedBackend(REFUSED, "Paid.", "To the queued one.", wire=wire)
    conversation = kept(backend, store, chat={"tools": [pay]}, save=save)

    paid = conversation.resume({call.id: Approve()})
    answered = conversation.send("Queued.", turn_id="q-1")
    again = conversation.send("Queued.", turn_id="q-1")

    assert (paid.text, paid.tool_log[0].result, paid.tool_log[0].flag) == ("Paid.", "paid", "ok")
    assert (answered.text, answered.duplicate) == ("To the queued one.", False)
    assert (again.text, again.duplicate) == ("To the queued one.", True)
    assert said(again.state).count("Queued.") == 1
    assert sent(backend) == [["Queued."], [], ["Queued."]]
    check(wire, again.state)


def test_a_message_that_is_delivered_again_and_refused_goes_alone(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """It waited like the event. Its `turn_id` tells whose it is, and may be used again."""
    backend = ScriptedBackend(DOWN, REFUSED, REFUSED, "Hi.", wire=wire)
    conversation = kept(backend, store, save=save)
    with pytest.raises(TurnError):
        conversation.send("Poison.", turn_id="m-1")
    others().append(event("Ada won."))

    with pytest.raises(ProviderRejectedError) as caught:
        conversation.send("Poison.", turn_id="m-1")
    result = conversation.send("Hello.", turn_id="m-1")

    assert [message.text for message in caught.value.pending_input] == ["Poison."]
    assert said(result.state) == ["Ada won.", "Hello.", "Hi."]
    check(wire, result.state)


def test_what_is_left_waiting_waits_until_the_turn_is_over(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """Later requests of the turn go without it as well. A reply that is no reply leaves it there once."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    backend = ScriptedBackend(REFUSED, Calls([("look", {})]), "Hi.", wire=wire)
    conversation = kept(backend, store, chat={"tools": [look]}, save=save)
    others().append(event("Ada won."))

    result = conversation.send("Hello.")

    assert sent(backend) == [["Ada won.", "Hello."], ["Hello."], ["Hello."]]
    assert said(result.state)[-1] == "Ada won."
    assert said(result.state).count("Ada won.") == 1
    assert read_history(result.state).turns[0].messages[0].text == "Hello."
    check(wire, result.state)


@pytest.mark.parametrize("trouble", [DOWN, b"<html>"], ids=["down", "no reply"])
def test_a_turn_that_fails_after_it_left_something_waiting_has_all_of_it(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str, trouble: Any
) -> None:
    """Both messages wait in the state, each once."""
    second = Raw.body(trouble) if isinstance(trouble, bytes) else trouble
    backend = ScriptedBackend(REFUSED, second, "Hi.", wire=wire)
    conversation = kept(backend, store, save=save)
    others().append(event("Ada won."))

    with pytest.raises(TurnError) as caught:
        conversation.send("Hello.")
    before = said(blob_in(store))
    result = conversation.resume()

    assert caught.value.pending_input == ()
    assert sorted(before) == ["Ada won.", "Hello."]
    assert sorted(said(result.state)) == ["Ada won.", "Hello.", "Hi."]
    check(wire, result.state)


def test_a_budget_hands_back_the_callers_message_only(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """Nothing was sent, and nothing is wrong with what waits."""
    others().append(event("Ada won."))
    limits = Limits(conversation_max_tokens=1)
    conversation = kept(ScriptedBackend("1", wire=wire), store, save=save)
    conversation.send("Hi.")
    others().append(event("And now?"))

    with pytest.raises(BudgetExceededError) as caught:
        kept(ScriptedBackend(wire=wire), store, chat={"limits": limits}, save=save).send("Hello.")

    assert [message.text for message in caught.value.pending_input] == ["Hello."]
    assert said(blob_in(store))[-1] == "And now?"


def test_a_message_above_the_limit_goes_alone(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """No state has room for it. What others had put in waits on, and goes along with the next message."""
    chat = {"codec": Plain(limits=BlobLimits(max_decoded_bytes=20_000))}
    others(**chat).append(event("Ada won."))
    backend = ScriptedBackend("Hi.", wire=wire)
    conversation = kept(backend, store, chat=chat, save=save)

    with pytest.raises(StateSizeError) as caught:
        conversation.send(f"Poison. {random.Random(1).randbytes(15_000).hex()}")
    stored = blob_in(store)
    result = conversation.send("Hello.")

    assert [message.text[:7] for message in caught.value.pending_input] == ["Poison."]
    assert (said(stored), caught.value.state) == (["Ada won."], stored)
    assert said(result.state) == ["Ada won.", "Hello.", "Hi."]
    assert sent(backend) == [["Ada won.", "Hello."]]


def test_what_leaves_no_room_for_a_message_is_handed_back_with_it(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """Each fits alone, and both do not. If the event stayed, it would keep out the next message, too."""
    chat = {"codec": Plain(limits=BlobLimits(max_decoded_bytes=20_000))}
    others(**chat).append(event(f"Ada won. {'a' * 11_000}"))
    backend = ScriptedBackend("Hi.", wire=wire)
    conversation = kept(backend, store, chat=chat, save=save)

    with pytest.raises(StateSizeError) as caught:
        conversation.send(f"Poison. {'b' * 9_500}")
    result = conversation.send(f"Hello. {'c' * 9_500}")

    assert [message.text[:7] for message in caught.value.pending_input] == ["Ada won", "Poison."]
    assert [text[:6] for text in said(result.state)] == ["Hello.", "Hi."]


def test_what_waits_alone_is_handed_back_as_before(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """A `resume` has nothing else to say. So the caller gets what the provider refuses, and can go on."""
    others().append(event("Ada won."))
    conversation = kept(ScriptedBackend(REFUSED, "Hi.", wire=wire), store, save=save)

    with pytest.raises(ProviderRejectedError) as caught:
        conversation.resume()

    assert [message.text for message in caught.value.pending_input] == ["Ada won."]
    assert said(conversation.send("Hello.").state) == ["Hello.", "Hi."]
