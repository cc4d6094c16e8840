"""A conversation in which anything can be made to fail, and a caller who recovers as documented.

Owns: the scenario, the points where it may fail, the caller's recovery, and what has to hold afterwards.
Must never know: the engine's insides.

Everything that is said, answered or done carries a mark of its own: "U3x" is what the user says in step 3,
"A3.1x" the second reply to it, "T3b" an effect and "R3b" its result. So each can be counted in any state.
The model answers from what a request holds, not from how often it was asked; whoever asks twice is answered
twice, and is caught.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from goaitools_py import (
    AbortTurn,
    Approve,
    AsyncChat,
    Chat,
    ChatResult,
    Compactor,
    KeepRecentTurns,
    Limits,
    MessageLimit,
    TextDelta,
    ToolContext,
    ToolError,
    ToolReturn,
    TurnError,
    event,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base import rawjson
from goaitools_py.state import frames
from goaitools_py.state.codec import PLAIN
from goaitools_py.state.state import load_state
from goaitools_py.states import pending_calls, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.turn.edges import async_edge
from goaitools_py.turn.edges import sync_edge as edge
from goaitools_py.types.errors import StateAuthError, StateCorruptError

__all__ = ["MODES", "STEPS", "WIRES", "Broken", "Fault", "Mode", "Step", "World", "hooked", "own"]

WIRES = ("openai", "openai-responses", "anthropic")
HISTORY = {"openai": "messages", "openai-responses": "input", "anthropic": "messages"}
_USER = re.compile(r"\bU(\d+)x")
_TRIES = 8


class Broken(AssertionError):
    """An invariant does not hold; the text says which."""


def require(condition: object, what: str) -> None:
    if not condition:
        raise Broken(what)


# ------------------------------------------------------------------------------------- what may fail


@dataclass(frozen=True)
class Mode:
    """One way in which a call fails: before anything of it has happened, or when all of it has."""

    name: str
    error: Callable[[], BaseException | None]
    is_after: bool = False


@dataclass(frozen=True)
class Fault:
    """The `nth` call of a kind fails."""

    kind: str
    nth: int
    mode: Mode

    def __str__(self) -> str:
        return f"{self.kind} {self.nth}: {self.mode.name}"


def _answer(
    status: int, text: str = "no", code: str | None = None, **headers: str
) -> Callable[[], BackendError]:
    error = {"type": "invalid_request_error", "message": text, "code": code}
    body = rawjson.dumps({"type": "error", "error": error})
    return lambda: BackendError("refused", status=status, headers=headers, body=body)


CONTEXT = _answer(400, "prompt is too long: maximum context length", "context_length_exceeded")

MODES: Mapping[str, tuple[Mode, ...]] = {
    "send": (
        Mode("no connection", lambda: BackendError("no connection")),
        Mode("sent, and no answer", lambda: BackendError("lost"), is_after=True),
        Mode("503", _answer(503)),
        Mode("429, later", _answer(429, **{"retry-after": "90"})),
        Mode("401", _answer(401)),
        Mode("404", _answer(404)),
        Mode("400", _answer(400)),
        Mode("413", _answer(413)),
        Mode("422", _answer(422)),
        Mode("too long", CONTEXT),
        Mode("OSError", OSError),
        Mode("MemoryError", MemoryError),
    ),
    "chunk": (
        Mode("reset", lambda: BackendError("reset", kind="interrupted")),
        Mode("end", lambda: None),
        Mode("OSError", OSError),
        Mode("MemoryError", MemoryError, is_after=True),
    ),
    "tool": (
        Mode("ValueError", ValueError),
        Mode("ToolError", lambda: ToolError("it is broken")),
        Mode("ValueError after its effect", ValueError, is_after=True),
        Mode("AbortTurn", AbortTurn),
        Mode("MemoryError", MemoryError),
    ),
    "clock": (Mode("OSError", OSError),),
    "sleep": (Mode("OSError", OSError),),
    "seal": (Mode("OSError", OSError), Mode("MemoryError", MemoryError)),
    "open": (
        Mode("OSError", OSError),
        Mode("MemoryError", MemoryError),
        Mode("refused", lambda: StateAuthError("no such key")),
        Mode("damaged", lambda: StateCorruptError("damaged")),
    ),
    "compress": (Mode("MemoryError", MemoryError),),
    "inflate": (Mode("MemoryError", MemoryError), Mode("damaged", lambda: StateCorruptError("damaged"))),
    "checkpoint": (
        Mode("OSError", OSError),
        Mode("MemoryError", MemoryError),
        Mode("OSError after it was kept", OSError, is_after=True),
    ),
    "event": (Mode("ValueError", ValueError), Mode("MemoryError", MemoryError)),
}
"""What may fail, and the ways that are natural for it."""

REFUSES_RESULTS = frozenset({"400", "413", "422", "too long"})
"""After these the model is not told a result; it stands in the error's tool log."""


