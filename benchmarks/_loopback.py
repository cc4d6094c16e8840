"""A model on a loopback port, in its own process: its CPU time is not measured.

Owns: the server and the process that it runs in. Must never know: what a request asks.

It reads just enough of HTTP/1.1 to find the end of a request. It answers each request with the same bytes,
after the same time.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["loopback_model"]

_LENGTH = b"content-length:"
_PAUSE = 0.02
"""Seconds between two drops of an answer."""


@contextmanager
def loopback_model(
    answer: bytes, *, seconds: float = 0.0, media_type: str = "application/json", drops: int = 1
) -> Iterator[str]:
    """Serve `answer` to every request, `seconds` after it has come; gives the base URL, without a path.

    `drops`: the answer is written in so many parts, with a pause between them.
    """
    command = [sys.executable, str(Path(__file__)), str(seconds), media_type, str(drops)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(len(answer).to_bytes(4, "big") + answer)
            process.stdin.flush()
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


class _Model(asyncio.Protocol):
    def __init__(self, answer: bytes, seconds: float, drops: int) -> None:
        size = -(-len(answer) // drops)
        self._drops = [answer[at : at + size] for at in range(0, len(answer), size)]
        self._seconds = seconds
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (head := self._received.find(b"\r\n\r\n")) >= 0:
            at = self._received[:head].lower().find(_LENGTH) + len(_LENGTH)
            end = head + 4 + int(self._received[at : self._received.find(b"\r\n", at)])
            if len(self._received) < end:
                return
            del self._received[:end]
            if self._seconds:
                asyncio.get_running_loop().call_later(self._seconds, self._reply)
            else:
                self._reply()

    def _reply(self, at: int = 0) -> None:
        assert self._transport is not None
        self._transport.write(self._drops[at])
        if at + 1 < len(self._drops):
            asyncio.get_running_loop().call_later(_PAUSE, self._reply, at + 1)


async def _serve(seconds: float, media_type: str, drops: int) -> None:
    length = int.from_bytes(sys.stdin.buffer.read(4), "big")
    body = sys.stdin.buffer.read(length)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\n\r\n"
    reply = head.encode() + body
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Model(reply, seconds, drops), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    # The process that started this one may die without a word: then its end of the pipe closes.
    await loop.run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
