"""A call that is run again has the same idempotency key, whatever the second delivery of its message says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, ChatOptions, tool
from goaitools_py.states import inspect_state
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.tools import ToolContext

from .conftest import LeasingStore, Threads, blob_in


class Bank:
    """A tool that pays and then dies, at its first call."""

    def __init__(self) -> None:
        self.keys: list[str] = []

        @tool(idempotent=True)
        def pay(ctx: ToolContext) -> str:
            """Pay."""
            self.keys.append(ctx.idempotency_key)
            if len(self.keys) == 1:
                raise KeyboardInterrupt
            return "paid"

        self.pay = pay


def backend() -> ScriptedBackend:
    return ScriptedBackend(Calls([("pay", {})]), "Paid.", "Paid.")


ACTS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "send": lambda kept, given: kept.send("Pay.", **given),
    "send-options": lambda kept, given: kept.send("Pay.", ChatOptions(**given)),
    "start": lambda kept, given: kept.start("Pay.", **given),
    "resume": lambda kept, given: kept.resume(**given),
    "start_resume": lambda kept, given: kept.start_resume(None, **given),
    "append": lambda kept, given: kept.append(**given),
    "compact": lambda kept, given: kept.compact(**given),
    "redact": lambda kept, given: kept.redact("x", **given),
    "fork": lambda kept, given: kept.fork("other", **given),
    "rewind": lambda kept, given: kept.rewind(**given),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_kept_conversation_takes_no_id(kept: Threads, leasing: LeasingStore, act: str) -> None:
    """It says what to do, and nothing is asked or stored."""
    script = backend()
    conversation = kept(script, leasing, chat={"tools": [Bank().pay]})
    with pytest.raises(TypeError, match="key"):
        ACTS[act](conversation, {"conversation_id": "another"})

    assert script.requests == []
    assert blob_in(leasing) == b""
    if act in ("send", "start", "resume"):
        with pytest.raises(TypeError, match="key"):
            ACTS[act](conversation, {"conversation_id": "ada"})


def test_none_names_none(kept: Threads, leasing: LeasingStore) -> None:
    """As for every option."""
    result = kept(ScriptedBackend("Hi."), leasing).send("Hi?", conversation_id=None)
    assert inspect_state(result.state).conversation_id == "ada"


@pytest.mark.parametrize("again", ["send", "resume"])
@pytest.mark.parametrize("ids", [("a", "b"), ("a", None), (None, "b")])
@pytest.mark.parametrize("turn_id", ["m-1", None])
def test_an_unfinished_turn_keeps_its_id(
    again: str, ids: tuple[str | None, str | None], turn_id: str | None
) -> None:
    """A state by itself may be given another id, by mistake or not: the bank sees one key."""
    if again == "send" and turn_id is None:
        again = "resume"  # without a turn id the message would be a new one
    bank, first = Bank(), ids[0]
    chat = Chat(backend(), tools=[bank.pay])
    turn = chat.start(None, user="Pay.", turn_id=turn_id, conversation_id=first)
    with pytest.raises(KeyboardInterrupt):
        turn.result()
    began = inspect_state(turn.state).conversation_id
    if again == "send":
        result = chat.chat_with_state(turn.state, user="Pay.", turn_id=turn_id, conversation_id=ids[1])
    else:
        result = chat.resume(turn.state, conversation_id=ids[1])

    assert result.text == "Paid."
    assert len(bank.keys) == 2
    assert len(set(bank.keys)) == 1
    assert inspect_state(result.state).conversation_id == began
    assert began == first or first is None
    later = chat.chat_with_state(result.state, user="Thanks.", conversation_id="c")
    assert inspect_state(later.state).conversation_id == "c"


def test_a_state_that_moves_into_a_store_keeps_its_turn(kept: Threads) -> None:
    """It was begun by itself, and is resumed under a key of another name."""
    bank = Bank()
    turn = Chat(backend(), tools=[bank.pay]).start(None, user="Pay.", turn_id="m-1", conversation_id="mine")
    with pytest.raises(KeyboardInterrupt):
        turn.result()
    store = LeasingStore()
    store.inner.save("ada", turn.state, expected=None)
    told: list[Any] = []
    conversation = kept(ScriptedBackend("Paid."), store, chat={"tools": [bank.pay]})
    assert conversation.send("Pay.", turn_id="m-1", on_event=told.append).text == "Paid."

    assert len(set(bank.keys)) == 1
    assert {event.conversation_id for event in told} == {"mine"}


def test_no_chat_and_no_hand_off_has_an_id_for_all() -> None:
    """A default of a chat, and the fields of a chat as a tool."""
    given: Any = {"conversation_id": "x"}
    with pytest.raises(TypeError, match="conversation_id"):
        Chat(ScriptedBackend(), **given)
    with pytest.raises(TypeError, match="key="):
        Chat(ScriptedBackend()).as_tool("ask", "Ask.", store=MemoryStore(), **given)
    with pytest.raises(TypeError, match="key="):
        AsyncChat(ScriptedBackend()).as_tool("ask", "Ask.", store=AsyncMemoryStore(), **given)
