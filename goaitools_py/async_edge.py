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

from .backends.base import AsyncBackend, AsyncExchange
from .flow import (
    AwaitTool,
    CallModel,
    CallTool,
    Checkpoint,
    Clock,
    Effect,
    Interrupted,
    Moment,
    ReadChunk,
    Sleep,
    ToolDone,
)
from .tools.call import Outcome, arun_call, run_call, timed_out
from .tools.results import text_parts

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
        on_checkpoint: Callable[[bytes], object] | None = None,
        threads: bool = True,
    ) -> None:
        self._backend = backend
        self._on_checkpoint = on_checkpoint
        self._threads = threads
        self._exchange: AsyncExchange | None = None
        self._running: dict[asyncio.Task[ToolDone], tuple[CallTool, float, float]] = {}
        self._cancelled: set[asyncio.Task[ToolDone]] = set()
        self._performer: asyncio.Task[Any] | None = None
        self._is_interrupted = False
        self._closed = asyncio.Event()

    async def perform(self, effect: Effect) -> Any:
        """Carry one effect out and return its answer."""
        if type(effect) is Clock:
            return Moment(time.time_ns() // 1_000_000, time.monotonic())
        performer = asyncio.current_task()
        asked_before = performer.cancelling() if performer is not None else 0
        self._performer = performer
        try:
            return await _PERFORM[type(effect)](self, effect)
        except asyncio.CancelledError:
            # As in `asyncio.timeout`: it is ours to end only if nobody else has asked for it too.
            if performer is not None and self._is_interrupted and performer.cancelling() == asked_before + 1:
                raise Interrupted from None
            raise
        finally:
            self._performer = None
            if performer is not None and self._is_interrupted:
                performer.uncancel()

    async def interrupt(self) -> None:
        """From another task: cancel what is being awaited, and return once this edge is closed."""
        performer = self._performer
        if performer is asyncio.current_task():
            return  # `on_checkpoint` gives its own turn up: that ends when it returns
        if performer is not None and not self._is_interrupted:
            self._is_interrupted = True
            performer.cancel()
        await self._closed.wait()

    async def aclose(self) -> None:
        """Close what is open and cancel what runs; a sync tool in its thread ends by itself."""
        try:
            for task in tuple(self._running):
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

    async def _checkpoint(self, effect: Checkpoint) -> None:
        if self._on_checkpoint is not None:
            answer = self._on_checkpoint(effect.blob)
            if inspect.isawaitable(answer):
                await answer

    async def _call_model(self, effect: CallModel) -> Any:
        await self._close_exchange()
        self._exchange = await self._backend.asend(effect.request)
        return self._exchange.head

    async def _read_chunk(self, _: ReadChunk) -> bytes:
        if self._exchange is None:
            return b""
        chunk = await self._exchange.read()
        if not chunk:
            await self._close_exchange()
        return chunk

    async def _close_exchange(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            await exchange.aclose()

    async def _call_tool(self, effect: CallTool) -> None:
        task = asyncio.create_task(self._run(effect))
        self._running[task] = (effect, time.time(), time.monotonic())

    async def _run(self, effect: CallTool) -> ToolDone:
        started, began = time.time(), time.monotonic()
        tool = effect.tool
        call = (tool, effect.context, effect.arguments)
        if tool.is_async:
            outcome = await arun_call(*call)
        elif self._threads if tool.thread is None else tool.thread:
            outcome = await _in_thread(run_call, *call)
        else:
            outcome = run_call(*call)
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
        """Cancel a running call and wait for it no longer."""
        del self._running[task]
        self._cancelled.add(task)
        _left.add(task)
        task.add_done_callback(_forget)
        task.cancel()


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
    ReadChunk: AwaitingEdge._read_chunk,
    CallTool: AwaitingEdge._call_tool,
    AwaitTool: AwaitingEdge._await_tool,
    Sleep: AwaitingEdge._sleep,
    Checkpoint: AwaitingEdge._checkpoint,
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
