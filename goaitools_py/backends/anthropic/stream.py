"""Assembles a streamed Anthropic message: chunks of bytes become deltas and, at the end, one response.

Owns: how the pieces of content blocks are joined. Must never know: the stored form of the response.

A block has the members of its ``content_block_start``, in the same order and with the same bytes, except for
the members that grew. Strings are joined code point by code point. The JSON of an input stays as the model
wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from ...base import rawjson
from ...base.values import replace
from ...types.messages import Usage
from ...types.render import Halves, valid_text
from ..base import Delta, Fault, ProtocolFault, Reply
from ..http.sse import EventSplitter, EventTooLongError
from ..wire.answer import BROKEN_OFF, broken_off, error_fault, left_over
from ..wire.bill import merged
from ..wire.envelope import REFUSALS, Envelope, read_again, shallow
from ..wire.growing import NULL, Object, joined, object_of, with_members, written
from ..wire.tolerance import members_of
from .consumption import billed
from .reply import GUARDRAIL, RawReply, is_object, reply_of

__all__ = ["AnthropicDecoder"]

_INTERRUPTED: Final = Fault(kind="interrupted", retryable=True)

_KNOWN: Final = frozenset({b'"text"', b'"thinking"', b'"tool_use"', b'"server_tool_use"', b'"mcp_tool_use"'})
"""Types of blocks with a closed list of delta kinds. Other members of their deltas are not stored."""


class _RawEvent(msgspec.Struct):
    type: str = ""
    index: int | None = None
    message: msgspec.Raw = NULL
    content_block: msgspec.Raw = NULL
    delta: msgspec.Raw = NULL
    usage: msgspec.Raw = NULL
    error: msgspec.Raw = NULL
    input_transformations: msgspec.Raw = NULL
    guardrail: str | None = msgspec.field(default=None, name="amazon-bedrock-guardrailAction")


# The shape of most events. msgspec refuses an event with any other member, which is then read in full.


class _Text(msgspec.Struct, tag="text_delta", forbid_unknown_fields=True, gc=False):
    text: str


class _Thinking(msgspec.Struct, tag="thinking_delta", forbid_unknown_fields=True, gc=False):
    thinking: str
    estimated_tokens: int | None = None


class _Input(msgspec.Struct, tag="input_json_delta", forbid_unknown_fields=True, gc=False):
    partial_json: str


_Delta: TypeAlias = _Text | _Thinking | _Input


class _DeltaEvent(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["content_block_delta"]
    index: int
    delta: _Delta


_MAX_GUESSES: Final = 8
"""After this number of wrong guesses that an event is a plain delta, the stream is read without guessing."""


class AnthropicDecoder:
    """Decodes one streamed response, which ends with ``message_stop``.

    Some servers leave that event out. The response is whole, too, if every block was closed, and the stop
    reason and a usage have come.

    Attributes:
        is_done: True if ``message_stop`` was read; nothing after it is needed.
    """

    reads_events: Final = True

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self._message: Object = {}
        self._end: Object = {}
        self._usage = b"null"
        self._transformations = b"null"
        self._blocks: dict[int, _Block] = {}
        self._closed: set[int] = set()
        self.is_done = self._is_cut = self._is_guarded = False
        self._guesses_left = _MAX_GUESSES
        self._halves = Halves()

    # -------------------------------------------------------------------------------- the protocol

    def feed(self, chunk: bytes) -> list[Delta]:
        """Take the next bytes, which may be cut anywhere; return the deltas that became readable.

        Raises:
            ProtocolFault: An error event, one that is not JSON or makes no sense, or one that is too large.
                Its kind is "interrupted" if a part of the reply has come.
        """
        deltas: list[Delta] = []
        try:
            events = self._splitter.feed(chunk)
        except EventTooLongError as problem:
            raise self._fault(str(problem)) from problem
        for data in events:
            if self.is_done:
                break
            if self._guesses_left and self._blocks and self._take_plain(data, deltas):
                continue
            if not (data := data.strip()):
                continue
            cut = shallow(data)
            self._is_cut = self._is_cut or cut is not data
            try:
                self._take(_EVENT.read(cut), deltas)
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
        """True if a part of the reply has come: text, or a block of another kind."""
        return any(block.type != b'"text"' or block.text() for block in self._blocks.values())

    def finish(self) -> Reply:
        """The complete reply.

        Raises:
            ProtocolFault: The stream ended before the reply did, or its content cannot be read.
        """
        if not self.is_done:
            self.end()
        is_closed = self._closed.issuperset(self._blocks)
        if not self.is_done and not (is_closed and self._usage != b"null" and "stop_reason" in self._end):
            raise ProtocolFault("the stream ended before the reply did", _INTERRUPTED)
        if (word := self._stop_reason) in BROKEN_OFF:
            raise broken_off(word, self.partial_text)
        message = members_of(with_members(self._message))
        end = members_of(with_members(self._end))
        try:
            blocks = [block.raw() for _, block in sorted(self._blocks.items())]
        except rawjson.RawJSONError as problem:
            raise ProtocolFault("the pieces of the reply do not make one", _INTERRUPTED) from problem
        answer = RawReply(
            content=b"[" + b",".join(blocks) + b"]",
            stop_reason=GUARDRAIL if self._is_guarded else word,
            is_closed=is_closed,
            usage=self._usage,
            model=_string(message, "model"),
            id=_string(message, "id"),
            container=_given(end, message, "container"),
            transformations=self._transformations,
        )
        # In the message a block stands one level deeper than in its event, a citation two.
        listed = b"[%s]" % answer.content
        reply = read_again(listed, lambda listed: reply_of(replace(answer, content=listed[1:-1])))
        return replace(reply, cut=True) if self._is_cut else reply

    @property
    def partial_text(self) -> str:
        """Text received so far."""
        return valid_text("".join(block.text() for block in tuple(self._blocks.values())))

    @property
    def usage_so_far(self) -> Usage | None:
        """The usage that the stream has reported so far: the input from its first event on."""
        return None if self._usage == b"null" else billed(self._usage)

    # ----------------------------------------------------------------------------------- one event

    def _take_plain(self, data: bytes, deltas: list[Delta]) -> bool:
        """Take an event that is a plain delta; False if it has to be read in full."""
        if not data.startswith(_DELTA_START):
            return False
        try:
            event = _DELTA_EVENT.decode(data)
        except REFUSALS:
            self._guesses_left -= 1
            return False
        block = self._blocks.get(event.index)
        delta = event.delta
        if block is None:
            return False
        if type(delta) is _Text:
            self._tell("text", block.grow("text", delta.text), deltas)
        elif type(delta) is _Thinking:
            self._tell("reasoning", block.grow("thinking", delta.thinking), deltas)
        elif type(delta) is _Input:
            block.grow("input", delta.partial_json)
        return True

    @property
    def _stop_reason(self) -> str:
        given = (bytes(one.get("stop_reason", NULL)) for one in (self._end, self._message))
        return next(filter(None, (rawjson.string(raw) for raw in given)), "")

    def _take(self, event: _RawEvent, deltas: list[Delta]) -> None:
        self._is_guarded = self._is_guarded or event.guardrail == "INTERVENED"
        if event.type == "content_block_delta":
            self._grow(self._block(event), object_of(event.delta), deltas)
        elif event.type == "content_block_stop":
            self._closed.add(-1 if event.index is None else event.index)
            deltas += left_over(self._halves)
        elif event.type == "content_block_start":
            if event.index is None or event.index in self._blocks:
                raise self._fault("a block of the stream begins without a place of its own")
            block = self._blocks[event.index] = _Block(object_of(event.content_block))
            self._tell("text", block.text(), deltas)
        elif event.type == "message_start":
            self._message = object_of(event.message)
            self._usage = merged(self._usage, bytes(self._message.get("usage", NULL)))
            self._transform(self._message.get("input_transformations", NULL))
        elif event.type == "message_delta":
            self._end |= {key: raw for key, raw in object_of(event.delta).items() if raw != NULL}
            self._usage = merged(self._usage, bytes(event.usage))
            self._transform(event.input_transformations)
        elif event.type == "message_stop":
            self.is_done = True
        elif event.type == "error" or event.error != NULL:
            raise self._fault("the provider broke the stream off", rawjson.loads(bytes(event.error)))
        # skip "ping", which has no content, and unknown types

    def _block(self, event: _RawEvent) -> _Block:
        block = self._blocks.get(-1 if event.index is None else event.index)
        if block is None:
            raise self._fault("a block of the stream goes on that never began")
        return block

    def _grow(self, block: _Block, delta: Object, deltas: list[Delta]) -> None:
        kind = bytes(delta.pop("type", NULL))
        if kind == b'"text_delta"':
            self._tell("text", block.grow("text", _text(delta, "text")), deltas)
        elif kind == b'"thinking_delta"':
            self._tell("reasoning", block.grow("thinking", _text(delta, "thinking")), deltas)
        elif kind == b'"input_json_delta"':
            block.grow("input", _text(delta, "partial_json"))
        elif kind == b'"citations_delta"':
            block.append("citations", delta.get("citation", NULL))
        elif kind == b'"signature_delta"' or kind == b'"compaction_delta"':
            block.put(delta)  # these come whole
        elif block.type not in _KNOWN:
            for key, raw in delta.items():
                block.grow_unknown(key, raw)

    def _tell(self, kind: Literal["text", "reasoning"], text: str, deltas: list[Delta]) -> None:
        if text and (shown := self._halves.shown(kind, text)):
            deltas.append(Delta(kind=kind, text=shown))

    def _transform(self, raw: msgspec.Raw) -> None:
        if raw != NULL:
            self._transformations = bytes(raw)

    def _fault(self, problem: str, error: object = None) -> ProtocolFault:
        finding = ProtocolFault(problem) if error is None else error_fault(error)
        if not self._blocks:
            return finding
        return ProtocolFault(problem, replace(_INTERRUPTED, code=finding.fault.code))


# ------------------------------------------------------------------------------- growing blocks


class _Block:
    """One content block in pieces."""

    __slots__ = ("_lists", "_members", "_pieces", "_texts", "type")

    def __init__(self, members: Object) -> None:
        self.type = bytes(members.get("type", NULL))
        self._members: dict[str, bytes] = {key: bytes(raw) for key, raw in members.items()}
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[bytes]] = {}
        self._pieces: dict[str, list[bytes]] = {}

    def grow(self, key: str, text: str) -> str:
        """Add text to a string member; return the added text."""
        pieces = self._texts.get(key)
        if pieces is None:
            before = "" if key == "input" else self._string(key)
            self._texts[key] = [before, text]
        else:
            pieces.append(text)
        return text

    def append(self, key: str, value: msgspec.Raw) -> None:
        """Add an element to a list member; a member that is not a list becomes one."""
        known = self._lists.get(key)
        if known is None:
            before = self._members.setdefault(key, b"[]")
            known = self._lists[key] = rawjson.items(before) if before.startswith(b"[") else []
        known.append(bytes(value))

    def put(self, members: Mapping[str, msgspec.Raw]) -> None:
        """Set members that come whole."""
        self._members |= {key: bytes(raw) for key, raw in members.items()}

    def grow_unknown(self, key: str, raw: msgspec.Raw) -> None:
        """Take a member of an unknown delta; `wire.growing` joins these pieces."""
        if raw == NULL:
            return
        pieces = self._pieces.get(key)
        if pieces is None:
            pieces = self._pieces[key] = [self._members.setdefault(key, b"null")]
        pieces.append(bytes(raw))

    def text(self) -> str:
        """The text so far of a text block; "" for another kind of block."""
        if self.type != b'"text"':
            return ""
        pieces = self._texts.get("text")
        return self._string("text") if pieces is None else "".join(pieces)

    def raw(self) -> bytes:
        """The block as a unary response has it."""
        members: dict[str, bytes] = dict(self._members)
        for key, pieces in self._texts.items():
            text = "".join(pieces)
            members[key] = written(text) if key != "input" else _input(text, members.get(key, b"{}"))
        for key, elements in self._lists.items():
            members[key] = b"[" + b",".join(elements) + b"]"
        for key, values in self._pieces.items():
            members[key] = joined(key, values)
        return with_members(members)

    def _string(self, key: str) -> str:
        return rawjson.string(self._members.get(key, b"null")) or ""


def _input(text: str, start: bytes) -> bytes:
    """An input as the model wrote it. Text that is not a JSON object becomes a string: it stays text."""
    text = valid_text(text)
    if not text.strip():
        return start
    return rawjson.one_line(text.encode()) if is_object(text) else written(text)


# --------------------------------------------------------------------------------- JSON in pieces

_DELTA_START: Final = b'{"type":"content_block_delta"'
_EVENT: Final = Envelope(_RawEvent)
_DELTA_EVENT: Final = msgspec.json.Decoder(_DeltaEvent)


def _text(delta: Object, key: str) -> str:
    return rawjson.string(bytes(delta.get(key, NULL))) or ""


def _string(members: Mapping[str, bytes], key: str) -> str:
    return rawjson.string(members.get(key, b"null")) or ""


def _given(first: Mapping[str, bytes], second: Mapping[str, bytes], key: str) -> bytes:
    """The member of the first of two objects that has it."""
    value = first.get(key, b"null")
    return second.get(key, b"null") if rawjson.is_null(value) else value
