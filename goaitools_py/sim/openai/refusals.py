"""Refusals with OpenAI's standard sentences.

Owns: the text of single errors. Must never know: which rule was broken, or how an error is sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "OPENAI_NOT_JSON",
    "Refusal",
    "empty_array",
    "missing",
    "no_match",
    "too_many",
    "unsupported",
    "wrong_type",
]

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
    """An error of a provider: its text, the parameter that it names, its code, its type."""

    message: str
    param: str | None = None
    code: str | None = None
    type: str = "invalid_request_error"


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
