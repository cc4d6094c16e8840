"""A server that stalls wherever a test wants it to, on the loopback and on each wire.

Owns: when bytes are sent, and who gave up first. Must never know: what the client makes of it.
"""

from __future__ import annotations

import http.server
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base import rawjson
from goaitools_py.testing._reply_shapes import SHAPES

__all__ = ["STALL", "Script", "StallingServer", "Words"]

PATIENCE_SECONDS: Final = 10.0
"""After which the server gives a client up that does not, so that a broken rule fails a test."""


class _Stall:
    """Send nothing more until the client has gone."""


STALL: Final = _Stall()

Script = list[bytes | Callable[[], object] | _Stall]
"""What one request gets: pieces of a body, the headers going with the first, which may be empty; and things
to do in between."""


class Words:
    """A reply of one wire in pieces.

    Attributes:
        body: The whole unary body.
        lead: What of the stream comes before the reply begins.
        first: The events with which it begins.
        rest: Those after it.
    """

    def __init__(self, wire: str, text: str = "", *calls: tuple[str, Any]) -> None:
        shape = SHAPES[wire]
        said = shape.reply(text, calls, reasoning="", model="sim-model", number=1, sent=100)
        events = shape.as_events(said)
        decoder: Any = dialect_of(wire).decoder()
        begun = next(n for n, event in enumerate(events) if decoder.feed(event) or decoder.has_begun)
        self.body: bytes = rawjson.dumps(said)
        self.lead = b"".join(events[:begun])
        self.first = events[begun]
        self.rest = b"".join(events[begun + 1 :])
        self.last = events[-1]

    def whole(self, *, stream: bool) -> bytes:
        """All of it."""
        return self.lead + self.first + self.rest if stream else self.body


class _Connection(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = rawjson.loads(self.rfile.read(int(self.headers["content-length"])))
        is_stream = bool(body.get("stream"))
        owner = self.server.owner
        owner.requests.append(body)
        self.close_connection = True
        try:
            script = owner.scripts.pop(0) if owner.scripts else owner.then(body)
            self._play(script, "text/event-stream" if is_stream else "application/json")
        except OSError:
            owner.ended.put("client left")

    def _play(self, script: Script, kind: str) -> None:
        head = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked"
        unsent = f"{head}\r\n\r\n".encode()
        for step in script:
            if isinstance(step, bytes):
                self.connection.sendall(unsent + (b"%x\r\n%s\r\n" % (len(step), step) if step else b""))
                unsent = b""
            elif isinstance(step, _Stall):
                self.connection.settimeout(PATIENCE_SECONDS)
                try:
                    self.connection.recv(1)
                except TimeoutError:
                    self.server.owner.ended.put("server lost patience")
                else:
                    self.server.owner.ended.put("client left")
                return
            else:
                step()
        self.connection.sendall(unsent + b"0\r\n\r\n")
        self.server.owner.ended.put("whole")

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    owner: StallingServer


class StallingServer:
    """Plays one script for each request.

    Attributes:
        scripts: Those still to be played.
        then: Makes the script of every request after them, from the request's body.
        requests: The bodies of the requests.
        ended: How each script ended: "whole", "client left", or "server lost patience".
    """

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.scripts: list[Script] = []
        self.then: Callable[[Any], Script] = lambda _: [STALL]
        self.requests: list[Any] = []
        self.ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        """What a backend of the wire is given."""
        return f"http://127.0.0.1:{self._server.server_port}" + ("" if self.wire == "anthropic" else "/v1")

    def push(self, *scripts: Script) -> None:
        """Add scripts for the next requests."""
        self.scripts.extend(scripts)

    def end(self) -> str:
        """How the next script ended; this waits until it has."""
        return self.ended.get(timeout=2 * PATIENCE_SECONDS)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
