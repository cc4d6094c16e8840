"""The two strict forms of a schema are those of the SDKs, over all types of `_types`."""

from __future__ import annotations

import copy
import json
from typing import Any

import anthropic
import jsonschema_rs
import pytest
from openai.lib import _pydantic as openai_sdk
from pydantic import create_model

from goaitools_py import Chat
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.wire.schema_refusals import (
    refuse_at_anthropic,
    refuse_at_openai,
    too_large_for_openai,
)
from goaitools_py.backends.wire.strict_schema import anthropic_strict, openai_strict
from goaitools_py.output import Output, OutputError
from goaitools_py.output.shape import shape_of
from goaitools_py.sim.model.schema_values import filled
from goaitools_py.testing import ScriptedBackend

from ._types import REFUSED, TAKEN

ALL = TAKEN | {name: row[0] for name, row in REFUSED.items()}
TAGGED = ("owner", "union_tagged")
"""Unions with a discriminator: OpenAI's SDK sends a keyword that its server refuses."""
IN_WORDS = ("conint", "bounds")
"""Types with bounds that Anthropic's form tells in words only."""


def sdk_form(schema: dict[str, Any]) -> dict[str, Any]:
    given = copy.deepcopy(schema)
    return openai_sdk._ensure_strict_json_schema(given, path=(), root=given)


def test_there_are_enough_types() -> None:
    """The comparison is over at least sixty."""
    assert len(TAKEN) >= 60


@pytest.mark.parametrize("name", ALL)
def test_the_form_is_openai_s(name: str) -> None:
    """Key by key and in the same order, so that the bytes are the SDK's; the given schema stays."""
    schema = shape_of(ALL[name]).schema
    before = json.dumps(schema)

    made = openai_strict(schema)

    expected = sdk_form(dict(schema)) if name not in TAGGED else made
    assert json.dumps(made) == json.dumps(expected)
    assert json.dumps(schema) == before


@pytest.mark.parametrize("name", TAGGED)
def test_a_discriminator_becomes_a_plain_union_for_openai(name: str) -> None:
    """The SDK sends ``oneOf``, which the server refuses. Otherwise the forms are equal."""
    schema = json.dumps(shape_of(TAKEN[name]).schema)

    made = json.dumps(openai_strict(json.loads(schema)))

    assert '"oneOf"' in schema
    assert '"oneOf"' not in made
    assert '"discriminator"' not in made
    plain = json.loads(schema.replace('"oneOf"', '"anyOf"'))
    assert json.loads(made) == sdk_form(_without(plain, "discriminator"))


