"""A server on loopback, in a thread of its own, for clients that need a real one.

Owns: the thread. Must never know: the application.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn

__all__ = ["running"]


@contextlib.contextmanager
def running(app: Any) -> Iterator[str]:
    """Run an application on a free port; give its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            thread.join(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
    assert not thread.is_alive()
