"""The schema of a tool's parameters in the form that all known servers take.

Owns: the rewrites, each with its source. Must never know: a tool, a provider API, a host.

A server that cannot read one schema of a request refuses the whole request, so that each turn fails. The
forms written here say the same to a model, and every known server takes them:

====================================  =================================================================
``$ref`` beside other keywords        Moonshot: "conflicting keywords found after $ref expansion"
                                      (kimi-cli#2061, 2026-04). The definition takes its place, unless it
                                      contains itself; then the other keywords go
``type`` beside ``anyOf``             Moonshot: "type should be defined in anyOf items instead of the parent
                                      schema" (kimi-code#2661, 2026-08). Each variant gets the rules beside
                                      it
``anyOf`` at the root                 OpenAI: "schema must have type 'object' and not have 'oneOf'/'anyOf'/
                                      'allOf'/'enum'/'not' at the top level" (langchainjs#9804, 2026-01).
                                      Anthropic: "input_schema does not support oneOf, allOf, or anyOf at the
                                      top level" (claude-code#27337, 2026-02). One object with the fields of
                                      all variants; the description lists the groups
a value of any type                   Moonshot: each property needs a `type` (kimi-cli#1595). The types are
                                      named. A choice or a constant gets the type of its values
``true`` in place of a schema         Moonshot: "property schema for … must be an object" (oh-my-pi#5952,
                                      2026-07)
``$schema``, ``$id`` at the root      Gemini (openswarm#24, 2026-05)
====================================  =================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .strict_schema import referred

__all__ = ["common_parameters"]

Schema = Mapping[str, Any]

_VARIANTS: Final = ("anyOf", "oneOf")
_NAMED: Final = ("properties", "$defs", "definitions", "patternProperties")
"""Keywords whose values are schemas by name."""

_TYPED: Final = frozenset({"type", "anyOf", "oneOf", "allOf", "$ref"})
_WORDS: Final = frozenset({"description", "title", "default", "examples", "deprecated"})
"""Keywords that say nothing about the valid values."""

_ANY: Final = (
    {"type": "string"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "object"},
    {"type": "array", "items": {"type": "string"}},
    {"type": "null"},
)
_MOST_SCHEMAS: Final = 20_000
"""The most schemas of one tool. A larger tool is sent as it is."""

_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def common_parameters(schema: Schema) -> Schema:
    """The schema of a tool's parameters as every known server takes it; the same object if it is one already.

    The given schema is not changed. The order of its keywords stays, because a model reads them in order.
    """
    try:
        found = _Writer(schema).common(schema, ())
        found = {key: value for key, value in found.items() if key not in ("$schema", "$id")}
        if any(name in found for name in (*_VARIANTS, "allOf")):
            found = _one_object(found, schema)
    except (_TooLarge, KeyError, TypeError, AttributeError, RecursionError):
        return schema  # a schema that cannot be read is the server's to judge
    return schema if found == schema else found


class _TooLarge(Exception):  # noqa: N818 - goes no further than this file
    """Definitions inside of definitions may grow to any size when each takes the place of its reference."""


class _Writer:
    """Writes the schemas of one tool. References look into `root`."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST_SCHEMAS

    def common(self, schema: Any, inside: tuple[str, ...]) -> Any:
        """The schema and those in it. `inside`: the references that were followed to get here."""
        self._left -= 1
        if not self._left:
            raise _TooLarge
        if schema is True:
            return {"anyOf": [dict(one) for one in _ANY]}
        if not isinstance(schema, Mapping):
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str) and len(schema) > 1 and reference.startswith("#/"):
            if reference in inside:
                return {"$ref": reference}
            own = {key: value for key, value in schema.items() if key != "$ref"}
            named = referred(self._root, reference)
            # The words beside the reference fit its place better, but the rules are the definition's.
            merged = {**own, **named, **{key: own[key] for key in own if key in _WORDS}}
            return self.common(merged, (*inside, reference))
        return _variants_alone({key: self._inner(key, value, inside) for key, value in schema.items()})

    def _inner(self, key: str, value: Any, inside: tuple[str, ...]) -> Any:
        if key in _NAMED and isinstance(value, Mapping):
            return {name: _typed(self.common(one, inside)) for name, one in value.items()}
        if key in (*_VARIANTS, "allOf") and isinstance(value, Sequence):
            found = [self.common(one, inside) for one in value]
            return found if key == "allOf" else [_typed(one) for one in found]
        if key == "items" or (key == "additionalProperties" and isinstance(value, Mapping)):
            return _typed(self.common(value, inside))
        return value


