"""Reads the arguments that a model wrote: JSON text becomes named values, or an error for the model.

Owns: `BadArguments`, and the check for hand-written schemas. Must never know: a Python signature.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.problems import MISSING, UNKNOWN

__all__ = [
    "NOT_AN_OBJECT",
    "TOO_DEEP",
    "BadArguments",
    "check_arguments",
    "parse_arguments",
]

TOO_DEEP = "The arguments nest too deep to be read: use fewer levels of lists and objects."
NOT_AN_OBJECT = "The arguments must be one JSON object."

_SHOWN_PROBLEMS = 10
_SHOWN_CHARACTERS = 100  # of a field's name, which the model may have invented


class BadArguments(Exception):  # noqa: N818 - the model's mistake; the text is sent to the model
    """The model's arguments do not fit the tool. The text is for the model. It names fields, never values.

    `problems`: (field, problem) pairs. The model, or the caller that answers, may have invented a field.
    """

    problems: Sequence[tuple[str, str]] = ()

    @classmethod
    def from_problems(cls, problems: Sequence[tuple[str, str]]) -> BadArguments:
        """Make the text from (field, problem) pairs, one line each."""
        lines = [f"- {field[:_SHOWN_CHARACTERS]}: {problem}" for field, problem in problems[:_SHOWN_PROBLEMS]]
        if len(problems) > _SHOWN_PROBLEMS:
            lines.append(f"- and {len(problems) - _SHOWN_PROBLEMS} more")
        made = cls("\n".join(["Invalid arguments:", *lines]))
        made.problems = tuple(problems)
        return made


def parse_arguments(text: str) -> dict[str, Any]:
    """Read the arguments of a call.

    Args:
        text: A JSON object as text.

    Raises:
        BadArguments: The text is not JSON, or not an object.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadArguments(
            f"The arguments are not valid JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from None
    except RecursionError:
        raise BadArguments(TOO_DEEP) from None
    except ValueError:  # a number too long to convert
        raise BadArguments("The arguments are not valid JSON: beyond a limit of the parser") from None
    if not isinstance(values, dict):
        raise BadArguments(NOT_AN_OBJECT)
    return values


def check_arguments(values: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Compare the names in `values` with a hand-written JSON Schema. The tool itself checks the values.

    Raises:
        BadArguments: A required name is missing, or a name is unknown and `additionalProperties` is false.
    """
    problems = [(name, MISSING) for name in schema.get("required", ()) if name not in values]
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        known = schema.get("properties", {})
        problems += [(name, UNKNOWN) for name in values if name not in known]
    if problems:
        raise BadArguments.from_problems(problems)
