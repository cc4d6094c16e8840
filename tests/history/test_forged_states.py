"""Forged states with a digest that fits: each kind of damage by name, and what finds it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from goaitools_py import Chat, ToolCall, event
from goaitools_py.state import blob as blobs
from goaitools_py.state.blob import Kind
from goaitools_py.state.segments import stored_segment
from goaitools_py.states import export_state, import_state, read_history, redact_state, verify_state
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types.answers import PendingCall
from goaitools_py.types.errors import StateError, StateInvalidError, StateVersionError

from ._functions import WIRES
from .test_export import rich

META = b'{"wire":"%s","id":"f","rev":1,"created":1,"turns":1,"processed":1,"messages":2,"rules":9}'
ROW = b'[0,2,[["%s","",1,0,0,1,0,0,0]]]'


def forged(reply: bytes, letters: bytes = b"ua", wire: str = "openai") -> bytes:
    """A state whose reply is any bytes."""
    hot = stored_segment(Kind.HOT, [b'{"role":"user","content":"Hi."}', reply], ROW % letters)
    return blobs.encode([blobs.segment(Kind.META, META % wire.encode(), 0), hot])


BAD = {
    "no UTF-8": b'{"role":"assistant","content":"\xff"}',
    "half a surrogate as bytes": b'{"role":"assistant","content":"\xed\xa0\x80"}',
    "cut off": b'{"role":"assistant","content":"Ye',
    "a list": b"[]",
    "nothing": b"",
    "deep": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
}


@pytest.mark.parametrize("name", BAD)
def test_an_entry_that_is_no_object_is_found(name: str) -> None:
    """By readers, by a redaction and by `verify_state`; and a turn may begin afresh."""
    blob = forged(BAD[name])

    for function in (verify_state, read_history, lambda one: redact_state(one, "Hi"), export_and_import):
        with pytest.raises(StateInvalidError):
            function(blob)
    with Chat(ScriptedBackend("Fresh.", "Fresh.")) as chat:
        assert chat.chat_with_state(blob, user="Hi.", on_bad_state="fresh").text == "Fresh."


def export_and_import(blob: bytes) -> bytes:
    """A way through JSON."""
    return import_state(export_state(blob))


@pytest.mark.parametrize("letter", [b"d", b"Z"])
def test_an_unknown_letter_is_of_a_later_release(letter: bytes) -> None:
    """It is no damage, and `verify_state` tells of it too."""
    blob = forged(b'{"role":"assistant","content":"Yes."}', b"u" + letter)

    for function in (verify_state, read_history, lambda one: redact_state(one, "Hi")):
        with pytest.raises(StateVersionError, match="role letter"):
            function(blob)


def test_an_empty_turn_is_refused() -> None:
    """A row of four values would cost as much as a turn: no release writes a turn without entries."""
    hot = stored_segment(Kind.HOT, [b'{"role":"user","content":"Hi."}'], ROW % b"u" + b",[0,0,[]]")
    blob = blobs.encode([blobs.segment(Kind.META, META % b"openai", 0), hot])

    with pytest.raises(StateInvalidError, match="no entries"):
        verify_state(blob)


@pytest.mark.parametrize("wire", WIRES)
def test_a_sound_state_is_verified(wire: str) -> None:
    """With an archive, a waiting call and waiting messages."""
    assert verify_state(rich(wire)) == ()


@pytest.mark.parametrize("wire", WIRES)
def test_an_import_checks_waiting_messages_and_the_open_turn(wire: str) -> None:
    """As it checks the closed history: a provider would refuse these too."""
    exported = export_state(rich(wire))
    kinds = [one["kind"] for one in exported["segments"]]
    inbox, opened = kinds.index("inbox"), kinds.index("open")

    def changed(at: int, **values: Any) -> dict[str, Any]:
        other = copy.deepcopy(exported)
        other["segments"][at].update(values)
        return other

    journal = json.loads(exported["segments"][opened]["rows"])
    journal["calls"][0]["id"] = "another"
    result = {
        "openai": '{"role":"tool","tool_call_id":"x","content":"a"}',
        "openai-responses": '{"type":"function_call_output","call_id":"x","output":"a"}',
        "anthropic": '{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"a"}]}',
    }[wire]
    assert import_state(exported)
    for other in (
        changed(inbox, entries=[result]),
        changed(inbox, entries=['{"role":"nobody"}']),
        changed(opened, rows=json.dumps(journal)),
    ):
        with pytest.raises(StateInvalidError):
            import_state(other)


@pytest.mark.parametrize("depth", [101, 400, 900, 100_000])
@pytest.mark.parametrize("make", [ToolCall, lambda **given: PendingCall(reason="approval", **given)])
def test_arguments_that_are_too_deep_are_a_value_error(make: Any, depth: int) -> None:
    """Also those that `json` reads, and that could not be shown or copied then."""
    call = make(id="c", name="f", arguments="[" * depth + "]" * depth)

    with pytest.raises(ValueError, match="deeper than 100 levels"):
        assert call.parsed


@pytest.mark.parametrize("make", [ToolCall, lambda **given: PendingCall(reason="approval", **given)])
def test_arguments_within_the_bounds_can_be_copied(make: Any) -> None:
    """Deeper than a state's own JSON may be."""
    call = make(id="c", name="f", arguments="[" * 100 + "]" * 100)

    assert repr(copy.deepcopy(call.parsed)) == json.dumps(call.parsed) == call.arguments
    with pytest.raises(ValueError, match="more than 1,000,000 values"):
        assert make(id="c", name="f", arguments="[" + "[]," * 600_000 + "0]").parsed


def test_a_waiting_message_that_is_no_object_is_found_by_an_append() -> None:
    """The inbox is read with the state."""
    inbox = stored_segment(Kind.INBOX, [b"[]"], b'["u","",""]')
    blob = blobs.encode([blobs.segment(Kind.META, META % b"openai", 0), inbox])

    with pytest.raises(StateError):
        Chat(ScriptedBackend()).append_to_state(blob, event("It rains."))
    with pytest.raises(StateInvalidError):
        verify_state(blob)
