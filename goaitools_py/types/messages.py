"""The neutral values of a conversation: messages, parts, tool calls, results, usage.

Owns: frozen values that mean the same on every provider API. Must never know: any provider's JSON.
A repr shows kinds and sizes, never content, so these values may be logged.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from ..base.advice import own_names
from ..base.escaping import as_written
from ..base.values import Given, Value
from .usage import Usage

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Audio",
    "CallKind",
    "Document",
    "Image",
    "Message",
    "Part",
    "ResultFlag",
    "Role",
    "Text",
    "ToolCall",
    "ToolRecord",
    "ToolResult",
    "Usage",
    "assistant",
    "event",
    "parsed_arguments",
    "system",
    "user",
]

MAX_TOPIC_CHARACTERS = 256
"""The longest topic of an event. A topic is a name; the news is the text."""

Role = Literal["system", "user", "assistant", "tool"]
CallKind = Literal["function", "custom", "provider"]
"""The kind of a call: a function, a tool that takes free text, or a provider's tool that the client runs."""

ResultFlag = Literal["ok", "not_run", "unknown", "cancelled", "error", "denied"]


# -------------------------------------------------------------------------------------------- parts


class Text(Value, frozen=True):
    """A piece of text.

    Attributes:
        is_block: True if this library wrote the text: a context block, or a note that replaces compacted
            messages.
    """

    _unshown = frozenset({"text"})
    is_block: ClassVar[bool] = False

    text: str


class _Media(Given, frozen=True, kw_only=True):
    _unshown = frozenset({"data", "url", "name"})
    media_type: str
    data: bytes | None = None
    url: str | None = None
    name: str | None = None

    def base64(self) -> str:
        """The bytes as base64 text; empty for a part that is only a URL."""
        return base64.b64encode(self.data or b"").decode("ascii")


_MEDIA_TYPE: Final = re.compile(r"[\w.+-]+/[\w.+-]+( *;.*)?", re.ASCII)


def _check_kind(call: str, media_type: str) -> None:
    """Refuse a picture or a sound of another media type: no provider API takes it."""
    kind = call.partition(".")[0]
    wanted = {"Image": "image/", "Audio": "audio/"}.get(kind)
    if wanted is not None and not media_type.lower().startswith(wanted):
        raise ValueError(
            f"{call} takes a media type that begins with {wanted!r}, got {media_type!r}; for a document use "
            "Document, for text a str"
        )


def _from_bytes(kind: str, data: bytes, media_type: str) -> dict[str, Any]:
    """Data from a program. Data from a provider is not checked: a history can always be read."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"{kind}.from_bytes takes bytes, not {type(data).__name__}; {kind}.from_path reads a file"
        )
    if not isinstance(media_type, str) or not _MEDIA_TYPE.fullmatch(media_type):
        raise ValueError(f"{kind}.from_bytes takes a media type such as 'image/png', got {media_type!r}")
    _check_kind(f"{kind}.from_bytes", media_type)
    return {"data": _some_bytes(kind, bytes(data), "bytes"), "media_type": media_type}


def _some_bytes(kind: str, data: bytes, source: str) -> bytes:
    if not data:
        raise ValueError(f"{kind}.from_{source} got no data, and no provider takes an empty part")
    return data


def _from_url(kind: str, url: str, fallback: str) -> dict[str, Any]:
    if not isinstance(url, str):
        raise TypeError(f"{kind}.from_url takes a str, not {type(url).__name__}")
    if ":" not in url:
        raise ValueError(
            f"{kind}.from_url takes a URL with its scheme, such as https://…; {kind}.from_path reads a file"
        )
    return {"url": url, "media_type": media_type_of(url, fallback)}


def media_type_of(name: str, fallback: str) -> str:
    """The media type for the ending of a name or of a URL."""
    import mimetypes  # here, like pathlib below: most programs send text only

    return mimetypes.guess_type(name)[0] or fallback


def _from_path(kind: str, path: str | Path, fallback: str) -> dict[str, Any]:
    from pathlib import Path

    path = Path(path)
    media_type = media_type_of(path.name, fallback)
    _check_kind(f"{kind}.from_path", media_type)
    data = _some_bytes(kind, path.read_bytes(), "path")
    return {"data": data, "media_type": media_type, "name": path.name}


@own_names
class Image(_Media, frozen=True, kw_only=True):
    """A picture, as bytes or by URL. `detail` is "auto", "low", "high" or None (the provider's default)."""

    _made_by = "Image.from_path(…), Image.from_bytes(…) or Image.from_url(…)"

    detail: str | None = None

    @classmethod
    def from_path(cls, path: str | Path, *, detail: str | None = None) -> Image:
        """Read a picture from a file; the media type follows from the name."""
        return cls(**_from_path("Image", path, "image/png"), detail=detail)

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str = "image/png", *, detail: str | None = None) -> Image:
        """Take a picture from memory."""
        return cls(**_from_bytes("Image", data, media_type), detail=detail)

    @classmethod
    def from_url(cls, url: str, *, detail: str | None = None) -> Image:
        """Name a picture that the provider fetches itself."""
        return cls(**_from_url("Image", url, "image/png"), detail=detail)


