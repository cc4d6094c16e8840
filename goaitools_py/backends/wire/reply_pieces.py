"""The neutral pieces of a model's reply: texts, calls, results, losses.

Owns: these values, the text that replaces a hosted tool's work, and the digest for an id that a provider API
does not take. Must never know: a provider's JSON, or a state.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from ...base.values import Value
from ...types.messages import ToolCall
from ...types.render import user_text

__all__ = ["Called", "LossKind", "Lost", "Piece", "Said", "hosted", "id_of_call", "outcome", "reply_text"]

LossKind = Literal[
    "arguments",  # the arguments of a call are not a JSON object; the call has {} now
    "archive",  # turns that a cut took out stay in the archive as they were; that cut cannot be undone
    "call_id",  # a call with the id of an earlier call has got another id; its result too
    "carried",  # a value that later requests had to repeat, such as the id of a container, is gone
    "citations",  # the links from a reply's text to its sources are gone; `HistoryTurn.citations` has them
    "compaction",  # the readable part of a provider's compaction became text
    "custom_call",  # a call of a tool that takes free text became a call with {"input": text}
    "empty",  # a message without any content was left out, or got a word in its place
    "hosted_tool",  # the work of a tool that the provider runs became text
    "image_detail",  # the detail in which a picture is to be read
    "later",  # names, segments and parts that a later release added
    "media",  # a picture, a document or a sound became a line of text with its type
    "mended",  # an exchange had to be repaired for the other provider API
    "open_turn",  # the unfinished turn was closed: its calls could not go on elsewhere
    "provider_call",  # a call of a provider's tool that the client runs became a call of a function
    "setting",  # a setting that held for later turns, and that the other provider API does not have
    "thinking",  # a block of thinking or reasoning, signed or not
    "tool_name",  # the name of a tool was cut or changed
    "unread",  # a part that this release cannot read
]
"""Parts that are lost on the way to another provider API."""


class Said(Value, frozen=True):
    """Text of a reply. `is_hosted`: it replaces the work of a tool that the provider ran."""

    _unshown = frozenset({"text"})

    text: str
    is_hosted: bool = False


class Called(Value, frozen=True):
    """A call of a reply."""

    call: ToolCall


class Lost(Value, frozen=True):
    """A part that other provider APIs cannot hold. `count`: how often."""

    kind: LossKind
    count: int = 1


Piece: TypeAlias = Said | Called | Lost


# ------------------------------------------------------------------------------------------- hosted tools

_LEFT_OUT: Final = frozenset(
    {
        "annotations",
        "cache_control",
        "call_id",
        "caller",
        "container_id",
        "encrypted_content",
        "encrypted_index",
        "encrypted_stdout",
        "file_id",
        "id",
        "logprobs",
        "role",
        "signature",
        "status",
        "tool_use_id",
        "type",
    }
)
"""Members of a hosted tool's items without meaning for a reader."""

_MOST_ITEMS: Final = 20
_MOST_CHARACTERS: Final = 2_000
_MOST: Final = 8_000


def hosted(name: str, given: Any) -> Said:
    """The text for a hosted tool's call, or for its result: its name, and its input or its findings.

    The text is bounded: 20 elements of a list, 2,000 characters of a string, 8,000 in all.
    """
    readable = _readable(given)
    words = json.dumps(readable, ensure_ascii=False, default=str) if readable not in (None, {}, []) else ""
    if len(words) > _MOST:
        words = words[: _MOST - 1] + "…"
    return Said(user_text(f"[{name}: {words}]" if words else f"[{name}]"), is_hosted=True)


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARACTERS else value[: _MOST_CHARACTERS - 1] + "…"
    if isinstance(value, Mapping):
        # Base64 is not for readers.
        hidden = _LEFT_OUT | ({"data"} if value.get("type") == "base64" else set())
        found = {name: _readable(one) for name, one in value.items() if name not in hidden}
        return {name: one for name, one in found.items() if one not in (None, "", {}, [])}
    if isinstance(value, (list, tuple)):
        return [_readable(one) for one in value[:_MOST_ITEMS]]
    return value


def outcome(name: str) -> str:
    """The name for a hosted tool's result in the text."""
    return f"{name} result"


def reply_text(pieces: Iterable[Piece]) -> tuple[str, list[tuple[int, int]]]:
    """The text of a reply, and where text for hosted tools was put in.

    Returns:
        The text, and for each insertion the place in the text without insertions and its length. The text for
        a hosted tool stands on a line of its own.
    """
    text, own = "", 0
    places: list[tuple[int, int]] = []
    needs_break = False
    for piece in pieces:
        if not isinstance(piece, Said) or not piece.text:
            continue
        lead = "\n" if text and (needs_break or piece.is_hosted) and not text.endswith("\n") else ""
        if piece.is_hosted:
            places.append((own, len(lead) + len(piece.text)))
        else:
            own += len(piece.text)
            if lead:
                places.append((own - len(piece.text), 1))
        text += lead + piece.text
        needs_break = piece.is_hosted
    return text, places


# --------------------------------------------------------------------------------------------------- ids


def id_of_call(id: str, prefix: str, pattern: re.Pattern[str], *, taken: bool) -> str:
    """The id itself if it fits the pattern and is free, else the prefix with a digest of it."""
    if not taken and pattern.fullmatch(id):
        return id
    return prefix + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:24]
