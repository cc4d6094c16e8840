"""Finds the parts of a schema that a provider cannot take, and their places in the type.

Owns: the rules, each with its source. Must never know: a type, pydantic, an SDK.

A schema is checked before anything is sent. The servers answer 400, and name the place in their own schema
and not in the caller's type. Compatible servers take more, so a dialect asks only for hosts with known rules.

The limits are those of developers.openai.com, structured outputs, "Limitations on nesting depth and size",
"Limitations on total string size" and "Limitations on enum size", as of February 2026. Until 2025 the
server's own numbers were 100 properties, 5 levels, 500 enum values and 15,000 characters.

The page does not say how to count a definition that is used in several places. Here it counts once, and a
level is an object. So a schema that is refused here is above the limit in every way to count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from .strict_schema import openai_strict, referred

__all__ = ["doubtful", "refuse_at_anthropic", "refuse_at_openai", "too_large_for_openai"]

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


MOST_PROPERTIES: Final = 5_000
"""Properties of all objects together."""

MOST_LEVELS: Final = 10
"""Objects inside each other; the outermost is the first."""

MOST_CHOICES: Final = 1_000
"""Enum values of all enums together."""

MOST_CHARACTERS: Final = 120_000
"""Characters of the names of properties and definitions, of enum values and constants, all together."""

LONG_CHOICES: Final = 250
"""An enum of texts with more values than this has a limit of its own."""

MOST_CHARACTERS_OF_A_LONG_ENUM: Final = 15_000
"""Characters of all values of a long enum."""


def too_large_for_openai(schema: Mapping[str, Any], name: str) -> tuple[str, str] | None:
    """The place in the type where a limit is passed, and which limit; None if the type is small enough.

    Args:
        schema: The strict form of the schema.
        name: The type's name.
    """
    count = _Count(schema)
    try:
        count.add_names(schema.get("$defs", {}), name)
        count.add(schema, name, 0)
    except _TooMuch as found:
        return found.path, found.limit
    return None


class _TooMuch(Exception):  # noqa: N818 - goes no further than this file
    def __init__(self, path: str, limit: str) -> None:
        super().__init__()
        self.path = path
        self.limit = limit


class _Count:
    """The counts so far. A definition is walked again only where it stands deeper than before."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._properties = self._choices = self._characters = 0
        self._deepest: dict[str, int] = {}
        self._inside: set[str] = set()

    def add(self, schema: Any, path: str, level: int, *, again: bool = False) -> None:
        """Count a schema with all that is in it. `level`: how many objects are around it. `again`: it was
        counted before, and only its depth is looked at."""
        if not isinstance(schema, Mapping):
            return
        reference = schema.get("$ref")
        if isinstance(reference, str):
            self._follow(reference, path, level)
            return
        properties = schema.get("properties", {})
        if schema.get("type") == "object" or properties:
            level += 1
            if level > MOST_LEVELS:
                raise _TooMuch(path, f"inside {MOST_LEVELS} objects")
        if not again:
            self._properties += len(properties)
            if self._properties > MOST_PROPERTIES:
                raise _TooMuch(path, f"more than {MOST_PROPERTIES:,} properties in all")
            self.add_names(properties, path)
            self._add_values(schema, path)
        for name, inner in properties.items():
            self.add(inner, f"{path}.{name}", level, again=again)
        self.add(schema.get("items"), f"{path}[]", level, again=again)
        for union in ("anyOf", "allOf"):
            for inner in schema.get(union, ()):
                self.add(inner, path, level, again=again)

    def _follow(self, reference: str, path: str, level: int) -> None:
        before = self._deepest.get(reference)
        # A type that contains itself has no depth of its own.
        if reference in self._inside or (before is not None and level <= before):
            return
        self._deepest[reference] = level
        self._inside.add(reference)
        self.add(referred(self._root, reference), path, level, again=before is not None)
        self._inside.discard(reference)

    def add_names(self, names: Mapping[str, Any], path: str) -> None:
        """Count the characters of names, of properties or definitions."""
        self._add_characters(sum(map(len, names)), path)

    def _add_values(self, schema: Mapping[str, Any], path: str) -> None:
        choices = schema.get("enum", ())
        texts = [len(choice) for choice in choices if isinstance(choice, str)]
        self._choices += len(choices)
        if self._choices > MOST_CHOICES:
            raise _TooMuch(path, f"more than {MOST_CHOICES:,} choices in all")
        if len(choices) > LONG_CHOICES and sum(texts) > MOST_CHARACTERS_OF_A_LONG_ENUM:
            limit = f"{LONG_CHOICES} choices with more than {MOST_CHARACTERS_OF_A_LONG_ENUM:,} characters"
            raise _TooMuch(path, f"more than {limit}")
        constant = schema.get("const")
        self._add_characters(sum(texts) + (len(constant) if isinstance(constant, str) else 0), path)

    def _add_characters(self, count: int, path: str) -> None:
        self._characters += count
        if self._characters > MOST_CHARACTERS:
            raise _TooMuch(
                path, f"more than {MOST_CHARACTERS:,} characters of names, choices and constants in all"
            )
