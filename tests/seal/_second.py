"""A second reader and writer of sealed blobs, made from the drawn pages and of other people's primitives.

Owns: its own idea of header, PAE, key derivation, segments and frames. Must never know: the package's code;
of its files it reads one, the compression dictionary.
"""

from __future__ import annotations

import hashlib
import hmac as stdlib_hmac
import io
import os
import struct
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import zstandard
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import constant_time, hashes, hmac
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = [
    "Refused",
    "SecondPart",
    "SecondSegment",
    "header_of",
    "key_id",
    "leb128",
    "opened",
    "pae",
    "part_bytes",
    "resealed_plain",
    "sealed",
    "sealed_part",
    "sealed_whole",
    "segments_of",
    "whole",
]

DOMAIN = b"goaitools/state/v1"
PLAIN, SIGNED, ENCRYPTED = 0x00, 0x11, 0x21
_DICTIONARY = Path(__file__).parents[2] / "goaitools_py" / "state" / "dictionary" / "dict1.zdict"


class Refused(Exception):
    """The second reader does not take this blob."""


class SecondSegment(NamedTuple):
    """One segment, inflated."""

    kind: int
    entries: int
    raw: bytes


@cache
def _dictionary() -> tuple[bytes, bytes]:
    content = _DICTIONARY.read_bytes()
    return content, hashlib.sha256(content).digest()


def pae(pieces: Iterable[bytes]) -> bytes:
    listed = list(pieces)
    out = struct.pack("<Q", len(listed))
    for piece in listed:
        out += struct.pack("<Q", len(piece)) + piece
    return out


def _mac(key: bytes, message: bytes) -> bytes:
    return stdlib_hmac.new(key, message, hashlib.sha256).digest()


@lru_cache(64)
def _hkdf(secret: bytes, info: bytes, size: int, salt: bytes = bytes(32)) -> bytes:
    prk, blocks = _mac(salt, secret), [b""]
    while len(blocks) * 32 < size + 32:
        blocks.append(_mac(prk, blocks[-1] + info + bytes([len(blocks)])))
    return b"".join(blocks)[:size]


def key_id(secret: bytes) -> bytes:
    return _hkdf(secret, DOMAIN + b"/kid", 4)


def header_of(suite: int, compression: int, decoded_len: int, secret: bytes = b"") -> bytes:
    """The 16 bytes; `decoded_len` is given for every suite and left out where it must be."""
    total = 0 if suite == ENCRYPTED else decoded_len
    fields = struct.pack(">4sBBBBI", b"\xf5GAS", 1, suite, compression, 0, total % 2**32)
    return fields + (key_id(secret) if secret else bytes(4))


def _whole(header: bytes) -> bytes:
    return header + _dictionary()[1] if header[6] == 2 else header


def _pieces(binding: Mapping[str, str] | None) -> list[bytes]:
    coded = {name.encode(): value.encode() for name, value in (binding or {}).items()}
    return [piece for name in sorted(coded) for piece in (name, coded[name])]


def _tag(
    header: bytes, body: bytes, secret: bytes, binding: Mapping[str, str] | None, directory: bytes = b""
) -> hmac.HMAC:
    mac = hmac.HMAC(_hkdf(secret, DOMAIN + b"/mac", 32), hashes.SHA256())
    more = [directory] if directory else []
    mac.update(pae([DOMAIN, _whole(header), *_pieces(binding), *more, body]))
    return mac


def _aes(header: bytes, secret: bytes, salt: bytes) -> tuple[bytes, bytes, bytes]:
    okm = _hkdf(secret, DOMAIN + b"/aes-256-gcm" + header[12:], 76, salt)
    return okm[:32], okm[32:44], okm[44:76]


def sealed(
    header: bytes,
    body: bytes,
    secret: bytes = b"",
    binding: Mapping[str, str] | None = None,
    *,
    inner: bytes | None = None,
    salt: bytes | None = None,
    suite: int | None = None,
    directory: bytes = b"",
) -> bytes:
    """A blob with a fitting seal, of whatever header and body; a `directory` is sealed, not put in.

    `inner` is what is encrypted instead of both the length and the body; without a `salt` it is random;
    `suite` is whose seal it gets if not that of the suite in the header.
    """
    suite = header[5] if suite is None else suite
    if suite == SIGNED:
        return header + _tag(header, body, secret, binding, directory).finalize() + body
    if suite == ENCRYPTED:
        salt = os.urandom(32) if salt is None else salt
        key, nonce, commitment = _aes(header, secret, salt)
        encryptor = Cipher(algorithms.AES256(key), modes.GCM(nonce)).encryptor()
        more = [directory] if directory else []
        associated = pae([DOMAIN, _whole(header), salt, *_pieces(binding), *more])
        encryptor.authenticate_additional_data(associated)
        plain = struct.pack(">I", len(body)) + body if inner is None else inner
        hidden = encryptor.update(plain) + encryptor.finalize()
        return header + salt + commitment + hidden + encryptor.tag
    return header + hashlib.sha256(DOMAIN + _whole(header) + directory + body).digest()[:16] + body


