"""The blocking edge: carries a turn's effects out in plain code.

Owns: the clock, the open response, worker threads for tools. Must never know: why an effect was asked for.
"""

from __future__ import annotations

import contextvars
import inspect
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from .backends.base import Backend, Exchange
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
from .tools.call import run_call, timed_out

__all__ = ["BlockingEdge"]


class BlockingEdge:
    """Performs effects one at a time. Sync tools run in this thread, or in workers if `threads`."""

    def __init__(
        self,
        backend: Backend,
        *,
        on_checkpoint: Callable[[bytes], object] | None = None,
        threads: bool = False,
    ) -> None:
        self._backend = backend
        self._on_checkpoint = on_checkpoint
        self._threads = threads
        self._exchange: Exchange | None = None
        self._inline: deque[CallTool] = deque()
        self._finished: queue.SimpleQueue[ToolDone | BaseException] = queue.SimpleQueue()
        self._running: dict[int, tuple[CallTool, float, float]] = {}

    def perform(self, effect: Effect) -> Any:
        """Carry one effect out and return its answer."""
        return _PERFORM[type(effect)](self, effect)

    def close(self) -> None:
        """Close what is open. Threads that still run a tool are left to end by themselves."""
        self._close_exchange()

    def _clock(self, _: Clock) -> Moment:
        return Moment(time.time_ns() // 1_000_000, time.monotonic())

    def _sleep(self, effect: Sleep) -> None:
        time.sleep(effect.seconds)

    def _checkpoint(self, effect: Checkpoint) -> None:
        if self._on_checkpoint is None:
            return
        answer = self._on_checkpoint(effect.blob)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()  # or Python warns that it was never awaited
            raise TypeError("on_checkpoint is async, and a Chat runs no event loop: use AsyncChat")

    def _call_model(self, effect: CallModel) -> Any:
        self._close_exchange()
        self._exchange = self._backend.send(effect.request)
        return self._exchange.head

    def _read_chunk(self, _: ReadChunk) -> bytes:
        if self._exchange is None:
            return b""
        chunk = self._exchange.read()
        if not chunk:
            self._close_exchange()
        return chunk

    def _close_exchange(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()

    def _call_tool(self, effect: CallTool) -> None:
        threads = self._threads if effect.tool.thread is None else effect.tool.thread
        if not threads:
            self._inline.append(effect)
            return
        self._running[effect.index] = (effect, time.time(), time.monotonic())
        run = contextvars.copy_context().run
        # Not a pool: a tool that hangs would hold one of its places, and the next would time out unstarted.
        # A daemon, so that it does not hold up the end of the process either.
        threading.Thread(target=run, args=(self._run, effect), name="goaitools-tool", daemon=True).start()

    def _run(self, effect: CallTool) -> None:
        try:
            self._finished.put(self._timed(effect))
        except BaseException as exc:
            # SystemExit and its like are no outcome of a tool: they end the turn, in the turn's thread.
            self._finished.put(exc)

    def _timed(self, effect: CallTool) -> ToolDone:
        started, began = time.time(), time.monotonic()
        outcome = run_call(effect.tool, effect.context, effect.arguments)
        return ToolDone(
            index=effect.index, outcome=outcome, started=started, seconds=time.monotonic() - began
        )

    def _await_tool(self, _: AwaitTool) -> ToolDone:
        if self._inline:
            return self._timed(self._inline.popleft())
        while True:
            index, wait = self._next_timeout()
            try:
                done = self._finished.get(timeout=wait)
            except queue.Empty:
                effect, started, began = self._running.pop(index)
                return ToolDone(
                    index=index,
                    outcome=timed_out(effect.context, effect.timeout),
                    started=started,
                    seconds=time.monotonic() - began,
                )
            if isinstance(done, BaseException):
                raise done
            if self._running.pop(done.index, None) is not None:
                return done

    def _next_timeout(self) -> tuple[int, float | None]:
        """The running call whose time is up first, and the seconds until then (None: no limit)."""
        now = time.monotonic()
        limited = [
            (began + effect.timeout - now, index)
            for index, (effect, _, began) in self._running.items()
            if effect.timeout is not None
        ]
        if not limited:
            return -1, None
        left, index = min(limited)
        return index, max(0.0, left)


# Functions rather than an instance's bound methods: those would tie a knot that only the collector undoes.
_PERFORM: Final[Mapping[type, Callable[[BlockingEdge, Any], Any]]] = {
    Clock: BlockingEdge._clock,
    CallModel: BlockingEdge._call_model,
    ReadChunk: BlockingEdge._read_chunk,
    CallTool: BlockingEdge._call_tool,
    AwaitTool: BlockingEdge._await_tool,
    Sleep: BlockingEdge._sleep,
    Checkpoint: BlockingEdge._checkpoint,
}
