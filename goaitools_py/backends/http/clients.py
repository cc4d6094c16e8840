"""The client of an SDK that sends a request: one for each process, and in async code for each event loop.

Owns: when a further client is made, and the rule that an inherited one is left alone. Must never know: an
SDK.

After a fork, parent and child have the same open connections, and each would read replies to the other's
requests. So a child does not use a client that has sent anything. It does not close it either: that may send
a goodbye on a connection that the parent still uses. A client that has sent nothing has no connection yet,
and parent and child may both use it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from ...base.process import PerProcess
from ..base import BackendError

__all__ = ["ClientOfProcess", "ClientsOfLoops"]

C = TypeVar("C")


def _refused() -> BackendError:
    return BackendError("the client was used before this process was forked", kind="forked")


class _Held(Generic[C]):
    """A client, or None between `pop` and the next use."""

    __slots__ = ("client", "lock", "was_used")

    def __init__(self, client: C) -> None:
        self.client: C | None = client
        self.lock = threading.Lock()
        self.was_used = False


def _held(first: C, make: Callable[[], C] | None, before: _Held[C] | None) -> _Held[C]:
    if before is None:
        return _Held(first)
    if not before.was_used and before.client is not None:
        return before
    if make is None:
        raise _refused()
    return _Held(make())


class ClientOfProcess(Generic[C]):
    """One client for each process.

    Args:
        first: The client of this process.
        make: Makes one for a child of a fork; None if the client is the caller's own.
    """

    def __init__(self, first: C, make: Callable[[], C] | None) -> None:
        self._make = make
        self._held = PerProcess[_Held[C]](partial(_held, first, make))
        self._held.get()

    def get(self) -> C:
        """The client for a request.

        Raises:
            BackendError: It was used before a fork, and a new one cannot be made (kind "forked").
        """
        held = self._held.get()
        held.was_used = True
        client = held.client
        return self._anew(held) if client is None else client

    def pop(self) -> C | None:
        """Forget this process's client, so that the next use makes another one. None if this process has no
        client, or if no other can be made."""
        held = self._held.peek()
        if held is None or self._make is None:
            return None
        with held.lock:
            client, held.client = held.client, None
        return client

    def _anew(self, held: _Held[C]) -> C:
        with held.lock:
            if held.client is None:
                assert self._make is not None  # `pop` makes sure of it
                held.client = self._make()
            return held.client


class _Loops(Generic[C]):
    """The clients of one process. An async client belongs to the loop that opened its connections."""

    def __init__(self, spare: C | None) -> None:
        self.lock = threading.Lock()
        self.spare = spare
        self.clients: dict[asyncio.AbstractEventLoop, C] = {}


def _loops(first: C, before: _Loops[C] | None) -> _Loops[C]:
    return _Loops(first if before is None else before.spare)


class ClientsOfLoops(Generic[C]):
    """A client for each event loop of each process.

    Args:
        first: The first client. No loop has used it yet.
        make: Makes another one.
    """

    def __init__(self, first: C, make: Callable[[], C]) -> None:
        self._make = make
        self._loops = PerProcess[_Loops[C]](partial(_loops, first))
        self._loops.get()

    def get(self) -> C:
        """The running loop's client."""
        loop, loops = asyncio.get_running_loop(), self._loops.get()
        with loops.lock:
            if loop not in loops.clients:
                # Weak keys would not do: an open connection keeps its loop alive, also a closed one.
                loops.clients = {known: c for known, c in loops.clients.items() if not known.is_closed()}
                spare, loops.spare = loops.spare, None
                loops.clients[loop] = self._make() if spare is None else spare
            return loops.clients[loop]

    def is_ready(self) -> bool:
        """True if `get` does not have to make a client."""
        loop, loops = asyncio.get_running_loop(), self._loops.get()
        with loops.lock:
            return loop in loops.clients or loops.spare is not None

    def keep(self, client: C) -> None:
        """Make this the running loop's client, if it does not have one."""
        loop, loops = asyncio.get_running_loop(), self._loops.get()
        with loops.lock:
            loops.clients.setdefault(loop, client)

    def pop(self) -> C | None:
        """Forget the running loop's client and return it; None without one."""
        loops = self._loops.get()
        with loops.lock:
            return loops.clients.pop(asyncio.get_running_loop(), None)
