"""The neutral words of a conversation: messages, parts, tool calls, results, usage.

Owns: frozen values that a caller writes and a rule reads. Must never know: any provider's JSON.
Reprs show kinds and sizes, never content, so that values may be logged.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from .values import Value

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
    "system",
    "user",
]

MAX_TOPIC_CHARACTERS = 256
"""The longest topic of an event: a name, not the news."""

Role = Literal["system", "user", "assistant", "tool"]
CallKind = Literal["function", "custom", "provider"]
"""What is called: a function, a tool that takes free text, or a provider's tool that the client runs."""

ResultFlag = Literal["ok", "not_run", "unknown", "cancelled", "error", "denied"]


# -------------------------------------------------------------------------------------------- parts


class Text(Value, frozen=True):
    """A piece of text.

    Attributes:
        is_block: True for what this library put beside the author's words: a context block, or a note on
            what a compaction took away.
    """

    unshown = frozenset({"text"})
    is_block: ClassVar[bool] = False

    text: str


class _Media(Value, frozen=True, kw_only=True):
    unshown = frozenset({"data", "url", "name"})
    media_type: str
    data: bytes | None = None
    url: str | None = None
    name: str | None = None

    def base64(self) -> str:
        """The bytes as base64 text; empty for a part that is only a URL."""
        return base64.b64encode(self.data or b"").decode("ascii")


def _media_type(name: str, fallback: str) -> str:
    import mimetypes  # here, like pathlib below: most programs send text only

    return mimetypes.guess_type(name)[0] or fallback


def _from_path(path: str | Path, fallback: str) -> dict[str, Any]:
    from pathlib import Path

    path = Path(path)
    return {"data": path.read_bytes(), "media_type": _media_type(path.name, fallback), "name": path.name}


class Image(_Media, frozen=True, kw_only=True):
    """A picture, as bytes or by URL. `detail` is "auto", "low", "high" or None (the provider's default)."""

    detail: str | None = None

    @classmethod
    def from_path(cls, path: str | Path, *, detail: str | None = None) -> Image:
        """Read a picture from a file; the media type follows from the name."""
        return cls(**_from_path(path, "image/png"), detail=detail)

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str = "image/png", *, detail: str | None = None) -> Image:
        """Take a picture from memory."""
        return cls(data=data, media_type=media_type, detail=detail)

    @classmethod
    def from_url(cls, url: str, *, detail: str | None = None) -> Image:
        """Name a picture that the provider fetches itself."""
        return cls(url=url, media_type=_media_type(url, "image/png"), detail=detail)


class Document(_Media, frozen=True, kw_only=True):
    """A document such as a PDF, as bytes or by URL."""

    @classmethod
    def from_path(cls, path: str | Path) -> Document:
        """Read a document from a file; the media type follows from the name."""
        return cls(**_from_path(path, "application/pdf"))

    @classmethod
    def from_bytes(
        cls, data: bytes, media_type: str = "application/pdf", *, name: str | None = None
    ) -> Document:
        """Take a document from memory."""
        return cls(data=data, media_type=media_type, name=name)

    @classmethod
    def from_url(cls, url: str, *, name: str | None = None) -> Document:
        """Name a document that the provider fetches itself, where its wire can."""
        return cls(url=url, media_type=_media_type(url, "application/pdf"), name=name)


class Audio(_Media, frozen=True, kw_only=True):
    """A sound clip; the wires take WAV and MP3."""

    @classmethod
    def from_path(cls, path: str | Path) -> Audio:
        """Read a sound clip from a file; the media type follows from the name."""
        return cls(**_from_path(path, "audio/wav"))

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str = "audio/wav") -> Audio:
        """Take a sound clip from memory."""
        return cls(data=data, media_type=media_type)

    @classmethod
    def from_url(cls, url: str) -> Audio:
        """Name a sound clip by URL, where the provider's wire can fetch it."""
        return cls(url=url, media_type=_media_type(url, "audio/wav"))


Part: TypeAlias = Text | Image | Document | Audio


# ------------------------------------------------------------------------------- calls and results


