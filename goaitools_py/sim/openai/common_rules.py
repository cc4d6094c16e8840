"""Refusals with OpenAI's standard sentences, and the rules that Chat Completions and Responses share.

Owns: the text of single errors, the rules that both refuse with the same text, and the details that both
write in the same way. Must never know: the messages of one or the items of the other, or how an error is
sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..model.prompt import Offer

__all__ = [
    "CREATED",
    "OPENAI_NOT_JSON",
    "WORDS",
    "Refusal",
    "empty_array",
    "error_object",
    "missing",
    "named",
    "needs_model",
    "no_match",
    "offer_of",
    "pieces",
    "repeated_names",
    "schema_faults",
    "sim_model",
    "streaming",
    "too_long",
    "too_many",
    "unsupported",
    "within",
    "wrong_type",
]

CREATED = 1_767_225_600
"""2026-01-01T00:00:00Z: fixed, so that equal requests get equal bytes."""
WORDS = re.compile(r"\s*\S+|\s+$")
"""Matches the deltas of a streamed text. Joined, they are the text."""
_ARGUMENT_PIECE = 7
"""The size of the pieces of streamed arguments, in characters."""
_NAME = re.compile(r"[a-zA-Z0-9_-]+")


# ------------------------------------------------------------------------------------------- writing


def sim_model(model: str) -> str:
    """The model's name in a response. It shows that no real model answered."""
    return model if model.startswith("sim") else f"sim-{model}"


def offer_of(function: Mapping[str, Any]) -> Offer:
    """A function tool, for the model."""
    return Offer(
        name=function["name"],
        parameters=function.get("parameters") or {},
        description=function.get("description") or "",
    )


def pieces(arguments: str) -> Sequence[str]:
    """The pieces of streamed arguments."""
    return [arguments[at : at + _ARGUMENT_PIECE] for at in range(0, len(arguments), _ARGUMENT_PIECE)]


def error_object(refusal: Refusal) -> dict[str, Any]:
    """The body of an error response."""
    return {
        "error": {
            "message": refusal.message,
            "type": refusal.type,
            "param": refusal.param,
            "code": refusal.code,
        }
    }


# --------------------------------------------------------------------------------------------- rules


