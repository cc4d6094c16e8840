"""Calls that go on for a while after their caller has left, in a thread or in a task.

Owns: the call's thread or task, the limit of the wait, and who gets the result. Must never know: the call's
work, a lease, or the kind of store.

`call_with_timeout` is for blocking calls without a deadline that cannot be interrupted: a whole post of an
SDK, or a call of a store over a driver that may wait for ever. The thread that watches times (`watch`) cannot
help here: it notices the end of the time, but cannot end the call. So the call runs in a thread of its own,
and a late call stays there. A thread that has finished waits a moment for the next call, because a new thread
costs four times as much.

`await_within` does the same work for event loops. `asyncio.timeout` is not enough: it cancels the call and
waits until the call has cleaned up. A driver may clean up for ever if its server does not answer.

`Undisturbed` runs a call of a store to its end, although its caller is cancelled. A database may carry out a
cancelled statement all the same. If the statement takes a lease, the conversation would be busy until the
lease runs out. So the call that takes a lease is not cancelled with its caller: it ends first, and then the
lease is given back. The same holds for the end of a lease. The result of the call goes to the caller. If the
caller has left, it goes to a function that gives it back. Exactly one of the two gets it.
"""

from __future__ import annotations

import contextvars
import inspect
import queue
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from .process import PerProcess

if TYPE_CHECKING:
    import asyncio

__all__ = ["PATIENCE", "AsyncUndisturbed", "Undisturbed", "await_within", "call_with_timeout"]

T = TypeVar("T")

_Call: TypeAlias = tuple[Callable[[], object], Callable[[], object]]
"""The function to run, and the function that reports its end. The second must not wait, and must not refer to
the first."""

IDLE_SECONDS = 2.0
"""A thread waits so long for its next call before it ends."""


