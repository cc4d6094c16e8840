"""A loopback proxy that breaks a connection at the one moment when it hurts: around a write.

It forwards bytes both ways. When a request holds the marker, raw or in hex, it is either not forwarded (the
request is lost), or forwarded and its answer kept back (the answer is lost). Then both sides are closed.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

__all__ = ["Loses", "Proxy", "proxy_to"]

Loses = Literal["request", "answer"]


class Proxy:
    """The proxy. `arm` says what is lost, and how often."""

    def __init__(self, host: str, port: int, marker: bytes) -> None:
        self._to = (host, port)
        self._markers = (marker, marker.hex().encode(), marker.hex().upper().encode())
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._loses: Loses | None = None
        self._left = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, loses: Loses, times: int) -> None:
        """From now on lose this many requests with the marker, or their answers."""
        self._loses, self._left = loses, times

    @property
    def times_left(self) -> int:
        """How many are still to be lost."""
        return self._left

    def close(self) -> None:
        """Close all connections."""
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to)
            except OSError:
                return
            self._open += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        silent = threading.Event()
        answered = threading.Event()
        threading.Thread(target=self._answer, args=(server, client, silent, answered), daemon=True).start()
        with suppress(OSError):
            while request := client.recv(1 << 20):
                if self._left and any(marker in request for marker in self._markers):
                    self._left -= 1
                    if self._loses == "answer":
                        silent.set()
                        server.sendall(request)
                        answered.wait(60.0)
                    break
                server.sendall(request)
        for each in (client, server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _answer(
        server: socket.socket, client: socket.socket, silent: threading.Event, answered: threading.Event
    ) -> None:
        with suppress(OSError):
            while answer := server.recv(1 << 20):
                if silent.is_set():
                    answered.set()
                else:
                    client.sendall(answer)
        answered.set()
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy_to(host: str, port: int, marker: bytes) -> Iterator[Proxy]:
    """A proxy to a server."""
    proxy = Proxy(host, port, marker)
    try:
        yield proxy
    finally:
        proxy.close()
