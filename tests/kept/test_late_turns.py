"""The turn of messages that came at the end of another one: it is a turn like any, in the same call."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Chat,
    Compactor,
    KeepRecentTurns,
    Limits,
    MessageLimit,
    ToolContext,
    event,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.compaction import Summarize
from goaitools_py.history.additions import claim_waiting, hand_over
from goaitools_py.output import Output
from goaitools_py.state.codec import PLAIN
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.types.events import ModelReplied, ModelRequested, ToolStarted, TurnCompleted, TurnStarted

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


TOO_LONG = {
    "openai": b'{"error":{"message":"maximum context length","code":"context_length_exceeded"}}',
    "openai-responses": b'{"error":{"message":"too long","code":"context_length_exceeded"}}',
    "anthropic": b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}',
}


@pytest.mark.parametrize("cause", ["trigger", "provider"])
def test_a_summary_is_paid_once_if_the_call_for_later_messages_fails(
    kept: Threads, leasing: LeasingStore, save: str, wire: str, cause: str
) -> None:
    """The messages wait, and the cut before their request stays."""
    summaries = ScriptedBackend("Both were long.", "Never.", wire=wire)
    compactor = Compactor(
        lambda now: cause == "trigger" and now.message_count > 6, Summarize(backend=summaries, keep_turns=1)
    )
    refusals = [BackendError("long", status=400, body=TOO_LONG[wire])] * (cause == "provider")
    long = "word " * 300
    late = then(other(leasing, wire, "Late."), FIRST)
    backend = ScriptedBackend(long, long, late, *refusals, DOWN, "Next.", wire=wire, max_retries=0)
    conversation = kept(backend, leasing, chat={"compactor": compactor}, save=save, gate="steer")
    for text in ("One.", "Two."):
        conversation.send(text)

    result = conversation.send("Hello.", turn_id="m-1")

    assert (result.text, [one.code for one in result.warnings]) == (FIRST, ["left_waiting"])
    assert result.aside_usage.requests == len(summaries.requests) == 1
    assert result.compaction is not None
    assert result.compaction.usage.requests == 1
    assert said(blob_in(leasing))[1:] == ["Hello.", FIRST, "Late."]
    conversation.send("And now?")
    assert said(blob_in(leasing))[1:] == ["Hello.", FIRST, "Late.", "And now?", "Next."]
    assert b"Both were long." in backend.requests[-1].body
    assert len(summaries.requests) == 1


@pytest.mark.parametrize("late", [event("Late."), user("Late.")])
@pytest.mark.parametrize("cut", ["none", "summary", "recent"])
@pytest.mark.parametrize(
    "failure", ["down", "refused", "too long", "too long, then refused", "too long, then down"]
)
def test_a_message_behind_a_cut_is_not_lost(
    kept: Threads, leasing: LeasingStore, save: str, wire: str, late: Any, cut: str, failure: str
) -> None:
    """Its request fails, before or behind a cut: it waits for the next turn."""
    failures = {
        "down": DOWN,
        "refused": BackendError("no", status=400, body=b'{"error": {"message": "no"}}'),
        "too long": BackendError("long", status=400, body=TOO_LONG[wire]),
    }
    steps = [failures[one] for one in failure.split(", then ")]
    steps += steps[-1:] * 5
    summarize = Summarize(backend=ScriptedBackend(*["Long."] * 3, wire=wire), keep_turns=1)
    strategy = {"summary": summarize, "recent": KeepRecentTurns(1), "none": None}[cut]
    compactor = None if strategy is None else Compactor(lambda now: now.message_count > 6, strategy)
    others = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")
    come = then(lambda: others.append(late), "First.")
    backend = ScriptedBackend("One.", "Two.", come, *steps, wire=wire, max_retries=0)
    conversation = kept(backend, leasing, chat={"compactor": compactor}, save=save, gate="steer")
    for text in ("say 1", "say 2"):
        conversation.send(text)

    result = conversation.send("Hello.", turn_id="m-1")

    assert (result.text, result.status) == ("First.", "complete")
    assert said(blob_in(leasing))[-3:] == ["Hello.", "First.", "Late."]
    assert [one.text for one in read_history(blob_in(leasing)).waiting] == ["Late."]
    if cut == "none":
        assert said(blob_in(leasing))[0] == "say 1"
    backend._steps.clear()
    backend.then("Next.")
    assert conversation.send("And now?").text == "Next."
    assert said(blob_in(leasing))[-3:] == ["Late.", "And now?", "Next."]
    assert check_history(wire, state_messages(blob_in(leasing))) == []


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


def unchecked_with_late(wire: str) -> bytes:
    """The row of a process that died behind an unchecked answer, with a claimed message of m-2."""
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
    return claim_waiting(row, "c1", **plain)


@pytest.mark.parametrize("resumed", [True, False])
def test_a_turn_that_another_call_has_left_is_not_its_own(
    kept: Threads, leasing: LeasingStore, wire: str, resumed: bool
) -> None:
    """A process died behind an answer that it had not checked. The call that takes it up has a message too:
    each has its own reply."""
    row = unchecked_with_late(wire)
    conversation = kept(ScriptedBackend('{"value": 2}', wire=wire), put(leasing, row), gate="steer")

    late = conversation.send("Late.", turn_id="m-2", **TYPED)
    if resumed:
        late = conversation.send("Late.", turn_id="m-2", **TYPED)
    first = conversation.send("Hello.", turn_id="m-1", **TYPED)

    assert (late.text, late.output, late.duplicate) == ('{"value": 2}', {"value": 2}, resumed)
    assert (first.text, first.output, first.duplicate) == (FIRST, {"value": 1}, True)
    assert check_history(wire, state_messages(first.state)) == []


BAD: dict[str, dict[str, Any]] = {
    "an answer that does not fit": {"output_type": Output(dict[str, int], mode="prompt", retries=1)},
    "invalid calls": {"on_limit": "raise"},
}


@pytest.mark.parametrize("bad", BAD)
def test_what_the_turn_before_did_wrong_does_not_count(
    kept: Threads, leasing: LeasingStore, save: str, wire: str, bad: str
) -> None:
    """Each turn has as many tries as one that is sent alone."""
    wrong = ["Bad."] if bad.startswith("an answer") else [Calls([("absent", {})])] * 2
    come = then(other(leasing, wire, "Late."), FIRST)
    backend = ScriptedBackend(*wrong, come, *wrong, '{"value": 2}', wire=wire)
    conversation = kept(backend, leasing, save=save, gate="steer")

    result = conversation.send("Hello.", turn_id="m-1", **BAD[bad])

    assert (result.text, result.status) == ('{"value": 2}', "complete")
    assert len(backend.requests) == 2 * len(wrong) + 2


def test_its_request_has_the_type_though_a_cut_takes_the_turn_before(
    kept: Threads, leasing: LeasingStore, wire: str
) -> None:
    """The description of the type stands in the turn before, too: a compactor may take that one."""

    @tool
    def look(at: int) -> str:
        """Look."""
        return "seen"

    def honest(request: ModelRequest) -> str:
        return '{"value": 2}' if b"JSON Schema" in request.body else "Two."

    come = other(leasing, wire, "Late.")
    calls = [Calls([("look", {"at": at})]) for at in range(2)]
    backend = ScriptedBackend(*calls, then(come, FIRST), then(come, FIRST), honest, wire=wire)
    chat = {"tools": [look], "compactor": Compactor(MessageLimit(9), KeepRecentTurns(1))}
    conversation = kept(backend, leasing, chat=chat, gate="steer")

    result = conversation.send("Hello.", turn_id="m-1", **TYPED)

    assert (result.output, result.compaction is not None) == ({"value": 2}, True)
    assert check_history(wire, state_messages(result.state)) == []


def test_the_type_waits_for_no_other_turn(kept: Threads, leasing: LeasingStore, wire: str) -> None:
    """The call for late messages fails: they wait, and the description of the type goes."""

    def down(_: ModelRequest) -> BackendError:
        return DOWN

    steps = then(other(leasing, wire, "Late."), FIRST), down, "Plain."
    backend = ScriptedBackend(*steps, wire=wire, max_retries=0)
    conversation = kept(backend, leasing, gate="steer")

    first = conversation.send("Hello.", turn_id="m-1", **TYPED)
    second = conversation.resume()

    assert (first.output, second.text) == ({"value": 1}, "Plain.")
    assert said(blob_in(leasing))[-2:] == ["Late.", "Plain."]
    assert backend.requests[-1].body.count(b"JSON Schema") == 1


def test_an_answer_by_tool_looks_for_late_messages(
    kept: Threads, leasing: LeasingStore, save: str, wire: str
) -> None:
    """As one in text does."""

    def answer(value: int) -> Calls:
        return Calls([("answer", {"value": value})])

    steps = then(other(leasing, wire, "Late."), answer(1)), answer(2)
    conversation = kept(ScriptedBackend(*steps, wire=wire), leasing, save=save, gate="steer")
    asked = Output(dict[str, int], mode="tool", name="answer")

    result = conversation.send("Hello.", turn_id="m-1", output_type=asked)
    again = conversation.send("Hello.", turn_id="m-1", output_type=asked)

    assert result.output == again.output == {"value": 2}
    assert inspect_state(blob_in(leasing)).waiting_messages == 0
    assert check_history(wire, state_messages(blob_in(leasing))) == []


def test_the_same_answers_have_its_reply(kept: Threads, leasing: LeasingStore, save: str, wire: str) -> None:
    """As the same message has."""

    @tool(requires_approval=True)
    def buy() -> str:
        """Buy."""
        return "bought"

    steps = Calls([("buy", {})]), then(other(leasing, wire, "Late."), "First."), "Second."
    backend = ScriptedBackend(*steps, wire=wire)
    conversation = kept(backend, leasing, chat={"tools": [buy]}, save=save, gate="steer")
    answers = {call.id: Approve() for call in conversation.send("Hello.", turn_id="m-1").pending}

    found = [conversation.resume(answers), conversation.resume(answers)]
    found.append(conversation.send("Hello.", turn_id="m-1"))

    assert [(one.text, one.duplicate) for one in found] == [("Second.", one > 0) for one in range(3)]


def test_behind_a_turn_of_another_call_it_has_its_own_name_and_limits(
    kept: Threads, leasing: LeasingStore, wire: str
) -> None:
    """A process died behind an answer that it had not checked, and the next message takes it up."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    told: list[Any] = []
    backend = ScriptedBackend(Calls([("look", {})]), '{"value": 2}', wire=wire)
    chat = {"tools": [look], "on_event": told.append}
    conversation = kept(backend, put(leasing, unchecked_with_late(wire)), chat=chat, gate="steer")

    late = conversation.send("Late.", turn_id="m-2", limits=Limits(max_iterations=2), **TYPED)

    assert (late.status, late.output, late.iterations) == ("complete", {"value": 2}, 2)
    _, second = (turn.id for turn in conversation.history().turns)
    kinds = (TurnStarted, ModelReplied, ToolStarted, TurnCompleted)
    assert [one.turn_ref for one in told if isinstance(one, kinds)] == [second] * 5
    assert [one.iteration for one in told if isinstance(one, ModelReplied)] == [1, 2]