def _body(
    blob: bytes, secrets: Iterable[bytes], binding: Mapping[str, str] | None, directory: bytes = b""
) -> bytes:
    header = blob[:16]
    if header[5] == PLAIN:
        if blob[16:32] != hashlib.sha256(DOMAIN + _whole(header) + directory + blob[32:]).digest()[:16]:
            raise Refused("digest")
        return blob[32:]
    for secret in secrets:
        if key_id(secret) != header[12:]:
            continue
        if header[5] == SIGNED:
            try:
                _tag(header, blob[48:], secret, binding, directory).verify(blob[16:48])
            except InvalidSignature:
                continue
            return blob[48:]
        key, nonce, commitment = _aes(header, secret, blob[16:48])
        if not constant_time.bytes_eq(commitment, blob[48:80]) or len(blob) < 96:
            continue
        decryptor = Cipher(algorithms.AES256(key), modes.GCM(nonce, blob[-16:])).decryptor()
        more = [directory] if directory else []
        associated = pae([DOMAIN, _whole(header), blob[16:48], *_pieces(binding), *more])
        decryptor.authenticate_additional_data(associated)
        try:
            inner = decryptor.update(blob[80:-16]) + decryptor.finalize()
        except InvalidTag:
            continue
        (length,) = struct.unpack(">I", inner[:4].rjust(4, b"\xff"))
        padding = inner[4 + length :]
        if len(inner) < 4 + length or len(padding) >= 256 or any(padding):
            raise Refused("inner")
        return inner[4 : 4 + length]
    raise Refused("no key opens it")


def leb128(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number % 128 + 128])
        number //= 128
    return out + bytes([number])


def _number(stream: io.BytesIO) -> int:
    coded = b""
    while not coded or coded[-1] > 127:
        byte = stream.read(1)
        if not byte or len(coded) == 5:
            raise Refused("number")
        coded += byte
    number = sum((byte & 127) << 7 * at for at, byte in enumerate(coded))
    if leb128(number) != coded or number >= 2**32:
        raise Refused("number")
    return number


def _inflated(stored: bytes, raw_len: int, compression: int) -> bytes:
    used = zstandard.ZstdCompressionDict(_dictionary()[0]) if compression == 2 else None
    reader = zstandard.ZstdDecompressor(dict_data=used, max_window_size=2**23).decompressobj()
    try:
        frame = zstandard.get_frame_parameters(stored)
        if (frame.content_size, frame.has_checksum, frame.dict_id) != (raw_len, False, 0):
            raise Refused("frame")
        raw = reader.decompress(stored)
    except zstandard.ZstdError:
        raise Refused("frame") from None
    if len(raw) != raw_len or not reader.eof or reader.unused_data:
        raise Refused("frame")
    return raw


class SecondPart(NamedTuple):
    """One part as the directory lists it."""

    kind: int
    place: int
    raw_len: int
    entries: int
    stored: bytes
    digest: bytes


def _part_data(kind: int, raw_len: int, entries: int, binding: Mapping[str, str] | None) -> bytes:
    numbers = [struct.pack(">I", number) for number in (kind, raw_len, entries)]
    return pae([DOMAIN + b"/part", *numbers, *_pieces(binding)])


def sealed_part(
    kind: int,
    raw: bytes,
    entries: int,
    suite: int,
    secret: bytes = b"",
    binding: Mapping[str, str] | None = None,
) -> SecondPart:
    """An inline part, uncompressed."""
    stored = raw
    if suite == ENCRYPTED:
        salt = os.urandom(32)
        key, nonce, commitment = _aes(bytes(12) + key_id(secret), secret, salt)
        encryptor = Cipher(algorithms.AES256(key), modes.GCM(nonce)).encryptor()
        encryptor.authenticate_additional_data(_part_data(kind, len(raw), entries, binding))
        hidden = encryptor.update(struct.pack(">I", len(raw)) + raw) + encryptor.finalize()
        stored = key_id(secret) + salt + commitment + hidden + encryptor.tag
    return SecondPart(kind, 0, len(raw), entries, stored, hashlib.sha256(stored).digest())


def part_bytes(
    part: SecondPart, suite: int, compression: int, secret: bytes, binding: Mapping[str, str] | None
) -> bytes:
    """The raw bytes of an inline part."""
    if hashlib.sha256(part.stored).digest() != part.digest:
        raise Refused("digest of a part")
    packed = part.stored
    if suite == ENCRYPTED:
        named, salt, commitment, hidden = packed[:4], packed[4:36], packed[36:68], packed[68:]
        key, nonce, expected = _aes(bytes(12) + named, secret, salt)
        if commitment != expected:
            raise Refused("commitment of a part")
        decryptor = Cipher(algorithms.AES256(key), modes.GCM(nonce, hidden[-16:])).decryptor()
        decryptor.authenticate_additional_data(_part_data(part.kind, part.raw_len, part.entries, binding))
        inner = decryptor.update(hidden[:-16]) + decryptor.finalize()
        packed = inner[4 : 4 + struct.unpack(">I", inner[:4])[0]]
    return packed if len(packed) == part.raw_len else _inflated(packed, part.raw_len, compression)


