"""A turn that another provider finishes if its own is down.

Owns: the decision to ask the next provider, and the parts of the turn that go to it. Must never know: a
connection, a provider's JSON, or how a state is converted.

::

    own provider ── down ──► err.state ── converted if need be ──► resume with the next provider ── …

A turn that fails leaves a complete state: the messages, the replies, the finished tools. The next provider
resumes that state, as another process would. So a tool that has run does not run again. The books continue:
usage, cost, limits, the deadline, the tool log, warnings.

A provider that could not be reached rests: the turns of the next seconds begin with the next provider, and
ask the resting one last.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ..base.values import replace
from ..state.records import Meta
from ..types.errors import (
    ProviderProtocolError,
    ProviderUnavailableError,
    RateLimitError,
    StateError,
    StateProviderError,
    StreamInterruptedError,
    TurnError,
    TurnStoppedError,
)
from ..types.events import FellBack, TurnStarted
from ..types.messages import Message
from ..types.request_parts import ProviderTool
from ..types.result import ChatResult
from .engine import TurnEngine
from .flow import CallModel, Clock, Effect, Emit, Flow
from .plan import Outages, Plan

__all__ = ["FallbackTurn", "engine_of"]

_DOWN: Final = (ProviderUnavailableError, RateLimitError, StreamInterruptedError, ProviderProtocolError)
"""Errors that blame the provider. After a refused request, a wrong key or the end of the time, no other
provider is asked."""

_UNREACHABLE: Final = ProviderUnavailableError


def engine_of(plan: Plan) -> TurnEngine | FallbackTurn:
    """Make the object that runs the turn of a plan."""
    return FallbackTurn(plan) if plan.fallbacks else TurnEngine(plan)


class FallbackTurn:
    """One turn, over as many providers as it needs; otherwise as `TurnEngine`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._engine = TurnEngine(plan)
        # One lock for the engine and these messages: what another thread appends reaches each engine once.
        self._appended: tuple[Message, ...] = ()
        self._lock = threading.Lock()

    def run(self) -> Flow[ChatResult]:
        """As `TurnEngine.run`. Raises the last provider's error if all are down."""
        plan, outages = self._plan, self._plan.outages
        left = _places(plan)
        if outages:
            left = _rested_first(left, outages, (yield Clock()).monotonic)
        place = left.pop(0)
        flow = self._begin(place)
        failed: TurnError | None = None
        ended, taken = self._engine, 0
        while True:
            problem = ""
            try:
                result = yield from flow
            except TurnError as error:
                if not _is_down(error):
                    raise
                failed = error
            except (StateError, TypeError, ValueError) as exc:
                if failed is None and (place.number == 0 or self._engine.has_acted):
                    raise
                problem = f"{exc}" if isinstance(exc, StateProviderError) else type(exc).__name__
            else:
                outages.clear(place.number)
                return result
            # Go on outside of the handlers: inside them an error of the next provider would get this one as
            # its context.
            if failed is None:  # a fallback that was asked first refused the state or the message
                flow = self._begin_at_home()
                place, left = _places(plan)[0], _places(plan)[1:]
                continue
            if problem:  # the next provider could not begin: raise the error with the complete state
                failed.add_note(f"the next of the fallbacks could not go on ({problem})")
                self._go_back(ended, taken, failed)
                raise failed from failed.__cause__
            if _is_unreachable(failed):
                outages.note(place.number, (yield Clock()).monotonic)
            if not left:
                raise failed
            before = _name(place, self._engine.asked_model)
            place = left.pop(0)
            later = _plan_after(plan, place, failed)
            engine = self._engine.successor(later)
            now = _name(place, engine.asked_model)
            engine.fell_back(before, now, type(failed).__name__, failed.status_code)
            if plan.listening:
                yield Emit(
                    FellBack(before, now, type(failed).__name__, failed.status_code, **self._engine.event_ids)
                )
            with self._lock:
                # The state of the failure has all that was appended before: the engine takes no more since.
                ended, self._engine, taken = self._engine, engine, len(self._appended)
            flow = _through(engine.run(), place.backend, has_begun=True)

    def _begin(self, place: _Place) -> Flow[ChatResult]:
        """The turn's flow at this provider. At a fallback the turn warns that the earlier providers rest."""
        return self._engine.run() if place.number == 0 else self._begin_elsewhere(place)

    def _begin_elsewhere(self, place: _Place) -> Flow[ChatResult]:
        rests = _UNREACHABLE("the provider rests: it could not be reached", retryable=True)
        engine = TurnEngine(replace(_plan_at(self._plan, place), stands_for=rests))
        self._begin_with(engine)
        own, now = _places(self._plan)[0], _name(place, engine.asked_model)
        before = _name(own, self._plan.options.settings.get("model") or own.model)
        engine.fell_back(before, now, _UNREACHABLE.__name__, None)
        told = (before, now) if self._plan.listening else None
        return (yield from _through(engine.run(), place.backend, told=told))

    def _begin_at_home(self) -> Flow[ChatResult]:
        """The turn's flow at the chat's own provider, after a fallback could not begin."""
        engine = self._engine.begun_anew(self._plan)
        self._begin_with(engine)
        return (yield from engine.run())

    def _begin_with(self, engine: TurnEngine) -> None:
        """Begin the whole turn with this engine: it gets all that was appended.

        Raises ValueError and TypeError for messages that its provider API cannot take.
        """
        with self._lock:
            if self._appended:
                engine.append(*self._appended)
            self._engine = engine

    def _go_back(self, ended: TurnEngine, taken: int, failed: TurnError) -> None:
        """Give the messages that were appended since the failure to the failed engine, and to its error."""
        with self._lock:
            self._engine, left = ended, self._appended[taken:]
        if left:
            ended.join(left, failed)

    # The other methods pass on to the engine that runs now.

    def meta_of(self, blob: bytes) -> Meta | None:
        """As `TurnEngine.meta_of`."""
        return self._engine.meta_of(blob)

    def release(self) -> None:
        """As `TurnEngine.release`."""
        self._engine.release()

    def snapshot(self) -> bytes:
        """As `TurnEngine.snapshot`."""
        return self._engine.snapshot()

    def append(self, *messages: Message) -> None:
        """As `TurnEngine.append`. RuntimeError also between two providers."""
        with self._lock:
            self._engine.append(*messages)
            self._appended += messages

    def stopped(self) -> TurnStoppedError:
        """As `TurnEngine.stopped`."""
        return self._engine.stopped()

    @property
    def has_edited(self) -> bool:
        """As `TurnEngine.has_edited`."""
        return self._engine.has_edited

    @property
    def is_only_asked(self) -> bool:
        """As `TurnEngine.is_only_asked`."""
        return self._engine.is_only_asked

    @property
    def has_claimed(self) -> bool:
        """As `TurnEngine.has_claimed`."""
        return self._engine.has_claimed

    @property
    def taken_ids(self) -> tuple[str, ...]:
        """As `TurnEngine.taken_ids`."""
        return self._engine.taken_ids

    @property
    def follows_turn(self) -> bool:
        """As `TurnEngine.follows_turn`."""
        return self._engine.follows_turn

    @property
    def has_calls(self) -> bool:
        """As `TurnEngine.has_calls`."""
        return self._engine.has_calls

    @property
    def discarded(self) -> StateError | None:
        """As `TurnEngine.discarded`."""
        return self._engine.discarded

    @property
    def event_ids(self) -> dict[str, str]:
        """As `TurnEngine.event_ids`."""
        return self._engine.event_ids

    @property
    def counts(self) -> dict[str, Any]:
        """As `TurnEngine.counts`."""
        return self._engine.counts

    @property
    def has_acted(self) -> bool:
        """As `TurnEngine.has_acted`."""
        return self._engine.has_acted

    @property
    def is_over(self) -> bool:
        """As `TurnEngine.is_over`."""
        return self._engine.is_over


