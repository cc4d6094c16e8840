"""Finds the parts of a schema that a provider cannot take, and their places in the type.

Owns: the rules, each with its source. Must never know: a type, pydantic, an SDK.

A schema is checked before anything is sent. The servers answer 400, and name the place in their own schema
and not in the caller's type. Compatible servers take more, so a dialect asks only for hosts with known rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from .schema_limits import too_large_for_openai
from .strict_schema import openai_strict, referred

__all__ = ["doubtful", "refuse_at_anthropic", "refuse_at_openai"]

_OPENAI_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
"""developers.openai.com, structured outputs, "supported properties"; others are "not a valid format"."""

_OPENAI_HAS_NOT: Final = {
    "allOf": "an intersection of schemas",
    "not": "a negation",
    "if": "a condition",
    "dependentRequired": "a condition",
    "dependentSchemas": "a condition",
    "patternProperties": "a dict with a pattern for its keys",
    "propertyNames": "a dict with a rule for its keys",
    "prefixItems": "a tuple; use a model or a list",
    "uniqueItems": "a set; use a list",
    "contains": "a rule for some items of a list",
}
"""Keywords that OpenAI's strict schemas do not have (developers.openai.com, structured outputs)."""

_FREE_KEYS: Final = "a dict with keys of the model's own; use a list of pairs, or a model with named fields"
_NO_TYPE: Final = "a value of any type; say which types it may have"
_RECURSIVE: Final = "a type that contains itself"

Rule = Callable[[Mapping[str, Any]], str]
"""Names the problem of one schema, without inner schemas; "" if it is valid."""


def refuse_at_openai(schema: Mapping[str, Any], name: str) -> None:
    """Raise ValueError if OpenAI would refuse the strict form of a schema. `name`: the type's name."""
    if (found := too_large_for_openai(schema, name)) is not None:
        path, limit = found
        raise ValueError(_refusal("OpenAI's strict schemas", path, limit))
    _refuse("OpenAI's strict schemas", schema, name, _at_openai)


def refuse_at_anthropic(schema: Mapping[str, Any], name: str) -> None:
    """Raise ValueError if Anthropic cannot take a schema, or if its strict form would lose a part. `name`:
    the type's name."""
    _refuse("Anthropic's schemas", schema, name, _at_anthropic, refuses_recursion=True)


def doubtful(schema: Mapping[str, Any], name: str) -> list[str]:
    """The places of a schema that a compatible server may refuse, each with its problem.

    The rules of a compatible server are not known. Most servers have a part of OpenAI's rules.
    """
    written = openai_strict(schema)
    found: dict[str, str] = {}
    if (limit := too_large_for_openai(written, name)) is not None:
        found[limit[0]] = limit[1]
    for path, inner in _walk(written, written, name, (), True):
        problem = _RECURSIVE if inner is None else _at_openai(inner)
        if problem:
            keyword = next((word for word in _OPENAI_HAS_NOT if inner is not None and word in inner), "")
            told = f"{problem} (the keyword {keyword!r})" if keyword else problem
            found.setdefault(path, told)
    return [f"{path} is {problem}" for path, problem in found.items()]


def _refuse(
    whose: str, schema: Mapping[str, Any], name: str, rule: Rule, *, refuses_recursion: bool = False
) -> None:
    for path, found in _walk(schema, schema, name, (), refuses_recursion):
        problem = _RECURSIVE if found is None else rule(found)
        if problem:
            raise ValueError(_refusal(whose, path, problem))


def _refusal(whose: str, path: str, problem: str) -> str:
    return f"{whose} have no place for {path}: it is {problem}. Output(…, mode='prompt') asks for it in words"


def _walk(
    schema: Any, root: Mapping[str, Any], path: str, inside: tuple[str, ...], through: bool
) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    """Each schema with its place in the type. A place where a type contains itself is not followed, and is
    given as None if `through` is True."""
    if not isinstance(schema, Mapping):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in inside:
            if through:
                yield path, None
            return
        yield from _walk(referred(root, reference), root, path, (*inside, reference), through)
        return
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _walk(inner, root, f"{path}.{name}", inside, through)
    yield from _walk(schema.get("items"), root, f"{path}[]", inside, through)
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _walk(schema["additionalProperties"], root, f"{path}[…]", inside, through)
    for index, inner in enumerate(schema.get("prefixItems", ())):
        yield from _walk(inner, root, f"{path}[{index}]", inside, through)
    for union in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(union, ()):
            yield from _walk(inner, root, path, inside, through)


def _at_openai(schema: Mapping[str, Any]) -> str:
    for keyword, problem in _OPENAI_HAS_NOT.items():
        if schema.get(keyword) not in (None, False) and not (
            keyword == "allOf" and len(schema["allOf"]) == 1
        ):
            return problem
    if schema.get("additionalProperties") not in (None, False):
        return _FREE_KEYS
    if schema.get("type") == "object" and "properties" not in schema and "additionalProperties" not in schema:
        return _FREE_KEYS
    if not _says_type(schema):
        return _NO_TYPE
    if schema.get("type") == "array" and "items" not in schema:
        return _NO_TYPE
    if schema.get("type") == "string" and schema.get("format", "date") not in _OPENAI_FORMATS:
        return f"a text in the format {schema['format']!r}; use str"
    return ""


def _at_anthropic(schema: Mapping[str, Any]) -> str:
    is_open = "properties" not in schema and schema.get("additionalProperties") is not False
    if schema.get("type") == "object" and is_open:
        return _FREE_KEYS
    return "" if _says_type(schema) else _NO_TYPE


def _says_type(schema: Mapping[str, Any]) -> bool:
    return any(key in schema for key in ("type", "anyOf", "oneOf", "allOf", "enum", "const"))
