"""A few hundred bytes with a million JSON values: any function on states stays within 2 seconds of CPU and
200 MB, and refuses more values before anything is made of them.

Functions and bombs are paired by a seed; `GOAITOOLS_BOMBS` sets how many pairs each wire gets, or "all". Time
and memory are those of a process of its own for each pair.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ._bombs import WIRES, all_bombs
from ._functions import FUNCTIONS, MAY_REFUSE

ROOT = Path(__file__).resolve().parents[2]
PAIRS = os.environ.get("GOAITOOLS_BOMBS", "4")
WITHIN = 950_000
BEYOND = 6_000_000
SECONDS = 2.0
MEBIBYTES = 200.0
MORE: dict[tuple[str, str], float] = {
    ("redact", "nested objects"): 400.0,  # it holds the facts before and after
    ("redact what is there", "nested objects"): 400.0,
    ("redact a letter", "nested objects"): 400.0,
    ("redact an expression", "nested objects"): 400.0,
    ("redact by a function", "nested objects"): 400.0,
    ("parsed calls", "parts of an open result"): 300.0,
    ("exported JSON", "parts of an open result"): 300.0,
    ("inspect command with content", "parts of an open result"): 300.0,
}
"""What is known to take more than `MEBIBYTES`, by function and filling. docs/sizes.md names it."""
MORE_OF: dict[str, float] = {
    "nested objects": 240.0,  # an object takes 200 bytes
    "lone surrogates": 260.0,  # the standard library reads them, and each is a text of its own
    "large integers": 260.0,
    "larger integers": 220.0,
}
"""The same for a filling."""
MORE_SECONDS: dict[str, float] = {
    "convert": 4.0,
    "convert to another": 4.0,
    "redact": 3.0,
    "redact a letter": 6.0,
    "redact an expression": 6.0,
    "redact by a function": 7.0,
}
"""Where hundreds of thousands of different texts match, each is changed by itself. docs/sizes.md says so."""
FACTOR = 4.0
"""The machine may be slow, or busy: one machine took 2.5 times as long at another hour. What these tests look
for takes ten times as long or more."""
ALWAYS = (
    ("redact", "member: escapes"),
    ("redact", "empty turns"),
    ("redact what is there", "result text: nested arrays"),
    ("redact", "arguments: JSON in strings"),
    ("redact a letter", "reply: split texts"),
    ("redact a letter", "arguments: many keys"),
    ("redact an expression", "waiting topics"),
    ("redact an expression", "calls: different calls"),
    ("redact an expression", "notes"),
    ("turn", "open entry: a lone surrogate and zeros"),
    ("turn afresh", "inbox: a broken end"),
    ("messages", "member: a broken end"),
    ("import", "calls: larger integers"),
    ("messages", "calls: calls"),
    ("history", "calls: empty objects"),
    ("export", "open facts: nested objects"),
    ("diff", "open facts: nested objects"),
)

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from /proc"
)


def measured(wire: str, values: int, pairs: list[tuple[str, str]]) -> list[list[Any]]:
    """The rows of `_measured` for these pairs."""
    asked = json.dumps({"wire": wire, "values": values, "pairs": pairs})
    command = [sys.executable, "-m", "tests.history._measured", asked]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: list[list[Any]] = json.loads(run.stdout)
    return found


def pairs_of(wire: str, count: str) -> list[tuple[str, str]]:
    """Pairs of a function and a bomb: some always, others as the seed has it."""
    every = [(function, name) for function in FUNCTIONS for name in all_bombs()]
    every = [pair for pair in every if pair[0] not in OTHERS]
    if count == "all":
        return every
    own = ALWAYS[WIRES.index(wire) :: len(WIRES)]
    return [*own, *random.Random(f"bombs {wire} {count}").sample(every, int(count))]


def is_typed(function: str, result: str) -> bool:
    """True for a value, for an error of this package, and for what a function documents."""
    documented = function in MAY_REFUSE and result.startswith(("ValueError", "TypeError"))
    return documented or (" at " not in result and "killed" not in result)


def most_mebibytes(function: str, bomb: str) -> float:
    filling = bomb.partition(": ")[2] or bomb
    return max(MORE.get((function, filling), MEBIBYTES), MORE_OF.get(filling, MEBIBYTES))


@pytest.mark.parametrize("wire", WIRES)
def test_a_million_values_are_read_within_bounds(wire: str) -> None:
    """Wherever they stand, and whatever they are."""
    rows = measured(wire, WITHIN, pairs_of(wire, PAIRS))

    slowest, largest = max(rows, key=lambda row: row[4]), max(rows, key=lambda row: row[5])
    print(f"{len(rows)} pairs; slowest {slowest}; largest {largest}")
    assert [row for row in rows if not is_typed(row[0], row[3])] == []
    assert [row for row in rows if row[4] > FACTOR * MORE_SECONDS.get(row[0], SECONDS)] == []
    assert [row for row in rows if row[5] > most_mebibytes(row[0], row[1])] == []


@pytest.mark.parametrize(
    ("wire", "function", "name", "values"),
    [
        ("openai", "convert", "calls: zeros", 100_000),
        ("openai", "convert", "open calls", WITHIN),
        ("anthropic", "convert", "question: results", WITHIN),
        ("anthropic", "convert", "calls: zeros", WITHIN),
        ("openai", "inspect command with content", "open result: many keys", WITHIN),
        ("openai-responses", "history", "open calls", WITHIN),
    ],
)
def test_what_took_a_minute_or_a_gigabyte(wire: str, function: str, name: str, values: int) -> None:
    """Hundreds of thousands of calls or results, and a word of a megabyte in a report."""
    ((*_, result, seconds, mebibytes, _),) = measured(wire, values, [(function, name)])

    assert is_typed(function, result)
    assert seconds < FACTOR * SECONDS
    assert mebibytes < most_mebibytes(function, name)


@pytest.mark.parametrize("wire", WIRES)
def test_more_values_are_refused_before_they_are_read(wire: str) -> None:
    """Whatever function is asked: 100 ms, and 64 MB beside the inflated bytes."""
    places = ("member", "question", "facts", "inbox", "open entry", "open facts", "future of the open turn")
    names = [f"{place}: {filling}" for place in places for filling in ("zeros", "empty arrays", "strings")]
    every = [(function, name) for function in FUNCTIONS for name in names]

    count = 30 if PAIRS == "all" else max(10, int(PAIRS) // 2)
    rows = measured(wire, BEYOND, random.Random(f"beyond {wire}").sample(every, count))

    expected = ("StateTooLargeError", "")
    assert [row for row in rows if row[3] not in expected] == []
    assert [row for row in rows if row[3] == "" and row[0] not in AFRESH] == []
    assert [row for row in rows if row[4] > FACTOR * 0.1] == []
    assert [row for row in rows if row[5] > 64 + 2 * row[6] / 2**20] == []


AFRESH = ("inspect command", "inspect command with content", "turn afresh", "rebase", "saved")
"""A command prints the error, a turn may begin afresh, equal bytes need no rebase, a file takes any blob."""

OTHERS = ("from messages",)
"""It takes Python values, of any number, which the caller has made before."""
