"""The sealed codecs: what they hide, what they authenticate, and what they say when they refuse."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import PLAIN, UNBOUND, StateAuthError, StateError, StateTooLargeError
from goaitools_py.seal import Encrypted, Key, Keyring, Signed, rewrap
from goaitools_py.seal import encrypted as encrypted_module
from goaitools_py.state.blob import Kind, Segment, decode, encode, segment
from goaitools_py.state.blob_header import peek
from goaitools_py.state.codec import BlobLimits
from goaitools_py.states import inspect_state, state_from_messages

from . import _second

ROOT = Path(__file__).resolve().parents[2]
SECRET = bytes(range(32))
KEY, OTHER = Key(SECRET), Key(bytes(32))
RING = Keyring(KEY)
ADA = {"tenant": "acme", "user": "ada"}
CODECS = {
    "signed": Signed(RING),
    "encrypted": Encrypted(RING),
    "encrypted-client": Encrypted(RING, visible_to="client"),
}
WORDS = b'{"role":"user","content":"The canary sings in Harrogate."}'


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> Any:
    """Each test that asks for it runs once with every sealed codec."""
    return CODECS[request.param]


def parts(words: bytes = WORDS) -> list[Segment]:
    return [segment(Kind.META, b'{"wire":"openai"}', 0), segment(Kind.HOT, words, 1)]


def raws(blob: bytes, codec: Any, binding: Any = ADA) -> list[bytes]:
    return [each.raw() for each in decode(blob, codec=codec, binding=binding)]


# ------------------------------------------------------------------------------------------ both ways


def test_what_is_sealed_is_opened(codec: Any) -> None:
    """With the key and the binding, every byte comes back; the second reader finds the same."""
    blob = encode(parts(), codec=codec, binding=ADA)

    assert raws(blob, codec) == [b'{"wire":"openai"}', WORDS]
    assert [each.raw for each in _second.opened(blob, [SECRET], ADA)] == [b'{"wire":"openai"}', WORDS]
    assert peek(blob).key_id == KEY.id == codec.key_id


@pytest.mark.parametrize("binding", [ADA, {"a": ""}, {"": "a"}, {"user": "Ada é 🦊"}, UNBOUND])
def test_any_text_may_be_bound(codec: Any, binding: Any) -> None:
    """Bindings are texts of any kind, in any order; the second writer computes the same seal."""
    bound = None if binding is UNBOUND else binding
    ours = encode(parts(), codec=codec, binding=binding)
    body = _second.leb128(0) + b"\x02\x02\x00{}"
    header = _second.header_of(codec.suite, 0, 2, SECRET)

    theirs = _second.sealed(header, body, SECRET, bound)

    assert _second.opened(ours, [SECRET], bound)
    assert raws(theirs, codec, binding) == [b"{}"]
    if bound:
        assert raws(ours, codec, dict(reversed(bound.items())))


def test_no_two_bindings_are_alike(codec: Any) -> None:
    """What is bound to one is refused for every other, however the same letters are spread over it."""
    bindings: list[Any] = [
        UNBOUND,
        {"user": "ada"},
        {"user": "eve"},
        {"User": "ada"},
        {"ada": "user"},
        {"use": "rada"},
        {"user": "ada", "room": "1"},
        {"user": "1", "room": "ada"},
        {"user": "ada", "": ""},
        {"user": "adaroom1"},
        {"user": "é"},
        {"user": "e\u0301"},
    ]
    blobs = [encode(parts(), codec=codec, binding=binding) for binding in bindings]

    for (number, blob), (other, binding) in itertools.product(enumerate(blobs), enumerate(bindings)):
        if number == other:
            assert raws(blob, codec, binding)
            continue
        with pytest.raises(StateAuthError, match="was refused"):
            decode(blob, codec=codec, binding=binding)


def test_encrypted_says_nothing(codec: Any) -> None:
    """An encrypted blob holds none of the words and is never the same twice; a signed one may be read."""
    first, second = (encode(parts(), codec=codec, binding=ADA) for _ in range(2))

    if codec.suite == 0x11:
        assert first == second
        return
    assert b"canary" not in first
    assert b"openai" not in first
    assert peek(first).decoded_len == 0
    assert all(first[at : at + 8] != second[at : at + 8] for at in range(16, len(first) - 8))


def test_equal_randomness_gives_no_equal_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system's random numbers repeat, two contents or two owners still get two keys."""
    monkeypatch.setattr(os, "urandom", lambda size: bytes(size))
    assert encrypted_module.os.urandom(1) == b"\0"
    codec = CODECS["encrypted-client"]

    salts = [
        encode(parts(words), codec=codec, binding=binding)[16:48]
        for words, binding in ((WORDS, ADA), (WORDS + b" ", ADA), (WORDS, UNBOUND))
    ]

    assert len(set(salts)) == 3
    assert encode(parts(), codec=codec, binding=ADA)[16:48] == salts[0]


