"""The two strict forms of a JSON Schema: OpenAI's and Anthropic's.

Owns: two pure walks, with the same results as `openai.lib._pydantic` (openai 3.54) and
`anthropic.transform_schema` (anthropic 2.12); tests compare them over many types. Must never know: a type,
pydantic, an SDK.

One difference is intended: pydantic writes ``oneOf`` for unions with a discriminator. OpenAI refuses it, but
its SDK sends it. Here it becomes ``anyOf``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["anthropic_strict", "openai_strict", "referred"]

Schema = dict[str, Any]

_FORMATS: Final = frozenset(
    {
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "uri",
        "ipv4",
        "ipv6",
        "uuid",
    }
)
"""The formats of texts that Anthropic's schemas know."""


def referred(root: Mapping[str, Any], reference: str) -> Any:
    """The definition at ``#/$defs/Name``. Raises KeyError if it is not there."""
    found: Any = root
    for key in reference.removeprefix("#/").split("/"):
        found = found[key.replace("~1", "/").replace("~0", "~")]
    return found


# ------------------------------------------------------------------------------------------- OpenAI


def openai_strict(schema: Mapping[str, Any]) -> Schema:
    """The schema with closed objects, all properties required, and no reference beside other keys."""
    root = _without_one_of(schema)
    return _closed(root, root)


def _without_one_of(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_one_of(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    made = {key: _without_one_of(item) for key, item in value.items()}
    if isinstance(made.get("oneOf"), list) and "anyOf" not in made:
        made.pop("discriminator", None)
        made = {"anyOf" if key == "oneOf" else key: item for key, item in made.items()}
    return made


def _closed(schema: Schema, root: Schema) -> Schema:
    """Change a schema in place and return it; the caller must own it. References look into `root`; its
    definitions are closed first."""
    for name in ("$defs", "definitions"):
        for definition in schema.get(name, {}).values():
            _closed(definition, root)
    if schema.get("type") == "object":
        schema.setdefault("additionalProperties", False)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        schema["required"] = list(properties)
        schema["properties"] = {name: _closed(inner, root) for name, inner in properties.items()}
    if isinstance(schema.get("items"), dict):
        schema["items"] = _closed(schema["items"], root)
    if isinstance(schema.get("anyOf"), list):
        schema["anyOf"] = [_closed(inner, root) for inner in schema["anyOf"]]
    parts = schema.get("allOf")
    if isinstance(parts, list):
        if len(parts) == 1:
            schema |= _closed(parts[0], root)
            schema.pop("allOf")
        else:
            schema["allOf"] = [_closed(inner, root) for inner in parts]
    if "default" in schema and schema["default"] is None:
        del schema["default"]
    if "$ref" in schema and len(schema) > 1:
        schema |= {**referred(root, schema["$ref"]), **schema}
        del schema["$ref"]
        return _closed(schema, root)
    return schema


# ---------------------------------------------------------------------------------------- Anthropic


def anthropic_strict(schema: Mapping[str, Any]) -> Schema:
    """The schema with closed objects. Keywords that Anthropic does not have move into the description.

    Raises:
        ValueError: A part says nothing about its value.
    """
    left = dict(schema)
    made: Schema = {}
    if (definitions := left.pop("$defs", None)) is not None:
        made["$defs"] = {name: anthropic_strict(inner) for name, inner in definitions.items()}
    if (reference := left.pop("$ref", None)) is not None:
        return made | {"$ref": reference}
    kind = left.pop("type", None)
    unions = {name: left.pop(name, None) for name in ("anyOf", "oneOf", "allOf")}
    made |= _literals(left)
    is_literal = "enum" in made or "const" in made
    if is_literal:
        kind = None
    union = next((name for name, parts in unions.items() if isinstance(parts, list)), None)
    if union is not None:
        made["allOf" if union == "allOf" else "anyOf"] = [anthropic_strict(part) for part in unions[union]]
    elif not is_literal:
        if kind is None:
            raise ValueError("the schema does not say which type a value has")
        made["type"] = kind
    for name in ("description", "title"):
        if (text := left.pop(name, None)) is not None:
            made[name] = text
    made |= _of_kind(kind, left)
    if left:
        rest = "{" + ", ".join(f"{key}: {value}" for key, value in left.items()) + "}"
        made["description"] = f"{made['description']}\n\n{rest}" if "description" in made else rest
    return made


def _literals(left: Schema) -> Schema:
    """Take constants and choices out of the schema, except lists and objects."""
    found: Schema = {}
    choices = left.get("enum")
    if isinstance(choices, list) and choices and all(map(_is_plain, choices)):
        found["enum"] = list(left.pop("enum"))
    if "const" in left and _is_plain(left["const"]):
        found["const"] = left.pop("const")
    return found


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _of_kind(kind: Any, left: Schema) -> Schema:
    """Take the keywords of its type out of the schema."""
    found: Schema = {}
    if kind == "object":
        properties = left.pop("properties", {})
        found["properties"] = {name: anthropic_strict(inner) for name, inner in properties.items()}
        left.pop("additionalProperties", None)
        found["additionalProperties"] = False
        if (required := left.pop("required", None)) is not None:
            found["required"] = list(required)
    elif kind == "string":
        if left.get("format") in _FORMATS:
            found["format"] = left.pop("format")
        elif "format" in left:
            # Behind all others, as the SDK writes it.
            left["format"] = left.pop("format")
    elif kind == "array":
        if (items := left.pop("items", None)) is not None:
            found["items"] = anthropic_strict(items)
        if left.get("minItems") in (0, 1):
            found["minItems"] = left.pop("minItems")
        elif "minItems" in left:
            left["minItems"] = left.pop("minItems")
    return found
