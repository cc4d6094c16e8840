"""Mutated blobs: only typed errors, never a silent difference, never slow.

`GOAITOOLS_FUZZ` sets how many blobs are tried (200,000 when unset) and `GOAITOOLS_FUZZ_SEED` where the
random numbers start. Every second blob gets its digest recomputed, so that what lies behind it is tried
too. The seed is printed; pytest shows it when a test fails.
"""

from __future__ import annotations

import hashlib
import os
import random
import struct
from collections.abc import Callable
from time import thread_time

import pytest
import zstandard

from goaitools_py import dictionary
from goaitools_py.blob import Kind, Segment, decode, encode, peek, segment
from goaitools_py.errors import StateError

_TOTAL = int(os.environ.get("GOAITOOLS_FUZZ", "200000"))
_SEED = int(os.environ.get("GOAITOOLS_FUZZ_SEED", "20260101"))
_SHARDS = 8
_WORST_SECONDS = 0.25

_DICTIONARY_HASHES = {2: bytes.fromhex(dictionary.SHA256[1])}


def _resealed(blob: bytes) -> bytes:
    """The blob with a digest that fits, computed without the code under test."""
    header, body = blob[:16], blob[32:]
    if len(header) < 16:
        return blob
    used = _DICTIONARY_HASHES.get(header[6], b"")
    return header + hashlib.sha256(b"goaitools/state/v1" + header + used + body).digest()[:16] + body


def _with_compression(segments: list[Segment], compression: int) -> bytes:
    """A blob of a compression that is read but no longer written."""
    plain = zstandard.ZstdCompressor()
    body = b""
    for each in segments:
        raw = each.raw()
        stored = min(raw, plain.compress(raw) if compression else raw, key=len)
        for number in (each.kind, len(stored), len(raw), each.entries):
            while number > 127:
                body += bytes([number % 128 + 128])
                number //= 128
            body += bytes([number])
        body += stored
    total = sum(each.raw_len for each in segments)
    return _resealed(struct.pack(">4sBBBBII", b"\xf5GAS", 1, 0, compression, 0, total, 0) + bytes(16) + body)


def _corpus() -> list[bytes]:
    """Small blobs of every shape: a few bytes, all kinds of segments, raw, and of each compression."""
    words = random.Random(1)
    vocabulary = [words.randbytes(3).hex() for _ in range(60)]

    def text(count: int) -> bytes:
        return b",\n".join(
            b'{"role":"user","content":"%s"}' % " ".join(words.choices(vocabulary, k=8)).encode()
            for _ in range(count)
        )

    meta = segment(Kind.META, b'{"wire":"openai","model":"gpt-5-mini","rev":3,"status":"complete"}', 0)
    sealed = [segment(Kind.SEALED, text(n), n) for n in (3, 5)]
    hot = segment(Kind.HOT, text(4), 4)
    inbox = segment(Kind.INBOX, text(1), 1)
    unfinished = segment(Kind.OPEN, words.randbytes(90), 0)
    shapes = [
        [segment(Kind.META, b"{}", 0)],
        [meta],
        [meta, hot],
        [meta, hot, inbox],
        [meta, *sealed, hot],
        [meta, *sealed, hot, inbox, unfinished],
        [meta, segment(Kind.HOT, text(60), 60), unfinished],
    ]
    blobs = [encode(shape) for shape in shapes]
    blobs += [_with_compression(shape, compression) for shape in shapes[2:6] for compression in (0, 1)]
    return blobs


_BLOBS = _corpus()
_BLOB_SET = frozenset(_BLOBS)

# ----------------------------------------------------------------------------------------- mutations

Mutation = Callable[[random.Random, bytearray], None]


