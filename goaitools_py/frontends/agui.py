"""AG-UI, protocol 1.0 (npm ``@ag-ui/client``, CopilotKit and others): agents talk to a conversation.

Owns: the front end `AGUI`, and the order and the members of its events. Must never know: HTTP, a store, or
who listens. It writes JSON itself and needs no package.

``EventSchema`` in npm ``@ag-ui/core`` 1.0 defines the events. A client that has not named its protocol
version gets no member that came with 1.0, except for the outcome with approvals: a client needs it.
A call is begun once in a client: a second ``TOOL_CALL_ARGS`` would be joined to the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..history.turns import History
from ..types.answers import PendingCall
from ..types.events import (
    Compacted,
    ContextWarning,
    Event,
    ModelRequested,
    ToolProgress,
    TurnCompleted,
    TurnStarted,
)
from ..types.result import ChatResult
from .agui_messages import (
    AGUIAsk,
    StreamedReply,
    agui_messages,
    before_reply,
    read_agui,
    reasoning_id,
    result_id,
    result_metadata,
    step_id,
)
from .bodies import HEADERS, frame, progress_of
from .front_end import Ask, FrontEnd, FrontStream, Shown, SnapshotFrontEnd, problem_of
from .plain import actions_of, cost_of
from .reply_pieces import Called, Piece, Reasoned, Returned, Said, Step, pieces_of_event

__all__ = ["AGUI", "AGUIStream"]

_VERSION: Final = "1.0"

_RESPONSE: Final = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string"},
        "arguments": {"type": "object"},
    },
    "required": ["approved"],
}
"""The JSON Schema of the payload of a resume entry."""

Chunk = dict[str, Any]


class AGUIStream(FrontStream):
    """The events of one turn.

    Args:
        before: As in `FrontEnd.stream`.
        goes_on: As in `FrontEnd.stream`.
        ask: The request that is answered; it names the thread and the run.
        shown: The stored conversation, for a snapshot at the beginning. `before` is a part of it.
    """

    def __init__(
        self,
        before: Sequence[Piece] = (),
        *,
        goes_on: bool = False,
        ask: AGUIAsk | None = None,
        shown: Shown | None = None,
    ) -> None:
        self._before = tuple(before)
        self._ask = ask or AGUIAsk(is_current=True)
        self._shown = shown
        self._has_begun = False
        self._names: dict[str, str] = {}
        """Members that name the run in its first and last event."""
        self._ref = ""
        self._number = self._iteration = 0
        self._step = ""
        """The id of the open step's message."""
        self._used: set[str] = set()
        """The steps that the client has seen something of."""
        self._open = ""
        """The kind of text that is open: "text", "reasoning" or ""."""
        self._open_id = ""
        self._calls: set[str] | None = None if goes_on else set()
        """The calls that the client knows; None if it knows all."""

    def feed(self, event: Event) -> list[bytes]:
        """Write an event."""
        match event:
            case TurnStarted():
                return _frames(self._begin(event))
            case TurnCompleted():
                return _frames([*self._begin(event), *self._close(), self._finished(event.result)])
            case ModelRequested():
                return _frames([*self._begin(event), *self._begin_step(self._next_number(event))])
            case Compacted():
                about: Chunk = {"removed_turns": event.report.removed_turns}
                return self._notice(event, "goaitools.compacted", about)
            case ContextWarning():
                about = {"level": event.level, "used": event.used, "limit": event.limit, "of": event.of}
                return self._notice(event, "goaitools.context", about)
            case ToolProgress():
                about = {"toolCallId": event.call_id, **progress_of(event)}
                return self._notice(event, "goaitools.progress", about)
        pieces = pieces_of_event(event)
        return _frames([*self._begin(event), *self._write(pieces)]) if pieces else []

    def fail(self, error: BaseException) -> list[bytes]:
        """End with ``RUN_ERROR``."""
        problem = problem_of(error)
        return _frames([{"type": "RUN_ERROR", "message": problem.title, "code": problem.code}])

    def stop(self) -> list[bytes]:
        """End with ``RUN_FINISHED``, and the outcome that a client of 1.0 knows."""
        outcome = {"outcome": {"type": "cancelled"}} if self._ask.is_current else {}
        return _frames([*self._begin(Event()), *self._close(), self._end(**outcome)])

    # ---------------------------------------------------------------------------------- begin and end

    def _begin(self, event: Event) -> list[Chunk]:
        if self._has_begun:
            return []
        self._has_begun = True
        self._ref = event.turn_ref
        thread = self._ask.conversation or event.conversation_id
        self._names = {"threadId": thread, "runId": self._ask.run or event.turn_ref}
        version = {"protocolVersion": _VERSION} if self._ask.is_current else {}
        start: Chunk = {"type": "RUN_STARTED", **self._names, **version}
        if self._shown is None:
            left = before_reply(self._ask.transcript, self._ref) if self._ref else None
            # The client follows the turn that its message steers: the pieces that it holds come once more.
            again = [] if left is None else [{"type": "MESSAGES_SNAPSHOT", "messages": left}]
            return [start, *again, *self._write(self._before)]
        return [start, {"type": "MESSAGES_SNAPSHOT", "messages": self._snapshot(self._shown)}]

    def _snapshot(self, shown: Shown) -> list[Chunk]:
        """The whole conversation. The pieces of the running turn come from the stream, not from the store:
        the store may be ahead of the stream."""
        messages = agui_messages(
            shown.history,
            conversation_id=shown.conversation_id,
            pending=shown.pending,
            told=StreamedReply(self._ref, self._before) if self._ref else None,
        )
        for piece in self._before:
            self._note(piece)
        # What is written anew: empty the client's old text first.
        known = {message["id"] for message in messages}
        anew = sorted(id for id in self._ask.reasoning - known if id.startswith(f"{self._ref}."))
        return [*messages, *({"id": id, "role": "reasoning", "content": ""} for id in anew)]

    def _finished(self, result: ChatResult[Any]) -> Chunk:
        known = {"cost_usd": cost_of(result), "actions": actions_of(result) or None}
        told = {name: value for name, value in known.items() if value is not None}
        about: Chunk = {"result": {"status": result.status, **told}}
        waiting = [_interrupt(call) for call in result.pending if call.reason == "approval"]
        if waiting:
            about = {"outcome": {"type": "interrupt", "interrupts": waiting}}
        elif self._ask.is_current:
            outside = [call.id for call in result.pending if call.reason == "external"]
            ids = {"pendingToolCallIds": outside} if outside else {}
            about["outcome"] = {"type": "success", **ids}
        if self._ask.is_current and result.usage.requests:
            about["usage"] = [_usage(result)]
        return self._end(**about)

    def _end(self, **about: Any) -> Chunk:
        return {"type": "RUN_FINISHED", **self._names, **about}

    def _notice(self, event: Event, name: str, value: Chunk) -> list[bytes]:
        return _frames([*self._begin(event), {"type": "CUSTOM", "name": name, "value": value}])

    # -------------------------------------------------------------------------------------- the parts

    def _write(self, pieces: Iterable[Piece]) -> list[Chunk]:
        return [chunk for piece in pieces for chunk in self._piece(piece)]

    def _piece(self, piece: Piece) -> list[Chunk]:
        match piece:
            case Step():
                return self._begin_step(self._number + 1)
            case Said() if piece.text:
                return self._text("text", piece.text)
            case Reasoned() if piece.text:
                return self._text("reasoning", piece.text)
            case Called():
                self._note(piece)
                return [*self._close(), *self._call(piece)]
            case Returned() if self._calls is None or piece.call_id in self._calls:
                return [self._result(piece)]
        return []

    def _note(self, piece: Piece) -> None:
        """Remember the steps and calls that a client knows after this piece."""
        if isinstance(piece, Step):
            self._number += 1
        elif isinstance(piece, Called) and self._calls is not None:
            self._calls.add(piece.call.id)

    def _next_number(self, event: ModelRequested) -> int:
        """The number of the step. A request that is sent again has the same number."""
        is_again, self._iteration = event.iteration == self._iteration, event.iteration
        # The numbers of the pieces before go on: a later turn of the call counts its own model calls.
        return self._number if is_again else max(event.iteration, self._number + 1)

    def _begin_step(self, number: int) -> list[Chunk]:
        self._number = number
        ref = self._ref or self._ask.run  # a stored reply whose turn is gone has no reference
        self._step = step_id(ref, number)
        again = 1
        while self._step in self._used:  # a reply broke off after something of it was shown
            again += 1
            self._step = f"{step_id(ref, number)}.{again}"
        return self._close()

    def _text(self, kind: str, text: str) -> list[Chunk]:
        begun: list[Chunk] = []
        id = self._step if kind == "text" else reasoning_id(self._step)
        if kind != self._open:
            begun = self._close()
            self._open, self._open_id = kind, id
            if kind == "text":
                begun.append({"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"})
            else:
                begun.append({"type": "REASONING_START", "messageId": id})
                begun.append({"type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning"})
        self._used.add(self._step)
        name = "TEXT_MESSAGE_CONTENT" if kind == "text" else "REASONING_MESSAGE_CONTENT"
        return [*begun, {"type": name, "messageId": id, "delta": text}]

    def _close(self) -> list[Chunk]:
        kind, self._open = self._open, ""
        if kind == "text":
            return [{"type": "TEXT_MESSAGE_END", "messageId": self._open_id}]
        if kind == "reasoning":
            return [
                {"type": "REASONING_MESSAGE_END", "messageId": self._open_id},
                {"type": "REASONING_END", "messageId": self._open_id},
            ]
        return []

    def _call(self, piece: Called) -> list[Chunk]:
        self._used.add(self._step)
        call = piece.call
        about = {"toolCallId": call.id}
        start = {"type": "TOOL_CALL_START", **about, "toolCallName": call.name, "parentMessageId": self._step}
        arguments = [{"type": "TOOL_CALL_ARGS", **about, "delta": call.arguments}] if call.arguments else []
        return [start, *arguments, {"type": "TOOL_CALL_END", **about}]

    def _result(self, piece: Returned) -> Chunk:
        return {
            "type": "TOOL_CALL_RESULT",
            "messageId": result_id(self._ref, piece.call_id),
            "toolCallId": piece.call_id,
            "role": "tool",
            "content": piece.output,
            **result_metadata(piece.flag),
        }


