"""Assembles a streamed chat completion: chunks of bytes into deltas and, at the end, one answer.

Owns: how the pieces of choice 0 grow together. Must never know: what of the message is stored.

The assembled message has ``role``, ``content``, what else came, ``tool_calls``, in this order. Strings
are joined code point for code point; values of keys unknown here keep their very bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from ... import rawjson
from ...messages import Usage
from ...render import plain
from ...values import replace
from ..base import Delta, Fault, ProtocolFault, Reply
from ..http.sse import EventSplitter, EventTooLongError
from .answer import error_fault
from .chat_reply import Answer, reply_of, usage_of

__all__ = ["ChatDecoder"]

_Kind = Literal["text", "reasoning"]

_SPOKEN: Final[Mapping[str, _Kind]] = {
    "content": "text",
    "refusal": "text",
    "reasoning": "reasoning",
    "reasoning_content": "reasoning",
}
"""The strings of a delta that come in pieces, and what they are to a listener."""

_PART_TEXTS: Final = frozenset({"text", "thinking", "summary", "data"})
"""The strings of a typed part that come in pieces: of content, and of OpenRouter's reasoning details."""

_ARGUMENTS: Final = frozenset({"arguments", "input"})
"""The strings of a tool call that come in pieces: a function's, a custom tool's."""

_GROWING_PARTS: Final = frozenset({b'"text"', b'"thinking"', b'"reasoning.text"', b'"reasoning.summary"'})
"""Types of parts that a piece without an index goes on with; any other begins a new one."""

_STREAM_ONLY: Final = frozenset({"channel", "function_call"})
"""Keys that no message has: Groq's mark of what a piece is; the deprecated call, never asked for."""

_INTERRUPTED: Final = Fault(kind="interrupted", retryable=True)

_Object = dict[str, msgspec.Raw]
_NULL: Final = msgspec.Raw(b"null")


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Object | None = None
    finish_reason: str | None = None
    error: msgspec.Raw = _NULL


class _Chunk(msgspec.Struct):
    id: str | None = None
    object: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL
    x_groq: msgspec.Raw = _NULL


# What most events of most streams are: text of choice 0, and nothing else that counts. Every member that
# would count is declared as what it is when it says nothing, so that msgspec refuses any other event.


class _TextDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    content: str
    role: Literal["assistant"] | None = None
    refusal: None = None
    reasoning: None = None
    reasoning_content: None = None
    tool_calls: None = None
    function_call: None = None
    audio: None = None


class _TextChoice(msgspec.Struct, gc=False):
    delta: _TextDelta
    index: Literal[0] | None = 0
    finish_reason: Literal[""] | None = None
    error: None = None


class _TextChunk(msgspec.Struct, gc=False):
    choices: tuple[_TextChoice]
    object: Literal["chat.completion.chunk"] | None = None
    usage: None = None
    error: None = None
    x_groq: None = None


_MAX_GUESSES: Final = 8
"""Wrong guesses that an event is plain text, after which a stream is read without any."""


