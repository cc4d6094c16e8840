"""A model on a loopback port. The first word of its reply is the time at which it was written.

Owns: the server, the process that it runs in, and what it writes. Must never know: a client.

The clock is the system's monotonic one, which all processes of a machine share on Linux, macOS and Windows.
"""

from __future__ import annotations

import base64
import json
import socketserver
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DIGITS", "dripping_model"]

DIGITS = 20
"""Of the nanoseconds; always so many, so that the length of the event is known before."""
_THINKING_SECONDS = 0.003
"""Between what leads a stream in and its first word, so that the reader certainly waits."""
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@contextmanager
def dripping_model(lead: bytes, first: bytes, rest: Sequence[bytes]) -> Iterator[int]:
    """Serve a stream to every request; gives the port.

    Args:
        lead: The events before the first word.
        first: The event of the first word, with ``DIGITS`` times "#" as that word.
        rest: The events after it.
    """
    parts = [base64.b64encode(part).decode() for part in (lead, first, b"".join(rest))]
    with subprocess.Popen(
        [sys.executable, str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(parts).encode() + b"\n")
            process.stdin.flush()
            yield int(process.stdout.readline())
        finally:
            process.kill()


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    server: _Model

    def handle(self) -> None:
        while self._read_request():
            self.connection.sendall(_HEAD + _chunk(self.server.lead))
            time.sleep(_THINKING_SECONDS)
            before, after = self.server.first
            self.connection.sendall(before + b"%0*d" % (DIGITS, time.monotonic_ns()) + after)
            self.connection.sendall(_chunk(self.server.rest) + _chunk(b""))

    def _read_request(self) -> bool:
        length = 0
        while line := self.rfile.readline():
            if line == b"\r\n":
                self.rfile.read(length)
                return True
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return False


class _Model(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, lead: bytes, first: bytes, rest: bytes) -> None:
        self.lead, self.rest = lead, rest
        before, _, after = _chunk(first).partition(b"#" * DIGITS)
        self.first = before, after
        super().__init__(("127.0.0.1", 0), _Connection)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


if __name__ == "__main__":
    with _Model(*(base64.b64decode(part) for part in json.loads(sys.stdin.readline()))) as model:
        print(model.server_address[1], flush=True)
        model.serve_forever()