# -------------------------------------------------------------------------------------------- lengths


def test_a_client_sees_only_steps_of_256_bytes() -> None:
    """Lengths rise in steps, by content and not by how well it compresses."""
    codec = CODECS["encrypted-client"]
    noise = random.Random(3).randbytes(700).hex().encode()
    sizes: dict[int, int] = {}

    for size in range(1, 1200):
        dull, dense = (len(encode(parts(w[:size]), codec=codec, binding=ADA)) for w in (b"a" * 1200, noise))
        assert dull == dense
        sizes[size] = dull

    assert {size % 256 for size in sizes.values()} == {96}
    assert sorted(set(sizes.values())) == [96 + 256 * steps for steps in range(1, 6)]
    assert list(sizes.values()) == sorted(sizes.values())


def test_a_server_keeps_them_small() -> None:
    """What stays in a database is compressed; a seal costs 16 or 68 bytes more than a plain digest."""
    plain = len(encode(parts(WORDS * 40)))

    assert len(encode(parts(WORDS * 40), codec=CODECS["signed"], binding=ADA)) == plain + 16
    assert len(encode(parts(WORDS * 40), codec=CODECS["encrypted"], binding=ADA)) == plain + 68
    assert plain < 200


def test_either_encrypted_codec_reads_both() -> None:
    """Who sees a blob is a choice of its writer; a reader opens both kinds."""
    server, client = CODECS["encrypted"], CODECS["encrypted-client"]

    for writer, reader in itertools.product((server, client), repeat=2):
        assert raws(encode(parts(), codec=writer, binding=ADA), reader)[1] == WORDS


def test_a_codec_brings_its_limits() -> None:
    """Limits given to a codec hold for what is written with it, up to twice as much for what is read."""
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b-" * 9_000}]
    small = Encrypted(RING, visible_to="client", limits=BlobLimits(max_blob_bytes=10_000))

    with pytest.raises(StateTooLargeError, match="max_blob_bytes=10000"):
        state_from_messages("openai", messages, codec=small, binding=ADA)
    blob = state_from_messages("openai", messages, codec=CODECS["encrypted-client"], binding=ADA)
    assert inspect_state(blob, codec=small, binding=ADA).messages == 2
    with pytest.raises(StateTooLargeError, match="max_blob_bytes=17000"):
        inspect_state(blob, codec=Encrypted(RING, limits=BlobLimits(max_blob_bytes=8500)), binding=ADA)


# ------------------------------------------------------------------------------------------ no binding


@pytest.mark.parametrize(
    ("binding", "error", "words"),
    [
        (None, ValueError, "needs a binding, and none was given.*binding=UNBOUND"),
        ({}, ValueError, "the binding is empty"),
        ("ada", TypeError, "a dict of texts, or UNBOUND, not str"),
        ([("user", "ada")], TypeError, "not list"),
        ({"user": 7}, TypeError, "found str and int"),
        ({7: "ada"}, TypeError, "found int and str"),
        ({"user": None}, TypeError, "found str and NoneType"),
        ({"user": "\ud800"}, ValueError, "half a surrogate pair"),
    ],
)
def test_a_binding_must_be_chosen(codec: Any, binding: Any, error: type[Exception], words: str) -> None:
    """None, empty or of another type: sealing and opening both say what to pass instead."""
    blob = encode(parts(), codec=codec, binding=ADA)

    with pytest.raises(error, match=words):
        codec.check(binding)
    with pytest.raises(error, match=words):
        encode(parts(), codec=codec, binding=binding)
    with pytest.raises(error, match=words):
        decode(blob, codec=codec, binding=binding)


# ------------------------------------------------------------------------------------------- refusals


