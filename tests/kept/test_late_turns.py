"""The turn of messages that came at the end of another one: it is a turn like any, in the same call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Chat,
    Compactor,
    KeepRecentTurns,
    MessageLimit,
    ToolContext,
    event,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.history.additions import claim_waiting, hand_over
from goaitools_py.state.codec import PLAIN
from goaitools_py.states import read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.types.events import ModelReplied, ToolStarted, TurnCompleted, TurnStarted

from .conftest import LeasingStore, Threads, blob_in, said
from .test_last_replies import ENDS, FIRST, TYPED, put, then, unchecked

WIRES = ("openai", "openai-responses", "anthropic")
DOWN = BackendError("down", status=503)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs over every provider API."""
    return str(request.param)


def other(store: LeasingStore, wire: str, text: str) -> Callable[[], Any]:
    """Another worker appends an event."""
    conversation = Chat(ScriptedBackend(wire=wire)).conversation(store.inner, "ada", gate="steer")
    return lambda: conversation.append(event(text))


class Beside(LeasingStore):
    """A store in which another worker appends before a save of a state that says a text."""

    text = "Second."
    act: Callable[[], Any] | None = None

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        act = self.act
        if act is not None and self.text in said(blob):
            self.act = None
            act()
        return super().save(key, blob, expected=expected)


@pytest.mark.parametrize("turn_id", ["m-1", None])
def test_a_message_that_comes_beside_its_save_loses_nothing(
    kept: Threads, save: str, wire: str, turn_id: str | None
) -> None:
    """The row has the first turn finished by then: by this worker, and not by another one."""
    store = Beside()
    backend = ScriptedBackend(then(other(store, wire, "Late."), "First."), "Second.", wire=wire)
    store.act = other(store, wire, "Beside.")

    result = kept(backend, store, save=save, gate="steer").send("Hello.", turn_id=turn_id)

    assert (result.text, result.duplicate) == ("Second.", False)
    assert said(blob_in(store)) == ["Hello.", "First.", "Late.", "Second.", "Beside."]
    assert check_history(wire, state_messages(blob_in(store))) == []


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("approval", [True, False])
@pytest.mark.parametrize("moment", ["model", "tool"])
def test_a_message_that_comes_beside_its_tools_loses_nothing(
    kept: Threads, leasing: LeasingStore, save: str, wire: str, idempotent: bool, approval: bool, moment: str
) -> None:
    """Each tool runs once, and each reply is asked for once."""
    ran: list[str] = []
    come = other(leasing, wire, "Beside.")

    @tool(idempotent=idempotent, requires_approval=approval)
    def look() -> str:
        """Look."""
        ran.append("look")
        if moment == "tool":
            come()
        return "seen"

    calls = Calls([("look", {})])
    late: Any = then(come, calls) if moment == "model" else calls
    steps = then(other(leasing, wire, "Late."), "First."), late, "Second.", "Third."
    backend = ScriptedBackend(*steps, wire=wire)
    conversation = kept(backend, leasing, chat={"tools": [look]}, save=save, gate="steer")

    result = conversation.send("Hello.", turn_id="m-1")
    if approval:
        assert (result.status, ran) == ("awaiting_tools", [])
        result = conversation.resume({call.id: Approve() for call in result.pending})

    assert (result.status, ran) == ("complete", ["look"])
    assert result.text == "Second."
    assert said(blob_in(leasing)).count("Beside.") == said(blob_in(leasing)).count("Late.") == 1
    assert check_history(wire, state_messages(blob_in(leasing))) == []


def test_its_events_name_it(kept: Threads, leasing: LeasingStore, save: str, wire: str) -> None:
    """As the history does, and as its tools are told."""
    told: list[Any] = []
    ids: list[str] = []

    @tool
    def look(ctx: ToolContext) -> str:
        """Look."""
        ids.append(ctx.turn_id)
        return "seen"

    steps = then(other(leasing, wire, "Late."), "First."), Calls([("look", {})]), "Second."
    chat = {"tools": [look], "on_event": told.append}
    conversation = kept(ScriptedBackend(*steps, wire=wire), leasing, chat=chat, save=save, gate="steer")

    conversation.send("Hello.")

    first, second = (turn.id for turn in conversation.history().turns)
    kinds = (TurnStarted, ModelReplied, ToolStarted, TurnCompleted)
    refs = [one.turn_ref for one in told if isinstance(one, kinds)]
    assert refs == [first, first, second, second, second, second]
    assert ids == [second]