# -------------------------------------------------------------------------------------- the scenario


@dataclass(frozen=True)
class Step:
    """One user message, everything that belongs to it, and what the model says to it.

    `script`: the replies in order, each the calls of one reply as (tool, effect) or "" for plain text.
    `trouble`: what becomes of the first request for a reply, by its number, before it is answered.
    """

    script: tuple[tuple[tuple[str, str], ...], ...] = ((),)
    is_streamed: bool = False
    listens: bool = False
    keeps: bool = True
    """Whether there is an `on_checkpoint`."""
    events: tuple[tuple[str, str | None], ...] = ()
    context: str | None = None
    turn_id: str | None = None
    system: str = "You are a game guide."
    threads: bool = False
    thinks: bool = False
    compactor: Any = None
    appends: bool = False
    max_iterations: int = 10
    trouble: Mapping[int, Callable[[], BackendError]] = field(default_factory=dict)


def _step(*script: Sequence[tuple[str, str]], **fields: Any) -> Step:
    return Step(script=tuple(map(tuple, (*script, ()))), **fields)


STEPS: tuple[Step, ...] = (
    _step(thinks=True),
    _step([("act", "1a")], [("act", "1b")], keeps=False, thinks=True),
    _step(
        [("act", "2a"), ("act", "2b"), ("act", "2c")],
        events=(("", None), ("score", None), ("score", "seen")),
        context="It is noon.",
        threads=True,
        system="You are another guide.",
    ),
    _step([("note", "3a")], is_streamed=True, thinks=True),
    _step([("act", "4a"), ("note", "4b")], turn_id="webhook-4", listens=True),
    _step([("act", "5a"), ("pay", "5b")], [("act", "5c")]),
    _step([("fails", "6a"), ("act", "6b")], [("act", "6c")], is_streamed=True, appends=True, context="Noon."),
    _step(compactor=Compactor(MessageLimit(8), KeepRecentTurns(4)), thinks=True),
    _step([("act", "8a")], trouble={0: _answer(503), 1: _answer(529)}, keeps=False),
    _step([("act", "9a")], [("act", "9b")], max_iterations=1, thinks=True, keeps=False),
    _step([("act", "10a")], trouble={1: CONTEXT}, turn_id="webhook-10"),
    _step([("pay", "11a"), ("pay", "11b")], is_streamed=True, turn_id="webhook-11"),
    _step(is_streamed=True, keeps=False, thinks=True),
)
"""The conversation. Step n says "U<n>x"."""


class _Own(threading.local):
    """Whether this thread reads a state for itself: that is no call of the package's."""

    is_looking = False


own = _Own()


@contextlib.contextmanager
def _looking() -> Iterator[None]:
    before, own.is_looking = own.is_looking, True
    try:
        yield
    finally:
        own.is_looking = before


class Hooks:
    """Stands where the package meets zstd and the clock, and asks the world that runs now."""

    world: World | None = None

    def point(self, kind: str) -> None:
        if self.world is not None:
            self.world.before(kind)


