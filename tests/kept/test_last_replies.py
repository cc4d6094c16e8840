"""Turns that a process left behind their last reply: whoever goes on with one does not pay for it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    BudgetExceededError,
    Chat,
    Compactor,
    KeepRecentTurns,
    Limits,
    MessageLimit,
    NothingToResumeError,
    ProviderRejectedError,
    TurnError,
    TurnInProgressError,
    event,
    tool,
)
from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.open_turn.inbox import FORMAT
from goaitools_py.output import Output
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
from goaitools_py.types.events import TextDelta

from ..turn.test_empty_replies import chat as chat_reply
from ..turn.test_empty_replies import claude, responses
from ..turn.test_refused_turns import FILTERED, ITEM
from .conftest import FaultyStore, LeasingStore, Threads, blob_in, said

WIRES = ("openai", "openai-responses", "anthropic")
REFUSED = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
DOWN = BackendError("down", status=503)
TYPED: dict[str, Any] = {"output_type": Output(dict[str, int], mode="prompt")}
FIRST = '{"value": 1}'
CUT: dict[str, Any] = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
ENDS: dict[str, dict[str, Any]] = {
    "openai": {
        "refused": chat_reply("content_filter", content=None),
        "truncated": chat_reply("length", content="Sec", out=5),
    },
    "openai-responses": {"refused": responses(**FILTERED), "truncated": responses(ITEM, out=5, **CUT)},
    "anthropic": {
        "refused": claude(stop="refusal"),
        "truncated": claude({"type": "text", "text": "Sec"}, out=5, stop="max_tokens"),
    },
}


@tool(requires_approval=True)
def buy() -> str:
    """Buy it."""
    return "bought"


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs over every provider API."""
    return str(request.param)


