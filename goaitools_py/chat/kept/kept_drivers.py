"""The end of a turn that is kept in a store. It is saved, however it ends.

Owns: a driver around a turn's driver, one for sync and one for async, and the save of an abandoned turn, also
when Python ends. Must never know: the content of a save, or its place. `row` saves, also if the store gives
no answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ...base.process import finished, is_ending, this_process, unfinished
from ...base.run_twice import run_twice
from ...turn.edges.async_driver import AsyncDriver
from ...turn.edges.driver import Driver
from ...turn.flow import BusyError, Flow
from ...turn.observers import notify, notify_async
from ...types.events import Event

if TYPE_CHECKING:
    import asyncio

__all__ = ["AsyncKeptSteps", "KeptSteps", "KeptWork"]


class KeptWork(Protocol):
    """A turn, or a compaction, of a kept conversation. After an abandoned `run`, `settle` does the rest."""

    is_settled: bool

    @property
    def unsaved(self) -> Exception | None:
        """The error that prevented the save; None without one."""
        ...

    def run(self) -> Flow[Any]: ...

    def settle(self) -> Flow[None]: ...


class KeptSteps:
    """As `Driver`, for a turn that is in a store."""

    def __init__(
        self, work: KeptWork, drive: Callable[[Flow[Any]], Driver[Any]], on_event: Any = None
    ) -> None:
        """`on_event` gets the events after the turn was abandoned. The caller of `step` delivers others."""
        self._on_event = on_event
        self._work = work
        self._drive = drive
        self._steps = drive(work.run())
        self._process = this_process()
        # Reentrant: an observer runs under it in `_settle_once`, and may close the handle.
        self._lock = threading.RLock()
        self._has_begun = False

    @property
    def done(self) -> bool:
        """As `Driver.done`."""
        return self._steps.done

    @property
    def result(self) -> Any:
        """As `Driver.result`."""
        return self._steps.result

    @property
    def error(self) -> Exception | None:
        """As `Driver.error`."""
        return self._steps.error

    def step(self) -> Event | None:
        """As `Driver.step`. If the turn ends here, it is saved before this returns or raises."""
        if not self._has_begun:
            self._has_begun = True
            # Before the first step, which may take the lease: the end of Python has to settle the turn now.
            unfinished(self)
        try:
            event = self._steps.step()
        except BusyError:
            # Another thread runs the turn, and settles it.
            raise
        except BaseException:
            self._settle()
            raise
        # `close` in another thread ends the flow here without an exception. This thread saves the turn then.
        if event is None and self._steps.done:
            self._settle()
        return event

    def close(self) -> None:
        """As `Driver.close`. The turn is saved as far as it came, here or by the thread that runs it."""
        self._steps.close()
        if self._steps.done:
            self._settle()

    def _settle(self) -> None:
        if self._process is not this_process():
            return  # a fork: the turn and its lease are the parent's
        run_twice(self._settle_once)  # if Ctrl-C, say, interrupts the save, it is done once more

    def _settle_once(self) -> None:
        # `close` and the thread of the last step may both come here: the second waits, and finds it done.
        with self._lock:
            if self._work.is_settled or not self._has_begun:
                finished(self)
                return
            steps = self._drive(self._work.settle())
            while (told := steps.step()) is not None:
                notify(self._on_event, told)
            _tell(self._work)
            finished(self)

    def end_with_python(self) -> None:
        """As `close`, if no thread runs the turn at this moment. Python stops a thread that runs it."""
        if not self._steps.is_busy:
            self.close()

    def __del__(self, is_ending: Callable[[], bool] = is_ending) -> None:
        # Not while Python ends: a thread that was stopped may hold a lock. `end_with_python` came before.
        if is_ending() or not getattr(self, "_has_begun", False):
            return
        # In any case: the list knows objects by their id, and Python gives this id to another object.
        finished(self)
        if not self._work.is_settled:
            with suppress(Exception):
                self.close()


class AsyncKeptSteps:
    """As `AsyncDriver`, for a turn that is in a store.

    A cancelled turn is saved in a task of its own. A second cancellation does not reach that task.
    """

    def __init__(
        self, work: KeptWork, drive: Callable[[Flow[Any]], AsyncDriver[Any]], on_event: Any = None
    ) -> None:
        """`on_event`: as for `KeptSteps`."""
        self._on_event = on_event
        self._work = work
        self._drive = drive
        self._steps = drive(work.run())
        self._process = this_process()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settling: asyncio.Task[None] | None = None

    @property
    def done(self) -> bool:
        """As `AsyncDriver.done`."""
        return self._steps.done

    @property
    def result(self) -> Any:
        """As `AsyncDriver.result`."""
        return self._steps.result

    @property
    def error(self) -> Exception | None:
        """As `AsyncDriver.error`."""
        return self._steps.error

    async def step(self) -> Event | None:
        """As `KeptSteps.step`, awaited."""
        if self._loop is None:
            import asyncio

            self._loop = asyncio.get_running_loop()
        try:
            event = await self._steps.step()
        except (BusyError, GeneratorExit):
            # A coroutine that is closed cannot await any more: `__del__` has the turn saved.
            raise
        except BaseException:
            await self._settle()
            raise
        if event is None and self._steps.done:
            await self._settle()
        return event

    async def aclose(self) -> None:
        """As `AsyncDriver.aclose`; the turn is saved when this returns."""
        await self._steps.aclose()
        if self._steps.done:
            await self._settle()

    async def _settle(self) -> None:
        if self._work.is_settled or self._loop is None or self._process is not this_process():
            return
        import asyncio

        # No await between this look and the task: two callers wait for the same save.
        if self._settling is None:
            self._settling = _begin(self._loop, self._work, self._drive, self._on_event)
        await asyncio.shield(self._settling)

    def __del__(self, is_ending: Callable[[], bool] = is_ending) -> None:
        loop = getattr(self, "_loop", None)
        if is_ending() or loop is None or self._work.is_settled or self._settling is not None:
            return
        if self._process is not this_process():
            return  # a fork: the turn and its lease are the parent's
        # This may be any thread, so the loop is called thread-safely. `_begin` gets no reference to this
        # object, which Python is freeing now.
        with suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(_begin, loop, self._work, self._drive, self._on_event, self._steps)


_settling: set[asyncio.Task[None]] = set()
"""The tasks that save turns. An event loop holds only weak references to its tasks, so they are kept here."""


def _begin(
    loop: asyncio.AbstractEventLoop,
    work: KeptWork,
    drive: Callable[[Flow[Any]], AsyncDriver[Any]],
    on_event: Any,
    steps: AsyncDriver[Any] | None = None,
) -> asyncio.Task[None]:
    async def settle() -> None:
        if steps is not None:
            # The flow was left at an effect. It ends before the save, and keeps all that it received.
            await steps.aclose()
        left = drive(work.settle())
        while (told := await left.step()) is not None:
            await notify_async(on_event, told)
        _tell(work)

    task = loop.create_task(settle())
    _settling.add(task)
    task.add_done_callback(_settling.discard)
    return task


def _tell(work: KeptWork) -> None:
    if work.unsaved is not None:
        error = type(work.unsaved).__name__
        log = logging.getLogger("goaitools_py.state")
        log.warning(
            "an abandoned turn could not be saved (%s); its state is in turn.state",
            error,
            extra={"event": "state.unsaved", "error": error},
        )
