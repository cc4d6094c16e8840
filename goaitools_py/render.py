"""How the library's own words look inside a conversation: events, context blocks, user text beside them.

Owns: the delimiters, what escapes them, and reading them back. Must never know: any provider's JSON.

::

    <app-event topic="score" id="e-17">          <app-context>
    Ada reached Harrogate Theatre: +50 points    12:04, the station, 250 points
    </app-event>                                 </app-context>

    <app-system>                                 <app-note kind="summary">
    From now on the hall is dark                 Ada found the key and gave it to Tom
    </app-system>                                </app-note>

The third stands for a system message in the middle of a conversation, where a model knows no such role; the
last one for what a compaction has put in the place of earlier messages.
Text inside a block has ``&``, ``<`` and ``>`` escaped, so a block ends where it seems to end.

One rule holds for every text from outside: a user's words, what a tool found, the names and texts of
documents. It cannot open or close a block, because the ``<`` of every delimiter in it is escaped
(`user_text`), also of one that only begins at its end: a model reads the parts of a message, and the messages
of a turn, as one text. All else stays as it is. A model's own text goes back verbatim, whatever it holds:
what reads a history takes a block for one only where this library has put it, in a message of the user's.
"""

from __future__ import annotations

import json
import re
from typing import ClassVar, Final

from .messages import Message, Text
from .values import Value, replace

__all__ = [
    "BlockText",
    "Event",
    "as_written",
    "context_block",
    "event_block",
    "is_context",
    "note_message",
    "plain",
    "plain_json",
    "read_event",
    "read_note",
    "read_system",
    "read_text",
    "system_block",
    "user_text",
    "with_context",
]

_NAMES: Final = ("event", "context", "note", "system")
_WORDS: Final = tuple(f"{slash}app-{name}" for slash in ("", "/") for name in _NAMES)
_BEGINNINGS: Final = sorted(
    {word[:end] for word in _WORDS for end in range(len(word))}, key=len, reverse=True
)
_OUTSIDE = re.compile(rf"<(?={'|'.join(_WORDS)}|(?:{'|'.join(_BEGINNINGS)})\Z)", re.IGNORECASE)
_ESCAPED = re.compile(rf"&lt;(?={'|'.join(_WORDS)}|(?:{'|'.join(_BEGINNINGS)})\Z)", re.IGNORECASE)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_EVENT = re.compile(r'<app-event(?: topic="([^"<]*)")?(?: id="([^"<]*)")?>\n([^<]*)\n</app-event>')
_CONTEXT = re.compile(r"<app-context>\n[^<]*\n</app-context>")
_NOTE = re.compile(r'<app-note kind="([a-z-]+)">\n([^<]*)\n</app-note>')
_SYSTEM = re.compile(r"<app-system>\n([^<]*)\n</app-system>")

# "&" first when writing and last when reading back, so that neither touches the other's work.
_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))
_ATTRIBUTE_ESCAPES = (*_ESCAPES, ('"', "&quot;"), ("\n", "&#10;"), ("\r", "&#13;"))


class BlockText(Text, frozen=True):
    """A text part that *is* a context block or a note: already escaped, never escaped again."""

    is_block: ClassVar[bool] = True


class Event(Value, frozen=True, kw_only=True):
    """What an event block says."""

    unshown = frozenset({"text", "topic", "id"})

    text: str
    topic: str | None
    id: str | None


def plain(text: str) -> str:
    """Make text encodable: lone surrogates, which no UTF-8 can hold, become U+FFFD.

    This is the one rule for them. Every text that is sent, stored, shown or handed to a tool is plain: a
    user's, a tool's, what is read of a provider's reply, streamed or not. The reply itself is stored as it
    came, escapes and all. Names and ids that a caller chooses are refused instead, for two could become one.

    Returns the same object in the normal case. Two halves that belong together become their character.
    """
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def plain_json(text: str) -> str:
    """JSON text that a model wrote, with U+FFFD for each lone surrogate in its strings, escaped ones too.

    Returns the same object in the normal case, and for what is no JSON.
    """
    if not _ESCAPED_SURROGATE.search(text):
        return plain(text)
    try:
        written = json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return plain(text)
    readable = plain(written)
    return text if readable is written else readable


