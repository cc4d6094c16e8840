"""What a kept conversation tells its store beside the blob."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import Chat, event
from goaitools_py.chat.kept import row_parts
from goaitools_py.chat.kept.full_row import row_facts, shows_title
from goaitools_py.seal import Key, Keyring, Signed
from goaitools_py.state.codec import PLAIN, Codec
from goaitools_py.state.records import Meta
from goaitools_py.states import inspect_state
from goaitools_py.stores import MemoryStore, RowFacts


@pytest.fixture
def chat() -> Iterator[Chat]:
    """A chat that is closed at the end."""
    with Chat("sim") as made:
        yield made


TITLED = Meta(wire="openai-chat", title="Ada's trip", processed=1)
"""Meta data with a title."""


def facts_in(store: MemoryStore, key: str = "ada") -> RowFacts | None:
    return next((entry.facts for entry in store.list().keys if entry.key == key), None)


def test_each_save_tells_what_the_state_says(chat: Chat) -> None:
    """After a turn, an append and a rewind the columns are those of the blob beside them."""
    store = MemoryStore()
    conversation = chat.conversation(store, "ada")

    for act in (
        lambda: conversation.send("Hello."),
        lambda: conversation.append(event("A door opens.")),
        lambda: conversation.send("What happened?"),
        lambda: conversation.rewind(),
    ):
        act()
        stored, told = store.load("ada"), facts_in(store)
        assert stored is not None
        assert told is not None
        info = inspect_state(stored.blob)
        assert (told.status, told.turns, told.total_tokens) == (
            info.status,
            info.turns_processed,
            info.total_usage.total_tokens,
        )


def test_the_cost_is_told_in_billionths_of_a_dollar(chat: Chat) -> None:
    """With known prices it is the conversation's whole cost; without it is unknown."""
    store = MemoryStore()
    chat.conversation(store, "unknown").send("Hello.")
    with Chat("sim", prices=lambda charge: Decimal("0.000001234")) as knowing:
        priced = knowing.conversation(store, "known")
        priced.send("Hello.")
        priced.send("Again.")

    unknown, known = facts_in(store, "unknown"), facts_in(store, "known")
    assert unknown is not None
    assert known is not None
    assert unknown.cost_nano_dollars is None
    assert known.cost_nano_dollars == 2 * 1_234


def test_a_turn_decodes_nothing_for_it(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts of a turn's own blob are at hand."""
    decoded: list[int] = []
    load = row_parts.load_meta

    def counted(blob: bytes, **rest: Any) -> Any:
        decoded.append(len(blob))
        return load(blob, **rest)

    monkeypatch.setattr(row_parts, "load_meta", counted)
    store = MemoryStore()
    conversation = chat.conversation(store, "ada", save="checkpoint")

    conversation.send("Hello.")
    conversation.send("Again.")

    told = facts_in(store)
    assert told is not None
    assert told.turns == 2
    assert decoded == []


class Counts(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def load(self, key: str) -> Any:
        self.calls.append("load")
        return super().load(key)

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: RowFacts | None = None) -> int:
        self.calls.append("save")
        return super().save(key, blob, expected=expected, facts=facts)


def test_a_turn_asks_no_more_of_the_store(chat: Chat) -> None:
    """One load and one save, as before there were columns."""
    store = Counts()

    chat.conversation(store, "ada").send("Hello.")

    assert store.calls == ["load", "save"]


def test_a_store_that_takes_no_facts_is_given_none(chat: Chat) -> None:
    """A store of two methods, as the protocol has them, works as before."""

    class Plain:
        def __init__(self) -> None:
            self.kept = MemoryStore()

        def load(self, key: str) -> Any:
            return self.kept.load(key)

        def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
            return self.kept.save(key, blob, expected=expected)

    store = Plain()

    chat.conversation(store, "ada").send("Hello.")

    assert store.kept.load("ada") is not None
    assert facts_in(store.kept) is None


@pytest.mark.parametrize(("plain_title", "told"), [(None, ""), (True, "Ada's trip"), (False, "")])
def test_a_keyed_codec_keeps_the_title_to_itself(plain_title: bool | None, told: str) -> None:
    """The column stays empty unless it is asked for by name."""
    codec = Signed(Keyring(Key.generate()))

    facts = row_facts(TITLED, with_title=shows_title(codec, plain_title))

    assert facts.title == told


def test_a_readable_blob_has_its_title_beside_it() -> None:
    """Without a key everyone who reads the column could read the blob; False keeps it out all the same."""
    assert row_facts(TITLED, with_title=shows_title(PLAIN, None)).title == "Ada's trip"
    assert row_facts(TITLED, with_title=shows_title(PLAIN, False)).title == ""


KEYED = Signed(Keyring(Key.generate()))


@pytest.mark.parametrize(
    ("codec", "plain_title", "told"),
    [
        (PLAIN, None, "Ada's trip"),
        (PLAIN, False, ""),
        (KEYED, None, ""),
        (KEYED, False, ""),
        (KEYED, True, "Ada's trip"),
    ],
)
def test_the_title_of_an_update_is_in_the_row(codec: Codec, plain_title: bool | None, told: str) -> None:
    """The title that `update` sets stands in its column, after the update itself and after the next turn.

    With a keyed codec it stands there only if ``plain_title=True`` asks for it.
    """
    store = MemoryStore()
    binding = None if codec is PLAIN else {"user": "ada"}
    with Chat("sim", codec=codec) as chat:
        conversation = chat.conversation(store, "ada", binding=binding, plain_title=plain_title)
        conversation.send("Hello.")

        for act in (
            lambda: conversation.update(title="Ada's trip"),
            lambda: conversation.send("Where do we go?"),
        ):
            act()
            facts = facts_in(store)
            assert facts is not None
            assert facts.title == told