def _without(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return [_without(item, key) for item in value]
    if isinstance(value, dict):
        return {name: _without(item, key) for name, item in value.items() if name != key}
    return value


@pytest.mark.parametrize("name", ALL)
def test_the_form_is_anthropic_s(name: str) -> None:
    """Key by key and in the same order, and the same refusals."""
    schema = dict(shape_of(ALL[name]).schema)
    try:
        expected = anthropic.transform_schema(copy.deepcopy(schema))
    except ValueError:
        with pytest.raises(ValueError, match="does not say which type"):
            anthropic_strict(schema)
        assert REFUSED[name][2]
        return

    assert json.dumps(anthropic_strict(schema)) == json.dumps(expected)


@pytest.mark.parametrize("name", TAKEN)
def test_what_a_provider_takes_is_not_refused(name: str) -> None:
    """Both rules let it through."""
    shape = shape_of(TAKEN[name])

    refuse_at_openai(openai_strict(shape.schema), shape.name)
    refuse_at_anthropic(shape.schema, shape.name)


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_provider_cannot_take_is_named_with_its_place(name: str) -> None:
    """The place is a path in the type, not in the schema."""
    of, at_openai, at_anthropic = REFUSED[name]
    shape = shape_of(of)

    for refuse, place, schema in (
        (refuse_at_openai, at_openai, openai_strict(shape.schema)),
        (refuse_at_anthropic, at_anthropic, shape.schema),
    ):
        if not place:
            refuse(schema, shape.name)
            continue
        with pytest.raises(ValueError, match="have no place for") as error:
            refuse(schema, shape.name)
        assert f"have no place for {place}: it is " in str(error.value)


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def nested(levels: int) -> dict[str, Any]:
    """Objects inside each other, through lists and unions too, which are no levels."""
    made: dict[str, Any] = {"type": "string"}
    for level in range(levels):
        made = obj(a=made) if level % 2 else obj(a={"type": "array", "items": {"anyOf": [made]}})
    return made


def enum(count: int, length: int) -> dict[str, Any]:
    return {"type": "string", "enum": [f"{number:0{length}d}" for number in range(count)]}


def names(count: int, length: int) -> dict[str, Any]:
    return obj(**{f"{number:0{length}d}": {"type": "string"} for number in range(count)})


SHARED = {"Leaf": names(2500, 4)}
LIMITS: dict[str, tuple[Any, Any, str, str]] = {
    "properties": (
        obj(a=names(2499, 4), b=names(2499, 4)),
        obj(a=names(2500, 4), b=names(2499, 4)),
        "T.b",
        "more than 5,000 properties in all",
    ),
    "a definition counts once": (
        {**obj(a={"$ref": "#/$defs/Leaf"}, b={"$ref": "#/$defs/Leaf"}, c=names(2497, 4)), "$defs": SHARED},
        {**obj(a={"$ref": "#/$defs/Leaf"}, b={"$ref": "#/$defs/Leaf"}, c=names(2498, 4)), "$defs": SHARED},
        "T.c",
        "more than 5,000 properties in all",
    ),
    "levels": (
        nested(10),
        nested(11),
        "T.a[].a.a[].a.a[].a.a[].a.a[].a",
        "inside 10 objects",
    ),
    "levels of a definition that stood higher before": (
        {**obj(top={"$ref": "#/$defs/Leaf"}, low=nested(9)), "$defs": {"Leaf": nested(9)}},
        {
            **obj(top={"$ref": "#/$defs/Leaf"}, low=obj(a={"$ref": "#/$defs/Leaf"})),
            "$defs": {"Leaf": nested(9)},
        },
        "T.low.a.a[].a.a[].a.a[].a.a[].a",
        "inside 10 objects",
    ),
    "choices": (
        obj(a=enum(200, 5), b=enum(200, 5), c=enum(600, 5)),
        obj(a=enum(200, 5), b=enum(200, 5), c=enum(601, 5)),
        "T.c",
        "more than 1,000 choices in all",
    ),
    "the characters of a long enum": (
        obj(a=enum(250, 70), b=enum(300, 50)),
        obj(a=enum(250, 70), b=enum(300, 51)),
        "T.b",
        "more than 250 choices with more than 15,000 characters",
    ),
    "the characters of names": (
        {**names(1000, 119), "$defs": {"D" * 1000: {"type": "string"}}},
        {**names(1000, 119), "$defs": {"D" * 1001: {"type": "string"}}},
        "T",
        "more than 120,000 characters of names, choices and constants in all",
    ),
    "the characters of choices and constants": (
        obj(a=enum(200, 500), b={"const": "x" * 19_998}),
        obj(a=enum(200, 500), b={"const": "x" * 19_999}),
        "T.b",
        "more than 120,000 characters of names, choices and constants in all",
    ),
}


@pytest.mark.parametrize("row", LIMITS)
def test_the_numeric_limits_are_checked_with_the_place(row: str) -> None:
    """What is at a limit goes out, and one more does not."""
    fits, too_large, place, limit = LIMITS[row]

    assert too_large_for_openai(fits, "T") is None
    assert too_large_for_openai(too_large, "T") == (place, limit)


def test_a_type_that_contains_itself_has_no_depth() -> None:
    """It is walked once."""
    schema = {**obj(a={"$ref": "#/$defs/Tree"}), "$defs": {"Tree": obj(left={"$ref": "#/$defs/Tree"})}}

    assert too_large_for_openai(schema, "T") is None


@pytest.mark.parametrize("wire", ["openai", "openai-responses"])
def test_a_schema_that_is_too_large_is_not_sent(wire: str) -> None:
    """The error names the place in the type. Compatible servers have no such limit."""
    fields: Any = {f"field_{number}": (str, ...) for number in range(5001)}
    large = create_model("Large", **fields)
    for family, sent in (("openai", 0), ("local", 1)):
        backend = ScriptedBackend("{}", wire=wire)
        backend.dialect = dialect_of(wire, family=family, model="m")
        with pytest.raises((ValueError, OutputError)) as error:
            Chat(backend).chat(user="Go.", output_type=Output(large, mode="native", retries=0))
        assert len(backend.requests) == sent
        assert ("no place for Large: it is more than 5,000 properties" in str(error.value)) is not sent


@pytest.mark.parametrize("name", TAKEN)
def test_what_fits_a_strict_form_fits_the_type(name: str) -> None:
    """A value that the simulator makes for each strict form is valid there and is read as the type."""
    shape = shape_of(TAKEN[name])
    in_words = anthropic_strict(shape.schema)
    for form in (openai_strict(shape.schema), in_words):
        value = filled(form, "three red cats")

        assert jsonschema_rs.is_valid(form, value)
        if form is not in_words or name not in IN_WORDS:
            shape.read(json.dumps(value))
