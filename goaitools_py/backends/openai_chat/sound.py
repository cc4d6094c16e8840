"""Replies with sound: their stored form, and the form that a request repeats.

Owns: the transcript as the message's text, the id until it expires, and the transcript afterwards.
Must never know: a clock, or a message's other members.

A response has ``audio: {id, data, transcript, expires_at}`` and null as its content. A request takes
``audio: {id}`` only, and refuses an id that has expired, an hour after the reply (openai 3.54,
types/chat/chat_completion_audio). So a message is stored with its transcript as content, beside ``{id}``. A
request sends one of the two: the id while it is valid, the content later. The state holds the valid ids
(`Reply.carried`), with their expiry. So only the sender of a request needs a clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...base import rawjson
from ..wire.tolerance import as_dict, as_str, count

__all__ = ["MARK", "carried_of", "has_sound", "sent", "transcript_of"]

MARK: Final = "audio"
"""The mark of a state with a message with sound. Other states are not searched for one."""

_LOST: Final = "[a spoken reply without a transcript]"
_EARLY_MS: Final = 60_000
"""An id counts as expired this much earlier: the request is on its way for a while, and clocks differ."""


def has_sound(message: Mapping[str, Any]) -> bool:
    """True for a message with the id of a sound. A server without sound sends hollow members."""
    return bool(as_str(as_dict(message.get("audio")).get("id")))


def transcript_of(message: Mapping[str, Any]) -> str:
    """The transcript of the sound; "" without sound."""
    return as_str(as_dict(message.get("audio")).get("transcript")) if has_sound(message) else ""


def carried_of(message: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """The marks of a message, in the form of `Reply.carried`. An id without an expiry counts as expired if
    there is a text to send in its place."""
    if not has_sound(message):
        return {}
    audio = message["audio"]
    until = count(audio.get("expires_at")) * 1000 - _EARLY_MS
    has_text = bool(message.get("content")) or bool(as_str(audio.get("transcript")))
    if until <= 0 and has_text:
        return {MARK: ("", 0)}
    name = f"{MARK}:{hashlib.sha256(audio['id'].encode('utf-8', 'replace')).hexdigest()[:16]}"
    return {MARK: ("", 0), name: (audio["id"], max(until, 0))}


def sent(history: Sequence[bytes], carried: Mapping[str, str]) -> Sequence[bytes]:
    """The history with the id or the text of each sound.

    Args:
        history: Pieces of entries joined by ``,\\n``, unread.
        carried: The marks that are valid now.
    """
    if MARK not in carried:
        return history
    valid = frozenset(carried.values())
    return [_piece(piece, valid) for piece in history]


_NEEDLE: Final = b'"audio"'


def _piece(piece: bytes, valid: frozenset[str]) -> bytes:
    whole = bytes(piece)
    if _NEEDLE not in whole:
        return piece
    return b",\n".join(_entry(entry, valid) for entry in whole.split(b",\n"))


def _entry(entry: bytes, valid: frozenset[str]) -> bytes:
    message = as_dict(rawjson.view(entry)) if _NEEDLE in entry else {}
    if message.get("role") != "assistant" or not has_sound(message):
        return entry
    if message["audio"]["id"] in valid:
        return rawjson.replaced(entry, {"content": b"null"}) if message.get("content") else entry
    left = rawjson.without(entry, {"audio"})
    if message.get("content") or message.get("tool_calls"):
        return left
    return rawjson.replaced(left, {"content": rawjson.dumps(transcript_of(message) or _LOST)})