@own_names
class Document(_Media, frozen=True, kw_only=True):
    """A document such as a PDF, as bytes or by URL."""

    _made_by = "Document.from_path(…), Document.from_bytes(…) or Document.from_url(…)"

    @classmethod
    def from_path(cls, path: str | Path) -> Document:
        """Read a document from a file; the media type follows from the name."""
        return cls(**_from_path("Document", path, "application/pdf"))

    @classmethod
    def from_bytes(
        cls, data: bytes, media_type: str = "application/pdf", *, name: str | None = None
    ) -> Document:
        """Take a document from memory."""
        return cls(**_from_bytes("Document", data, media_type), name=name)

    @classmethod
    def from_url(cls, url: str, *, name: str | None = None) -> Document:
        """Name a document that the provider fetches itself, where the provider API can."""
        return cls(**_from_url("Document", url, "application/pdf"), name=name)


@own_names
class Audio(_Media, frozen=True, kw_only=True):
    """A sound clip. Chat Completions takes WAV and MP3; other provider APIs take no sound."""

    _made_by = "Audio.from_path(…), Audio.from_bytes(…) or Audio.from_url(…)"

    @classmethod
    def from_path(cls, path: str | Path) -> Audio:
        """Read a sound clip from a file; the media type follows from the name."""
        return cls(**_from_path("Audio", path, "audio/wav"))

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str = "audio/wav") -> Audio:
        """Take a sound clip from memory."""
        return cls(**_from_bytes("Audio", data, media_type))

    @classmethod
    def from_url(cls, url: str) -> Audio:
        """Name a sound clip by URL. No built-in provider API fetches sound."""
        return cls(**_from_url("Audio", url, "audio/wav"))


Part: TypeAlias = Text | Image | Document | Audio


# ------------------------------------------------------------------------------- calls and results


class ToolCall(Value, frozen=True, kw_only=True):
    """A tool call that the model asks for. `arguments` is the JSON text exactly as the model wrote it.

    A call of kind "provider" is an item of the provider's own, such as a ``computer_call``: `name` is the
    item's type and `arguments` is the whole item.
    """

    _unshown = frozenset({"arguments"})

    id: str
    name: str
    arguments: str
    kind: CallKind = "function"

    @property
    def parsed(self) -> Any:
        """The arguments as Python values.

        Raises ValueError if the model wrote invalid JSON, JSON nested deeper than 100 levels, or more than a
        million values.
        """
        return parsed_arguments(self.arguments)


def parsed_arguments(text: str) -> Any:
    """Read the arguments of a call as Python values; see `ToolCall.parsed`."""
    from ..base.json_scan import check_text  # its patterns are compiled when they are needed first

    check_text(text)
    return json.loads(text or "{}")


class ToolResult(Value, frozen=True, kw_only=True):
    """The result of one call. A `flag` other than "ok" and "error" marks a synthetic result: no tool wrote
    it."""

    _unshown = frozenset({"parts"})

    call_id: str
    name: str = ""
    parts: tuple[Part, ...] = ()
    flag: ResultFlag = "ok"
    kind: CallKind = "function"

    @property
    def text(self) -> str:
        """All text of the result."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


class ToolRecord(Value, frozen=True, kw_only=True):
    """One line of the tool log: the call, its result, and how long it took."""

    _unshown = frozenset({"result", "error"})

    call: ToolCall
    result: str
    flag: ResultFlag
    started: float | None = None
    """Seconds since the epoch, or None if the call never started."""
    seconds: float = 0.0
    iteration: int = 1
    """The model call of the turn that asked for this tool call, counted from 1."""
    error: BaseException | None = None
    """The tool's exception, for your own log. The model gets only its class, and no state keeps it."""

    @property
    def synthetic(self) -> bool:
        """True if no tool produced this result."""
        return self.flag not in ("ok", "error")


