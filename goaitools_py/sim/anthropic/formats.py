"""Anthropic's refusals for the format of an answer: ``output_config.format``.

Owns: these rules. Must never know: how a client builds a schema. The texts come from public issue threads and
from platform.claude.com, structured outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..openai.refusals import Refusal

__all__ = ["format_refusals"]

_PATH = "output_config.format.schema"
_NOT_SUPPORTED = {
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength"),
    "array": ("maxItems", "uniqueItems"),
}


def format_refusals(config: Any) -> Iterator[Refusal]:
    """The problems of a request's ``output_config``."""
    shape = config.get("format") if isinstance(config, dict) else None
    if shape is None:
        return
    if not isinstance(shape, dict) or shape.get("type") != "json_schema":
        yield Refusal("output_config.format.type: Input should be 'json_schema'")
    elif not isinstance(shape.get("schema"), dict):
        yield Refusal(f"{_PATH}: Field required")
    else:
        yield from _schema(shape["schema"], shape["schema"], ())


def _schema(schema: Any, root: Mapping[str, Any], inside: tuple[str, ...]) -> Iterator[Refusal]:
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in inside:
            yield Refusal(f"{_PATH}: Circular reference detected in schema definitions: {reference}")
            return
        found: Any = root
        for key in reference.removeprefix("#/").split("/"):
            found = found.get(key) if isinstance(found, dict) else None
        yield from _schema(found, root, (*inside, reference))
        return
    kind = schema.get("type")
    if kind == "object" and schema.get("additionalProperties") is not False:
        yield Refusal(f"{_PATH}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    for key in _NOT_SUPPORTED.get(str(kind), ()):
        if key in schema:
            yield Refusal(f"{_PATH}: For '{kind}' type, property '{key}' is not supported")
    if "oneOf" in schema:
        yield Refusal(f"{_PATH}: Schema type 'oneOf' is not supported")
    properties = schema.get("properties")
    parts = [schema.get("items"), *(properties.values() if isinstance(properties, dict) else ())]
    for union in ("anyOf", "allOf"):
        parts += schema.get(union) or []
    for part in parts:
        yield from _schema(part, root, inside)
