"""Messages that come while a turn runs: the turn reads them, once, and in the order in which they came."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    Chat,
    Compactor,
    Conversation,
    KeepRecentTurns,
    Limits,
    MessageLimit,
    NothingToResumeError,
    ProviderRejectedError,
    ToolContext,
    ToolPendingError,
    TurnError,
    TurnInProgressError,
    event,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.states import (
    convert_state,
    export_state,
    import_state,
    inspect_state,
    read_history,
    redact_state,
    state_messages,
)
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.turn import flow, ledger

from .conftest import FaultyStore, LeasingStore, PartedStore, Threads, blob_in, said

WIRES = ("openai", "openai-responses", "anthropic")
REFUSED = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
DOWN = BackendError("down", status=503)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs over every provider API."""
    return str(request.param)


@tool(idempotent=True)
def look(ctx: ToolContext) -> str:
    """Look around."""
    return "A room."


CALL = Calls([("look", {})])


def then(act: Callable[[], Any], answer: Any) -> Callable[[ModelRequest], Any]:
    """A step of a script: somebody acts while the model answers."""

    def step(_: ModelRequest) -> Any:
        act()
        return answer

    return step


class Group:
    """A conversation that steers, with a script, and the same one as other workers have it."""

    def __init__(self, kept: Threads, store: Any, wire: str, save: str = "turn", **fields: Any) -> None:
        self.store, self.wire = store, wire
        self.backend = ScriptedBackend(wire=wire)
        how = {"gate": "steer", "save": save, **fields}
        self.mine = kept(self.backend, store, chat={"tools": [look]}, **how)

    def other(self, *script: Any, gate: str = "steer", **fields: Any) -> Conversation:
        """The conversation of another worker."""
        chat = Chat(ScriptedBackend(*script, wire=self.wire), tools=[look])
        return chat.conversation(self.store.inner, "ada", gate=gate, **fields)  # type: ignore[arg-type]

    def sent(self, *names: str) -> list[list[str]]:
        """Which of these texts each request had, in the order of the request."""
        bodies = [request.body.decode() for request in self.backend.requests]
        return [sorted((one for one in names if one in body), key=body.index) for body in bodies]

    def check(self, *texts: str) -> None:
        """The stored conversation is what the provider takes, and says these texts, without tool calls."""
        blob = blob_in(self.store)
        assert check_history(self.wire, state_messages(blob)) == []
        assert [text for text in said(blob) if text] == list(texts)


@pytest.fixture
def group(kept: Threads, leasing: LeasingStore, wire: str, save: str) -> Group:
    """A conversation that steers: both colours, every provider API, both ways of saving."""
    return Group(kept, leasing, wire, save)


class Sender:
    """A steering send that is driven by hand: it gives its message to the running turn, and waits."""

    def __init__(self, conversation: Conversation, text: str, **fields: Any) -> None:
        self.turn = conversation.start(text, **fields)
        self.first = next(iter(self.turn))

    def result(self) -> Any:
        return self.turn.result()


# ------------------------------------------------------------------------------------ what a turn reads


def test_the_next_model_call_reads_what_was_appended(group: Group) -> None:
    """Behind the results, in the order of arrival, once, from any worker."""
    add = lambda *texts: group.other().append(*map(event, texts))  # noqa: E731
    group.backend.then(then(lambda: add("One.", "Two."), CALL), then(lambda: add("Three."), CALL), "Well.")

    result = group.mine.send("Hello.")

    assert (result.text, result.status, result.iterations) == ("Well.", "complete", 3)
    assert group.sent("Hello.", "One.", "Two.", "Three.") == [
        ["Hello."],
        ["Hello.", "One.", "Two."],
        ["Hello.", "One.", "Two.", "Three."],
    ]
    group.check("Hello.", "One.", "Two.", "Three.", "Well.")
    assert result.state == blob_in(group.store)
    bodies = [request.body for request in group.backend.requests]
    assert all(b"A room." in body for body in bodies[1:])
    assert all(body.index(b"A room.") < body.index(b"One.") for body in bodies[1:])


def test_a_turn_that_is_about_to_end_takes_in_what_came(group: Group) -> None:
    """One more call, with a turn of its own. The result is the last reply, also of a second delivery."""
    group.backend.then(then(lambda: group.other().append(event("Late.")), "First."), "Second.")

    result = group.mine.send("Hello.", turn_id="m-1")

    assert (result.text, result.status) == ("Second.", "complete")
    assert [turn.text for turn in read_history(result.state).turns] == ["First.", "Second."]
    group.check("Hello.", "First.", "Late.", "Second.")
    again = group.mine.send("Hello.", turn_id="m-1")
    assert (again.text, again.duplicate) == ("Second.", True)