@pytest.fixture(params=["plain", "typed"])
def asked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A turn without a type of its answer, and one with a type."""
    return TYPED if request.param == "typed" else {}


def then(act: Callable[[], Any], answer: Any) -> Callable[[ModelRequest], Any]:
    """A step of a script: somebody acts while the model answers."""

    def step(_: ModelRequest) -> Any:
        act()
        return answer

    return step


def put(store: Any, row: bytes) -> Any:
    """The store with a row as its only one."""
    store.inner.save("ada", row, expected=None)
    return store


def over(wire: str, options: dict[str, Any], *, brings: str = "event") -> bytes:
    """The row of a turn that was over when "Late." came, and whose process died before it sent that.

    `brings`: "event": an application has put it in; "sender": a steering send, whose turn is m-2.
    """
    store, rows, senders = MemoryStore(), list[bytes](), list[Any]()
    other = Chat(ScriptedBackend(wire=wire)).conversation(store, "ada", gate="steer")

    def late() -> None:
        if brings == "event":
            other.append(event("Late."))
            return
        senders.append(other.start("Late.", turn_id="m-2"))
        next(iter(senders[0]))

    script = (then(late, FIRST), then(lambda: rows.append(blob_in(store)), '{"value": 2}'))
    with Chat(ScriptedBackend(*script, wire=wire)) as chat:
        chat.conversation(store, "ada", gate="steer").send("Hello.", turn_id="m-1", **options)
    for sender in senders:
        sender.cancel()
    return rows[0]


def unchecked(wire: str) -> bytes:
    """The row of a typed turn whose process died when its answer was saved, and not checked."""

    class Rows(FaultyStore):
        def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
            rows.append(blob)
            return super().save(key, blob, expected=expected)

    rows: list[bytes] = []
    backend = ScriptedBackend(FIRST, wire=wire)
    Chat(backend).conversation(Rows(), "ada", save="checkpoint").send("Hello.", turn_id="m-1", **TYPED)
    (row,) = [one for one in rows if FIRST in said(one) and inspect_state(one).status == "in_progress"]
    return row


def spoken(blob: bytes) -> list[str]:
    """The texts of a state, without the description of an answer."""
    return [text for text in said(blob) if "JSON Schema" not in text]


# ------------------------------------------------------------------------------- messages at a turn's end


@pytest.mark.parametrize("failure", [REFUSED, DOWN], ids=["refused", "down"])
def test_what_came_is_refused_or_finds_no_provider(
    kept: Threads, leasing: LeasingStore, wire: str, asked: Any, failure: Any
) -> None:
    """The turn before has its reply, also as a value and as events."""
    backend, events = ScriptedBackend(failure, wire=wire, max_retries=0), list[Any]()
    chat = {"on_event": events.append}
    conversation = kept(backend, put(leasing, over(wire, asked)), chat=chat, gate="steer")

    result = conversation.send("Hello.", turn_id="m-1", **asked)
    told = [one.text for one in events if isinstance(one, TextDelta)]
    with pytest.raises(TurnError) as caught:
        conversation.resume(**asked)

    assert (result.text, result.status, result.duplicate, told) == (FIRST, "complete", True, [FIRST])
    assert result.output == ({"value": 1} if asked else None)
    assert inspect_state(result.state).waiting_messages == 1
    assert [one.text for one in caught.value.pending_input][:1] == (["Late."] if failure is REFUSED else [])
    assert len(backend.requests) == 1
    assert spoken(blob_in(leasing)) == ["Hello.", FIRST, *([] if failure is REFUSED else ["Late."])]
    assert check_history(wire, state_messages(blob_in(leasing))) == []


@pytest.mark.parametrize("context", [None, "It snows."])
def test_what_came_is_gone(
    kept: Threads, leasing: LeasingStore, wire: str, asked: Any, context: str | None
) -> None:
    """It was refused to its sender. Neither a context nor the description of an answer asks for a reply."""
    leasing = put(leasing, over(wire, asked, brings="sender"))
    with pytest.raises(ProviderRejectedError):
        Chat(ScriptedBackend(REFUSED, wire=wire)).conversation(leasing.inner, "ada", gate="steer").send(
            "Late.", turn_id="m-2"
        )
    backend = ScriptedBackend(wire=wire)
    conversation = kept(backend, leasing, gate="steer")

    with pytest.raises(NothingToResumeError):
        conversation.resume(context=context, **asked)
    result = conversation.send("Hello.", turn_id="m-1", context=context, **asked)

    assert (result.text, result.status, backend.requests) == (FIRST, "complete", [])
    assert result.output == ({"value": 1} if asked else None)
    assert spoken(result.state) == ["Hello.", FIRST]
    assert inspect_state(result.state).waiting_messages == 0


@pytest.mark.parametrize("end", ["refused", "truncated", "denied"])
def test_a_reply_stays_whatever_the_reply_to_a_late_message_is(
    kept: Threads, leasing: LeasingStore, wire: str, save: str, end: str
) -> None:
    """Cut off, refused by the model, or with a call that a new message denies."""
    other = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")
    second: Any = Calls([("buy", {})]) if end == "denied" else ENDS[wire][end]
    backend = ScriptedBackend(
        then(lambda: other.append(event("Late.")), "First."), second, "To new.", wire=wire
    )
    conversation = kept(backend, leasing, chat={"tools": [buy]}, save=save, gate="steer")

    result = conversation.send("Hello.", turn_id="m-1")
    conversation.send("New.", turn_id="m-3", on_pending="deny")
    again = conversation.send("Hello.", turn_id="m-1")

    assert result.status == ("awaiting_tools" if end == "denied" else end)
    assert (again.text, again.status, again.duplicate) == ("First.", "complete", True)
    assert b"First." in backend.requests[-1].body
    assert check_history(wire, state_messages(again.state)) == []


def test_more_may_not_be_spent(kept: Threads, leasing: LeasingStore, wire: str, asked: Any) -> None:
    """The conversation's budget is used up: the reply is there, and what came waits."""
    chat = {"limits": Limits(conversation_max_tokens=1)}
    backend = ScriptedBackend(wire=wire)
    row = over(wire, asked)
    assert inspect_state(row).total_usage.total_tokens > 1

    result = kept(backend, put(leasing, row), chat=chat, gate="steer").send("Hello.", turn_id="m-1", **asked)

    assert (result.text, result.status, backend.requests) == (FIRST, "complete", [])
    assert inspect_state(result.state).waiting_messages == 1


