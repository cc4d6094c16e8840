"""Which of the messages that wait are a turn's own: after a second delivery, at a fallback, in every form.

If a provider refuses a request, a turn goes on with its own messages alone, and those of others wait on. Only
its own are handed back. Texts, contexts and provider APIs do not tell whose a message is: its row does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Chat,
    Document,
    Image,
    ProviderRejectedError,
    TurnError,
    event,
    system,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.output import Output
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history

from .conftest import FaultyStore, LeasingStore, Threads, blob_in, said

WIRES = ("openai", "openai-responses", "anthropic")
REFUSED = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
DOWN = BackendError("down", status=503)
PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de")

FORMS: dict[str, dict[str, Any]] = {
    "plain": {"messages": [user("Hello.")]},
    "with a speaker": {"messages": [user("Hello.", speaker="Ada")]},
    "with a context": {"messages": [user("Hello.", speaker="Ada")], "context": "It rains."},
    "pinned, with a context": {"messages": [user("Hello.", pinned=True)], "context": "It rains."},
    "with a type": {"messages": [user("Hello.")], "output_type": Output(dict[str, int], mode="prompt")},
    "with a picture": {"messages": [user("Hello.", Image.from_bytes(PNG, media_type="image/png"))]},
    "with a file": {
        "messages": [user("Hello.", Document.from_bytes(b"A text.", media_type="text/plain", name="n.txt"))]
    },
    "of several texts": {"messages": [user("Hello.", "And more.")]},
    "with an event": {"messages": [event("Ada came.", topic="game", id="e-1"), user("Hello.")]},
    "with a system message": {"messages": [user("Hello."), system("Be short.")]},
}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs over every provider API."""
    return str(request.param)


@pytest.fixture
def others(store: FaultyStore, wire: str) -> Callable[..., Any]:
    """Somebody else on the same conversation."""
    return lambda *script: Chat(ScriptedBackend(*script, wire=wire)).conversation(store.inner, "ada")


def strict(request: ModelRequest) -> Any:
    """A provider that refuses one text."""
    return REFUSED if b"Poison." in request.body else '{"value": 1}'


def had(backend: ScriptedBackend, *texts: str) -> list[list[str]]:
    """Which of these texts each request had, each as often as it had it."""
    return [[text for text in texts for _ in range(str(body).count(text))] for body in backend.bodies()]


def check(wire: str, blob: bytes) -> None:
    assert check_history(wire, state_messages(blob)) == []


@pytest.mark.parametrize("to", ["the same", "another"])
@pytest.mark.parametrize("form", FORMS)
def test_a_message_that_is_delivered_again_is_answered_beside_one_that_is_refused(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str, form: str, to: str
) -> None:
    """Whatever was stored with it, and also if the conversation has moved to another provider API since."""
    options = FORMS[form]
    convert = {"on_foreign_state": "convert"}
    with pytest.raises(TurnError):
        kept(ScriptedBackend(DOWN, wire=wire), store, save=save).send(turn_id="m-1", **options)
    others().append(event("Poison."))
    if to == "another":
        wire = WIRES[(WIRES.index(wire) + 1) % 3]
    backend = ScriptedBackend(strict, strict, wire=wire)

    result = kept(backend, store, chat=convert, save=save).send(turn_id="m-1", **options)

    assert result.status == "complete"
    assert had(backend, "Hello.", "Poison.") == [["Hello.", "Poison."], ["Hello."]]
    assert ["It rains." in str(body) for body in backend.bodies()] == ["context" in options] * 2
    assert inspect_state(result.state).waiting_messages == 1
    assert said(result.state).count("Poison.") == 1
    check(wire, result.state)


