"""The envelope: what is written, what is read back, and what is refused, with which words."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import zstandard
from msgspec.structs import force_setattr

from goaitools_py.state import blob as blob_module
from goaitools_py.state import dictionary, frames
from goaitools_py.state.blob import Kind, Segment, decode, encode, segment
from goaitools_py.state.blob_header import FORMAT_VERSIONS, Header, peek
from goaitools_py.state.codec import (
    PLAIN,
    SUITE_AES_256_GCM,
    SUITE_HMAC_SHA256,
    UNBOUND,
    Binding,
    BlobLimits,
    authenticated,
)
from goaitools_py.types.errors import (
    StateAuthError,
    StateCorruptError,
    StateError,
    StateFormatError,
    StateTooLargeError,
    StateVersionError,
)

META = b'{"wire":"openai","family":"openai","model":"gpt-5-mini","rev":1,"status":"complete"}'
HOT = (
    b'{"role":"user","content":"Hello"},\n{"role":"assistant","content":"Hi, how can I help?"}\n[12,[["ua"]]]'
)

Raw = tuple[int, bytes, int, int]  # kind, stored bytes, raw_len, entries


def _leb128(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number % 128 + 128])
        number //= 128
    return out + bytes([number])


def _sealed(header: bytes, body: bytes) -> bytes:
    """A plain blob written by hand from the drawn page, with whatever header and body."""
    used = bytes.fromhex(dictionary.SHA256[1]) if header[6] == 2 else b""
    return header + hashlib.sha256(b"goaitools/state/v1" + header + used + body).digest()[:16] + body


def _forged(*segments: Raw, compression: int = 2, decoded_len: int | None = None, body: bytes = b"") -> bytes:
    body = body or b"".join(
        _leb128(kind) + _leb128(len(stored)) + _leb128(raw_len) + _leb128(entries) + stored
        for kind, stored, raw_len, entries in segments
    )
    if decoded_len is None:
        decoded_len = sum(raw_len for _, _, raw_len, _ in segments)
    header = struct.pack(">4sBBBBII", b"\xf5GAS", 1, 0, compression, 0, decoded_len % 2**32, 0)
    return _sealed(header, body)


_META: Raw = (0, META, len(META), 0)


def _raws(segments: Iterable[Segment]) -> list[tuple[Kind, bytes, int]]:
    return [(each.kind, each.raw(), each.entries) for each in segments]


@pytest.fixture
def whole() -> list[Segment]:
    """One segment of every kind, two of the kind that may repeat."""
    return [
        segment(Kind.META, META, 0),
        segment(Kind.SEALED, HOT * 30, 60),
        segment(Kind.SEALED, HOT * 20, 40),
        segment(Kind.HOT, HOT, 2),
        segment(Kind.INBOX, b'{"role":"user","content":"It rains."}', 1),
        segment(Kind.OPEN, b'{"journal":[]}', 0),
    ]


# ---------------------------------------------------------------------------------------- round trips


def test_what_is_encoded_is_decoded(whole: list[Segment]) -> None:
    """Every kind of segment comes back with its bytes and its count."""
    blob = encode(whole)

    assert _raws(decode(blob)) == _raws(whole)


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_any_bytes_like_value_is_a_blob(form: Callable[[bytes], bytes]) -> None:
    """Database drivers hand out bytes, bytearray or memoryview, and all of them decode."""
    blob = encode([segment(Kind.META, META, 0)])

    assert decode(form(blob))[0].raw() == META


def test_changing_the_given_bytearray_later_changes_nothing() -> None:
    """A segment holds bytes of its own, not the caller's buffer."""
    buffer = bytearray(encode([segment(Kind.META, META, 0), segment(Kind.HOT, HOT, 2)]))
    segments = decode(buffer)

    buffer[:] = bytes(len(buffer))

    assert segments[1].raw() == HOT


