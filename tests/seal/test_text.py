"""The text form: one line that survives cookies, JSON and text columns, or says that it did not."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from goaitools_py import Chat, StateCorruptError, StateFormatError, event
from goaitools_py.states import inspect_state, state_from_text, state_to_text
from goaitools_py.testing import ScriptedBackend


@pytest.fixture
def state() -> bytes:
    """A good state."""
    return Chat(ScriptedBackend()).append_to_state(None, event("It rains."))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("extra", range(4))
def test_a_state_survives_as_text(state: bytes, kind: Any, extra: int) -> None:
    """Of any length and any kind of bytes: ASCII without padding, which JSON and cookies leave alone."""
    blob = state + bytes(extra)

    text = state_to_text(kind(blob))

    assert text.startswith("gas1.9UdBU")
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
    assert json.dumps(text) == f'"{text}"'
    assert state_from_text(text) == blob


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: "", "expected it to start with 'gas1.'"),
        (lambda text: text[5:], "expected it to start with"),
        (lambda text: "gas2." + text[5:], "expected it to start with"),
        (lambda text: " " + text, "expected it to start with"),
        (lambda text: "gas1.", "is damaged"),
        (lambda text: text + "\n", "is damaged.*without padding, spaces or line breaks"),
        (lambda text: text[:40] + "\n" + text[40:], "is damaged"),
        (lambda text: text + "=", "is damaged"),
        (lambda text: text[:30] + "+" + text[31:], "is damaged"),
        (lambda text: text[:30] + "é" + text[31:], "is damaged"),
        (lambda text: text[:30] + "\ud800" + text[31:], "is damaged"),
        (lambda text: text[:-1] if len(text[5:]) % 4 == 2 else text[: 5 + 41], "is damaged"),
        (lambda text: "gas1.AAAA", "not a state"),
    ],
)
def test_a_changed_text_is_refused(state: bytes, change: Any, words: str) -> None:
    """The error says what was expected, and carries what was given as bytes."""
    with pytest.raises(StateFormatError, match=words) as caught:
        state_from_text(change(state_to_text(state)))

    assert caught.value.__cause__ is None


def test_tail_bits_count() -> None:
    """Of the letters that decode to the same bytes, only one is taken."""
    blob = b"\xf5GAS" + bytes(13)
    text = state_to_text(blob)
    alike = text[:-1] + "B"

    assert base64.urlsafe_b64decode(alike[5:] + "=") == blob
    with pytest.raises(StateFormatError):
        state_from_text(alike)


@pytest.mark.parametrize("length", [1, 4, 15])
def test_a_text_cut_off_within_the_header_is_refused(length: int) -> None:
    """A beginning of a state is no state."""
    text = "gas1." + base64.urlsafe_b64encode(
        b"\xf5GAS\x01\0\x02\0\0\0\0\0\0\0\0\0"[:length]
    ).decode().rstrip("=")

    with pytest.raises(StateCorruptError, match=f"{length} bytes are left"):
        state_from_text(text)


def test_each_form_names_the_other(state: bytes) -> None:
    """Text where bytes belong, and bytes where text belongs: the error says which function to call."""
    text = state_to_text(state)

    with pytest.raises(StateFormatError, match="it is the text form; state_from_text gives its bytes"):
        inspect_state(text)  # type: ignore[arg-type]
    with pytest.raises(StateFormatError, match="it is the text form"):
        inspect_state(text.encode())
    with pytest.raises(StateFormatError, match="it is the text form"):
        state_to_text(text)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bytes are the state itself"):
        state_from_text(state)  # type: ignore[arg-type]
    with pytest.raises(StateFormatError, match="not a state"):
        state_to_text(b"hello")