def _typed(schema: Any) -> Any:
    """The schema with a type. A schema that takes any value names all types."""
    if not isinstance(schema, dict) or not _TYPED.isdisjoint(schema):
        return schema
    values = schema["enum"] if isinstance(schema.get("enum"), list) else None
    if values is None and "const" in schema:
        values = [schema["const"]]
    if values is not None:
        kinds = {_TYPES.get(type(value)) for value in values}
        kind = kinds.pop() if len(kinds) == 1 else None
        return schema if kind is None else {"type": kind, **schema}
    if "properties" in schema:
        return {"type": "object", **schema}
    if "items" in schema:
        return {"type": "array", **schema}
    if not schema.keys() <= _WORDS:
        return schema
    return {**schema, "anyOf": [dict(one) for one in _ANY]}


def _variants_alone(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its rules inside of its variants, if it has variants and a type beside them."""
    name = next((name for name in _VARIANTS if isinstance(schema.get(name), list)), None)
    if name is None or "type" not in schema:
        return schema
    keep = _WORDS | {"$defs", "definitions", "$schema", "$id", name}
    rules = {key: value for key, value in schema.items() if key not in keep}
    return {
        key: [_with_rules(one, rules) for one in value] if key == name else value
        for key, value in schema.items()
        if key not in rules
    }


def _with_rules(variant: Any, rules: Schema) -> Any:
    if not isinstance(variant, dict) or "$ref" in variant:
        return variant
    if variant.get("type", rules["type"]) != rules["type"]:
        return variant
    made = {**rules, **variant}
    if "properties" in rules and "properties" in variant:
        made["properties"] = {**rules["properties"], **variant["properties"]}
    if "required" in rules and "required" in variant:
        made["required"] = list(dict.fromkeys([*rules["required"], *variant["required"]]))
    return made


def _one_object(schema: Schema, root: Schema) -> dict[str, Any]:
    """One object with the fields of all variants of the root."""
    properties: dict[str, Any] = dict(schema.get("properties", {}))
    required: list[str] = list(schema.get("required", ()))
    groups: list[list[str]] = []
    words: list[str] = [schema["description"]] if schema.get("description") else []
    for name in (*_VARIANTS, "allOf"):
        parts = [_resolved(part, root) for part in schema.get(name, ())]
        for part in parts:
            for field, inner in part.get("properties", {}).items():
                other = properties.get(field)
                if other is None or other == inner:
                    properties[field] = inner
                else:
                    properties[field] = {"anyOf": [*_alternatives(other), *_alternatives(inner)]}
        needed = [list(part.get("required", ())) for part in parts]
        if name == "allOf":
            required += [field for one in needed for field in one]
        elif needed:
            common = [field for field in needed[0] if all(field in one for one in needed)]
            required += common
            groups += [one for one in needed if one]
    if len(groups) > 1:
        told = "; or ".join(", ".join(one) for one in groups)
        words.append(f"Give the fields of one of these groups: {told}.")
    skipped = {*_VARIANTS, "allOf", "type", "properties", "required", "description", "discriminator"}
    rest = {key: value for key, value in schema.items() if key not in skipped}
    made: dict[str, Any] = {"type": "object"}
    if words:
        made["description"] = " ".join(words)
    made["properties"] = properties
    if required:
        made["required"] = list(dict.fromkeys(required))
    return made | rest


def _resolved(part: Any, root: Schema) -> Schema:
    if isinstance(part, Mapping) and isinstance(part.get("$ref"), str):
        found = _Writer(root).common(referred(root, part["$ref"]), (part["$ref"],))
        return found if isinstance(found, Mapping) else {}
    return part if isinstance(part, Mapping) else {}


def _alternatives(schema: Any) -> list[Any]:
    if isinstance(schema, Mapping) and schema.keys() == {"anyOf"}:
        return list(schema["anyOf"])
    return [schema]
