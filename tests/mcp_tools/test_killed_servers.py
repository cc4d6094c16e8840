"""Servers that are killed in the middle of a call over a socket; calls that run beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from goaitools_py import AsyncChat, Chat
from goaitools_py.events import ToolProgress
from goaitools_py.mcp import MCPTools
from goaitools_py.states import read_history
from goaitools_py.testing import Calls, ScriptedBackend

from .conftest import SECONDS, free_port, started


def script(*calls: tuple[str, dict[str, Any]]) -> ScriptedBackend:
    """A model that makes these calls, adds two numbers in the next turn, and says "Done." at the end."""
    return ScriptedBackend(Calls(list(calls)), Calls([("add", {"a": 20, "b": 22})]), "Done.")


def run(color: str, make: Callable[[], MCPTools], backend: ScriptedBackend, **options: Any) -> Any:
    """One turn with the tools of a server, of `Chat` ("sync") or `AsyncChat`."""
    if color == "sync":
        with make() as tools, Chat(backend, tools=[*tools], **options) as chat:
            return chat.chat(user="Go.")

    async def main() -> Any:
        async with make() as tools, AsyncChat(backend, tools=[*tools], **options) as chat:
            result = await chat.chat(user="Go.")
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(main())


def log_of(result: Any) -> list[tuple[str, str]]:
    return [(one.name, one.flag) for one in read_history(result.state).tool_calls()]


@pytest.mark.parametrize("color", ["sync", "async"])
@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_server_that_is_killed_in_a_call_over_a_socket(transport: str, color: str) -> None:
    """The call is unknown to the model at once, and the next call of the turn reaches the server of now."""
    how = ["sse"] if transport == "sse" else []
    port = free_port()
    servers = [started(port, *how)]

    def kill(event: Any) -> None:
        if isinstance(event, ToolProgress):
            servers[0].kill()
            servers[0].wait()
            servers.append(started(port, *how))

    def make() -> MCPTools:
        path = "sse" if transport == "sse" else "mcp"
        return MCPTools(f"http://127.0.0.1:{port}/{path}", transport=transport, timeout=SECONDS)  # type: ignore[arg-type]

    try:
        result = run(color, make, script(("slow", {"seconds": 600})), on_event=kill)
    finally:
        for server in servers:
            server.kill()
            server.wait()

    assert len(servers) == 2
    assert log_of(result) == [("slow", "unknown"), ("add", "ok")]
    assert "broke" in read_history(result.state).tool_calls()[0].result
    assert result.text == "Done."


@pytest.mark.parametrize("color", ["sync", "async"])
def test_calls_of_one_reply_run_beside_each_other(color: str) -> None:
    """Each of the three waits until all of them have begun; their results stand in the order of the calls."""
    server = MCPServer("meeting", log_level="CRITICAL")
    here: list[str] = []
    all_here: list[asyncio.Event] = []

    async def meet(name: str) -> str:
        if not all_here:
            all_here.append(asyncio.Event())
        here.append(name)
        if len(here) == 3:
            all_here[0].set()
        await asyncio.wait_for(all_here[0].wait(), SECONDS)
        return f"{name} of {len(here)}"

    server.add_tool(meet, description="Meet.", annotations=ToolAnnotations(read_only_hint=True))
    backend = ScriptedBackend(Calls([("meet", {"name": name}) for name in "abc"]), "Done.")

    result = run(color, lambda: MCPTools(server, timeout=2 * SECONDS), backend)

    assert [one.result for one in read_history(result.state).tool_calls()] == ["a of 3", "b of 3", "c of 3"]