# ----------------------------------------------------------------------------------------- messages


class Message(Value, frozen=True, kw_only=True, eq=False):
    """One message: its content as neutral values and, if it was read from a state, the provider's bytes.

    `topic` and `event_id` belong to events, `tool_call_id` to tool results. `speaker` is the author of a
    message of role "user", where several people talk in one conversation. The model reads it before the
    message. `pinned`: True: a cut keeps the message when it drops its turn; False: the message goes with its
    turn; None: a system message is pinned, another message is not. `raw` is the provider's JSON of a message
    that was read from a state. `unread` counts the parts of a user's message or a tool result that only `raw`
    holds, because this release cannot read them.
    """

    _unshown = frozenset({"reasoning", "raw", "parts", "speaker"})

    role: Role
    parts: tuple[Part, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    is_event: bool = False
    topic: str | None = None
    event_id: str | None = None
    reasoning: str = ""
    raw: bytes | None = None
    unread: int = 0
    speaker: str | None = None
    pinned: bool | None = None

    def __eq__(self, other: object) -> bool:
        """True if the content is equal. `raw` is not compared: it is only the provider's spelling."""
        if not isinstance(other, Message):
            return NotImplemented
        return self._said() == other._said()

    def __hash__(self) -> int:
        return hash(self._said())

    def _said(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name != "raw")

    def __repr__(self) -> str:
        kind = "event" if self.is_event else self.role
        calls = f", {len(self.tool_calls)} tool calls" if self.tool_calls else ""
        return f"<Message {kind}: {len(self.parts)} parts, {len(self.text)} characters{calls}>"

    @property
    def text(self) -> str:
        """All text of the message, as the model reads it."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def said(self) -> str:
        """The text as its author wrote it, for display: without context blocks and notes, and with the
        author's own ``<app-…`` unescaped."""
        said = [part.text for part in self.parts if isinstance(part, Text) and not part.is_block]
        is_outside = self.role in ("user", "tool") and not self.is_event
        return "".join(map(as_written, said) if is_outside else said)

    def to_dict(self, *, media: bool = False) -> dict[str, Any]:
        """The message as JSON-able values, with its content and without the provider's own JSON.

        The texts are as their author wrote them, as in `said`. ``HISTORY_SCHEMA["$defs"]["message"]`` of
        `goaitools_py.states` describes them. `media`: with the bytes of pictures, documents and sound.
        """
        found: dict[str, Any] = {
            "role": self.role,
            "parts": [_part_dict(part, media) for part in self.parts],
        }
        if self.role in ("user", "tool") and not self.is_event:
            for part in found["parts"]:
                if part["type"] == "text" and "block" not in part:
                    part["text"] = as_written(part["text"])
        for name in ("is_event", "topic", "event_id", "speaker", "reasoning", "tool_call_id", "unread"):
            if (value := getattr(self, name)) not in (None, False, "", 0):
                found[name] = value
        if self.pinned is not None:
            found["pinned"] = self.pinned
        if self.tool_calls:
            found["tool_calls"] = [call_dict(call) for call in self.tool_calls]
        return found


def call_dict(call: ToolCall) -> dict[str, Any]:
    """A call as JSON-able values, with its arguments as text."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "kind": call.kind}


def _part_dict(part: Part, media: bool) -> dict[str, Any]:
    """A part as JSON-able values. A block has its kind as "block"."""
    if isinstance(part, Text):
        found: dict[str, Any] = {"type": "text", "text": part.text}
        if part.is_block:
            kinds = {"<app-context>": "context", "<app-file ": "file"}
            found["block"] = next((kinds[one] for one in kinds if part.text.startswith(one)), "note")
        return found
    found = {"type": type(part).__name__.lower(), "media_type": part.media_type}
    known = {name: getattr(part, name, None) for name in ("url", "name", "detail")}
    if part.data is not None:
        known["bytes"] = len(part.data)
        known["data"] = part.base64() if media else None
    return found | {name: value for name, value in known.items() if value is not None}


def _parts(values: tuple[Part | str, ...]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for value in values:
        if isinstance(value, str):
            parts.append(Text(value))
        elif isinstance(value, (Text, Image, Document, Audio)):
            parts.append(value)
        else:
            raise TypeError(
                f"a message part must be str, Text, Image, Document or Audio, not {type(value).__name__}"
            )
    for part in parts:
        if not isinstance(part, Text) or part.text:
            break
    else:
        raise ValueError("a message needs some content; got an empty one")
    return tuple(parts)


def user(*parts: Part | str, speaker: str | None = None, pinned: bool = False) -> Message:
    """Make a message of the user: text, pictures, documents and sound, in order.

    Args:
        parts: The content: texts, pictures, documents, sound.
        speaker: The author, where several people talk in one conversation. The model reads the name in a
            block before the message, which no text from outside can imitate; `read_history` shows it.
        pinned: True: a compaction keeps the message, byte for byte, when it drops its turn.

    Raises:
        TypeError: A part is of no known type, `speaker` is not text, or `pinned` is not a bool.
        ValueError: The message has no content; `speaker` is empty, has more than 256 characters, or holds a
            lone surrogate.
    """
    if speaker is not None:
        _check_speaker(speaker)
    _check_pinned(pinned)
    return Message(role="user", parts=_parts(parts), speaker=speaker, pinned=pinned or None)


def _check_pinned(pinned: object) -> None:
    if not isinstance(pinned, bool):
        raise TypeError(f"pinned must be True or False, not {type(pinned).__name__}")


def _check_speaker(speaker: str) -> None:
    if not isinstance(speaker, str):
        raise TypeError(f"speaker must be str, not {type(speaker).__name__}; pass speaker=str(…)")
    if not speaker or len(speaker) > MAX_TOPIC_CHARACTERS:
        raise ValueError(f"speaker must have 1 to {MAX_TOPIC_CHARACTERS} characters, got {len(speaker)}")
    if _has_surrogate(speaker):
        raise ValueError("speaker holds a lone surrogate, which UTF-8 cannot write; put U+FFFD in its place")


def assistant(text: str) -> Message:
    """Make a message of the assistant that no model wrote, such as a greeting."""
    return Message(role="assistant", parts=_parts((text,)))


def system(text: str, *, pinned: bool = True) -> Message:
    """Make a system message. System messages at the beginning of a call are preamble and never stored. Later
    ones are history and are stored.

    A compaction keeps the message when it drops its turn. `pinned`: False: it goes with its turn.

    Raises TypeError if `pinned` is not a bool.
    """
    _check_pinned(pinned)
    return Message(role="system", parts=_parts((text,)), pinned=None if pinned else False)


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def event(text: str, *, topic: str | None = None, id: str | None = None, pinned: bool = False) -> Message:
    """Make an event: something that happened. The model reads it in the next turn.

    Args:
        text: The news that the model reads.
        topic: A newer event replaces an older one of the same topic, if no model has seen the older one.
        id: An event is dropped if one with this id already waits or was seen recently.
        pinned: True: a compaction keeps the event, byte for byte, when it drops its turn.

    Raises:
        TypeError: `topic` or `id` is not text, or `pinned` is not a bool.
        ValueError: There is no text; `topic` or `id` is empty or holds a lone surrogate; the topic has more
            than 256 characters.
    """
    for name, value in (("topic", topic), ("id", id)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"an event's {name} must be str, not {type(value).__name__}; pass {name}=str(…)")
        if value is not None and _has_surrogate(value):
            raise ValueError(
                f"an event's {name} holds a lone surrogate, which UTF-8 cannot write; put U+FFFD in its place"
            )
        if value == "":
            raise ValueError(
                f"an event's {name} is empty, so one event would replace another; pass None for no {name}"
            )
    if topic is not None and len(topic) > MAX_TOPIC_CHARACTERS:
        raise ValueError(
            f"an event's topic must have at most {MAX_TOPIC_CHARACTERS} characters, got {len(topic)}"
        )
    _check_pinned(pinned)
    return Message(
        role="user", parts=_parts((text,)), is_event=True, topic=topic, event_id=id, pinned=pinned or None
    )
