"""Bombs behind a seal that fits: whoever has the key, or steals it, still cannot make a reader fall over.

Each is sealed by the second writer for every suite, so that nothing stops it before the decoder.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import process_time

import pytest
import zstandard

from goaitools_py.state.blob import Kind, encode, segment
from goaitools_py.state.frames import read_varints
from goaitools_py.state.parts import ARCHIVE, new_part
from goaitools_py.states import export_state, read_history, redact_state, to_markdown
from goaitools_py.types.errors import StateInvalidError

from . import _second

ROOT = Path(__file__).resolve().parents[2]
SECRET = bytes(range(32))
SUITES = {"plain": 0x00, "signed": 0x11, "encrypted": 0x21}
META = b'{"wire":"openai","id":"bomb","rev":1,"created":1}'
STATED = 100_000


def _rle(stated: int, blocks: int) -> bytes:
    """A frame that states a size and holds `blocks` times 128 KiB of one letter in four bytes each."""
    last = [0] * (blocks - 1) + [1]
    body = b"".join(struct.pack("<I", (2**17 << 3) | (1 << 1) | end)[:3] + b"a" for end in last)
    return b"\x28\xb5\x2f\xfd\x80\x68" + struct.pack("<I", stated) + body


def _segment(kind: int, stored: bytes, raw_len: int, entries: int) -> bytes:
    return b"".join(map(_second.leb128, (kind, len(stored), raw_len, entries))) + stored


def _squeezed(kind: int, raw: bytes, entries: int) -> bytes:
    return _segment(kind, zstandard.ZstdCompressor(level=3).compress(raw), len(raw), entries)


@cache
def _bodies() -> dict[str, tuple[bytes, int]]:
    """Bodies, each with the decoded length for the header."""
    raw = b"a" * STATED
    good = zstandard.ZstdCompressor().compress(raw)
    window = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    long_window = zstandard.ZstdCompressor(compression_params=window).compressobj()
    frames = {
        "8 KB that are 256 MB": _rle(2**28, 2**11),
        "8 KB that are 256 MB and lie": _rle(STATED, 2**11),
        "13 bytes that declare 7 EB": b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 7 * 10**18),
        "no size": zstandard.ZstdCompressor(write_content_size=False).compress(raw),
        "no size, a window of 128 MiB": long_window.compress(raw) + long_window.flush(),
        "a window of 128 MiB": b"\x28\xb5\x2f\xfd\x80\x88" + struct.pack("<I", STATED) + good[9:],
        "two frames": good + good,
        "a skippable frame of 2 GiB": b"\x50\x2a\x4d\x18" + struct.pack("<I", 2**31) + b"a" * 100,
    }
    meta = _segment(0, META, len(META), 0)
    total = len(META) + STATED
    bodies = {name: (meta + _segment(2, frame, STATED, 1), total) for name, frame in frames.items()}
    bodies |= {f"{n}, as meta": (_segment(0, f, STATED, 0), STATED) for n, f in frames.items()}
    nested = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
    columns = b"[" * 50_000 + b"]" * 50_000
    shapes = {
        "256 MB and the header says so": (
            meta + _segment(2, _rle(2**28, 2**11), 2**28, 1),
            2**28 + len(META),
        ),
        "deep JSON as meta": (_squeezed(0, nested, 0), len(nested)),
        "deep JSON as turn columns": (meta + _squeezed(2, columns, 1), len(META) + len(columns)),
        "deep JSON as inbox": (meta + _squeezed(3, nested, 1), len(META) + len(nested)),
        "deep JSON as open turn": (meta + _squeezed(4, nested, 1), len(META) + len(nested)),
        "a meta of 16 MB": (_segment(0, _rle(2**24, 2**7), 2**24, 0), 2**24),
        "a meta of many keys": (_squeezed(0, _keys(9_000), 0), len(_keys(9_000))),
        "a number of 5,000 digits": (_squeezed(0, _digits(), 0), len(_digits())),
        "2,000 segments": (meta + _segment(1, b"a", 1, 1) * 2_000, len(META) + 2_000),
        "more entries than allowed": (meta + _segment(2, b"a", 1, 2**31), len(META) + 1),
    }
    return bodies | shapes


def _keys(count: int) -> bytes:
    """A meta whose `sticky` repeats one key: what is kept of it is small, reading it is not."""
    return META[:-1] + b',"turn":[' + b",".join([b'["a","b"]'] * count) + b"]}"


def _digits() -> bytes:
    return META[:-1] + b',"turns":' + b"9" * 5_000 + b"}"


def _blobs(suite: int) -> list[bytes]:
    secret = SECRET if suite else b""
    return [
        _second.sealed(_second.header_of(suite, 1, total, secret), body, secret)
        for body, total in _bodies().values()
    ]


_MEASURE = """
import json, sys
from pathlib import Path
from time import process_time
from goaitools_py import PLAIN, UNBOUND
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.states import state_from_messages, state_messages
from goaitools_py.types.errors import StateError

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

