"""Tells processes apart, keeps values that each makes for itself, and finishes objects before the end.

Owns: the mark of the running process, one slot for each process, and the list of unfinished objects. Must
never know: the kind of the values, or an object's last work.

A server that forks copies every object into its children, with open connections and held locks. Two processes
on one connection read each other's replies, and a lock that another thread held is never released. So an
object that owns a connection, a thread, an event loop or a lock checks `this_process` at each use, and makes
a new one in a new process. It keeps a reference to the old one, because closing that here could end a
connection that the parent still uses.

When Python ends, it stops daemon threads at any line, with all locks that they hold, and only then frees
objects. A ``__del__`` that takes a lock could then wait for ever. So `atexit` finishes these objects earlier.
After that `is_ending` is true, and no ``__del__`` may take a lock or wait.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["PerProcess", "Process", "Unfinished", "finished", "is_ending", "this_process", "unfinished"]

T = TypeVar("T")


class Process:
    """The mark of a process. One process has one object, so marks are compared with ``is``."""

    __slots__ = ("pid",)

    def __init__(self, pid: int) -> None:
        self.pid = pid


_this = Process(os.getpid())
_made = {_this.pid: _this}


def this_process() -> Process:
    """The mark of the running process. It costs 0.1 µs."""
    global _this
    pid = os.getpid()
    if _this.pid != pid:  # a fork that Python does not notice, as uWSGI makes them
        _this = _made.setdefault(pid, Process(pid))
    return _this


def _begin_anew() -> None:
    # A child may have the process id of an ancestor that has ended, so all marks are dropped.
    global _this, _made
    _this = Process(os.getpid())
    _made = {_this.pid: _this}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class _Slot(Generic[T]):
    __slots__ = ("before", "lock", "made", "process")

    def __init__(self, process: Process, before: _Slot[T] | None) -> None:
        self.process = process
        self.before = before
        self.lock = threading.Lock()
        self.made: tuple[T, ...] = ()


class PerProcess(Generic[T]):
    """A value that each process makes once; the first thread that needs it makes it.

    Args:
        make: Makes the value. It gets the value that a fork inherited, or None, and may return it if both
            processes can use it. An inherited value is referenced as long as this object exists.
    """

    def __init__(self, make: Callable[[T | None], T]) -> None:
        self._make = make
        self._slot: _Slot[T] = _Slot(this_process(), None)
        self._slots = {self._slot.process: self._slot}

    def get(self) -> T:
        """This process's value."""
        slot = self._slot
        if slot.process is not this_process():
            slot = self._begin()
        return slot.made[0] if slot.made else self._fill(slot)

    def peek(self) -> T | None:
        """This process's value, if it was made already; never an inherited one."""
        slot = self._slot
        return slot.made[0] if slot.process is this_process() and slot.made else None

    def _begin(self) -> _Slot[T]:
        # No lock here: another thread may have held it during the fork. The first thread that puts its slot
        # into the dictionary wins.
        process = this_process()
        self._slot = slot = self._slots.setdefault(process, _Slot(process, self._slot))
        return slot

    def _fill(self, slot: _Slot[T]) -> T:
        with slot.lock:
            if not slot.made:
                slot.made = (self._make(_inherited(slot)),)
            return slot.made[0]


def _inherited(slot: _Slot[T]) -> T | None:
    before = slot.before
    while before is not None:
        if before.made:
            return before.made[0]
        before = before.before
    return None


# ------------------------------------------------------------------------------------ the end of Python


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
