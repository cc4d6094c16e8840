"""The outermost object of a reply is read by one reader, however odd its members are."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from goaitools_py.backends.base import ProtocolFault
from goaitools_py.backends.dialects import WIRES, dialect_of
from goaitools_py.backends.wire.envelope import Envelope
from goaitools_py.base.rawjson import RawJSONError

MESSAGE = {"role": "assistant", "content": "Hello."}
ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
BODIES: dict[str, dict[str, Any]] = {
    "openai": {
        "id": "r1",
        "model": "m",
        "choices": [{"message": MESSAGE, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 2},
    },
    "openai-responses": {
        "id": "r1",
        "model": "m",
        "status": "completed",
        "output": [ITEM],
        "usage": {"input_tokens": 11, "output_tokens": 2},
    },
    "anthropic": {
        "id": "r1",
        "model": "m",
        "type": "message",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Hello."}],
        "usage": {"input_tokens": 11, "output_tokens": 2},
    },
}
wires = pytest.mark.parametrize("wire", WIRES)


class Inner(msgspec.Struct):
    text: str = "none"


class Outer(msgspec.Struct):
    text: str = "none"
    count: int | None = None
    inner: Inner | None = None
    inners: list[Inner] | None = None
    raw: msgspec.Raw = msgspec.Raw(b"null")


def read(value: Any) -> Outer:
    return Envelope(Outer).read(json.dumps(value).encode())


@pytest.mark.parametrize("odd", [1, 1.5, True, None, "word", [], [1], {}, {"text": 2}, 10**40])
@pytest.mark.parametrize("name", ["text", "count", "inner", "inners"])
def test_a_member_of_an_odd_type_costs_no_other_member(name: str, odd: Any) -> None:
    """It takes its default, or what can be read of it; the others keep their values."""
    usual = {"text": "t", "count": 3, "inner": {"text": "i"}, "inners": [{"text": "a"}], "raw": [1]}

    found = read({**usual, name: odd})

    for other in {"text", "count"} - {name}:
        assert getattr(found, other) == usual[other]
    assert name == "inner" or found.inner == Inner("i")
    assert name == "inners" or found.inners == [Inner("a")]
    assert json.loads(bytes(found.raw)) == [1]


def test_an_element_keeps_its_place() -> None:
    """The first choice is the first, also behind one that is no object."""
    assert read({"inners": [7, {"text": "b"}]}).inners == [Inner(), Inner("b")]


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"<html>", b'{"text": ', b'"text"'])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    """Leniency is about members: whether it is an object at all is never guessed."""
    with pytest.raises(RawJSONError):
        Envelope(Outer).read(body)


@wires
@pytest.mark.parametrize("name", ["id", "model"])
@pytest.mark.parametrize("odd", [7, [], {"a": 1}, None, True])
def test_an_odd_member_costs_no_reply(wire: str, name: str, odd: Any) -> None:
    """The reply is paid for: its text and its usage are read."""
    reply = dialect_of(wire).reply(json.dumps({**BODIES[wire], name: odd}).encode())

    assert reply.text == "Hello."
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (11, 2)
    assert getattr(reply, name) == ""


ERRORS = pytest.mark.parametrize("error", [{"message": "no"}, "no", ["no"], 7, True])


@wires
@ERRORS
@pytest.mark.parametrize("model", ["m", 7])
def test_an_error_in_a_200_is_an_error_of_any_shape(wire: str, error: Any, model: Any) -> None:
    """Whether the envelope is read in one pass or by its members; the stated usage is kept."""
    body = json.loads(json.dumps({**BODIES[wire], "error": error, "model": model}))
    body["status"] = body["stop_reason"] = None
    for choice in body.get("choices", ()):
        choice["finish_reason"] = None

    with pytest.raises(ProtocolFault, match="answered 200 with an error") as caught:
        dialect_of(wire).reply(json.dumps(body).encode())

    assert caught.value.usage is not None
    assert caught.value.usage.input_tokens == 11


@wires
@ERRORS
def test_an_error_beside_a_reply_with_its_last_word_costs_no_reply(wire: str, error: Any) -> None:
    """The reply is whole, and paid for."""
    reply = dialect_of(wire).reply(json.dumps({**BODIES[wire], "error": error}).encode())

    assert reply.text == "Hello."
    assert reply.usage.input_tokens == 11


@wires
@pytest.mark.parametrize("usage", [None, 7, "much", [], {"prompt_tokens": "11", "input_tokens": "11"}])
def test_a_usage_that_cannot_be_read_costs_no_reply(wire: str, usage: Any) -> None:
    """It counts nothing then, on every provider API."""
    reply = dialect_of(wire).reply(json.dumps({**BODIES[wire], "usage": usage}).encode())

    assert reply.text == "Hello."
    assert (reply.usage.input_tokens, reply.usage.requests) == (0, 1)
