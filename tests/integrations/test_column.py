"""What a column does with a state, whoever maps it."""

from __future__ import annotations

import base64
import copy
import pickle

import pytest

from goaitools_py import Chat, StateFormatError, event
from goaitools_py.integrations._column import StateBytes, column_bytes

STATE = Chat("sim").append_to_state(None, event("Harrogate-4711"))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_any_kind_stay_what_they_are(kind: type) -> None:
    """Bytes, a bytearray and a memoryview give equal bytes, and None stays None."""
    assert column_bytes(kind(STATE)) == STATE
    assert isinstance(column_bytes(kind(STATE)), bytes)
    assert column_bytes(None) is None


def test_a_state_in_a_column_shows_its_size_only() -> None:
    """Neither the text nor the repr of the bytes, alone or inside a value, holds any of them."""
    shown = StateBytes(STATE)

    assert {str(shown), repr(shown), f"{shown}"} == {f"<state of {len(STATE)} bytes>"}
    assert repr({"state": shown}) == f"{{'state': <state of {len(STATE)} bytes>}}"


def test_copies_are_plain_bytes() -> None:
    """What a cache keeps of it names no class of this package."""
    for made in (pickle.loads(pickle.dumps(StateBytes(STATE))), copy.deepcopy(StateBytes(STATE))):
        assert type(made) is bytes
        assert made == STATE


@pytest.mark.parametrize(
    ("text", "damage"),
    [
        (base64.b64encode(STATE).decode(), "it is base64"),
        ("\\x" + STATE.hex(), r"PostgreSQL's \x form"),
        (str(STATE), "never str(state)"),
        (STATE.decode("latin-1"), "Latin-1"),
        (STATE.decode("utf-8", "replace"), "decoded as UTF-8"),
        ("", "it is empty"),
    ],
)
def test_text_is_refused_with_the_likely_damage(text: str, damage: str) -> None:
    """Text raises an error that says how a state becomes such a text, and does not quote it."""
    with pytest.raises(StateFormatError) as caught:
        column_bytes(text)

    assert damage in str(caught.value)
    assert text[8:] == "" or text[8:] not in str(caught.value)


@pytest.mark.parametrize("value", [5, 1.5, ["a"], object()])
def test_other_values_are_a_mistake_of_the_caller(value: object) -> None:
    """A number does not become that many zero bytes."""
    with pytest.raises(TypeError, match="must be bytes"):
        column_bytes(value)