def test_after_a_rewind_the_first_message_has_its_own_reply(
    kept: Threads, leasing: LeasingStore, wire: str
) -> None:
    """Also if a cut of both turns had noted the later reply for it."""
    come = then(other(leasing, wire, "Late."), "First.")
    backend = ScriptedBackend(come, "Second.", "More.", wire=wire)
    chat = {"compactor": Compactor(MessageLimit(5), KeepRecentTurns(1), retain=True)}
    conversation = kept(backend, leasing, gate="steer", chat=chat)
    conversation.send("Hello.", turn_id="m-1")
    conversation.send("New.", turn_id="m-3")
    assert said(blob_in(leasing))[:1] != ["Hello."]

    conversation.undo_cut()
    conversation.rewind(2)

    assert said(blob_in(leasing)) == ["Hello.", "First."]
    assert conversation.send("Hello.", turn_id="m-1").text == "First."


@pytest.mark.parametrize("after", [0, 1])
def test_the_limit_of_the_call_holds_at_a_fallback(
    kept: Threads, leasing: LeasingStore, save: str, wire: str, after: int
) -> None:
    """The model calls of the turn before count, and the numbers go on."""
    told: list[Any] = []

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    calls = Calls([("look", {})])
    there = ScriptedBackend(*[calls] * 9, wire=WIRES[(WIRES.index(wire) + after) % 3])
    steps = calls, then(other(leasing, wire, "Late."), "First."), calls, DOWN
    backend = ScriptedBackend(*steps, wire=wire, max_retries=0)
    chat = {"tools": [look], "fallbacks": [there], "on_event": told.append}
    conversation = kept(backend, leasing, chat=chat, save=save, gate="steer")

    result = conversation.send("Hello.", turn_id="m-1", limits=Limits(max_iterations=4))

    assert result.status == "limited"
    numbers = [one.iteration for one in told if isinstance(one, ModelReplied)]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert len(numbers) <= 5  # with the last one, which gives the answer
    assert check_history(there.dialect.wire, state_messages(result.state)) == []


