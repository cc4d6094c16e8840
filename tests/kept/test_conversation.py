"""A kept conversation: each method loads, works and saves, and holds nothing in between."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from goaitools_py import (
    UNBOUND,
    Approve,
    AsyncChat,
    Chat,
    ChatOptions,
    Compactor,
    KeepRecentTurns,
    MessageLimit,
    StateAuthError,
    StateConflictError,
    Summarize,
    TextDelta,
    event,
    tool,
)
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.states import inspect_state
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

from .conftest import FaultyStore, LeasingStore, Threads, blob_in, said


def test_a_turn_is_loaded_and_saved(kept: Threads, store: FaultyStore, save: str) -> None:
    """Another object, as in another process, goes on from what the store has."""
    first = kept(ScriptedBackend("Hello Ada."), store, save=save).send("I am Ada.")
    second = kept(ScriptedBackend("You are Ada."), store, save=save).send("Who am I?")

    assert said(second.state) == ["I am Ada.", "Hello Ada.", "Who am I?", "You are Ada."]
    assert blob_in(store) == second.state
    assert inspect_state(first.state).conversation_id == "ada"


def test_a_turn_is_one_load_and_one_save(kept: Threads, store: FaultyStore) -> None:
    """What is saved at the end of a turn costs no more than that."""
    kept(ScriptedBackend("Hello."), store).send("Hello?")

    assert (store.loads, len(store.saves)) == (1, 1)


def test_a_snapshot_is_one_load(kept: Threads, store: FaultyStore) -> None:
    """What a page shows agrees, whatever another worker saves meanwhile; and a resume streams."""

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    conversation = kept(
        ScriptedBackend(Calls([("pay", {"amount": 5})]), "Done."), store, chat={"tools": [pay]}
    )
    assert conversation.snapshot() is None
    conversation.send("Pay 5.")
    before = store.loads

    found = conversation.snapshot()

    assert store.loads == before + 1
    assert (found.info, found.pending) == (conversation.info(), conversation.pending())
    assert found.history == conversation.history()
    assert [call.name for call in found.pending] == ["pay"]
    turn = conversation.start_resume({found.pending[0].id: Approve()})
    assert [one.text for one in turn if isinstance(one, TextDelta)]
    assert conversation.pending() == ()


def test_nothing_is_done_before_a_method_is_called(kept: Threads, store: FaultyStore) -> None:
    """Making a conversation, and a handle that nobody iterates, asks the store for nothing."""
    conversation = kept(ScriptedBackend("Hello."), store)
    turn = conversation.start("Hello?")
    turn.cancel()

    assert (store.loads, store.saves) == (0, [])
    assert turn.state == b""


def test_events_are_appended(kept: Threads, store: FaultyStore) -> None:
    """Without a model, also to a conversation that does not exist yet; `send` answers them."""
    conversation = kept(ScriptedBackend("Well done."), store)

    conversation.append(event("Ada won.", id="e-1"))
    conversation.append(event("Ada won.", id="e-1"))
    result = conversation.send()

    assert said(result.state) == ["Ada won.", "Well done."]
    assert inspect_state(result.state).conversation_id == "ada"


def test_a_stream_is_saved_at_its_end(kept: Threads, store: FaultyStore, save: str) -> None:
    """The turn is told to be complete once it is saved, with the state that is stored."""
    turn = kept(ScriptedBackend("Hello."), store, save=save).start("Hello?")

    events = []
    for seen in turn:
        events.append(seen)
        if type(seen).__name__ == "TurnCompleted":
            assert blob_in(store) == seen.result.state

    assert [type(seen).__name__ for seen in events][-1] == "TurnCompleted"
    assert turn.result().state == turn.state == blob_in(store)


def test_what_is_stored_can_be_looked_at(kept: Threads, store: FaultyStore) -> None:
    """`history`, `info` and `pending` read; there may be nothing yet."""
    conversation = kept(ScriptedBackend("Hello.", "Bye."), store)

    assert conversation.info() is None
    assert conversation.history().turns == ()
    assert conversation.pending() == ()
    conversation.send("Hello?", metadata={"channel": "mail", "shop": "7"})
    conversation.send("Bye?", metadata={"channel": "chat"})

    info = conversation.info()
    assert (info.key, info.state.turns, info.state.total_usage.requests) == ("ada", 2, 2)
    assert info.metadata == {"channel": "chat", "shop": "7"}
    assert info.version == store.inner.load("ada").version
    assert info.saved_at == store.inner.load("ada").updated_at
    assert [message.text for message in conversation.history().all_messages()][-1] == "Bye."
    assert "channel" not in repr(info)
    assert "ada" not in repr(conversation.inner)


def test_calls_wait_in_the_store(kept: Threads, store: FaultyStore, save: str) -> None:
    """A turn that waits for an approval is saved, and finished by another process."""
    ran: list[int] = []

    @tool(requires_approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        ran.append(euros)
        return "paid"

    first = kept(ScriptedBackend(Calls([("pay", {"euros": 3})])), store, chat={"tools": [pay]}, save=save)
    assert first.send("Pay 3 euros.").status == "awaiting_tools"

    second = kept(ScriptedBackend("It is paid."), store, chat={"tools": [pay]}, save=save)
    (call,) = second.pending()
    result = second.resume({call.id: Approve()})

    assert (ran, result.text, second.pending()) == ([3], "It is paid.", ())
    assert said(blob_in(store))[-1] == "It is paid."


def test_compaction_is_saved(kept: Threads, leasing: LeasingStore) -> None:
    """Outside a turn, under the lease; a dry run leaves everything as it is."""
    conversation = kept(ScriptedBackend("1", "2", "3"), leasing)
    for text in "abc":
        conversation.send(text)
    before = blob_in(leasing)
    compactor = Compactor(MessageLimit(2), KeepRecentTurns(1))

    dry = conversation.compact(compactor, dry_run=True)
    assert (dry.outcome, blob_in(leasing)) == ("compacted", before)
    report = conversation.compact(compactor)

    assert said(report.state) == ["c", "3"]
    assert blob_in(leasing) == report.state


def test_a_compaction_takes_what_the_turns_were_given(kept: Threads, leasing: LeasingStore) -> None:
    """A summary is asked for behind the turns' own preamble; what belongs to a turn is refused."""
    backend = ScriptedBackend("1", "2", "A summary.")
    conversation = kept(backend, leasing)
    for text in "ab":
        conversation.send(text, system="You are Smith.")

    conversation.compact(Compactor(MessageLimit(1), Summarize(keep_turns=1)), system="You are Smith.")

    preambles = [body["messages"][0] for body in backend.bodies()]
    assert preambles == [{"role": "system", "content": "You are Smith."}] * 3
    for refused in ({"user": "c"}, {"binding": {"user": "ada"}}):
        with pytest.raises(TypeError, match=next(iter(refused))):
            conversation.compact(Compactor(MessageLimit(1), KeepRecentTurns(1)), **refused)


