"""Mutated blobs of every suite: only typed errors, never a silent difference, never slow.

For each suite blobs are damaged as they are, and damaged within, with a seal that then fits again, so that
what lies behind the seal is tried too. `GOAITOOLS_FUZZ` sets how many of the first kind each suite gets
(100,000 in CI, else 40,000; a long run has 2,000,000 or more), and a quarter as many of the second;
`GOAITOOLS_FUZZ_SEED` says where the random numbers start. The seed is printed; pytest shows it when a test
fails.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter, thread_time
from typing import Any

import pytest
import zstandard

from goaitools_py import PLAIN, Chat, event, tool
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.history.rewrite.repair import repaired
from goaitools_py.open_turn import steps
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.state.blob import Kind, Segment, decode, decode_whole, encode, segment
from goaitools_py.state.blob_header import peek
from goaitools_py.state.parts import ARCHIVE, INLINE, MEDIA, Part, new_part
from goaitools_py.state.state import closed_entries, load_state
from goaitools_py.states import state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.types.errors import StateError

from ..seal import _second

_PER_SUITE = int(os.environ.get("GOAITOOLS_FUZZ", "100000" if os.environ.get("CI") else "40000"))
_SEED = int(os.environ.get("GOAITOOLS_FUZZ_SEED", "20260101"))
_SHARDS = 4
_WORST_SECONDS = 0.25

SECRET = bytes(range(32))
BOUND = {"user": "ada"}
WIRES = ("openai", "openai-responses", "anthropic")


@dataclass(frozen=True, slots=True)
class Suite:
    """A codec with what is needed to seal by hand."""

    name: str
    number: int
    codec: Any = field(repr=False)
    secret: bytes = field(repr=False)
    binding: Any = field(repr=False)

    @property
    def bound(self) -> Any:
        """The binding as the second writer takes it."""
        return BOUND if self.secret else None

    def decoded(self, blob: bytes) -> tuple[Segment, ...] | None:
        """The segments, all inflated, or None for a typed error. Anything else escapes and fails the test.

        Parts are opened too: a turn only carries them, so damage in one shows when it is read.
        """
        try:
            segments, parts = decode_whole(blob, codec=self.codec, binding=self.binding)
            for each in segments:
                each.raw()
        except StateError as error:
            carried = error.blob
            assert carried == blob
            return None
        try:
            for part in parts:
                if part.place == INLINE:
                    part.raw(self.codec, self.binding)
            return segments
        except StateError:
            return None


_RING = Keyring(Key(SECRET))
SUITES = {
    "plain": Suite("plain", 0x00, PLAIN, b"", None),
    "signed": Suite("signed", 0x11, Signed(_RING), SECRET, BOUND),
    "encrypted": Suite("encrypted", 0x21, Encrypted(_RING), SECRET, BOUND),
}


# ------------------------------------------------------------------------------------------- corpora


def _shapes() -> list[list[Segment]]:
    """Segments of every kind: a few bytes, all of them, raw and compressed."""
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
    return [
        [segment(Kind.META, b"{}", 0)],
        [meta],
        [meta, hot],
        [meta, hot, inbox],
        [meta, *sealed, hot],
        [meta, *sealed, hot, inbox, unfinished],
        [meta, segment(Kind.HOT, text(60), 60), unfinished],
    ]


def _states() -> list[list[Segment]]:
    """What chats really wrote: tools, a waiting call and an inbox, on each wire."""

    @tool
    def look(place: str) -> str:
        """What there is at a place."""
        return f"A theatre in {place}."

    @tool(requires_approval=True)
    def pay(pounds: int) -> str:
        """Pay for the tea."""
        return f"Paid {pounds}."

    found = []
    for wire in WIRES:
        steps = (
            Calls([("look", {"place": "Leeds"})]),
            "A theatre.",
            Calls([("pay", {"pounds": 5})], "One moment."),
        )
        chat = Chat(ScriptedBackend(*steps, wire=wire), tools=[look, pay])
        first = chat.chat(user="What is in Leeds?").state
        found += [first, chat.append_to_state(first, event("It rains.", topic="weather"))]
        found.append(chat.chat_with_state(first, user="Pay for the tea.").state)
    return [list(decode(each)) for each in found]


def _body(segments: Sequence[Segment], compression: int) -> bytes:
    """A body of a compression that may be read but no longer written."""
    plain = zstandard.ZstdCompressor()
    body = b""
    for each in segments:
        raw = each.raw()
        stored = min(raw, plain.compress(raw) if compression else raw, key=len)
        body += b"".join(map(_second.leb128, (each.kind, len(stored), len(raw), each.entries))) + stored
    return body


def _sealed(suite: Suite, header: bytes, body: bytes) -> bytes:
    """A blob with a fitting seal, made by the second writer; a hidden `body` begins with its length."""
    inner = body if suite.number == 0x21 else None
    return _second.sealed(
        header, body, suite.secret, suite.bound, inner=inner, salt=bytes(32), suite=suite.number
    )


def _opened(suite: Suite, segments: Sequence[Segment], compression: int) -> bytes:
    """Header and body as they are before the seal, which is what the second test damages."""
    header = _second.header_of(
        suite.number, compression, sum(each.raw_len for each in segments), suite.secret
    )
    if compression == 2:
        blob = encode(segments)
        body = blob[32:]
    else:
        body = _body(segments, compression)
    if suite.number == 0x21:
        body = len(body).to_bytes(4, "big") + body
    return header + body


def _parts() -> list[Part]:
    """An archive and a picture."""
    archive = new_part(ARCHIVE, b'{"role":"user","content":"What was said long ago."},\n' * 9, 9)
    picture = new_part(MEDIA, random.Random(2).randbytes(80), 1)
    return [archive, picture]


@cache
def _corpus(name: str) -> tuple[bytes, ...]:
    """Sound blobs of a suite, of each shape and compression."""
    suite = SUITES[name]
    blobs = [encode(shape, codec=suite.codec, binding=suite.binding) for shape in (*_shapes(), *_states())]
    for shape in _shapes()[2:6]:
        blobs.append(encode(shape, _parts(), codec=suite.codec, binding=suite.binding))
    for opened in _opened_corpus(name):
        blobs.append(_sealed(suite, opened[:16], opened[16:]))
    return tuple(blobs)


@cache
def _opened_corpus(name: str) -> tuple[bytes, ...]:
    suite = SUITES[name]
    shapes = _shapes()
    found = [_opened(suite, shape, 2) for shape in (*shapes, *_states())]
    found += [_opened(suite, shape, compression) for shape in shapes[2:6] for compression in (0, 1)]
    return tuple(found)


# ----------------------------------------------------------------------------------------- mutations

Mutation = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def _at(rng: random.Random, blob: bytearray) -> int:
    return int(rng.random() * len(blob))


def _flip(rng: random.Random, blob: bytearray, _: Sequence[bytes]) -> None:
    blob[_at(rng, blob)] ^= 1 << rng.getrandbits(3)


def _flips(rng: random.Random, blob: bytearray, _: Sequence[bytes]) -> None:
    for _n in range(2 + rng.getrandbits(2)):
        blob[_at(rng, blob)] ^= 1 << rng.getrandbits(3)


def _overwrite(rng: random.Random, blob: bytearray, _: Sequence[bytes]) -> None:
    blob[_at(rng, blob)] = (0, 1, 0x7F, 0x80, 0xFF, rng.getrandbits(8), 0x7B, 0x22)[rng.getrandbits(3)]


def _cut(rng: random.Random, blob: bytearray, _: Sequence[bytes]) -> None:
    at = _at(rng, blob)
    del blob[at : (at + 1, at + 1 + rng.getrandbits(5), len(blob), at + 2)[rng.getrandbits(2)]]


def _grow(rng: random.Random, blob: bytearray, _: Sequence[bytes]) -> None:
    at, start = _at(rng, blob), _at(rng, blob)
    size = 1 if rng.getrandbits(1) else 1 + rng.getrandbits(5)
    blob[at:at] = (bytes(size), rng.randbytes(size), bytes(blob[start : start + size]), b"\xff" * size)[
        rng.getrandbits(2)
    ]


def _splice(rng: random.Random, blob: bytearray, corpus: Sequence[bytes]) -> None:
    other = corpus[int(rng.random() * len(corpus))]
    start = int(rng.random() * len(other))
    piece = other[start : start + (8, 64, 16, len(other))[rng.getrandbits(2)]]
    at = _at(rng, blob)
    blob[at : at + (0, len(piece), len(piece), len(blob))[rng.getrandbits(2)]] = piece


_LIES = (0, 1, 2, 3, 0x11, 0x21, 0x80, 0xFF)
_SIZES = (0, 1, 2**24, 2**24 + 1, 2**31, 2**32 - 1, 2**25, 5)


def _lie(rng: random.Random, blob: bytearray, _: Sequence[bytes]) -> None:
    """Bend a field of the header."""
    which = rng.getrandbits(3)
    if which < 4:
        blob[4 + which : 5 + which] = bytes((_LIES[rng.getrandbits(3)],))
    else:
        at = 12 if which == 7 else 8
        number = rng.getrandbits(16) if rng.getrandbits(1) else _SIZES[rng.getrandbits(3)]
        blob[at : at + 4] = number.to_bytes(4, "big")


_HEADS = (b"\x00", b"\x01", b"\x80\x00", b"\xff\x7f", b"\xff\xff\xff\xff\x0f", b"\x02", b"\x04", b"\x7f")


def _lie_in_a_head(rng: random.Random, blob: bytearray, _: Sequence[bytes]) -> None:
    """Bend one of the first numbers of a body, wherever it begins."""
    at = min(len(blob) - 1, (16, 20, 32, 48)[rng.getrandbits(2)] + rng.getrandbits(3))
    blob[at : at + 1] = _HEADS[rng.getrandbits(3)]


def _bend_a_frame(rng: random.Random, blob: bytearray, _: Sequence[bytes]) -> None:
    """Change the header of a zstd frame or the block behind it."""
    start = blob.find(zstandard.FRAME_HEADER, _at(rng, blob))
    at = max(start, 0) + int(rng.random() * 12)
    blob[at : at + 1] = bytes((rng.getrandbits(8),))


_MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _flip,
    _flip,
    _flips,
    _overwrite,
    _overwrite,
    _cut,
    _cut,
    _grow,
    _grow,
    _splice,
    _splice,
    _lie,
    _lie,
    _lie_in_a_head,
    _bend_a_frame,
)


def _mutated(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    blob = bytearray(corpus[int(rng.random() * len(corpus))])
    _MUTATIONS[rng.getrandbits(4)](rng, blob, corpus)
    while rng.getrandbits(2) == 0 and blob:
        _MUTATIONS[rng.getrandbits(4)](rng, blob, corpus)
    return bytes(blob)


# -------------------------------------------------------------------------------------------- tests


class Stopwatch:
    """Notes the slowest blob. A wall clock asks first, because it costs nothing; CPU time then decides."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self.worst = 0.0

    def decoded(self, blob: bytes) -> tuple[Segment, ...] | None:
        start = perf_counter()
        found = self._suite.decoded(blob)
        seconds = perf_counter() - start
        if seconds > self.worst and seconds > 0.01:
            start = thread_time()
            self._suite.decoded(blob)
            seconds = thread_time() - start
        self.worst = max(self.worst, seconds)
        return found


