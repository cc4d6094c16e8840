"""The shipped dictionary: frozen for ever, made from our own words, and worth its bytes."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from goaitools_py.state import dictionary, frames
from goaitools_py.state.blob import Kind, encode, segment
from goaitools_py.types.errors import GoAIToolsError, StateError

from ..golden.dictionary import build

_ROOT = Path(dictionary.__file__).parents[3]
_CORPUS = Path(build.__file__).with_name("corpus.txt")
_DATA = Path(os.environ.get("GOAITOOLS_TEST_DATA") or _ROOT.parent / "shared" / "data") / "conversations"
_FROZEN = {1: "9f75d1afbf71528a56aba9adb962f4fbacc649d39b5ca4daa998c796270a4eee"}
_BUILT_WITH = (1, 5, 7)

needs_data = pytest.mark.skipif(not _DATA.is_dir(), reason="the conversations of the test data are not here")

# ------------------------------------------------------------------------------------------- frozen


def test_the_dictionaries_are_the_frozen_ones() -> None:
    """A shipped dictionary never changes by a byte: stored conversations depend on it."""
    assert dictionary.SHA256 == _FROZEN
    assert {number: hashlib.sha256(dictionary.load(number)).hexdigest() for number in _FROZEN} == _FROZEN


def test_dictionary_1_is_small() -> None:
    """It travels in every installation and sits in the memory of every process."""
    assert len(dictionary.load(1)) <= build.MAX_BYTES == 8192


@pytest.mark.skipif(
    zstandard.ZSTD_VERSION != _BUILT_WITH, reason="another zstd release may train differently"
)
def test_dictionary_1_is_rebuilt_from_the_corpus() -> None:
    """The corpus and the script in the repository give the shipped bytes."""
    assert build.build(_CORPUS.read_text(encoding="utf-8")) == dictionary.load(1)


def test_a_damaged_installation_is_not_a_damaged_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong file is refused before it is used, with an error for which no policy discards a state."""
    monkeypatch.setitem(dictionary.SHA256, 1, "0" * 64)

    with pytest.raises(GoAIToolsError, match="reinstall") as caught:
        dictionary.load.__wrapped__(1)

    assert not isinstance(caught.value, StateError)


def test_an_unknown_number_is_a_key_error() -> None:
    """Whoever asks must know which dictionaries there are."""
    with pytest.raises(KeyError):
        dictionary.load(99)


def test_the_file_is_read_on_first_use() -> None:
    """Importing the codec reads no dictionary; importing must stay cheap."""
    program = "import goaitools_py.state.blob as b; print(b.frames.dictionary.load.cache_info().currsize)"

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, cwd=_ROOT)

    assert run.stdout.strip() == b"0"


# ------------------------------------------------------------------------------------------- corpus


def test_every_sample_is_what_would_be_stored() -> None:
    """Training text has the shape of real segments: JSON entries, then columns, or one JSON object."""
    texts = [sample.decode() for sample in build.samples(_CORPUS.read_text(encoding="utf-8"))]

    for text in texts:
        *entries, columns = text.split("\n")
        json.loads(f"[{''.join(entries)}]")
        json.loads(f"[{columns}]")
    wires = (
        '"tool_calls":[{"id":"call_',
        '"type":"function_call_output"',
        '"type":"tool_result"',
        '"wire":"',
    )
    assert all(any(wire in text for text in texts) for wire in wires)


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9']+", text)


def _conversations(name: str) -> Iterator[dict[str, Any]]:
    with (_DATA / f"{name}.jsonl.zst").open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file)
        for line in io.TextIOWrapper(stream, encoding="utf-8"):
            yield orjson.loads(line)


@needs_data
@pytest.mark.parametrize(
    "name", ["tau-airline-gpt4o", "sgd", "sweagent", "aider", "mtbench101", "mtbench", "oasst-eval"]
)
def test_the_corpus_is_not_the_test_data(name: str) -> None:
    """No run of twelve words is shared with conversations that it is measured on."""
    ours = _words(_CORPUS.read_text(encoding="utf-8"))
    runs = {tuple(ours[at : at + 12]) for at in range(len(ours) - 11)}

    shared = set()
    for conversation in _conversations(name):
        theirs = _words(json.dumps(conversation["messages"]))
        shared |= {run for at in range(len(theirs) - 11) if (run := tuple(theirs[at : at + 12])) in runs}

    assert shared == set()