def test_every_refusal_reads_alike() -> None:
    """Wrong key, wrong owner, any damage, too old, an old revision: one text, no cause, no content."""
    past = int((time.time() - 100) * 1000)
    texts = set()
    for make in (Signed, Encrypted):
        codec = make(RING)
        blob = state_from_messages("openai", [], created_ms=past, codec=codec, binding=ADA)
        attempts: list[tuple[bytes, Any, dict[str, Any]]] = [
            (blob, make(Keyring(OTHER)), {"binding": ADA}),
            (blob, codec, {"binding": UNBOUND}),
            (blob, codec, {"binding": {"user": "eve"}}),
            (blob[:-1], codec, {"binding": ADA}),
            (blob[:20], codec, {"binding": ADA}),
            (blob[:12] + bytes(4) + blob[16:], codec, {"binding": ADA}),
            (blob, make(RING, max_age=50), {"binding": ADA}),
            (blob, codec, {"binding": ADA, "min_revision": 2}),
        ]
        for given, reader, how in attempts:
            with pytest.raises(StateAuthError) as caught:
                inspect_state(given, codec=reader, **how)
            texts.add(str(caught.value))
            assert caught.value.blob == given
            assert (caught.value.__cause__, caught.value.__context__) == (None, None)

    (text,) = texts
    assert "binding=" in text
    assert not [word for word in ("ada", "acme", "eve", f"{KEY.id:08x}") if word in text.split()]


def test_suites_do_not_mix() -> None:
    """A keyed codec takes no plain blob, nor one of the other suite; a plain reader is told of the codec."""
    blobs = {"plain": encode(parts())}
    blobs |= {name: encode(parts(), codec=codec, binding=ADA) for name, codec in CODECS.items()}
    words = {"plain": "plain", "signed": "signed", "encrypted": "encrypted", "encrypted-client": "encrypted"}

    for (name, blob), (reader, codec) in itertools.product(
        blobs.items(), ({"plain": PLAIN} | CODECS).items()
    ):
        if words[name] == words[reader]:
            continue
        with pytest.raises(StateAuthError, match=rf"state is {words[name]} .*the codec that it was written"):
            decode(blob, codec=codec, binding=UNBOUND if codec is PLAIN else ADA)


def test_a_signed_blob_does_not_open_as_an_encrypted_one() -> None:
    """With one key for both suites, no bytes of one pass for the other, even with the suite byte changed."""
    signed = encode(parts(), codec=CODECS["signed"], binding=ADA)
    hidden = encode(parts(), codec=CODECS["encrypted"], binding=ADA)

    for blob, suite, codec in ((signed, 0x21, CODECS["encrypted"]), (hidden, 0x11, CODECS["signed"])):
        with pytest.raises(StateAuthError, match="was refused"):
            decode(blob[:5] + bytes([suite]) + blob[6:], codec=codec, binding=ADA)


def test_a_blob_commits_to_its_key() -> None:
    """A blob that names another key of the ring is refused by its commitment: nothing is decrypted."""
    both = Encrypted(Keyring(OTHER, KEY))
    blob = encode(parts(), codec=CODECS["encrypted"], binding=ADA)
    keys_used = []
    aes = both._aes

    def counted(key: bytes) -> Any:
        keys_used.append(key)
        return aes(key)

    both._aes = counted  # type: ignore[assignment]
    assert raws(blob, both)[1] == WORDS
    with pytest.raises(StateAuthError):
        decode(blob[:12] + OTHER.id.to_bytes(4, "big") + blob[16:], codec=both, binding=ADA)

    assert len(keys_used) == 1


def test_keys_with_equal_ids_are_tried_in_turn() -> None:
    """Two keys that share an id by chance both open what they sealed."""
    twin = Key(bytes(32))
    for make in (Signed, Encrypted):
        twin._id = KEY.id
        blob = encode(parts(), codec=make(Keyring(twin)), binding=ADA)

        assert raws(blob, make(Keyring(KEY, twin)))[1] == WORDS


# ----------------------------------------------------------------------------------------------- age


def test_an_old_state_is_refused(codec: Any) -> None:
    """`max_age` counts in seconds from the authenticated time of the last turn, or of the import."""
    make = type(codec)
    strict = make(RING, max_age=60)
    now = time.time()

    def born(seconds_ago: float) -> bytes:
        created = int((now - seconds_ago) * 1000)
        return state_from_messages("openai", [], created_ms=created, codec=codec, binding=ADA)

    assert inspect_state(born(30), codec=strict, binding=ADA).turns == 0
    assert inspect_state(born(-30), codec=strict, binding=ADA).turns == 0
    assert inspect_state(born(90), codec=codec, binding=ADA).turns == 0
    assert inspect_state(
        state_from_messages("openai", [], codec=codec, binding=ADA), codec=strict, binding=ADA
    )
    for blob in (born(90), state_from_messages("openai", [], created_ms=0, codec=codec, binding=ADA)):
        with pytest.raises(StateAuthError, match="max_age=") as caught:
            inspect_state(blob, codec=strict, binding=ADA)
        assert caught.value.blob == blob