@pytest.mark.parametrize("after", [0, 1])
def test_it_goes_on_at_a_fallback(
    kept: Threads, leasing: LeasingStore, save: str, wire: str, after: int
) -> None:
    """With its own metadata. A second delivery of the first message has the reply that its call had."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    there = WIRES[(WIRES.index(wire) + after) % 3]
    fallback = ScriptedBackend("Fell.", wire=there)
    steps = then(other(leasing, wire, "Late."), "First."), Calls([("look", {})]), DOWN
    backend = ScriptedBackend(*steps, wire=wire, max_retries=0)
    chat = {"tools": [look], "fallbacks": [fallback]}
    conversation = kept(backend, leasing, chat=chat, save=save, gate="steer")

    result = conversation.send("Hello.", turn_id="m-1", metadata={"lang": "de"})
    again = conversation.send("Hello.", turn_id="m-1")

    assert (result.text, again.text, again.duplicate) == ("Fell.", "Fell.", True)
    assert [turn.metadata for turn in read_history(again.state).turns] == [{"lang": "de"}, {}]
    assert check_history(there, state_messages(again.state)) == []


@pytest.mark.parametrize("cuts", [1, 2])
def test_a_second_delivery_has_its_reply_after_a_cut(
    kept: Threads, leasing: LeasingStore, wire: str, cuts: int
) -> None:
    """Of the first turn, or of both, in one cut or two."""
    steps: list[Any] = [then(other(leasing, wire, "Late."), FIRST), '{"value": 2}', "To new.", "More."]
    conversation = kept(ScriptedBackend(*steps, wire=wire), leasing, gate="steer")
    result = conversation.send("Hello.", turn_id="m-1", **TYPED)
    conversation.send("New.", turn_id="m-3")
    if cuts == 2:
        conversation.send("Newer.", turn_id="m-4")
    row = blob_in(leasing)
    for turns in range(len(read_history(row).turns) - 1, 0, -1):
        compactor = Compactor(MessageLimit(1), KeepRecentTurns(turns))
        row = Chat(ScriptedBackend(wire=wire)).compact_state(row, compactor).state
        there = kept(ScriptedBackend(wire=wire), put(LeasingStore(), row), gate="steer")

        again = there.send("Hello.", turn_id="m-1", **TYPED)

        assert (again.text, again.output) == (result.text, result.output) == ('{"value": 2}', {"value": 2})


@pytest.mark.parametrize("end", ["refused", "truncated"])
def test_a_value_is_of_a_complete_reply(kept: Threads, leasing: LeasingStore, wire: str, end: str) -> None:
    """Not of the turn before."""
    steps = then(other(leasing, wire, "Late."), FIRST), ENDS[wire][end]
    conversation = kept(ScriptedBackend(*steps, wire=wire), leasing, gate="steer")

    result = conversation.send("Hello.", turn_id="m-1", **TYPED)
    again = conversation.send("Hello.", turn_id="m-1", **TYPED)

    assert (result.status, result.output) == (end, None)
    assert (again.status, again.output) == ("complete", {"value": 1})


def test_it_is_left_waiting_behind_its_own_name(kept: Threads, leasing: LeasingStore, wire: str) -> None:
    """The provider has not taken it: the call ends with the turn before, also in its last event."""
    told: list[Any] = []

    def down(_: ModelRequest) -> BackendError:
        return DOWN

    backend = ScriptedBackend(then(other(leasing, wire, "Late."), "First."), down, wire=wire, max_retries=0)
    conversation = kept(backend, leasing, chat={"on_event": told.append}, gate="steer")

    result = conversation.send("Hello.", turn_id="m-1")

    (turn,) = conversation.history().turns
    assert (result.text, told[-1].turn_ref) == ("First.", turn.id)
    assert said(blob_in(leasing)) == ["Hello.", "First.", "Late."]


@pytest.mark.parametrize("resumed", [True, False])
def test_a_turn_that_another_call_has_left_is_not_its_own(
    kept: Threads, leasing: LeasingStore, wire: str, resumed: bool
) -> None:
    """A process died behind an answer that it had not checked. The call that takes it up has a message too:
    each has its own reply."""
    plain: dict[str, Any] = {"codec": PLAIN, "binding": None}
    row = hand_over(
        unchecked(wire),
        [user("Late.")],
        dialect=ScriptedBackend(wire=wire).dialect,
        turn_id="m-2",
        context=None,
        metadata=None,
        fresh_id="",
        now_ms=0,
        **plain,
    )
    row = claim_waiting(row, "c1", **plain)
    conversation = kept(ScriptedBackend('{"value": 2}', wire=wire), put(leasing, row), gate="steer")

    late = conversation.send("Late.", turn_id="m-2", **TYPED)
    if resumed:
        late = conversation.send("Late.", turn_id="m-2", **TYPED)
    first = conversation.send("Hello.", turn_id="m-1", **TYPED)

    assert (late.text, late.output, late.duplicate) == ('{"value": 2}', {"value": 2}, resumed)
    assert (first.text, first.output, first.duplicate) == (FIRST, {"value": 1}, True)
    assert check_history(wire, state_messages(first.state)) == []
