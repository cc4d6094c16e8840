"""States of the right shape with other values in them, behind a seal that fits: any function on them gives a
value, or a typed error.

A digest that fits does not say who wrote a blob. So meta data, rows, entries, the journal and the archive may
hold any JSON, and each function on states reads it. `GOAITOOLS_ODD_STATES` sets how many blobs each
case tries.
"""

from __future__ import annotations

import json
import os
import random
import traceback
from dataclasses import dataclass
from time import process_time
from typing import Any

import pytest

from goaitools_py.state import blob as blobs
from goaitools_py.state.blob import Kind
from goaitools_py.state.parts import ARCHIVE, MEDIA, new_part
from goaitools_py.state.segments import stored_segment
from goaitools_py.states import export_state
from goaitools_py.types.errors import GoAIToolsError, StateError, StateProviderError

from .._odd_values import changed
from ._functions import FUNCTIONS, MAY_REFUSE, TURNS, VERIFIED, WIRES
from .test_export import rich

KINDS = {"sealed": Kind.SEALED, "hot": Kind.HOT, "inbox": Kind.INBOX, "open": Kind.OPEN}
PARTS = {"archive": ARCHIVE, "media": MEDIA}
ROUNDS = int(os.environ.get("GOAITOOLS_ODD_STATES", "40"))


BROKEN = (
    b"\xff", b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b"{", b'{"a":', b"[]", b"0", b"", b'"a"', b"null",
    b"{}{}", b'{"role":"user","content":"\\q"}', b'{"role":"user","content":"\x01"}', b"nul",
    b'{"a":' * 70 + b"1" + b"}" * 70, b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b'{"a":"\\ud800"}',
    b'{"a":1e999,"b":' + b"9" * 5_000 + b"}",
    b'{"role":"assistant","content":"x","tool_calls":[{"id":"c","type":"function","function":{"name":"f",'
    b'"arguments":"' + b"[" * 3_000 + b"]" * 3_000 + b'"}}]}',
)  # fmt: skip
"""Entries that are no JSON objects, or no UTF-8, or that no fast reader takes."""
LETTERS = ("a", "u", "t", "s", "e", "d", "Z", "\u00e9", "")


@dataclass
class _Line:
    """A segment or a part: its entries, and the line behind them."""

    kind: str
    entries: list[bytes]
    line: bytes
    count: int = 0


def mutated(r: random.Random, exported: dict[str, Any]) -> bytes:
    """A blob with odd values, or broken bytes, in one or two of its texts. Raises what the writer raises."""
    meta, lines = exported["meta"].encode(), _lines(exported)
    for _ in range(r.randint(1, 2)):
        if r.random() < 0.1:
            meta = _odd(r, meta)
            continue
        one = r.choice(lines)
        at = r.randrange(len(one.entries)) if one.entries else None
        match r.randrange(6):
            case 0 | 1 if at is not None:
                one.entries[at] = _odd(r, one.entries[at])
            case 2 if at is not None:
                one.entries[at] = r.choice(BROKEN)
            case 3:
                one.line = one.line.replace(b'"u"', b'"%s"' % r.choice(LETTERS).encode(), 1)
            case 4:
                one.line = _broken(r, one.line)
            case _:
                is_object = one.kind == "open"
                line = _odd(r, one.line if is_object else b"[" + one.line + b"]")
                one.line = line if is_object else line[1:-1]
    made = [blobs.segment(Kind.META, meta, 0)]
    made += [stored_segment(KINDS[one.kind], one.entries, one.line) for one in lines if one.kind in KINDS]
    parts = [
        new_part(PARTS[one.kind], b",\n".join(one.entries) + b"\n" + one.line, one.count)
        for one in lines
        if one.kind in PARTS
    ]
    return blobs.encode(made, parts)


def _lines(exported: dict[str, Any]) -> list[_Line]:
    found = [
        _Line(one["kind"], [entry.encode() for entry in one["entries"]], one["rows"].encode())
        for one in exported["segments"]
    ]
    for one in exported.get("parts", []):
        text, _, line = one["content"].rpartition("\n")
        entries = [entry.encode() for entry in text.split(",\n") if entry]
        found.append(_Line(one["kind"], entries, line.encode(), one["count"]))
    return found


def _odd(r: random.Random, text: bytes) -> bytes:
    try:
        return json.dumps(changed(r, json.loads(text))).encode()
    except (ValueError, RecursionError):
        return text


def _broken(r: random.Random, text: bytes) -> bytes:
    """One byte is another one, or is missing."""
    at = r.randrange(len(text) or 1)
    return text[:at] + r.choice([b"", b"\xff", b"{", b'"', b"]", b"9" * 30, b"\\"]) + text[at + 1 :]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("wire", WIRES)
def test_any_function_takes_any_values(wire: str, seed: int) -> None:
    """Nothing but a `StateError`, an error of a turn from a turn, or the ValueError that some document."""
    print("seed", seed)
    r = random.Random(f"odd states {wire} {seed}")
    exported = export_state(rich(wire))
    faults: dict[str, str] = {}
    read = 0
    for number in range(ROUNDS):
        try:
            blob = mutated(r, exported)
        except (ValueError, StateError):
            continue
        errors: dict[str, str] = {}
        for name, function in FUNCTIONS.items():
            start = process_time()
            try:
                function(blob, wire)
                read += 1
            except StateProviderError:
                pass  # of a provider API that nobody knows, which is no damage
            except StateError as error:
                errors[name] = type(error).__name__
            except GoAIToolsError as error:
                if name not in TURNS:
                    faults.setdefault(f"{name}: {type(error).__name__}", f"{number}: {_where(error)}")
            except Exception as error:
                if type(error) not in (ValueError, TypeError) or name not in MAY_REFUSE:
                    faults.setdefault(f"{name}: {type(error).__name__}", f"{number}: {_where(error)}")
            if process_time() - start > 2:
                faults[f"{name} is slow"] = str(number)
        if set(errors) & set(VERIFIED) and "verify" not in errors:
            told = {name: error for name, error in errors.items() if name in VERIFIED}
            faults.setdefault("verify finds nothing", f"{number}: {told}")
    assert faults == {}
    assert read > ROUNDS


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(
        f"{frame.filename.rpartition('goaitools_py')[2]}:{frame.lineno}" for frame in reversed(frames)
    )