def test_the_layout_is_the_drawn_page() -> None:
    """A blob whose segments are stored raw is, byte for byte, what the page says."""
    tiny = [segment(Kind.META, b"{}", 0), segment(Kind.HOT, b"[]", 1)]

    blob = encode(tiny)

    header = bytes.fromhex("f5474153 01 00 02 00 00000004 00000000".replace(" ", ""))
    assert blob == _sealed(header, b"\x00\x02\x02\x00{}" + b"\x02\x02\x02\x01[]")


@pytest.mark.parametrize("compression", [0, 1, 2])
def test_every_compression_of_the_format_is_read(compression: int) -> None:
    """Blobs without compression, with plain zstd and with dictionary 1 all decode."""
    if compression == 0:
        stored = HOT
    else:
        kept = zstandard.ZstdCompressionDict(dictionary.load(1)) if compression == 2 else None
        stored = zstandard.ZstdCompressor(dict_data=kept, write_dict_id=False).compress(HOT)
    blob = _forged(_META, (2, stored, len(HOT), 2), compression=compression)

    assert _raws(decode(blob))[1] == (Kind.HOT, HOT, 2)


@pytest.mark.parametrize("compression", [0, 1])
def test_a_segment_of_another_compression_is_taken_over(compression: int) -> None:
    """A blob inflates in one way only, so a segment from another kind of blob is compressed anew."""
    raw = HOT * 40
    stored = raw if compression == 0 else zstandard.ZstdCompressor().compress(raw)
    old = decode(_forged(_META, (1, stored, len(raw), 80), compression=compression))

    new = encode(old)

    assert peek(new).compression == 2
    assert decode(new)[1].raw() == raw
    assert len(new) < len(raw)


