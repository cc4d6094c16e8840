"""The first 16 bytes of a blob, and the names of the damage that a value in its place has.

Owns: the layout of the header, its checks, and the facts that it tells without a key. Must never know: the
bytes behind the header.

Integers are big-endian::

    offset  size  field
         0     4  magic        F5 47 41 53; F5 never occurs in UTF-8, so a text column refuses it
         4     1  version      1; a newer release writes a greater one, and that is not damage
         5     1  suite        00 plain, 11 HMAC-SHA-256, 21 AES-256-GCM; fixes every algorithm
         6     1  compression  00 none, 01 zstd, 02 zstd with shipped dictionary 1;
                               80-FF are reserved for users' own dictionaries
         7     1  flags        bit 0: there is a directory; the others 0
         8     4  decoded_len  sum of all raw_len of the body; 0 in suite 21, where only the body says it
        12     4  key_id       0 in suite 00
"""

from __future__ import annotations

import struct
from typing import Final

from ..base.values import Value
from ..types.errors import StateAuthError, StateError, StateFormatError
from . import frames
from .codec import HEADER_BYTES, SUITE_AES_256_GCM, SUITES, BlobLimits, Codec, check_limit

__all__ = [
    "FORMAT_VERSIONS",
    "HAS_DIRECTORY",
    "MAGIC",
    "NEWEST",
    "Header",
    "check_header",
    "given_bytes",
    "may_take_long",
    "peek",
    "read_header",
]

FORMAT_VERSIONS: Final[dict[int, str]] = {
    1: "16-byte header, sealed body of segments, zstd with a shipped dictionary",
}
"""The changes of each format version, in one line. This release reads all of these versions, and writes the
last one."""

NEWEST: Final = 1

MAGIC: Final = b"\xf5GAS"
HAS_DIRECTORY: Final = 0x01
_HEADER: Final = struct.Struct(">4sBBBBII")


class Header(Value, frozen=True, kw_only=True):
    """The first 16 bytes of a blob. `peek` gives them unverified.

    If `version` is not in `FORMAT_VERSIONS`, the other fields may mean something else.
    """

    version: int
    suite: int
    compression: int
    flags: int = 0
    decoded_len: int
    key_id: int = 0

    def pack(self) -> bytes:
        """Write the 16 bytes of the header."""
        return _HEADER.pack(
            MAGIC, self.version, self.suite, self.compression, self.flags, self.decoded_len, self.key_id
        )


def peek(blob: bytes | bytearray | memoryview) -> Header:
    """Read a blob's header without verifying anything but its magic.

    Raises:
        StateFormatError: It is not a blob.
        StateCorruptError: It ends within the header.
        TypeError: It is neither bytes nor text.
    """
    source = given_bytes(blob)
    try:
        return read_header(source)
    except StateError as error:
        error.blob = bytes(source)
        raise


