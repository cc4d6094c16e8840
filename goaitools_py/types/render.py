"""The form of this library's own texts in a conversation: events, context, speakers, system blocks, notes,
files of text.

Owns: the delimiters, escaping them in other text, and reading them back.
Must never know: any provider's JSON.

::

    <app-event topic="score" id="e-17">          <app-context>
    Ada reached Harrogate Theatre: +50 points    12:04, the station, 250 points
    </app-event>                                 </app-context>

    <app-system>                                 <app-note kind="summary">
    From now on the hall is dark                 Ada found the key and gave it to Tom
    </app-system>                                </app-note>

``app-system`` holds a system message in the middle of a conversation, for a model that refuses one there.
``app-note`` holds the text that a compaction wrote in the place of earlier messages.
``<app-speaker>Ada</app-speaker>`` stands before a message of the user and names its author. Text inside a
block has ``&``, ``<`` and ``>`` escaped, so a block cannot end early.

One rule holds for every text from outside: the user's text, a tool's result, the name and text of a document.
It cannot open or close a block, because `user_text` escapes the ``<`` of every delimiter in it. It also
escapes a delimiter that only begins at the end of the text, because a model reads the parts of a message, and
the messages of a turn, as one text. Nothing else is changed.

``<app-file name="notes.txt" type="text/plain">`` and ``</app-file>`` stand around the text of a file that a
user has sent. Its text is escaped as any text from outside, because a program in it must stay readable.

A model's own text is sent back verbatim. When a history is read, a block counts as one only in a user's
message, where this library writes it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import ClassVar, Final

from ..base.escaping import as_written, escaped
from ..base.values import Value, replace
from .messages import Audio, Document, Image, Message, Text

__all__ = [
    "BlockText",
    "EventBlock",
    "Halves",
    "argument_object",
    "context_block",
    "event_block",
    "file_block",
    "files_in",
    "is_context",
    "is_file",
    "note_message",
    "read_event",
    "read_system",
    "read_text",
    "system_block",
    "user_text",
    "valid_bytes",
    "valid_json",
    "valid_text",
    "with_context",
    "with_speaker",
]

# The patterns are compiled on first use: at import they would take a fiftieth of its time.
_pattern = cache(re.compile)
_SURROGATE = r"[\ud800-\udfff]"
_ESCAPED_SURROGATE = r"\\u[dD][89a-fA-F]"
_EVENT = r'<app-event(?: topic="([^"<]*)")?(?: id="([^"<]*)")?>\n([^<]*)\n</app-event>'
_CONTEXT = r"<app-context>\n[^<]*\n</app-context>"
_NOTE = r'<app-note kind="([a-z-]+)">\n([^<]*)\n</app-note>'
_SPEAKER = r"<app-speaker>([^<]*)</app-speaker>"
_FILE = r'<app-file name="([^"<]*)" type="(text/[\w.+-]+)">\n((?s:.*))\n</app-file>'
_SYSTEM = r"<app-system>\n([^<]*)\n</app-system>"

# "&" is escaped first and unescaped last; otherwise the "&" of another escape would be changed too.
_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
_ATTRIBUTE_ESCAPES = (*_ESCAPES, ('"', "&quot;"), ("\n", "&#10;"), ("\r", "&#13;"))


class BlockText(Text, frozen=True):
    """A text part that is a context block, a speaker, a note or a file. It is escaped already."""

    is_block: ClassVar[bool] = True


class EventBlock(Value, frozen=True, kw_only=True):
    """The content of an event block."""

    _unshown = frozenset({"text", "topic", "id"})

    text: str
    topic: str | None
    id: str | None


def valid_text(text: str) -> str:
    """Make text encodable: lone surrogates, which UTF-8 cannot hold, become U+FFFD.

    This is the one rule for them. Every text that is sent, stored, shown or given to a tool is valid: text of
    the user, of a tool, and of a model. Anthropic refuses each request with half a pair in its history. A
    caller's names and ids with lone surrogates are refused instead, because two different
    names could become equal.

    Returns the same object if there is nothing to do. Two halves of one character become that character.
    """
    if text.isascii() or not _pattern(_SURROGATE).search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def valid_json(text: str) -> str:
    """Replace each lone surrogate in JSON text that a model wrote by U+FFFD, also an escaped one. Everything
    else stays as it is written.

    Returns the same object if there is nothing to do. In text that is not JSON an escape is plain text.
    """
    text = valid_text(text)
    if not _pattern(_ESCAPED_SURROGATE).search(text):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    made = valid_bytes(text.encode()).decode()
    return text if made == text else made


def valid_bytes(data: bytes) -> bytes:
    """JSON in which no string has a lone surrogate: an escaped one becomes an escaped U+FFFD.

    Returns the same object if there is nothing to do. Only the bytes of an escape with half a pair change.
    """
    if b"\\u" not in data or not _pattern(_ESCAPED_SURROGATE.encode()).search(data):
        return data
    made = _pattern(_ESCAPES_IN_JSON, re.DOTALL).sub(_paired, data)
    return data if made == data else made


_ESCAPES_IN_JSON = (
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)"
)
"""A pair of surrogates, a lone surrogate, or any other escape. The search goes from left to right, so it
never begins inside an escape."""

_LONE = 6
"""The length of one escape with four digits."""


def _paired(escape: re.Match[bytes]) -> bytes:
    found = escape[0]
    return b"\\ufffd" if len(found) == _LONE else found


class Halves:
    """Joins the pieces of streamed texts. A pair of surrogates that is cut into two pieces becomes whole."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: dict[str, str] = {}

    def __bool__(self) -> bool:
        """True if half a pair waits for its other half."""
        return bool(self._left)

    def shown(self, kind: str, piece: str) -> str:
        """The text of a kind that can be shown after its next piece. A first half at its end waits."""
        if not self._left and piece.isascii():
            return piece
        text = self._left.pop(kind, "") + piece
        if "\ud800" <= text[-1:] <= "\udbff":
            self._left[kind] = text[-1]
            text = text[:-1]
        return valid_text(text)

    def rest(self) -> list[str]:
        """The kinds of text that ended in a first half. Its place is taken by U+FFFD."""
        kinds = list(self._left)
        self._left.clear()
        return kinds