def test_a_segment_from_a_blob_is_not_compressed_again(
    whole: list[Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saving costs what is new: decoded segments go into the next blob as they stand."""
    blob = encode(whole)
    segments = decode(blob)
    monkeypatch.setattr(frames, "_compressor", lambda effort: pytest.fail("compressed again"))

    assert encode(segments) == blob


def test_only_the_meta_is_inflated_by_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """History stays compressed until somebody asks for it."""
    blob = encode([segment(Kind.META, META, 0), segment(Kind.HOT, HOT * 9, 18)])
    sizes: list[int] = []
    inflate = frames.inflate

    def counted(stored: bytes, raw_len: int, compression: int) -> bytes:
        sizes.append(raw_len)
        return inflate(stored, raw_len, compression)

    monkeypatch.setattr(frames, "inflate", counted)

    decode(blob)

    assert sizes == [len(META)]


def test_a_segment_is_inflated_once() -> None:
    """The second call returns the very same object."""
    hot = decode(encode([segment(Kind.META, META, 0), segment(Kind.HOT, HOT * 9, 18)]))[1]

    assert hot.raw() is hot.raw()


def test_what_does_not_shrink_is_stored_as_it_is() -> None:
    """Random bytes, such as media that is compressed already, cost no zstd frame."""
    noise = random.Random(5).randbytes(5000)

    made = segment(Kind.HOT, noise, 1)

    assert made.stored == noise
    assert decode(encode([segment(Kind.META, META, 0), made]))[1].raw() == noise


@pytest.mark.parametrize("size", [1, 127, 128, 8 * 2**10, 32 * 2**10 + 1, 256 * 2**10 + 1])
@pytest.mark.parametrize("kind", [Kind.SEALED, Kind.HOT])
def test_every_size_comes_back(kind: Kind, size: int) -> None:
    """Each level of compression and each length of a head's numbers is read back."""
    raw = (HOT * (size // len(HOT) + 1))[:size]

    blob = encode([segment(Kind.META, META, 0), segment(kind, raw, 1)])

    assert decode(blob)[1].raw() == raw


def test_equal_segments_make_equal_blobs_in_every_thread(whole: list[Segment]) -> None:
    """Bytes do not depend on the thread or on what it compressed before, also when all run at once."""
    made: list[bytes] = []

    def work() -> None:
        for _ in range(20):
            again = [segment(each.kind, each.raw(), each.entries) for each in whole]
            blob = encode(again)
            assert _raws(decode(blob)) == _raws(again)
            made.append(blob)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 160
    assert set(made) == {encode(whole)}


def test_repr_shows_sizes_and_no_content(whole: list[Segment]) -> None:
    """Segments may be logged."""
    text = repr(decode(encode(whole)))

    assert "HOT" in text
    assert "Hello" not in text
    assert "openai" not in text


# --------------------------------------------------------------------------------------- header, peek


def test_peek_reads_the_header_without_the_rest() -> None:
    """A header is read even when the digest is wrong, or the version unknown."""
    blob = encode([segment(Kind.META, META, 0)])
    damaged = blob[:4] + b"\x07" + blob[5:-1]

    header = peek(damaged)

    assert header == Header(version=7, suite=0, compression=2, decoded_len=len(META))


def test_every_written_version_is_documented() -> None:
    """The version in the header is one that `FORMAT_VERSIONS` explains."""
    assert peek(encode([segment(Kind.META, META, 0)])).version in FORMAT_VERSIONS


@pytest.mark.parametrize(
    ("at", "value", "error", "words"),
    [
        (4, 2, StateVersionError, "found format version 2, expected at most 1"),
        (4, 255, StateVersionError, "newer release"),
        (4, 0, StateCorruptError, "format version 0"),
        (5, 0x11, StateAuthError, "state is signed"),
        (5, 0x21, StateAuthError, "pass the codec that it was written with"),
        (5, 0x7F, StateVersionError, "found suite 0x7f"),
        (6, 3, StateVersionError, "found compression 0x03"),
        (6, 0x80, StateVersionError, "found compression 0x80"),
        (7, 1, StateVersionError, "found a directory without parts"),
        (7, 2, StateVersionError, "found flags 0x02"),
        (8, 0xFF, StateTooLargeError, "max_decoded_bytes"),
    ],
)
def test_a_header_that_cannot_be_read_says_why(
    at: int, value: int, error: type[StateError], words: str
) -> None:
    """Each field of the header is judged before the digest, so that the error names the reason."""
    blob = bytearray(encode([segment(Kind.META, META, 0)]))
    blob[at] = value

    with pytest.raises(error, match=words) as caught:
        decode(blob)

    assert type(caught.value) is error
    assert caught.value.blob == blob


def test_a_plain_blob_names_no_key() -> None:
    """A key id in a plain blob is refused even if the digest covers it."""
    blob = _forged(_META)
    header = blob[:12] + b"\0\0\0\1"

    with pytest.raises(StateCorruptError, match="names a key"):
        decode(_sealed(header, blob[32:]))


# ------------------------------------------------------------------------------------- not a blob


@pytest.mark.parametrize("value", [None, 7, [1], {"state": b""}])
def test_what_is_neither_bytes_nor_text_is_a_type_error(value: object) -> None:
    """A wrong argument is the caller's mistake, not a damaged state."""
    with pytest.raises(TypeError, match=f"not {type(value).__name__}"):
        decode(value)  # type: ignore[arg-type]


@cache
def _texts() -> dict[str, tuple[str | bytes, str]]:
    blob = _forged(_META)
    return {
        "base64": (base64.b64encode(blob).decode(), "b64decode"),
        "base64 bytes": (base64.b64encode(blob), "b64decode"),
        "postgres": ("\\x" + blob.hex(), "bytea"),
        "hex": (blob.hex(), "fromhex"),
        "hex in capitals": (blob.hex().upper(), "fromhex"),
        "text form": ("gas1." + base64.urlsafe_b64encode(blob).decode(), "text form"),
        "go json": ('{"messages":[],"processed_length":0}', "Go library"),
        "go json bytes": (b' \n{"messages":[]}', "Go library"),
        "an export": (b'{"goaitools_export": 1}', "states.import_state takes what export_state wrote"),
        "a database": (b"SQLite format 3\0\x10\0", "SQLiteStore(path)"),
        "repr": (repr(blob[:16] + b'"'), "repr of a bytes object"),
        "the other repr": (repr(blob[:16] + b"'"), "repr of a bytes object"),
        "latin-1": (blob.decode("latin-1"), "Latin-1"),
        "latin-1 as utf-8 bytes": (blob.decode("latin-1").encode(), "Latin-1"),
        "utf-8 with replacement": (blob.decode("utf-8", "replace"), "lost bytes"),
        "utf-8 with replacement, bytes": (blob.decode("utf-8", "replace").encode(), "lost bytes"),
        "surrogateescape": (blob.decode("utf-8", "surrogateescape"), "surrogateescape"),
        "empty text": ("", "state=None"),
        "empty bytes": (b"", "state=None"),
        "something else": (b"\x80\x04\x95pickle", "F5 47 41 53"),
        "other text": ("hello", "F5 47 41 53"),
    }


@pytest.mark.parametrize("name", list(_texts()))
def test_a_mangled_blob_is_told_what_happened_to_it(name: str) -> None:
    """The error names the likely damage, and carries what was given."""
    value, words = _texts()[name]

    with pytest.raises(StateFormatError) as caught:
        decode(value)  # type: ignore[arg-type]

    assert words in str(caught.value)
    given = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    assert caught.value.blob == given


def test_a_blob_may_be_cut_nowhere() -> None:
    """Every proper prefix is refused; those that still show the magic are called damaged, not foreign."""
    blob = encode([segment(Kind.META, META, 0), segment(Kind.HOT, HOT, 2)])

    for length in range(1, len(blob)):
        with pytest.raises(StateCorruptError):
            decode(blob[:length])


# --------------------------------------------------------------------------------------- structure


_BODIES: dict[str, bytes] = {
    "no segment": b"",
    "no meta": _forged((2, b"[]", 2, 1))[32:],
    "two metas": _forged(_META, _META)[32:],
    "meta behind hot": _forged((2, b"[]", 2, 1), _META)[32:],
    "hot before sealed": _forged(_META, (2, b"[]", 2, 1), (1, b"[]", 2, 1))[32:],
    "two hots": _forged(_META, (2, b"[]", 2, 1), (2, b"[]", 2, 1))[32:],
    "two inboxes": _forged(_META, (3, b"[]", 2, 1), (3, b"[]", 2, 1))[32:],
    "entries in meta": _forged((0, b"{}", 2, 1))[32:],
    "nothing in it": _forged(_META, (2, b"", 0, 0))[32:],
    "nothing stored": _forged(_META, (2, b"", 2, 0))[32:],
    "more stored than raw": _forged(_META, (2, b"[1]", 2, 1))[32:],
    "bytes behind the last segment": _forged(_META)[32:] + b"\0",
    "head cut": _forged(_META)[32:] + b"\x02\x02\x02",
    "head cut in a number": _forged(_META)[32:] + b"\x02\x82",
    "content cut": _forged(_META)[32:] + b"\x02\x02\x02\x01[",
    "number with a needless zero": _forged(_META)[32:] + b"\x02\x82\x00\x02\x01[]",
    "number of six bytes": _forged(_META)[32:] + b"\x02\x80\x80\x80\x80\x80\x01\x02\x01[]",
    "number beyond 32 bits": _forged(_META)[32:] + b"\x02\x02\x80\x80\x80\x80\x10\x01[]",
}


@pytest.mark.parametrize("name", list(_BODIES))
def test_a_body_out_of_order_is_damaged(name: str) -> None:
    """With a correct digest and a fitting total, the structure alone is reason to refuse."""
    body = _BODIES[name]
    for decoded_len in (len(META), len(META) + 2, 2 * len(META), 2, 0, 4):
        header = struct.pack(">4sBBBBII", b"\xf5GAS", 1, 0, 2, 0, decoded_len, 0)

        with pytest.raises(StateCorruptError, match="state is damaged") as caught:
            decode(_sealed(header, body))

        assert caught.value.blob[32:] == body


@pytest.mark.parametrize("off_by", [-1, 1])
def test_the_header_states_the_sum_of_all_segments(off_by: int) -> None:
    """A total that is off by one byte is refused."""
    with pytest.raises(StateCorruptError, match="the header says"):
        decode(_forged(_META, decoded_len=len(META) + off_by))


def test_no_segment_is_compressed_in_a_blob_without_compression() -> None:
    """Compression 00 means that stored and raw length are equal."""
    frame = zstandard.ZstdCompressor().compress(HOT * 9)

    with pytest.raises(StateCorruptError, match="says it is not"):
        decode(_forged(_META, (2, frame, len(HOT) * 9, 18), compression=0))


def test_the_digest_covers_the_dictionary() -> None:
    """A digest that leaves the dictionary's hash out is wrong: a body belongs to its dictionary."""
    blob = encode([segment(Kind.META, META, 0)])
    header, body = blob[:16], blob[32:]
    without = hashlib.sha256(b"goaitools/state/v1" + header + body).digest()[:16]

    with pytest.raises(StateCorruptError, match="digest"):
        decode(header + without + body)


# ------------------------------------------------------------------------------------------- limits


def limits_of(**limits: int) -> BlobLimits:
    """Limits that may be too small for a conversation."""
    made = BlobLimits()
    for name, value in limits.items():
        force_setattr(made, name, value)
    return made


_LOW = {
    "max_blob_bytes": limits_of(max_blob_bytes=100),
    "max_decoded_bytes": limits_of(max_decoded_bytes=1000),
    "max_entries": limits_of(max_entries=102),
    "max_segments": limits_of(max_segments=5),
    "max_meta_bytes": limits_of(max_meta_bytes=len(META) - 1),
}


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("max_blob_bytes", 4096),
        ("max_decoded_bytes", 16384),
        ("max_entries", 16),
        ("max_segments", 8),
        ("max_meta_bytes", 8192),
    ],
)
def test_limits_too_small_for_an_exchange_are_refused(name: str, least: int) -> None:
    """Where they are made, with the smallest that are not; what is no number is refused too."""
    assert getattr(BlobLimits(**{name: least}), name) == least
    with pytest.raises(ValueError, match=f"{name}={least - 1} is too small.*at least {least}"):
        BlobLimits(**{name: least - 1})
    with pytest.raises(TypeError, match=f"{name} must be an int, not NoneType"):
        BlobLimits(**{name: None})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(_LOW))
def test_a_limit_holds_when_writing(name: str, whole: list[Segment]) -> None:
    """What could not be read is not written."""
    with pytest.raises(StateTooLargeError, match=name) as caught:
        encode(whole, limits=_LOW[name])

    assert caught.value.limit_name == name
    assert caught.value.limit == getattr(_LOW[name], name)


@pytest.mark.parametrize("name", list(_LOW))
def test_a_limit_holds_when_reading(name: str, whole: list[Segment]) -> None:
    """A blob beyond the reader's limit is refused and handed back."""
    blob = encode(whole)

    with pytest.raises(StateTooLargeError, match=name) as caught:
        decode(blob, limits=_LOW[name])

    assert caught.value.limit_name == name
    assert caught.value.blob == blob


@pytest.mark.parametrize("name", list(_LOW))
def test_a_limit_that_is_just_met_is_kept(name: str, whole: list[Segment]) -> None:
    """Limits are inclusive, on both sides."""
    raws = _raws(whole)
    exact = {
        "max_blob_bytes": len(encode(whole)),
        "max_decoded_bytes": sum(len(raw) for _, raw, _ in raws),
        "max_entries": sum(entries for _, _, entries in raws),
        "max_segments": len(whole),
        "max_meta_bytes": len(META),
    }
    limits = limits_of(**{name: exact[name]})

    assert _raws(decode(encode(whole, limits=limits), limits=limits)) == raws


# ------------------------------------------------------------------------------- misuse when writing


@pytest.mark.parametrize(
    "kinds",
    [
        (),
        (Kind.HOT,),
        (Kind.META, Kind.META),
        (Kind.META, Kind.HOT, Kind.SEALED),
        (Kind.META, Kind.HOT, Kind.HOT),
    ],
)
def test_segments_out_of_order_are_not_written(kinds: tuple[Kind, ...]) -> None:
    """The writer refuses what the reader would."""
    with pytest.raises(ValueError, match="segment"):
        encode([segment(kind, b"{}", 0) for kind in kinds])


@pytest.mark.parametrize(
    ("kind", "raw", "entries"), [(Kind.HOT, b"", 0), (Kind.HOT, b"x", -1), (Kind.META, b"x", 1)]
)
def test_a_segment_that_cannot_be_stored_is_not_made(kind: Kind, raw: bytes, entries: int) -> None:
    """Nothing empty, no negative count, no entries in a meta."""
    with pytest.raises(ValueError, match=kind.name.lower()):
        segment(kind, raw, entries)


@pytest.mark.parametrize("binding", [{"user": "anna"}, {}])
def test_a_plain_blob_cannot_be_bound(binding: Binding) -> None:
    """A binding that nothing authenticates would be a false promise, on both sides."""
    blob = encode([segment(Kind.META, META, 0)])

    with pytest.raises(ValueError, match="authenticates nothing"):
        encode([segment(Kind.META, META, 0)], binding=binding)
    with pytest.raises(ValueError, match="authenticates nothing"):
        decode(blob, binding=binding)


def test_unbound_says_the_same_as_none_in_a_plain_blob() -> None:
    """`UNBOUND` is accepted everywhere, so that code may be written for any codec."""
    blob = encode([segment(Kind.META, META, 0)], binding=UNBOUND)

    assert decode(blob, binding=UNBOUND)[0].raw() == META
    assert repr(UNBOUND) == "UNBOUND"
    assert repr(PLAIN) == "PLAIN"


# ------------------------------------------------------------------------------------- other codecs


@dataclass(frozen=True)
class _Keyed:
    """A codec with a key, as small as one can be."""

    key: bytes
    suite: int = SUITE_HMAC_SHA256
    compresses: bool = True

    def _tag(self, header: bytes, body: bytes, binding: Binding) -> bytes:
        bound = repr(sorted(binding.items())) if isinstance(binding, dict) else ""
        return hmac.digest(self.key, authenticated(header) + bound.encode() + body, "sha256")

    def check(self, binding: Binding) -> None:
        """Any binding will do."""

    def seal(self, header: bytes, body: bytes, binding: Binding) -> bytes:
        header = header[:12] + b"key1"
        return header + self._tag(header, body, binding) + body

    def open(self, blob: bytes, binding: Binding) -> bytes:
        if not hmac.compare_digest(blob[16:48], self._tag(blob[:16], blob[48:], binding)):
            raise StateAuthError("state was refused")
        return blob[48:]


def test_a_keyed_codec_needs_no_change_here(whole: list[Segment]) -> None:
    """Another suite seals the same body; its errors carry the blob, and a plain reader is told to use it."""
    codec = _Keyed(b"secret")
    blob = encode(whole, codec=codec, binding={"user": "anna"})

    assert _raws(decode(blob, codec=codec, binding={"user": "anna"})) == _raws(whole)
    assert peek(blob).key_id == int.from_bytes(b"key1", "big")
    with pytest.raises(StateAuthError, match="refused") as caught:
        decode(blob, codec=codec, binding={"user": "ben"})
    assert caught.value.blob == blob
    with pytest.raises(StateAuthError, match="state is signed"):
        decode(blob)


def test_a_plain_blob_does_not_pass_for_a_keyed_one() -> None:
    """A keyed codec opens its own suite only; there is no way down."""
    blob = encode([segment(Kind.META, META, 0)])

    with pytest.raises(StateAuthError, match="state is plain"):
        decode(blob, codec=_Keyed(b"secret"))


def test_a_codec_that_hides_lengths_gets_raw_segments(whole: list[Segment]) -> None:
    """Without compression, and in the encrypted suite without a total in the header, it still round-trips."""
    codec = _Keyed(b"secret", SUITE_AES_256_GCM, compresses=False)

    blob = encode(whole, codec=codec)

    assert (peek(blob).compression, peek(blob).decoded_len) == (0, 0)
    assert all(len(each.stored) == each.raw_len for each in decode(blob, codec=codec))
    assert _raws(decode(blob, codec=codec)) == _raws(whole)
    assert encode(decode(blob, codec=codec)) == encode(whole)


# -------------------------------------------------------------------------------------------- bombs

_KEPT = 100_000


def _rle_frame(stated: int, blocks: int) -> bytes:
    """A frame that states its size and then holds `blocks` times 128 KiB of one byte, four bytes each."""
    last = [0] * (blocks - 1) + [1]
    body = b"".join(struct.pack("<I", (2**17 << 3) | (1 << 1) | end)[:3] + b"a" for end in last)
    return b"\x28\xb5\x2f\xfd" + b"\x80" + bytes([13 << 3]) + struct.pack("<I", stated) + body


@cache
def _bombs() -> dict[str, bytes]:
    """Stored bytes that no segment of `_KEPT` raw bytes may have."""
    raw = b"a" * _KEPT
    good = zstandard.ZstdCompressor(write_dict_id=False).compress(raw)
    window = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    long_window = zstandard.ZstdCompressor(compression_params=window).compressobj()
    id_dict = zstandard.ZstdCompressionDict(dictionary.load(1))
    return {
        "declares 7 EB": b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 7 * 10**18),
        "8 KB that are 256 MB": _rle_frame(2**28, 2**11),
        "lies about its size": _rle_frame(_KEPT, 2000),
        "inflates to less": _rle_frame(_KEPT, 1)[:-1],
        "states no size": zstandard.ZstdCompressor(write_content_size=False).compress(raw),
        "states no size, window 128 MiB": long_window.compress(raw) + long_window.flush(),
        "window 128 MiB": b"\x28\xb5\x2f\xfd\x80" + bytes([17 << 3]) + struct.pack("<I", _KEPT) + good[9:],
        "skippable frame": b"\x50\x2a\x4d\x18" + struct.pack("<I", _KEPT) + b"a" * 100,
        "skippable frame of 2 GiB": b"\x50\x2a\x4d\x18" + struct.pack("<I", 2**31) + b"a" * 100,
        "skippable frame first": b"\x50\x2a\x4d\x18\x01\0\0\0a" + good,
        "skippable frame behind": good + b"\x50\x2a\x4d\x18\x01\0\0\0a",
        "two frames": good + good,
        "trailing byte": good + b"\0",
        "truncated": good[:-1],
        "only a header": good[:9],
        "only the magic": good[:4],
        "checksum": zstandard.ZstdCompressor(write_checksum=True).compress(raw),
        "dictionary id": zstandard.ZstdCompressor(dict_data=id_dict, write_dict_id=True).compress(raw),
        "reserved block type": good[:9] + b"\xff\xff\xff" + good[12:],
        "not zstd": b"\x1f\x8b" + good,
    }


