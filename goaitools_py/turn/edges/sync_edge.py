"""The blocking edge: carries a turn's effects out in plain code.

Owns: the clock, the open response, worker threads for tools. Must never know: why an effect was asked for.
"""

from __future__ import annotations

import contextvars
import inspect
import math
import queue
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any, Final

from ...backends.base import Backend, BackendError, Exchange
from ...base.run_twice import run_twice
from ...base.values import replace
from ...base.watch import Watch
from ...tools.call import CallOutcome, run_call, timed_out
from ..flow import (
    AwaitTool,
    CallModel,
    CallTool,
    Checkpoint,
    Clock,
    Compute,
    Effect,
    Interrupted,
    Invoke,
    Moment,
    OpenBackend,
    ReadChunk,
    ReadParts,
    Sleep,
    ToolDone,
    ToolReport,
    Unanswered,
)
from ..timing import SHORTEST_WAIT

__all__ = ["BlockingEdge", "refuse_async_callback", "warn_in_a_running_loop"]

_PACKAGE: Final = __name__.partition(".")[0]


def warn_in_a_running_loop() -> None:
    """Warn at the caller's line if this thread runs an event loop: it stands still until the reply is there.

    A notebook runs a loop for its own use, and its one user waits anyway.

    Raises:
        TypeError: The caller's next act is an ``await`` on the result. No model was asked.
    """
    # A program that has not loaded asyncio has no loop, and a turn does not load it for this question.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None or "ipykernel" in sys.modules:
        return
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    if frame is not None and _awaits_the_call(frame):
        raise TypeError(
            "await on a Chat, which gives its result without it: use AsyncChat, or leave out the await"
        )
    warnings.warn(
        "a Chat in a coroutine stops the event loop until the reply is there: use AsyncChat, and await its "
        "methods",
        RuntimeWarning,
        stacklevel=level + 1,
    )


def _awaits_the_call(frame: FrameType) -> bool:
    """Tell whether a frame of CPython awaits the result of its running call, by the next instruction.

    `ChatResult.__await__` would make results awaitable for `inspect.isawaitable` and for type checkers.
    """
    from opcode import opmap

    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while at < len(code) and code[at] == opmap.get("CACHE"):  # room of the call for the interpreter
        at += 2
    return at < len(code) and code[at] == opmap.get("GET_AWAITABLE")


def refuse_async_callback(name: str, callback: Callable[..., object] | None) -> None:
    """Raise TypeError for an async function, or an object with an async ``__call__``: a `Chat` cannot await
    it."""
    if callback is None:
        return
    if any(map(inspect.iscoroutinefunction, (callback, type(callback).__call__))):
        raise TypeError(f"{name} is async, and a Chat runs no event loop: use AsyncChat")


class _Started:
    """One started call. It is compared by identity: a later reply of the model has calls with the same
    indexes, and a late result must not go to one of these."""

    __slots__ = ("began", "effect", "started")

    def __init__(self, effect: CallTool) -> None:
        self.effect = effect
        self.started = time.time()
        self.began = time.monotonic()

    def done(self, outcome: CallOutcome) -> ToolDone:
        return ToolDone(
            index=self.effect.index,
            outcome=outcome,
            started=self.started,
            seconds=time.monotonic() - self.began,
        )

    def run(self) -> ToolDone:
        effect = self.effect
        if effect.around is not None:
            with effect.around() as finished:
                self.effect = replace(effect, around=None)
                done = self.run()
                finished(done.outcome)
            return done
        return self.done(run_call(effect.tool, effect.context, effect.arguments))

    def times_out_at(self) -> float:
        """The end of the call's time on the monotonic clock; infinity without a limit."""
        return math.inf if self.effect.timeout is None else self.began + self.effect.timeout


