"""Finishes objects before Python ends, while all threads still run.

Owns: the list of unfinished objects, and the time of the call. Must never know: an object's last work.

When Python ends, it stops daemon threads at any line, with all locks that they hold, and only then frees
objects. A ``__del__`` that takes a lock could then wait for ever. So `atexit` finishes these objects earlier.
After that `is_ending` is true, and no ``__del__`` may take a lock or wait.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from contextlib import suppress
from typing import Final, Protocol

__all__ = ["Unfinished", "finished", "is_ending", "unfinished"]


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
