"""Fills a JSON Schema, for a request that asks for its answer as JSON.

Owns: a value that is valid, with numbers and names from the player's text where they fit. Must never know: a
provider API, or how a request asks for a value.

The value is the smallest that is allowed: a list has one item if it may, a property that is not required is
left out, and a schema that contains itself ends as soon as it can.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from .tool_use import referred

__all__ = ["filled"]

_FORMATS = {
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "date": "2026-01-01",
    "duration": "P1D",
    "email": "ada@example.org",
    "hostname": "example.org",
    "uri": "https://example.org/",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_TRIES = ("a", "1", "A", "a1", "1.0", "aa", "a-a", "0")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")
_MAX_DEPTH = 24


def filled(schema: Mapping[str, Any], text: str) -> Any:
    """A value that fits the schema."""
    return _Filling(schema, text).value("", schema, 0)


class _Filling:
    def __init__(self, root: Mapping[str, Any], text: str) -> None:
        self.root = root
        self.text = text
        self.numbers = [float(found) for found in _NUMBER.findall(text)]

    def value(self, name: str, schema: Any, depth: int) -> Any:
        schema = self._plain(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._chosen(schema["enum"])
        match schema.get("type"):
            case "integer" | "number" as kind:
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return not re.search(r"\b(?:no|not|off|false|without)\b", self.text, re.I)
            case "array":
                return self._array(name, schema, depth)
            case "object":
                return self._object(schema, depth)
            case "null":
                return None
            case _:
                return self._text(name, schema)

    def _plain(self, schema: Any, depth: int) -> dict[str, Any]:
        """The schema behind references, and one branch of a union. Deep inside it is one that ends."""
        for _ in range(_MAX_DEPTH):
            if not isinstance(schema, dict):
                return {}
            union = next((schema[key] for key in ("anyOf", "oneOf", "allOf") if schema.get(key)), None)
            if "$ref" in schema:
                schema = referred(schema["$ref"], self.root)
            elif union is not None:
                nulls = [branch for branch in union if branch.get("type") == "null"]
                others = [branch for branch in union if branch.get("type") != "null"]
                schema = (nulls or others if depth > 3 else others or nulls)[0]
            elif isinstance(schema.get("type"), list):
                schema = {**schema, "type": schema["type"][0]}
            else:
                return schema
        return {}

    def _chosen(self, options: list[Any]) -> Any:
        named = (one for one in options if re.search(rf"\b{re.escape(str(one))}\b", self.text, re.I))
        return next(named, options[0])

    def _number(self, schema: Mapping[str, Any], *, whole: bool) -> float | int:
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
        step = schema.get("multipleOf", 1)
        guesses = [*self.numbers, 1, 0, low, high, above + step, below - step, (above + below) / 2]
        for guess in guesses:
            if not math.isfinite(guess):
                continue
            found = math.floor(guess) if whole else guess
            fits = low <= found <= high and above < found < below
            if fits and ("multipleOf" not in schema or not math.fmod(found, step)):
                if found in self.numbers:
                    self.numbers.remove(found)
                return int(found) if float(found).is_integer() else found
        return 1

    def _array(self, name: str, schema: Mapping[str, Any], depth: int) -> list[Any]:
        firsts = [self.value(name, inner, depth + 1) for inner in schema.get("prefixItems", ())]
        least = schema.get("minItems", 0)
        wanted = max(least, 0 if firsts or depth > 3 else 1)
        items = schema.get("items")
        if items is None and not least:
            return firsts
        return firsts + [self.value(name, items or {}, depth + 1) for _ in range(wanted - len(firsts))]

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        return {name: self.value(name, properties.get(name, {}), depth + 1) for name in required}

    def _text(self, name: str, schema: Mapping[str, Any]) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        pattern = schema.get("pattern")
        least, most = schema.get("minLength", 0), schema.get("maxLength", 200)
        words = re.sub(r"\s+", " ", self.text).strip()
        for guess in (words, words[:most], name, *_TRIES):
            for found in (guess, guess.ljust(least, guess[-1:] or "a")):
                if least <= len(found) <= most and (pattern is None or re.search(pattern, found)):
                    return found
        return words[:most].ljust(least, "a")
