"""An edit takes exactly the named message and what came after it. All else keeps its marks, ids and rows.

The messages wait, or some of them wait behind a turn that is unfinished, or equal texts stand side by side.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Chat,
    Document,
    ProviderRejectedError,
    Text,
    assistant,
    event,
    tool,
    user,
)
from goaitools_py.backends.dialects import dialect_for
from goaitools_py.base.values import replace
from goaitools_py.history import message_places
from goaitools_py.history.branch import before_message
from goaitools_py.state.records import digest8
from goaitools_py.state.state import ConversationState, closed_turns, load_state
from goaitools_py.states import EditError, convert_state, redact_state
from goaitools_py.testing import Calls, ScriptedBackend
from tests import _history_laws

from ._edits import DOWN, REFUSED, fails, put, rows_of, state_in, waiting
from .conftest import FaultyStore, Threads, blob_in, other, said


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs over every provider API."""
    return str(request.param)


THERE = {"openai": "anthropic", "openai-responses": "openai", "anthropic": "openai-responses"}
"""For each provider API another one."""


# ---------------------------------------------------------------------- the marks of what stays


@pytest.mark.parametrize("is_open", [False, True])
def test_messages_that_wait_again_keep_their_turn(
    kept: Threads, store: FaultyStore, save: str, wire: str, is_open: bool
) -> None:
    """Two senders were answered together, and the second one edits. The first one's message is still its own:
    a refusal hands each sender only what is theirs."""

    @tool
    def look() -> str:
        """Look."""
        return "dark"

    def strict(request: Any) -> Any:
        return REFUSED if b"Poison." in request.body else "Fine."

    read: list[Any] = [Calls([("look", {})]), DOWN] if is_open else ["Both."]
    backend = ScriptedBackend(DOWN, *read, DOWN, *[strict] * 6, wire=wire, max_retries=0)
    conversation = kept(backend, store, save=save, chat={"tools": [look]})
    fails(conversation, "From Bob.", turn_id="m-1", metadata={"who": "bob"})
    if is_open:
        fails(conversation, "From Ada.", turn_id="m-2")
    else:
        conversation.send("From Ada.", turn_id="m-2")
    fails(conversation, "Changed.", turn_id="m-3", edit="m-2")

    state = state_in(store)
    assert waiting(state) == [("From Bob.", "m-1"), ("Changed.", "m-3")]
    assert rows_of(state)[0] == ["m-1", "m-3"]
    assert state.meta.said == {"who": "bob"}
    other(store, wire=wire).append(event("Poison."))
    result = conversation.send("From Bob.", turn_id="m-1")
    assert (result.text, [one.code for one in result.warnings]) == ("Fine.", ["left_waiting"])
    assert waiting(state_in(store))[0] == ("Changed.", "m-3")
    _history_laws.check(blob_in(store))


def test_a_refusal_hands_back_what_the_sender_has_sent(
    kept: Threads, store: FaultyStore, save: str, wire: str
) -> None:
    """The edit is delivered again, and its own text is refused."""
    backend = ScriptedBackend(DOWN, "Both.", DOWN, *[REFUSED] * 4, wire=wire, max_retries=0)
    conversation = kept(backend, store, save=save)
    fails(conversation, "From Bob.", turn_id="m-1")
    conversation.send("From Ada.", turn_id="m-2")
    fails(conversation, "Changed.", turn_id="m-3", edit="m-2")
    with pytest.raises(ProviderRejectedError) as caught:
        conversation.send("Changed.", turn_id="m-3", edit="m-2")
    assert [one.text for one in caught.value.pending_input] == ["Changed."]
    assert waiting(state_in(store)) == [("From Bob.", "m-1")]


# ---------------------------------------------------------------------- an open turn that stays


