"""The awaiting edge: carries a turn's effects out on an event loop.

Owns: the open response and the tasks of running tools. Must never know: why an effect was asked for.
User code never blocks the loop: sync tools go to worker threads unless they were told otherwise.
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

from ..backends.base import AsyncBackend, AsyncExchange, BackendError
from ..tools.call import Outcome, begin_call, finish_call, timed_out
from ..tools.results import text_parts
from ..turn.flow import (
    AwaitTool,
    CallModel,
    CallTool,
    Clock,
    Compute,
    Effect,
    Interrupted,
    Invoke,
    Moment,
    OpenBackend,
    ReadChunk,
    Sleep,
    ToolDone,
)
from .wait import Wait

__all__ = ["AwaitingEdge"]

GRACE_SECONDS: Final = 0.1
"""How long the end of a turn waits for cancelled tools to tidy up. Those that do not stop are left."""

_left: Final[set[asyncio.Task[Any]]] = set()
"""Cancelled tools that nobody waits for: the loop itself holds tasks weakly."""


class AwaitingEdge:
    """Performs effects one at a time; tools run as tasks beside each other."""

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
        self._is_starting = False
        """True while a tool is being started: an eager task runs up to its first await in there."""
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
        """From another task: cancel what is being awaited, and return once this edge is closed."""
        if self._wait.task is asyncio.current_task():
            return  # `on_checkpoint` gives its own turn up: that ends when it returns
        if not self._is_starting:
            self._wait.interrupt()
        # Else a tool that runs eagerly gives its turn up: the turn's task is not waiting yet, and sees it on
        # its way back. A cancellation would stay with that task until its next await, wherever that is.
        await self._closed.wait()

    async def aclose(self) -> None:
        """Close what is open, keep the results that nobody has awaited, and cancel what runs; a sync tool in
        its thread ends by itself."""
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

    async def _invoke(self, effect: Invoke) -> object:
        answer = effect.function(*effect.args)
        return await answer if inspect.isawaitable(answer) else answer

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
        # Entered at once: whatever comes next finds it open.
        self._exchange = await (effect.backend or self._backend).asend(request)
        return self._exchange.head

    async def _read_chunk(self, effect: ReadChunk) -> bytes | tuple[Moment, bytes]:
        """Performed without a further step between: a reply may come in a thousand pieces."""
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
        exchange = self._exchange
        try:
            self._exchange = None
            self._wait.forget()
            if exchange is not None:
                await exchange.aclose()
        except BaseException:  # such as a cancellation: what it kept from its end is done once more
            self._wait.forget()
            if exchange is not None:
                await exchange.aclose()
            raise

    async def _call_tool(self, effect: CallTool) -> None:
        self._is_starting = True
        try:
            # In one statement: a task that an exit kept from being entered here would run on unseen.
            self._running[asyncio.create_task(self._run(effect))] = (effect, time.time(), time.monotonic())
        finally:
            self._is_starting = False

    async def _run(self, effect: CallTool) -> ToolDone:
        started, began = time.time(), time.monotonic()
        tool = effect.tool
        call = (tool, effect.context, effect.arguments)
        in_thread = not tool.is_async and (self._threads if tool.thread is None else tool.thread)
        begun = await _in_thread(begin_call, *call) if in_thread else begin_call(*call)
        outcome = await finish_call(begun, effect.context)
        return _tool_done(effect, outcome, started, began)

    async def _await_tool(self, _: AwaitTool) -> ToolDone:
        first, wait = self._next_timeout()
        done, _pending = await asyncio.wait(self._running, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            effect, started, began = self._running[first]
            self._leave(first)  # not awaited: it may take its time, or ignore that it was cancelled
            return _tool_done(effect, timed_out(effect.context, effect.timeout), started, began)
        task = min(done, key=lambda finished: self._running[finished][0].index)
        effect, started, began = self._running.pop(task)
        if task.cancelled():
            return _tool_done(effect, _cancelled(effect), started, began)
        return task.result()

    def _next_timeout(self) -> tuple[asyncio.Task[ToolDone], float | None]:
        """The running call whose time is up first, and the seconds until then (None: no limit)."""
        limits = {
            task: math.inf if effect.timeout is None else began + effect.timeout
            for task, (effect, _, began) in self._running.items()
        }
        first = min(limits, key=limits.__getitem__)
        limit = limits[first]
        return first, None if limit == math.inf else max(0.0, limit - time.monotonic())

    def _leave(self, task: asyncio.Task[ToolDone]) -> None:
        """Cancel a running call and wait for it no longer. Interrupted, it may be done again."""
        task.cancel()
        _left.add(task)
        task.add_done_callback(_forget)
        self._cancelled.add(task)
        del self._running[task]


def _now() -> Moment:
    return Moment(time.time_ns() // 1_000_000, time.monotonic())


def _forget(task: asyncio.Task[ToolDone]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # asked for, or asyncio complains that nobody did


def _tool_done(effect: CallTool, outcome: Outcome, started: float, began: float) -> ToolDone:
    return ToolDone(index=effect.index, outcome=outcome, started=started, seconds=time.monotonic() - began)


def _cancelled(effect: CallTool) -> Outcome:
    """The outcome of a call that something inside the tool cancelled, while its turn goes on."""
    text = "The tool was cancelled; it is unknown whether it took effect."
    return Outcome(parts=text_parts(text), flag="cancelled", actions=effect.context.actions)


# Functions rather than an instance's bound methods: those would tie a knot that only the collector undoes.
_PERFORM: Final[Mapping[type, Callable[[AwaitingEdge, Any], Awaitable[Any]]]] = {
    CallModel: AwaitingEdge._call_model,
    CallTool: AwaitingEdge._call_tool,
    AwaitTool: AwaitingEdge._await_tool,
    Sleep: AwaitingEdge._sleep,
    Invoke: AwaitingEdge._invoke,
    Compute: AwaitingEdge._compute,
    OpenBackend: AwaitingEdge._open_backend,
}


def _in_thread(call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    """Run a call in a thread of its own, with this task's context variables.

    Not in the loop's executor: a tool that hangs would hold one of its few places for good, and name
    lookups of the whole program wait there too. A daemon, so that it does not hold up the process's end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, failure: BaseException | None) -> None:
        if future.done():  # nobody waits any longer
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
