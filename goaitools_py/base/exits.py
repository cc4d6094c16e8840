"""What has to be done before Python ends, while all threads still run.

Owns: the objects that are not finished, and when they are told. Must never know: what they do then.

When Python ends, it stops daemon threads where they are, with all locks that they hold, and only then frees
objects. A lock that a ``__del__`` takes then may never be free. So what has to be finished is finished
before: `atexit` calls it. After that `is_ending` is true, and no ``__del__`` may take a lock or wait.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from contextlib import suppress
from typing import Final, Protocol

__all__ = ["Unfinished", "finished", "is_ending", "unfinished"]


class Unfinished(Protocol):
    """An object with something left to do."""

    def end_with_python(self) -> None:
        """Do it. Other threads may run; an object that one of them uses is left alone."""
        ...


is_ending: Final = sys.is_finalizing
"""True once Python has stopped its daemon threads. A ``__del__`` takes it as a default of a parameter: this
module may be gone then."""

_all: Final[dict[int, weakref.ref[Unfinished]]] = {}


def unfinished(one: Unfinished) -> None:
    """Note an object that has something left to do. It is referenced weakly."""
    _all[id(one)] = weakref.ref(one)


def finished(one: Unfinished) -> None:
    """Forget an object."""
    _all.pop(id(one), None)


@atexit.register
def _finish_all() -> None:
    for reference in list(_all.values()):
        one = reference()
        if one is not None:
            with suppress(Exception):
                one.end_with_python()