def test_the_turn_that_waits_stays_itself(kept: Threads, store: FaultyStore, save: str, wire: str) -> None:
    """A message is queued behind an approval, and edited there. The turn before it is not run again."""
    paid: list[int] = []

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    backend = ScriptedBackend(Calls([("pay", {})]), "Paid, and hello.", wire=wire)
    conversation = kept(backend, store, save=save, chat={"tools": [pay]})
    (call,) = conversation.send("Pay.", turn_id="m-1").pending
    conversation.send("Helo.", turn_id="m-2", on_pending="queue")
    opened = state_in(store).open
    conversation.send("Hello.", turn_id="m-3", edit="m-2", on_pending="queue")
    assert state_in(store).open == opened
    assert rows_of(state_in(store)) == (["m-1", "m-3"], {})

    conversation.resume({call.id: Approve()})
    again = conversation.send("Pay.", turn_id="m-1")
    assert (again.text, again.duplicate, paid, len(backend.requests)) == ("Paid, and hello.", True, [1], 2)
    assert rows_of(state_in(store)) == ([], {"m-1": "complete", "m-3": "complete"})


def test_a_failed_turn_beside_the_edited_message_is_known(
    kept: Threads, leasing: Any, save: str, wire: str
) -> None:
    """Its tool ran. A second delivery of its message must not begin from nothing: it gets a reminder."""

    @tool
    def charge() -> str:
        """Charge the card."""
        return "charged"

    backend = ScriptedBackend(Calls([("charge", {})]), DOWN, "Answer.", "Charged.", wire=wire, max_retries=0)
    conversation = kept(backend, leasing, save=save, gate="steer", chat={"tools": [charge]})
    fails(conversation, "Charge me.", turn_id="m-1")
    put(leasing, wire, "Typo.", "m-2")
    conversation.send("Correct.", turn_id="m-3", edit="m-2")
    assert rows_of(state_in(leasing)) == ([], {"m-1": "unanswered", "m-3": "complete"})
    conversation.send("Charge me.", turn_id="m-1")
    assert said(blob_in(leasing)).count("Charge me.") == 1
    assert "Typo." not in said(blob_in(leasing))


# ---------------------------------------------------------------------- the message that is meant


@pytest.mark.parametrize("texts", [("Yes.", "Yes."), ("No.", "Yes.")])
@pytest.mark.parametrize("answered", [False, True])
def test_of_equal_texts_the_named_one_goes(
    kept: Threads, store: FaultyStore, save: str, wire: str, texts: tuple[str, str], answered: bool
) -> None:
    """While both wait, and in the turn that has answered both."""
    backend = ScriptedBackend(DOWN, "Both." if answered else DOWN, "New.", wire=wire, max_retries=0)
    conversation = kept(backend, store, save=save)
    fails(conversation, texts[0], turn_id="m-1")
    if answered:
        conversation.send(texts[1], turn_id="m-2")
    else:
        fails(conversation, texts[1], turn_id="m-2")
    conversation.send("Changed.", turn_id="m-3", edit="m-2")
    assert said(blob_in(store)) == [texts[0], "Changed.", "New."]
    assert conversation.send(texts[0], turn_id="m-1").duplicate


def test_many_equal_texts(kept: Threads, store: FaultyStore, wire: str) -> None:
    """Of each place in a turn, and while they wait: the text of the place is cut off there."""
    for answered in (False, True):
        for place in range(1, 6):
            fresh = FaultyStore()
            backend = ScriptedBackend(*[DOWN] * 4, "All." if answered else DOWN, wire=wire, max_retries=0)
            conversation = kept(backend, fresh)
            for n in range(1, 6):
                if n == 5 and answered:
                    conversation.send("Yes.", turn_id=f"m-{n}")
                else:
                    fails(conversation, "Yes.", turn_id=f"m-{n}")
            edited = before_message(state_in(fresh), f"m-{place}", dialect_for(wire, None))
            assert waiting(edited) == [("Yes.", f"m-{n}") for n in range(1, place)]
            assert rows_of(edited)[0] == [f"m-{n}" for n in range(1, place)]


def test_an_equal_text_that_was_appended_before_stays(kept: Threads, store: FaultyStore, wire: str) -> None:
    """It has no turn id. The message of the send stands behind it."""
    conversation = kept(ScriptedBackend("One.", "New.", wire=wire), store)
    conversation.append(user("Yes."))
    conversation.send("Yes.", turn_id="m-1")
    conversation.send("Changed.", edit="m-1", turn_id="m-2")
    assert said(blob_in(store)) == ["Yes.", "Changed.", "New."]