def test_answers_without_a_turn_id_have_the_later_reply(
    kept: Threads, leasing: LeasingStore, wire: str
) -> None:
    """The turn behind them is of the same call."""

    @tool(requires_approval=True)
    def buy() -> str:
        """Buy."""
        return "bought"

    steps = Calls([("buy", {})]), then(other(leasing, wire, "Late."), "First."), "Second.", "Third."
    backend = ScriptedBackend(*steps, wire=wire)
    conversation = kept(backend, leasing, chat={"tools": [buy]}, gate="steer")
    answers = {call.id: Approve() for call in conversation.send("Hello.").pending}

    found = [conversation.resume(answers)]
    conversation.send("More.")
    found.append(conversation.resume(answers))

    assert [one.text for one in found] == ["Second.", "Second."]


def test_a_turn_that_is_cancelled_before_its_call_leaves_no_type(
    kept: Threads, leasing: LeasingStore, save: str, wire: str
) -> None:
    """What it has put in for its request does not wait for a later turn."""
    steps = then(other(leasing, wire, "Late."), FIRST), "Never.", "Plain.", "Plain."
    backend = ScriptedBackend(*steps, wire=wire)
    conversation = kept(backend, leasing, save=save, gate="steer")
    turn = conversation.start("Hello.", turn_id="m-1", **TYPED)
    asked = 0
    for one in turn:
        asked += isinstance(one, ModelRequested)
        if asked == 2:
            break
    turn.cancel()

    conversation.send("Next.")

    assert said(blob_in(leasing)).count("Late.") == 1
    assert backend.requests[-1].body.count(b"JSON Schema") == 1