def test_a_message_that_was_redacted_while_it_waited_is_known(
    kept: Threads, leasing: LeasingStore, save: str, wire: str
) -> None:
    """Its text is another one now. Its turn is the same."""
    backend = ScriptedBackend(DOWN, strict, strict, wire=wire)
    conversation = kept(backend, leasing, save=save)
    with pytest.raises(TurnError):
        conversation.send("Hello. My number is 4711.", turn_id="m-1")
    conversation.append(event("Poison."))
    conversation.redact("4711")

    result = conversation.send("Hello. My number is 4711.", turn_id="m-1")

    assert result.status == "complete"
    assert had(backend, "Hello.", "4711", "Poison.")[1:] == [["Hello.", "Poison."], ["Hello."]]
    check(wire, result.state)


def test_two_deliveries_with_the_same_text_are_two_messages(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """Each is answered once, and a text of somebody else that is equal is not handed to its sender."""
    backend = ScriptedBackend(DOWN, DOWN, REFUSED, "One.", "Two.", wire=wire)
    conversation = kept(backend, store, save=save)
    for turn_id in ("m-1", "m-2"):
        with pytest.raises(TurnError):
            conversation.send("Yes.", turn_id=turn_id)
    others().append(event("Ada won."))

    answers = [conversation.send("Yes.", turn_id=turn_id) for turn_id in ("m-1", "m-2", "m-1", "m-2")]

    assert [(one.text, one.duplicate) for one in answers] == [
        ("One.", False),
        ("Two.", False),
        ("One.", True),
        ("Two.", True),
    ]
    assert had(backend, "Yes.")[2:] == [["Yes."] * 2, ["Yes."], ["Yes."] * 2]
    assert said(blob_in(store)).count("Yes.") == 2
    check(wire, blob_in(store))


def test_an_equal_message_of_somebody_else_stays(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """The refused one comes back to its sender. The other one, and the event, wait on."""
    backend = ScriptedBackend(DOWN, REFUSED, REFUSED, wire=wire)
    conversation = kept(backend, store, save=save)
    with pytest.raises(TurnError):
        conversation.send("Yes.", turn_id="m-1")
    others().append(user("Yes."))
    others().append(event("Ada won."))

    with pytest.raises(ProviderRejectedError) as caught:
        conversation.send("Yes.", turn_id="m-1")

    assert [message.text for message in caught.value.pending_input] == ["Yes."]
    assert said(blob_in(store)) == ["Yes.", "Ada won."]


def test_a_reminder_of_a_closed_turn_is_its_own(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """A turn that was closed without a reply is asked for again by a reminder, which waits like a message."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    backend = ScriptedBackend(Calls([("look", {})]), DOWN, "Other.", DOWN, strict, strict, wire=wire)
    conversation = kept(backend, store, chat={"tools": [look]}, save=save)
    with pytest.raises(TurnError):
        conversation.send("Hello.", turn_id="m-1")
    conversation.send("Other?", turn_id="m-2")
    with pytest.raises(TurnError):
        conversation.send("Hello.", turn_id="m-1")
    others().append(event("Poison."))

    result = conversation.send("Hello.", turn_id="m-1")

    assert result.status == "complete"
    assert had(backend, "delivered once more", "Poison.")[-2:] == [
        ["delivered once more", "Poison."],
        ["delivered once more"],
    ]
    assert said(result.state).count("Poison.") == 1
    check(wire, result.state)


@pytest.mark.parametrize("first", [DOWN, None], ids=["again", "new"])
def test_a_context_that_came_back_is_sent_again(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str, first: Any
) -> None:
    """The context and the metadata of a refused message leave the conversation with it."""
    backend = ScriptedBackend(*([first] if first else []), REFUSED, REFUSED, "Hi.", wire=wire)
    conversation = kept(backend, store, save=save)
    given: dict[str, Any] = {"turn_id": "m-1", "context": "It rains.", "metadata": {"kind": "refused"}}
    if first:
        with pytest.raises(TurnError):
            conversation.send("Poison.", **given)
    others().append(event("Ada won."))
    with pytest.raises(ProviderRejectedError):
        conversation.send("Poison.", **given)

    result = conversation.send("Hello.", context="It rains.")

    assert had(backend, "It rains.", "Ada won.", "Hello.")[-1] == ["It rains.", "Ada won.", "Hello."]
    assert read_history(result.state).turns[-1].metadata == {}
    check(wire, result.state)


def test_the_context_of_somebody_else_stays_with_their_message(
    kept: Threads, store: FaultyStore, save: str, wire: str
) -> None:
    """Beside a pinned message it is a message of its own."""
    backend = ScriptedBackend(DOWN, DOWN, REFUSED, REFUSED, "Hi.", wire=wire)
    conversation = kept(backend, store, save=save)
    pinned: dict[str, Any] = {
        "messages": [user("From Bob.", pinned=True)],
        "turn_id": "m-2",
        "context": "It rains.",
    }
    for options in (pinned, {"user": "From Ada.", "turn_id": "m-1"}):
        with pytest.raises(TurnError):
            conversation.send(**options)

    with pytest.raises(ProviderRejectedError) as caught:
        conversation.send("From Ada.", turn_id="m-1")
    result = conversation.send(**pinned)

    assert [message.text for message in caught.value.pending_input] == ["From Ada."]
    assert had(backend, "It rains.", "From Bob.", "From Ada.")[2:] == [
        ["It rains.", "From Bob.", "From Ada."],
        ["From Ada."],
        ["It rains.", "From Bob."],
    ]
    check(wire, result.state)


def test_a_context_that_waits_with_another_message_is_sent_again(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """The request may go without that message."""
    backend = ScriptedBackend(DOWN, strict, strict, wire=wire)
    conversation = kept(backend, store, save=save)
    with pytest.raises(TurnError):
        conversation.send("Hello.", turn_id="m-1", context="It rains.")
    others().append(event("Poison."))

    result = conversation.send("And now?", turn_id="m-2", context="It rains.")

    assert had(backend, "It rains.", "Hello.", "And now?")[-1] == ["It rains.", "And now?"]
    check(wire, result.state)


@pytest.mark.parametrize("turn_id", [None, "m-1"])
def test_a_fallback_knows_the_messages_of_the_turn(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str, turn_id: str | None
) -> None:
    """The chat's own provider rests, the fallback is down, and at home the request is refused."""
    home = ScriptedBackend(BackendError("gone"), strict, strict, wire=wire)
    backup = ScriptedBackend("One.", DOWN, wire=wire)
    conversation = kept(home, store, chat={"fallbacks": [backup]}, save=save)
    conversation.send("First.")
    others().append(event("Poison."))

    result = conversation.send("Hello.", turn_id=turn_id)

    assert result.status == "complete"
    assert had(home, "Hello.", "Poison.")[1:] == [["Hello.", "Poison."], ["Hello."]]
    assert said(result.state).count("Poison.") == 1
    assert inspect_state(result.state).waiting_messages == 1
    check(wire, result.state)


def test_what_is_left_waiting_twice_waits_once(
    kept: Threads, leasing: LeasingStore, save: str, wire: str
) -> None:
    """One message is left waiting. At the turn's end another comes, and its request is refused, too."""
    other = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")

    def last(_: ModelRequest) -> str:
        other.append(user("Late."))
        return "First."

    backend = ScriptedBackend(REFUSED, last, REFUSED, "Next.", wire=wire)
    conversation = kept(backend, leasing, save=save, gate="steer")
    other.append(user("Ada won."))

    first = conversation.send("Hello.", turn_id="m-1")
    waiting = other.state()
    second = conversation.send("And now?")

    assert (first.text, second.text) == ("First.", "Next.")
    assert said(waiting) == ["Hello.", "First.", "Ada won.", "Late."]
    assert said(second.state) == ["Hello.", "First.", "Ada won.", "Late.", "And now?", "Next."]
    check(wire, second.state)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_resume_claims_what_waits_before_a_tool_runs(
    kept: Threads, leasing: LeasingStore, save: str, wire: str, idempotent: bool
) -> None:
    """So a message that was withdrawn is in no request."""
    other = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")
    answers: list[bool] = []

    @tool(requires_approval=True, idempotent=idempotent)
    def look() -> str:
        """Look."""
        answers.append(other.withdraw(id))
        return "seen"

    backend = ScriptedBackend(Calls([("look", {})]), "Hi.", wire=wire)
    conversation = kept(backend, leasing, chat={"tools": [look]}, save=save, gate="steer")
    (call,) = conversation.send("Hello.").pending
    (id,) = other.append(event("Ada won."))

    result = conversation.resume({call.id: Approve()})

    assert result.status == "complete"
    assert answers == [False]
    assert had(backend, "Ada won.") == [[], ["Ada won."]]
    assert said(result.state).count("Ada won.") == 1
    check(wire, result.state)


@pytest.mark.parametrize("turn_id", [None, "m-1"])
def test_a_context_is_sent_once(
    kept: Threads, store: FaultyStore, save: str, wire: str, turn_id: str | None
) -> None:
    """A resume and a fallback go on with the message that has it already."""
    home = ScriptedBackend(DOWN, DOWN, DOWN, wire=wire)
    backup = ScriptedBackend(DOWN, DOWN, "Sure.", wire=wire)
    conversation = kept(home, store, chat={"fallbacks": [backup], "context": "It rains."}, save=save)
    with pytest.raises(TurnError):
        conversation.send("Hello.", turn_id=turn_id)
    with pytest.raises(TurnError):
        conversation.resume()

    result = conversation.resume()

    assert had(home, "It rains.") + had(backup, "It rains.") == [["It rains."]] * 6
    assert said(result.state)[-1] == "Sure."
    check(wire, result.state)


@pytest.mark.parametrize("options", [FORMS["with a type"], {"context": "It snows."}], ids=["type", "context"])
def test_a_resume_asks_for_nothing_but_a_message(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str, options: dict[str, Any]
) -> None:
    """The type of an answer and a context are no messages: with them alone there is nothing to answer."""
    backend = ScriptedBackend(DOWN, strict, "Sure.", wire=wire)
    conversation = kept(backend, store, save=save)
    with pytest.raises(TurnError):
        conversation.send("Hello.")
    others().append(event("Poison."))

    with pytest.raises(ProviderRejectedError) as caught:
        conversation.resume(**{name: value for name, value in options.items() if name != "messages"})

    assert len(backend.requests) == 2
    assert {"Hello.", "Poison."} <= {message.text for message in caught.value.pending_input}


def test_a_message_of_a_bare_chat_is_known_in_a_store(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """Its state was put into a store: the message waits there, and is delivered again."""
    with pytest.raises(TurnError) as failed:
        Chat(ScriptedBackend(DOWN, wire=wire, max_retries=0)).chat_with_state(
            b"", user="Hello.", turn_id="m-1"
        )
    store.inner.save("ada", failed.value.state, expected=None)
    others().append(event("Poison."))
    backend = ScriptedBackend(strict, strict, wire=wire)

    result = kept(backend, store, save=save).send("Hello.", turn_id="m-1")

    assert result.status == "complete"
    assert said(result.state).count("Poison.") == 1
    check(wire, result.state)


def test_the_metadata_of_another_turn_stays(
    kept: Threads, store: FaultyStore, others: Any, save: str, wire: str
) -> None:
    """Two turns with equal metadata wait, and one of them is refused."""
    backend = ScriptedBackend(DOWN, DOWN, REFUSED, REFUSED, "Hi.", wire=wire)
    conversation = kept(backend, store, save=save)
    for turn_id, text in (("m-2", "From Bob."), ("m-1", "From Ada.")):
        with pytest.raises(TurnError):
            conversation.send(text, turn_id=turn_id, metadata={"lang": "de"})
    with pytest.raises(ProviderRejectedError):
        conversation.send("From Ada.", turn_id="m-1", metadata={"lang": "de"})

    result = conversation.resume()

    assert read_history(result.state).turns[-1].metadata == {"lang": "de"}
    assert said(result.state) == ["From Bob.", "Hi."]
