"""The spans of a turn: ``invoke_agent``, and in it ``chat`` and ``execute_tool``.

Owns: when each span begins and ends, and its attributes. Must never know: an exporter, a store, a provider's
JSON.

A trace is a flow around a turn's flow. Every effect passes unchanged, with the span that it belongs to as the
current one while it is carried out: so spans of an HTTP client, a database driver or a tool nest in it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from ..base.values import Value, replace
from ..turn.flow import CallModel, CallTool, Clock, Effect, Emit, Flow, ReadChunk, Sleep
from ..types.events import Event, FellBack, ModelReplied, ModelRequested, Retried, TurnCompleted, TurnStarted
from ..types.messages import Text
from ..types.result import ChatResult, state_bytes
from ..types.usage import Usage
from . import conventions as names
from .attributes import Meters, description, error_type, given, provider, server, shown, tokens, turn_tokens

__all__ = ["Asked", "Trace"]

_UNTRACED: Final = (Clock, ReadChunk)
"""Effects that run no foreign code, so no foreign span can nest in them. There are thousands of them."""

_COUNTS: Final = ("/count_tokens", "/input_tokens")
"""Ends of the paths of requests that ask no model."""


class Asked(Value, frozen=True, kw_only=True):
    """The facts of a flow before it begins; see `Telemetry.watch`."""

    _unshown = frozenset({"settings", "messages"})

    backend: Any
    model: str
    settings: dict[str, Any]
    output_type: str
    messages: tuple[Any, ...]
    agent: str
    is_turn: bool


class _ToolSpan:
    """One request to a model, from its first byte until its reply is read."""

    __slots__ = (
        "attributes",
        "backend",
        "began",
        "first",
        "is_asked",
        "is_streamed",
        "last_ns",
        "span",
        "started_ns",
    )

    def __init__(
        self, span: Span, attributes: dict[str, Any], backend: Any, *, is_asked: bool, is_streamed: bool
    ) -> None:
        self.span = span
        self.attributes = attributes
        self.backend = backend
        self.is_streamed = is_streamed
        self.is_asked = is_asked
        """True if the turn itself asks, so that `ModelReplied` has the result."""
        self.began = time.monotonic()
        self.started_ns = time.time_ns()
        self.last_ns = 0
        self.first: float | None = None


class Trace:
    """Traces one flow. A second flow passes untraced, for example the save of a turn that was given up."""

    def __init__(self, tracer: Tracer, meters: Meters, asked: Asked, *, content: bool) -> None:
        self._tracer = tracer
        self._meters = meters
        self._asked = asked
        self._content = content
        self._is_used = False
        self._agent: Span | None = None
        self._context: contexts.Context | None = None
        self._began = 0.0
        self._waited = 0.0
        self._call: _ToolSpan | None = None
        self._is_asking = False
        self._of: dict[str, str] = {}
        self._backend = asked.backend
        """The backend that the turn itself has asked last."""
        self._model = asked.model
        """The model of that request."""
        self._requests = 0
        self._ran: list[str] = []  # the tools, by name; lists, because several threads add to them
        self._waiting: list[str] = []  # the tools that ended with questions

    def __call__(self, flow: Flow[Any]) -> Flow[Any]:
        """The same flow, traced."""
        if self._is_used:
            return flow
        self._is_used = True
        return self._traced(flow)

    def _traced(self, flow: Flow[Any]) -> Flow[Any]:
        self._begin()
        answer: Any = None
        failure: BaseException | None = None
        while True:
            try:
                effect = flow.send(answer) if failure is None else flow.throw(failure)
            except StopIteration as stop:
                self._end(stop.value, None)
                return stop.value
            except BaseException as exc:
                self._end(None, exc)
                raise
            answer = failure = None
            told, done = self._before(effect)
            token = None
            if told is not None:
                token = contexts.attach(told)
            try:
                answer = yield done
            except GeneratorExit:
                flow.close()
                self._end(None, None)
                raise
            except BaseException as exc:
                failure = exc
            finally:
                if token is not None:
                    contexts.detach(token)
            if type(effect) is Emit:
                if effect.then is not None:
                    self._after(effect.then, answer, failure)
            else:
                self._after(effect, answer, failure)

    # ------------------------------------------------------------------------------------ effects

    def _before(self, effect: Effect) -> tuple[contexts.Context | None, Effect]:
        """Give the context to run an effect in (None: the present one), and the effect itself."""
        kind = type(effect)
        if kind in _UNTRACED:
            return None, effect
        if isinstance(effect, Emit):
            self._tell(effect.event)
            return None, effect
        if isinstance(effect, CallModel) and not effect.request.path.endswith(_COUNTS):
            return self._ask(effect), effect
        if isinstance(effect, CallTool):
            return self._context, replace(effect, around=lambda: self._tool(effect))
        if isinstance(effect, Sleep):
            self._waited += effect.seconds
        return self._context, effect

    def _after(self, effect: Effect, answer: Any, failure: BaseException | None) -> None:
        call = self._call
        if call is None or not isinstance(effect, (CallModel, ReadChunk)):
            return
        if failure is not None:
            self._end_call(error_type(failure))
            return
        if isinstance(effect, CallModel):
            return
        chunk = answer[1] if isinstance(answer, tuple) else answer
        call.last_ns = time.time_ns()
        if chunk and call.first is None:
            call.first = time.monotonic() - call.began
        if not chunk and not call.is_asked:
            self._end_call("")

    def _ask(self, effect: CallModel) -> contexts.Context:
        self._end_call("")
        backend = self._asked.backend if effect.backend is None else effect.backend
        model = (self._asked.model if effect.backend is None else "") or backend.model or ""
        if self._is_asking:
            self._backend, self._model = backend, model
        self._requests += 1
        settings = self._asked.settings
        attributes: dict[str, Any] = {
            names.OPERATION: "chat",
            names.PROVIDER: provider(backend),
            names.REQUEST_MODEL: model,
        }
        attributes |= server(backend)
        told = {
            **attributes,
            **{name: settings.get(key) for key, name in names.REQUEST_SETTINGS.items()},
            names.CONVERSATION_ID: self._of.get("conversation_id", ""),
            names.OUTPUT_TYPE: self._asked.output_type,
        }
        if effect.request.stream:
            told[names.REQUEST_STREAM] = True
        span = self._tracer.start_span(
            f"chat {model}".rstrip(), self._context, kind=SpanKind.CLIENT, attributes=given(told)
        )
        self._call = _ToolSpan(
            span, attributes, backend, is_asked=self._is_asking, is_streamed=effect.request.stream
        )
        self._is_asking = False
        return set_span_in_context(span, self._context)

    def _end_call(self, error: str, reply: ModelReplied | None = None) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        ended_ns = call.last_ns or time.time_ns()
        attributes = dict(call.attributes)
        if (
            names.SERVER_ADDRESS not in attributes
        ):  # a backend that a string names connects with its first call
            attributes |= server(call.backend)
            call.span.set_attributes(server(call.backend))
        if reply is not None:
            attributes[names.RESPONSE_MODEL] = reply.model
            call.span.set_attributes(given(self._reply(reply)))
            for kind, count in (("input", reply.usage.input_tokens), ("output", reply.usage.output_tokens)):
                told = {**attributes, names.TOKEN_TYPE: kind}
                self._meters.record(names.TOKEN_USAGE, count, told)
        if call.first is not None and call.is_streamed:
            call.span.set_attribute(names.TIME_TO_FIRST_CHUNK, call.first)
        if error:
            _fail(call.span, error)
            attributes[names.ERROR_TYPE] = error
        self._meters.record(names.OPERATION_DURATION, (ended_ns - call.started_ns) / 1e9, attributes)
        call.span.end(ended_ns)

    def _reply(self, reply: ModelReplied) -> dict[str, Any]:
        told: dict[str, Any] = {
            names.RESPONSE_MODEL: reply.model,
            names.RESPONSE_ID: reply.response_id,
            names.FINISH_REASONS: (reply.finish_reason,) if reply.finish_reason else (),
            names.CONVERSATION_ID: reply.conversation_id,
            **tokens(reply.usage),
        }
        if self._content:
            parts: list[dict[str, Any]] = [{"type": "text", "content": reply.text}] if reply.text else []
            for call in reply.tool_calls:
                parts.append(
                    {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
                )
            said = {"role": "assistant", "parts": parts, "finish_reason": reply.finish_reason}
            told[names.OUTPUT_MESSAGES] = json.dumps([said])
        return told

    @contextmanager
    def _tool(self, effect: CallTool) -> Iterator[Callable[[Any], None]]:
        """Around one call of a tool, in the thread or task that runs it."""
        tool = effect.tool
        told = {
            names.OPERATION: "execute_tool",
            names.TOOL_NAME: tool.name,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL_ID: effect.context.call_id,
            names.TOOL_DESCRIPTION: description(tool),
            names.AGENT_NAME: self._asked.agent,
            names.CONVERSATION_ID: self._of.get("conversation_id", ""),
        }
        if self._content:
            told[names.TOOL_ARGUMENTS] = json.dumps(effect.arguments, default=str)
        span = self._tracer.start_span(f"execute_tool {tool.name}", self._context, attributes=given(told))
        measured = {
            names.OPERATION: "execute_tool",
            names.TOOL_NAME: tool.name,
            names.TOOL_TYPE: "function",
            names.AGENT_NAME: self._asked.agent,
        }
        is_waiting = False
        self._ran.append(tool.name)
        began = time.monotonic()
        token = contexts.attach(set_span_in_context(span))

        def finished(outcome: Any) -> None:
            nonlocal is_waiting
            if outcome.asks:  # it runs again once they are answered; that run counts for both
                is_waiting = True
                self._waiting.append(tool.name)
                span.set_attribute(names.TOOL_FLAG, "waiting")
                return
            span.set_attribute(names.TOOL_FLAG, outcome.flag)
            if self._content:
                text = "".join(part.text for part in outcome.parts if isinstance(part, Text))
                span.set_attribute(names.TOOL_RESULT, text)
            if outcome.flag != "ok":
                raised = outcome.exception
                measured[names.ERROR_TYPE] = type(raised).__name__ if raised is not None else outcome.flag
                _fail(span, measured[names.ERROR_TYPE])

        try:
            yield finished
        except BaseException as exc:
            measured[names.ERROR_TYPE] = type(exc).__name__
            _fail(span, measured[names.ERROR_TYPE])
            raise
        finally:
            contexts.detach(token)
            span.end()
            if not is_waiting:
                self._meters.record(names.EXECUTE_TOOL_DURATION, time.monotonic() - began, measured)

    # ------------------------------------------------------------------------------------ the turn

    def _begin(self) -> None:
        self._began = time.monotonic()
        self._context = contexts.get_current()
        asked = self._asked
        if not asked.is_turn:
            return
        told = {
            names.OPERATION: "invoke_agent",
            names.PROVIDER: provider(asked.backend),
            names.AGENT_NAME: asked.agent,
            names.REQUEST_MODEL: self._model,
            names.OUTPUT_TYPE: asked.output_type,
        }
        if self._content:
            told[names.INPUT_MESSAGES] = json.dumps([shown(message) for message in asked.messages])
        name = f"invoke_agent {asked.agent}".rstrip()
        self._agent = self._tracer.start_span(name, self._context, attributes=given(told))
        self._context = set_span_in_context(self._agent, self._context)

    def _tell(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self._of = {"conversation_id": event.conversation_id, "turn_ref": event.turn_ref}
            case ModelRequested():
                self._is_asking = True
                self._of = {"conversation_id": event.conversation_id, "turn_ref": event.turn_ref}
            case ModelReplied():
                self._end_call("", event)
            case Retried():
                self._end_call(str(event.status_code or event.reason))
            case FellBack():
                self._end_call(event.reason)
            case TurnCompleted():
                self._of = {"conversation_id": event.conversation_id, "turn_ref": event.turn_ref}

    def _end(self, result: Any, error: BaseException | None) -> None:
        self._end_call("" if error is None else error_type(error))
        agent, self._agent = self._agent, None
        if agent is None:
            return
        asked_last = {names.PROVIDER: provider(self._backend), names.REQUEST_MODEL: self._model}
        of_agent = {names.AGENT_NAME: self._asked.agent}
        measured = {names.OPERATION: "invoke_agent", **asked_last, **of_agent}
        told: dict[str, Any] = {
            **asked_last,
            names.CONVERSATION_ID: self._of.get("conversation_id", ""),
            names.TURN_REF: self._of.get("turn_ref", ""),
        }
        if isinstance(result, ChatResult):
            told |= self._outcome(result)
            self._meters.record(names.STATE_BYTES, state_bytes(result), {})
        elif error is not None:
            told |= turn_tokens(getattr(error, "usage", Usage()))
            measured[names.ERROR_TYPE] = error_type(error)
            _fail(agent, measured[names.ERROR_TYPE])
        else:
            told[names.TURN_STATUS] = "left"
        agent.set_attributes(given(told))
        agent.end()
        self._meters.record(names.INVOKE_AGENT_DURATION, time.monotonic() - self._began, measured)
        self._meters.record(names.INFERENCE_CALLS, self._requests, of_agent)
        self._meters.record(names.TOOL_CALLS, len(self._ran) - len(self._waiting), of_agent)
        self._meters.record(names.TURN_WAIT, self._waited, {})

    def _outcome(self, result: ChatResult[Any]) -> dict[str, Any]:
        report = result.compaction
        told: dict[str, Any] = {
            names.TURN_STATUS: result.status,
            names.FINISH_REASONS: (result.finish_reason,) if result.finish_reason else (),
            names.COMPACTED: report is not None and report.outcome == "compacted",
            **turn_tokens(result.usage),
        }
        if self._content:
            said = {"role": "assistant", "parts": [{"type": "text", "content": result.text}]}
            told[names.OUTPUT_MESSAGES] = json.dumps([said])
        return told


def _fail(span: Span, error: str) -> None:
    span.set_attribute(names.ERROR_TYPE, error)
    span.set_status(Status(StatusCode.ERROR))
