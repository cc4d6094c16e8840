"""Reads requests' bodies: JSON with known members, and files as data URLs.

Owns: the checks that all front ends share. Must never know: a front end's own members.
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson

from ..messages import Audio, Document, Image, Part, Text
from .base import AskError

__all__ = ["MAX_ID_CHARACTERS", "json_object", "media_of", "part_of", "text_of"]

MAX_ID_CHARACTERS = 256
"""The longest name of a conversation, a message or a call."""


def json_object(body: bytes) -> dict[str, Any]:
    """Read a body that is a JSON object."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise AskError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise AskError(f"the body must be a JSON object, not {type(found).__name__}")
    return found


def text_of(found: dict[str, Any], name: str, *, most: int | None = MAX_ID_CHARACTERS) -> str:
    """Give a member that must be text with at least one character."""
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise AskError(f"{name} must be text with at least one character")
    if most is not None and len(value) > most:
        raise AskError(f"{name} must have at most {most} characters, got {len(value)}")
    return value


def media_of(url: str, media_type: str, name: str | None) -> Part:
    """Make a part of a file that a client sends as a data URL.

    Other URLs are refused: a client must not choose what your provider fetches.
    """
    if not url.startswith("data:"):
        raise AskError("a file must be sent as a data URL")
    head, comma, payload = url[5:].partition(",")
    if not comma:
        raise AskError("a data URL has no comma")
    try:
        is_base64 = head.endswith(";base64")
        data = base64.b64decode(payload, validate=True) if is_base64 else unquote_to_bytes(payload)
    except ValueError:  # of binascii, or because it is not ASCII
        raise AskError("a data URL is not base64") from None
    return part_of(data, media_type, name)


def part_of(data: bytes, media_type: str, name: str | None) -> Part:
    """Make a part of a file that a client sends."""
    if not data:
        raise AskError("a file is empty")
    kind = media_type.partition("/")[0]
    if kind == "text":
        return Text(data.decode("utf-8", "replace"))
    try:
        if kind == "image":
            return Image.from_bytes(data, media_type)
        if kind == "audio":
            return Audio.from_bytes(data, media_type)
        return Document.from_bytes(data, media_type, name=name)
    except ValueError:
        raise AskError("the media type of a file must be written as in image/png") from None
