"""A redacted state has no trace of the secret, is accepted by the provider, and is otherwise the same."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.protocols import problems_of
from goaitools_py.history.redact import json_tree
from goaitools_py.history.redact.entry_texts import Redactor
from goaitools_py.history.redact.matching import Finder
from goaitools_py.seal import Encrypted, Key, Keyring, Plain, Signed
from goaitools_py.state.closed_turns import with_numbers
from goaitools_py.state.state import closed_turns, dump_state, load_state
from goaitools_py.states import redact_state, verify_state
from tests.compaction._histories import WIRES

from ._bombs import bomb
from ._planted import SECRETS, conversation, has, traces


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("seed", range(20))
def test_no_trace_of_the_secret_is_left(wire: str, seed: int) -> None:
    """Any conversation, of any size; sealed or not; with archive, open turn, inbox."""
    print("seed", seed)
    r = random.Random(f"redact/{wire}/{seed}")
    secret = SECRETS[seed % len(SECRETS)]
    state = conversation(r, wire, secret, [3, 0, 12, 40][seed % 4])
    key = Keyring(Key.generate())
    codec = r.choice([Plain(), Signed(key), Encrypted(key), Encrypted(key, visible_to="client")])
    owner: Any = None if isinstance(codec, Plain) else {"user": "ada"}
    blob = dump_state(state, codec=codec, binding=owner)

    done = redact_state(blob, secret, codec=codec, binding=owner)

    assert traces(done.state, secret, codec, owner) == 0
    assert (done.count > 0) == (traces(blob, secret, codec, owner) > 0)
    verify_state(done.state, codec=codec, binding=owner)
    new = load_state(done.state, codec=codec, binding=owner)
    opened = new.open.entries if new.open is not None else ()
    entries = [entry for turn in closed_turns(new) for entry in turn.entries]
    assert problems_of(dialect_of(wire), [*entries, *opened], open_end=new.open is not None) == []
    assert new.meta.messages == sum(turn.record.messages for turn in closed_turns(new))
    again = redact_state(done.state, secret, codec=codec, binding=owner)
    assert (again.state, again.count, again.places) == (done.state, 0, ())
    dialect = dialect_of(wire)
    before, after = with_numbers(closed_turns(state)), with_numbers(closed_turns(new))
    assert len(before) == len(after)
    for old, turn in zip(before, after, strict=True):
        if not any(has(entry, secret) for entry in old.entries):
            assert turn.entries in (old.entries, tuple(filter(None, dialect.unsigned(old.entries))))


# --------------------------------------------------------------------------- many matches at once


def entry_bytes(blob: bytes) -> bytes:
    return b"\n".join(entry for turn in closed_turns(load_state(blob)) for entry in turn.entries)


MANY = re.compile(r"\b[ac][0-9a-f]*\b")


@pytest.mark.parametrize("wire", WIRES)
def test_a_thousand_ids_that_become_the_same_stay_different(wire: str) -> None:
    """And none of them is left."""
    filling = "different uses" if wire == "anthropic" else "different calls"
    place = "calls" if wire != "openai-responses" else "member"
    blob = bomb(wire, f"{place}: {filling}", 6_000)
    ids = re.findall(rb'"id": ?"(c[0-9a-f]+)"', entry_bytes(blob))
    assert len(set(ids)) >= 1_000

    done = redact_state(blob, MANY, "X")

    entries = entry_bytes(done.state)
    new = re.findall(rb'"id": ?"([^"]*)"', entries)
    assert [id for id in new if MANY.search(id.decode())] == []
    assert len(set(new)) == len(new) >= 1_000
    assert redact_state(done.state, MANY, "X").count == 0


def test_topics_that_become_the_same_stay_different() -> None:
    """Thousands of them, within the bound of a name."""
    blob = bomb("openai", "waiting topics", 50_000)

    done = redact_state(blob, MANY, "X" * 300)

    topics = [item.topic for item in load_state(done.state).inbox]
    assert len(set(topics)) == len(topics) == 5_000
    assert max(map(len, topics)) <= 256
    assert [topic for topic in topics if MANY.search(topic)] == []


ALPHABET = ("a", "b", "c", "é", '"', "\\", "\n", "&", "<", "[", "{", " ", "0", "1.5", "aa", "=")


@pytest.mark.parametrize("literal", ["a", "ab", "é", "0", "b1"])
def test_many_strings_at_once_are_changed_as_one_by_one(literal: str) -> None:
    """Keys, strings and numbers of a tool's arguments, of any kind."""
    chance = random.Random(f"many {literal}")
    for _ in range(200):
        values = [
            "".join(chance.choices(ALPHABET, k=chance.randrange(4))) for _ in range(chance.randrange(9))
        ]
        given = [*values, chance.choice([10, 1.5, True, None]), {value: value for value in values}]
        text = json.dumps(given, ensure_ascii=literal != "0" and chance.random() < 0.5)

        new = Redactor(Finder(literal, "X")).text(text)

        def alone(value: Any) -> Any:
            match value:
                case str():
                    return Redactor(Finder(literal, "X")).text(value)
                case dict():
                    return [[alone(key), alone(item)] for key, item in value.items()]
                case list():
                    return [alone(item) for item in value]
                case int() | float() if not isinstance(value, bool) and literal in json.dumps(value):
                    return "X"
            return value

        found = json.loads(new, object_pairs_hook=lambda pairs: [list(pair) for pair in pairs])
        assert found == alone(given), text


