"""A turn that another provider finishes if its own is down.

Owns: when the next provider is asked, and what of the turn goes with it. Must never know: a connection, a
provider's JSON, or how a state is converted.

::

    own provider ── down ──► err.state ── converted if need be ──► resume with the next provider ── …

A turn that fails leaves a state that has all of it: the messages, the replies, the finished tools. The next
provider resumes that state, as another process would. So a tool that has run does not run again. The books
go along: usage, cost, limits, the deadline, the tool log, warnings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..backends.base import ProviderTool, RequestParts
from ..errors import (
    ProviderProtocolError,
    ProviderUnavailableError,
    RateLimitError,
    StateError,
    StreamInterruptedError,
    TurnError,
    TurnStoppedError,
)
from ..events import FellBack, TurnStarted
from ..messages import Message
from ..result import ChatResult
from ..state.records import Meta
from ..values import replace
from .engine import TurnEngine
from .flow import CallModel, Effect, Emit, Flow
from .plan import Plan

__all__ = ["RelayTurn", "engine_of"]

_DOWN: Final = (ProviderUnavailableError, RateLimitError, StreamInterruptedError, ProviderProtocolError)
"""Errors that blame the provider. After a refused request, a wrong key or the end of the time, no other
provider is asked."""


def engine_of(plan: Plan) -> TurnEngine | RelayTurn:
    """What runs the turn of a plan."""
    return RelayTurn(plan) if plan.fallbacks else TurnEngine(plan)


class RelayTurn:
    """One turn, over as many providers as it needs; otherwise as `TurnEngine`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._engine = TurnEngine(plan)

    def run(self) -> Flow[ChatResult]:
        """As `TurnEngine.run`. Raises the last provider's error if all are down."""
        plan, flow = self._plan, self._engine.run()
        left = list(plan.fallbacks)
        failed: TurnError | None = None
        while True:
            problem = ""
            try:
                return (yield from flow)
            except TurnError as error:
                if not left or not _is_down(error):
                    raise
                failed = error
            except (StateError, TypeError, ValueError) as exc:
                if failed is None:
                    raise
                problem = type(exc).__name__
            if problem:  # the next provider could not take the turn up; the state of the one before is whole
                failed.add_note(f"the next of the fallbacks could not go on ({problem})")
                raise failed from failed.__cause__
            # Outside of the handlers: an error of the next provider would have this one as its context.
            backend = left.pop(0)
            later = _plan_for(plan, backend, failed)
            before = _name(plan.dialect.wire, self._engine.asked_model)
            engine = self._engine.successor(later)
            now = _name(later.dialect.wire, later.model)
            engine.fell_back(before, now, failed)
            if plan.listening:
                yield Emit(
                    FellBack(before, now, type(failed).__name__, failed.status_code, **self._engine.of)
                )
            self._engine, plan = engine, later
            flow = _through(engine.run(), backend)

    # The rest is the engine's that runs now.

    def meta_of(self, blob: bytes) -> Meta | None:
        """As `TurnEngine.meta_of`."""
        return self._engine.meta_of(blob)

    def snapshot(self) -> bytes:
        """As `TurnEngine.snapshot`."""
        return self._engine.snapshot()

    def append(self, *messages: Message) -> None:
        """As `TurnEngine.append`. RuntimeError also between two providers."""
        self._engine.append(*messages)

    def stopped(self) -> TurnStoppedError:
        """As `TurnEngine.stopped`."""
        return self._engine.stopped()

    @property
    def has_calls(self) -> bool:
        """As `TurnEngine.has_calls`."""
        return self._engine.has_calls

    @property
    def discarded(self) -> StateError | None:
        """As `TurnEngine.discarded`."""
        return self._engine.discarded

    @property
    def of(self) -> dict[str, str]:
        """As `TurnEngine.of`."""
        return self._engine.of

    @property
    def has_acted(self) -> bool:
        """As `TurnEngine.has_acted`."""
        return self._engine.has_acted

    @property
    def is_over(self) -> bool:
        """As `TurnEngine.is_over`."""
        return self._engine.is_over


def _is_down(error: TurnError) -> bool:
    """True if another provider may do what this one does not: the same request may succeed at another time,
    and the state has all of the turn."""
    return isinstance(error, _DOWN) and error.retryable and bool(error.state) and not error.pending_input


def _name(wire: str, model: str | None) -> str:
    return f"{wire}:{model}" if model else wire


def _plan_for(plan: Plan, backend: Any, failed: TurnError) -> Plan:
    """The plan of the next provider: the rest of the turn, from the failed one's state."""
    dialect = backend.dialect
    is_same = dialect.wire == plan.dialect.wire
    settings = {name: value for name, value in plan.options.settings.items() if name != "model"}
    tools = plan.tools
    if not is_same:
        settings = {name: value for name, value in settings.items() if _takes(dialect, name, value)}
        tools = tuple(tool for tool in tools if not isinstance(tool, ProviderTool))
    options = replace(
        plan.options, settings=settings, on_foreign_state="convert", min_revision=None, on_bad_state="raise"
    )
    return replace(
        plan,
        dialect=dialect,
        options=options,
        blob=failed.state,
        model=backend.model,
        max_retries=backend.max_retries,
        context_window=backend.context_window,
        resume=True,
        answers={},
        messages=(),
        tools=tools,
    )


_OWN: Final = frozenset({"extra_body", "extra_headers", "context_management", "prompt_cache_key"})
"""Settings in a provider's own words."""


def _takes(dialect: Any, name: str, value: Any) -> bool:
    """Whether another provider API has a setting."""
    if name in _OWN:
        return False
    given: Mapping[str, Any] = {name: value}
    try:
        dialect.request(RequestParts(model="any", history=(), settings=given))
    except (TypeError, ValueError):
        return False
    return True


def _through(flow: Flow[ChatResult], backend: Any) -> Flow[ChatResult]:
    """The flow, with its model calls sent to this backend. The turn has been told to have started."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            effect = flow.send(answer) if failure is None else flow.throw(failure)
        except StopIteration as stop:
            result: ChatResult = stop.value
            return result
        answer = failure = None
        if type(effect) is Emit and type(effect.event) is TurnStarted:
            continue
        try:
            answer = yield _sent_to(effect, backend)
        except BaseException as exc:
            failure = exc


def _sent_to(effect: Effect, backend: Any) -> Effect:
    if type(effect) is CallModel and effect.backend is None:
        return CallModel(effect.request, backend)
    if type(effect) is Emit and effect.then is not None:
        return Emit(effect.event, _sent_to(effect.then, backend))
    return effect
