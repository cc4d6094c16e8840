"""States of the Go library: both shapes, gzipped or not, byte for byte, and from anyone."""

from __future__ import annotations

import gzip
import json
import random
from time import process_time
from typing import Any

import pytest

from goaitools_py import Chat
from goaitools_py.seal import BlobLimits, Encrypted, Key, Keyring, Plain
from goaitools_py.state.state import closed_entries, load_state
from goaitools_py.states import import_goaitools_state, inspect_state, read_history, state_messages
from goaitools_py.testing import ScriptedBackend, check_history
from goaitools_py.types.errors import (
    StateError,
    StateFormatError,
    StateInvalidError,
    StateProviderError,
    StateTooLargeError,
    StateVersionError,
)

from .._odd_values import changed

CALL = {"id": "call_1", "type": "function", "function": {"name": "read_score", "arguments": '{"team":"Red"}'}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "The score of Red?"},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "content": "7", "tool_call_id": "call_1"},
    {"role": "assistant", "content": "Red has 7."},
    {"role": "system", "content": "Blue scored."},
    {"role": "user", "content": "And now?"},
]


def go_state(messages: Any = MESSAGES, **members: Any) -> bytes:
    """As Go's `encodeState` writes it."""
    known = {"version": 1, "provider": "openai", "processed_length": 4, "messages": messages}
    return json.dumps({**known, **members}, separators=(",", ":")).encode()


@pytest.mark.parametrize("packed", [False, True])
def test_seen_messages_are_history_and_the_others_wait(packed: bool) -> None:
    """The next turn goes on where the Go program stood."""
    data = gzip.compress(go_state()) if packed else go_state()

    state = import_goaitools_state(data)

    history = read_history(state)
    assert [message.role for message in history.waiting] == ["system", "user"]
    assert state_messages(state) == MESSAGES
    assert check_history("openai", state_messages(state)[:4]) == []
    backend = ScriptedBackend("Blue has 1.")
    result = Chat(backend).chat_with_state(state)
    sent = json.loads(backend.requests[0].body)["messages"]
    assert sent == MESSAGES
    assert result.text == "Blue has 1."
    assert inspect_state(state).wire == "openai"


def test_the_earlier_shape_has_metadata() -> None:
    """Up to the last reply it is history; the metadata become the conversation's."""
    data = json.dumps(
        {"version": 1, "messages": MESSAGES, "metadata": {"user": "ada", "n": [1e5]}, "more": 5}
    )

    state = import_goaitools_state(data.encode(), conversation_id="c-1", created_ms=5)

    about = load_state(state).meta.about
    assert about == {"user": "ada", "n": "[100000.0]", "more": "5"}
    assert len(read_history(state).waiting) == 2
    assert state == import_goaitools_state(data.encode(), conversation_id="c-1", created_ms=5)


def test_unknown_members_keep_their_bytes() -> None:
    """Numbers, escapes and the order of keys are as the server wrote them."""
    odd = b'{"x_score":1e5,"role":"assistant","content":"\\u0041\\/","z":{"b":1,"a":2.50}}'
    data = (
        b'{"version":1,"provider":"openai","processed_length":2,"messages":[{"role":"user","content":"Hi"},'
    )

    state = import_goaitools_state(data + odd + b"]}")

    assert closed_entries(load_state(state))[1] == odd


def test_indented_json_is_read() -> None:
    """A line break between values is white space."""
    data = json.dumps(json.loads(go_state()), indent=2).encode().replace(b"\n", b"\r\n")

    assert state_messages(import_goaitools_state(data)) == MESSAGES


def test_what_the_provider_would_refuse_is_mended() -> None:
    """A call whose result is missing gets one; the turn says so."""
    broken = [MESSAGES[0], MESSAGES[1], {"role": "assistant", "content": "Never mind."}]

    state = import_goaitools_state(go_state(broken, processed_length=3))

    assert check_history("openai", state_messages(state)) == []
    assert any("repaired" in turn.facts for turn in read_history(state).turns)


def test_a_leading_system_message_stays() -> None:
    """An event that was appended before the first turn."""
    messages = [{"role": "system", "content": "The game begins."}, *MESSAGES[:4]]

    assert state_messages(import_goaitools_state(go_state(messages, processed_length=5))) == messages


