"""A server that refuses a request because of the answer's type: the error names the place in the type."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from goaitools_py import Chat
from goaitools_py.backends.base import BackendError
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect
from goaitools_py.output import Output
from goaitools_py.testing import ScriptedBackend
from goaitools_py.testing._reply_shapes import SHAPES
from goaitools_py.types.errors import ProviderRejectedError

from ..conftest import Face


class Tagged(BaseModel):
    tags: dict[str, int]


class Inner(BaseModel):
    pair: tuple[int, str]
    seen: set[str]


class Outer(BaseModel):
    inner: Inner
    names: list[Any]
    more: dict[str, int]


class Tree(BaseModel):
    kids: list[Tree]


class Plain(BaseModel):
    name: str


PLACES: list[tuple[Any, list[str]]] = [
    (Tagged, ["Tagged.tags is a dict with keys of the model's own; use a list of pairs"]),
    (
        Outer,
        [
            "Outer.inner.pair is a tuple; use a model or a list (the keyword 'prefixItems')",
            "Outer.inner.seen is a set; use a list (the keyword 'uniqueItems')",
            "Outer.names[] is a value of any type",
            "and 1 more",
        ],
    ),
    (Tree, ["Tree.kids[]", " is a type that contains itself"]),
]
ADVICE = "Output(…, mode='prompt') asks for it in words"


def backend(wire: str, *steps: Any) -> ScriptedBackend:
    """A compatible server, whose rules for schemas are not known."""
    if wire == "openai":
        return ScriptedBackend(*steps, dialect=OpenAIChatDialect("server.example"), shape=SHAPES["openai"])
    dialect = OpenAIResponsesDialect("server.example")
    return ScriptedBackend(*steps, wire=wire, dialect=dialect, shape=SHAPES["openai-responses"])


def refused(status: int = 400) -> BackendError:
    return BackendError("no", status=status, body=b'{"error":{"message":"unsupported"}}')


def text_of(face: Face, script: ScriptedBackend, of: Any, **how: Any) -> str:
    """The text of the error of a turn that asks for this type."""
    with pytest.raises(ProviderRejectedError) as caught:
        face.chat(script).chat(user="Go.", output_type=Output(of, **how))
    return str(caught.value)


@pytest.mark.parametrize("wire", ["openai", "openai-responses"])
@pytest.mark.parametrize(("of", "places"), PLACES, ids=str)
@pytest.mark.parametrize("status", [400, 422])
def test_the_error_names_the_place(face: Face, wire: str, of: Any, places: list[str], status: int) -> None:
    """And what stands there, and what to do. The server's own words are at `sdk_error`."""
    text = text_of(face, backend(wire, refused(status)), of)

    for place in places:
        assert place in text
    assert ADVICE in text
    assert f"status {status}" in text
    assert "unsupported" not in text


@pytest.mark.parametrize("how", [{"mode": "prompt"}, {"mode": "tool"}])
def test_a_type_that_was_asked_for_otherwise_is_not_blamed(face: Face, how: dict[str, Any]) -> None:
    """Nothing of it was in a format."""
    assert "may be why" not in text_of(face, backend("openai", refused()), Tagged, **how)


def test_a_plain_type_is_not_blamed(face: Face) -> None:
    """Nor is any type, if the server refuses the key or does not know the model."""
    assert "may be why" not in text_of(face, backend("openai", refused()), Plain)
    assert "may be why" not in text_of(face, backend("openai", refused(404)), Tagged)


@pytest.mark.parametrize("sim", ["sim", "sim:openai-responses"])
def test_the_simulator_refuses_with_the_same_words(sim: str) -> None:
    """Whoever tries a type offline learns it there."""
    with Chat(sim) as chat, pytest.raises((ProviderRejectedError, ValueError)) as caught:
        chat.chat(user="Go.", output_type=Tagged)

    assert "Tagged.tags" in str(caught.value)
    assert ADVICE in str(caught.value)


def test_such_a_type_works_in_words() -> None:
    """As the error says."""
    with Chat("sim") as chat:
        result = chat.chat(user="Go.", output_type=Output(Tagged, mode="prompt"))

    assert isinstance(result.output, Tagged)
