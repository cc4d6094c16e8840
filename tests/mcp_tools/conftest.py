"""MCP servers for the tests, one for each transport."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import StdioServerParameters

from goaitools_py.mcp import MCPTools

from . import _server

SERVER = Path(_server.__file__)
SECONDS = 60.0


def started(port: int, *how: str) -> subprocess.Popen[bytes]:
    """A server that listens on this port."""
    process = subprocess.Popen([sys.executable, str(SERVER), str(port), *how], stderr=subprocess.DEVNULL)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    return process


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _listening(*how: str) -> Iterator[str]:
    """A server on a port of its own; gives the beginning of its URLs."""
    port = free_port()
    process = started(port, *how)
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    """The server over streamable HTTP, in a process of its own."""
    for root in _listening():
        yield f"{root}/mcp"


@pytest.fixture(scope="package")
def sse_url() -> Iterator[str]:
    """The server over SSE, in a process of its own."""
    for root in _listening("sse"):
        yield f"{root}/sse"


@pytest.fixture(params=["stdio", "http", "sse"])
def served(request: pytest.FixtureRequest) -> Any:
    """Makes the tools of the server over one transport."""

    def made(**how: Any) -> MCPTools:
        if request.param == "stdio":
            program = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
            return MCPTools(program, timeout=10 * SECONDS, **how)
        if request.param == "http":
            return MCPTools(request.getfixturevalue("url"), timeout=10 * SECONDS, **how)
        return MCPTools(request.getfixturevalue("sse_url"), transport="sse", timeout=10 * SECONDS, **how)

    return made
