"""Joining the pieces of a stream takes a time in proportion to their number, whatever a server sends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from goaitools_py.backends.wire.growing import Calls, Object, Parts, objects_of

Make = Callable[[int], dict[str, Any]]


def call(arguments: str, **members: Any) -> dict[str, Any]:
    return {"type": "function", **members, "function": {"name": "f", "arguments": arguments}}


CALLS: dict[str, Make] = {
    "ids without an index": lambda n: call("{}", id=f"c{n}"),
    "ids at one index": lambda n: call("{}", id=f"c{n}", index=0),
    "names at one index": lambda n: call("{}", index=0),
    "an index each": lambda n: call("{}", id=f"c{n}", index=n),
    "a name in each piece": lambda n: call("abcdefghijklmnop" if n else '{"a":"', index=0),
    "a name in each piece, and ends": lambda n: call("abcdefghijklmn}" if n else '{"a":"', index=0),
    "a name in each piece, deeper": lambda n: call('{"a":', index=0),
    "a name in each piece, after a bad end": lambda n: call("{x}" if n else "{]}", index=0),
    "an id that changes": lambda n: {"index": 0, "id": f"c{n}", "function": {"arguments": "{}"}},
}
PARTS: dict[str, Make] = {
    "an index each": lambda n: {"type": "reasoning.text", "index": n, "text": "a"},
    "two in turn": lambda n: {"type": "text", "index": n % 2, "text": "a"},
    "none": lambda n: {"type": "text", "text": "a"},
}


def _deltas(make: Make, count: int) -> list[Object]:
    return objects_of(msgspec.Raw(json.dumps([make(number) for number in range(count)]).encode()))


@pytest.mark.parametrize(
    ("into", "make"),
    [
        *(pytest.param(Calls, make, id=f"calls, {name}") for name, make in CALLS.items()),
        *(pytest.param(Parts, make, id=f"parts, {name}") for name, make in PARTS.items()),
    ],
)
def test_the_time_grows_with_the_number_of_pieces(into: Any, make: Make) -> None:
    """Sixteen times as many take nowhere near 256 times as long, as anything quadratic would."""

    def seconds(count: int) -> float:
        deltas = _deltas(make, count)
        grown = into()
        began = time.process_time()
        for delta in deltas:
            grown.add([delta])
        grown.raw()
        return time.process_time() - began

    seconds(100)
    assert seconds(16_000) < 80 * max(min(seconds(1_000) for _ in range(3)), 0.001)


def _joined(*pieces: str) -> list[str]:
    calls = Calls()
    for piece in pieces:
        calls.add(objects_of(msgspec.Raw(json.dumps([call(piece, index=0)]).encode())))
    return [one["function"]["arguments"] for one in json.loads(calls.raw())]


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        (("{}", "{}"), ["{}", "{}"]),
        (('{"a":1}', " ", "{}"), ['{"a":1} ', "{}"]),
        (('{"a":', '"}', '"}', "{}"), ['{"a":"}"}', "{}"]),
        (('{"a":"\\', '"}', '"}', "{}"), ['{"a":"\\"}"}', "{}"]),
        (('{"a":"\\\\', '"}', "{}"), ['{"a":"\\\\"}', "{}"]),
        (('{"a":{', "}", "}", '{"b":2}'), ['{"a":{}}', '{"b":2}']),
        (("{x}", "{}"), ["{x}{}"]),
        (("[]", "{}"), ["[]{}"]),
        (("}", "{}"), ["}{}"]),
        (("\n{", "}\n", "{}", "{}"), ["\n{}\n", "{}", "{}"]),
    ],
)
def test_whole_arguments_end_a_call(pieces: tuple[str, ...], arguments: list[str]) -> None:
    """A name beside more of them begins the next one, wherever the pieces are cut."""
    assert _joined(*pieces) == arguments