def event_block(text: str, *, topic: str | None = None, id: str | None = None) -> str:
    """Render an event as a delimited block."""
    attributes = "".join(
        f' {name}="{_escape(value, _ATTRIBUTE_ESCAPES)}"'
        for name, value in (("topic", topic), ("id", id))
        if value is not None
    )
    return f"<app-event{attributes}>\n{_escape(text, _ESCAPES)}\n</app-event>"


def context_block(text: str) -> str:
    """Render what changes from turn to turn (clock, score, place) as a delimited block."""
    return f"<app-context>\n{_escape(text, _ESCAPES)}\n</app-context>"


def system_block(text: str) -> str:
    """Render a system message as a delimited block, for a model that takes none within a conversation."""
    return f"<app-system>\n{_escape(text, _ESCAPES)}\n</app-system>"


def note_message(text: str, kind: str) -> Message:
    """A message that tells the model of what is not in the history any more.

    `kind` says what the note is, in lower-case letters and hyphens.
    """
    block = f'<app-note kind="{kind}">\n{_escape(text, _ESCAPES)}\n</app-note>'
    return Message(role="user", parts=(BlockText(block),))


def user_text(text: str) -> str:
    """Text from outside, a user's or a tool's, unable to imitate a block: in ``<app-event`` and its like
    ``<`` becomes ``&lt;``, and so it does in the beginning of one at the end of the text.

    Returns the same object in the normal case.
    """
    text = plain(text)
    return _OUTSIDE.sub("&lt;", text) if "<" in text else text


def with_context(message: Message, context: str) -> Message:
    """The message with a context block as its first part."""
    return replace(message, parts=(BlockText(context_block(context)), *message.parts))


def read_event(text: str) -> Event | None:
    """What an event block says, or None if the text is not exactly one."""
    found = _EVENT.fullmatch(text)
    if found is None:
        return None
    topic, id, body = found.groups()
    return Event(
        text=_unescape(body, _ESCAPES),
        topic=None if topic is None else _unescape(topic, _ATTRIBUTE_ESCAPES),
        id=None if id is None else _unescape(id, _ATTRIBUTE_ESCAPES),
    )


def read_system(text: str) -> str | None:
    """What a system block says, or None if the text is not exactly one."""
    found = _SYSTEM.fullmatch(text)
    return None if found is None else _unescape(found[1], _ESCAPES)


def read_note(text: str) -> str | None:
    """What a note says, or None if the text is not exactly one."""
    found = _NOTE.fullmatch(text)
    return None if found is None else _unescape(found[2], _ESCAPES)


def is_context(part: object) -> bool:
    """True for a part that is a context block."""
    return isinstance(part, BlockText) and _CONTEXT.fullmatch(part.text) is not None


def read_text(text: str) -> Text:
    """A user's stored text as a part: a `BlockText` if it is exactly one context block or note."""
    if text.startswith("<app-") and (_CONTEXT.fullmatch(text) or _NOTE.fullmatch(text)):
        return BlockText(text)
    return Text(text)


def as_written(text: str) -> str:
    """What was written outside, of what `user_text` made of it."""
    return _ESCAPED.sub("<", text) if "&lt;" in text else text


def _escape(text: str, escapes: tuple[tuple[str, str], ...]) -> str:
    text = plain(text)
    for char, escaped in escapes:
        text = text.replace(char, escaped)
    return text


def _unescape(text: str, escapes: tuple[tuple[str, str], ...]) -> str:
    for char, escaped in reversed(escapes):
        text = text.replace(escaped, char)
    return text
