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
    "SecondSegment",
    "header_of",
    "key_id",
    "leb128",
    "opened",
    "pae",
    "sealed",
    "segments_of",
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


def _tag(header: bytes, body: bytes, secret: bytes, binding: Mapping[str, str] | None) -> hmac.HMAC:
    mac = hmac.HMAC(_hkdf(secret, DOMAIN + b"/mac", 32), hashes.SHA256())
    mac.update(pae([DOMAIN, _whole(header), *_pieces(binding), body]))
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
) -> bytes:
    """A blob with a fitting seal, of whatever header and body.

    `inner` is what is encrypted instead of both the length and the body; without a `salt` it is random;
    `suite` is whose seal it gets if not that of the suite in the header.
    """
    suite = header[5] if suite is None else suite
    if suite == SIGNED:
        return header + _tag(header, body, secret, binding).finalize() + body
    if suite == ENCRYPTED:
        salt = os.urandom(32) if salt is None else salt
        key, nonce, commitment = _aes(header, secret, salt)
        encryptor = Cipher(algorithms.AES256(key), modes.GCM(nonce)).encryptor()
        encryptor.authenticate_additional_data(pae([DOMAIN, _whole(header), salt, *_pieces(binding)]))
        plain = struct.pack(">I", len(body)) + body if inner is None else inner
        hidden = encryptor.update(plain) + encryptor.finalize()
        return header + salt + commitment + hidden + encryptor.tag
    return header + hashlib.sha256(DOMAIN + _whole(header) + body).digest()[:16] + body


def _body(blob: bytes, secrets: Iterable[bytes], binding: Mapping[str, str] | None) -> bytes:
    header = blob[:16]
    if header[5] == PLAIN:
        if blob[16:32] != hashlib.sha256(DOMAIN + _whole(header) + blob[32:]).digest()[:16]:
            raise Refused("digest")
        return blob[32:]
    for secret in secrets:
        if key_id(secret) != header[12:]:
            continue
        if header[5] == SIGNED:
            try:
                _tag(header, blob[48:], secret, binding).verify(blob[16:48])
            except InvalidSignature:
                continue
            return blob[48:]
        key, nonce, commitment = _aes(header, secret, blob[16:48])
        if not constant_time.bytes_eq(commitment, blob[48:80]) or len(blob) < 96:
            continue
        decryptor = Cipher(algorithms.AES256(key), modes.GCM(nonce, blob[-16:])).decryptor()
        decryptor.authenticate_additional_data(pae([DOMAIN, _whole(header), blob[16:48], *_pieces(binding)]))
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


def segments_of(body: bytes, compression: int) -> list[SecondSegment]:
    """The body's segments, in the order that the page allows."""
    stream, found = io.BytesIO(body), []
    while stream.tell() < len(body):
        kind, stored_len, raw_len, entries = (_number(stream) for _ in range(4))
        stored = stream.read(stored_len)
        last = found[-1].kind if found else -1
        in_order = kind > last or kind == last == 1
        if kind > 4 or not in_order or (not found and kind) or len(stored) != stored_len:
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