def needs_model(body: Mapping[str, Any]) -> Iterator[Refusal]:
    """A request names its model."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield Refusal("you must provide a model parameter")


def streaming(body: Mapping[str, Any]) -> Iterator[Refusal]:
    """`stream` is a boolean, and `stream_options` come only with it."""
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        yield wrong_type("stream", "a boolean", stream)
    if body.get("stream_options") is not None and stream is not True:
        yield Refusal(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options"
        )


def named(path: str, name: Any, *, at_most: int) -> Iterator[Refusal]:
    """A name has letters, digits, underscores and dashes, and is not too long."""
    if name is None:
        yield missing(path)
    elif not (isinstance(name, str) and _NAME.fullmatch(name)):
        yield no_match(path, _NAME)
    elif len(name) > at_most:
        yield too_long(path, name, at_most)


def too_long(path: str, found: str, limit: int) -> Refusal:
    """A string of more than `limit` characters."""
    return Refusal(
        f"Invalid '{path}': string too long. Expected a string with maximum length {limit}, but got a string "
        f"with length {len(found)} instead.",
        path,
        "string_above_max_length",
    )


def repeated_names(names: Sequence[str]) -> Iterator[Refusal]:
    """No two tools have one name."""
    for repeated in sorted({name for name in names if names.count(name) > 1}):
        yield Refusal(f"Invalid 'tools': duplicate tool name '{repeated}'.", "tools", "invalid_value")


def schema_faults(schema: Any, *, path: str, of: str, code: str, strict: bool) -> Iterator[Refusal]:
    """The problem of a JSON Schema, as recorded from api.openai.com; at most one is reported.

    Args:
        of: The owner of the schema, such as "function 'f'".
        strict: Also check the rules of strict mode: closed objects, every property required.
    """
    if not isinstance(schema, dict):
        yield wrong_type(path, "an object", schema)
        return
    invalid = f"Invalid schema for {of}: "
    if schema.get("type", "object") != "object":
        found = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema['type']}\"'."
        yield Refusal(invalid + found, path, code)
    elif strict:
        waiting: list[tuple[tuple[str, ...], Mapping[str, Any]]] = [((), schema)]
        while waiting:
            context, part = waiting.pop(0)
            if found := _not_strict(context, part):
                yield Refusal(invalid + found, path, code)
                return
            waiting += _nested(context, part)


_NOT_PERMITTED = ("oneOf", "not", "if", "patternProperties", "prefixItems", "uniqueItems", "propertyNames")


def _not_strict(context: tuple[str, ...], schema: Mapping[str, Any]) -> str:
    if keyword := next((key for key in _NOT_PERMITTED if key in schema), ""):
        return f"In context={context}, '{keyword}' is not permitted."
    if schema.get("type") != "object" and "properties" not in schema and context:
        return ""
    if schema.get("additionalProperties") is not False:
        return f"In context={context}, 'additionalProperties' is required to be supplied and to be false."
    properties, required = schema.get("properties"), schema.get("required")
    named = required if isinstance(required, list) else []
    left_out = [key for key in properties if key not in named] if isinstance(properties, dict) else []
    if not left_out:
        return ""
    return (
        f"In context={context}, 'required' is required to be supplied and to be an array including every key "
        f"in properties. Missing '{left_out[0]}'."
    )


def _nested(
    context: tuple[str, ...], schema: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    for key in ("properties", "$defs", "definitions"):
        inner = schema.get(key)
        for name, part in inner.items() if isinstance(inner, dict) else ():
            if isinstance(part, dict):
                yield (*context, key, name), part
    if isinstance(schema.get("items"), dict):
        yield (*context, "items"), schema["items"]
    options = schema.get("anyOf")
    for index, part in enumerate(options if isinstance(options, list) else ()):
        if isinstance(part, dict):
            yield (*context, "anyOf", str(index)), part


def within(
    key: str, value: Any, minimum: int, *, at_most: int | None = None, whole: bool = False
) -> Iterator[Refusal]:
    """A number, if there is one, is between `minimum` and `at_most`."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        yield wrong_type(key, "an integer" if whole else "a decimal", value)
        return
    kind = "integer" if whole else "decimal"
    too_low = value < minimum
    if too_low or (at_most is not None and value > at_most):
        word, sign, bound = ("below minimum", ">=", minimum) if too_low else ("above maximum", "<=", at_most)
        yield Refusal(
            f"Invalid '{key}': {kind} {word} value. "
            f"Expected a value {sign} {bound}, but got {value} instead.",
            key,
            f"{kind}_{'below_min' if too_low else 'above_max'}_value",
        )


_KINDS = {
    bool: "a boolean",
    int: "an integer",
    float: "a decimal number",
    str: "a string",
    dict: "an object",
    list: "an array",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error of a provider: its text, the parameter that it names, its code, its type, its HTTP status."""

    message: str
    param: str | None = None
    code: str | None = None
    type: str = "invalid_request_error"
    status: int = 400


OPENAI_NOT_JSON = Refusal(
    "We could not parse the JSON body of your request. The OpenAI API expects a JSON payload, but what was "
    "sent was not valid JSON."
)


def missing(path: str) -> Refusal:
    """A required parameter is missing."""
    return Refusal(f"Missing required parameter: '{path}'.", path, "missing_required_parameter")


def wrong_type(path: str, expected: str, found: Any) -> Refusal:
    """A value of the wrong JSON type; `expected` with its article."""
    kind = _KINDS[type(found)]
    message = f"Invalid type for '{path}': expected {expected}, but got {kind} instead."
    return Refusal(message, path, "invalid_type")


def empty_array(path: str) -> Refusal:
    """A list without elements."""
    expected = "Expected an array with minimum length 1, but got an empty array instead."
    return Refusal(f"Invalid '{path}': empty array. {expected}", path, "empty_array")


def too_many(path: str, limit: int, found: int) -> Refusal:
    """A list with more than `limit` elements."""
    expected = f"Expected an array with maximum length {limit}, but got an array with length {found} instead."
    return Refusal(f"Invalid '{path}': array too long. {expected}", path, "array_above_max_length")


def unsupported(path: str, found: Any, values: Sequence[str]) -> Refusal:
    """A value that is not one of `values`."""
    *others, last = [f"'{value}'" for value in values]
    listed = f"{', '.join(others)}, and {last}" if others else last
    return Refusal(f"Invalid value: '{found}'. Supported values are: {listed}.", path, "invalid_value")


def no_match(path: str, pattern: re.Pattern[str]) -> Refusal:
    """A string that does not match a pattern."""
    expected = f"Expected a string that matches the pattern '^{pattern.pattern}$'."
    return Refusal(f"Invalid '{path}': string does not match pattern. {expected}", path, "invalid_value")