class ChatDecoder:
    """Decodes one streamed response.

    The stream counts as complete once choice 0 gave a finish reason, or at ``[DONE]`` after choice 0 was
    heard of at all: some servers leave the reason empty, none says ``[DONE]`` in the middle.

    Attributes:
        is_done: Whether ``[DONE]`` was read; nothing after it matters.
    """

    def __init__(self, family: str) -> None:
        self._family = family
        self._splitter = EventSplitter()
        self._id = self._model = self._finish = ""
        self._usage = b"null"
        self.is_done = self._has_choice = self._has_begun = False
        self._expects_text = False
        self._guesses_left = _MAX_GUESSES
        self._message = _Grown(frozenset(_SPOKEN))
        self._parts = _Parts()
        self._details = _Parts()
        self._calls = _Calls()

    # -------------------------------------------------------------------------------- the protocol

    def feed(self, chunk: bytes) -> list[Delta]:
        """Take the next bytes, however they were cut; return what became readable.

        Raises:
            ProtocolFault: An error event, one that is not JSON, or one that is too large. Its kind is
                "interrupted" once anything of the reply has come.
        """
        deltas: list[Delta] = []
        try:
            events = self._splitter.feed(chunk)
        except EventTooLongError as problem:
            raise self._fault(str(problem)) from problem
        for data in events:
            if self._expects_text and (text := self._plain_text(data)) is not None:
                if text:
                    deltas.append(Delta(kind="text", text=text))
                continue
            if self.is_done or not (data := data.strip()):
                continue
            if data == b"[DONE]":
                self.is_done = True
                continue
            try:
                self._take(_chunk(data), data, deltas)
            except rawjson.RawJSONError as problem:
                raise self._fault("an event of the stream cannot be read") from problem
        return deltas

    @property
    def has_begun(self) -> bool:
        """Whether anything of the reply has come: text, reasoning, a piece of a call."""
        return self._has_begun

    def finish(self) -> Reply:
        """The complete reply. It may be asked for as soon as there is a finish reason: what would have
        come after it is the usage at most.

        Raises:
            ProtocolFault: The stream ended before the reply did.
        """
        if not self._finish and not (self.is_done and self._has_choice):
            raise ProtocolFault("the stream ended before the reply did", _INTERRUPTED)
        answer = Answer(
            message=self._assembled(),
            finish_reason=self._finish,
            usage=self._usage,
            model=self._model,
            id=self._id,
        )
        return reply_of(answer, family=self._family)

    @property
    def partial_text(self) -> str:
        """Text received so far."""
        return plain(self._parts.text("text") + self._message.text("content"))

    @property
    def usage_so_far(self) -> Usage | None:
        """What the stream has said of its cost; most servers say it at the very end."""
        return None if self._usage == b"null" else usage_of(self._usage)

    # ----------------------------------------------------------------------------------- one event

    def _take(self, chunk: _Chunk, data: bytes, deltas: list[Delta]) -> None:
        if chunk.object == "error":  # vLLM: the error's members are the event's own
            raise self._fault("the provider broke the stream off", rawjson.loads(data))
        if chunk.error != _NULL:
            self._check_error(chunk.error)
        if not self._id:
            self._id = chunk.id or ""
        if not self._model:
            self._model = chunk.model or ""
        if chunk.usage != _NULL:
            self._usage = bytes(chunk.usage)
        elif chunk.x_groq != _NULL:
            self._usage = bytes(_member(chunk.x_groq, "usage") or self._usage)
        for choice in chunk.choices or ():
            if choice.index:
                continue  # of several answers the first is kept
            if choice.error != _NULL:
                self._check_error(choice.error)
            self._has_choice = True
            if choice.delta:
                self._grow(choice.delta, deltas)
                self._expects_text = self._may_go_on(choice.delta)
            if choice.finish_reason:
                self._finish = choice.finish_reason

    def _may_go_on(self, delta: _Object) -> bool:
        """Whether the next event may be guessed to be plain text: this one had text, all else is known."""
        return (
            delta.get("content", _NULL) != _NULL
            and not self._parts
            and self._id != ""
            and self._model != ""
            and self._message.get("role") in (None, b'"assistant"')
            and self._guesses_left > 0
        )

    def _plain_text(self, data: bytes) -> str | None:
        """Take an event if it is plain text; None if it has to be read in full."""
        try:
            text = _TEXT_CHUNK.decode(data).choices[0].delta.content
        except _REFUSALS:
            self._expects_text = False
            self._guesses_left -= 1
            return None
        self._message.add("content", text)
        if text:
            self._has_begun = True
        return text

    def _check_error(self, raw: msgspec.Raw) -> None:
        if error := rawjson.loads(bytes(raw)):  # an empty one says nothing
            raise self._fault("the provider broke the stream off", error)

    def _fault(self, problem: str, error: object = None) -> ProtocolFault:
        finding = ProtocolFault(problem) if error is None else error_fault(error)
        if not self._has_begun:
            return finding
        return ProtocolFault(problem, replace(_INTERRUPTED, code=finding.fault.code))

    def _grow(self, delta: _Object, deltas: list[Delta]) -> None:
        for key, raw in delta.items():
            if raw == _NULL or key in _STREAM_ONLY:
                continue
            if key == "tool_calls":
                self._calls.add(_objects_of(raw))
                self._has_begun = True
            elif key == "content" and (self._parts or bytes(raw)[0] == _ARRAY):
                self._grow_content(raw, deltas)
            elif key == "reasoning_details":
                text = self._details.add(_objects_of(raw))
                if "reasoning" not in delta and "reasoning_content" not in delta:
                    self._tell("reasoning", text, deltas)
            elif key == "audio":
                if "id" in (audio := _object_of(raw)):  # a later piece has none, and a request takes only it
                    self._message.grow(key, msgspec.Raw(_joined({"id": audio["id"]})))
            else:
                text = self._message.grow(key, raw)
                if key == "content" and bytes(raw).startswith(b"{"):  # JSON mode of some servers
                    self._tell("text", rawjson.one_line(bytes(raw)).decode(), deltas)
                # vLLM 0.11 sends every piece of reasoning under both names.
                if text and not (key == "reasoning" and "reasoning_content" in delta):
                    self._tell(_SPOKEN[key], text, deltas)

    def _grow_content(self, raw: msgspec.Raw, deltas: list[Delta]) -> None:
        """Mistral's reasoning models send parts, and may go on with strings."""
        before = self._message.pop_text("content")
        if before is not None:
            self._parts.add([_text_part(before)])
        text = _text(raw)
        for piece in _objects_of(raw) if text is None else [_text_part(text)]:
            words = self._parts.add([piece])
            thoughts = piece.get("thinking", _NULL)
            if bytes(thoughts)[0] == _ARRAY:
                words = _Parts().add(_objects_of(thoughts))
            self._tell("text" if thoughts == _NULL else "reasoning", words, deltas)

    def _tell(self, kind: _Kind, text: str, deltas: list[Delta]) -> None:
        if text:
            self._has_begun = True
            deltas.append(Delta(kind=kind, text=plain(text)))

    def _assembled(self) -> bytes:
        grown = self._message.members()
        message = {"role": grown.pop("role", b'"assistant"'), "content": b"null", **grown}
        if self._parts:
            message["content"] = self._parts.raw()
        if self._details:
            message["reasoning_details"] = self._details.raw()
        if self._calls:
            message["tool_calls"] = self._calls.raw()
        return _joined(message)


