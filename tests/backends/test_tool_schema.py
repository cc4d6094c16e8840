"""Schemas of tools: what some server refuses is written in the form that all take."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from goaitools_py import Tool
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.wire.tool_schema import common_parameters

TEXT = {"type": "string"}


def schemas(schema: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each schema inside, with the keyword that holds it."""
    if not isinstance(schema, Mapping):
        return
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            for inner in value.values():
                yield key, inner
                yield from schemas(inner)
        elif key in ("anyOf", "oneOf", "allOf"):
            for inner in value:
                yield key, inner
                yield from schemas(inner)
        elif key == "items":
            yield key, value
            yield from schemas(value)


def problems(schema: Mapping[str, Any]) -> list[str]:
    """What Moonshot, OpenAI, Anthropic or Gemini would refuse."""
    found = []
    if schema.get("type") != "object" or {"anyOf", "oneOf", "allOf", "$schema"} & schema.keys():
        found.append("root")
    for key, inner in [("root", schema), *schemas(schema)]:
        if not isinstance(inner, Mapping):
            found.append(f"{key}: no object")
            continue
        if "$ref" in inner and len(inner) > 1:
            found.append(f"{key}: $ref beside {sorted(inner)}")
        if "type" in inner and ({"anyOf", "oneOf"} & inner.keys()):
            found.append(f"{key}: type beside variants")
        if key in ("properties", "items", "anyOf") and not {"type", "anyOf", "oneOf", "$ref"} & inner.keys():
            found.append(f"{key}: no type")
    return found


SEEN: dict[str, dict[str, Any]] = {
    "any value": {"properties": {"x": {}, "y": {"description": "any"}, "z": True}},
    "reference": {
        "properties": {"a": {"$ref": "#/$defs/A", "description": "here", "default": "x"}},
        "$defs": {"A": {"type": "string", "description": "there"}},
    },
    "reference beside a type": {
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"$ref": "#/$defs/B", "type": "string", "minLength": 1}, "B": {"type": "string"}},
    },
    "contains itself": {
        "properties": {"n": {"$ref": "#/$defs/N", "description": "root"}},
        "$defs": {
            "N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N", "description": "next"}}}
        },
    },
    "variants at the root": {
        "anyOf": [
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
            {"type": "object", "properties": {"b": TEXT}, "required": ["b"]},
        ],
    },
    "groups at the root": {
        "properties": {"a": TEXT, "b": TEXT},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "all of": {"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": TEXT}}]},
    "type beside variants": {
        "properties": {"v": {"type": "string", "anyOf": [{"format": "date"}, {"type": "null"}]}}
    },
    "object beside variants": {
        "properties": {
            "v": {
                "type": "object",
                "properties": {"a": TEXT, "b": TEXT},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            }
        }
    },
    "choices": {"properties": {"e": {"enum": ["a", "b"]}, "c": {"const": 5}}},
    "schema of a draft": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"a": TEXT},
    },
}
"""Schemas that a known server refuses, by what is wrong with them."""


@pytest.mark.parametrize("name", sorted(SEEN))
def test_the_written_form_is_taken_by_all(name: str, wire: str) -> None:
    """Each of them is refused as given, and not as it is written. Once written, it does not change again."""
    given = {"type": "object", **SEEN[name]}
    before = json.dumps(given)
    assert problems(given)

    found = common_parameters(given)

    assert problems(found) == []
    assert common_parameters(found) is found
    assert json.dumps(given) == before
    written = dialect_of(wire).tools([Tool("look", "Look.", given, external=True).spec()]).decode()
    assert json.dumps(found["properties"], separators=(",", ":")) in written


def test_a_common_schema_stays_the_same_object() -> None:
    """The usual tools cost no copy, and their bytes do not change."""
    given = {
        "type": "object",
        "properties": {"a": TEXT, "n": {"anyOf": [{"type": "null"}, TEXT]}},
        "required": ["a"],
    }

    assert common_parameters(given) is given


def test_the_fields_of_variants_are_kept() -> None:
    """A model reads which fields go together. What every variant needs is needed."""
    given = {
        "type": "object",
        "description": "Attach.",
        "anyOf": [
            {"properties": {"name": TEXT, "content": TEXT}, "required": ["name", "content"]},
            {
                "properties": {"name": TEXT, "url": {"type": "string", "format": "uri"}},
                "required": ["name", "url"],
            },
        ],
    }

    found = common_parameters(given)

    assert list(found["properties"]) == ["name", "content", "url"]
    assert found["required"] == ["name"]
    assert (
        found["description"] == "Attach. Give the fields of one of these groups: name, content; or name, url."
    )


@pytest.mark.parametrize(
    "given",
    [
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/no", "description": "x"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/a", "description": "x"}}},
        {"type": "object", "properties": 5},
        {"type": "object", "anyOf": 5},
    ],
)
def test_a_schema_that_cannot_be_read_is_sent_as_it_is(given: Any) -> None:
    """The server judges it."""
    assert common_parameters(given) == given


def test_definitions_in_definitions_are_bounded() -> None:
    """Each of 40 definitions names the next twice: 2**40 schemas if each reference were followed."""
    defs = {
        f"d{n}": {
            "type": "object",
            "properties": {x: {"$ref": f"#/$defs/d{n + 1}", "description": x} for x in "ab"},
        }
        for n in range(40)
    }
    given = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/d0", "description": "x"}},
        "$defs": {**defs, "d40": TEXT},
    }

    assert common_parameters(given) is given