def test_a_reply_to_a_late_message_is_within_the_budget(
    kept: Threads, leasing: LeasingStore, wire: str, asked: Any
) -> None:
    """It is delivered again, and the budget is used up: its sender has it back, and nothing is sent."""
    chat = {"limits": Limits(conversation_max_tokens=1)}
    backend = ScriptedBackend(wire=wire)
    conversation = kept(backend, put(leasing, over(wire, asked, brings="sender")), chat=chat, gate="steer")

    with pytest.raises(BudgetExceededError) as caught:
        conversation.send("Late.", turn_id="m-2", **asked)
    result = conversation.send("Hello.", turn_id="m-1", **asked)

    assert [message.text for message in caught.value.pending_input][:1] == ["Late."]
    assert (result.text, backend.requests) == (FIRST, [])


def test_a_stored_answer_is_given_though_the_budget_is_used_up(
    kept: Threads, leasing: LeasingStore, wire: str
) -> None:
    """It is paid. Another answer is not asked for."""
    chat = {"limits": Limits(conversation_max_tokens=1)}
    backend = ScriptedBackend(wire=wire)
    conversation = kept(backend, put(leasing, unchecked(wire)), chat=chat)

    with pytest.raises(BudgetExceededError) as caught:
        conversation.resume(output_type=Output(dict[str, list[str]], mode="prompt"))
    result = conversation.resume(**TYPED)

    # Only the description of the other type: nothing tells of a problem with the stored answer.
    assert [message.topic for message in caught.value.pending_input] == [FORMAT]
    assert (result.output, backend.requests) == ({"value": 1}, [])


def test_a_budget_ends_a_turn_that_steers(kept: Threads, leasing: LeasingStore, wire: str, save: str) -> None:
    """It is looked at before new messages are taken in, as before a turn of their own."""
    other = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")
    backend = ScriptedBackend(then(lambda: other.append(event("Late.")), "First."), wire=wire)
    chat = {"limits": Limits(conversation_max_tokens=1)}

    result = kept(backend, leasing, chat=chat, save=save, gate="steer").send("Hello.")

    assert (result.text, result.status) == ("First.", "complete")
    assert inspect_state(result.state).waiting_messages == 1


def test_the_reply_is_sent_to_who_said_the_message(
    kept: Threads, leasing: LeasingStore, wire: str, asked: Any
) -> None:
    """The message that came at the end is delivered again: the turn goes on for it, and keeps its reply."""
    backend = ScriptedBackend('{"value": 2}', wire=wire)
    conversation = kept(backend, put(leasing, over(wire, asked, brings="sender")), gate="steer")

    result = conversation.send("Late.", turn_id="m-2", **asked)

    assert result.text == '{"value": 2}'
    assert spoken(result.state) == ["Hello.", FIRST, "Late.", '{"value": 2}']
    assert check_history(wire, state_messages(result.state)) == []


@pytest.mark.parametrize("change", ["", "redact", "convert", "export"])
def test_a_message_has_its_reply_though_a_later_one_has_none(
    kept: Threads, leasing: LeasingStore, wire: str, save: str, change: str
) -> None:
    """The call for what came at the end broke off, and a newer message closed the turn. The first message is
    delivered again: it has the reply that it had. The late one has none yet."""
    senders: list[Any] = []

    def late() -> None:
        other = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")
        senders.append(other.start("Late.", turn_id="m-2"))
        next(iter(senders[0]))

    backend = ScriptedBackend(then(late, "First."), "A long second reply.", wire=wire)
    turn = kept(backend, leasing, save=save, gate="steer").start("Hello.", turn_id="m-1")
    for one in turn:
        if isinstance(one, TextDelta) and not one.text.startswith("F"):
            break
    turn.cancel()
    senders[0].cancel()
    row = blob_in(leasing)
    if change == "redact":
        row = redact_state(row, "Late", "Tardy").state
    elif change == "convert":
        wire = WIRES[(WIRES.index(wire) + 1) % 3]
        row = convert_state(row, wire).state
    elif change == "export":
        row = import_state(export_state(row))
    backend = ScriptedBackend("To new.", "To late.", wire=wire)
    conversation = kept(backend, put(LeasingStore(), row), gate="steer")
    conversation.send("New.", turn_id="m-3")

    first = conversation.send("Hello.", turn_id="m-1")
    second = conversation.send("Late.", turn_id="m-2")

    assert (first.text, first.status, first.duplicate) == ("First.", "complete", True)
    assert (second.text, second.duplicate) == ("To late.", False)
    assert [turn.status for turn in read_history(second.state).turns][:2] == ["complete", "interrupted"]
    assert check_history(wire, state_messages(second.state)) == []