@pytest.mark.parametrize("shard", range(_SHARDS))
@pytest.mark.parametrize("name", SUITES)
def test_a_mutated_blob_is_refused(name: str, shard: int) -> None:
    """No change of any kind is accepted; each is a typed error within the time limit."""
    print(f"GOAITOOLS_FUZZ_SEED={_SEED}, {name}, shard {shard}")
    rng = random.Random(f"{_SEED} {name} {shard}")
    corpus, watch = _corpus(name), Stopwatch(SUITES[name])
    sound = frozenset(corpus)
    assert all(SUITES[name].decoded(blob) for blob in corpus)

    tried = 0
    while tried < _PER_SUITE // _SHARDS:
        blob = _mutated(rng, corpus)
        if blob in sound:
            continue
        tried += 1
        assert watch.decoded(blob) is None, f"accepted {blob.hex()}"

    assert watch.worst < _WORST_SECONDS


def _resealed(rng: random.Random, suite: Suite, corpus: Sequence[bytes]) -> bytes:
    """A blob whose header or body was damaged, with a seal that fits the damage."""
    opened = _mutated(rng, corpus)
    header, body = opened[:16].ljust(16, b"\0"), opened[16:]
    if rng.getrandbits(3):  # a wrong mark, suite or key is seen at once: mostly put right
        header = corpus[0][:6] + header[6:12] + corpus[0][12:16]
    if suite.number == 0x21 and rng.getrandbits(2):
        body = max(0, len(body) - 4).to_bytes(4, "big") + body[4:]
    return _sealed(suite, header, body)