# ----------------------------------------------------------------------------------- what grows


class _Grown:
    """A JSON object in pieces: some strings grow, lists grow, of the rest the last value holds.

    Null and the empty string replace nothing: servers that repeat ids and names send them so.
    """

    __slots__ = ("_growing", "_members", "_texts")

    def __init__(self, growing: frozenset[str]) -> None:
        self._growing = growing
        self._members: dict[str, bytes] = {}
        self._texts: dict[str, list[str]] = {}

    def grow(self, key: str, raw: msgspec.Raw) -> str:
        """Take one member of a piece; return the text that it added."""
        if key in self._growing and (text := _text(raw)) is not None:
            self.add(key, text)
            return text
        value = bytes(raw)
        before = self._members.get(key, b"")
        if value.startswith(b"[") and before.startswith(b"["):
            self._members[key] = _listed((*rawjson.items(before), *rawjson.items(value)))
        elif value != b"null" and (value != b'""' or not before):
            self._members[key] = value
        return ""

    def add(self, key: str, text: str) -> None:
        """Let one string grow."""
        pieces = self._texts.get(key)
        if pieces is None:
            self._texts[key] = [text]
            self._members[key] = b""  # holds its place
        else:
            pieces.append(text)

    def get(self, key: str) -> bytes | None:
        return self._members.get(key)

    def text(self, key: str) -> str:
        return "".join(self._texts.get(key, ()))

    def pop_text(self, key: str) -> str | None:
        if key not in self._texts:
            return None
        del self._members[key]
        return "".join(self._texts.pop(key))

    def members(self) -> dict[str, bytes]:
        return self._members | {key: _written("".join(pieces)) for key, pieces in self._texts.items()}