class BlockingEdge:
    """Performs effects one at a time. Tools run in this thread, or in worker threads if `threads` is true."""

    def __init__(
        self,
        backend: Backend,
        *,
        named: Callable[[str], Backend] | None = None,
        threads: bool = False,
    ) -> None:
        self._backend = backend
        self._named = named
        self._threads = threads
        self._exchange: Exchange | None = None
        self._watch: Watch | None = None
        self._watched = math.inf
        self._inline: deque[CallTool] = deque()
        self._finished: queue.SimpleQueue[tuple[_Started, ToolDone | BaseException | None] | None]
        self._finished = queue.SimpleQueue()
        self._running: dict[_Started, None] = {}
        self._news: dict[_Started, ToolReport] = {}
        self._news_lock = threading.Lock()

    def perform(self, effect: Effect) -> Any:
        """Carry one effect out and return its answer."""
        return _PERFORM[type(effect)](self, effect)

    def interrupt(self) -> None:
        """From another thread: end the wait for a tool in a worker thread, and for more of an open response.

        Three waits go on, because they cannot be ended safely: for the head of a provider's answer, for the
        pause before a retry, and for a tool in the turn's own thread.
        """
        self._finished.put(None)
        interrupt = getattr(self._exchange, "interrupt", None)
        if interrupt is not None:
            interrupt()

    def close(self) -> None:
        """Close the open response, and keep results that were not awaited yet.

        A thread that still runs a tool ends by itself.
        """
        try:
            while self._running and not self._finished.empty():
                run_twice(_keep, self._running, self._finished.get_nowait())
            for call in self._running:
                _leave(call)
        finally:
            self._close_exchange()

    def _sleep(self, effect: Sleep) -> None:
        time.sleep(effect.seconds)

    def _compute(self, effect: Compute) -> object:
        return effect.function()

    def _read_parts(self, _: ReadParts) -> dict[bytes, bytes]:
        return {}  # a blob without a store has all its parts inside

    def _invoke(self, effect: Invoke) -> object:
        if effect.until is None:
            answer = effect.function(*effect.args)
        else:
            answer = _answer_in_time(effect, effect.until)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()  # otherwise Python warns that it was never awaited
            raise TypeError("the function is async, and a Chat runs no event loop: use AsyncChat")
        return answer

    def _checkpoint(self, effect: Checkpoint) -> None:
        if effect.keep is not None:
            self._invoke(Invoke(effect.keep, (effect.blob,)))

    def _open_backend(self, effect: OpenBackend) -> Backend:
        backend = effect.backend
        if isinstance(backend, str) and self._named is not None:
            return self._named(backend)
        if not hasattr(backend, "send"):
            raise TypeError(f"a Chat needs a backend with send(), not {type(backend).__name__}")
        return backend  # type: ignore[no-any-return]

    def _call_model(self, effect: CallModel) -> Any:
        self._close_exchange()
        self._exchange = (effect.backend or self._backend).send(effect.request)
        return self._exchange.head

    def _read_chunk(self, effect: ReadChunk) -> bytes | tuple[Moment, bytes]:
        now = _now() if effect.timed else None
        exchange, chunk = self._exchange, b""
        if exchange is not None:
            if effect.until is None and self._watch is None:
                chunk = exchange.read()
            else:
                chunk = self._read_until(exchange, math.inf if effect.until is None else effect.until)
            if not chunk:
                self._close_exchange()
        return chunk if now is None else (now, chunk)

    def _read_until(self, exchange: Exchange, end: float) -> bytes:
        """The next bytes; BackendError once the time `end` has come, also between two reads.

        For an exchange that cannot be interrupted only its own limits hold.
        """
        watch = self._watch
        if watch is None:
            interrupt = getattr(exchange, "interrupt", None)
            if interrupt is None:
                return exchange.read()
            watch = self._watch = Watch(interrupt)
            self._watched = math.inf
        if end != self._watched:
            watch.set(max(SHORTEST_WAIT, end - time.monotonic()))
            self._watched = end
        cause: Exception | None = None
        try:
            chunk = exchange.read()
        except Exception as exc:
            if not watch.has_rung:
                raise
            chunk, cause = b"", exc
        if watch.has_rung and not chunk:
            raise BackendError(
                "the answer stalled",
                kind="interrupted",
                timed_out=True,
                sdk_error=getattr(cause, "sdk_error", cause),
            ) from None
        return chunk

    def _close_exchange(self) -> None:
        watch, exchange = self._watch, self._exchange
        if watch is not None or exchange is not None:
            run_twice(self._let_go, watch, exchange)

    def _let_go(self, watch: Watch | None, exchange: Exchange | None) -> None:
        self._watch = self._exchange = None
        try:
            if watch is not None:
                watch.close()
        finally:
            if exchange is not None:
                exchange.close()

    def _call_tool(self, effect: CallTool) -> None:
        if self._exchange is not None:  # free the connection: other requests may wait for it
            self._close_exchange()
        threads = self._threads if effect.tool.thread is None else effect.tool.thread
        if not threads:
            self._inline.append(effect)
            return
        call = _Started(effect)
        self._running[call] = None
        if effect.is_heard:
            effect.context._heard.append(partial(self._hear, call))
        run = contextvars.copy_context().run
        # Use a new thread, not a pool: a tool that hangs would block a thread of the pool, and the next tool
        # would time out before it started. The thread is a daemon, so that the process can end.
        try:
            threading.Thread(target=run, args=(self._run, call), name="goaitools-tool", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            del self._running[call]
            raise

    def _run(self, call: _Started) -> None:
        try:
            self._finished.put((call, call.run()))
        except BaseException as exc:
            # SystemExit and the like are not a tool's result. The turn's thread raises them again, and they
            # end the turn.
            self._finished.put((call, exc))

    def _await_tool(self, _: AwaitTool) -> ToolDone | ToolReport:
        if self._inline:
            here = _Started(self._inline.popleft())
            return _run_heard(here) if here.effect.is_heard else here.run()
        while True:
            first = min(self._running, key=_Started.times_out_at)
            limit = first.times_out_at()
            wait = None if limit == math.inf else max(0.0, limit - time.monotonic())
            try:
                finished = self._finished.get(timeout=wait)
            except queue.Empty:
                del self._running[first]
                _leave(first)
                return first.done(timed_out(first.effect.context, first.effect.limit))
            if finished is None:
                raise Interrupted
            call, done = finished
            if call not in self._running:
                continue  # the call timed out before, and the model has that result
            if done is None:
                with self._news_lock:
                    return self._news.pop(call)
            del self._running[call]
            if isinstance(done, BaseException):
                raise done
            return done

    def _hear(self, call: _Started, progress: float, total: float | None, message: str) -> None:
        """Take a report, in the tool's thread. Only the newest report of each call is kept."""
        report = ToolReport(index=call.effect.index, progress=progress, total=total, message=message)
        with self._news_lock:
            is_first = call not in self._news
            self._news[call] = report
        if is_first:
            self._finished.put((call, None))


def _answer_in_time(effect: Invoke, until: float) -> object:
    from ...base.late_calls import call_with_timeout  # few stores need a thread for their calls

    seconds = until - time.monotonic()
    try:
        return call_with_timeout(seconds, partial(effect.function, *effect.args), _drop)
    except TimeoutError:
        raise Unanswered from None


def _drop(answer: object) -> None:
    """Drop a late answer."""


def _run_heard(call: _Started) -> ToolDone:
    """Run a call in this thread. Its reports can be told only after it ends."""
    effect = call.effect
    reports: list[ToolReport] = []

    def hear(progress: float, total: float | None, message: str) -> None:
        reports[:] = [ToolReport(index=effect.index, progress=progress, total=total, message=message)]

    effect.context._heard.append(hear)
    done = call.run()
    return replace(done, reports=tuple(reports)) if reports else done


def _keep(
    running: dict[_Started, None], finished: tuple[_Started, ToolDone | BaseException | None] | None
) -> None:
    if finished is None or finished[1] is None:
        return
    call, done = finished
    if call in running and isinstance(done, ToolDone) and call.effect.keep is not None:
        call.effect.keep(done)
    running.pop(call, None)


def _leave(call: _Started) -> None:
    """Tell a call that the turn no longer waits for it. A tool that waits itself can then stop waiting."""
    for tell in call.effect.context._left:
        tell()


def _now() -> Moment:
    return Moment(time.time_ns() // 1_000_000, time.monotonic())


# Functions, not bound methods: bound methods of an instance would make a reference cycle, which only the
# garbage collector can free.
_PERFORM: Final[Mapping[type, Callable[[BlockingEdge, Any], Any]]] = {
    Clock: lambda edge, effect: _now(),
    CallModel: BlockingEdge._call_model,
    ReadChunk: BlockingEdge._read_chunk,
    CallTool: BlockingEdge._call_tool,
    AwaitTool: BlockingEdge._await_tool,
    Sleep: BlockingEdge._sleep,
    Invoke: BlockingEdge._invoke,
    Checkpoint: BlockingEdge._checkpoint,
    Compute: BlockingEdge._compute,
    ReadParts: BlockingEdge._read_parts,
    OpenBackend: BlockingEdge._open_backend,
}