def may_take_long(blob: bytes, *, unknown: bool = False) -> bool:
    """True if reading meta data, inbox and open turn of a blob may take more than some milliseconds.

    The header alone decides, so it costs a microsecond. Text of conversations is inflated to three to six
    times its stored bytes. The header of an encrypted blob does not say to how many: `unknown`
    is the answer for a small one. A thread for it costs a turn more than it gains, because who can encrypt
    does not forge states.
    """
    if len(blob) < HEADER_BYTES or blob[:4] != MAGIC:
        return False
    # The header of an `apart.StateHead` says nothing of the history in its parts, which are read with it.
    if getattr(blob, "size", 0) > _LONG_BYTES // 8:
        return True
    if blob[5] == SUITE_AES_256_GCM:
        return unknown or len(blob) > _LONG_BYTES // 8
    decoded = int.from_bytes(blob[8:12], "big")
    return decoded > _LONG_BYTES or decoded > max(_LONG_BYTES // 8, _INFLATED * len(blob))


_LONG_BYTES: Final = 2 * 2**20
_INFLATED: Final = 16


def given_bytes(blob: object) -> bytes:
    """Give the bytes of a value that a caller passes as a blob. Text is refused with its likely damage."""
    if isinstance(blob, bytes):
        return blob
    if isinstance(blob, (bytearray, memoryview)):
        return bytes(blob)
    if isinstance(blob, str):
        text = blob.encode("utf-8", "surrogatepass")
        raise StateFormatError(f"a state is bytes, but this is text; {_likely_damage(text)}", blob=text)
    raise TypeError(f"a state must be bytes, bytearray or memoryview, not {type(blob).__name__}")


_BINARY: Final = "use a binary column or file mode"
_JSON: Final = (
    "it is JSON; states.import_state takes what export_state wrote, read with json.loads, and "
    "states.import_goaitools_state what the Go library goaitools wrote"
)
_REPR: Final = "it is the repr of a bytes object; store the bytes themselves, never str(state)"
_DAMAGES: Final = (
    (b"SQLite format 3\0", "it is a database of SQLite; SQLiteStore(path) reads the states in it"),
    (b"gas1.", "it is the text form; state_from_text gives its bytes"),
    (b"9UdBU", "it is base64; decode it with base64.b64decode before passing it on"),
    (b"\\xf5474153", r"it is PostgreSQL's \x form; use a bytea column, or bytes.fromhex behind the \x"),
    (b"f5474153", "it is hexadecimal; decode it with bytes.fromhex before passing it on"),
    (b"F5474153", "it is hexadecimal; decode it with bytes.fromhex before passing it on"),
    (b"b'\\xf5GAS", _REPR),
    (b'b"\\xf5GAS', _REPR),  # Python writes "…" if there is a ' and no " among the bytes
    (b"\xc3\xb5GAS", f"it was decoded as Latin-1 and became UTF-8 on the way; {_BINARY}"),
    (b"\xef\xbf\xbdGAS", f"it was decoded as UTF-8, which lost bytes; {_BINARY}"),
    (b"\xed\xb3\xb5GAS", f"it was decoded with surrogateescape; {_BINARY}"),
)
_OTHERWISE: Final = f"expected it to start with {MAGIC.hex(' ').upper()}; check which value was passed"


def _likely_damage(found: bytes) -> str:
    if not found:
        return "it is empty; pass state=None to start a conversation"
    for start, damage in _DAMAGES:
        if found.startswith(start):
            return damage
    return _JSON if found[:64].lstrip().startswith(b"{") else _OTHERWISE


def read_header(source: bytes) -> Header:
    """Read the header of a blob. Only the magic is checked."""
    # The beginning of a magic is a state that was cut off, so it is damage. Other bytes never were a state.
    if source[:4] != MAGIC and not (source and MAGIC.startswith(source)):
        raise StateFormatError(f"this is not a state; {_likely_damage(source)}")
    if len(source) < HEADER_BYTES:
        raise frames.corrupt(f"{len(source)} bytes are left of a {HEADER_BYTES}-byte header")
    _, version, suite, compression, flags, decoded_len, key_id = _HEADER.unpack_from(source)
    return Header(
        version=version,
        suite=suite,
        compression=compression,
        flags=flags,
        decoded_len=decoded_len,
        key_id=key_id,
    )


def check_header(header: Header, codec: Codec, limits: BlobLimits) -> None:
    """Raise `StateError` if this release, this codec or these limits cannot read a blob with this header."""
    # The version first: in a newer version each other field may mean something else.
    if header.version not in FORMAT_VERSIONS:
        if header.version == 0:
            raise frames.corrupt("it states format version 0, which never existed")
        raise frames.newer(f"format version {header.version}", f"at most {max(FORMAT_VERSIONS)}")
    if header.suite not in SUITES:
        raise frames.newer(f"suite 0x{header.suite:02x}", ", ".join(f"0x{suite:02x}" for suite in SUITES))
    # A keyed codec must never take a plain blob. Else a forger would just leave the key out.
    if header.suite != codec.suite:
        raise StateAuthError(
            f"state is {SUITES[header.suite]} (suite 0x{header.suite:02x}), but the codec opens suite "
            f"0x{codec.suite:02x} only; pass the codec that it was written with"
        )
    if header.compression not in frames.DICTIONARIES:
        known = ", ".join(f"0x{known:02x}" for known in frames.DICTIONARIES)
        raise frames.newer(f"compression 0x{header.compression:02x}", known)
    if header.flags & ~HAS_DIRECTORY:
        # A newer release may have given a bit a meaning. So this is not damage, and the blob must be kept.
        raise frames.newer(f"flags 0x{header.flags:02x}", "0x00 or 0x01")
    check_limit("max_decoded_bytes", limits.max_decoded_bytes, header.decoded_len)
