"""The awaiting edge: carries a turn's effects out on an event loop.

Owns: the open response and the tasks of running tools. Must never know: why an effect was asked for.

The caller's code does not block the loop: sync tools run in worker threads, unless an option says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import math
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ...backends.base import AsyncBackend, AsyncExchange, BackendError
from ...base.late_calls import await_within
from ...base.run_twice import run_twice_async
from ...base.values import replace
from ...tools.call import CallOutcome, begin_call, finish_call, text_parts, timed_out
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
from .async_wait import Wait

__all__ = ["AwaitingEdge"]

GRACE_SECONDS: Final = 0.1
"""The end of a turn waits so long for cancelled tools to clean up. A tool that does not stop by then runs on.
"""

_left: Final[set[asyncio.Task[Any]]] = set()
"""Cancelled tools that run on. They are held here, because an event loop holds its tasks weakly."""


class AwaitingEdge:
    """Performs effects one at a time. Tools run as tasks, several at the same time."""

    def __init__(
        self,
        backend: AsyncBackend,
        *,
        named: Callable[[str], AsyncBackend] | None = None,
        threads: bool = True,
    ) -> None:
        self._backend = backend
        self._named = named
        self._threads = threads
        self._exchange: AsyncExchange | None = None
        self._wait = Wait()
        self._running: dict[asyncio.Task[ToolDone], tuple[CallTool, float, float]] = {}
        self._cancelled: set[asyncio.Task[ToolDone]] = set()
        self._news: dict[int, tuple[CallTool, ToolReport]] = {}
        """By the call's identity: a later reply of the model has calls with the same indexes."""
        self._heard: asyncio.Future[None] | None = None
        """Done once `_news` has an entry."""
        self._is_starting = False
        """True while a tool is being started. An eager task then already runs to its first await."""
        self._closed = asyncio.Event()

    def perform(self, effect: Effect) -> Awaitable[Any]:
        """Carry one effect out and return its answer."""
        if type(effect) is ReadChunk:
            return self._read_chunk(effect)
        return self._perform(effect)

    async def _perform(self, effect: Effect) -> Any:
        if type(effect) is Clock:
            return _now()
        self._wait.begin()
        try:
            return await _PERFORM[type(effect)](self, effect)
        except asyncio.CancelledError:
            if (why := self._wait.ended()) is None:
                raise
            late = BackendError("no answer in time", timed_out=True)
            raise (late if why == "late" else Interrupted()) from None
        finally:
            self._wait.over()

    async def interrupt(self) -> None:
        """From another task: cancel the current wait, and return once this edge is closed."""
        if self._wait.task is asyncio.current_task():
            return  # `on_checkpoint` gives up the turn that called it, and the turn ends after it
        if not self._is_starting:
            self._wait.interrupt()
        # Otherwise a tool that runs eagerly gives its turn up. The turn's task does not wait yet, and will
        # see that the turn is to stop. A cancellation would hit it at an unrelated later await.
        await self._closed.wait()

    async def aclose(self) -> None:
        """Close the open response, keep results that were not awaited yet, and cancel running tools.

        A sync tool in its thread ends by itself.
        """
        try:
            for task, (effect, _, _) in tuple(self._running.items()):
                if task.done() and not task.cancelled() and task.exception() is None and effect.keep:
                    effect.keep(task.result())
                self._leave(task)
            if self._cancelled:
                await asyncio.wait(self._cancelled, timeout=GRACE_SECONDS)
        finally:
            try:
                await self._close_exchange()
            finally:
                self._closed.set()

    async def _sleep(self, effect: Sleep) -> None:
        await asyncio.sleep(effect.seconds)

    async def _compute(self, effect: Compute) -> object:
        return await _in_thread(effect.function)

    async def _read_parts(self, _: ReadParts) -> dict[bytes, bytes]:
        return {}  # a blob without a store has all its parts inside

    async def _invoke(self, effect: Invoke) -> object:
        answer = effect.function(*effect.args)
        if not inspect.isawaitable(answer):
            return answer
        if effect.until is None:
            return await answer
        try:
            return await await_within(effect.until - time.monotonic(), answer)
        except TimeoutError:
            raise Unanswered from None

    async def _checkpoint(self, effect: Checkpoint) -> None:
        if effect.keep is not None:
            await self._invoke(Invoke(effect.keep, (effect.blob,)))

    async def _open_backend(self, effect: OpenBackend) -> AsyncBackend:
        backend = effect.backend
        if isinstance(backend, str) and self._named is not None:
            return self._named(backend)
        if not hasattr(backend, "asend"):
            raise TypeError(f"an AsyncChat needs a backend with asend(), not {type(backend).__name__}")
        return backend  # type: ignore[no-any-return]

    async def _call_model(self, effect: CallModel) -> Any:
        await self._close_exchange()
        request = effect.request
        seconds = request.timeout if request.head_timeout is None else request.head_timeout
        if seconds is not None:
            self._wait.limit(time.monotonic() + seconds)
        # Open and store it in one statement: Ctrl-C after it finds the exchange, and `aclose` closes it.
        self._exchange = await (effect.backend or self._backend).asend(request)
        return self._exchange.head

    async def _read_chunk(self, effect: ReadChunk) -> bytes | tuple[Moment, bytes]:
        """Called by `perform` without `_perform` in between: a reply may come in a thousand pieces."""
        now = _now() if effect.timed else None
        exchange, chunk = self._exchange, b""
        if exchange is not None:
            self._wait.begin(effect.until)
            try:
                chunk = await exchange.read()
                if not chunk:
                    await self._close_exchange()
            except asyncio.CancelledError:
                if (why := self._wait.ended()) is None:
                    raise
                late = BackendError("the answer stalled", kind="interrupted", timed_out=True)
                raise (late if why == "late" else Interrupted()) from None
            finally:
                self._wait.over()
        return chunk if now is None else (now, chunk)

    async def _close_exchange(self) -> None:
        await run_twice_async(self._let_go, self._exchange)

    async def _let_go(self, exchange: AsyncExchange | None) -> None:
        self._exchange = None
        self._wait.forget()
        if exchange is not None:
            await exchange.aclose()

    async def _call_tool(self, effect: CallTool) -> None:
        if self._exchange is not None:  # free the connection: other requests may wait for it
            await self._close_exchange()
        if effect.is_heard:
            self._listen(effect)
        self._is_starting = True
        try:
            # Start and store the task in one statement. Ctrl-C between two statements would leave a task that
            # runs on unknown.
            self._running[asyncio.create_task(self._run(effect))] = (effect, time.time(), time.monotonic())
        finally:
            self._is_starting = False

    def _listen(self, effect: CallTool) -> None:
        """Take the reports of a tool from any thread. Only the newest report of a call is kept."""
        loop = asyncio.get_running_loop()

        def hear(report: ToolReport) -> None:
            self._news[id(effect)] = effect, report
            if self._heard is not None and not self._heard.done():
                self._heard.set_result(None)

        def tell(progress: float, total: float | None, message: str) -> None:
            report = ToolReport(index=effect.index, progress=progress, total=total, message=message)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(hear, report)

        effect.context._heard.append(tell)
        if self._heard is None:
            self._heard = loop.create_future()

    async def _run(self, effect: CallTool) -> ToolDone:
        if effect.around is not None:
            with effect.around() as finished:
                done = await self._run(replace(effect, around=None))
                finished(done.outcome)
            return done
        started, began = time.time(), time.monotonic()
        tool = effect.tool
        call = (tool, effect.context, effect.arguments)
        in_thread = not tool.is_async and (self._threads if tool.thread is None else tool.thread)
        begun = await _in_thread(begin_call, *call) if in_thread else begin_call(*call)
        outcome = await finish_call(begun, effect.context)
        return _tool_done(effect, outcome, started, began)

    async def _await_tool(self, _: AwaitTool) -> ToolDone | ToolReport:
        if self._heard is not None and (report := await self._report_or_end()) is not None:
            return report
        first, wait = self._next_timeout()
        done, _pending = await asyncio.wait(self._running, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            effect, started, began = self._running[first]
            self._leave(first)  # not awaited: it may be slow, or ignore that it was cancelled
            return _tool_done(effect, timed_out(effect.context, effect.limit), started, began)
        task = min(done, key=lambda finished: self._running[finished][0].index)
        effect, started, began = self._running.pop(task)
        if task.cancelled():
            return _tool_done(effect, _cancelled(effect), started, began)
        return task.result()

    async def _report_or_end(self) -> ToolReport | None:
        """Wait for a report of a tool; None once a call has ended, or taken too long."""
        while True:
            if self._heard is None or (not self._news and self._heard.done()):
                self._heard = asyncio.get_running_loop().create_future()
            awaited: set[asyncio.Future[Any]] = {*self._running, self._heard}
            _, wait = self._next_timeout()
            done, _ = await asyncio.wait(awaited, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            if self._heard in done and (report := self._next_report()) is not None:
                return report
            if done != {self._heard}:
                return None

    def _next_report(self) -> ToolReport | None:
        """A report of a call that still runs, or that has ended but was not awaited yet."""
        while self._news:
            call, report = self._news.pop(next(iter(self._news)))
            if any(effect is call for effect, _, _ in self._running.values()):
                return report
        return None

    def _next_timeout(self) -> tuple[asyncio.Task[ToolDone], float | None]:
        """The running call that times out first, and the seconds until then (None: no limit)."""
        limits = {
            task: math.inf if effect.timeout is None else began + effect.timeout
            for task, (effect, _, began) in self._running.items()
        }
        first = min(limits, key=limits.__getitem__)
        limit = limits[first]
        return first, None if limit == math.inf else max(0.0, limit - time.monotonic())

    def _leave(self, task: asyncio.Task[ToolDone]) -> None:
        """Cancel a running call, and stop waiting for it. This may run twice for one call."""
        task.cancel()
        for tell in self._running[task][0].context._left:
            tell()
        _left.add(task)
        task.add_done_callback(_forget)
        self._cancelled.add(task)
        del self._running[task]


def _now() -> Moment:
    return Moment(time.time_ns() // 1_000_000, time.monotonic())


def _forget(task: asyncio.Task[ToolDone]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # fetch it, or asyncio would log that it was never retrieved


def _tool_done(effect: CallTool, outcome: CallOutcome, started: float, began: float) -> ToolDone:
    return ToolDone(index=effect.index, outcome=outcome, started=started, seconds=time.monotonic() - began)


def _cancelled(effect: CallTool) -> CallOutcome:
    """The outcome of a call that was cancelled from inside the tool. The turn goes on."""
    text = "The tool was cancelled; it is unknown whether it took effect."
    return CallOutcome(parts=text_parts(text), flag="cancelled", actions=effect.context.actions)


# Functions, not bound methods: bound methods of an instance would make a reference cycle, which only the
# garbage collector can free.
_PERFORM: Final[Mapping[type, Callable[[AwaitingEdge, Any], Awaitable[Any]]]] = {
    CallModel: AwaitingEdge._call_model,
    CallTool: AwaitingEdge._call_tool,
    AwaitTool: AwaitingEdge._await_tool,
    Sleep: AwaitingEdge._sleep,
    Invoke: AwaitingEdge._invoke,
    Checkpoint: AwaitingEdge._checkpoint,
    Compute: AwaitingEdge._compute,
    ReadParts: AwaitingEdge._read_parts,
    OpenBackend: AwaitingEdge._open_backend,
}


def _in_thread(call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    """Run a call in a thread of its own, with this task's context variables.

    It does not run in the loop's executor. The executor has few threads, a tool that hangs would block one
    for ever, and the name lookups of the whole program need them, too. The thread is a daemon, so that the
    process can end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, failure: BaseException | None) -> None:
        if future.done():  # the turn waits for it no longer
            return
        if failure is None:
            future.set_result(value)
        else:
            future.set_exception(failure)

    def run() -> None:
        value, failure = None, None
        try:
            value = call(*args)
        except BaseException as exc:
            failure = exc
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, failure)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name="goaitools-tool", daemon=True).start()
    return future
