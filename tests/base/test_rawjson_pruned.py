"""Containers that nest too deep are cut out of a JSON text; all else stays as it was."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from goaitools_py.base.rawjson import MAX_DEPTH, RawJSONError, loads, pruned


def expected(value: Any, levels: int = MAX_DEPTH) -> Any:
    """The value with None for each container below so many levels."""
    if isinstance(value, (dict, list)) and levels == 0:
        return None
    if isinstance(value, dict):
        return {key: expected(member, levels - 1) for key, member in value.items()}
    return [expected(item, levels - 1) for item in value] if isinstance(value, list) else value


def grown(chance: random.Random, depth: int) -> Any:
    """A value of which one branch reaches `depth` levels, with short ones beside it."""
    value: Any = {} if chance.random() < 0.5 else []
    for _ in range(depth - 1):
        beside = chance.choice(['"', '\\"[', "{[", "\\", 7, None, [], {"k": []}, "ä\ud83d"])
        if chance.random() < 0.5:
            value = [beside, value, beside]
        else:
            value = {'a"[': beside, "value": value, "z": beside}
    return value


def test_every_container_below_the_deepest_level_becomes_null() -> None:
    """Compared with a walk over the values, for depths around the bound and strings full of brackets."""
    chance = random.Random(30)
    for depth in [*range(MAX_DEPTH - 3, MAX_DEPTH + 12)] * 6:
        value = grown(chance, depth)
        data = json.dumps(value, indent=chance.choice([None, 0])).encode()

        cut = pruned(data)

        assert loads(cut) == expected(value)
        assert (cut is data) == (expected(value) == value)


def test_only_what_is_cut_changes() -> None:
    """White space, numbers and escapes stay; so does what stands beside a cut."""
    before, after = b"[" * MAX_DEPTH, b"]" * MAX_DEPTH

    assert pruned(before + b' 1.50 ,\n[2, "]"] , "\\u00e4" ,{}' + after) == (
        before + b" 1.50 ,\n" + b'null , "\\u00e4" ,null' + after
    )


@pytest.mark.parametrize("space", [b"", b" \n"])
def test_a_named_object_becomes_text_if_anything_in_it_is_cut(space: bytes) -> None:
    """Its very bytes as a string; one that is not too deep stays as it is."""
    deep = b'{"x": "\\u00e4\\"", "input": ' + b"[" * 90 + b"1e0" + b"]" * 90 + b"}"
    data = b'[{"input"%s:%s%s, "b": "input"}, {"input": {"x": [1]}}, {"other": %s}]' % (
        space,
        space,
        deep,
        deep,
    )

    first, second, third = loads(pruned(data, as_text=("input", "arguments")))

    assert first == {"input": deep.decode(), "b": "input"}
    assert second == {"input": {"x": [1]}}
    assert third["other"]["input"] != []
    assert pruned(data).count(b"null") == 2


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b"[" * 90 + b"]" * 89,
        b"[" * 90 + b'"' + b"]" * 90,
        b"[" * 90 + b'"\xff"' + b"]" * 90,
        b"[" * 90 + b"}" * 90,
        b"]" * 10 + b"[" * 90 + b"]" * 80,
    ],
    ids=["openings", "objects", "unbalanced", "open string", "no UTF-8", "wrong closings", "closings first"],
)
def test_what_is_not_json_is_refused_as_before(data: bytes) -> None:
    """Pruning makes no JSON of it."""
    with pytest.raises(RawJSONError):
        loads(pruned(data, as_text=("input",)))


@pytest.mark.parametrize(
    "piece",
    [(b"[", b"]"), (b'{"input":', b"}"), (b'["\\"\\"\\"",', b"]"), (b'{"input"     :{"a":', b"}}")],
    ids=["arrays", "named objects", "escapes", "spaces"],
)
def test_the_time_grows_with_the_length(piece: tuple[bytes, bytes]) -> None:
    """Sixteen times the depth takes nowhere near 256 times as long, as anything quadratic would."""

    def seconds(levels: int) -> float:
        data = piece[0] * levels + b"1" + piece[1] * levels
        began = time.process_time()
        cut = pruned(data, as_text=("input",))
        passed = time.process_time() - began
        assert cut is not data
        return passed

    seconds(1_000)
    assert seconds(160_000) < 80 * max(min(seconds(10_000) for _ in range(3)), 0.001)