@pytest.mark.parametrize("name", list(_bombs()))
@pytest.mark.parametrize("kind", [0, 2])
def test_a_bomb_is_refused(kind: int, name: str) -> None:
    """Whatever a frame claims or hides, it inflates to exactly what its head says, or to a typed error."""
    bomb: Raw = (kind, _bombs()[name], _KEPT, 0)
    blob = _forged(bomb, compression=1) if kind == 0 else _forged(_META, bomb, compression=1)

    with pytest.raises(StateCorruptError, match="state is damaged") as caught:
        decode(blob)[-1].raw()

    assert caught.value.blob == blob


_SEEN_AT_ONCE = (
    "declares 7 EB",
    "8 KB that are 256 MB",
    "states no size",
    "states no size, window 128 MiB",
    "window 128 MiB",
    "skippable frame",
    "skippable frame of 2 GiB",
    "skippable frame first",
    "only the magic",
    "checksum",
    "dictionary id",
    "not zstd",
)


@pytest.mark.parametrize("name", _SEEN_AT_ONCE)
def test_what_a_frame_header_shows_is_refused_before_inflating(name: str) -> None:
    """`decode` itself refuses it, though the segment would be inflated only when asked for."""
    blob = _forged(_META, (2, _bombs()[name], _KEPT, 0), compression=1)

    with pytest.raises(StateCorruptError, match="zstd frame"):
        decode(blob)


