"""Keys: what they derive, how they are written down, and that nothing shows them."""

from __future__ import annotations

import copy
import random

import msgspec
import pytest

from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.seal.keys import hkdf
from goaitools_py.seal.signed import pae

from . import _second

# https://www.rfc-editor.org/rfc/rfc5869, appendix A: hash SHA-256
RFC_5869 = [
    (
        "0b" * 22,
        "000102030405060708090a0b0c",
        "f0f1f2f3f4f5f6f7f8f9",
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    (
        bytes(range(0x50)).hex(),
        bytes(range(0x60, 0xB0)).hex(),
        bytes(range(0xB0, 0x100)).hex(),
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
        "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    (
        "0b" * 22,
        "",
        "",
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
]

# https://github.com/paseto-standard/paseto-spec/blob/master/docs/01-Protocol-Versions/Common.md
PAE = [
    ((), "0000000000000000"),
    ((b"",), "01000000000000000000000000000000"),
    ((b"test",), "0100000000000000040000000000000074657374"),
]


@pytest.mark.parametrize(("secret", "salt", "info", "expected"), RFC_5869)
def test_keys_are_derived_as_the_rfc_says(secret: str, salt: str, info: str, expected: str) -> None:
    """The test cases of RFC 5869."""
    out = bytes.fromhex(expected)

    assert hkdf(bytes.fromhex(secret), bytes.fromhex(info), len(out), bytes.fromhex(salt)) == out


@pytest.mark.parametrize(("pieces", "expected"), PAE)
def test_pieces_are_joined_as_paseto_says(pieces: tuple[bytes, ...], expected: str) -> None:
    """The test cases of PASETO's specification."""
    assert pae(*pieces).hex() == expected


def test_no_two_lists_of_pieces_are_joined_alike() -> None:
    """However the same letters are cut into pieces, the result differs, and the second writer agrees."""
    rng = random.Random(7)
    lists = {
        tuple(bytes(rng.choices(b"ab\0", k=rng.randrange(4))) for _ in range(count % 4))
        for count in range(2000)
    }

    joined = {pae(*pieces) for pieces in lists}

    assert len(joined) == len(lists) > 500
    assert joined == {_second.pae(pieces) for pieces in lists}


def test_a_key_survives_its_text() -> None:
    """What is generated, written and read back is the same key, with white space around it or not."""
    key = Key.generate()

    again = Key.from_text(f"  {key.to_text()}\n")

    assert again == key
    assert (again.id, hash(again)) == (key.id, hash(key))
    assert Key.generate() != key


def test_a_keys_text_does_not_change() -> None:
    """The text form and the id are promises: they stand in configurations and in headers."""
    key = Key(bytes(range(32)))

    assert key.to_text() == "gask1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert key.id.to_bytes(4, "big") == _second.key_id(bytes(range(32)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hunter2",
        "gask2.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "gask1.",
        "gask1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh",
        "gask1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8A",
        "gask1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "gask1.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9",
        "gask1.AAECAwQFBgcICQoLDA0ODx REhMUFRYXGBkaGxwdHh8",
        "gask1.//ECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "gask1.éAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    ],
)
def test_what_is_no_keys_text_is_refused(text: str) -> None:
    """Cut, grown, in another alphabet, with other tail bits: the error says so and repeats none of it."""
    with pytest.raises(ValueError, match=r"not the text of a key.*Key\.generate") as caught:
        Key.from_text(text)

    assert "ECAwQF" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("secret", [b"", b"hunter2", bytes(31), bytes(33)])
def test_a_key_has_32_bytes(secret: bytes) -> None:
    """A password is no key, and the error says how to make one."""
    with pytest.raises(ValueError, match=r"32 random bytes.*Key.generate"):
        Key(secret)


def test_a_key_is_not_made_of_text() -> None:
    """Each way in takes its own type and names the other."""
    with pytest.raises(TypeError, match=r"Key\.from_text"):
        Key("gask1.")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a str, not bytes"):
        Key.from_text(b"gask1.")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"holds keys, not str"):
        Keyring(Key.generate().to_text())  # type: ignore[arg-type]


def test_no_repr_shows_a_key() -> None:
    """Neither key nor ring nor codec shows more than ids; no encoder turns them inside out."""
    key, other = Key(b"s3cr3t-canary-s3cr3t-canary-s3cr"), Key(b"another-canary-another-canary-an")
    ring = Keyring(key, other)
    shown = [repr(each) for each in (key, ring, Signed(ring), Encrypted(ring), copy.copy(key))]

    assert [text for text in shown if "canary" in text or key.to_text()[8:20] in text] == []
    assert shown[0] == f"Key(id={key.id:08x})"
    with pytest.raises(TypeError):
        msgspec.json.encode(Signed(ring))
    assert not hasattr(key, "__dict__")


def test_a_ring_finds_keys_by_id() -> None:
    """The first key writes; each is found by its id; the same key twice is one key."""
    old, new = Key.generate(), Key.generate()

    ring = Keyring(new, old, new)

    assert ring.primary == new
    assert ring.named(old.id) == (old,)
    assert ring.named(new.id) == (new,)
    assert ring.named(new.id ^ 1) == ()


def test_keys_whose_ids_are_equal_are_all_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four bytes may meet by chance; then the ring hands out both."""
    first, second = Key.generate(), Key.generate()
    second._id = first._id

    assert Keyring(first, second).named(first.id) == (first, second)


def test_a_ring_holds_sixteen_keys() -> None:
    """More are refused: each is one more key that can be lost."""
    keys = [Key.generate() for _ in range(17)]

    Keyring(*keys[:16])
    with pytest.raises(ValueError, match="at most 16 keys, found 17"):
        Keyring(*keys)