def cut_slowly(texts: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    """Character by character: what `Redactor.across` gives."""
    found = list(texts)
    while spans := [one.span() for one in pattern.finditer("".join(found))]:
        starts = {start for start, _ in spans}
        gone = {at for start, end in spans for at in range(start, end)}
        places = itertools.count()
        for number, text in enumerate(found):
            pieces = [(at, letter) for letter, at in zip(text, places)]  # noqa: B905
            new = "".join("-" * (at in starts) + letter * (at not in gone) for at, letter in pieces)
            found[number] = new or "-" * bool(text)
    return found


def test_matches_across_many_texts_are_cut_once() -> None:
    """Also those that cover several texts, and several in one text."""
    chance, pattern = random.Random("across"), re.compile("abb|ca*b|acca")
    for _ in range(500):
        texts = ["".join(chance.choices("abc", k=chance.randrange(4))) for _ in range(chance.randrange(2, 9))]

        found = Redactor(Finder(pattern, "-")).across(texts)

        assert found == cut_slowly(texts, pattern)


PIECES = (
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    "1",
    "0",
    "-",
    ".",
    "e5",
    "true",
    "nul",
    "\\",
    "u00e9",
    "a",
    " ",
    "\n",
    "\t",
)


def test_text_is_json_for_a_redaction_as_for_the_standard_library() -> None:
    """Also with line breaks in strings, which models write, and lone surrogates; NaN is not JSON."""
    chance, reader = random.Random("parsed"), json.JSONDecoder(strict=False)
    seeds = [
        '{"a":[1,-0.5e5,"b\\n\\u00e9",true,null]}',
        '["\\ud800","x\ny"]',
        "NaN",
        "[1,2]",
        '{"a":{}}',
        "-Infinity",
    ]
    count = 0
    for _ in range(20_000):
        text = chance.choice(seeds)
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(PIECES) + text[at + chance.randrange(2) :]
        try:
            end = reader.raw_decode(text, len(text) - len(text.lstrip(" \n\t\r")))[1]
            is_json = not text[end:].strip(" \n\t\r") and "NaN" not in text and "Infinity" not in text
        except ValueError:
            is_json = False
        count += is_json

        assert (json_tree.parsed(text) is not None) == is_json, text
    assert 2_000 < count < 18_000