def test_a_message_has_its_reply_though_the_reply_to_a_later_one_does_not_fit(
    kept: Threads, leasing: LeasingStore, wire: str
) -> None:
    """The turn ends with an error, and a newer message closes it."""
    options: dict[str, Any] = {"output_type": Output(dict[str, int], mode="prompt", retries=0)}
    other = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")
    backend = ScriptedBackend(then(lambda: other.append(event("Late.")), FIRST), "no JSON", wire=wire)
    conversation = kept(backend, leasing, gate="steer")
    with pytest.raises(TurnError):
        conversation.send("Hello.", turn_id="m-1", **options)
    backend = ScriptedBackend("To new.", wire=wire)
    conversation = kept(backend, leasing, gate="steer")
    conversation.send("New.", turn_id="m-3")

    again = conversation.send("Hello.", turn_id="m-1", **options)

    assert (again.text, again.output, again.status, again.duplicate) == (
        FIRST,
        {"value": 1},
        "complete",
        True,
    )
    assert check_history(wire, state_messages(again.state)) == []


def left(kept: Threads, store: LeasingStore, wire: str, number: int, reply: str) -> None:
    """A turn that had a reply, and whose late message has none."""
    other = Chat(ScriptedBackend(wire=wire)).conversation(store.inner, "ada", gate="steer")
    backend = ScriptedBackend(
        then(lambda: other.append(event(f"Late {number}.")), reply), "A long second reply.", wire=wire
    )
    turn = kept(backend, store, gate="steer").start(f"Hello {number}.", turn_id=f"m-{number}")
    for one in turn:
        if isinstance(one, TextDelta) and one.text.startswith("A"):
            break
    turn.cancel()


def test_a_long_reply_comes_back_whole(kept: Threads, leasing: LeasingStore, wire: str) -> None:
    """As long as the history has it. The state has it once: many of them cut no history."""
    replies = {number: f"{number} " + "y" * 20_000 for number in range(18)}
    for number, reply in replies.items():
        left(kept, leasing, wire, number, reply)
    conversation = kept(ScriptedBackend("To new.", wire=wire), leasing, gate="steer")

    result = conversation.send("New.", turn_id="m-new")

    assert result.compaction is None
    assert len(export_state(result.state)["meta"]) < 16_000
    for number, reply in replies.items():
        again = conversation.send(f"Hello {number}.", turn_id=f"m-{number}")
        assert (again.text, again.status, again.duplicate) == (reply, "complete", True)


def test_a_reply_survives_a_cut(kept: Threads, leasing: LeasingStore, wire: str) -> None:
    """As the reply of any turn: its text goes into the ring."""
    left(kept, leasing, wire, 1, "First.")
    conversation = kept(ScriptedBackend("To new.", "More.", wire=wire), leasing, gate="steer")
    conversation.send("New.", turn_id="m-3")
    conversation.send("And now?", turn_id="m-4")
    compacted = Chat(ScriptedBackend(wire=wire)).compact_state(
        blob_in(leasing), Compactor(MessageLimit(1), KeepRecentTurns(1))
    )
    conversation = kept(ScriptedBackend(wire=wire), put(LeasingStore(), compacted.state), gate="steer")

    again = conversation.send("Hello 1.", turn_id="m-1")

    assert "First." not in said(compacted.state)
    assert (again.text, again.status, again.duplicate) == ("First.", "complete", True)


# ---------------------------------------------------------------------------- answers that no one has checked


@pytest.mark.parametrize("came", ["nothing", "an event", "a context"])
@pytest.mark.parametrize("resumes", [True, False], ids=["resume", "again"])
def test_a_stored_answer_is_checked_and_not_paid_again(
    kept: Threads, leasing: LeasingStore, wire: str, came: str, resumes: bool
) -> None:
    """Whatever has come since: it waits behind the turn."""
    leasing = put(leasing, unchecked(wire))
    if came == "an event":
        Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada").append(event("Ada won."))
    backend = ScriptedBackend(wire=wire)
    conversation = kept(backend, leasing)
    context = {"context": "It snows."} if came == "a context" else {}

    send = (
        conversation.resume if resumes else lambda **more: conversation.send("Hello.", turn_id="m-1", **more)
    )
    result = send(**TYPED, **context)

    assert (result.output, result.status, backend.requests) == ({"value": 1}, "complete", [])
    assert [text for text in spoken(result.state) if text in ("Hello.", FIRST)] == ["Hello.", FIRST]
    assert inspect_state(result.state).waiting_messages == (came == "an event")


