"""One post to a server in this process, so that the first real post finds everything imported.

Owns: that server, and the event loop that both run on. Must never know: which SDK it is, or a body's content.

With their first request both SDKs import more of themselves and look at the platform. With its first
connection the HTTP client imports its event loop. Together this takes tens of milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

__all__ = ["rehearse"]

_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
)


def rehearse(post: Callable[[str], Awaitable[object]]) -> None:
    """Run `post` once with the address of a server on the loopback. Without a loopback it does nothing.

    It starts an event loop. Where one runs already, call it in another thread.
    """
    with contextlib.suppress(OSError):
        asyncio.run(_rehearsed(post))


async def _rehearsed(post: Callable[[str], Awaitable[object]]) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    async with server:
        await post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_ANSWER)
        await writer.drain()
    writer.close()