def test_a_waiting_message_whose_bytes_changed(
    kept: Threads, store: FaultyStore, save: str, wire: str
) -> None:
    """It was redacted, and somebody's message was appended behind it."""
    backend = ScriptedBackend(DOWN, "New.", wire=wire, max_retries=0)
    conversation = kept(backend, store, save=save)
    fails(conversation, "My number is 4711.", turn_id="m-1")
    conversation.redact("4711")
    conversation.append(user("From Bob."))
    conversation.append(event("Ada won."))
    conversation.send("Changed.", edit="m-1", turn_id="m-2")
    assert said(blob_in(store)) == ["Ada won.", "Changed.", "New."]


def test_an_answered_message_whose_bytes_changed(kept: Threads, store: FaultyStore, wire: str) -> None:
    """A redaction writes the digests of the messages that it changes anew, so each is still found."""
    backend = ScriptedBackend(DOWN, "Both.", "New.", wire=wire, max_retries=0)
    conversation = kept(backend, store)
    fails(conversation, "My number is 4711.", turn_id="m-1")
    conversation.append(user("From Bob."))
    conversation.send("From Ada.", turn_id="m-2")
    conversation.redact("4711")
    edited = before_message(state_in(store), "m-2", dialect_for(wire, None))
    assert [text for text, _ in waiting(edited)] == ["My number is [redacted].", "From Bob."]
    conversation.redact("Ada")
    both = before_message(state_in(store), "m-1", dialect_for(wire, None))
    assert waiting(both) == []
    assert conversation.send("My number is 4711.", turn_id="m-1").duplicate
    assert conversation.send("From Ada.", turn_id="m-2").duplicate


