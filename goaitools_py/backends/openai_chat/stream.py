"""Assembles a streamed chat completion: chunks of bytes become deltas and, at the end, one response.

Owns: how the pieces of choice 0 are joined. Must never know: the stored form of the message.

The assembled message has ``role``, ``content``, other members, ``tool_calls``, in this order. Strings are
joined code point by code point. Values of unknown keys keep their bytes and are joined by the rule in
`wire.growing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ...base import rawjson
from ...base.values import replace
from ...types.messages import Usage
from ...types.render import Halves, valid_text
from ..base import Delta, Fault, ProtocolFault, Reply
from ..http.sse import EventSplitter, EventTooLongError
from ..openai.odd_replies import BESIDE
from ..wire.answer import BROKEN_OFF, broken_off, error_fault, left_over, misplaced_error
from ..wire.bill import merged
from ..wire.envelope import REFUSALS, shallow
from ..wire.growing import (
    NULL,
    Calls,
    Grown,
    Object,
    Parts,
    object_of,
    objects_of,
    text_of,
    with_members,
    written,
)
from .reply import RawReply, ended_by, reply_of, usage_of

__all__ = ["ChatDecoder"]

_Kind = Literal["text", "reasoning"]

_SPOKEN: Final[Mapping[str, _Kind]] = {
    "content": "text",
    "refusal": "text",
    "reasoning": "reasoning",
    "reasoning_content": "reasoning",
}
"""The strings of a delta that come in pieces, and the kind of delta that each becomes."""

_STREAM_ONLY: Final = frozenset({"channel", "function_call"})
"""Keys that no message has: Groq's kind of a piece, and the deprecated call, which is never asked for."""

_INTERRUPTED: Final = Fault(kind="interrupted", retryable=True)


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: Object | None = None
    message: Object | None = None  # a proxy that puts a whole completion into one event
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    usage: msgspec.Raw = NULL
    error: msgspec.Raw = NULL


class _Chunk(msgspec.Struct):
    id: str | None = None
    object: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = NULL
    error: msgspec.Raw = NULL
    x_groq: msgspec.Raw = NULL
    citations: msgspec.Raw = NULL
    search_results: msgspec.Raw = NULL
    web_search: msgspec.Raw = NULL


# The shape of most events: only text of choice 0. The other members of interest are declared with their empty
# value, so msgspec refuses an event in which one is not empty.


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
    usage: None = None
    error: None = None


class _TextChunk(msgspec.Struct, gc=False):
    choices: tuple[_TextChoice]
    object: Literal["chat.completion.chunk"] | None = None
    usage: None = None
    error: None = None
    x_groq: None = None


_MAX_GUESSES: Final = 8
"""After this number of wrong guesses that an event is plain text, the stream is read without guessing."""


