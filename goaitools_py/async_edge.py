"""The awaiting edge: carries a turn's effects out on an event loop.

Owns: the open response and the tasks of running tools. Must never know: why an effect was asked for.
User code never blocks the loop: sync tools go to worker threads unless they were told otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
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
    Moment,
    ReadChunk,
    Sleep,
    ToolDone,
)
from .tools.call import arun_call, run_call, timed_out

__all__ = ["AwaitingEdge"]


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
        self._tasks: set[asyncio.Task[ToolDone]] = set()

    async def perform(self, effect: Effect) -> Any:
        """Carry one effect out and return its answer."""
        if type(effect) is Clock:
            return Moment(time.time_ns() // 1_000_000, time.monotonic())
        return await _PERFORM[type(effect)](self, effect)

    async def aclose(self) -> None:
        """Close what is open and cancel what runs; a sync tool in its thread ends by itself."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._close_exchange()

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
        self._tasks.add(asyncio.create_task(self._timed(effect)))

    async def _timed(self, effect: CallTool) -> ToolDone:
        started, began = time.time(), time.monotonic()
        tool = effect.tool
        threads = self._threads if tool.thread is None else tool.thread
        if tool.is_async:
            run: Awaitable[Any] = arun_call(tool, effect.context, effect.arguments)
        elif threads:
            run = _in_thread(run_call, tool, effect.context, effect.arguments)
        else:
            outcome = run_call(tool, effect.context, effect.arguments)
            return ToolDone(
                index=effect.index, outcome=outcome, started=started, seconds=time.monotonic() - began
            )
        try:
            outcome = await asyncio.wait_for(run, effect.timeout)
        except TimeoutError:
            outcome = timed_out(effect.context, effect.timeout)
        return ToolDone(
            index=effect.index, outcome=outcome, started=started, seconds=time.monotonic() - began
        )

    async def _await_tool(self, _: AwaitTool) -> ToolDone:
        done, _pending = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        task = min(done, key=lambda finished: finished.result().index)
        self._tasks.discard(task)
        return task.result()


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
