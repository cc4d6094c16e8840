"""The numeric limits of OpenAI's strict schemas.

Owns: the numbers with their source, and how a schema is counted. Must never know: a type, pydantic, an SDK.

Source: developers.openai.com, structured outputs, "Limitations on nesting depth and size", "Limitations on
total string size" and "Limitations on enum size", as of February 2026. Until 2025 the server's own numbers
were 100 properties, 5 levels, 500 enum values and 15,000 characters.

The page does not say how to count a definition that is used in several places. Here it counts once, and a
level is an object. So a schema that is refused here is above the limit in every way to count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .strict_schema import referred

__all__ = ["too_large_for_openai"]

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
