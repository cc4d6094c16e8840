"""Media once: large base64 in an entry is stored as a reference, and the decoded bytes as a part.

Owns: which text is cut out of an entry, the form of a reference, and the way back. Must never know: the
content of an entry, or which provider wrote it.

::

    reference = FF | SHA-256 of the decoded bytes, 43 characters of base64url | FF

FF never occurs in UTF-8, and so in no entry. This module cuts out text between two quotation marks, after an
optional ``data:…,``, if it is canonical base64 of 4,096 bytes or more. All other text stays as it is, for
example base64 without its padding. Encoding the decoded bytes gives exactly the text that was cut out, so a
provider gets the same bytes in every request.

Only segments and records of the archive hold references. Each function that gives entries gives them whole.
"""

from __future__ import annotations

import base64
import hashlib
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ..base.values import Value
from ..types.errors import StateInvalidError
from .codec import PLAIN, Codec
from .parts import MAX_PART_BYTES, MEDIA, Part, new_part

__all__ = [
    "LEAST_BYTES",
    "MARK",
    "Media",
    "Medium",
    "added_by",
    "cut_out",
    "digest_of",
    "put_back",
    "references",
    "shortened",
]

LEAST_BYTES: Final = 4096
"""The fewest decoded bytes that are stored once. All releases cut alike, so it never changes."""
MARK: Final = b"\xff"

_LEAST_TEXT: Final = 4 * -(-LEAST_BYTES // 3)
_DIGEST_CHARACTERS: Final = 43
_REFERENCE_BYTES: Final = _DIGEST_CHARACTERS + 2


class Medium(Value, frozen=True, eq=False):
    """The decoded bytes of one medium: its part, and the codec and binding that open the part."""

    part: Part
    codec: Codec = PLAIN
    binding: Any = None

    def text(self) -> bytes:
        """Give the base64 that was cut out. Raises `StateError` if the part is damaged or elsewhere."""
        return b2a_base64(self.part.raw(self.codec, self.binding), newline=False)

    @property
    def added(self) -> int:
        """How many bytes more than its reference the base64 has."""
        return 4 * -(-self.part.raw_len // 3) - _REFERENCE_BYTES


Media = Mapping[bytes, Medium]
"""Media by the 43 characters of their digests."""


def digest_of(data: bytes) -> bytes:
    """Give the 43 characters that name a medium."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest())[:_DIGEST_CHARACTERS]


# -------------------------------------------------------------------------------------------- cutting


def cut_out(entries: Sequence[bytes]) -> tuple[Sequence[bytes], Media | None]:
    """Cut the media out of entries: give the entries as they are stored, and the media in order.

    Gives the very entries, and None, if there are no media in them.
    """
    for entry in entries:
        if len(entry) > _LEAST_TEXT:
            break
    else:
        return entries, None
    media: dict[bytes, Medium] = {}
    stored = [_cut(entry, media) if len(entry) > _LEAST_TEXT else entry for entry in entries]
    return (stored, media) if media else (entries, None)


def _cut(entry: bytes, media: dict[bytes, Medium]) -> bytes:
    if not _has_long(entry):
        return entry
    pieces = entry.split(b'"')
    is_cut = False
    for place in range(1, len(pieces) - 1):
        piece = pieces[place]
        if len(piece) < _LEAST_TEXT:
            continue
        start = piece.rfind(b",") + 1 if piece.startswith(b"data:") else 0
        text = piece[start:]
        # A digest of the decoded bytes is enough only if they give back the same text. So text that is not
        # canonical base64 stays where it is.
        decoded = _decoded(text)
        if decoded is None:
            continue
        name = digest_of(decoded)
        if name not in media:
            # The first use decides the place of a medium, so equal histories give equal blobs.
            media[name] = Medium(new_part(MEDIA, decoded, 1))
        pieces[place] = b"%s\xff%s\xff" % (piece[:start], name)
        is_cut = True
    return b'"'.join(pieces) if is_cut else entry


def _has_long(entry: bytes) -> bool:
    """True if an entry has a medium's length of text without a quotation mark.

    It looks at few bytes of an entry that has many marks, and makes no piece for each.
    """
    at = 0
    while at + _LEAST_TEXT <= len(entry):
        last = entry.rfind(b'"', at, at + _LEAST_TEXT)
        if last < 0:
            return True
        at = last + 1
    return False


def _decoded(text: bytes) -> bytes | None:
    """Decode base64. None if it is not canonical, or too short or too long for a part."""
    if len(text) < _LEAST_TEXT or len(text) % 4:
        return None
    try:
        decoded = a2b_base64(text, strict_mode=True)
    except Error:
        return None
    if not LEAST_BYTES <= len(decoded) <= MAX_PART_BYTES or b2a_base64(decoded, newline=False) != text:
        return None
    return decoded


# ----------------------------------------------------------------------------------------- putting back


def references(data: bytes) -> list[bytes]:
    """Give the names of the media in stored text, each as often as it occurs.

    Raises `StateInvalidError` if the text has FF bytes that are no references.
    """
    return _split(data)[1::2] if MARK in data else []


def _split(data: bytes) -> list[bytes]:
    """Split stored text at its marks. Each second piece is a name."""
    marks = data.count(MARK)
    if marks % 2 or marks // 2 * _REFERENCE_BYTES > len(data):  # before each mark becomes a piece
        raise _invalid("bytes that no text has")
    pieces = data.split(MARK)
    # The size of the text with its media was, or will be, computed from this length.
    if any(len(name) != _DIGEST_CHARACTERS for name in pieces[1::2]):
        raise _invalid("bytes that no text has")
    return pieces


def added_by(names: Iterable[bytes], media: Media) -> int:
    """Count how many bytes longer text gets when these references are put back.

    Raises `StateInvalidError` if the state does not have one of the media.
    """
    try:
        return sum([media[name].added for name in names])
    except KeyError:
        raise _missing() from None


def put_back(data: bytes, media: Media, only: Collection[bytes] | None = None) -> bytes:
    """Put the base64 of media back into stored text. The caller knows by `added_by` how long it gets.

    `only`: the names of the media to put back; the other references stay. None: all.

    Raises:
        StateInvalidError: The text is damaged, or the state does not have a medium.
        StateError: A part is damaged, or elsewhere.
    """
    if MARK not in data:
        return data
    pieces = _split(data)
    texts: dict[bytes, bytes] = {}
    for place in range(1, len(pieces), 2):
        name = pieces[place]
        text = texts.get(name)
        if text is None:
            if only is not None and name not in only:
                text = b"\xff%s\xff" % name
            elif (medium := media.get(name)) is not None:
                text = medium.text()
            else:
                raise _missing()
            texts[name] = text
        pieces[place] = text
    return b"".join(pieces)


def shortened(data: bytes) -> bytes:
    """Give stored text with three bytes in place of each medium: the same JSON, for readers of text."""
    if MARK not in data:
        return data
    pieces = _split(data)
    pieces[1::2] = [b"AAAA"] * (len(pieces) // 2)
    return b"".join(pieces)


def _missing() -> StateInvalidError:
    return _invalid("a medium that the state does not have")


def _invalid(found: str) -> StateInvalidError:
    return StateInvalidError(f"an entry of the state has {found}; the state cannot be used")
