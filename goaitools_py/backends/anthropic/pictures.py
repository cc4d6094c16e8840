"""How many pictures of a Messages history are sent, and how large they are.

Owns: the limit of pictures with its steps, and the size in a picture's first bytes. Must never know: where a
picture stands in a message.

"If you include more than 20 images in a single request, each may have at most 2000x2000 px", else 8000x8000
(platform.claude.com/docs, vision; "At least one of the image dimensions exceed max allowed size for
many-image requests: 2000 pixels", can1357/oh-my-pi#10633, 2026-09). The oldest pictures are left out, ten at
once, so that the beginning of the history changes only with each tenth picture.

Sizes: the chunk IHDR of PNG, the logical screen of GIF, the chunks VP8, VP8L and VP8X of WebP, and the
frame header (SOF) of JPEG, behind at most 200 other segments. Only these bytes are decoded.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64
from typing import Final

__all__ = ["LEFT_OUT", "picture_size", "skipped_pictures"]

MOST: Final = 20
_STEP: Final = 10
_LARGEST: Final = 2_000
"""Pixels of a side. Above `MOST` pictures none may have more."""

LEFT_OUT: Final = b'{"type":"text","text":"[image: left out, because the provider takes no more pictures]"}'
"""Stands in the place of a picture."""

_PICTURE: Final = re.compile(rb'"type"\s*:\s*"image"')
_DATA: Final = re.compile(rb'"data"\s*:\s*"')
"""Quotes inside a string are escaped, so both are members."""

_MOST_SEGMENTS: Final = 200


def skipped_pictures(whole: bytes, *, only_large: bool) -> int:
    """How many pictures of a history are left out, the oldest first.

    Args:
        whole: The history, unread.
        only_large: True: none, unless a picture is known to be too large. Pictures behind an URL are not.
    """
    if whole.count(b'"image"') <= MOST:
        return 0
    found = len(_PICTURE.findall(whole))
    if found <= MOST or (only_large and not _has_large(whole)):
        return 0
    return -(-(found - MOST) // _STEP) * _STEP


def _has_large(whole: bytes) -> bool:
    return any(max(picture_size(whole, data.end())) > _LARGEST for data in _DATA.finditer(whole))


def picture_size(text: bytes, start: int = 0) -> tuple[int, int]:
    """Width and height of a picture; (0, 0) if they cannot be read.

    Args:
        text: Holds the picture's bytes as base64.
        start: Where they begin.
    """
    head = _decoded(text, start, 0, 30)
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        return _big(head[16:20]), _big(head[20:24])
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return _little(head[6:8]), _little(head[8:10])
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp(head)
    return _jpeg(text, start) if head.startswith(b"\xff\xd8\xff") else (0, 0)


def _webp(head: bytes) -> tuple[int, int]:
    kind = head[12:16]
    if kind == b"VP8X":
        return _little(head[24:27]) + 1, _little(head[27:30]) + 1
    if kind == b"VP8L":
        bits = _little(head[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return (_little(head[26:28]) & 0x3FFF, _little(head[28:30]) & 0x3FFF) if kind == b"VP8 " else (0, 0)


def _jpeg(text: bytes, start: int) -> tuple[int, int]:
    at = 2
    for _ in range(_MOST_SEGMENTS):
        segment = _decoded(text, start, at, 9)
        if len(segment) < 9 or segment[0] != 0xFF:
            break
        kind = segment[1]
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            return _big(segment[7:9]), _big(segment[5:7])
        at += 1 if kind == 0xFF else 2 + _big(segment[2:4])
    return 0, 0


def _decoded(text: bytes, start: int, at: int, count: int) -> bytes:
    """`count` of the decoded bytes, from the place `at` on. Only the characters of these are read."""
    first = at // 3
    last = -(-(at + count) // 3)
    try:
        found = a2b_base64(text[start + 4 * first : start + 4 * last])
    except Error:
        return b""
    return found[at - 3 * first :][:count]


def _big(raw: bytes) -> int:
    return int.from_bytes(raw)


def _little(raw: bytes) -> int:
    return int.from_bytes(raw, "little")
