"""Values for JSON Schemas from words: arguments of the tools that a text asks for, and answers as JSON.

Owns: matching words with tools, and values that are valid, with numbers and names from the text where they
fit. Must never know: the conversation before, a provider API, or how a call is sent.

The rules are simple, so that a test can predict them. A clause (text between commas, "and", "then" and full
stops) asks for a tool if it holds the tool's name, or all words of the name except generic verbs. A clause
with only new values repeats the tool before it: "the score of Red and Blue".

An answer is the smallest value that is allowed: a list has one item if it may, a property that is not
required is left out, and a schema that contains itself ends as soon as it can.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..http_values import dump
from .prompt import Call, Offer

__all__ = ["call_anyway", "filled", "referred", "wanted_calls"]

_GENERIC_VERBS = {"get", "fetch", "read", "show", "list", "find", "look", "lookup", "check", "query", "the"}
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
_CLAUSES = re.compile(r"\s*[,;]\s+|\s+(?:and|then)\s+")
_WORD = re.compile(r"\w+")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|(?<!\w)'([^']+)'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_CAPITALISED = re.compile(r"\b[A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*")
_AFTER_PREPOSITION = re.compile(r"\b(?:of|for|to|in|at|from|about|on)\s+(?:the\s+|my\s+|team\s+)*(\w+)", re.I)
_MAX_VALUE_WORDS = 4
_MAX_DEPTH = 8


def wanted_calls(text: str, offers: Sequence[Offer]) -> tuple[Call, ...]:
    """The calls that `text` asks for, in order; () for other text."""
    calls: list[Call] = []
    latest: Offer | None = None
    for clause in _clauses(text):
        matching = sorted(
            (place, index)
            for index, offer in enumerate(offers)
            if (place := _mentioned(offer.name, clause)) is not None
        )
        for _, index in matching:
            latest = offers[index]
            calls.append(_call(latest, _Values.read(clause)))
        if not matching and latest is not None and len(_WORD.findall(clause)) <= _MAX_VALUE_WORDS:
            values = _Values.read(clause)
            repeated = _call(latest, values)
            if values.found and not values.guessed:
                calls.append(repeated)
    return tuple(calls)


def call_anyway(text: str, offer: Offer) -> Call:
    """The call that a request forces, with arguments from `text`."""
    return _call(offer, _Values.read(text))


def _clauses(text: str) -> Iterator[str]:
    for sentence in _SENTENCES.split(text.strip()):
        # The first word of a sentence has a capital letter, so it is not a name.
        yield from _CLAUSES.split(sentence[:1].lower() + sentence[1:])


def _mentioned(name: str, clause: str) -> int | None:
    """The position of the tool in the clause; None if it is not there."""
    lowered = clause.lower()
    if (place := lowered.find(name.lower())) >= 0:
        return place
    words = [_stem(word) for word in re.findall(r"[A-Z]?[a-z]+|\d+|[A-Z]+", name.replace("_", " "))]
    telling = [word for word in words if word not in _GENERIC_VERBS] or words
    places = {_stem(match[0]): match.start() for match in reversed(list(_WORD.finditer(lowered)))}
    if not telling or any(word not in places for word in telling):
        return None
    return min(places[word] for word in telling)


def _stem(word: str) -> str:
    word = word.lower()
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


@dataclass(slots=True)
class _Values:
    """The values in a clause. Each is used for one parameter."""

    clause: str
    quoted: list[str]
    numbers: list[str]
    names: list[str]
    found: int = 0
    guessed: bool = field(default=False)

    @classmethod
    def read(cls, clause: str) -> _Values:
        quoted = ["".join(groups) for groups in _QUOTED.findall(clause)]
        bare = _QUOTED.sub(" ", clause)
        names = [name for name in _CAPITALISED.findall(bare) if name not in ("I", "OK")]
        return cls(clause, quoted, _NUMBER.findall(bare), names)

    def take(self, *sources: list[str]) -> str | None:
        for source in sources:
            if source:
                self.found += 1
                return source.pop(0)
        return None

    def guess(self, value: Any) -> Any:
        self.guessed = True
        return value


def _call(offer: Offer, values: _Values) -> Call:
    arguments = _object(offer.parameters, offer.parameters, values, 0)
    return Call(name=offer.name, arguments=dump(arguments).decode("utf-8"))


def _object(
    schema: Mapping[str, Any], root: Mapping[str, Any], values: _Values, depth: int
) -> dict[str, Any]:
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    return {
        name: _value(name, properties[name], root, values, depth + 1)
        for name in required
        if name in properties
    }


def _value(name: str, schema: Any, root: Mapping[str, Any], values: _Values, depth: int) -> Any:
    schema = _plain(schema, root) if depth < _MAX_DEPTH else {}
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return _choice(schema["enum"], values)
    match schema.get("type"):
        case "integer" | "number" as kind:
            number = values.take(values.numbers)
            if number is None:
                return values.guess(schema.get("default", schema.get("minimum", 1)))
            return float(number) if kind == "number" and "." in number else int(float(number))
        case "boolean":
            return not re.search(r"\b(?:no|not|off|false|without)\b", values.clause, re.I)
        case "array":
            return [_value(name, schema.get("items", {}), root, values, depth + 1)]
        case "object":
            return _object(schema, root, values, depth)
        case "null":
            return None
        case _:
            return _text(name, values)


def _choice(options: Sequence[Any], values: _Values) -> Any:
    for option in options:
        if re.search(rf"\b{re.escape(str(option))}\b", values.clause, re.I):
            values.found += 1
            return option
    return values.guess(options[0])


def _text(name: str, values: _Values) -> str:
    if (value := values.take(values.quoted, values.names)) is not None:
        return value
    named = re.search(
        rf"\b{re.escape(name.replace('_', ' '))}\s+(?:is\s+|named\s+)?(\w+)", values.clause, re.I
    )
    found = named or _AFTER_PREPOSITION.search(values.clause)
    return str(
        values.guess(found[1] if found else values.take(values.numbers) or values.clause.strip(" .?!"))
    )


def _plain(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """The schema behind references, unions with null, and lists of types."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        union = next((schema[key] for key in ("anyOf", "oneOf", "allOf") if schema.get(key)), None)
        if isinstance(schema.get("$ref"), str):
            schema = referred(schema["$ref"], root)
        elif isinstance(union, list):
            real = [
                option for option in union if not (isinstance(option, dict) and option.get("type") == "null")
            ]
            schema = (real or union)[0]
        elif isinstance(schema.get("type"), list):
            kinds = [kind for kind in schema["type"] if kind != "null"]
            schema = {**schema, "type": kinds[0] if kinds else "null"}
        else:
            return schema
    return {}


def referred(reference: str, root: Mapping[str, Any]) -> Any:
    """The definition at a reference such as ``#/$defs/Name``; None if it is not there."""
    found: Any = root
    for key in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


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
_FILL_DEPTH = 24


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
        for _ in range(_FILL_DEPTH):
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
