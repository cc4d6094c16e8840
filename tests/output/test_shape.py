"""A type becomes a schema, and a model's text becomes a value of the type, or problems in words."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Json, field_validator

from goaitools_py.output import Output
from goaitools_py.output.misfit import Misfit
from goaitools_py.output.shape import shape_of

from ._types import TAKEN, Cat, Described, Dog, Movie, Plain, Verdict


class Nosy(BaseModel):
    a: int

    @field_validator("a")
    @classmethod
    def check(cls, value: int) -> int:
        if value < 0:
            raise ValueError("secret-words")
        if value > 100:
            raise KeyError("secret-words")
        return value


class Sealed(BaseModel):
    inner: Json[int]


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        (Verdict, '{"guilty":true,"years":3,"reason":"r"}', Verdict(guilty=True, years=3, reason="r")),
        (Plain, '{"a":1,"b":"y"}', Plain(1, "y")),
        (Movie, '{"name":"M","year":1931}', {"name": "M", "year": 1931}),
        (list[int], '{"value":[1,2]}', [1, 2]),
        (Literal["a", "b"], '{"value":"b"}', "b"),
        (Cat | Dog, '{"value":{"kind":"dog","name":"Rex"}}', Dog(kind="dog", name="Rex")),
        (int | None, '{"value":null}', None),
        (Plain, 'Here it is:\n```json\n{"a":1,"b":"y"}\n```\n', Plain(1, "y")),
        (list[int], "[1,2]", [1, 2]),
        (int, "3", 3),
        (Cat | Dog, '{"kind":"dog","name":"Rex"}', Dog(kind="dog", name="Rex")),
        (Plain, 'The answer is {"a":1,"b":"y"}, I think.', Plain(1, "y")),
    ],
)
def test_a_text_becomes_a_value(of: Any, text: str, value: Any) -> None:
    """JSON alone, in a fence, or between words."""
    assert shape_of(of).read(text) == value


@pytest.mark.parametrize(
    ("of", "text", "problems"),
    [
        (Verdict, '{"guilty":true,"years":"x"}', {"years": "valid integer", "reason": "is required"}),
        (Described, '{"score":11}', {"score": "less than or equal to 10"}),
        (list[int], '{"value":["x"]}', {"value[0]": "valid integer"}),
        (Verdict, "no", {"": "is not valid JSON"}),
        (Verdict, "", {"": "is not valid JSON"}),
        (Verdict, "[" * 5000, {"": "nests too deep"}),
        (Verdict, '{"guilty":tr', {"": "is not valid JSON"}),
        (Verdict, "[1]", {"": "object"}),
        (Verdict, '{"guilty":true,"reason":"\ud800"}', {"": "half of a character"}),
        (Sealed, '{"inner":"x"}', {"inner": "invalid JSON"}),
        (dict[str, int] | None, '{"value":3}', {"value": "object"}),
    ],
)
def test_what_does_not_fit_is_told_by_field(of: Any, text: str, problems: dict[str, str]) -> None:
    """Each problem names its field, and no value."""
    with pytest.raises(Misfit) as error:
        shape_of(of).read(text)

    found = dict(error.value.problems)
    assert found.keys() == problems.keys()
    assert [name for name, words in problems.items() if words not in found[name]] == []
    assert str(error.value) == ""


@pytest.mark.parametrize("value", [-1, 101])
def test_a_validator_s_words_go_no_further(value: int) -> None:
    """The text of an exception in a validator may hold content."""
    with pytest.raises(Misfit) as error:
        shape_of(Nosy).read(f'{{"a":{value}}}')

    assert "secret" not in repr(error.value.problems)


def test_a_type_without_a_schema_is_refused() -> None:
    """With what may be given instead."""
    with pytest.raises(TypeError, match=r"no JSON Schema; use a pydantic model"):
        shape_of(object())


@pytest.mark.parametrize("function", [len, print, lambda text: text, partial(int, "3")])
def test_a_function_is_no_type(function: Any) -> None:
    """pydantic would call it with the model's arguments."""
    with pytest.raises(TypeError, match="a function; it takes a type"):
        shape_of(function)


def test_a_shape_is_made_once_and_depends_on_the_order_of_a_union() -> None:
    """Equal unions whose members stand in another order have schemas of their own."""
    assert shape_of(Verdict) is shape_of(Verdict)
    assert shape_of(int | str).schema != shape_of(str | int).schema
    unhashable: Any = Annotated[int, ["not hashable"]]
    assert shape_of(unhashable).read('{"value":3}') == 3


@pytest.mark.parametrize("name", TAKEN)
def test_a_name_is_one_that_a_provider_takes(name: str) -> None:
    """At most 64 letters, digits, underscores and dashes."""
    found = shape_of(TAKEN[name]).name

    assert 1 <= len(found) <= 64
    assert found.replace("_", "").replace("-", "").isalnum()
    assert found.isascii()


def test_the_beginning_of_an_answer_is_read() -> None:
    """Texts may still grow; a value that is not whole is left out."""
    text = '{"guilty":true,"years":12,"reason":"They ran"}'
    shape = shape_of(Verdict)

    seen = [shape.partial(text[:end]) for end in range(len(text) + 1)]

    assert seen[0] is None
    assert seen[-1] == {"guilty": True, "years": 12, "reason": "They ran"}
    assert {"guilty": True, "years": 12, "reason": "They"} in seen
    assert shape_of(list[str]).partial('{"value":["a","b') == ["a", "b"]
    assert shape.partial("nothing") is None


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"mode": "json"}, ValueError, "mode must be one of"),
        ({"retries": -1}, ValueError, "0 or more"),
        ({"retries": 1.5}, TypeError, "retries must be an int"),
        ({"validate": 3}, TypeError, "validate must be a function"),
        ({"name": "a b"}, ValueError, "letters, digits"),
        ({"name": 3}, TypeError, "name must be str"),
    ],
)
def test_an_output_checks_its_values(given: dict[str, Any], error: type[Exception], words: str) -> None:
    """Before anything is asked."""
    with pytest.raises(error, match=words):
        Output(Verdict, **given)
    with pytest.raises(TypeError, match="not another Output"):
        Output(Output(Verdict))  # type: ignore[arg-type]
