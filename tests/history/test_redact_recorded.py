"""What redaction makes of a thousand small entries of any shape, as an implementation gave it that looked at
every node. A faster one gives the same."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py.history.redact.entry_texts import Redactor
from goaitools_py.history.redact.matching import Finder

WORDS = (
    *("secret", "aa", "aaa", "ab", "text", "a", "12", "é", "user", "sec", "ret", "x", "type", "call_secret"),
    *("c1", "\n", '"', "\\", "{", "}", "&lt;secret&gt;", "&amp;", "se&lt;", "data:text/plain,secret", " "),
    *("data:image/png;base64,c2VjcmV0", "c2VjcmV0", "<app-event>", "https://x/secret", "abcabcabc"),
)
KEYS = (
    *("type", "text", "role", "content", "id", "call_id", "name", "arguments", "input", "metadata", "url"),
    *("image_url", "data", "source", "x", "secret", "aa", "signature", "file_url", "status", "Key", "é"),
)
TEXTS = ("text", "input_text", "output_text")
KINDS = (*TEXTS, "image", "image_url", "file", "tool_use", "server_tool_use", "redacted_thinking", "secret")


def some_text(chance: random.Random) -> str:
    return "".join(chance.choices(WORDS, k=chance.randrange(4)))


def some_value(chance: random.Random, depth: int) -> Any:
    kind = chance.random()
    if depth <= 0 or kind < 0.4:
        if chance.random() < 0.15:
            return chance.choice([0, 12, 121, -1.5, True, None, 10**20])
        if chance.random() < 0.15:
            return json.dumps(some_value(chance, depth - 1), ensure_ascii=chance.random() < 0.5)
        return some_text(chance)
    if kind < 0.55:
        return [some_value(chance, depth - 1) for _ in range(chance.randrange(5))]
    if kind < 0.75:
        return [some_part(chance, depth) for _ in range(chance.randrange(6))]
    return some_object(chance, depth)


def some_part(chance: random.Random, depth: int) -> Any:
    kind = chance.random()
    if kind < 0.6:
        return {"type": chance.choice(TEXTS), "text": some_text(chance)}
    if kind < 0.7:
        return {"text": some_text(chance), "type": chance.choice(TEXTS)}
    if kind < 0.8:
        more = {chance.choice(KEYS): some_value(chance, depth - 1)}
        return {"type": "text", "text": some_text(chance), **more}
    return some_object(chance, depth)


def some_object(chance: random.Random, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": chance.choice(KINDS)} if chance.random() < 0.5 else {}
    for _ in range(chance.randrange(5)):
        found[chance.choice(KEYS)] = some_value(chance, depth - 1)
    return found


def some_entry(chance: random.Random) -> bytes:
    marks = chance.choice([(",", ":"), (", ", ": "), (" ,\n", " :\t")])
    text = json.dumps(some_object(chance, 4), ensure_ascii=chance.random() < 0.5, separators=marks)
    if chance.random() < 0.1:
        text = text.replace('"type"', r'"\u0074ype"').replace('"text"', r'"te\u0078t"')
    if chance.random() < 0.1:
        text = re.sub(r'("x") ?: ?', r'"x":1,\1:', text)  # a member twice
    return text.encode()


def places(text: str) -> Iterator[tuple[int, int]]:
    return (found.span() for found in re.finditer("cret|ser", text))


MATCHES: dict[str, tuple[Any, str]] = {
    "secret": ("secret", "1b35492445fc40c8"),
    "twice": ("aa", "0eea632a8e2bf41e"),
    "ab": ("ab", "91d08d02f25f6a44"),
    "a word": ("text", "904295c8efaa6351"),
    "a letter": ("a", "0372c6579ac8f0b8"),
    "digits": ("12", "b2808ff9eed2655a"),
    "a type": ("type", "6443f6c4d815eee7"),
    "a role": ("user", "585840c2eb640f7f"),
    "a quotation mark": ('"', "b43ef7c4f4a82886"),
    "a backslash": ("\\", "53949750195347f5"),
    "not ASCII": ("é", "3785f8a3ab9e2f66"),
    "a pattern": (re.compile("se?cret|1+"), "e3390d881c4f6fbe"),
    "any case": (re.compile("(?i)SEC"), "7d7ac8a13f14f7c9"),
    "empty places": (re.compile("x*"), "4917141666927452"),
    "a function": (places, "c26b2f31054efd93"),
    "a brace": ("{", "c68ae81666fbc367"),
    "periods": ("abcabc", "08caf7184e2e3c77"),
    "ids": ("id", "a0c02302aef22516"),
    "calls": ("call", "e4e2671c86ee75eb"),
}
"""What is searched, and the digest of what came of it."""


def outcome(match: Any, seed: str) -> Any:
    """All that can be seen of a redactor that reads some entries, and then what it has made of them."""
    chance = random.Random(seed)
    finder = Finder(match, chance.choice(["[-]", "***", "<&>"]))
    redactor = Redactor(finder)
    entries, seen = [some_entry(chance) for _ in range(3)], []
    try:
        for _ in range(2):
            redactor.begin()
            entries = [redactor.entry(entry) for entry in entries]
            others = redactor.arguments(entries[0].decode()), redactor.text(entries[1].decode())
            seen.append((entries, others, finder.count, redactor.kept, sorted(redactor.ids.items())))
    except ValueError as error:  # the replacement forms a match anew, each time
        seen.append((str(error),))  # type: ignore[arg-type]
    return seen


def digest_of(name: str, match: Any) -> str:
    seen = [outcome(match, f"{name} {number}") for number in range(50)]
    assert sum(len(one) == 2 and one[0][2] > 0 for one in seen) >= 5
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", MATCHES)
def test_the_same_as_ever_is_made_of_any_entry(name: str) -> None:
    """Entries, counts, words that stay, and new ids."""
    match, digest = MATCHES[name]

    assert digest_of(name, match) == digest