@pytest.mark.parametrize("kept_turns", [1, 2])
@pytest.mark.parametrize("failures", [1, 2])
def test_the_format_of_a_typed_call_does_not_wait(
    kept: Threads, leasing: LeasingStore, save: str, wire: str, kept_turns: int, failures: int
) -> None:
    """A cut took it out, so the request for the second late message had it again, and failed."""
    others = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")
    too_long = BackendError("long", status=400, body=TOO_LONG[wire])
    backend = ScriptedBackend(
        "1",
        "2",
        then(lambda: others.append(user("Late.")), '{"value": 1}'),
        then(lambda: others.append(user("Later.")), '{"value": 2}'),
        *[too_long] * failures,
        *[DOWN] * 3,
        wire=wire,
        max_retries=0,
    )
    compactor = Compactor(lambda now: now.message_count > 8, KeepRecentTurns(kept_turns))
    conversation = kept(backend, leasing, chat={"compactor": compactor}, save=save, gate="steer")
    conversation.send("One.")
    conversation.send("Two.")

    result = conversation.send("Hello.", turn_id="m-1", **TYPED)

    assert result.text == '{"value": 2}'
    assert [one.text for one in read_history(blob_in(leasing)).waiting] == ["Later."]


@pytest.mark.parametrize("second", ["fails", "is not asked for"])
@pytest.mark.parametrize("too_long", [1, 2])
def test_a_summary_stays_behind_an_emergency_cut(
    kept: Threads, leasing: LeasingStore, wire: str, second: str, too_long: int
) -> None:
    """The trigger has paid for it, and then the provider refused the size: the emergency cut goes again."""
    others = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")
    more = [DOWN] if second == "fails" else []
    summaries = ScriptedBackend("Both were long.", *more, wire=wire, max_retries=0)
    compactor = Compactor(lambda now: now.message_count > 6, Summarize(backend=summaries, keep_turns=1))
    refusals = [BackendError("long", status=400, body=TOO_LONG[wire])] * too_long
    come = then(lambda: others.append(user("Late.")), "First.")
    long = "word " * 300
    backend = ScriptedBackend(long, long, come, *refusals, *[DOWN] * 3, wire=wire, max_retries=0)
    conversation = kept(backend, leasing, chat={"compactor": compactor}, gate="steer")
    conversation.send("One.")
    conversation.send("Two.")

    result = conversation.send("Hello.", turn_id="m-1")

    assert result.text == "First."
    assert said(blob_in(leasing))[1:] == ["Hello.", "First.", "Late."]
    assert "Both were long." in said(blob_in(leasing))[0]


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("failure", ["down", "refused", "too long"])
def test_a_message_that_is_appended_during_a_failed_call_waits(
    leasing: LeasingStore, save: Any, wire: str, cut: bool, failure: str
) -> None:
    """The call is for later messages. The application was told that the turn takes its message."""
    errors = {
        "down": DOWN,
        "refused": BackendError("no", status=400, body=b'{"error": {"message": "no"}}'),
        "too long": BackendError("long", status=400, body=TOO_LONG[wire]),
    }
    turns: list[Any] = []

    def second(_: Any) -> BackendError:
        if len(turns) == 1:
            turns.append(turns[0].append(event("It rains.", id="e-1")))
        return errors[failure]

    others = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")
    come = then(lambda: others.append(user("Late.")), "First.")
    backend = ScriptedBackend(come, *[second] * 6, wire=wire, max_retries=0)
    compactor = Compactor(lambda now: cut and now.message_count > 1, KeepRecentTurns(1))
    with Chat(backend, compactor=compactor) as chat:
        conversation = chat.conversation(leasing, "ada", gate="steer", save=save)
        turns.append(conversation.start("Hello.", turn_id="m-1"))
        assert turns[0].result().text == "First."
        assert [one.text for one in read_history(blob_in(leasing)).waiting] == ["Late.", "It rains."]
        conversation.append(event("It rains.", id="e-1"))
        backend._steps.clear()
        backend.then("Next.")
        conversation.send("And now?")
    assert said(blob_in(leasing))[-4:] == ["Late.", "It rains.", "And now?", "Next."]


