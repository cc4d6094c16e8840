"""Reads the arguments that a model wrote: JSON text becomes named values, or an error for the model.

Owns: `BadArguments`, the check for hand-written schemas, and pydantic's errors in words for a model, which
quote no value. Must never know: a Python signature. It imports pydantic only for type checkers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = [
    "NOT_AN_OBJECT",
    "TOO_DEEP",
    "UNKNOWN",
    "BadArguments",
    "check_arguments",
    "parse_arguments",
    "problems_of",
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
    problems = [(name, _MISSING) for name in schema.get("required", ()) if name not in values]
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        known = schema.get("properties", {})
        problems += [(name, UNKNOWN) for name in values if name not in known]
    if problems:
        raise BadArguments.from_problems(problems)


_MISSING: Final = "is required"
UNKNOWN: Final = "is not expected"

_JSON_TYPES: Final = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def problems_of(details: Sequence[ErrorDetails], values: Any) -> list[tuple[str, str]]:
    """Pairs of a field, such as ``teams[2].name``, and its problem.

    `values`: the checked JSON values.
    """
    problems: dict[str, list[str]] = {}
    for detail in details:
        found = problems.setdefault(_path(detail, values), [])
        if (problem := _problem(detail)) not in found:
            found.append(problem)
    # Two problems of one field come from the branches of a union.
    return [(path, " or ".join(found)) for path, found in problems.items()]


def _path(detail: ErrorDetails, values: Any) -> str:
    """The path of the field with the problem, such as ``teams[2].name``.

    pydantic's location also names branches of unions and kinds of validators. A step that does not lead into
    the given values is such a name, unless it is the name of a missing field.
    """
    path = ""
    location: Sequence[int | str] = detail["loc"]
    for index, step in enumerate(location):
        is_item = isinstance(values, list) and isinstance(step, int) and step < len(values)
        if is_item or (isinstance(values, dict) and step in values):
            values = values[step]
        elif detail["type"] != "missing" or index < len(location) - 1:
            continue
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


def _problem(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return _MISSING
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):  # of models; of dataclasses
        return UNKNOWN
    if kind == "union_tag_invalid":  # pydantic's text quotes the value
        return f"its {context['discriminator']} should be one of {context['expected_tags']}"
    if isinstance(context.get("error"), Exception):  # a validator of the caller: its text may hold content
        return "is not valid"
    problem = detail["msg"][:1].lower() + detail["msg"][1:]
    problem = problem.removeprefix("input ")
    if kind.endswith("_type") and (found := _JSON_TYPES.get(type(detail["input"]))):
        problem += f", got {found}"
    return problem
