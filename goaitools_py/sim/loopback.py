"""A small HTTP/1.1 server on loopback, which can send damaged responses too.

Owns: sockets and threads. Must never know: the content of an answer, or its reason.

Nothing waits for the acknowledgement of a packet: Nagle's algorithm is off, and the headers are sent in one
write with the first piece of the body.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, TypeAlias

from .http_values import JSON, Hold, Response

__all__ = ["Handle", "Loopback"]

Handle: TypeAlias = Callable[[str, str, Mapping[str, str], bytes], Response]
"""Answers a request: method, path, headers (names in lower case), body."""

_MAX_BODY_BYTES = 64 * 1024 * 1024
_POLL_SECONDS = 0.02
_STOP_SECONDS = 5.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, for 0 seconds
_PING, _BLANK = b": ping\n\n", b" \n"


class Loopback:
    """Serves `handle` on a thread per connection, from construction until `close`.

    Args:
        chunk_bytes: Write bodies in pieces of this size instead of their own pieces.
        pause: Seconds to wait before each piece of a stream but the first.
    """

    def __init__(
        self, handle: Handle, *, host: str, port: int, chunk_bytes: int | None, pause: float = 0.0
    ) -> None:
        self._server = _Server((host, port), _LoopbackConnection)
        self._server.handle_http, self._server.chunk_bytes = handle, chunk_bytes
        self._server.pause = pause
        self._thread = threading.Thread(target=self._accept, name="goaitools-sim", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Stop listening and close every connection, also connections of waiting responses."""
        if self._server.stopping.is_set():
            return
        self._server.stopping.set()
        with contextlib.suppress(OSError):
            # Wakes the thread that waits for the next connection.
            socket.create_connection(self.address, timeout=_STOP_SECONDS).close()
        self._thread.join(_STOP_SECONDS)
        self._server.hang_up_all()
        self._server.server_close()

    def _accept(self) -> None:
        while not self._server.stopping.is_set():
            self._server.handle_request()


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256
    handle_http: Handle
    chunk_bytes: int | None
    pause: float

    def __init__(self, *args: Any) -> None:
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(*args)

    @contextlib.contextmanager
    def tracked(self, connection: socket.socket) -> Iterator[None]:
        with self._changed:
            self._open.add(connection)
        try:
            yield
        finally:
            with self._changed:
                self._open.discard(connection)
                self._changed.notify_all()

    def hang_up_all(self) -> None:
        with self._changed:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._open, _STOP_SECONDS)


class _LoopbackConnection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "goaitools-sim"
    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        # A client may disconnect at any time; that is not an error here.
        with self.server.tracked(self.connection), contextlib.suppress(OSError):
            super().handle()

    def do_POST(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because requests hold conversations."""

    def _answer(self) -> None:
        length = self.headers.get("content-length", "0")
        if "transfer-encoding" in self.headers or not (length.isdecimal() and len(length) < 20):
            self.close_connection = True
            return self._send(_plain_error(HTTPStatus.LENGTH_REQUIRED))
        if int(length) > _MAX_BODY_BYTES:
            self.close_connection = True
            return self._send(_plain_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE))
        body = self.rfile.read(int(length))
        if len(body) < int(length):  # the client has hung up: a request that did not arrive
            self.close_connection = True
            return None
        headers = {name.lower(): value for name, value in self.headers.items()}
        return self._send(self.server.handle_http(self.command, self.path, headers, body))

    # ---------------------------------------------------------------------------------------- sending

    def _send(self, response: Response) -> None:
        if response.ending != "complete":
            self.close_connection = True
        self._hold(response.hold, None)
        unsent = self._head(response) if response.status else b""
        for number, piece in enumerate(response.pieces):
            if unsent and response.hold and response.hold.after == number:
                self.connection.sendall(unsent)
                unsent = b""
            self._hold(response.hold, number)
            if number and response.streamed and self.server.pause:
                self.server.stopping.wait(self.server.pause)
            for part in self._parts(piece):
                self.connection.sendall(unsent + (_chunk(part) if response.streamed else part))
                unsent = b""
        if response.ending == "complete" and response.streamed:
            unsent += _chunk(b"")
        if unsent:
            self.connection.sendall(unsent)
        if response.ending == "reset":
            self._reset()
        elif response.ending == "pings":
            self._ping(response)

    def _head(self, response: Response) -> bytes:
        lines = [f"HTTP/1.1 {response.status} {_reason(response.status)}"]
        lines += [f"{name}: {value}" for name, value in response.headers]
        if response.streamed:
            lines.append("transfer-encoding: chunked")
        else:
            lines.append(f"content-length: {len(response.body) + response.missing}")
        if self.close_connection:
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _parts(self, piece: bytes) -> list[bytes]:
        size = self.server.chunk_bytes or len(piece) or 1
        return [piece[at : at + size] for at in range(0, len(piece), size)]

    def _hold(self, hold: Hold | None, number: int | None) -> None:
        if hold is None or hold.after != number:
            return
        stopping = self.server.stopping
        while hold.gate is not None and not stopping.is_set() and not hold.gate.wait(_POLL_SECONDS):
            pass
        if stopping.wait(hold.seconds):
            raise ConnectionAbortedError("the server was stopped while it held a response")

    def _ping(self, response: Response) -> None:
        ping = _PING if "event-stream" in dict(response.headers).get("content-type", "") else _BLANK
        while not self.server.stopping.wait(_POLL_SECONDS):
            self.connection.sendall(_chunk(ping))

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        # The reader keeps the socket open, and an orderly shutdown would send a FIN first.
        self.rfile.close()
        self.connection.close()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _plain_error(status: HTTPStatus) -> Response:
    return Response(
        status=status, headers=JSON, pieces=(b'{"error":{"message":"%s"}}' % status.phrase.encode(),)
    )