_NO_ARGUMENTS: Final = frozenset({"", "null", "None", "undefined", "[]"})
"""Texts that models and servers write for a call without arguments, beside ``{}``: the empty text, null in
three languages, and the empty array of PHP."""


def argument_object(text: str) -> str:
    """The JSON object that the arguments of a call mean: ``{}`` for missing arguments, and the object inside
    a JSON string. Any other text comes back unchanged."""
    bare = text.strip()
    if bare.startswith('"'):
        try:
            inner = json.loads(bare).strip()
        except (ValueError, RecursionError):
            return text
        return inner if inner.startswith("{") else "{}" if inner in _NO_ARGUMENTS else text
    return "{}" if bare in _NO_ARGUMENTS else text


def event_block(text: str, *, topic: str | None = None, id: str | None = None) -> str:
    """Render an event as a delimited block."""
    attributes = "".join(
        f' {name}="{_escape(value, _ATTRIBUTE_ESCAPES)}"'
        for name, value in (("topic", topic), ("id", id))
        if value is not None
    )
    return f"<app-event{attributes}>\n{_escape(text, _ESCAPES)}\n</app-event>"


def context_block(text: str) -> str:
    """Render the option `context` as a delimited block."""
    return f"<app-context>\n{_escape(text, _ESCAPES)}\n</app-context>"


def system_block(text: str) -> str:
    """Render a system message as a delimited block, for a model that refuses one inside a conversation."""
    return f"<app-system>\n{_escape(text, _ESCAPES)}\n</app-system>"


def note_message(text: str, kind: str) -> Message:
    """Make a message that tells the model about removed parts of the history.

    `kind` names the kind of note, in lower-case letters and hyphens.
    """
    block = f'<app-note kind="{kind}">\n{_escape(text, _ESCAPES)}\n</app-note>'
    return Message(role="user", parts=(BlockText(block),))