class ChatDecoder:
    """Decodes one streamed response.

    The stream is complete when choice 0 has a finish reason, or at ``[DONE]`` after any event of choice 0:
    some servers leave the reason empty, and servers never send ``[DONE]`` in the middle.

    Attributes:
        is_done: True if ``[DONE]`` was read; nothing after it is needed.
    """

    reads_events: Final = True

    def __init__(self, family: str) -> None:
        self._family = family
        self._splitter = EventSplitter()
        self._id = self._model = self._finish = ""
        self._usage = b"null"
        self._beside: dict[str, bytes] = {}
        self._sound: Object = {}
        self._heard: list[str] = []
        self.is_done = self._is_cut = self._has_choice = self._has_begun = False
        self._expects_text = False
        self._guesses_left = _MAX_GUESSES
        self._message = Grown(frozenset(_SPOKEN))
        self._parts = Parts()
        self._details = Parts()
        self._calls = Calls()
        self._halves = Halves()

    # -------------------------------------------------------------------------------- the protocol

    def feed(self, chunk: bytes) -> list[Delta]:
        """Take the next bytes, which may be cut anywhere; return the deltas that became readable.

        Raises:
            ProtocolFault: An error event, one that is not JSON, or one that is too large. Its kind is
                "interrupted" if a part of the reply has come.
        """
        deltas: list[Delta] = []
        try:
            events = self._splitter.feed(chunk)
        except EventTooLongError as problem:
            raise self._fault(str(problem)) from problem
        for data in events:
            if self._expects_text and (text := self._plain_text(data)) is not None:
                if text:
                    shown = self._halves.shown("text", text) if self._halves else text
                    deltas.append(Delta(kind="text", text=shown))
                continue
            if self.is_done or not (data := data.strip()):
                continue
            if data == b"[DONE]":
                self.is_done = True
                continue
            cut = shallow(data)
            self._is_cut = self._is_cut or cut is not data
            try:
                self._take(_chunk(cut), cut, deltas)
            except rawjson.RawJSONError as problem:
                raise self._fault("an event of the stream cannot be read") from problem
        return deltas

    def end(self) -> list[Delta]:
        """Complete a last event that ends without its blank line.

        Raises:
            ProtocolFault: As `feed`.
        """
        return self.feed(b"\n\n") if self._splitter.has_rest else []

    @property
    def has_begun(self) -> bool:
        """True if a part of the reply has come: text, reasoning, a piece of a call."""
        return self._has_begun

    def finish(self) -> Reply:
        """The complete reply. It can be read when there is a finish reason; only the usage may come after.

        Raises:
            ProtocolFault: The stream ended before the reply did.
        """
        if not self.is_done:
            self.end()
        if not self._finish and not (self.is_done and self._has_choice):
            raise ProtocolFault("the stream ended before the reply did", _INTERRUPTED)
        if self._finish in BROKEN_OFF:
            raise broken_off(self._finish, self.partial_text)
        try:
            message = self._assembled()
        except rawjson.RawJSONError as problem:
            raise ProtocolFault("the pieces of the reply do not make one", _INTERRUPTED) from problem
        answer = RawReply(
            message=message,
            finish_reason=self._finish,
            usage=self._usage,
            model=self._model,
            id=self._id,
            beside=self._beside,
        )
        reply = reply_of(answer, family=self._family)
        return replace(reply, cut=True) if self._is_cut else reply

    @property
    def partial_text(self) -> str:
        """Text received so far."""
        return valid_text(self._parts.text("text") + self._message.text("content") + "".join(self._heard))

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that the stream has reported so far; most servers report it at the end."""
        return None if self._usage == b"null" else usage_of(self._usage)

    # ----------------------------------------------------------------------------------- one event

    def _take(self, chunk: _Chunk, data: bytes, deltas: list[Delta]) -> None:
        if chunk.object == "error":  # vLLM: the error's members are the event's own
            raise self._fault("the provider broke the stream off", rawjson.loads(data))
        if not chunk.choices and chunk.error != NULL:
            self._check_error(chunk.error)
        if not chunk.choices and not self._has_choice and (error := misplaced_error(data)) is not None:
            raise self._fault("the provider broke the stream off", error)
        if not self._id:
            self._id = chunk.id or ""
        if not self._model:
            self._model = chunk.model or ""
        if chunk.usage != NULL:
            self._usage = merged(self._usage, bytes(chunk.usage))
        elif chunk.x_groq != NULL:
            self._usage = merged(self._usage, bytes(_member(chunk.x_groq, "usage") or NULL))
        for name in BESIDE:  # each list comes whole, and most events have no list
            if (sources := getattr(chunk, name)) != NULL:
                self._beside[name] = bytes(sources)
        for choice in chunk.choices or ():
            if choice.index:
                continue  # only the first of several choices is kept
            self._has_choice = True
            if choice.usage != NULL:
                self._usage = merged(self._usage, bytes(choice.usage))
            if delta := choice.delta or choice.message:
                self._grow(delta, deltas)
                self._expects_text = self._may_go_on(delta)
            if choice.finish_reason:
                self._finish = ended_by(choice.finish_reason, choice.native_finish_reason)
                deltas += left_over(self._halves)
            # Behind the rest of the event: it may hold the last word of the reply.
            if choice.error != NULL:
                self._check_error(choice.error)
        if chunk.error != NULL:
            self._check_error(chunk.error)

    def _may_go_on(self, delta: Object) -> bool:
        """True if the next event is probably plain text: this one had text, and no other part is open."""
        return (
            delta.get("content", NULL) != NULL
            and not self._parts
            and self._id != ""
            and self._model != ""
            and self._message.get("role") in (None, b'"assistant"')
            and self._guesses_left > 0
        )

    def _plain_text(self, data: bytes) -> str | None:
        """Take an event that is plain text; None if it has to be read in full."""
        try:
            text = _TEXT_CHUNK.decode(data).choices[0].delta.content
        except REFUSALS:
            self._expects_text = False
            self._guesses_left -= 1
            return None
        self._message.add("content", text)
        if text:
            self._has_begun = True
        return text

    def _check_error(self, raw: msgspec.Raw) -> None:
        if error := rawjson.loads(bytes(raw)):  # an empty one is not an error
            raise self._fault("the provider broke the stream off", error)

    def _fault(self, problem: str, error: object = None) -> ProtocolFault:
        finding = ProtocolFault(problem) if error is None else error_fault(error)
        if not self._has_begun:
            return finding
        return ProtocolFault(problem, replace(_INTERRUPTED, code=finding.fault.code))

    def _grow(self, delta: Object, deltas: list[Delta]) -> None:
        for key, raw in delta.items():
            if raw == NULL or key in _STREAM_ONLY:
                continue
            if key == "tool_calls":
                self._calls.add(objects_of(raw))
                self._has_begun = True
            elif key == "content" and (self._parts or bytes(raw)[0] == _ARRAY):
                self._grow_content(raw, deltas)
            elif key == "reasoning_details":
                text = self._details.add(objects_of(raw))
                if "reasoning" not in delta and "reasoning_content" not in delta:
                    self._tell("reasoning", text, deltas)
            elif key == "audio":
                self._hear(object_of(raw), deltas)
            else:
                text = self._message.grow(key, raw)
                if key == "content" and bytes(raw).startswith(b"{"):  # JSON mode of some servers
                    self._tell("text", rawjson.one_line(bytes(raw)).decode(), deltas)
                # vLLM 0.11 sends every piece of reasoning under both names.
                if text and not (key == "reasoning" and "reasoning_content" in delta):
                    self._tell(_SPOKEN[key], text, deltas)

    def _hear(self, audio: Object, deltas: list[Delta]) -> None:
        """Take a piece of a sound: the id comes first, the expiry last, and the transcript in
        pieces. The sound itself is not kept."""
        self._sound |= {key: audio[key] for key in ("id", "expires_at") if audio.get(key, NULL) != NULL}
        words = text_of(audio.get("transcript", NULL)) or ""
        self._heard.append(words)
        self._tell("text", words, deltas)

    def _grow_content(self, raw: msgspec.Raw, deltas: list[Delta]) -> None:
        """Take content that comes in parts. Mistral's reasoning models send parts, and later strings."""
        before = self._message.pop_text("content")
        if before is not None:
            self._parts.add([_text_part(before)])
        text = text_of(raw)
        for piece in objects_of(raw) if text is None else [_text_part(text)]:
            words = self._parts.add([piece])
            thoughts = piece.get("thinking", NULL)
            if bytes(thoughts)[0] == _ARRAY:
                words = Parts().add(objects_of(thoughts))
            self._tell("text" if thoughts == NULL else "reasoning", words, deltas)

    def _tell(self, kind: _Kind, text: str, deltas: list[Delta]) -> None:
        if text:
            self._has_begun = True
            if shown := self._halves.shown(kind, text):
                deltas.append(Delta(kind=kind, text=shown))

    def _assembled(self) -> bytes:
        grown = self._message.members()
        message = {"role": grown.pop("role", b'"assistant"'), "content": b"null", **grown}
        if self._sound:
            words = msgspec.Raw(written("".join(self._heard)))
            message["audio"] = with_members({**self._sound, "transcript": words})
        if self._parts:
            message["content"] = self._parts.raw()
        if self._details:
            message["reasoning_details"] = self._details.raw()
        if self._calls:
            message["tool_calls"] = self._calls.raw()
        return with_members(message)