@pytest.mark.parametrize("failure", ["down", "refused"])
@pytest.mark.parametrize("by", ["the turn", "another worker"])
def test_a_newer_event_of_a_topic_replaces_the_older_one_in_a_failed_call(
    leasing: LeasingStore, wire: str, failure: str, by: str
) -> None:
    """Also behind a refusal, which takes out what waited."""
    refused = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
    turns: list[Any] = []
    others = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")

    def second(_: Any) -> BackendError:
        if len(turns) == 1:
            into = turns[0] if by == "the turn" else others
            turns.append(into.append(event("Rain stopped.", topic="weather")))
        return DOWN if failure == "down" else refused

    come = then(lambda: others.append(event("Rain.", topic="weather"), user("Late.")), "First.")
    backend = ScriptedBackend(come, *[second] * 6, wire=wire, max_retries=0)
    with Chat(backend) as chat:
        turns.append(chat.conversation(leasing, "ada", gate="steer").start("Hello."))
        assert turns[0].result().text == "First."
    assert [one.text for one in read_history(blob_in(leasing)).waiting] == ["Late.", "Rain stopped."]


@pytest.mark.parametrize("gate", ["steer", "queue"])
def test_a_message_that_is_appended_to_a_turn_without_a_price_waits(
    leasing: LeasingStore, save: Any, wire: str, gate: Any
) -> None:
    """Costs are limited, and the price of the last reply is unknown: no call for later messages is made."""
    turns: list[Any] = []
    replied: list[bool] = []

    def come() -> None:
        replied.append(True)
        turns[0].append(event("It rains."))

    def prices(_: Any) -> Decimal | None:
        return None if replied else Decimal(1)

    with Chat(ScriptedBackend(then(come, "First."), wire=wire), prices=prices) as chat:
        conversation = chat.conversation(leasing, "ada", gate=gate, save=save)
        turns.append(conversation.start("Hello.", limits=Limits(max_cost_usd=100)))
        assert turns[0].result().text == "First."
    assert said(blob_in(leasing)) == ["Hello.", "First.", "It rains."]