def file_block(text: str, *, name: str, media_type: str) -> BlockText:
    """Write the text of a file that a user has sent, with its name. A type beyond ``text/…`` becomes
    ``text/plain``."""
    kind = media_type.partition(";")[0].strip().lower()
    kind = kind if _pattern(r"text/[\w.+-]+").fullmatch(kind) else "text/plain"
    name = _escape(name, _ATTRIBUTE_ESCAPES)
    return BlockText(f'<app-file name="{name}" type="{kind}">\n{user_text(text)}\n</app-file>')


def is_file(part: object) -> bool:
    """True for a part that is the text of a file."""
    return isinstance(part, BlockText) and _pattern(_FILE).fullmatch(part.text) is not None


def files_in(message: Message) -> tuple[Image | Document | Audio, ...]:
    """Give the pictures, sounds and documents of a message, in order. A file of text is a `Document`."""
    found: list[Image | Document | Audio] = []
    for part in message.parts:
        if not isinstance(part, Text):
            found.append(part)
        elif part.is_block and (file := _pattern(_FILE).fullmatch(part.text)) is not None:
            name, media_type, text = file.groups()
            name = _unescape(name, _ATTRIBUTE_ESCAPES)
            found.append(Document(media_type=media_type, data=as_written(text).encode(), name=name or None))
    return tuple(found)


def user_text(text: str) -> str:
    """Escape text of a user or a tool, so that it cannot imitate a block. The ``<`` of ``<app-event`` and of
    other delimiters becomes ``&lt;``, also if the text ends in the middle of a delimiter.

    Returns the same object if there is nothing to do.
    """
    return escaped(valid_text(text))


def with_context(message: Message, context: str) -> Message:
    """The message with a context block as its first part."""
    return replace(message, parts=(BlockText(context_block(context)), *message.parts))


def with_speaker(message: Message) -> Message:
    """The message with its speaker's name before its text. The very message if it has no speaker."""
    if message.speaker is None:
        return message
    first = 1 if message.parts and is_context(message.parts[0]) else 0
    block = BlockText(f"<app-speaker>{_escape(message.speaker, _ESCAPES)}</app-speaker>")
    return replace(message, parts=(*message.parts[:first], block, *message.parts[first:]))


def read_event(text: str) -> EventBlock | None:
    """Read an event block; None if the text is not exactly one."""
    found = _pattern(_EVENT).fullmatch(text)
    if found is None:
        return None
    topic, id, body = found.groups()
    return EventBlock(
        text=_unescape(body, _ESCAPES),
        topic=None if topic is None else _unescape(topic, _ATTRIBUTE_ESCAPES),
        id=None if id is None else _unescape(id, _ATTRIBUTE_ESCAPES),
    )


def read_system(text: str) -> str | None:
    """The text of a system block; None if the text is not exactly one."""
    found = _pattern(_SYSTEM).fullmatch(text)
    return None if found is None else _unescape(found[1], _ESCAPES)


def is_context(part: object) -> bool:
    """True for a part that is a context block."""
    return isinstance(part, BlockText) and _pattern(_CONTEXT).fullmatch(part.text) is not None


def read_text(text: str) -> Text:
    """A user's stored text as a part. It is a `BlockText` if it is exactly one context block, speaker, note
    or file."""
    if text.startswith("<app-") and any(
        _pattern(block).fullmatch(text) for block in (_CONTEXT, _SPEAKER, _NOTE, _FILE)
    ):
        return BlockText(text)
    return Text(text)


def _escape(text: str, escapes: tuple[tuple[str, str], ...]) -> str:
    text = valid_text(text)
    for char, escape in escapes:
        text = text.replace(char, escape)
    return text


def _unescape(text: str, escapes: tuple[tuple[str, str], ...]) -> str:
    for char, escape in reversed(escapes):
        text = text.replace(escape, char)
    return text