class _Place(NamedTuple):
    """A provider that a turn may ask.

    `number`: its place in the list; 0 is the chat's own. Only fallbacks have a `backend` here: the turn's
    edge has the chat's own backend.
    """

    number: int
    backend: Any
    dialect: Any
    model: str | None
    max_retries: int
    context_window: int | None


def _places(plan: Plan) -> list[_Place]:
    own = _Place(0, None, plan.dialect, plan.model, plan.max_retries, plan.context_window)
    others = (
        _Place(number, one, one.dialect, one.model, one.max_retries, one.context_window)
        for number, one in enumerate(plan.fallbacks, 1)
    )
    return [own, *others]


def _rested_first(places: Sequence[_Place], outages: Outages, now: float) -> list[_Place]:
    """The providers in order, but resting providers last.

    `Outages.rests` starts an expired rest again, so ask it only until the first provider is found.
    """
    found: list[_Place] = []
    resting: list[_Place] = []
    for place in places:
        # A turn may end the rest of the provider that it asks first, and of no other.
        (found if found or not outages.rests(place.number, now) else resting).append(place)
    return [*found, *resting]


def _is_down(error: TurnError) -> bool:
    """True if another provider may take over: the error is temporary, and the state has the whole turn."""
    return isinstance(error, _DOWN) and error.retryable and bool(error.state) and not error.pending_input