def test_a_fork_has_a_key_and_an_id_of_its_own(kept: Threads, store: FaultyStore) -> None:
    """What is said in one is not in the other; a key that is taken is a conflict."""
    ada = kept(ScriptedBackend("Hello.", "Ada's."), store)
    ada.send("Hello?")
    bob = ada.fork("bob")
    bob.send("Whose?")

    assert said(blob_in(store, "ada")) == ["Hello?", "Hello."]
    assert said(blob_in(store, "bob"))[-1] == "Ada's."
    assert inspect_state(blob_in(store, "bob")).conversation_id == "bob"
    with pytest.raises(StateConflictError):
        ada.fork("bob")
    with pytest.raises(ValueError, match="nothing to fork"):
        kept(ScriptedBackend(), store, key="nobody").fork("carl")


def test_turns_can_be_taken_back(kept: Threads, store: FaultyStore) -> None:
    """`rewind` takes the newest away, `reset` all."""
    conversation = kept(ScriptedBackend("1", "2"), store)
    conversation.send("a")
    conversation.send("b")

    conversation.rewind()
    assert said(blob_in(store)) == ["a", "1"]
    conversation.reset()
    assert said(blob_in(store)) == []
    assert inspect_state(blob_in(store)).conversation_id == "ada"


def test_a_reset_deletes_where_that_can_be(kept: Threads, leasing: LeasingStore) -> None:
    """A store that can forget does; then there is nothing to rewind."""
    conversation = kept(ScriptedBackend("1"), leasing)
    conversation.send("a")

    conversation.reset()

    assert leasing.inner.load("ada") is None
    with pytest.raises(ValueError, match="nothing to rewind"):
        conversation.rewind()


def test_a_sealed_conversation_is_bound(kept: Threads, store: FaultyStore) -> None:
    """Every method opens and seals with the conversation's binding; another one does not open it."""
    codec = Encrypted(Keyring(Key.generate()))

    def make(user: str) -> Any:
        backend = ScriptedBackend("Hello.", "Again.")
        return kept(backend, store, chat={"codec": codec}, binding={"user": user})

    ada = make("ada")
    ada.append(event("It rains."))
    ada.send("Hello?")
    ada.rewind()
    ada.send("Hello?")

    assert ada.info().state.turns == 1
    with pytest.raises(StateAuthError):
        make("eve").send("What did Ada say?")
    with pytest.raises(StateAuthError):
        make("eve").history()
    fork = ada.fork("bob", binding={"user": "bob"})
    assert fork.info().state.turns == 1
    with pytest.raises(TypeError, match="one binding"):
        ada.send("Hello?", binding=UNBOUND)
    with pytest.raises(TypeError, match="one binding"):
        ada.send("Hello?", ChatOptions(binding=UNBOUND))
    with pytest.raises(TypeError, match="must be ChatOptions, not dict"):
        ada.send("Hello?", {"system": "Be brief."})