class _With:
    def __init__(self, module: Any, **names: Any) -> None:
        self.__dict__.update(names, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@contextlib.contextmanager
def hooked() -> Iterator[Hooks]:
    """The hooks in their places. No sleep takes time."""
    hooks = Hooks()
    compress, inflate = frames.compress, frames.inflate

    def counted(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            hooks.point(kind)
            return function(*args)

        return call

    async def sleep_async(_: float) -> None:
        hooks.point("sleep")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "compress", counted("compress", compress))
        patch.setattr(frames, "inflate", counted("inflate", inflate))
        time_ns = counted("clock", time.time_ns)
        patch.setattr(edge, "time", _With(time, time_ns=time_ns, sleep=lambda _: hooks.point("sleep")))
        patch.setattr(async_edge, "time", _With(time, time_ns=time_ns))
        patch.setattr(async_edge, "asyncio", _With(asyncio, sleep=sleep_async))
        yield hooks


class _Codec:
    """`PLAIN`, counted."""

    suite = PLAIN.suite
    compresses = PLAIN.compresses
    check = staticmethod(PLAIN.check)
    check_age = staticmethod(PLAIN.check_age)

    def __init__(self, world: World) -> None:
        self._world = world

    def seal(self, header: bytes, body: bytes, binding: Any) -> bytes:
        self._world.before("seal")
        return PLAIN.seal(header, body, binding)

    def open(self, blob: bytes, binding: Any) -> bytes:
        self._world.before("open")
        return PLAIN.open(blob, binding)


class _Exchange:
    """A response of either colour, counted chunk by chunk."""

    def __init__(
        self, inner: Any, world: World, reply: tuple[int, int], *, is_async: bool, is_stream: bool
    ) -> None:
        self.head, self._is_stream = inner.head, is_stream
        self._inner, self._world, self._reply = inner, world, reply
        world.open_exchanges.append(self)
        if is_async:
            self.read = self._aread  # type: ignore[method-assign]

    def read(self) -> bytes:
        world = self._world
        number = world.before("chunk", ends=True)
        if number < 0:
            self._inner._chunks.clear()
            return b""
        chunk: bytes = self._inner._take()
        world.after("chunk", number)
        # A stream says that it is whole; a body is whole when its end was read.
        if not self._inner._chunks and bool(chunk) == self._is_stream:
            world.delivered[self._reply] += 1
        return chunk

    async def _aread(self) -> bytes:
        return _Exchange.read(self)

    def close(self) -> None:
        if self in self._world.open_exchanges:
            self._world.open_exchanges.remove(self)

    async def aclose(self) -> None:
        self.close()


class _Backend(ScriptedBackend):
    """Answers from what a request holds."""

    def __init__(self, world: World) -> None:
        super().__init__(wire=world.wire, max_retries=2)
        self.world = world
        self.requests = world.requests

    def _exchange(self, request: ModelRequest, is_async: bool) -> _Exchange:
        world = self.world
        number = world.before("send")
        reply = world.answer_to(request)
        if trouble := world.trouble_with(reply):
            world.after("send", number)
            raise trouble
        self.then(world.said(*reply))
        inner = super().asend(request) if is_async else super().send(request)
        if is_async:
            inner = _now(inner)
        world.asked[reply] += 1
        world.after("send", number)
        return _Exchange(inner, world, reply, is_async=is_async, is_stream=request.stream)

    def send(self, request: ModelRequest) -> Any:
        return self._exchange(request, False)

    async def asend(self, request: ModelRequest) -> Any:
        return self._exchange(request, True)


def _now(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited")


# ---------------------------------------------------------------------------------------- the tools


@tool
def act(ctx: ToolContext[World], id: str) -> str:
    """Do something once."""
    ctx.deps.effect(ctx, id)
    return f"R{id} is done"


@tool(idempotent=True)
def note(ctx: ToolContext[World], id: str) -> str:
    """Do something that may be done again."""
    ctx.deps.effect(ctx, id)
    return f"R{id} is done"


@tool(requires_approval=True)
def pay(ctx: ToolContext[World], id: str) -> str:
    """Do something that somebody has to approve."""
    ctx.deps.effect(ctx, id)
    return f"R{id} is done"


@tool
def fails(ctx: ToolContext[World], id: str) -> ToolReturn:
    """Say that it did not work."""
    ctx.deps.effect(ctx, id)
    return ToolReturn(f"R{id} has failed", is_error=True)


_TOOLS = (act, note, pay, fails)


# ---------------------------------------------------------------------------------------- the world


class World:
    """The conversation at one point: the caller's blob, and what has happened outside of it."""

    def __init__(self, wire: str, face: Any) -> None:
        self.wire, self.face = wire, face
        self.blob = b""
        self.step = 0
        self.effects: list[tuple[str, str]] = []
        """Each effect with its idempotency key, in the order in which they happened."""
        self.returned: list[str] = []
        self.logged: set[str] = set()
        """Results that an error's tool log told of."""
        self.requests: list[ModelRequest] = []
        self.asked: Counter[tuple[int, int]] = Counter()
        self.delivered: Counter[tuple[int, int]] = Counter()
        """Replies that the package has read to their end."""
        self.troubled: set[tuple[int, int]] = set()
        self.hits: Counter[str] = Counter()
        self.fault: Fault | None = None
        self.injected: BaseException | None = None
        self.fired = False
        self.kept: bytes | None = None
        """The last checkpoint of the turn that runs."""
        self.open_exchanges: list[_Exchange] = []
        self.lock = threading.Lock()
        self.uses_handles = False
        self.driver: Any = None
        """The task that drives the turn."""
        self.may_lose: frozenset[str] = frozenset()
        """What a turn that is broken off at the worst moment cannot keep: "reply", "result"."""
        self.broken: list[str] = []
        self.in_doubt: set[str] = set()
        """Effects whose result the journal had not yet when the turn was broken off."""

    def copied(self) -> World:
        """This point of the conversation once more, to go on from separately."""
        made = copy.copy(self)
        for name in (
            *("effects", "returned", "logged", "requests", "broken"),
            *("asked", "delivered", "troubled", "hits"),
        ):
            setattr(made, name, copy.copy(getattr(self, name)))
        made.open_exchanges, made.lock = [], threading.Lock()
        return made

    # ------------------------------------------------------------------------------ the outside

    def before(self, kind: str, *, ends: bool = False) -> int:
        """A call begins; its number. Raises if it is the one that fails; -1 if it only ends early."""
        if own.is_looking:
            return 0
        with self.lock:
            self.hits[kind] += 1
            number = self.hits[kind]
        fault = self.fault
        if fault is None or (fault.kind, fault.nth) != (kind, number) or fault.mode.is_after:
            return number
        error = self._fire(fault)
        if error is None:
            require(ends, "nothing to raise")
            return -1
        raise error

    def after(self, kind: str, number: int) -> None:
        """A call ends. Raises if it is the one that fails at its end."""
        fault = self.fault
        if fault is not None and (fault.kind, fault.nth) == (kind, number) and fault.mode.is_after:
            error = self._fire(fault)
            assert error is not None
            raise error

    def _fire(self, fault: Fault) -> BaseException | None:
        self.fired, self.injected = True, fault.mode.error()
        return self.injected

    def answer_to(self, request: ModelRequest) -> tuple[int, int]:
        """Which user message a request is about, and how many replies to it there are already."""
        entries = rawjson.loads(request.body)[HISTORY[self.wire]]
        problems = check_history(self.wire, entries)
        require(not problems, f"a request that the provider refuses: {problems[:1]}")
        history = dialect_of(self.wire).view(tuple(rawjson.dumps(entry) for entry in entries))
        at, key = max(
            (n, int(mark))
            for n, message in enumerate(history)
            if message.role == "user"
            for mark in _USER.findall(message.text)
        )
        said = sum(message.role == "assistant" for message in history[at:])
        require(key == self.step, f"a request of step {self.step} ends with the message of step {key}")
        return key, said

    def trouble_with(self, reply: tuple[int, int]) -> BackendError | None:
        """What the provider answers the first request for a reply with, if that is no reply."""
        make = STEPS[reply[0]].trouble.get(reply[1])
        if make is None or reply in self.troubled:
            return None
        self.troubled.add(reply)
        return make()

    def said(self, key: int, number: int) -> Calls:
        """The reply with a number to the user message of a step."""
        step = STEPS[key]
        calls = step.script[number] if number < len(step.script) else ()
        thinks = "Hm." if step.thinks and self.wire != "openai" else ""
        return Calls([(name, {"id": id}) for name, id in calls], f"A{key}.{number}x it is.", reasoning=thinks)

    def effect(self, ctx: ToolContext, id: str) -> None:
        """A tool takes effect."""
        number = self.before("tool")
        if self.kept is not None:
            with _looking():
                started = {call.id for call in pending_calls(self.kept) if call.reason == "in_doubt"}
            if ctx.call_id not in started:  # an error here would be the tool's
                self.broken.append(f"I8: T{id} runs, and no checkpoint said that it would")
        with self.lock:
            self.effects.append((id, ctx.idempotency_key))
        self.after("tool", number)
        with self.lock:
            self.returned.append(id)

    # ------------------------------------------------------------------------------- the caller

    def run(self, steps: range | None = None) -> None:
        """Go on with the conversation from where it is to its end."""
        for number in steps if steps is not None else range(self.step, len(STEPS)):
            self.step = number
            self.take(STEPS[number])

    def take(self, step: Step) -> None:
        """Carry one step out, recover from what fails, and check what came of it."""
        chat = self._chat()
        if step.events:
            marks = [
                event(f"E{self.step}.{n}x came.", topic=topic or None, id=f"{self.step}.{n}" if id else None)
                for n, (topic, id) in enumerate(step.events)
            ]
            for message in marks:
                self.blob = self._retried(lambda m=message: chat.append_to_state(self.blob, m))
        result = self._turn(chat, step)
        if step.turn_id is not None:
            self._again(chat, step, result)
        self._check(step)

    def _chat(self) -> Any:
        made = AsyncChat if self.face.is_async else Chat
        return made(_Backend(self), codec=_Codec(self), on_bad_state="raise", tools=_TOOLS, deps=self)

    def _retried(self, act: Callable[[], bytes]) -> bytes:
        """What was called outside a turn may fail as it likes: nothing has happened."""
        try:
            return act()
        except BaseException as exc:
            require(exc is self.injected, f"another exception came: {exc!r}")
            return act()

    def _fields(self, step: Step) -> dict[str, Any]:
        fields: dict[str, Any] = {"system": step.system, "tool_threads": step.threads}
        if step.keeps:
            fields["on_checkpoint"] = self._keep
        if step.listens:
            fields["on_event"] = lambda _: self.before("event")
        if step.context is not None:
            fields["context"] = step.context
        if step.compactor is not None:
            fields["compactor"] = step.compactor
        return {**fields, "limits": Limits(max_iterations=step.max_iterations)}

    def _keep(self, blob: bytes) -> None:
        number = self.before("checkpoint")
        self.kept = blob
        self.after("checkpoint", number)

    def _turn(self, chat: Any, step: Step) -> ChatResult | None:
        """Say the step's message, and go on until the turn is finished. None if only its state tells so."""
        say: Mapping[str, Any] | None = {"messages": [user(f"U{self.step}x, please.")]}
        for _ in range(_TRIES):
            asked_before = sum(self.asked.values())
            self.kept = None
            fired = self.fired
            given = bytearray(self.blob)
            before = bytes(given)
            fields = self._fields(step)
            answers = {}
            is_new = say is not None and step.turn_id is not None
            if is_new:
                fields["turn_id"] = step.turn_id
            resumes = not is_new and (say is None or self._is_open(self.blob))
            if resumes and self.blob:
                with _looking():
                    answers = {c.id: Approve() for c in pending_calls(self.blob) if c.reason == "approval"}
            turn = None
            try:
                turn = chat._turn(
                    given,
                    None,
                    {**fields, **(say or {})},
                    stream=step.is_streamed,
                    resume=resumes,
                    answers=answers,
                )
                result = self._drive(turn, step)
            except TurnError as exc:
                require(
                    fired is False and self.fired, f"a turn failed by itself: {exc!r} from {exc.__cause__!r}"
                )
                if self.uses_handles:
                    self._settle(exc, exc.state)
                self._see(exc.state)
                self.blob = exc.state
                self._log(exc.tool_log)
                pending = exc.pending_input
                require(
                    self._counts(exc.state, "user")[self.step] + _said_in(pending) == 1,
                    f"I1: {type(exc).__name__} has the message neither in its state nor in pending_input",
                )
                if step.turn_id is None:
                    say = {"messages": pending} if pending else None
                if not self._is_open(exc.state) and say is None:
                    return None
            except BaseException as exc:
                require(exc is self.injected and not fired, f"another exception came: {exc!r}")
                if not self.uses_handles:
                    require(
                        sum(self.asked.values()) == asked_before,
                        f"a turn that had begun raised a bare {type(exc).__name__}",
                    )
                elif turn is not None:
                    state = turn.state
                    self._settle(exc, state)
                    self._see(state)
                    if state != before:
                        self.blob = state
                        if step.turn_id is None:
                            require(
                                self._counts(state, "user")[self.step] == 1,
                                "I1: turn.state is not the given one, and has not the message",
                            )
                            say = None
                            if not self._is_open(state):
                                return None
            else:
                self._log(result.tool_log)
                self._see(result.state)
                self.blob = result.state
                say = None
                if result.status != "awaiting_tools":
                    return result
            finally:
                require(bytes(given) == before, "I5: the given state was changed")
        raise Broken("the turn does not come to its end")

    def _drive(self, turn: Any, step: Step) -> ChatResult:
        if not self.face.is_async:
            with turn:
                if step.is_streamed:
                    for seen in turn:
                        self._look(turn, step, seen)
                result: ChatResult = turn.result()
                return result

        failure: list[BaseException] = []

        async def go() -> Any:
            self.driver = asyncio.current_task()
            result = None
            try:
                async with turn:
                    if step.is_streamed:
                        async for seen in turn:
                            self._look(turn, step, seen)
                    result = await turn.result()
            except BaseException as exc:  # not through the loop, which makes others of some
                failure.append(exc)
            for task in asyncio.all_tasks() - {self.driver}:
                require(task.cancelling(), "a tool's task keeps running")
            return result

        done: ChatResult = self.face.run(go())
        if failure:
            raise failure.pop()
        return done

    def _look(self, turn: Any, step: Step, seen: Any) -> None:
        if step.appends and isinstance(seen, TextDelta):  # again and again: it has an id
            turn.append(event(f"E{self.step}.9x came meanwhile.", id=f"{self.step}.9"))

    def _settle(self, exc: BaseException, state: bytes) -> None:
        """Nothing keeps running behind a turn that ended."""
        with _looking():
            doubtful = pending_calls(state) if state else ()
        started = {call.parsed["id"] for call in doubtful if call.reason == "in_doubt"}
        runs_beside = self.face.is_async or STEPS[self.step].threads
        self.in_doubt = started if "result" in self.may_lose or runs_beside else set()
        for thread in threading.enumerate():
            if thread.name == "goaitools-tool":
                thread.join(60)
                require(not thread.is_alive(), "a tool's thread keeps running")
        require(not self.open_exchanges, f"an exchange stays open after {type(exc).__name__}")

    def _again(self, chat: Any, step: Step, first: ChatResult | None) -> None:
        """The same id once more: the stored reply, and nothing is called."""
        asked, effects = sum(self.asked.values()), len(self.effects)

        def act() -> bytes:
            turn = chat._turn(
                self.blob,
                None,
                {**self._fields(step), "user": f"U{self.step}x, please.", "turn_id": step.turn_id},
            )
            result = self._drive(turn, replace(step, is_streamed=False))
            require(result.duplicate, "I1: a finished turn ran again")
            require(result.state == self.blob, "I5: the state of a finished turn changed")
            if first is not None:
                require(result.text == first.text, "I7: the stored reply is another one")
            return result.state

        self._retried(act)
        require(
            (sum(self.asked.values()), len(self.effects)) == (asked, effects), "I2: a duplicate did something"
        )

    # -------------------------------------------------------------------------------- the rules

    def _all(self, blob: bytes) -> list[tuple[str, str]]:
        return _read(blob) if blob else []

    def _counts(self, blob: bytes, role: str) -> Counter[int]:
        return Counter(int(m) for r, text in self._all(blob) if r == role for m in _USER.findall(text))

    def _is_open(self, blob: bytes) -> bool:
        return bool(blob) and _has_work(blob)

    def _log(self, records: Sequence[Any]) -> None:
        self.logged.update(mark for record in records for mark in re.findall(r"R(\d+[a-z]) ", record.result))

    def _see(self, blob: bytes) -> None:
        """I1 and I3 of whatever blob was handed out."""
        if not blob:
            return
        problems = _problems(self.wire, blob)
        require(not problems, f"I3: a history that the provider refuses: {problems[:1]}")
        twice = [mark for mark, count in self._counts(blob, "user").items() if count > 1]
        require(not twice, f"I1: the messages {twice} stand more than once in a state")

    def _check(self, step: Step) -> None:
        """What holds at the end of each step."""
        require(not self.broken, "; ".join(self.broken))
        key, said = self.step, self._all(self.blob)
        require(not _has_work(self.blob), "the turn is open")
        require(self._counts(self.blob, "user")[key] == 1, f"I1: U{key}x is not there once")
        for n, (topic, _) in enumerate(step.events):
            is_last = not topic or n == max(m for m, (t, _) in enumerate(step.events) if t == topic)
            found = sum(f"E{key}.{n}x" in text for _, text in said)
            require(found == int(is_last), f"I1: event E{key}.{n}x is there {found} times")
        again = [mark for mark, count in self.delivered.items() for _ in range(count - 1)]
        require(
            len(again) <= ("reply" in self.may_lose),
            f"I7: the replies {again} came whole, and were asked for again",
        )
        for (about, n), count in self.delivered.items():
            if about == key and count:
                found = sum(f"A{key}.{n}x" in text for role, text in said if role == "assistant")
                require(found == 1, f"I7: reply A{key}.{n}x came whole and is in the history {found} times")
        ran = Counter(id for id, _ in self.effects)
        idempotent = {id for one in STEPS for calls in one.script for name, id in calls if name == "note"}
        twice = [id for id, count in ran.items() if count > 1 and id not in idempotent]
        require(not twice, f"I2: the effects {twice} took place more than once")
        keys = Counter(id for id, _ in set(self.effects))
        require(max(keys.values(), default=1) == 1, "I2: an effect was repeated under another key")
        for id in self.returned:
            if int(id[:-1]) == key and id not in self.in_doubt:
                found = sum(f"R{id} " in text for role, text in said if role == "tool")
                lost = not found and not (self._refused() and id in self.logged)
                require(not lost and found <= 1, f"I7: the result of T{id} is in the history {found} times")
        require(not self.open_exchanges, "an exchange stays open")

    def _refused(self) -> bool:
        fault = self.fault
        return fault is not None and fault.kind == "send" and fault.mode.name in REFUSES_RESULTS


def _said_in(messages: Sequence[Any]) -> int:
    return sum(len(_USER.findall(message.text)) for message in messages)


@functools.lru_cache(maxsize=64)
def _read(blob: bytes) -> list[tuple[str, str]]:
    with _looking():
        return [(message.role, message.text) for message in read_history(blob).all_messages()]


@functools.lru_cache(maxsize=64)
def _problems(wire: str, blob: bytes) -> list[str]:
    with _looking():
        return check_history(wire, state_messages(blob))


def _has_work(blob: bytes) -> bool:
    with _looking():
        state = load_state(blob)
    return bool(state.inbox) or state.open is not None
