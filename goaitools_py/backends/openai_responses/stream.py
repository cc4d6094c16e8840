"""Reads a streamed response: chunks of bytes become deltas and, at the end, one response.

Owns: which events give deltas, and which hold the kept items. Must never know: the stored form of an item.

Nothing is assembled: the server repeats every finished item whole, and the whole response at the end.
The item of an ``added`` event is never kept, because its `encrypted_content` may be incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ...base import rawjson
from ...base.values import replace
from ...types.render import Halves, valid_text
from ..base import Delta, Fault, ProtocolFault, Reply
from ..http.sse import EventSplitter, EventTooLongError
from ..wire.answer import left_over
from ..wire.envelope import Envelope, shallow
from .items import BETWEEN
from .reply import RawReply, failure, read_response, reply_of, said_in

__all__ = ["ResponsesDecoder"]

_SPOKEN: Final[Mapping[str, Literal["text", "reasoning"]]] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}
"""The events that give deltas, and the kind of delta."""

_TERMINAL: Final[Mapping[str, str]] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
"""The events that end a reply, and the status that they mean."""

_INTERRUPTED: Final = Fault(kind="interrupted", retryable=True)
_NULL: Final = msgspec.Raw(b"null")


class _RawEvent(msgspec.Struct, gc=False):
    """The members of an event that are read. Others, such as padding and positions, are ignored."""

    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    item: msgspec.Raw = _NULL
    response: msgspec.Raw = _NULL


_EVENT: Final = Envelope(_RawEvent)


class ResponsesDecoder:
    """Decodes one streamed response. It is complete with one of the three terminal events, not before.

    Attributes:
        is_done: True if a terminal event was read; nothing after it is needed.
    """

    reads_events: Final = True

    def __init__(self, family: str) -> None:
        self._family = family
        self._splitter = EventSplitter()
        self._text: list[str] = []
        self._done: dict[int, bytes] = {}
        self._answer: RawReply | None = None
        self.is_done = self._is_cut = False
        self._has_begun = self._has_ended = False
        self._index: int | None = None
        self._halves = Halves()

    def feed(self, chunk: bytes) -> list[Delta]:
        """Take the next bytes, which may be cut anywhere; return the deltas that became readable.

        Raises:
            ProtocolFault: An error event, a response that failed, an event that is not JSON, or one that is
                too large. Its kind is "interrupted" if a part of the reply has come.
        """
        deltas: list[Delta] = []
        try:
            events = self._splitter.feed(chunk)
        except EventTooLongError as problem:
            raise self._fault(ProtocolFault(str(problem))) from problem
        for data in events:
            if self._answer is not None:
                break
            try:
                event = _event(data)
                kind = _SPOKEN.get(event.type)
                if kind is None:
                    if (cut := shallow(data)) is not data:  # every other event is one string
                        event, self._is_cut = _event(cut), True
                    self._take(event, cut)
                    deltas += left_over(self._halves)
                elif event.delta:
                    self._has_begun = True
                    said = event.delta
                    if kind == "text":
                        said = self._between(event.output_index) + said
                        self._text.append(said)
                    if text := self._halves.shown(kind, said):
                        deltas.append(Delta(kind=kind, text=text))
            except rawjson.RawJSONError as problem:
                finding = ProtocolFault("an event of the stream cannot be read")
                raise self._fault(finding) from problem
        return deltas

    def end(self) -> list[Delta]:
        """Complete a last event that ends without its blank line.

        Raises:
            ProtocolFault: As `feed`.
        """
        return self.feed(b"\n\n") if self._splitter.has_rest else []

    @property
    def has_begun(self) -> bool:
        """True if a part of the reply has come: text, reasoning, a piece of a call, a whole item."""
        return self._has_begun

    def finish(self) -> Reply:
        """The complete reply.

        Raises:
            ProtocolFault: The stream ended before the reply did.
        """
        if self._answer is None:
            self.end()
        if self._answer is None:
            raise ProtocolFault("the stream ended before the reply did", _INTERRUPTED)
        reply = reply_of(self._answer, family=self._family)
        return replace(reply, cut=True) if self._is_cut else reply

    @property
    def partial_text(self) -> str:
        """Text received so far."""
        return valid_text("".join(self._text))

    # ----------------------------------------------------------------------------------- one event

    def _between(self, index: int | None) -> str:
        """The separator before the next piece of text; "" unless the piece begins another message."""
        is_other = self._has_ended if index is None else index != self._index
        self._has_ended, self._index = False, index
        return BETWEEN if is_other and self._text else ""

    def _take(self, event: _RawEvent, data: bytes) -> None:
        if event.type == "response.output_item.done":
            self._has_begun = self._has_ended = True
            at = len(self._done) if event.output_index is None else event.output_index
            self._done[at] = bytes(event.item)
        elif event.type in _TERMINAL:
            self._end(event, _TERMINAL[event.type])
        elif event.type.startswith("response."):
            self._has_begun = self._has_begun or event.delta is not None
        else:
            self._check_error(data)

    def _end(self, event: _RawEvent, status: str) -> None:
        items = [self._done[at] for at in sorted(self._done)]
        try:
            answer = read_response(bytes(event.response), items=items)
        except ProtocolFault as finding:
            raise self._fault(finding) from None
        if status == "failed":
            raise self._fault(failure(None, text=said_in(answer.items if answer else items)))
        if answer is None:
            raise self._fault(ProtocolFault("the stream's last event holds no response"))
        self._answer = answer if answer.status else replace(answer, status=status)
        self.is_done = True

    def _check_error(self, data: bytes) -> None:
        """Check an event of another name for an error, which servers put into different members."""
        if data.strip() in (b"", b"[DONE]"):
            return
        event = rawjson.loads(data)
        if not isinstance(event, dict):
            raise rawjson.RawJSONError("an event must be a JSON object", 0)
        error = event.get("error")
        if event.get("type") == "error":  # OpenAI: the error's members are the event's own
            error = error or {**event, "type": None}
        elif event.get("object") == "error":  # vLLM
            error = error or event
        if error:
            raise self._fault(failure(error))

    def _fault(self, finding: ProtocolFault) -> ProtocolFault:
        if not self._has_begun:
            return finding
        fault = replace(_INTERRUPTED, code=finding.fault.code)
        return ProtocolFault(str(finding), fault, usage=finding.usage, partial_text=finding.partial_text)


# ----------------------------------------------------------------------------------- reading events


def _event(data: bytes) -> _RawEvent:
    """Read one event. An event that is not a JSON object is empty; `_check_error` then checks its bytes."""
    try:
        return _EVENT.read(data)
    except rawjson.RawJSONError:
        return _RawEvent()
