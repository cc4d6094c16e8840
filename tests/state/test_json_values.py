"""The limit of JSON values: how a state is counted, what is refused, and what a turn does at the limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import Chat, event
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.state import blob as blobs
from goaitools_py.state.blob import Kind
from goaitools_py.state.segments import stored_segment, values_in, values_of_lines
from goaitools_py.state.state import load_state
from goaitools_py.states import export_state, import_state, read_history, state_from_messages
from goaitools_py.testing import Raw, ScriptedBackend
from goaitools_py.types.errors import StateInvalidError, StateSizeError, StateTooLargeError

FEW = Plain(limits=BlobLimits(max_values=2_000))
"""The least limit. A state may be read up to twice as far."""


def blob_with(*members: Any, codec: Plain = FEW, count: int | None = None) -> bytes:
    """A state of a turn whose reply has these values."""
    meta = b'{"wire":"openai","id":"v","rev":1,"created":1,"turns":1,"processed":1,"messages":2}'
    entries = [b'{"role":"user","content":"Hi."}']
    entries += [json.dumps({"role": "assistant", "content": "Yes.", "x": one}).encode() for one in members]
    rows = f'[0,2,[["u{"a" * len(members)}","",1,0,0,1,0,0,0]]]'.encode()
    hot = stored_segment(Kind.HOT, entries, rows, count=count)
    return blobs.encode([blobs.segment(Kind.META, meta, 0), hot], codec=codec)


@pytest.mark.parametrize(
    "value",
    [
        [0] * 4_100,
        [[]] * 2_100,
        [{}] * 2_100,
        [""] * 4_100,
        {str(n): n for n in range(4_100)},
        [[[0]]] * 1_400,
    ],
    ids=["numbers", "arrays", "objects", "texts", "members", "nested"],
)
def test_more_than_twice_the_limit_is_refused_before_anything_is_parsed(value: Any) -> None:
    """Whatever the values are."""
    blob = blob_with(value)

    with pytest.raises(StateTooLargeError, match="max_values=4000") as raised:
        read_history(blob, codec=FEW)

    assert (raised.value.limit_name, raised.value.limit) == ("max_values", 4_000)
    assert raised.value.blob == blob
    assert read_history(blob).turns  # under the default limits it is a small state


def test_up_to_twice_the_limit_is_read() -> None:
    """Such a state was written for a reply that had been paid."""
    assert read_history(blob_with([0] * 3_800), codec=FEW).turns


def test_commas_and_brackets_in_strings_are_no_values() -> None:
    """Neither in texts nor in JSON inside of a string."""
    said = [',"[{' * 4_000, json.dumps([0] * 4_000), ",\\" * 4_000]

    assert read_history(blob_with(*said), codec=FEW).turns


def test_half_a_string_hides_nothing() -> None:
    """A forged entry that ends within a string does not turn the next entries into its inside."""
    forged = [b'{"role":"user","content":"}', b'{"role":"assistant","x":[' + b"[]," * 4_000 + b"0]}"]
    hot = stored_segment(Kind.HOT, forged, b'[0,2,[["ua","",1,0,0,1,0,0,0]]]')

    assert values_of_lines(hot.raw(), 10_000) > 8_000
    assert values_in([hot], 4_000) > 4_000


def test_each_line_counts() -> None:
    """It is an entry, whatever stands in it."""
    hot = stored_segment(Kind.HOT, [b'{"x":"' + b'",\n' * 5_000 + b'"}'], b"[]", count=1)

    assert values_of_lines(hot.raw(), 4_000) > 4_000
    with pytest.raises(StateInvalidError, match="more lines than entries"):
        values_in([hot], 4_000)


def test_a_paid_reply_is_stored_and_the_next_turn_cuts() -> None:
    """A reply beyond the limit is in the state; the next turn drops as few old turns as it needs to."""
    reply: dict[str, Any] = {
        "id": "c-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop"}],
    }
    reply["choices"][0]["message"] = {"role": "assistant", "content": "Yes.", "x": [0] * 800}
    with Chat(ScriptedBackend(*[Raw([json.dumps(reply).encode()])] * 4), codec=FEW) as chat:
        first = chat.chat(user="One?").state
        second = chat.chat_with_state(first, user="Two?")
        third = chat.chat_with_state(second.state, user="Three?")

    assert [warning.code for warning in third.warnings] == ["emergency_cut"]
    assert [turn.text for turn in read_history(third.state, codec=FEW).turns] == ["Yes."] * 2
    assert read_history(second.state, codec=FEW).turns[0].messages[0].text == "One?"


def test_what_does_not_fit_is_refused_before_anything_is_sent() -> None:
    """A message, an append, an import and an export of others."""
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}] * 3_000}]
    backend = ScriptedBackend("Yes.")
    with Chat(backend, codec=FEW) as chat:
        with pytest.raises(StateSizeError, match="max_values"):
            chat.chat(messages=state_messages_of(parts))
        with pytest.raises(StateTooLargeError, match="max_values"):
            chat.append_to_state(b"", *[event("x" * n) for n in range(1, 1_500)])
    with pytest.raises(StateTooLargeError, match="max_values"):
        state_from_messages("openai", parts, codec=FEW)
    with pytest.raises(StateTooLargeError, match="max_values"):
        import_state(export_state(state_from_messages("openai", parts)), codec=FEW)
    assert backend.requests == []


def state_messages_of(parts: Any) -> Any:
    """Messages of the package with the parts of such a message."""
    from goaitools_py import Text, user

    return [user(*[Text(one["text"]) for one in parts[0]["content"]])]


def test_small_states_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below a byte and a half for each value there cannot be too many."""
    blob = blob_with([0] * 400)
    state = load_state(blob)
    monkeypatch.setattr("goaitools_py.state.segments._values", None)

    assert values_in(state.segments, 1_000_000) < 2_000