def test_a_keyed_chat_wants_a_binding(kept: Threads, store: FaultyStore) -> None:
    """That is said when the conversation is made."""
    with pytest.raises(ValueError, match="binding"):
        kept(ScriptedBackend(), store, chat={"codec": Encrypted(Keyring(Key.generate()))})


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"key": ""}, ValueError, "1 to 512"),
        ({"key": "ä" * 257}, ValueError, "1 to 512"),
        ({"key": 7}, TypeError, "must be str"),
        ({"gate": "wait"}, ValueError, "gate"),
        ({"save": "never"}, ValueError, "save"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    kept: Threads, store: FaultyStore, fields: dict[str, Any], error: type[Exception], says: str
) -> None:
    """When the conversation is made, without the key in the text."""
    with pytest.raises(error, match=says):
        kept(ScriptedBackend(), store, **fields)


def test_a_store_of_the_other_colour_is_refused() -> None:
    """A blocking store would hold the loop up, and an async one cannot be called from plain code."""
    with pytest.raises(TypeError, match="Async… store"):
        AsyncChat(ScriptedBackend()).conversation(MemoryStore(), "ada")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is not Async…"):
        Chat(ScriptedBackend()).conversation(AsyncMemoryStore(), "ada")  # type: ignore[arg-type]


@pytest.mark.parametrize("chat", [Chat, AsyncChat])
@pytest.mark.parametrize(
    ("store", "says"),
    [("bot.db", "see stores; got str"), (None, "got NoneType"), (MemoryStore, "got the class MemoryStore")],
)
def test_what_is_no_store_is_refused(chat: Any, store: Any, says: str) -> None:
    """When the conversation is made, not at its first message."""
    with pytest.raises(TypeError, match=says):
        chat(ScriptedBackend()).conversation(store, "ada")


class _Positional(MemoryStore):
    def save(self, key: str, blob: bytes, version: int = 0) -> int:  # type: ignore[override]
        raise NotImplementedError


def test_a_store_whose_methods_do_not_fit_is_refused_each_time() -> None:
    """Before a turn is paid for. Its class is looked at once, and other methods count at once."""
    chat = Chat(ScriptedBackend())
    for store in (_Positional(), _Positional()):
        with pytest.raises(TypeError, match=r"save\(key, blob, expected=…\).* _Positional .*'expected'"):
            chat.conversation(store, "ada")
    store = MemoryStore()
    chat.conversation(store, "ada")
    store.load = lambda: None  # type: ignore[method-assign, assignment, misc]
    with pytest.raises(TypeError, match=r"calls load\(key\)"):
        chat.conversation(store, "ada")


def test_a_class_of_stores_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two signatures took a tenth of a turn."""
    chat = Chat(ScriptedBackend())
    chat.conversation(MemoryStore(), "ada")
    read, signature = [], inspect.signature

    def noted(function: Any, **how: Any) -> Any:
        read.append(function)
        return signature(function, **how)

    monkeypatch.setattr(inspect, "signature", noted)
    chat.conversation(MemoryStore(), "ada")
    assert read == []
    monkeypatch.setattr(MemoryStore, "save", lambda store, key, blob, expected: 1)
    chat.conversation(MemoryStore(), "ada")
    assert len(read) == 1


def test_options_are_checked_before_the_store_is_asked(kept: Threads, store: FaultyStore) -> None:
    """A mistake of the caller's is told at once."""
    conversation = kept(ScriptedBackend(), store)

    with pytest.raises(TypeError, match="unknown option"):
        conversation.send("Hello?", no_such=1)
    with pytest.raises(TypeError, match="given twice"):
        conversation.send("Hello?", user="Hello?")
    assert store.loads == 0


def test_a_long_key_makes_a_short_id(kept: Threads, store: FaultyStore) -> None:
    """A state keeps 256 characters of an id; the key may have 512."""
    key = "k" * 500
    kept(ScriptedBackend("Hello."), store, key=key).send("Hello?")

    assert len(inspect_state(blob_in(store, key)).conversation_id) == 64


def test_nothing_to_answer_is_told(kept: Threads, store: FaultyStore, save: str) -> None:
    """And nothing is saved for it."""
    conversation = kept(ScriptedBackend("Hello."), store, save=save)

    with pytest.raises(ValueError, match="nothing new"):
        conversation.send()
    with pytest.raises(ValueError, match="nothing to resume"):
        conversation.resume()
    assert store.saves == []


def test_messages_enter_a_turn_that_runs(kept: Threads, store: FaultyStore) -> None:
    """Also those that are appended to the handle before the conversation is loaded."""
    backend = ScriptedBackend("Hello.")
    turn = kept(backend, store).start("Hello?")

    turn.append(event("It rains."))
    result = turn.result()

    assert said(result.state) == ["Hello?", "It rains.", "Hello."]


def test_title_and_metadata_are_kept(kept: Threads, store: FaultyStore, save: str) -> None:
    """Also before the first message, and beside a turn that is running."""
    conversation = kept(ScriptedBackend("Hello."), store, save=save)
    conversation.update(title="A key")
    turn = conversation.start("Hello?")
    next(iter(turn))
    kept(ScriptedBackend(), store).update(metadata={"level": "3"})
    turn.result()

    info = conversation.info()

    assert (info.title, info.metadata) == ("A key", {"level": "3"})
    assert info.state.turns == 1
    assert said(blob_in(store)) == ["Hello?", "Hello."]
