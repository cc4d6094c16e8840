"""Writes pydantic's errors in words for a model: the field and the problem. No value is quoted.

Owns: these words. Must never know: a tool, a turn. It knows pydantic's errors, and imports pydantic only for
type checkers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["MISSING", "UNKNOWN", "problems_of"]

MISSING: Final = "is required"
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
        return MISSING
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