# -------------------------------------------------------------------------------------------- worth


@cache
def _histories() -> tuple[list[dict[str, Any]], ...]:
    return tuple(
        [message for message in conversation["messages"] if message["role"] != "system"]
        for conversation in _conversations("tau-airline-gpt4o")
    )


def _columns(messages: list[dict[str, Any]], rng: random.Random) -> bytes:
    turns: list[bytes] = []
    iterations: list[list[Any]] = []
    roles = ""
    updated = 0
    for message in messages:
        roles += message["role"][0]
        if message["role"] == "assistant":
            calls = bool(message.get("tool_calls"))
            counts = [rng.randrange(800, 9000), 128 * rng.randrange(60), 0, rng.randrange(10, 250), 0]
            iterations.append([roles, "tool_calls" if calls else "stop", *counts, rng.randrange(400, 5000)])
            roles = ""
            if not calls:
                updated += rng.randrange(5000, 60000)
                turns.append(orjson.dumps([updated, iterations]))
                iterations = []
    return b",".join(turns or [orjson.dumps([updated, iterations])])


def _digest(rng: random.Random) -> str:
    return base64.urlsafe_b64encode(rng.randbytes(8)).decode().rstrip("=")


def _meta(messages: list[dict[str, Any]], rng: random.Random) -> bytes:
    def usage() -> list[int]:
        return [
            rng.randrange(100, 30000),
            128 * rng.randrange(90),
            0,
            rng.randrange(20, 900),
            0,
            rng.randrange(1, 4),
        ]

    turns = sum(message["role"] == "user" for message in messages)
    return orjson.dumps(
        {
            "wire": "openai",
            "family": "openai",
            "model": "gpt-4o",
            "id": rng.randbytes(8).hex(),
            "rev": turns,
            "parent": _digest(rng),
            "created": 1763727600000 + rng.randrange(10**9),
            "updated": rng.randrange(5000, 900000),
            "status": "complete",
            "last": "assistant",
            "messages": len(messages),
            "turns": turns,
            "total": usage(),
            "usage": usage(),
            "preamble": _digest(rng),
            "tools": _digest(rng),
        }
    )


@needs_data
@pytest.mark.parametrize(("count", "share"), [(2, 1.0), (10, 0.40), (50, 0.22)])
def test_a_blob_is_small_beside_its_messages(count: int, share: float) -> None:
    """The whole blob, with header, digest, meta and columns, against the bare JSON of the messages."""
    rng = random.Random(7)
    raw_bytes = blob_bytes = 0

    for history in _histories():
        messages = history[:count]
        if len(messages) < count:
            continue
        raw_bytes += len(orjson.dumps(messages))
        entries = b",\n".join(map(orjson.dumps, messages))
        hot = entries + b"\n" + _columns(messages, rng)
        blob_bytes += len(
            encode([segment(Kind.META, _meta(messages, rng), 0), segment(Kind.HOT, hot, count)])
        )

    print(f"{count} messages: {blob_bytes / raw_bytes:.1%} of their JSON")
    assert blob_bytes <= share * raw_bytes


def test_a_frame_that_does_without_the_dictionary_is_read_with_it() -> None:
    """Large tails are compressed without it, and read as if with it: it begins with zstd's own offsets. With
    other ones in the dictionary the same frames say something else."""
    content = dictionary.load(1)
    offsets = b"".join(number.to_bytes(4, "little") for number in (1, 4, 8))
    assert content.count(offsets) == 1
    others = content.replace(offsets, b"".join(number.to_bytes(4, "little") for number in (2, 5, 9)))
    altered = zstandard.ZstdDecompressor(
        dict_data=zstandard.ZstdCompressionDict(others, dict_type=zstandard.DICT_TYPE_FULLDICT)
    )
    differ = 0
    for length in range(12):
        raw = random.Random(length).randbytes(length) + b"a" * 2_000 + b"the end"
        frame = frames.compress(raw, frames.Effort(1, uses_dictionary=False))

        assert frames.inflate(frame, len(raw), frames.ZSTD_DICTIONARY_1) == raw
        assert frames.inflate(frame, len(raw), frames.ZSTD) == raw
        try:
            differ += altered.decompress(frame) != raw
        except zstandard.ZstdError:
            differ += 1
    assert differ > 0