# --------------------------------------------------------------------------------- JSON in pieces

_ARRAY: Final = ord("[")
_CHUNK: Final = msgspec.json.Decoder(_Chunk)
_TEXT_CHUNK: Final = msgspec.json.Decoder(_TextChunk)


def _chunk(data: bytes) -> _Chunk:
    """Read one event. Raises RawJSONError if it is not an object with a list of choices."""
    try:
        return _CHUNK.decode(data)
    except REFUSALS:
        pass  # a lone surrogate, or a member of an unusual type: read member by member
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
        **{name: _raw(members, name) for name in BESIDE},
    )


def _choice(data: bytes) -> _Choice:
    members = rawjson.members(data)
    delta, message = _raw(members, "delta"), _raw(members, "message")
    return _Choice(
        index=1 if members.get("index", b"0") not in (b"0", b"null") else 0,
        delta=None if delta == NULL else object_of(delta),
        message=None if message == NULL else object_of(message),
        finish_reason=_string(members, "finish_reason"),
        native_finish_reason=_string(members, "native_finish_reason"),
        usage=_raw(members, "usage"),
        error=_raw(members, "error"),
    )


def _string(members: Mapping[str, bytes], key: str) -> str | None:
    return rawjson.string(members.get(key, b"null"))


def _raw(members: Mapping[str, bytes], key: str) -> msgspec.Raw:
    return msgspec.Raw(members.get(key, b"null"))


def _member(raw: msgspec.Raw, key: str) -> msgspec.Raw | None:
    """A member of the value; None if the value is not an object."""
    try:
        return object_of(raw).get(key)
    except rawjson.RawJSONError:
        return None


def _text_part(text: str) -> Object:
    return {"type": msgspec.Raw(b'"text"'), "text": msgspec.Raw(written(text))}
