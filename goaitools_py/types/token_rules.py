"""Counts tokens: of pictures, documents and sound, and of text with the vocabulary of OpenAI's models.

Owns: reading a picture's size from its first bytes, the providers' published rules, and the counter that uses
the package tiktoken (the extra ``[tiktoken]``). Must never know: a provider's JSON, a state, a request.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from ..base.values import Value
from .messages import Audio, Document, Image, Message, Part, Text

__all__ = ["MediaRates", "TiktokenCounter", "image_size", "media_tokens"]


class MediaRates(Value, frozen=True, kw_only=True):
    """Tokens of pictures and documents at a provider.

    Attributes:
        image: For a picture of unknown size: one by URL, or in a format that is not read here.
        page: For a page of a PDF.
        by_tiles: True: pictures count by tiles of 512 pixels, as at OpenAI. False: by their area, as at
            Anthropic.
    """

    image: int = 500
    page: int = 400
    by_tiles: bool = True


_AUDIO_BYTES: Final = 3_200
"""Bytes of sound for one token. OpenAI counts 10 tokens a second; a second of 16 kHz PCM is 32,000 bytes."""


def media_tokens(part: Part, rates: MediaRates) -> int:
    """Tokens of a part that is not text, by the rule of the provider."""
    if isinstance(part, Image):
        return _image_tokens(part, rates)
    if isinstance(part, Document):
        pages = part.data.count(b"/Type /Page") + part.data.count(b"/Type/Page") if part.data else 0
        trees = part.data.count(b"/Type /Pages") + part.data.count(b"/Type/Pages") if part.data else 0
        return max(1, pages - trees) * rates.page
    if isinstance(part, Audio):
        return len(part.data or b"") // _AUDIO_BYTES
    return 0


def _image_tokens(image: Image, rates: MediaRates) -> int:
    if image.detail == "low" and rates.by_tiles:
        return 85
    size = image_size(image.data) if image.data else None
    if size is None:
        return rates.image
    return _openai_tokens(*size) if rates.by_tiles else _anthropic_tokens(*size)


def _anthropic_tokens(width: int, height: int) -> int:
    """Width times height, divided by 750. Larger pictures are scaled down to 1568 pixels and 1,600 tokens
    (platform.claude.com/docs/en/build-with-claude/vision)."""
    shrink = min(1.0, 1568 / max(width, height))
    return min(1_600, math.ceil(width * shrink * height * shrink / 750))


def _openai_tokens(width: int, height: int) -> int:
    """85, plus 170 for each tile of 512 pixels, after the picture was scaled to fit 2048 by 2048 and its
    shorter side 768 (platform.openai.com/docs/guides/images-vision, gpt-4o). Other models differ by a
    factor."""
    shrink = min(1.0, 2048 / max(width, height))
    width, height = max(1, round(width * shrink)), max(1, round(height * shrink))
    shrink = min(1.0, 768 / min(width, height))
    tiles = math.ceil(width * shrink / 512) * math.ceil(height * shrink / 512)
    return 85 + 170 * tiles


# ------------------------------------------------------------------------------------- sizes of pictures


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels of a PNG, GIF, JPEG or WebP; None for another format or broken data."""
    try:
        size = _size(data)
    except (struct.error, IndexError):
        return None
    return size if size and all(size) else None


def _size(data: bytes) -> tuple[int, int] | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack_from(">II", data, 16)
        return width, height
    if data.startswith((b"GIF87a", b"GIF89a")):
        width, height = struct.unpack_from("<HH", data, 6)
        return width, height
    if data.startswith(b"\xff\xd8"):
        return _jpeg_size(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp_size(data)
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a start of frame
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        (length,) = struct.unpack_from(">H", data, at + 2)
        if length < 2:
            return None
        at += 2 + length
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


_FRAME = 4
"""Tokens for a message's role and delimiters, and again for each call."""


class TiktokenCounter:
    """A `TokenCounter` with the exact vocabulary of an OpenAI model.

    tiktoken downloads a vocabulary at its first use, unless ``TIKTOKEN_CACHE_DIR`` has it. So make the
    counter once, when your program starts. The count is still an estimate, because a prompt holds more than
    the text of messages. `Chat.count_tokens` asks the provider.

    Args:
        model: A name such as "gpt-4o". For a model that tiktoken does not know, "o200k_base" is used.

    Raises:
        ImportError: tiktoken is not installed.
        RuntimeError: The vocabulary is not there and could not be downloaded.
    """

    def __init__(self, model: str = "gpt-4o") -> None:
        try:
            import tiktoken
        except ImportError as exc:
            raise ImportError(
                "TiktokenCounter needs the package tiktoken: pip install 'goaitools-py[tiktoken]'"
            ) from exc
        try:
            try:
                name = tiktoken.encoding_name_for_model(model.rpartition("/")[2])
            except KeyError:
                name = "o200k_base"
            self._encoding = tiktoken.get_encoding(name)
        except Exception as exc:
            raise RuntimeError(
                f"tiktoken could not load its vocabulary ({type(exc).__name__}), which it downloads once: "
                "allow the download, or set TIKTOKEN_CACHE_DIR to a directory with it, or use TokenEstimate"
            ) from exc
        self._model = model

    def __repr__(self) -> str:
        return f"TiktokenCounter({self._model!r})"

    def count(self, message: Message, /) -> int:
        """The message's tokens, with the tokens that the provider adds for its role."""
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        texts += [f"{call.name}{call.arguments}" for call in message.tool_calls]
        words = sum(len(self._encoding.encode(text, disallowed_special=())) for text in texts)
        media = sum(media_tokens(part, MediaRates()) for part in message.parts if not isinstance(part, Text))
        return _FRAME * (1 + len(message.tool_calls)) + words + media