def _is_unreachable(error: TurnError) -> bool:
    """True if no HTTP answer came: to ask the provider again soon would cost the whole wait again."""
    return isinstance(error, _UNREACHABLE) and error.status_code is None


def _name(place: _Place, model: str | None) -> str:
    return f"{place.dialect.wire}:{model}" if model else str(place.dialect.wire)


def _plan_at(plan: Plan, place: _Place) -> Plan:
    """The plan of a whole turn at this provider."""
    if place.number == 0:
        return plan
    dialect = place.dialect
    settings = {name: value for name, value in plan.options.settings.items() if name != "model"}
    tools = plan.tools
    if dialect.wire != plan.dialect.wire:
        settings = {name: value for name, value in settings.items() if name not in _OWN}
        tools = tuple(tool for tool in tools if not isinstance(tool, ProviderTool))
    return replace(
        plan,
        dialect=dialect,
        options=replace(plan.options, settings=settings, on_foreign_state="convert"),
        model=place.model,
        handed=frozenset(settings),
        max_retries=place.max_retries,
        context_window=place.context_window,
        tools=tools,
    )


def _plan_after(plan: Plan, place: _Place, failed: TurnError) -> Plan:
    """The plan of the next provider: the rest of the turn, from the failed one's state."""
    at = _plan_at(plan, place)
    # The state is the failed turn's own and newer than what `min_revision` named. A state that cannot be
    # read here must raise: a fresh conversation would lose what was done.
    options = replace(at.options, on_foreign_state="convert", min_revision=None, on_bad_state="raise")
    return replace(
        at,
        options=options,
        blob=failed.state,
        resume=True,
        answers={},
        messages=(),
        stands_for=None if place.number == 0 else failed,
    )


_OWN: Final = frozenset({"extra_body", "extra_headers", "context_management", "prompt_cache_key"})
"""Settings in a provider's own words."""


def _through(
    flow: Flow[ChatResult], backend: Any, *, has_begun: bool = False, told: tuple[str, str] | None = None
) -> Flow[ChatResult]:
    """The flow, with its model calls sent to this backend.

    `has_begun`: True: the event `TurnStarted` was emitted already, so drop it. `told`: the names of the
    resting provider and of this one, for an event after `TurnStarted`.
    """
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            effect = flow.send(answer) if failure is None else flow.throw(failure)
        except StopIteration as stop:
            result: ChatResult = stop.value
            return result
        answer = failure = None
        start = effect.event if type(effect) is Emit and type(effect.event) is TurnStarted else None
        if start is not None and has_begun:
            continue
        try:
            answer = yield _sent_to(effect, backend)
            if start is not None and told is not None:
                of = {"conversation_id": start.conversation_id, "turn_ref": start.turn_ref}
                yield Emit(FellBack(*told, _UNREACHABLE.__name__, None, **of))
        except BaseException as exc:
            failure = exc


def _sent_to(effect: Effect, backend: Any) -> Effect:
    if type(effect) is CallModel and effect.backend is None:
        return CallModel(effect.request, backend)
    if type(effect) is Emit and effect.then is not None:
        return Emit(effect.event, _sent_to(effect.then, backend))
    return effect
