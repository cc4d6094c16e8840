"""What an edit does with events, with what came along with a message, and with a message that is said again.

An event stays if it was sent alone. What came with a message that goes, goes with it.
"""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import (
    assistant,
    event,
    tool,
    user,
)
from goaitools_py.backends.dialects import dialect_for
from goaitools_py.history.branch import before_message
from goaitools_py.open_turn.inbox import FORMAT, reminder
from goaitools_py.state.records import digest8
from goaitools_py.states import EditError
from goaitools_py.testing import Calls, ScriptedBackend

from ._edits import DOWN, fails, rows_of, state_in, waiting
from .conftest import FaultyStore, Threads, blob_in, said


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs over every provider API."""
    return str(request.param)


def test_an_event_that_waits_again_keeps_its_topic_and_id(
    kept: Threads, store: FaultyStore, wire: str
) -> None:
    """So a newer event of the topic replaces it, as if the turn had not been."""
    backend = ScriptedBackend("One.", "New.", wire=wire)
    conversation = kept(backend, store)
    conversation.append(event("1:0", topic="score", id="s-1"))
    conversation.send("first", turn_id="m-1")
    conversation.send(messages=[event("2:0", topic="score"), user("changed")], edit="m-1", turn_id="m-2")
    assert "1:0" not in str(backend.bodies()[-1])
    before = before_message(state_in(store), "m-2", dialect_for(wire, None))
    assert before.inbox == ()


# ---------------------------------------------------------------------- events and ids


def test_an_event_that_was_sent_alone_stays_with_its_id(
    kept: Threads, store: FaultyStore, save: str, wire: str
) -> None:
    """Behind a message that waits, and behind a turn. So a second delivery of it is known."""
    for answered in (False, True):
        fresh = FaultyStore()
        backend = ScriptedBackend("One." if answered else DOWN, DOWN, "New.", wire=wire, max_retries=0)
        conversation = kept(backend, fresh, save=save)
        if answered:
            conversation.send("first", turn_id="m-1")
        else:
            fails(conversation, "first", turn_id="m-1")
        fails(conversation, None, messages=[event("Ada won.")], turn_id="e-1")
        edited = before_message(state_in(fresh), "m-1", dialect_for(wire, None))
        assert waiting(edited) == [("Ada won.", "e-1")]
        assert rows_of(edited)[0] == ["e-1"]
        conversation.send("changed", edit="m-1", turn_id="m-2")
        assert conversation.send(messages=[event("Ada won.")], turn_id="e-1").duplicate
        assert said(blob_in(fresh)) == ["Ada won.", "changed", "New."]


@pytest.mark.parametrize("answered", [False, True])
def test_what_came_with_a_message_goes_with_it(
    kept: Threads, store: FaultyStore, wire: str, answered: bool
) -> None:
    """Its event, whose id is free again if nobody has read it, and a reply that the caller has given. Events
    of others stay."""
    backend = ScriptedBackend("One." if answered else DOWN, "New.", wire=wire, max_retries=0)
    conversation = kept(backend, store)
    conversation.append(event("Bob came."))
    sent = [event("Cart: 3.", id="c-1"), user("Buy.")]
    if answered:
        conversation.send(messages=sent, turn_id="m-1")
    else:
        sent = [*sent, assistant("Buy what?"), user("Hats.")]
        fails(conversation, None, messages=sent, turn_id="m-1")
    conversation.append(event("Bob left."))
    conversation.send("Wait.", edit="m-1", turn_id="m-2")
    assert said(blob_in(store)) == ["Bob came.", "Bob left.", "Wait.", "New."]
    assert (digest8("c-1") in state_in(store).meta.events) is answered


def test_the_description_of_an_answer_goes_with_its_message(
    kept: Threads, store: FaultyStore, wire: str
) -> None:
    """It stands behind the message as an event. The next message asks for no such answer."""
    from goaitools_py.open_turn.attempts import asked_in_words

    backend = ScriptedBackend(DOWN, DOWN, wire=wire, max_retries=0)
    conversation = kept(backend, store)
    fails(conversation, "first", turn_id="m-1")
    fails(conversation, "second", turn_id="m-2")
    dialect = dialect_for(wire, None)
    state = asked_in_words(state_in(store), "Answer as JSON.", dialect, turn=digest8("m-2"))
    edited = before_message(state, "m-2", dialect)
    assert waiting(edited) == [("first", "m-1")]
    assert not any(item.topic == FORMAT for item in edited.inbox)


def test_the_second_message_of_a_send(kept: Threads, store: FaultyStore, wire: str) -> None:
    """The id that a front end shows names it. The first message stays, and with it the turn id of both."""
    for answered in (False, True):
        fresh = FaultyStore()
        backend = ScriptedBackend("One." if answered else DOWN, wire=wire, max_retries=0)
        conversation = kept(backend, fresh)
        if answered:
            conversation.send(messages=[user("first"), user("second")], turn_id="m-1")
        else:
            fails(conversation, None, messages=[user("first"), user("second")], turn_id="m-1")
        state = state_in(fresh)
        shown = f"{state.meta.id}-1u2" if answered else f"{state.meta.id}-waiting-2"
        edited = before_message(state, shown, dialect_for(wire, None))
        assert waiting(edited) == [("first", "m-1")]
        assert rows_of(edited) == (["m-1"], {})


# ---------------------------------------------------------------------- a message that is said again


def closed_without_reply(kept: Threads, store: FaultyStore, wire: str, *script: Any) -> tuple[Any, Any]:
    """A turn of m-1 whose tool ran, and which m-2 has closed."""

    @tool
    def look() -> str:
        """Look."""
        return "dark"

    backend = ScriptedBackend(Calls([("look", {})]), DOWN, "Two.", *script, wire=wire, max_retries=0)
    conversation = kept(backend, store, chat={"tools": [look]})
    fails(conversation, "first", turn_id="m-1")
    conversation.send("second", turn_id="m-2")
    return conversation, backend


def test_the_row_of_an_unanswered_turn_stays(kept: Threads, store: FaultyStore, wire: str) -> None:
    """Its reminder waits, and a message behind it is edited, while it waits and after both were answered."""
    text = reminder([user("first")]).text
    for answered in (False, True):
        fresh = FaultyStore()
        conversation, _ = closed_without_reply(kept, fresh, wire, DOWN, "Both." if answered else DOWN)
        fails(conversation, "first", turn_id="m-1")
        if answered:
            conversation.send("third", turn_id="m-3")
            assert rows_of(state_in(fresh))[1]["m-1"] == "complete"
        else:
            fails(conversation, "third", turn_id="m-3")
        edited = before_message(state_in(fresh), "m-3", dialect_for(wire, None))
        assert waiting(edited) == [(text, "m-1")]
        assert rows_of(edited)[0] == ["m-1"]
        assert rows_of(edited)[1]["m-1"] == "unanswered"


def test_not_the_reminder_but_the_message_is_edited(kept: Threads, store: FaultyStore, wire: str) -> None:
    """It stands in an earlier turn. The reminder goes too, wherever it is."""
    for answered in (False, True):
        fresh = FaultyStore()
        conversation, _ = closed_without_reply(kept, fresh, wire, "Once more." if answered else DOWN, "New.")
        if answered:
            conversation.send("first", turn_id="m-1")
        else:
            fails(conversation, "first", turn_id="m-1")
        conversation.send("changed", edit="m-1", turn_id="m-4")
        assert said(blob_in(fresh)) == ["changed", "New."]


def test_no_message_of_others_is_taken_for_a_reminder(kept: Threads, store: FaultyStore, wire: str) -> None:
    """The model has read only the reminder and somebody's message: this one is not the one to edit."""
    conversation, _ = closed_without_reply(kept, store, wire, "Both.")
    conversation.append(user("From Bob."))
    conversation.send("first", turn_id="m-1")
    edited = before_message(state_in(store), "m-1", dialect_for(wire, None))
    assert (edited.inbox, edited.meta.turns) == ((), 0)
    with pytest.raises(EditError, match="no message of this conversation"):
        before_message(state_in(store), "m-9", dialect_for(wire, None))
