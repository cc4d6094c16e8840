"""The AI SDK (npm ``ai``, versions 6 and 7): ``useChat`` and its like talk to a conversation.

Owns: the front end `AISDK`, and the order and the members of the chunks of its UI message stream. Must never
know: HTTP, a store, or who listens.

``uiMessageChunkSchema`` in npm ``ai`` 6 defines the chunks; 7 knows all of them. Each chunk has only
members that 6 knows. Each reply of the model is one step. A step has at most one part with text and one with
reasoning, as the stored reply has, so that a page looks the same after a reload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..history.turns import History
from ..types.answers import PendingCall
from ..types.events import Compacted, ContextWarning, Event, ToolProgress, TurnCompleted, TurnStarted
from ..types.result import ChatResult
from .aisdk_messages import BAD_INPUT, input_of, is_inside, output_of, read_aisdk, ui_messages
from .bodies import HEADERS, frame, progress_of, state_of
from .front_end import Ask, CarryingFrontEnd, FrontEnd, FrontStream, problem_of
from .plain import actions_of, cost_of
from .reply_pieces import Called, Piece, Reasoned, Returned, Said, Step, Waits, pieces_of_event

__all__ = ["AISDK", "UIMessageStream"]

_DONE: Final = frame(b"[DONE]")

_FINISH: Final = {
    "complete": "stop",
    "awaiting_tools": "tool-calls",
    "truncated": "length",
    "refused": "content-filter",
    "limited": "other",
}
"""The status of a turn in the words that ``ai`` 6 knows."""

Chunk = dict[str, Any]


class UIMessageStream(FrontStream):
    """The chunks of one turn. `before` and `goes_on`: as in `FrontEnd.stream`."""

    def __init__(self, before: Sequence[Piece] = (), *, goes_on: bool = False, carries: bool = False) -> None:
        self._carries = carries
        self._before = tuple(before)
        self._has_begun = False
        self._steps = 0
        self._step = ""
        """The chunk type that the open step had last; "" if no step is open."""
        self._is_inside = False
        self._open: dict[str, str] = {}
        """The open text parts: kind to id."""
        self._seen: set[str] | None = None if goes_on else set()
        """The calls that the client knows; None if it knows all. It fails for results of others."""

    def feed(self, event: Event) -> list[bytes]:
        """Write an event."""
        match event:
            case TurnStarted():
                return _frames(self._begin(event.turn_ref))
            case TurnCompleted():
                return [*_frames(self._finish(event)), _DONE]
            case Compacted():
                return _frames([_notice("compacted", {"removed_turns": event.report.removed_turns})])
            case ContextWarning():
                about = {"level": event.level, "used": event.used, "limit": event.limit, "of": event.of}
                return _frames([_notice("context", about)])
            case ToolProgress():
                return _frames([_notice("progress", {"toolCallId": event.call_id, **progress_of(event)})])
        pieces = pieces_of_event(event)
        if not pieces:
            return []
        return _frames([*self._begin(event.turn_ref), *self._write(pieces)])

    def fail(self, error: BaseException) -> list[bytes]:
        """End with an ``error`` chunk."""
        problem = problem_of(error)
        state = state_of(error) if self._carries else {}
        told = [{"type": "message-metadata", "messageMetadata": state}] if state else []
        text = f"{problem.code}: {problem.title}"
        if problem.retry_after is not None:
            text += f" Try again in {problem.retry_after:g} seconds."
        return [*_frames([*self._close(), *told, {"type": "error", "errorText": text}]), _DONE]

    def stop(self) -> list[bytes]:
        """End with an ``abort`` chunk."""
        return [*_frames([*self._close(), {"type": "abort"}]), _DONE]

    def _begin(self, turn_ref: str) -> list[Chunk]:
        if self._has_begun:
            return []
        self._has_begun = True
        # A client that goes on holds the message already: of an earlier turn of the call, perhaps.
        is_named = bool(turn_ref) and self._seen is not None
        start = {"type": "start", "messageId": turn_ref} if is_named else {"type": "start"}
        return [start, *self._write(self._before)]

    def _finish(self, event: TurnCompleted) -> list[Chunk]:
        return [
            *self._begin(event.turn_ref),
            *self._close(),
            {
                "type": "finish",
                "finishReason": _FINISH.get(event.result.status, "other"),
                "messageMetadata": {
                    **_metadata(event.result),
                    **(state_of(event.result) if self._carries else {}),
                },
            },
        ]

    # ------------------------------------------------------------------------------------ the parts

    def _write(self, pieces: Iterable[Piece]) -> list[Chunk]:
        return [chunk for piece in pieces for chunk in self._piece(piece)]

    def _piece(self, piece: Piece) -> list[Chunk]:
        match piece:
            case Step():
                return self._begin_step()
            case Said():
                return self._text("text", piece.text)
            case Reasoned():
                return self._text("reasoning", piece.text)
            case Called():
                begun = self._begin_inside() if is_inside(piece.call) else self._close_texts()
                return [*begun, self._noted(_call(piece))]
            case Returned() if self._knows(piece.call_id):
                return [self._noted(_result(piece))]
            case Waits() if piece.reason == "approval" and self._knows(piece.call_id):
                asked = {"toolCallId": piece.call_id, "approvalId": piece.call_id}
                return [self._noted({"type": "tool-approval-request", **asked})]
        return []

    def _knows(self, call_id: str) -> bool:
        return self._seen is None or call_id in self._seen

    def _noted(self, chunk: Chunk) -> Chunk:
        self._step = chunk["type"]
        if self._seen is not None:
            self._seen.add(chunk["toolCallId"])
        return chunk

    def _begin_step(self) -> list[Chunk]:
        if self._step == "start-step":
            return []  # the request is sent again, and nothing was shown of the reply
        ended = self._close()
        self._steps += 1
        self._step, self._is_inside = "start-step", False
        return [*ended, {"type": "start-step"}]

    def _begin_inside(self) -> list[Chunk]:
        """Begin the step of calls that wait inside of a call. A client sends approvals once all calls of the
        last step are answered, and the call around these has no result yet."""
        if self._is_inside:
            return []
        begun = self._begin_step()
        self._is_inside = True
        return begun

    def _text(self, kind: str, text: str) -> list[Chunk]:
        begun: list[Chunk] = []
        if kind not in self._open:
            self._open[kind] = f"{kind}-{self._steps}"
            begun = [{"type": f"{kind}-start", "id": self._open[kind]}]
        self._step = kind
        return [*begun, {"type": f"{kind}-delta", "id": self._open[kind], "delta": text}]

    def _close_texts(self) -> list[Chunk]:
        ended: list[Chunk] = [{"type": f"{kind}-end", "id": id} for kind, id in self._open.items()]
        self._open.clear()
        return ended

    def _close(self) -> list[Chunk]:
        ended = self._close_texts()
        if self._step:
            ended.append({"type": "finish-step"})
        self._step = ""
        return ended


def _call(piece: Called) -> Chunk:
    call = piece.call
    value, is_good = input_of(call)
    chunk = {"toolCallId": call.id, "toolName": call.name, "input": value, "dynamic": True}
    if is_good:
        return {"type": "tool-input-available", **chunk}
    return {"type": "tool-input-error", **chunk, "errorText": BAD_INPUT}


def _result(piece: Returned) -> Chunk:
    about = {"toolCallId": piece.call_id}
    if piece.flag == "ok":
        return {"type": "tool-output-available", **about, "output": output_of(piece.output)}
    if piece.flag == "denied":
        return {"type": "tool-output-denied", **about}
    return {"type": "tool-output-error", **about, "errorText": piece.output}


def _metadata(result: ChatResult) -> dict[str, Any]:
    usage = result.usage
    return {
        "status": result.status,
        "usage": {name: getattr(usage, name) for name in usage.__struct_fields__},
        "cost_usd": cost_of(result),
        "actions": actions_of(result),
    }


def _notice(name: str, data: dict[str, Any]) -> Chunk:
    return {"type": f"data-{name}", "data": data, "transient": True}


def _frames(chunks: Iterable[Chunk]) -> list[bytes]:
    return [frame(chunk) for chunk in chunks]


class _AISDK(CarryingFrontEnd):
    """The UI message stream of the AI SDK, versions 6 and 7."""

    name: str = "aisdk"
    headers: Mapping[str, str] = {**HEADERS, "x-vercel-ai-ui-message-stream": "v1"}

    def __init__(self, *, carries: bool = False) -> None:
        self._carries = carries

    def carrying(self) -> FrontEnd:
        return _AISDK(carries=True)

    def read(self, body: bytes) -> Ask:
        return read_aisdk(body, carries=self._carries)

    def stream(self, *, before: Sequence[Piece] = (), goes_on: bool = False) -> FrontStream:
        return UIMessageStream(before, goes_on=goes_on, carries=self._carries)

    def history(
        self, history: History, *, conversation_id: str, pending: Sequence[PendingCall] = ()
    ) -> list[dict[str, Any]]:
        return ui_messages(history, conversation_id=conversation_id, pending=pending)


AISDK: Final[CarryingFrontEnd] = _AISDK()