def _flip(rng: random.Random, blob: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        blob[rng.randrange(len(blob))] ^= 1 << rng.randrange(8)


def _overwrite(rng: random.Random, blob: bytearray) -> None:
    blob[rng.randrange(len(blob))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _cut(rng: random.Random, blob: bytearray) -> None:
    at = rng.randrange(len(blob))
    del blob[at : rng.choice((at + 1, at + rng.randrange(1, 40), len(blob)))]


def _grow(rng: random.Random, blob: bytearray) -> None:
    at = rng.randrange(len(blob) + 1)
    size = rng.choice((1, rng.randrange(1, 40)))
    start = rng.randrange(len(blob))
    blob[at:at] = rng.choice((bytes(size), rng.randbytes(size), bytes(blob[start : start + size])))


def _splice(rng: random.Random, blob: bytearray) -> None:
    other = rng.choice(_BLOBS)
    start = rng.randrange(len(other))
    piece = other[start : start + rng.choice((8, 64, len(other)))]
    at = rng.randrange(len(blob))
    blob[at : at + rng.choice((0, len(piece), len(blob)))] = piece


def _lie(rng: random.Random, blob: bytearray) -> None:
    field = rng.choice(("version", "suite", "compression", "reserved", "decoded_len", "key_id"))
    at = {"version": 4, "suite": 5, "compression": 6, "reserved": 7, "decoded_len": 8, "key_id": 12}[field]
    if at < 8:
        blob[at : at + 1] = bytes([rng.choice((0, 1, 2, 3, 0x11, 0x21, 0x80, 0xFF))])
    else:
        number = rng.choice((0, 1, 2**24, 2**24 + 1, 2**31, 2**32 - 1, rng.randrange(2**16)))
        blob[at : at + 4] = number.to_bytes(4, "big")


def _lie_in_a_head(rng: random.Random, blob: bytearray) -> None:
    """Bend one of the first numbers of the body, where the heads of the first segments are."""
    at = min(len(blob) - 1, 32 + rng.randrange(8))
    blob[at : at + 1] = rng.choice((b"\x00", b"\x01", b"\x80\x00", b"\xff\x7f", b"\xff\xff\xff\xff\x0f"))


def _bend_a_frame(rng: random.Random, blob: bytearray) -> None:
    """Change the header of a zstd frame or the block behind it."""
    start = blob.find(zstandard.FRAME_HEADER, rng.randrange(len(blob)))
    at = max(start, 0) + rng.randrange(12)
    blob[at : at + 1] = rng.randbytes(1)


_MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _overwrite,
    _cut,
    _grow,
    _splice,
    _lie,
    _lie_in_a_head,
    _bend_a_frame,
)


def _mutated(rng: random.Random) -> bytes:
    blob = bytearray(rng.choice(_BLOBS))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if blob:
            rng.choice(_MUTATIONS)(rng, blob)
    return bytes(blob)


def _decoded(blob: bytes) -> list[bytes] | None:
    """Everything a blob holds, or None for a typed error. Anything else escapes and fails the test."""
    try:
        return [each.raw() for each in decode(blob)]
    except StateError as error:
        carried = error.blob
    assert carried == blob
    return None


# -------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("shard", range(_SHARDS))
def test_a_mutated_blob_is_refused(shard: int) -> None:
    """No change of any kind is accepted; each is a typed error within the time limit."""
    seed = _SEED + shard
    print(f"GOAITOOLS_FUZZ_SEED={_SEED}, shard {shard}")
    rng = random.Random(seed)
    worst = 0.0

    for _ in range(_TOTAL // 2 // _SHARDS):
        blob = _mutated(rng)
        if blob in _BLOB_SET:
            continue
        start = thread_time()
        accepted = _decoded(blob)
        worst = max(worst, thread_time() - start)
        assert accepted is None, f"accepted {blob.hex()}"

    assert worst < _WORST_SECONDS


@pytest.mark.parametrize("shard", range(_SHARDS))
def test_a_mutated_blob_with_a_fitting_digest_is_refused_or_whole(shard: int) -> None:
    """Behind the digest the rest holds by itself: a typed error, or a state that is whole and stays so."""
    seed = _SEED + _SHARDS + shard
    print(f"GOAITOOLS_FUZZ_SEED={_SEED}, resealed, shard {shard}")
    rng = random.Random(seed)
    worst = 0.0
    refused = 0

    for _ in range(_TOTAL // 2 // _SHARDS):
        blob = _resealed(_mutated(rng))
        start = thread_time()
        raws = _decoded(blob)
        worst = max(worst, thread_time() - start)
        if raws is None:
            refused += 1
            continue
        assert sum(map(len, raws)) == peek(blob).decoded_len
        assert _decoded(encode(decode(blob))) == raws, f"not the same again: {blob.hex()}"

    assert worst < _WORST_SECONDS
    assert refused > 0


def test_every_single_change_is_refused() -> None:
    """Each bit, each length, each byte left out and each byte put in, of a whole blob."""
    blob = encode(
        [segment(Kind.META, b'{"wire":"openai","rev":1}', 0), segment(Kind.HOT, b'{"role":"user"}' * 9, 9)]
    )
    changed = [
        blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :]
        for at in range(len(blob))
        for bit in range(8)
    ]
    changed += [blob[:length] for length in range(len(blob))]
    changed += [blob[:at] + blob[at + 1 :] for at in range(len(blob))]
    changed += [blob[:at] + bytes([byte]) + blob[at:] for at in range(len(blob) + 1) for byte in range(256)]

    accepted = [each for each in changed if each != blob and _decoded(each) is not None]

    assert accepted == []