@pytest.mark.parametrize(
    ("max_age", "error"),
    [(0, ValueError), (-1, ValueError), (float("nan"), ValueError), ("60", TypeError), (True, TypeError)],
)
def test_an_age_is_a_number_of_seconds(max_age: Any, error: type[Exception]) -> None:
    """Anything that no state could keep is refused when the codec is made."""
    for make in (Signed, Encrypted):
        with pytest.raises(error, match="max_age"):
            make(RING, max_age=max_age)


# -------------------------------------------------------------------------------------------- making


def test_a_codec_takes_a_ring() -> None:
    """A key alone, or a wrong word for who sees the blob, is refused with what to pass."""
    for make in (Signed, Encrypted):
        with pytest.raises(TypeError, match=r"Keyring\(key\)"):
            make(KEY)  # type: ignore[operator]
    with pytest.raises(ValueError, match="'server' or 'client', not 'nobody'"):
        Encrypted(RING, visible_to="nobody")  # type: ignore[arg-type]


def test_signing_needs_the_standard_library_only() -> None:
    """Without `cryptography`, `Signed` works, and `Encrypted` says what to install when it is made."""
    program = """
        import sys
        sys.modules["cryptography"] = None
        import goaitools_py
        from goaitools_py import event, Chat
        from goaitools_py.seal import Encrypted, Key, Keyring, Signed
        ring = Keyring(Key.generate())
        chat = Chat("openai:MODEL", codec=Signed(ring))
        chat.append_to_state(None, event("It rains."), binding={"user": "ada"})
        try:
            Encrypted(ring)
        except ImportError as error:
            print(error)
    """

    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert run.stdout == "Encrypted needs the package cryptography: pip install 'goaitools-py[crypto]'\n"


# -------------------------------------------------------------------------------------------- rewrap


def test_rewrapping_moves_to_the_first_key(codec: Any) -> None:
    """What an old key sealed is sealed by the first one; the content is the same, byte for byte."""
    make = type(codec)
    old, moving, new = make(Keyring(OTHER)), make(Keyring(KEY, OTHER)), make(Keyring(KEY))
    blob = encode(parts(), codec=old, binding=ADA)

    moved = rewrap(blob, moving, binding=ADA)

    assert peek(moved).key_id == KEY.id
    assert raws(moved, new) == raws(blob, old)
    assert rewrap(bytearray(moved), moving, binding=ADA) == moved
    with pytest.raises(StateAuthError):
        rewrap(blob, new, binding=ADA)
    with pytest.raises(StateAuthError):
        rewrap(moved[:-1] + bytes([moved[-1] ^ 1]), moving, binding=ADA)


def test_rewrapping_changes_hands() -> None:
    """Another codec, another owner, in and out of sealing; what a binding is for is still a choice."""
    plain = encode(parts())
    signed, hidden, client = CODECS.values()

    first = rewrap(plain, PLAIN, to=signed, to_binding=ADA)
    second = rewrap(first, signed, binding=ADA, to=hidden)
    third = rewrap(second, hidden, binding=ADA, to_binding={"user": "eve"})
    fourth = rewrap(third, hidden, binding={"user": "eve"}, to=client)
    back = rewrap(fourth, client, binding={"user": "eve"}, to=PLAIN, to_binding=UNBOUND)

    assert back == plain
    assert len(fourth) % 256 == 96
    assert rewrap(third, client, binding={"user": "eve"})[6] == 0  # same suite and key, but it compressed
    with pytest.raises(ValueError, match="needs a binding"):
        rewrap(plain, PLAIN, to=signed)
    with pytest.raises(ValueError, match="authenticates nothing"):
        rewrap(first, signed, binding=ADA, to=PLAIN)


def test_rewrapping_reads_what_a_turn_may_have_written() -> None:
    """A state beyond the soft limit, which a turn writes rather than lose it, can be sealed anew."""
    tight = BlobLimits(max_blob_bytes=8192)
    wide, narrow = Signed(RING), Signed(RING, limits=tight)
    blob = encode(parts(os.urandom(10_000)), codec=wide, binding=ADA)

    assert raws(rewrap(blob, narrow, binding=ADA, to=Encrypted(RING, limits=tight)), CODECS["encrypted"])
    with pytest.raises(StateError, match="max_blob_bytes=16384"):
        rewrap(encode(parts(os.urandom(18_000)), codec=wide, binding=ADA), narrow, binding=ADA)