class _Worker:
    """A thread that runs one call after another.

    Args:
        idle: The workers of this process that wait for a call.
    """

    def __init__(self, idle: list[_Worker]) -> None:
        self._idle = idle
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the system has no more threads."""
        threading.Thread(target=self._work, name="goaitools-aside", daemon=True).start()

    def begin(self, call: _Call) -> None:
        """Give the thread its next call. Only the code that took it from `idle`, or made it, may do so."""
        self._calls.put(call)

    def _work(self) -> None:
        while True:
            try:
                run, tell = self._calls.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._has_retired():
                    return
                run, tell = self._calls.get()
            run()
            del run  # after `tell` this thread must not refer to the call and its result any more
            self._idle.append(self)  # before `tell`, so that the caller's next call finds this worker
            tell()

    def _has_retired(self) -> bool:
        """True if no call can come any more; False if other code took the worker, and a call will come."""
        try:
            self._idle.remove(self)
        except ValueError:
            return False
        return True


_idle = PerProcess[list[_Worker]](lambda inherited: [])


def _begin(call: _Call) -> None:
    """Run a call in an idle thread, or in a new one. Raises RuntimeError if no thread can be started."""
    idle = _idle.get()
    try:
        worker = idle.pop()  # take the newest, so that the threads which are not needed time out
    except IndexError:
        worker = _Worker(idle)
        worker.start()
    worker.begin(call)


def call_with_timeout(seconds: float, call: Callable[[], T], discard: Callable[[T], object]) -> T:
    """Call a function in a thread, wait for a limited time, and return or raise its result.

    Args:
        seconds: The longest wait.
        call: The function. It sees the context variables of this thread. If it is late, it runs on.
        discard: Called with the result of a late call, such as a response, to close it. A late exception is
            dropped.

    Raises:
        TimeoutError: The call is late.
    """
    lock, done = threading.Lock(), threading.Lock()
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            ended = {"value": call()}
        except BaseException as error:
            ended = {"error": error}  # type: ignore[dict-item]
        with lock:
            if "left" not in outcome:
                outcome.update(ended)
                return
        if "value" in ended:
            discard(ended["value"])

    if sys.is_finalizing():  # the process ends, and other threads no longer run
        return call()
    context = contextvars.copy_context()
    done.acquire()
    try:
        try:
            _begin((partial(context.run, run), done.release))
        except RuntimeError:  # the system has no more threads
            return call()
        is_done = done.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))
    except BaseException:  # such as Ctrl-C
        _leave_late(lock, outcome, discard)
        raise
    if not is_done:
        _leave_late(lock, outcome, None)
    if "error" in outcome:
        raise outcome.pop("error")  # take it out: the error refers to this frame, and this would be a cycle
    if "value" in outcome:
        return outcome["value"]  # type: ignore[no-any-return]
    raise TimeoutError("the call took longer than it may")


def _leave_late(
    lock: threading.Lock, outcome: dict[str, Any], discard: Callable[[Any], object] | None
) -> None:
    """Stop waiting. A result that came at the last moment is kept, or discarded if `discard` is given."""
    with lock:
        if not outcome:
            outcome["left"] = True
    if discard is not None and "value" in outcome:
        discard(outcome["value"])


# --------------------------------------------------------------------------------------------- in a task


LEFT_SECONDS: Final = 10.0
"""A late call may go on for so many seconds before it is cancelled. A lease lasts as long by default."""

CLEANING_SECONDS: Final = 1.0
"""A cancelled call may clean up for so many seconds. Then it is cancelled again: a driver may swallow a
cancellation."""

_TRIES: Final = 5

_left: Final[set[asyncio.Task[Any]]] = set()
"""The tasks of late calls. They are kept here, because an event loop holds its tasks weakly."""


async def await_within(seconds: float, call: Awaitable[T]) -> T:
    """Await a call for a limited time, and return or raise its result.

    A cancellation of this coroutine cancels the call, too, which gets a moment to clean up.

    Args:
        seconds: The longest wait.
        call: The awaitable. If it is late, it goes on for at most 10 more seconds.

    Raises:
        TimeoutError: The call is late.
    """
    import asyncio

    exits: list[BaseException] = []
    loop = asyncio.get_running_loop()
    task: asyncio.Task[T] | None = None
    timer: asyncio.TimerHandle | None = None
    try:
        task = loop.create_task(_without_exits(call, exits))
        over = loop.create_future()  # `asyncio.wait` costs half as much again
        timer = loop.call_later(max(0.0, seconds), _end, over)
        task.add_done_callback(lambda _: _end(over))
        if inspect.iscoroutine(call):
            # A task that is cancelled before it began never awaits the coroutine, and Python would warn.
            task.add_done_callback(lambda _: call.close())
        await over
    except BaseException as exc:
        if task is not None:
            task.cancel()
            _leave(task, exits, CLEANING_SECONDS)
            if isinstance(exc, asyncio.CancelledError):
                await asyncio.wait((task,), timeout=CLEANING_SECONDS)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if exits:
        raise exits.pop()
    if task.done():
        return task.result()
    _leave(task, exits, LEFT_SECONDS)
    raise TimeoutError("the call took longer than it may")


def _end(wait: asyncio.Future[None]) -> None:
    if not wait.done():
        wait.set_result(None)


async def _without_exits(call: Awaitable[T], exits: list[BaseException]) -> T:
    """Await a call, and put Ctrl-C and SystemExit into `exits`, for the task that waits.

    If a task raises them, they end the event loop before other code sees them.
    """
    import asyncio

    try:
        return await call
    except (KeyboardInterrupt, SystemExit) as exc:
        exits.append(exc)
        raise asyncio.CancelledError from None


def _leave(task: asyncio.Task[Any], exits: list[BaseException], seconds: float) -> None:
    """Stop waiting for a task. It is cancelled after so many seconds, and its result is dropped."""
    import asyncio

    seeing_off = asyncio.ensure_future(_see_off(task, exits, seconds))
    _left.add(seeing_off)
    seeing_off.add_done_callback(_left.discard)


async def _see_off(task: asyncio.Task[Any], exits: list[BaseException], seconds: float) -> None:
    import asyncio

    for _ in range(_TRIES):
        with suppress(asyncio.CancelledError):  # the loop is about to close: the call must end before that
            await asyncio.wait((task,), timeout=seconds)
        if task.done():
            break
        task.cancel()
        seconds = CLEANING_SECONDS
    if exits:
        raise exits.pop()
    if task.done() and not task.cancelled():
        task.exception()  # fetch it, or asyncio would log that it was never retrieved


PATIENCE: Final = 5.0
"""Seconds for which a call goes on without its caller if a store does not answer."""

_running: Final[set[asyncio.Task[Any]]] = set()
"""The running calls. They are kept here, because an event loop holds its tasks weakly."""


class _Ended:
    """The result of a call, for its caller, or for `give_back` once the caller has left.

    One operation on a dict decides between the two, so that neither Ctrl-C nor another thread can interrupt
    the decision.
    """

    def __init__(self, function: Callable[[], Any], give_back: Callable[[Any], object] | None = None) -> None:
        """`give_back`: called with the result, and awaited, if the caller has left before the call ended."""
        self._function = function
        self._give_back = give_back
        self._end: dict[str, tuple[Any, ...]] = {}

    def leave(self) -> Any:
        """Stop waiting, and return the result of the call; None if the call has not ended."""
        given = self._end.setdefault("is", ())
        return given[0] if given else None

    def _ended(self, answer: Any) -> Callable[[Any], object] | None:
        """Note the result of the call. Returns `give_back` if the caller has left."""
        return None if self._end.setdefault("is", (answer,)) else self._give_back


class Undisturbed(_Ended):
    """A call in plain code. Ctrl-C can interrupt it; a result that it returned before is kept."""

    def call(self) -> Any:
        """Call the function, and return its result."""
        answer = self._function()
        if (give_back := self._ended(answer)) is not None:
            give_back(answer)
        return answer

    def rest(self) -> Any:
        """As `leave`: do not wait for a call in another thread."""
        return self.leave()


class AsyncUndisturbed(_Ended):
    """A call on an event loop, in a task of its own."""

    _task: asyncio.Task[None] | None = None

    async def call(self) -> Any:
        """As `Undisturbed.call`, awaited. A cancellation ends the wait at once, the call after `PATIENCE`."""
        import asyncio

        loop = asyncio.get_running_loop()
        # `asyncio.shield` would need one more round of the loop, and a call may be a look into a dictionary.
        heard: asyncio.Future[Any] = loop.create_future()
        self._task = loop.create_task(self._run(heard))
        _running.add(self._task)
        self._task.add_done_callback(_running.discard)
        try:
            return await heard
        except asyncio.CancelledError:
            if not loop.is_closed():  # a driver may wait for ever for a server that does not answer
                loop.call_later(PATIENCE, self._task.cancel)
            raise

    async def rest(self) -> Any:
        """Wait for a call that still runs, and return its result; None if it failed.

        If the store does not answer in `PATIENCE` seconds, the call is cancelled.
        """
        import asyncio

        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=PATIENCE)
            self._task.cancel()
        return self.leave()

    async def _run(self, heard: asyncio.Future[Any]) -> None:
        try:
            answer = self._function()
            if inspect.isawaitable(answer):
                answer = await answer
            give_back = self._ended(answer)
            if not heard.done():
                heard.set_result(answer)
            if give_back is not None:
                with suppress(Exception):
                    given = give_back(answer)
                    if inspect.isawaitable(given):
                        await given
        except BaseException as exc:
            if not heard.done():  # raise exits, too, in the caller, which can clean up
                heard.set_exception(exc)
                heard.exception()  # fetch it: asyncio would log it if the caller no longer waits
            elif not isinstance(exc, Exception):
                raise