def _interrupt(call: PendingCall) -> Chunk:
    return {
        "id": call.id,
        "reason": "tool_call",
        "toolCallId": call.id,
        "message": f"{call.name} waits for your approval.",
        "responseSchema": _RESPONSE,
    }


def _usage(result: ChatResult[Any]) -> Chunk:
    usage = result.usage
    return {
        **({"model": result.model} if result.model else {}),
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cached_input_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
    }


def _frames(chunks: Iterable[Chunk]) -> list[bytes]:
    return [frame(chunk) for chunk in chunks]


_numbers = itertools.count(1)


class _AGUI(SnapshotFrontEnd):
    """The events of AG-UI 1.0. Clients of an older version get no newer members."""

    name: str = "agui"
    headers: Mapping[str, str] = HEADERS

    def read(self, body: bytes) -> Ask:
        return read_agui(body)

    def stream(self, *, before: Sequence[Piece] = (), goes_on: bool = False) -> FrontStream:
        return AGUIStream(before, goes_on=goes_on)

    def answering(self, ask: Ask, shown: Shown | None) -> FrontEnd:
        return _AGUIAnswer(ask if isinstance(ask, AGUIAsk) else AGUIAsk(conversation=ask.conversation), shown)

    def history(
        self, history: History, *, conversation_id: str, pending: Sequence[PendingCall] = ()
    ) -> list[dict[str, Any]]:
        return agui_messages(history, conversation_id=conversation_id, pending=pending)


class _AGUIAnswer(_AGUI):
    """The answer to one request: it names the client's thread and run."""

    def __init__(self, ask: AGUIAsk, shown: Shown | None) -> None:
        self.name = f"{_AGUI.name} {next(_numbers)}"  # no other answer is the same
        self._ask = ask
        self._shown = shown

    def stream(self, *, before: Sequence[Piece] = (), goes_on: bool = False) -> FrontStream:
        return AGUIStream(before, goes_on=goes_on, ask=self._ask, shown=self._shown)


AGUI: Final[SnapshotFrontEnd] = _AGUI()