ring = Keyring(Key(bytes(range(32))))
codec = {"plain": PLAIN, "signed": Signed(ring), "encrypted": Encrypted(ring)}[sys.argv[1]]
blobs = json.loads(sys.stdin.read())
small = state_from_messages("openai", [{"role": "user", "content": "Hello."}], codec=codec, binding=UNBOUND)
state_messages(small, codec=codec, binding=UNBOUND)  # loads whatever is loaded once
before, found = peak(), []
for blob in map(bytes.fromhex, blobs):
    seconds = []
    for _ in range(3):
        start = process_time()
        try:
            state_messages(blob, codec=codec, binding=UNBOUND)
            error = ""
        except StateError as exc:
            error = type(exc).__name__
        seconds.append(process_time() - start)
    found.append([error, min(seconds)])
print(json.dumps([peak() - before, found]))
"""


def measured(suite: str, blobs: list[bytes]) -> tuple[int, list[tuple[str, float]]]:
    """KiB at the peak of a fresh process that reads all of them, and of each its error and CPU seconds."""
    run = subprocess.run(
        [sys.executable, "-c", _MEASURE, suite],
        input=json.dumps([blob.hex() for blob in blobs]),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=120,
    )
    kibibytes, found = json.loads(run.stdout)
    return kibibytes, [(error, seconds) for error, seconds in found]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("suite", SUITES)
def test_the_largest_blobs_cost_what_they_may(suite: str) -> None:
    """Of any suite, reading what just keeps within the limits takes at most 160 MiB and 250 ms of CPU."""
    meta = _segment(0, META, len(META), 0)
    noise = random.Random(3).randbytes(2**20)
    size = 2**24 - 2**17
    bodies = {
        "16 MiB in 500 bytes": (meta + _segment(2, _rle(size, 127), size, 9), len(META) + size),
        "4 MiB that do not compress": (meta + _segment(1, noise, 2**20, 9) * 3, len(META) + 3 * 2**20),
        "1,000 segments": (meta + _squeezed(1, b"a" * 9000, 9) * 1000, len(META) + 9_000_000),
        "16 MiB of lines": (meta + _squeezed(1, b"{}\n" * 2**20, 9) * 5, len(META) + 15 * 2**20),
    }
    number, secret = SUITES[suite], SECRET if SUITES[suite] else b""
    blobs = [
        _second.sealed(_second.header_of(number, 1, total, secret), body, secret)
        for body, total in bodies.values()
    ]

    kibibytes, found = measured(suite, blobs)

    print(f"{suite}: {kibibytes} KiB more at its peak, slowest {max(s for _, s in found) * 1000:.1f} ms")
    assert {name: s for name, (_, s) in zip(bodies, found, strict=True) if s > 0.25} == {}
    assert kibibytes < 160 * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("suite", SUITES)
def test_a_bomb_behind_a_fitting_seal_does_nothing(suite: str) -> None:
    """Each is a typed error within 50 ms of CPU (the best of three) and 160 MiB, and not for its seal."""
    kibibytes, found = measured(suite, _blobs(SUITES[suite]))

    by_name = dict(zip(_bodies(), found, strict=True))
    print(f"{suite}: {kibibytes} KiB more at its peak, slowest {max(s for _, s in found) * 1000:.1f} ms")
    expected = {"StateCorruptError", "StateTooLargeError", "StateInvalidError"}
    assert {name: error for name, (error, _) in by_name.items() if error not in expected} == {}
    assert {name: seconds for name, (_, seconds) in by_name.items() if seconds > 0.05} == {}
    assert kibibytes < 160 * 1024


def _many(piece: bytes, size: int = 31 * 2**20) -> bytes:
    return b",".join([piece] * (size // (len(piece) + 1)))


_OF_REPLY = b'"iterations":[["a","",0,0,0,0,0,0,0]],"calls":[{"id":"1","name":"f","state":"done","parts":['


@cache
def _crowds() -> dict[str, bytes]:
    """Bodies of few bytes that inflate to the largest history, of as many JSON values as fit into it."""
    empty = b'["","",0,0,0,0,0,0,0]'
    shapes = {
        "turns": (2, b"\n" + _many(b"[0,0,[]]"), 0),
        "iterations": (2, b"\n[0,0,[" + _many(empty) + b"]]", 0),
        "facts of a turn": (2, b'\n[0,0,[],{"answers":[' + _many(b"{}") + b"]}]", 0),
        "unknown facts of a turn": (2, b'\n[0,0,[],{"x":[' + _many(b"[]") + b"]}]", 0),
        "rows of the inbox": (3, b"{}\n" + _many(b'["u","",""]'), 1),
        "rows of the inbox that are none": (3, b"{}\n" + _many(b"{}"), 1),
        "iterations of the open turn": (4, b'\n{"at":0,"iterations":[' + _many(empty) + b"]}", 0),
        "facts of the open turn": (4, b'\n{"at":0,"facts":{"answers":[' + _many(b"{}") + b"]}}", 0),
        "an unknown name of the open turn": (4, b'\n{"at":0,"x":[' + _many(b"[]") + b"]}", 0),
        "an open turn that is none": (4, b'\n{"at":"","x":[' + _many(b"{}") + b"]}", 0),
        "parts of a result": (4, b'{}\n{"at":0,' + _OF_REPLY + _many(b'{"text":""}') + b"]}]}", 1),
        "a waiting entry": (3, b'{"a":[' + _many(b"{}") + b']}\n["u","",""]', 1),
        "a closed entry": (2, b'{"a":[' + _many(b"{}") + b']}\n[0,1,[["u","",0,0,0,0,0,0,0]]]', 1),
        "closed entries that are few, and together many": (
            2,
            b",\n".join([b'{"a":[' + _many(b"{}", 5 * 2**19) + b"]}"] * 8)
            + b'\n[0,8,[["%s","",0,0,0,0,0,0,0]]]' % (b"u" * 8),
            8,
        ),
        "strings after brackets": (4, b'\n{"at":0,"x":[' + b"[]," * 70 + _many(b'""') + b"]}", 0),
        "more entries than it says": (2, b",\n" * 15 * 2**20, 0),
        "marks of media": (2, b"\xff" * (31 * 2**20) + b"\n", 0),
    }
    return {name: _squeezed(*shape) for name, shape in shapes.items()}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_many_values_in_a_small_blob_cost_no_gigabytes() -> None:
    """Each is refused within half a second of CPU, and below 160 MiB, before its values become objects."""
    meta = _segment(0, META, len(META), 0)
    blobs = []
    for body in _crowds().values():
        (_, _, raw_len, _), _ = read_varints(body, 0, 4)
        header = _second.header_of(0, 1, len(META) + raw_len, b"")
        blobs.append(_second.sealed(header, meta + body, b""))

    kibibytes, found = measured("plain", blobs)

    by_name = dict(zip(_crowds(), found, strict=True))
    print(f"{kibibytes} KiB more at its peak, slowest {max(s for _, s in found) * 1000:.1f} ms")
    expected = {"StateInvalidError", "StateTooLargeError"}
    assert {name: error for name, (error, _) in by_name.items() if error not in expected} == {}
    assert {name: seconds for name, (_, seconds) in by_name.items() if seconds > 0.5} == {}
    assert kibibytes < 160 * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize("odd", [rb'"\ud800"', b"1e999", b"9" * 5_000], ids=["surrogate", "float", "integer"])
def test_what_only_the_strict_reader_takes_is_read_in_time(odd: bytes) -> None:
    """One value that the fast reader refuses stands beside a million others. They take at most 25 times as
    long as without it (so for an integer that Python does not read). Step by step it was 50 to 80 times."""
    row = b'\n[0,1,[["u","",0,0,0,0,0,0,0]]]'
    meta = _segment(0, META, len(META), 0)
    blobs = []
    for first in (b"0", odd):
        raw = b'{"role":"user","content":"x","z":[' + first + b",0" * 2**20 + b"]}" + row
        header = _second.header_of(0, 1, len(META) + len(raw), b"")
        blobs.append(_second.sealed(header, meta + _squeezed(2, raw, 1), b""))

    _, [(_, usual), (_, seconds)] = measured("plain", blobs)

    print(f"{usual * 1000:.0f} ms, {seconds * 1000:.0f} ms with the odd value")
    assert seconds < 25 * usual


@pytest.mark.parametrize("suite", SUITES)
def test_the_bombs_are_sealed_well(suite: str) -> None:
    """What is refused above is refused for its body: a good body, sealed in the same way, opens."""
    from goaitools_py import PLAIN, UNBOUND
    from goaitools_py.seal import Encrypted, Key, Keyring, Signed
    from goaitools_py.states import inspect_state

    ring = Keyring(Key(SECRET))
    codec = {"plain": PLAIN, "signed": Signed(ring), "encrypted": Encrypted(ring)}[suite]
    secret = SECRET if SUITES[suite] else b""
    header = _second.header_of(SUITES[suite], 1, len(META), secret)

    blob = _second.sealed(header, _segment(0, META, len(META), 0), secret)

    assert inspect_state(blob, codec=codec, binding=UNBOUND).conversation_id == "bomb"


def _archive(entry: bytes, count: int, parts: int) -> bytes:
    """A blob whose archive has so many parts, each with one record of so many entries."""
    cut = b'{"n":1,"by":"x","wire":"openai","places":[0],"stays":[]}'
    row = b'[0,%d,[["%s","",0,0,0,0,0,0,0]]]' % (count, b"u" * count)
    part = new_part(ARCHIVE, b",\n".join([entry] * count) + b"\n" + cut + b"," + row, 1)
    return encode([segment(Kind.META, META, 0)], [part] * parts)


READERS: dict[str, Callable[[bytes], object]] = {
    "history": lambda blob: read_history(blob, archived=True),
    "export": export_state,
    "redaction": lambda blob: redact_state(blob, "x"),
    "markdown": lambda blob: to_markdown(blob, archived=True),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("entry", "count", "parts"),
    [(b"{}", 1_300_000, 1), (b"{}", 100_000, 16), (b'{"a":[' + _many(b"[]", 5_000) + b"]}", 1_000, 10)],
    ids=["one part", "many parts", "arrays"],
)
def test_an_archive_of_many_values_is_refused_before_it_is_read(
    reader: str, entry: bytes, count: int, parts: int
) -> None:
    """A few kilobytes that stand for millions of values cost a second of CPU at most, and no gigabytes."""
    blob = _archive(entry, count, parts)
    assert len(blob) < 200_000

    start = process_time()
    with pytest.raises(StateInvalidError, match="a part of the archive has more"):
        READERS[reader](blob)
    assert process_time() - start < 1


def test_a_long_archive_of_usual_messages_is_read() -> None:
    """Also where all messages are alike, so that they are stored in few bytes."""
    blob = _archive(
        b'{"role":"user","content":"Hello, is anybody there? I have 3 points, 4 keys, and a lamp."}',
        80_000,
        5,
    )

    history = read_history(blob, archived=True)

    assert len(blob) < 20_000
    assert sum(len(turn.messages) for turn in history.turns) == 80_000  # all parts have the same turn