@pytest.mark.parametrize("length", [0, 1, 5, 6, 99, -1, None, "4", 2.5])
def test_any_processed_length(length: Any) -> None:
    """Replies and results never wait; nothing is lost."""
    state = import_goaitools_state(go_state(processed_length=length))

    assert state_messages(state) == MESSAGES
    assert all(message.role in ("user", "system") for message in read_history(state).waiting)


def test_an_empty_state_is_an_empty_conversation() -> None:
    """Go writes null for a list that was never made."""
    for messages in (None, []):
        assert state_messages(import_goaitools_state(go_state(messages, processed_length=0))) == []


def test_it_may_be_sealed() -> None:
    """The new state is protected as the chat's others are."""
    codec = Encrypted(Keyring(Key.generate()))

    state = import_goaitools_state(go_state(), codec=codec, binding={"user": "ada"})

    assert state_messages(state, codec=codec, binding={"user": "ada"}) == MESSAGES


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", StateFormatError, "messages"),
        (b"[]", StateFormatError, "messages"),
        (b'{"version":1}', StateFormatError, "messages"),
        (b"\x1f\x8bnonsense", StateFormatError, "damaged"),
        (gzip.compress(go_state())[:-9], StateFormatError, "damaged"),
        (go_state(version=2), StateVersionError, "version 2"),
        (go_state(version=True), StateVersionError, "bool"),
        (go_state(provider="other"), StateProviderError, "'other'"),
        (go_state([1]), StateInvalidError, "list of JSON objects"),
        (go_state({}), StateInvalidError, "list of JSON objects"),
        (go_state(metadata={"a": "x" * 5000}), ValueError, "4096"),
        (b"[" * 100_000, StateFormatError, "messages"),
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes, error: type[Exception], words: str) -> None:
    """Each error says what was expected, and quotes no message."""
    with pytest.raises(error, match=words) as caught:
        import_goaitools_state(data)

    assert "Red" not in str(caught.value)


def test_a_bomb_is_not_inflated() -> None:
    """Beyond the limit of the codec it is refused, whatever it would become."""
    bomb = gzip.compress(b" " * 2**25)
    small = Plain(limits=BlobLimits(max_decoded_bytes=2**16))

    with pytest.raises(StateTooLargeError):
        import_goaitools_state(bomb, codec=small)


@pytest.mark.parametrize(
    "piece", [b"{}", b'{"role":"user","content":"x"}', b'{"a":[[],[]]}', b"[]", b"1", b'{"\\ud800":1}']
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_crowd_of_messages_is_refused_in_time(piece: bytes, packed: bool) -> None:
    """A few kilobytes that become millions of messages take no minutes, and no gigabytes."""
    data = b'{"version":1,"messages":[' + b",".join([piece] * (30 * 2**20 // (len(piece) + 1))) + b"]}"
    data = gzip.compress(data, 1) if packed else data

    start = process_time()
    with pytest.raises((StateInvalidError, StateTooLargeError)):
        import_goaitools_state(data)
    assert process_time() - start < 2


@pytest.mark.parametrize("seed", range(3))
def test_mutations_raise_typed_errors_only(seed: int) -> None:
    """Whatever the bytes."""
    print("seed", seed)
    r = random.Random(f"go/{seed}")
    whole = go_state()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(r.randint(1, 4)):
            at = r.randrange(len(data))
            data[at : at + r.randint(0, 3)] = r.choice([b"", b'"', b"{", b"null", b"\xff", b"\\ud800", b"9"])
        try:
            state_messages(import_goaitools_state(bytes(data)))
        except StateError:
            continue


@pytest.mark.parametrize("seed", range(3))
def test_any_value_at_any_place_raises_typed_errors_only(seed: int) -> None:
    """Other values at some places of the JSON, or none."""
    print("seed", seed)
    r = random.Random(f"go values/{seed}")
    whole = json.loads(go_state())
    for _ in range(400):
        data = json.dumps(changed(r, whole)).encode()
        try:
            state_messages(import_goaitools_state(data))
        except StateError:
            continue
        except ValueError as error:  # the only other one that is documented
            if "the metadata of the Go state" not in str(error):
                raise
