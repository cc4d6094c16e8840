"""Claims: a turn marks the messages that it sends, so that they cannot be withdrawn while a model reads them.

When no turn sends them any more, they can be withdrawn again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from goaitools_py import Chat, StoreUnavailableError, ToolPendingError, TurnError, event, tool, user
from goaitools_py.backends.base import BackendError
from goaitools_py.states import state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.types.messages import Message

from .conftest import LeasingStore, Threads, blob_in, said

WIRES = ("openai", "openai-responses", "anthropic")
REFUSED = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
DOWN = BackendError("down", status=503)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs over every provider API."""
    return str(request.param)


@pytest.fixture
def other(leasing: LeasingStore, wire: str) -> Any:
    """Another worker on the same conversation."""
    return Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")


@tool(requires_approval=True)
def pay() -> str:
    """Pay."""
    return "Paid."


def interrupted(conversation: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        conversation.send("Hello.", turn_id="m-1")


def failed(conversation: Any) -> None:
    with pytest.raises(TurnError):
        conversation.send("Hello.", turn_id="m-1")


def exits(_: Any) -> Any:
    raise KeyboardInterrupt


ENDS: dict[str, tuple[Callable[[Any], None], Any]] = {
    "interrupted": (interrupted, exits),
    "failed": (failed, DOWN),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("meanwhile", ["nothing", "a title", "messages", "a save without an answer"])
def test_a_turn_that_ends_before_a_reply_releases_its_claims(
    kept: Threads, leasing: LeasingStore, other: Any, wire: str, save: str, end: str, meanwhile: str
) -> None:
    """Whatever came beside it."""
    (id,) = other.append(user("Ada won."))
    act, answer = ENDS[end]

    def fault() -> None:
        leasing.faults.clear()
        other.append(event("One."))
        other.append(event("Two."))
        raise StoreUnavailableError("lost on the way")

    def model(request: Any) -> Any:
        if meanwhile == "a title":
            other.update(title="News")
        elif meanwhile == "messages":
            other.append(event("One."))
        elif meanwhile == "a save without an answer":
            leasing.faults = [fault]
        return answer(request) if callable(answer) else answer

    backend = ScriptedBackend(model, wire=wire, max_retries=0)
    conversation = kept(backend, leasing, save=save, gate="steer", save_timeout=5.0)

    act(conversation)

    assert not other.is_running()
    assert other.withdraw(id) is True
    assert "Ada won." not in said(blob_in(leasing))


def test_what_waits_behind_a_waiting_turn_can_be_withdrawn(
    kept: Threads, leasing: LeasingStore, other: Any, wire: str, save: str
) -> None:
    """A turn waits for an approval, perhaps for days, and went on without a message that was refused."""
    (id,) = other.append(event("Poison."))
    seen: list[Any] = []

    def model(request: Any) -> Any:
        seen.append(request)
        return REFUSED if b"Poison." in request.body else Calls([("pay", {})])

    backend = ScriptedBackend(model, model, wire=wire)
    result = kept(backend, leasing, chat={"tools": [pay]}, save=save, gate="steer").send("Pay.")

    assert (result.status, len(seen)) == ("awaiting_tools", 2)
    assert other.withdraw(id) is True


def test_an_event_of_a_turns_own_is_claimed(
    kept: Threads, leasing: LeasingStore, other: Any, wire: str, save: str
) -> None:
    """It has an id, and somebody may have appended it before."""
    answers: list[bool] = []

    def model(_: Any) -> str:
        (id,) = other.append(event("Ada won.", id="e-1"))  # it is there, so nothing is added
        answers.append(other.withdraw(id))
        return "Well."

    conversation = kept(ScriptedBackend(model, wire=wire), leasing, save=save, gate="steer")

    result = conversation.send(messages=[event("Ada won.", id="e-1")], turn_id="m-1")

    assert answers == [False]
    assert said(result.state) == ["Ada won.", "Well."]


@pytest.mark.parametrize("gate", ["reject", "steer"])
def test_a_turn_whose_message_was_withdrawn_is_new(
    kept: Threads, leasing: LeasingStore, wire: str, save: str, gate: str
) -> None:
    """Its id is as if it had never come. A turn that has another message left keeps its id."""
    for more in ([], [user("Hello.")]):
        leasing.inner.delete("ada")
        backend = ScriptedBackend(DOWN, "Sure.", wire=wire, max_retries=0)
        conversation = kept(backend, leasing, save=save, gate=gate)
        sent = {"messages": [event("Ada won.", id="e-1"), *more], "turn_id": "m-1"}
        with pytest.raises(TurnError):
            conversation.send(**sent)
        (id,) = conversation.append(event("Ada won.", id="e-1"))
        assert conversation.withdraw(id) is True

        result = conversation.send(**sent)

        assert said(result.state) == ["Hello.", "Sure."] if more else ["Ada won.", "Sure."]
        assert conversation.send(**sent).duplicate
        assert check_history(wire, state_messages(result.state)) == []


@pytest.mark.parametrize("is_refused", [False, True])
def test_an_empty_message_blocks_no_conversation(
    kept: Threads, leasing: LeasingStore, other: Any, wire: str, save: str, is_refused: bool
) -> None:
    """A caller gave one without parts, and the next turn has a context."""
    with suppress(ValueError):  # Anthropic has no place for it
        other.append(Message(role="user", parts=()))
    backend = ScriptedBackend(*[REFUSED] * is_refused, "Hi.", "Well.", wire=wire)
    conversation = kept(backend, leasing, chat={"context": "It rains."}, save=save, gate="steer")

    result = conversation.send("Hello.", turn_id="m-1") if not is_refused else None
    if is_refused:
        with suppress(TurnError, ToolPendingError):
            result = conversation.send("Hello.", turn_id="m-1")

    assert result is None or result.text in ("Hi.", "Well.")
    assert conversation.send("And now?").text in ("Hi.", "Well.")