class ToolCall(Value, frozen=True, kw_only=True):
    """A model's wish to call a tool. `arguments` is the raw JSON text exactly as the model wrote it.

    Of kind "provider" it is an item of the provider's own, such as a ``computer_call``: `name` is its type,
    and `arguments` the whole item.
    """

    unshown = frozenset({"arguments"})

    id: str
    name: str
    arguments: str
    kind: CallKind = "function"

    @property
    def parsed(self) -> Any:
        """The arguments as Python values; ValueError if the model wrote no valid JSON."""
        return json.loads(self.arguments or "{}")


class ToolResult(Value, frozen=True, kw_only=True):
    """The answer to one call. `flag` other than "ok" and "error" marks a synthetic result."""

    unshown = frozenset({"parts"})

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
    """One line of the tool log: what was called, what came back, how long it took."""

    unshown = frozenset({"result", "error"})

    call: ToolCall
    result: str
    flag: ResultFlag
    started: float | None = None
    """Seconds since the epoch, or None if the call never started."""
    seconds: float = 0.0
    iteration: int = 0
    error: BaseException | None = None
    """What the tool raised, for your own log: the model is told its class only, and no state keeps it."""

    @property
    def synthetic(self) -> bool:
        """True if no tool produced this result."""
        return self.flag not in ("ok", "error")


# ----------------------------------------------------------------------------------------- messages


class Message(Value, frozen=True, kw_only=True, eq=False):
    """One message: what it says in neutral words and, if it came from a provider, its very bytes.

    `topic` and `event_id` belong to events, `tool_call_id` to tool results. `raw` is the provider's own
    JSON when the message was read back from a state; `unread` counts the parts of a user's message or a tool
    result that stand there only, because this release has no word for them.
    """

    unshown = frozenset({"reasoning", "raw", "parts"})

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

    def __eq__(self, other: object) -> bool:
        """Equal in what is said; `raw` is only how a provider wrote it."""
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
        """The text as its author wrote it, for a page that shows it: without the context blocks and notes
        beside it, and with the ``<`` of a user's or a tool's own ``<app-…`` as it was."""
        from .render import as_written  # which is about messages

        said = [part.text for part in self.parts if isinstance(part, Text) and not part.is_block]
        is_outside = self.role in ("user", "tool") and not self.is_event
        return "".join(map(as_written, said) if is_outside else said)


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
    if not parts or all(isinstance(part, Text) and not part.text for part in parts):
        raise ValueError("a message needs some content; got an empty one")
    return tuple(parts)


def user(*parts: Part | str) -> Message:
    """Say something as the user: text, pictures, documents, sound, in order."""
    return Message(role="user", parts=_parts(parts))


def assistant(text: str) -> Message:
    """Put words into the assistant's mouth, such as a greeting that opened the conversation."""
    return Message(role="assistant", parts=_parts((text,)))


def system(text: str) -> Message:
    """An instruction. Leading ones of a call are preamble and never stored; later ones are history."""
    return Message(role="system", parts=_parts((text,)))


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def event(text: str, *, topic: str | None = None, id: str | None = None) -> Message:
    """Something that happened, told to the model without asking it for an answer.

    Args:
        text: What happened, in words.
        topic: A newer event of the same topic replaces an older one that no model has seen yet.
        id: An event whose id is already waiting or was seen recently is dropped.

    Raises:
        TypeError: `topic` or `id` is not text.
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
                f"an event's {name} is empty, so that one event would hide another; pass None for none"
            )
    if topic is not None and len(topic) > MAX_TOPIC_CHARACTERS:
        raise ValueError(
            f"an event's topic must have at most {MAX_TOPIC_CHARACTERS} characters, got {len(topic)}"
        )
    return Message(role="user", parts=_parts((text,)), is_event=True, topic=topic, event_id=id)


# -------------------------------------------------------------------------------------------- usage


class Usage(Value, frozen=True, kw_only=True):
    """Tokens consumed. `cached_input_tokens` and `cache_write_tokens` are parts of `input_tokens`,
    `reasoning_tokens` of `output_tokens`."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    @property
    def uncached_input_tokens(self) -> int:
        """Input that was not read from the provider's prompt cache; what was written to it is a part."""
        return max(0, self.input_tokens - self.cached_input_tokens)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            requests=self.requests + other.requests,
        )