@pytest.mark.parametrize("places", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
@pytest.mark.parametrize("answered", [False, True])
def test_a_message_is_found_behind_conversions(
    kept: Threads, store: FaultyStore, wire: str, places: tuple[int, int, int], answered: bool
) -> None:
    """Beside it are messages without an id. The bytes are others each time."""
    backend = ScriptedBackend(DOWN, "All." if answered else DOWN, wire=wire, max_retries=0)
    conversation = kept(backend, store)
    texts = ["From Ada.", "From Bob.", "From Cem."]
    for at, place in enumerate(places):
        if at == 2:
            answer = conversation.send if answered else partial(fails, conversation)
            answer(texts[place], turn_id=f"m-{place}")
        elif place:
            conversation.append(user(texts[place]))
        else:
            fails(conversation, texts[place], turn_id="m-0")
    blob = blob_in(store)
    for to in (THERE[wire], wire):
        blob = convert_state(blob, to).state
        state = load_state(blob)
        for place in {0, places[2]} if 0 in places[:2] else {places[2]}:
            before = [texts[one] for one in places[: places.index(place)]]
            edited = before_message(state, f"m-{place}", dialect_for(to, None))
            assert [text for text, _ in waiting(edited)] == before
    again = ScriptedBackend("New.", wire=wire)
    with Chat(again) as chat:
        result = chat.chat_with_state(blob, user=texts[places[2]], turn_id=f"m-{places[2]}")
        assert result.duplicate == answered
        assert said(result.state).count(texts[places[2]]) == 1


@pytest.mark.parametrize("change", ["convert", "redact", "edit", "a number", "an unknown edit"])
def test_a_long_history_is_read_a_few_times(wire: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each of its turns: an edit of 1,000 turns would take seconds."""
    state, reads = b"", []
    with Chat(ScriptedBackend(*["Yes."] * 40, wire=wire)) as chat:
        for n in range(40):
            state = chat.chat_with_state(state, user=f"Room {n}?", turn_id=f"m-{n}").state
    monkeypatch.setattr(message_places, "closed_turns", lambda state: reads.append(1) or closed_turns(state))

    if change == "convert":
        state = convert_state(state, THERE[wire]).state
    elif change == "redact":
        state = redact_state(state, "Room").state
    else:
        named: Any = {"edit": "m-1", "a number": 2, "an unknown edit": "m-99"}[change]
        with pytest.raises(EditError) if change == "an unknown edit" else nullcontext():
            before_message(load_state(state), named, dialect_for(wire, None))

    assert 0 < len(reads) < 7
    if change in ("convert", "redact"):
        assert all("~" in row.said for row in load_state(state).meta.ring)


def test_rows_that_an_earlier_release_has_written(kept: Threads, store: FaultyStore, wire: str) -> None:
    """Without marks the digests decide, and the messages with a mark are no candidates."""
    backend = ScriptedBackend(*[DOWN] * 3, wire=wire, max_retries=0)
    conversation = kept(backend, store)
    for n, text in ((1, "Yes."), (2, "No."), (3, "Yes.")):
        fails(conversation, text, turn_id=f"m-{n}")
    state = state_in(store)
    for bare, places in (((0, 1, 2), (0, 1, 2)), ((2,), (0, 1, 2)), ((0, 2), (0, 1, 2)), ((1,), (0, 1, 2))):
        items = [replace(one, more=b"") if at in bare else one for at, one in enumerate(state.inbox)]
        for n, place in enumerate(places, 1):
            given = replace(state, inbox=tuple(items))
            edited = before_message(given, f"m-{n}", dialect_for(wire, None))
            assert edited.inbox == given.inbox[:place]
            assert rows_of(edited)[0] == [f"m-{left}" for left in range(1, n)]


def test_a_file_before_the_text_is_part_of_the_message(kept: Threads, store: FaultyStore, wire: str) -> None:
    """The context before it is not."""
    file = Document.from_bytes(b"A line.", "text/plain", name="a.txt")
    backend = ScriptedBackend(DOWN, "Both.", wire=wire, max_retries=0)
    conversation = kept(backend, store)
    fails(conversation, [file, Text("Read it.")], turn_id="m-1", context="It is dark.")
    conversation.send("And?", turn_id="m-2")
    state = state_in(store)
    # A guess would take the newest messages: it must not be needed.
    state = replace(state, meta=replace_ids(state, ["m-2", "m-1"]))
    edited = before_message(state, "m-2", dialect_for(wire, None))
    assert [mark for _, mark in waiting(edited)] == ["m-1"]


def replace_ids(state: ConversationState, order: list[str]) -> Any:
    """The meta data with the rows of the ring in another order."""
    import msgspec

    ring = sorted(state.meta.ring, key=lambda row: [digest8(id) for id in order].index(row.id))
    return msgspec.structs.replace(state.meta, ring=tuple(ring))


@pytest.mark.parametrize("gate", ["queue", "steer"])
@pytest.mark.parametrize("moment", ["TurnStarted", "ModelRequested"])
def test_an_edit_that_ends_before_its_request_keeps_the_branch(
    kept: Threads, leasing: Any, save: str, wire: str, gate: str, moment: str
) -> None:
    """The new message waits, and the old conversation is in a branch, as after an outage."""
    backend = ScriptedBackend("Old.", wire=wire)
    conversation = kept(backend, leasing, save=save, gate=gate, keep_branches=True)
    conversation.send("One.", turn_id="m-1")

    turn = conversation.start("Two.", turn_id="m-2", edit="m-1")
    for one in turn:
        if type(one).__name__ == moment:
            break
    turn.cancel()

    (branch,) = [row.key for row in leasing.list().keys if ".branch." in row.key]
    assert len(backend.requests) == 1
    assert (said(blob_in(leasing)), said(blob_in(leasing, branch))) == (["Two."], ["One.", "Old."])


@pytest.mark.parametrize("greetings", [1, 2])
@pytest.mark.parametrize("edit", ["m-1", 1])
def test_the_first_message_behind_a_greeting_is_edited(
    kept: Threads, store: FaultyStore, save: str, wire: str, edit: Any, greetings: int
) -> None:
    """The application has said it, and no model: it stays in front of the new message."""
    backend = ScriptedBackend("One.", "New.", wire=wire)
    conversation = kept(backend, store, save=save)
    hello = [assistant("Welcome!"), assistant("I am the guide.")][:greetings]
    conversation.append(*hello)
    conversation.send("first", turn_id="m-1")
    conversation.send("changed", edit=edit, turn_id="m-2")
    assert said(blob_in(store)) == [*(one.text for one in hello), "changed", "New."]