@pytest.mark.parametrize("shard", range(_SHARDS))
@pytest.mark.parametrize("name", SUITES)
def test_a_mutated_blob_with_a_fitting_seal_is_refused_or_whole(name: str, shard: int) -> None:
    """Behind the seal the rest holds by itself: a typed error, or segments that are whole and stay so. What
    can then be read as a conversation is one that a provider takes, at the latest when it is repaired."""
    suite = SUITES[name]
    rng = random.Random(f"{_SEED} {name} {shard} resealed")
    corpus, watch = _opened_corpus(name), Stopwatch(suite)
    assert all(suite.decoded(_sealed(suite, opened[:16], opened[16:])) for opened in corpus)
    refused = whole = readable = unsendable = 0

    for _ in range(_PER_SUITE // 4 // _SHARDS):
        blob = _resealed(rng, suite, corpus)
        segments = watch.decoded(blob)
        if segments is None:
            refused += 1
            continue
        whole += 1
        raws = [each.raw() for each in segments]
        assert sum(map(len, raws)) == peek(blob).decoded_len or name == "encrypted"
        again = suite.decoded(encode(segments, codec=suite.codec, binding=suite.binding))
        assert again is not None
        assert [each.raw() for each in again] == raws, f"not the same again: {blob.hex()}"
        histories = _histories(suite, blob)
        if histories is not None:
            readable += 1
            wire, trusted, mended = histories
            unsendable += bool(check_history(wire, trusted))
            # An id that comes back in a later turn is no fault of the history: wires tell the calls apart.
            problems = check_history(wire, mended, unique_ids=False)
            assert problems == [], f"a repaired history is no history: {blob.hex()}"

    print(
        f"GOAITOOLS_FUZZ_SEED={_SEED}, {name}, resealed, shard {shard}: {refused} refused, {whole} whole, "
        f"of these {readable} readable, of these {unsendable} that only a repair makes a history"
    )
    assert watch.worst < _WORST_SECONDS
    assert refused > whole > readable > unsendable


def _histories(suite: Suite, blob: bytes) -> tuple[str, list[Any], list[bytes]] | None:
    """The wire, the messages as a reader has them who believes what the state says of itself, and the entries
    of one who does not; or None for a typed error."""
    opening = {"codec": suite.codec, "binding": suite.binding}
    try:
        state = load_state(blob, **opening)
        wire = state.meta.wire
        if wire not in WIRES:
            return None
        dialect = dialect_of(wire)
        sound, _ = repaired(steps.close_turn(state, dialect), dialect)
        mended = closed_entries(sound)
        return wire, state_messages(blob, **opening), mended
    except StateError:
        return None


@pytest.mark.parametrize("name", SUITES)
def test_every_single_change_is_refused(name: str) -> None:
    """Each bit, each length, each byte left out and each byte put in, of a whole blob."""
    suite = SUITES[name]
    blob = encode(
        [segment(Kind.META, b'{"wire":"openai","rev":1}', 0), segment(Kind.HOT, b'{"role":"user"}' * 9, 9)],
        codec=suite.codec,
        binding=suite.binding,
    )
    changed = [
        blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :]
        for at in range(len(blob))
        for bit in range(8)
    ]
    changed += [blob[:length] for length in range(len(blob))]
    changed += [blob[:at] + blob[at + 1 :] for at in range(len(blob))]
    changed += [blob[:at] + bytes([byte]) + blob[at:] for at in range(len(blob) + 1) for byte in range(256)]

    accepted = [each for each in changed if each != blob and suite.decoded(each) is not None]

    assert accepted == []
