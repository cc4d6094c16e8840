"""Which process this is, and values that each process makes for itself.

Owns: the mark of the running process, and one slot for each process. Must never know: what the values are.

A server that forks copies every object into its children, open connections and held locks included. Two
processes on one connection read each other's answers, and a lock that another thread held stays held for
ever. So whatever owns a connection, a thread, an event loop or a lock asks `this_process` when it is used,
and makes a new one in a new process. The one from before stays referenced: closing it here could say goodbye
on a connection that the parent still uses.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["PerProcess", "Process", "this_process"]

T = TypeVar("T")


class Process:
    """The mark of a process. Two marks are of the same process if they are the same object."""

    __slots__ = ("pid",)

    def __init__(self, pid: int) -> None:
        self.pid = pid


_this = Process(os.getpid())
_made = {_this.pid: _this}


def this_process() -> Process:
    """The mark of the running process. It costs 0.1 µs."""
    global _this
    pid = os.getpid()
    if _this.pid != pid:  # a fork that Python was not told of: uWSGI makes such
        _this = _made.setdefault(pid, Process(pid))
    return _this


def _begin_anew() -> None:
    # Also for a child whose number an ancestor had, who is gone.
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
    """A value that each process makes once, whichever of its threads comes first.

    Args:
        make: Makes it. It gets the value that was inherited over a fork, or None, and may return that one
            if it can be used in both processes. An inherited value stays referenced as long as this object.
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
        """This process's value if it has been made; no inherited one."""
        slot = self._slot
        return slot.made[0] if slot.process is this_process() and slot.made else None

    def _begin(self) -> _Slot[T]:
        # Without a lock, which another thread may have held while the process was forked: the first one to
        # put its slot into the dictionary wins.
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