def _directory_of(parts: Iterable[SecondPart], count: int | None = None) -> bytes:
    listed = list(parts)
    out = leb128(len(listed) if count is None else count)
    for part in listed:
        numbers = (part.kind, part.place, len(part.stored), part.raw_len, part.entries)
        out += b"".join(map(leb128, numbers)) + part.digest
    return out


def _seal_end(suite: int) -> int:
    return 16 + {PLAIN: 16, SIGNED: 32, ENCRYPTED: 64}[suite]


def sealed_whole(
    segments: Iterable[SecondSegment],
    parts: Iterable[SecondPart],
    suite: int,
    compression: int,
    secret: bytes = b"",
    binding: Mapping[str, str] | None = None,
    *,
    flags: int = 1,
    count: int | None = None,
    behind: bytes = b"",
) -> bytes:
    """A blob with a directory and parts, its segments stored as they are."""
    body = b""
    total = 0
    for each in segments:
        body += b"".join(map(leb128, (each.kind, len(each.raw), len(each.raw), each.entries))) + each.raw
        total += len(each.raw)
    listed = list(parts)
    header = bytearray(header_of(suite, compression, total, secret))
    header[7] = flags
    directory = _directory_of(listed, count)
    blob = sealed(bytes(header), body, secret, binding, directory=directory)
    end = _seal_end(suite)
    inline = b"".join(part.stored for part in listed if part.place == 0)
    return blob[:end] + directory + blob[end:] + inline + behind


def resealed_plain(blob: bytes) -> bytes:
    """A plain blob with a directory, and a digest that fits whatever stands in it if its lengths do."""
    try:
        start = _parts_of(blob)[2]
    except Refused:
        start = len(blob)
    return blob[:16] + hashlib.sha256(DOMAIN + _whole(blob[:16]) + blob[32:start]).digest()[:16] + blob[32:]


def _parts_of(blob: bytes) -> tuple[list[SecondPart], int, int]:
    """What the directory lists, where it ends, and where the parts begin."""
    start = _seal_end(blob[5])
    stream, found = io.BytesIO(blob[start:]), []
    for _ in range(min(_number(stream), len(blob))):
        kind, place, stored_len, raw_len, entries = (_number(stream) for _ in range(5))
        digest = stream.read(32)
        if len(digest) < 32:
            raise Refused("directory")
        found.append((SecondPart(kind, place, raw_len, entries, b"", digest), stored_len))
    begin = at = len(blob) - sum(size for part, size in found if part.place == 0)
    if begin < start + stream.tell():
        raise Refused("parts")
    parts = []
    for part, size in found:
        if part.place == 0:
            part, at = part._replace(stored=blob[at : at + size]), at + size
        parts.append(part)
    return parts, start + stream.tell(), begin


def whole(
    blob: bytes, secrets: Iterable[bytes] = (), binding: Mapping[str, str] | None = None
) -> tuple[list[SecondSegment], list[SecondPart]]:
    """Segments and parts of an authentic blob that has a directory."""
    if blob[7] != 1:
        raise Refused("flags")
    parts, end, begin = _parts_of(blob)
    start = _seal_end(blob[5])
    body = _body(blob[:start] + blob[end:begin], secrets, binding, blob[start:end])
    return segments_of(body, blob[6]), parts


def segments_of(body: bytes, compression: int) -> list[SecondSegment]:
    """The body's segments, in the order that the page allows."""
    stream, found = io.BytesIO(body), []
    while stream.tell() < len(body):
        kind, stored_len, raw_len, entries = (_number(stream) for _ in range(4))
        stored = stream.read(stored_len)
        last = found[-1].kind if found else -1
        in_order = kind > last or kind == last == 1 or kind == last > 31
        if 4 < kind < 32 or kind > 63 or not in_order or (not found and kind) or len(stored) != stored_len:
            raise Refused("segment")
        if not 1 <= stored_len <= raw_len or (stored_len < raw_len and not compression):
            raise Refused("segment")
        raw = stored if stored_len == raw_len else _inflated(stored, raw_len, compression)
        found.append(SecondSegment(kind, entries, raw))
    if not found or found[0].entries:
        raise Refused("segment")
    return found


def opened(
    blob: bytes, secrets: Iterable[bytes] = (), binding: Mapping[str, str] | None = None
) -> list[SecondSegment]:
    """The inflated segments of an authentic blob of any suite."""
    if len(blob) < 16 or blob[:5] != b"\xf5GAS\x01" or blob[5] not in (PLAIN, SIGNED, ENCRYPTED):
        raise Refused("header")
    if blob[6] > 2 or blob[7] or (blob[5] == PLAIN and any(blob[12:16])):
        raise Refused("header")
    segments = segments_of(_body(blob, secrets, binding), blob[6])
    total = 0 if blob[5] == ENCRYPTED else sum(len(each.raw) for each in segments)
    if total != int.from_bytes(blob[8:12], "big"):
        raise Refused("length")
    return segments
