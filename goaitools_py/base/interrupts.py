"""Completes work that an exception or the end of Python interrupts.

Owns: the second run of an interrupted step, for plain and for async code, and the list of objects that are
finished before Python ends. Must never know: the work of a step or of an object.

Ctrl-C, a cancellation or a lack of memory may come at any line: between a tool's result and the journal, or
while a connection is being closed. The exception has to go on, but not before the step is complete. So the
step runs a second time, from its beginning, and then the exception is raised. This step must be safe to run
twice. It sets values instead of adding to them, or checks which part is done already. If it raises the second
time, too, that exception goes on, with the first one as its context.

When Python ends, it stops daemon threads at any line, with all locks that they hold, and only then frees
objects. A ``__del__`` that takes a lock could then wait for ever. So `atexit` finishes these objects earlier.
After that `is_ending` is true, and no ``__del__`` may take a lock or wait.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, ParamSpec, Protocol, TypeVar

__all__ = ["Unfinished", "finished", "is_ending", "run_twice", "run_twice_async", "unfinished"]

P = ParamSpec("P")
T = TypeVar("T")


def run_twice(step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a step, and return its result. If it raises, run it once more, and raise all the same."""
    try:
        return step(*args, **kwargs)
    except BaseException:
        step(*args, **kwargs)
        raise


async def run_twice_async(step: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `run_twice`, awaited."""
    try:
        return await step(*args, **kwargs)
    except BaseException:
        await step(*args, **kwargs)
        raise


class Unfinished(Protocol):
    """An object that has work left."""

    def end_with_python(self) -> None:
        """Do the work. Other threads may run; an object that one of them uses is left alone."""
        ...


is_ending: Final = sys.is_finalizing
"""True once Python has stopped its daemon threads. A ``__del__`` binds it as the default of a parameter,
because this module may be gone then."""

_all: Final[dict[int, weakref.ref[Unfinished]]] = {}


def unfinished(one: Unfinished) -> None:
    """Note an object that has work left. The reference is weak."""
    _all[id(one)] = weakref.ref(one)


def finished(one: Unfinished) -> None:
    """Forget an object."""
    _all.pop(id(one), None)


@atexit.register
def _finish_all() -> None:
    for reference in list(_all.values()):
        one = reference()
        if one is not None:
            # BaseException, so also KeyboardInterrupt: a second Ctrl-C while Python ends must not leave the
            # work of the other objects undone.
            with suppress(BaseException):
                one.end_with_python()