@pytest.mark.parametrize("resumes", [True, False], ids=["resume", "again"])
def test_a_stored_answer_fits_a_wider_type(
    kept: Threads, leasing: LeasingStore, wire: str, resumes: bool
) -> None:
    """The description of the new type and a context leave no message to a later turn."""
    leasing = put(leasing, unchecked(wire))
    backend = ScriptedBackend("Fine.", wire=wire)
    conversation = kept(backend, leasing, gate="steer")
    wider = {"output_type": Output(dict[str, int | str], mode="prompt"), "context": "It snows."}

    send = (
        conversation.resume if resumes else lambda **more: conversation.send("Hello.", turn_id="m-1", **more)
    )
    result = send(**wider, metadata={"lang": "de"})
    calls = len(backend.requests)
    after = conversation.send("How are you?")

    assert (result.output, calls) == ({"value": 1}, 0)
    assert read_history(result.state).turns[0].metadata == {"lang": "de"}
    assert said(after.state)[-3:] == [FIRST, "How are you?", "Fine."]
    assert read_history(after.state).turns[-1].metadata == {}


def test_a_stored_answer_leaves_no_instruction_if_its_reader_goes(
    kept: Threads, leasing: LeasingStore, wire: str
) -> None:
    """The call that takes it up is cancelled at its text."""
    backend = ScriptedBackend("Fine.", wire=wire)
    conversation = kept(backend, put(leasing, unchecked(wire)))
    turn = conversation.start_resume(**TYPED, context="It snows.")
    for one in turn:
        if isinstance(one, TextDelta):
            break
    turn.cancel()

    after = conversation.send("How are you?")

    assert said(after.state)[-3:] == [FIRST, "How are you?", "Fine."]


def test_a_stored_answer_that_does_not_fit_is_asked_for_again(
    kept: Threads, leasing: LeasingStore, wire: str
) -> None:
    """The type has changed since. The model is told the problem, and what came is sent, too."""
    leasing = put(leasing, unchecked(wire))
    Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada").append(event("Ada won."))
    backend = ScriptedBackend('{"value": "one"}', wire=wire)

    result = kept(backend, leasing).resume(output_type=Output(dict[str, str], mode="prompt"))

    assert result.output == {"value": "one"}
    assert "Ada won." in said(result.state)
    assert check_history(wire, state_messages(result.state)) == []


# ------------------------------------------------------------------------------------- ids, and odd messages


def test_an_event_may_have_the_id_of_a_turn(
    kept: Threads, leasing: LeasingStore, wire: str, save: str
) -> None:
    """A send that gives up takes its own message back, and a turn that failed is not another one."""
    other = Chat(ScriptedBackend(wire=wire)).conversation(leasing.inner, "ada", gate="steer")

    def late() -> None:
        other.append(event("It rains.", id="42"))
        with pytest.raises(TurnInProgressError):
            other.send("Too late?", turn_id="42", timeout=0.001)

    backend = ScriptedBackend(then(late, "First."), "Second.", wire=wire)

    result = kept(backend, leasing, save=save, gate="steer").send("Hello.", turn_id="1")

    assert said(result.state) == ["Hello.", "First.", "It rains.", "Second."]


def test_an_answer_as_text_is_read_again(kept: Threads, leasing: LeasingStore, wire: str) -> None:
    """The type was asked for by a tool, and the model answered in text: a second delivery has the value."""
    options = {"output_type": Output(dict[str, int], mode="tool")}
    conversation = kept(ScriptedBackend(FIRST, wire=wire), leasing)

    first = conversation.send("Hello.", turn_id="m-1", **options)
    again = conversation.send("Hello.", turn_id="m-1", **options)

    assert first.output == again.output == {"value": 1}
    assert again.duplicate