def test_what_the_library_returns_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that hands out less than a frame states, as it does for skippable ones, is not believed."""

    class Short:
        def decompress(self, stored: bytes, **options: object) -> bytes:
            return b""

    hot = decode(encode([segment(Kind.META, META, 0), segment(Kind.HOT, HOT * 9, 18)]))[1]
    monkeypatch.setattr(frames, "_decompressor", lambda compression: Short())

    with pytest.raises(StateCorruptError, match="inflates to 0 bytes"):
        hot.raw()


def test_a_frame_like_the_bombs_is_accepted_when_it_is_true() -> None:
    """The bombs above are refused for what is wrong with them, not for how they were built."""
    true = _rle_frame(2 * 2**17, 2)

    assert decode(_forged(_META, (2, true, 2**18, 0), compression=1))[1].raw() == b"a" * 2**18


def test_a_size_beyond_the_limit_is_refused_whoever_states_it() -> None:
    """A head and a header that agree on 256 MB are refused by the header's number alone."""
    big = _rle_frame(2**28, 2**11)

    with pytest.raises(StateTooLargeError, match="max_decoded_bytes"):
        decode(_forged(_META, (2, big, 2**28, 0), compression=1))


_MEASURE = """
import resource, sys
from pathlib import Path
from time import process_time
from goaitools_py.state.blob import decode
from goaitools_py.types.errors import StateError

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

before, worst = peak(), 0.0
sizes = []
data = sys.stdin.buffer.read()
while data:
    size = int.from_bytes(data[:4], "big")
    blob, data = data[4 : 4 + size], data[4 + size :]
    start = process_time()
    try:
        sizes.append(sum(len(each.raw()) for each in decode(blob)))
    except StateError:
        sizes.append(-1)
    worst = max(worst, process_time() - start)
print(peak() - before, worst, *sizes)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_no_input_costs_more_than_memory_and_time_allow() -> None:
    """All bombs, and the largest blobs that are valid, stay below 160 MiB and 250 ms of CPU each."""
    noise = random.Random(3).randbytes(2**20)
    largest = [
        _forged(_META, (2, _rle_frame(2**24 - 2**17, 127), 2**24 - 2**17, 0), compression=1),
        encode(
            [segment(Kind.META, META, 0), *(segment(Kind.SEALED, noise[: 2**20 - 99], 9) for _ in range(3))]
        ),
        encode([segment(Kind.META, META, 0), *(segment(Kind.SEALED, HOT * 120, 9) for _ in range(1000))]),
    ]
    bombs = [_forged(_META, (2, bomb, _KEPT, 0), compression=1) for bomb in _bombs().values()]
    data = b"".join(len(blob).to_bytes(4, "big") + blob for blob in largest + bombs)

    run = subprocess.run(
        [sys.executable, "-c", _MEASURE],
        input=data,
        capture_output=True,
        check=True,
        cwd=Path(blob_module.__file__).parents[2],
    )

    kibibytes, seconds, *sizes = run.stdout.split()
    assert [int(size) > 0 for size in sizes] == [True] * len(largest) + [False] * len(bombs)
    assert int(kibibytes) < 160 * 1024
    assert float(seconds) < 0.25


# ------------------------------------------------------------------------------------------ silence


def test_no_error_text_holds_content() -> None:
    """A state's content is never in an error's text, its repr or its chain."""
    secret = b"s3cr3t-canary"
    raw = secret * 20
    frame = zstandard.ZstdCompressor().compress(raw)
    blobs = [
        secret,
        b'{"secret":"' + secret,
        encode([segment(Kind.META, raw, 0)])[:-1],
        _forged((0, raw, len(raw), 0), (0, raw, len(raw), 0)),
        _forged(_META, (2, frame[:-1] + b"x", len(raw), 0), compression=1),
        _forged(_META, (2, raw[:-1], len(raw), 0), compression=1),
    ]

    for blob in blobs:
        with pytest.raises(StateError) as caught:
            decode(blob)[-1].raw()
        texts = (str(caught.value), repr(caught.value), repr(caught.value.__cause__), repr(caught.value.args))
        assert not [text for text in texts if "s3cr3t" in text]
        assert caught.value.__cause__ is None
