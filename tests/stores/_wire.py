"""A loopback proxy that counts what crosses it, and breaks or silences connections after a number of bytes.

It forwards bytes both ways. `Cut` says in which direction it counts, and after how many bytes it strikes: the
bytes up to there are forwarded, and no more. A cut of the answer at its first byte comes when the server has
done what it was asked for; a cut of the question before its last byte, when the server cannot have done it.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from ._places import Place

__all__ = ["Cut", "Wire", "wire_to"]

Direction = Literal["question", "answer"]
How = Literal["reset", "close", "stall", "hold"]


class Cut(NamedTuple):
    """Where a connection ends.

    Attributes:
        direction: Whose bytes are counted: of questions to the server, or of its answers.
        after: How many bytes are forwarded before it strikes, since it was armed.
        how: "reset" ends both sides at once, "close" in order, "stall" leaves them open and silent. "hold" is
            as silent, but nothing is lost: once the cut is taken away, all that was kept back is forwarded.
        is_lasting: It strikes every connection from then on at its first byte in that direction, until it is
            taken away. Without it one connection is hit, and the next one works.
    """

    direction: Direction
    after: int
    how: How = "reset"
    is_lasting: bool = False


class Wire:
    """The proxy.

    Attributes:
        port: Where it listens.
        trips: How many questions were answered, over all connections.
        counts: Bytes in each direction since the last `arm`.
        has_struck: True once the cut has hit a connection.
        has_run_out: True once a silence ended after 20 seconds, because the client waited for so long.

    Args:
        host: The server's host.
        port: The server's port.
        delay: How far away the server is: seconds that each piece of data takes, in each direction.
    """

    def __init__(self, host: str, port: int, delay: float = 0.0) -> None:
        self._to = (host, port)
        self._delay = delay
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.trips = 0
        self.counts: dict[Direction, int] = {"question": 0, "answer": 0}
        self.has_struck = self.has_run_out = False
        self._cut: Cut | None = None
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._is_closed = False
        self._healed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, cut: Cut | None) -> None:
        """Begin to count anew, and strike there. None: strike no more; connections that stalled are reset,
        those that were held go on."""
        with self._lock:
            self.counts = {"question": 0, "answer": 0}
            self.has_struck = False
            self._cut = cut
            if cut is None:
                healed, self._healed = self._healed, threading.Event()
                healed.set()

    def close(self) -> None:
        """Close all connections."""
        self._listener.close()
        self.arm(None)
        with self._lock:
            self._is_closed = True
            for each in self._open:
                _reset(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to)
            except OSError:
                return
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open += [client, server]
                if self._is_closed:  # it came while this proxy was being closed
                    _reset(client)
                    _reset(server)
                    return
            pair = _Pair(client, server)
            threading.Thread(target=self._pump, args=(pair, "question"), daemon=True).start()
            threading.Thread(target=self._pump, args=(pair, "answer"), daemon=True).start()

    def _pump(self, pair: _Pair, direction: Direction) -> None:
        into = pair.server if direction == "question" else pair.client
        out_of = pair.client if direction == "question" else pair.server
        with suppress(OSError):
            while data := out_of.recv(1 << 20):
                allowed, cut, healed = self._passes(pair, direction, len(data))
                if self._delay:
                    time.sleep(self._delay)
                if allowed:
                    into.sendall(data[:allowed])
                if cut is not None and cut.how == "hold":
                    self.has_run_out |= not healed.wait(20.0)
                    into.sendall(data[allowed:])
                elif cut is not None:
                    if cut.how == "stall":
                        pair.is_silent.set()
                        self.has_run_out |= not healed.wait(20.0)
                    if cut.how == "close":
                        break
                    _reset(pair.client)
                    _reset(pair.server)
                    return
        for each in (pair.client, pair.server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _passes(
        self, pair: _Pair, direction: Direction, size: int
    ) -> tuple[int, Cut | None, threading.Event]:
        """How much of this may pass, and the cut that strikes behind it."""
        with self._lock:
            if direction == "question" and not pair.is_asking:
                pair.is_asking = True
                self.trips += 1
            elif direction == "answer":
                pair.is_asking = False
            begin = self.counts[direction]
            self.counts[direction] += size
            cut = self._cut
            if pair.is_silent.is_set():
                return 0, Cut(direction, 0, "stall"), self._healed
            if cut is None or cut.direction != direction or begin + size <= cut.after:
                return size, None, self._healed
            if self.has_struck and not cut.is_lasting:
                return size, None, self._healed
            self.has_struck = True
            return max(0, cut.after - begin), cut, self._healed


class _Pair:
    """A connection of a client, and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.is_silent = threading.Event()
        self.is_asking = False


def _reset(end: socket.socket) -> None:
    """Close so that the other side gets a reset, also a side that waits in a read."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def wire_to(place: Place, delay: float = 0.0) -> Iterator[tuple[Wire, Place]]:
    """A proxy to a place's server, and the same place by way of it. `delay`: as for `Wire`."""
    at = urlsplit(place.url)
    assert at.hostname is not None
    assert at.port is not None
    wire = Wire(at.hostname, at.port, delay)
    try:
        yield wire, Place(place.kind, place.url.replace(f":{at.port}", f":{wire.port}", 1))
    finally:
        wire.close()