def test_only_the_running_turns_gate_decides(kept: Threads, leasing: LeasingStore, wire: str) -> None:
    """With another gate an append stays as it is. One send may have a gate of its own."""
    group = Group(kept, leasing, wire, gate="queue")
    group.backend.then(then(lambda: group.other().append(event("One.")), CALL), "Well.")
    group.backend.then(then(lambda: group.other().append(event("Two.")), CALL), "Yes.")

    group.mine.send("Hello.")
    group.mine.send("Again.", gate="steer")

    assert group.sent("One.", "Two.") == [[], [], ["One."], ["One.", "Two."]]
    group.check("Hello.", "Well.", "One.", "Again.", "Two.", "Yes.")


@pytest.mark.parametrize("gate", ["queue", "reject", "steer"])
def test_a_turn_without_the_gate_looks_for_nothing(
    kept: Threads, wire: str, save: str, gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No effect, and no call of the store, is made for it. With the gate: one look for each model call after
    the first, and one at the end."""
    looks, store = 0, LeasingStore()
    made = flow.Look

    def counted(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        return made(*args)

    monkeypatch.setattr(ledger, "Look", counted)
    group = Group(kept, store, wire, save, gate=gate)
    group.backend.then(CALL, CALL, "Well.")

    group.mine.send("Hello.")

    expected = 3 if gate == "steer" else 0
    assert (looks, store.loads) == (expected, 1 + expected)
    # Checkpoints: the message, two replies with calls, and each call's start and result; the end.
    assert len(store.saves) == (1 if save == "turn" else len(store.saves))
    if gate != "steer":
        counts.setdefault((wire, save), len(store.saves))
    assert len(store.saves) == counts.setdefault((wire, save), len(store.saves))


counts: dict[tuple[str, str], int] = {}
"""The saves of the turn above, which are the same with each gate."""


def test_a_limit_leaves_what_came_to_the_next_turn(group: Group) -> None:
    """A turn that has no call left ends with its reply."""
    group.backend.then(then(lambda: group.other().append(event("Late.")), "First."), "Second.")

    first = group.mine.send("Hello.", limits=Limits(max_iterations=1))
    second = group.mine.send("And now?")

    assert (first.text, second.text) == ("First.", "Second.")
    group.check("Hello.", "First.", "Late.", "And now?", "Second.")


def test_what_came_is_saved_before_it_is_sent(group: Group) -> None:
    """The row has the claim when the request goes out: a process may die behind it."""
    rows: list[bytes] = []
    group.backend.then(
        then(lambda: group.other().append(event("One.")), CALL),
        then(lambda: rows.append(blob_in(group.store)), "Well."),
    )

    group.mine.send("Hello.", turn_id="m-1")

    assert "One." in said(rows[0])
    for again in (True, False):
        store = MemoryStore()
        store.save("ada", rows[0], expected=None)
        backend = ScriptedBackend("Went on.", wire=group.wire)
        conversation = Chat(backend, tools=[look]).conversation(store, "ada", gate="steer")
        result = conversation.send("Hello.", turn_id="m-1") if again else conversation.resume()
        assert [text for text in said(result.state) if text] == ["Hello.", "One.", "Went on."]
        assert check_history(group.wire, state_messages(result.state)) == []
        assert backend.requests[0].body.count(b"One.") == 1


def test_a_process_that_dies_behind_the_last_claim(group: Group) -> None:
    """The reply before it was whole: the turn goes on with the new message, and says the new reply only."""
    rows: list[bytes] = []
    group.backend.then(
        then(lambda: group.other().append(event("Late.")), "First."),
        then(lambda: rows.append(blob_in(group.store)), "Second."),
    )
    group.mine.send("Hello.", turn_id="m-1")
    store = MemoryStore()
    store.save("ada", rows[0], expected=None)

    result = Chat(ScriptedBackend("Went on.", wire=group.wire)).conversation(store, "ada").resume()

    assert result.text == "Went on."
    assert said(result.state) == ["Hello.", "First.", "Late.", "Went on."]


def test_a_delivery_takes_back_only_what_it_brought(group: Group) -> None:
    """Two deliveries hand a message to a running turn. The second one has no time: the first one waits."""
    senders: list[Sender] = []
    failures: list[Exception] = []

    def act() -> None:
        senders.append(Sender(group.other(), "Second.", turn_id="m-2"))
        with pytest.raises(TurnInProgressError) as caught:
            group.other().send("Second.", turn_id="m-2", timeout=0.001)
        failures.append(caught.value)

    group.backend.then(then(act, "First."), "To the second.")
    result = group.mine.send("Hello.", turn_id="m-1")

    assert (len(failures), result.text) == (1, "To the second.")
    group.check("Hello.", "First.", "Second.", "To the second.")
    assert senders[0].result().text == "To the second."


@pytest.mark.parametrize("failure", ["down", "refused"])
@pytest.mark.parametrize("appended", [0, 1])
def test_a_turn_that_failed_releases_what_it_had_claimed(group: Group, failure: str, appended: int) -> None:
    """No turn runs any more, so the message can be withdrawn, also if another one came meanwhile."""
    other = group.other()
    (id,) = other.append(event("Ada won."))
    more = lambda: other.append(*[event("More.")] * appended)  # noqa: E731
    status = 503 if failure == "down" else 400
    error = BackendError("no", status=status, body=b'{"error": {"message": "no"}}')
    group.backend.then(*[then(more, error)] + [error] * 5)

    with pytest.raises(TurnError):
        group.mine.send("Hello.", turn_id="m-1")

    assert other.withdraw(id) is True
    assert "Ada won." not in said(blob_in(group.store))


@pytest.mark.parametrize("next_one", ["again", "resume", "new"])
def test_a_turn_that_was_over_is_not_asked_again(group: Group, next_one: str) -> None:
    """A process dies behind the claim at its turn's end, and the message that came then is refused to its
    sender. The first turn has its reply: nobody pays for it again."""
    rows: list[bytes] = []
    senders: list[Sender] = []
    late = lambda: senders.append(Sender(group.other("Late too."), "Late.", turn_id="m-2"))  # noqa: E731
    group.backend.then(
        then(late, "First."),
        then(lambda: rows.append(blob_in(group.store)), "Second."),
    )
    group.mine.send("Hello.", turn_id="m-1")
    store, refused = MemoryStore(), BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
    store.save("ada", rows[0], expected=None)
    backend = ScriptedBackend(refused, "Well.", wire=group.wire)
    conversation = Chat(backend).conversation(store, "ada", gate="steer")

    with pytest.raises(ProviderRejectedError) as caught:
        conversation.send("Late.", turn_id="m-2")
    if next_one == "new":
        conversation.send("And now?")
    if next_one == "resume":  # the refused message is gone, and the turn before it is over
        with pytest.raises(NothingToResumeError):
            conversation.resume()
    result = conversation.send("Hello.", turn_id="m-1")

    assert [message.text for message in caught.value.pending_input] == ["Late."]
    assert (result.text, result.status) == ("First.", "complete")
    assert len(backend.requests) == (2 if next_one == "new" else 1)
    more = ["And now?", "Well."] if next_one == "new" else []
    assert said(blob_in(store)) == ["Hello.", "First.", *more]
    assert read_history(blob_in(store)).turns[0].status == "complete"
    assert check_history(group.wire, state_messages(blob_in(store))) == []


@pytest.mark.parametrize("change", ["", "redact", "convert", "compact", "export"])
@pytest.mark.parametrize("again", [True, False])
def test_a_turn_that_was_over_has_its_reply(group: Group, again: bool, change: str) -> None:
    """A process dies behind the claim at its turn's end. The message that came then waits for a turn."""
    rows: list[bytes] = []
    wire = group.wire
    group.backend.then(
        then(lambda: group.other().append(event("Late.")), "First."),
        then(lambda: rows.append(blob_in(group.store)), "Second."),
    )
    group.mine.send("Hello.", turn_id="m-1")
    store, refused = MemoryStore(), BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
    row = rows[0]
    if change == "redact":
        row = redact_state(row, "Late", "Tardy").state
    elif change == "convert":
        wire = "anthropic" if wire == "openai" else "openai"
        row = convert_state(row, wire).state
    elif change == "export":
        row = import_state(export_state(row))
    elif change == "compact":
        row = Chat(group.backend).compact_state(row, Compactor(MessageLimit(1), KeepRecentTurns(1))).state
    store.save("ada", row, expected=None)
    backend = ScriptedBackend(refused, "Well.", wire=wire)
    conversation = Chat(backend, tools=[look]).conversation(store, "ada", gate="steer")

    late = "Tardy." if change == "redact" else "Late."
    if again:
        result = conversation.send("Hello.", turn_id="m-1")
        assert (result.text, result.status, result.duplicate) == ("First.", "complete", True)
        assert (inspect_state(result.state).waiting_messages, backend.requests) == (1, [])
    else:
        with pytest.raises(ProviderRejectedError) as caught:
            conversation.resume()
        assert [message.text for message in caught.value.pending_input] == [late]
    then_ = conversation.send("And now?")

    assert said(then_.state) == ["Hello.", "First.", "And now?", "Well.", *([late] if again else [])]
    assert check_history(wire, state_messages(then_.state)) == []


def test_a_title_that_was_set_meanwhile_stays(group: Group) -> None:
    """The claim keeps everything that another worker has added."""

    def act() -> None:
        group.other().update(title="A house", metadata={"place": "York"})
        group.other().append(event("One."))

    group.backend.then(then(act, CALL), "Well.")

    group.mine.send("Hello.")

    info = group.mine.info()
    assert (info.title, info.metadata) == ("A house", {"place": "York"})


@pytest.mark.parametrize("kind", [LeasingStore, PartedStore])
def test_histories_in_parts_steer_too(kept: Threads, wire: str, kind: Any) -> None:
    """A look loads the head alone."""
    store = kind()
    fields = {"parts": "store"} if kind is PartedStore else {}
    group = Group(kept, store, wire, **fields)
    for number in range(30):
        group.backend.then(f"Reply {number}. " + "x" * 3000)
        group.mine.send(f"Message {number}.")
    group.backend.then(then(lambda: group.other(**fields).append(event("One.")), CALL), "Well.")

    result = group.mine.send("Hello.")

    assert said(result.state)[-4:] == ["Hello.", "", "One.", "Well."]
    assert group.mine.history() == read_history(result.state)


def test_a_store_that_is_away_at_a_look_disturbs_no_turn(
    kept: Threads, leasing: LeasingStore, wire: str
) -> None:
    """The turn goes on, and a later look or save takes in what came."""
    group, store = Group(kept, leasing, wire), leasing

    def act() -> None:
        group.other().append(event("One."))
        store.is_down = True

    def back(_: ModelRequest) -> Any:
        store.is_down = False
        return "Well."

    group.backend.then(then(act, CALL), back, "More.")

    result = group.mine.send("Hello.")

    assert result.text == "More."
    group.check("Hello.", "Well.", "One.", "More.")


# --------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("answer", [REFUSED, DOWN])
def test_a_call_for_late_messages_that_fails_ends_the_turn_before_them(
    group: Group, answer: BackendError
) -> None:
    """The reply was whole: the turn gives it. The message waits, and can be withdrawn again."""
    ids: list[str] = []
    late = then(lambda: ids.extend(group.other().append(event("Late.", id="e-1"))), "First.")
    group.backend.then(late, answer)

    result = group.mine.send("Hello.")

    assert (result.text, result.status) == ("First.", "complete")
    assert [warning.code for warning in result.warnings] == ["left_waiting"]
    group.check("Hello.", "First.", "Late.")
    group.other().append(event("Late.", id="e-1"))
    group.check("Hello.", "First.", "Late.")
    assert group.other().withdraw(ids[0])
    group.check("Hello.", "First.")


def test_a_refused_message_waits_and_the_turn_goes_on(group: Group) -> None:
    """As with messages that waited before: their author was told that they are stored."""
    group.backend.then(then(lambda: group.other().append(event("Poison.")), CALL), REFUSED, "Well.")

    result = group.mine.send("Hello.")

    assert result.text == "Well."
    assert group.sent("Poison.") == [[], ["Poison."], []]
    group.check("Hello.", "Well.", "Poison.")


# ------------------------------------------------------------------------------------- sends that steer


def test_a_steering_send_gets_the_running_turns_reply(group: Group) -> None:
    """Its message is in that turn, its id is remembered with it, and a redelivery is no second message."""
    senders: list[Sender] = []
    other = group.other()
    group.backend.then(
        then(lambda: senders.append(Sender(other, "I am Bob.", turn_id="m-2", speaker="Bob")), CALL), "Well."
    )

    mine = group.mine.send("I am Ada.", turn_id="m-1", speaker="Ada")
    theirs = senders[0].result()

    assert (theirs.text, theirs.state, theirs.duplicate) == ("Well.", mine.state, True)
    again = group.mine.send("I am Bob.", turn_id="m-2", speaker="Bob")
    assert (again.text, again.duplicate, again.state) == ("Well.", True, mine.state)
    messages = group.mine.history().all_messages()
    assert [(m.speaker, m.said) for m in messages if m.role == "user"] == [
        ("Ada", "I am Ada."),
        ("Bob", "I am Bob."),
    ]
    assert check_history(group.wire, state_messages(mine.state)) == []


def test_a_steering_send_that_no_turn_has_claimed_runs_its_own(
    kept: Threads, leasing: LeasingStore, wire: str, save: str
) -> None:
    """The running turn does not look. Then the message is answered once, in a turn of its own."""
    group = Group(kept, leasing, wire, save, gate="queue")
    other, senders = group.other("Yes."), []
    group.backend.then(then(lambda: senders.append(Sender(other, "Two?", context="C.")), "One."))

    group.mine.send("One?")
    result = senders[0].result()

    assert (result.text, result.duplicate) == ("Yes.", False)
    assert [m.said for m in group.mine.history().all_messages()] == ["One?", "One.", "Two?", "Yes."]
    assert len(group.mine.history().turns) == 2


def test_the_same_message_comes_again_while_it_waits(group: Group, save: str) -> None:
    """Three deliveries, two of them before the turn ends: one message, three times the same reply. Also of
    the running turn's own message."""
    senders: list[Sender] = []

    def act() -> None:
        for text, turn_id in (("Two?", "m-2"), ("Two?", "m-2"), ("One?", "m-1")):
            turn = group.other().start(text, turn_id=turn_id, context="Elsewhere.")
            senders.append(turn)  # type: ignore[arg-type]
            with contextlib.suppress(StopIteration):
                # With checkpoints the row knows the running turn's message already: nothing is handed over.
                if len(senders) == 1 or (turn_id == "m-1" and save == "turn"):
                    next(iter(turn))

    group.backend.then(then(act, CALL), "Well.")

    mine = group.mine.send("One?", turn_id="m-1")
    texts = [sender.result().text for sender in senders]

    assert texts == ["Well."] * 3
    messages = group.mine.history().all_messages()
    assert next(m.said.replace("\n", "") for m in messages if m.role == "user") == "One?"
    assert [m.text.count("Two?") for m in messages if m.role == "user"] == [0, 1]
    assert mine.state == blob_in(group.store)


def test_a_sender_goes_on_after_the_running_worker_died(group: Group, save: str) -> None:
    """Its message was claimed: it goes on with that turn. Or it waits: then it gets a turn of its own."""
    rows: list[bytes] = []
    senders: list[Sender] = []

    def act() -> None:
        senders.append(Sender(group.other(), "Two?", turn_id="m-2"))
        rows.append(blob_in(group.store))

    group.backend.then(then(act, CALL), then(lambda: rows.append(blob_in(group.store)), "Well."))
    group.mine.send("One?", turn_id="m-1")
    senders[0].result()

    for claimed, row in enumerate(rows):
        store = MemoryStore()
        store.save("ada", row, expected=None)
        backend = ScriptedBackend("Went on.", "More.", wire=group.wire)
        conversation = Chat(backend, tools=[look]).conversation(store, "ada", gate="steer")
        result = conversation.send("Two?", turn_id="m-2")
        again = conversation.send("Two?", turn_id="m-2")
        first = conversation.send("One?", turn_id="m-1")
        texts = [text for text in said(store.load("ada").blob) if text]  # type: ignore[union-attr]
        assert (result.text, again.text, again.duplicate) == ("Went on.", "Went on.", True)
        # The first message is in the row with a claim or a checkpoint.
        assert first.text == ("Went on." if claimed or save == "checkpoint" else "More.")
        assert texts.count("Two?") == 1
        assert sum("One?" in text for text in texts) == 1
        assert check_history(group.wire, state_messages(first.state)) == []


def test_a_sender_that_waits_too_long_takes_its_message_back(group: Group) -> None:
    """The lease is not free in time, and no turn has the message."""
    other = group.other()
    with group.store.inner.lease("ada", 60.0):
        with pytest.raises(TurnInProgressError, match="nothing was called"):
            other.send("Two?", turn_id="m-2", timeout=0.02)
        assert said(blob_in(group.store)) == []
    group.backend.then("Yes.")
    assert group.mine.send("Two?", turn_id="m-2").text == "Yes."
    group.check("Two?", "Yes.")


def test_a_sender_whose_message_is_claimed_is_told(group: Group) -> None:
    """It may come again under the same id."""
    caught: list[TurnInProgressError] = []
    sender = group.other().start("Two?", turn_id="m-2", timeout=0.02)
    next_event = iter(sender)

    def wait_in_vain() -> None:
        with pytest.raises(TurnInProgressError, match="same turn_id") as error:
            sender.result()
        caught.append(error.value)

    group.backend.then(then(lambda: next(next_event), CALL), then(wait_in_vain, "Well."))

    group.mine.send("One?")

    assert len(caught) == 1
    assert group.mine.send("Two?", turn_id="m-2").text == "Well."
    group.check("One?", "Two?", "Well.")


def test_a_sender_that_leaves_takes_its_message_back(group: Group) -> None:
    """Its handle is closed before another turn has claimed the message."""
    with group.store.inner.lease("ada", 60.0), group.other().start("Two?") as sender:
        next(iter(sender))
        assert said(blob_in(group.store)) == ["Two?"]
    assert said(blob_in(group.store)) == []


def test_a_message_for_a_turn_that_waits_for_answers(kept: Threads, leasing: LeasingStore, wire: str) -> None:
    """The turn ended, and waits. The send says so, and leaves no message behind."""

    @tool(requires_approval=True)
    def pay(ctx: ToolContext) -> str:
        """Pay."""
        return "Paid."

    group = Group(kept, leasing, wire)
    chat = Chat(ScriptedBackend(Calls([("pay", {})]), wire=wire), tools=[pay])
    senders: list[Any] = []
    running = chat.conversation(leasing.inner, "ada", gate="queue")
    group.backend.then("Unused.")
    turn = running.start("One?")
    for happened in turn:
        if type(happened).__name__ == "ModelReplied":
            senders.append(Sender(group.other(), "Two?"))

    with pytest.raises(ToolPendingError):
        senders[0].result()
    assert [text for text in said(blob_in(leasing)) if text] == ["One?"]
    assert turn.result().status == "awaiting_tools"


def test_a_typed_send_waits_for_a_turn_of_its_own(kept: Threads, leasing: LeasingStore) -> None:
    """A turn without the type cannot answer it."""
    group = Group(kept, leasing, "openai")
    conversation = group.other("7")
    with leasing.inner.lease("ada", 60.0), pytest.raises(TurnInProgressError):
        conversation.send("A number?", output_type=int, timeout=0.02)
    assert blob_in(leasing) == b""


def test_an_edit_waits_for_a_turn_of_its_own(group: Group) -> None:
    """In the turn that runs it would be a second message, and the one that it replaces would stay."""
    group.backend.then("Hi.")
    group.mine.send("Hello.", turn_id="m-1")
    before = blob_in(group.store)
    with group.store.inner.lease("ada", 60.0), pytest.raises(TurnInProgressError):
        group.other().send("Goodbye.", turn_id="m-2", edit="m-1", timeout=0.02)
    assert blob_in(group.store) == before


# ------------------------------------------------------------------------------------------- withdrawals


def test_a_waiting_message_can_be_withdrawn_once(group: Group) -> None:
    """It leaves no trace. An event with an id can be appended again."""
    conversation = group.mine
    group.backend.then("Hi.")
    conversation.send("Hello.")
    before = blob_in(group.store)
    ids = conversation.append(event("One.", id="e-1"), user("Two."), event("Three.", topic="t"))

    assert len(set(ids)) == 3
    assert [conversation.withdraw(id) for id in (ids[0], ids[2], ids[0], "unknown", "")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    group.check("Hello.", "Hi.", "Two.")
    assert conversation.append(event("One.", id="e-1")) == ids[:1]
    assert conversation.withdraw(ids[1])
    assert conversation.withdraw(ids[0])
    assert inspect_state(blob_in(group.store)).revision > inspect_state(before).revision
    assert read_history(blob_in(group.store)) == read_history(before)


def test_a_claimed_message_cannot_be_withdrawn(group: Group) -> None:
    """Neither one that waited before the turn, nor one that came since."""
    early = group.mine.append(event("Early."))
    answers: list[bool] = []
    ids: list[str] = []

    def act() -> None:
        answers.append(group.other().withdraw(early[0]))
        ids.extend(group.other().append(event("One."), event("Two.")))
        answers.append(group.other().withdraw(ids[1]))

    group.backend.then(then(act, CALL), then(lambda: answers.append(group.other().withdraw(ids[0])), "Well."))

    group.mine.send("Hello.")

    assert answers == [False, True, False]
    group.check("Early.", "Hello.", "One.", "Well.")


def test_a_withdrawal_just_before_the_claim_is_kept(kept: Threads, leasing: LeasingStore, wire: str) -> None:
    """The turn has seen the message in the row. Its claim is refused, and it looks again."""
    group, store = Group(kept, leasing, wire), leasing
    ids: list[str] = []
    done: list[bool] = []

    def act() -> None:
        ids.extend(group.other().append(event("One."), event("Two.")))
        saves = store.save

        def save(key: str, blob: bytes, **fields: Any) -> int:
            if not done and "Two." in said(blob):
                done.append(group.other().withdraw(ids[0]))
            return int(saves(key, blob, **fields))

        store.save = save

    group.backend.then(then(act, CALL), "Well.")

    group.mine.send("Hello.")

    assert done == [True]
    assert group.sent("One.", "Two.") == [[], ["Two."]]
    group.check("Hello.", "Two.", "Well.")


@pytest.mark.parametrize("gate", ["queue", "reject"])
def test_without_the_gate_a_running_turn_may_have_it(
    kept: Threads, leasing: LeasingStore, wire: str, gate: str
) -> None:
    """Such a turn claims nothing. So the answer is no while it runs, whatever it has."""
    group = Group(kept, leasing, wire, gate=gate)
    (id,) = group.mine.append(event("One."))
    answers: list[bool] = []
    group.backend.then(then(lambda: answers.append(group.other(gate=gate).withdraw(id)), "Well."))

    group.mine.send("Hello.")
    (late,) = group.mine.append(event("Two."))

    assert (answers, group.mine.withdraw(late)) == ([False], True)
    group.check("One.", "Hello.", "Well.")


def test_what_a_store_needs(kept: Threads, store: FaultyStore, leasing: LeasingStore) -> None:
    """Leases, and a gate that there is."""
    backend = ScriptedBackend()
    with pytest.raises(TypeError, match="leases"):
        kept(backend, store, gate="steer")
    with pytest.raises(TypeError, match="leases"):
        kept(backend, store).withdraw("x")
    with pytest.raises(TypeError, match="leases"):
        kept(backend, store).send("Hello.", gate="steer")
    with pytest.raises(ValueError, match="'steer'"):
        kept(backend, leasing, gate="other")
    with pytest.raises(ValueError, match="'steer'"):
        kept(backend, leasing).send("Hello.", gate="other")
    with pytest.raises(TypeError, match="id"):
        kept(backend, leasing).withdraw(7)


# --------------------------------------------------------------------------------------------- the law


class Crowd:
    """Random acts of other workers while turns run, and the account of what must become of them.

    Each text is used once. `must`: texts that have to be in the history once, in this order. `gone`: texts
    that were withdrawn, and must be in no request.
    """

    def __init__(self, group: Group, seed: int) -> None:
        self.group, self.random = group, random.Random(seed)
        self.number = 0
        self.must: list[str] = []
        self.gone: set[str] = set()
        self.ids: dict[str, str] = {}
        self.senders: list[tuple[str, str, Any]] = []

    def text(self) -> str:
        self.number += 1
        return f"[{self.number}]"

    def act(self) -> None:
        """One to three random acts."""
        for _ in range(self.random.randint(0, 3)):
            self.random.choice([self.append, self.append, self.withdraw, self.send, self.again])()

    def append(self) -> None:
        text = self.text()
        how = {"id": text} if self.random.random() < 0.3 else {}
        (self.ids[text],) = self.group.other().append(event(text, **how))
        self.must.append(text)

    def withdraw(self) -> None:
        if self.ids:
            text = self.random.choice(list(self.ids))
            if self.group.other().withdraw(self.ids.pop(text)):
                self.must.remove(text)
                self.gone.add(text)

    def send(self) -> None:
        text = self.text()
        turn = self.group.other(*["Own."] * 3).start(text, turn_id=text, metadata={"by": text})
        next(iter(turn))
        self.senders.append((text, text, turn))
        self.must.append(text)

    def again(self) -> None:
        """A message that came before comes again."""
        if self.senders:
            text, turn_id, _ = self.random.choice(self.senders)
            turn = self.group.other(*["Own."] * 3).start(text, turn_id=turn_id)
            self.senders.append((text, turn_id, turn))

    def step(self, *answers: Any) -> Callable[[ModelRequest], Any]:
        def step(_: ModelRequest) -> Any:
            self.act()
            return self.random.choice(answers)

        return step


@pytest.mark.parametrize("seed", range(12))
def test_no_message_is_lost_doubled_or_out_of_order(group: Group, seed: int) -> None:
    """Random appends, withdrawals, sends and redeliveries while three turns run."""
    print("seed", seed)
    crowd = Crowd(group, seed)
    group.backend.then(*[crowd.step(CALL, CALL, "Well.")] * 60, *["End."] * 20)

    for _number in range(3):
        text = crowd.text()
        crowd.must.append(text)
        group.mine.send(text, turn_id=text, limits=Limits(max_iterations=8))
        for _, _, turn in crowd.senders:
            turn.result()
        crowd.append()
        crowd.withdraw()

    last = crowd.text()
    crowd.must.append(last)
    group.mine.send(last)
    for _, _, turn in crowd.senders:
        turn.result()

    texts = [t for t in said(blob_in(group.store)) if t.startswith("[")]
    assert texts == crowd.must
    assert check_history(group.wire, state_messages(blob_in(group.store))) == []
    bodies = [request.body for request in group.backend.requests]
    assert not [text for text in crowd.gone if any(text.encode() in body for body in bodies)]
    replies: dict[str, set[str]] = {}
    for text, _, turn in crowd.senders:
        replies.setdefault(text, set()).add(turn.result().text)
    assert all(len(found) == 1 for found in replies.values())
    for text in replies:
        assert group.mine.send(text, turn_id=text).duplicate
    assert texts == [t for t in said(blob_in(group.store)) if t.startswith("[")]


# --------------------------------------------------------------------------------------- and an edit


def test_an_edit_waits_for_the_turn_that_runs(group: Group) -> None:
    """The running turn cannot answer for it, so it does not get the message."""
    editor = group.other("Changed.")

    def edit() -> None:
        before = group.store.inner.load("ada")
        with pytest.raises(TurnInProgressError):
            editor.send("Other.", edit=1, timeout=0.001)
        assert group.store.inner.load("ada") == before

    group.backend.then("One.", then(edit, "Two."), "Not asked.")
    group.mine.send("First.")
    assert group.mine.send("Second.").text == "Two."

    group.check("First.", "One.", "Second.", "Two.")
    assert editor.send("Other.", edit=1).text == "Changed."
    group.check("Other.", "Changed.")


def test_an_edit_claims_the_messages_that_it_sends(group: Group) -> None:
    """A message that a model reads cannot be withdrawn. If the edit is refused, it can be again."""
    ids: list[str] = []
    gone: list[bool] = []

    def withdraw() -> None:
        gone.append(group.other().withdraw(ids[0]))

    refusals = [then(withdraw, REFUSED), REFUSED, REFUSED]
    group.backend.then("One.", "Two.", *refusals)
    group.mine.send("First.")
    group.mine.send("Second.")
    ids += group.other().append(event("It rains."))
    with pytest.raises(ProviderRejectedError):
        group.mine.send("Other.", edit=2)
    assert gone == [False]
    assert group.other().withdraw(ids[0])
    ids[:] = group.other().append(event("It snows."))
    group.backend._steps.clear()
    group.backend.then(then(withdraw, "Three."))
    group.mine.send("Other.", edit=2)

    assert gone == [False, False]
    group.check("First.", "One.", "It snows.", "Other.", "Three.")


@pytest.mark.parametrize("context", [None, "It is dark."])
def test_an_edit_of_a_message_that_came_later_takes_no_other(group: Group, context: str | None) -> None:
    """It has a turn of its own: the turn before it stays."""
    senders: list[Sender] = []
    add = lambda: senders.append(  # noqa: E731
        Sender(group.other(), "Later.", turn_id="m-2", context=context, timeout=5)
    )
    group.backend.then(then(add, "One."), "Two.", "Three.")
    group.mine.send("First.", turn_id="m-1")
    assert senders[0].result().text == "Two."

    group.mine.send("Other.", edit="m-2", turn_id="m-3")

    group.check("First.", "One.", "Other.", "Three.")
    assert group.mine.send("First.", turn_id="m-1").text == "One."