class _Parts:
    """A list of typed parts in pieces."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[_Grown] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, pieces: Iterable[_Object]) -> str:
        """Take pieces; return the words (no encrypted data) that they added."""
        words = []
        for piece in pieces:
            part = self._continued_by(piece)
            if part is None:
                part = _Grown(_PART_TEXTS)
                self._parts.append(part)
            for key, raw in piece.items():
                text = part.grow(key, raw)
                if key != "data":
                    words.append(text)
        return "".join(words)

    def _continued_by(self, piece: _Object) -> _Grown | None:
        """The latest part of the same type and index; without an index only the very last can be meant."""
        kind, index, id = (bytes(piece[key]) if key in piece else None for key in ("type", "index", "id"))
        for part in reversed(self._parts if index is not None else self._parts[-1:]):
            if part.get("type") == kind and part.get("index") == index:
                is_other = id is not None and part.get("id") not in (None, id)
                is_signed = part.get("signature") is not None and "text" in piece
                can_grow = index is not None or kind in _GROWING_PARTS
                return part if can_grow and not is_other and not is_signed else None
        return None

    def text(self, kind: str) -> str:
        wanted = rawjson.dumps(kind)
        return "".join(part.text("text") for part in self._parts if part.get("type") == wanted)

    def raw(self) -> bytes:
        return _listed(_joined(part.members()) for part in self._parts)


class _Call:
    """One tool call in pieces."""

    __slots__ = ("bodies", "rest")

    def __init__(self) -> None:
        self.rest = _Grown(frozenset())
        self.bodies: dict[str, _Grown] = {}

    def grow(self, delta: _Object, bodies: Mapping[str, _Object]) -> None:
        for key, raw in delta.items():
            if key in bodies:
                body = self.bodies.setdefault(key, _Grown(_ARGUMENTS))
                for name, value in bodies[key].items():
                    body.grow(name, value)
            elif key != "index":  # its place in the stream
                self.rest.grow(key, raw)

    def raw(self) -> bytes:
        bodies = {key: _joined(body.members()) for key, body in self.bodies.items()}
        return _joined(self.rest.members() | bodies)


class _Calls:
    """The tool calls, in the order in which they began."""

    __slots__ = ("_at", "_calls")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, deltas: Iterable[_Object]) -> None:
        for delta in deltas:
            bodies: dict[str, _Object] = {}
            begins = False
            for kind in ("function", "custom"):
                if kind in delta and delta[kind] != _NULL:
                    bodies[kind] = body = _object_of(delta[kind])
                    begins = begins or bool("name" in body and _text(body["name"]))
            self._meant_by(delta, begins=begins).grow(delta, bodies)

    def _meant_by(self, delta: _Object, *, begins: bool) -> _Call:
        """The call that a piece belongs to.

        A piece names its call by index. But Gemini's endpoint numbers parallel calls all 0, and some
        servers send no index: so a name with another id begins another call whatever its index, and
        without an index a piece belongs to the call of its id, or else to the last one.
        """
        index = _number(delta["index"]) if "index" in delta else None
        id = bytes(delta["id"]) if "id" in delta and delta["id"] not in (_NULL, _EMPTY) else None
        if index is not None:
            call = self._at.get(index)
        elif id is not None:
            call = next((call for call in self._calls if call.rest.get("id") == id), None)
        else:
            call = self._calls[-1] if self._calls and not begins else None
        if call is None or (begins and id is not None and call.rest.get("id") not in (None, id)):
            call = _Call()
            self._calls.append(call)
        if index is not None:
            self._at[index] = call
        return call

    def raw(self) -> bytes:
        return _listed(call.raw() for call in self._calls)


# --------------------------------------------------------------------------------- JSON in pieces

_EMPTY: Final = msgspec.Raw(b'""')
_ARRAY: Final = ord("[")
_REFUSALS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_CHUNK: Final = msgspec.json.Decoder(_Chunk)
_TEXT_CHUNK: Final = msgspec.json.Decoder(_TextChunk)
_TEXT: Final = msgspec.json.Decoder(str)
_NUMBER: Final = msgspec.json.Decoder(int)
_OBJECT: Final = msgspec.json.Decoder(_Object)
_OBJECTS: Final = msgspec.json.Decoder(list[_Object])


def _chunk(data: bytes) -> _Chunk:
    """Read one event; RawJSONError if it is of another shape altogether."""
    try:
        return _CHUNK.decode(data)
    except _REFUSALS:
        pass  # half an emoji, or a member of an unusual type: read piece by piece
    members = rawjson.members(data)
    choices = members.get("choices", b"null")
    return _Chunk(
        id=_string(members, "id"),
        object=_string(members, "object"),
        model=_string(members, "model"),
        choices=None if choices == b"null" else [_choice(choice) for choice in rawjson.items(choices)],
        usage=_raw(members, "usage"),
        error=_raw(members, "error"),
        x_groq=_raw(members, "x_groq"),
    )


def _choice(data: bytes) -> _Choice:
    members = rawjson.members(data)
    delta = _raw(members, "delta")
    return _Choice(
        index=1 if members.get("index", b"0") not in (b"0", b"null") else 0,
        delta=None if delta == _NULL else _object_of(delta),
        finish_reason=_string(members, "finish_reason"),
        error=_raw(members, "error"),
    )


def _string(members: Mapping[str, bytes], key: str) -> str | None:
    return rawjson.string(members.get(key, b"null"))


def _raw(members: Mapping[str, bytes], key: str) -> msgspec.Raw:
    return msgspec.Raw(members.get(key, b"null"))


def _member(raw: msgspec.Raw, key: str) -> msgspec.Raw | None:
    """A member of a value that may be no object."""
    try:
        return _object_of(raw).get(key)
    except rawjson.RawJSONError:
        return None


def _text(raw: msgspec.Raw) -> str | None:
    """The string that a span is, None if it is something else."""
    try:
        return _TEXT.decode(raw)
    except _REFUSALS:
        return rawjson.string(bytes(raw))


def _number(raw: msgspec.Raw) -> int | None:
    try:
        return _NUMBER.decode(raw)
    except _REFUSALS:
        return None


def _object_of(raw: msgspec.Raw) -> _Object:
    try:
        return _OBJECT.decode(raw)
    except _REFUSALS:
        return {key: msgspec.Raw(value) for key, value in rawjson.members(bytes(raw)).items()}


def _objects_of(raw: msgspec.Raw) -> list[_Object]:
    try:
        return _OBJECTS.decode(raw)
    except _REFUSALS:
        return [_object_of(msgspec.Raw(item)) for item in rawjson.items(bytes(raw))]


def _text_part(text: str) -> _Object:
    return {"type": msgspec.Raw(b'"text"'), "text": msgspec.Raw(_written(text))}


def _written(text: str) -> bytes:
    """A string as JSON, exactly: half an emoji stays escaped, where `rawjson.dumps` would replace it."""
    return rawjson.dumps(text) if plain(text) is text else json.dumps(text).encode()


def _joined(members: Mapping[str, bytes | msgspec.Raw]) -> bytes:
    return b"{" + b",".join(rawjson.dumps(key) + b":" + bytes(value) for key, value in members.items()) + b"}"


def _listed(values: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(values) + b"]"
