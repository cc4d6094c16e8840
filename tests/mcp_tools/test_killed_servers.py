"""Servers that are killed in the middle of a call over a socket; calls that run beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import pytest

pytest.importorskip("mcp")

from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel

from goaitools_py import AsyncChat, Chat, ToolReturn
from goaitools_py.mcp import MCPTools
from goaitools_py.states import read_history
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.events import ToolProgress

from .conftest import SECONDS, free_port, started


class Seat(BaseModel):
    """What the server asks for."""

    row: int


def which() -> Elicit[Seat]:
    """Ask for the row."""
    return Elicit("Which row?", Seat)


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


def log_of(result: Any) -> list[tuple[str, str | None]]:
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
    assert "broke" in str(read_history(result.state).tool_calls()[0].result)
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


def test_a_process_that_dies_in_an_answered_call_does_not_act_twice() -> None:
    """The call has acted, and its result was not stored: the model is told that the outcome is unknown."""
    server = MCPServer("seats", log_level="CRITICAL")
    booked: list[int] = []
    store, then = MemoryStore(), MemoryStore()

    def book(seat: Annotated[Seat, Resolve(which)]) -> str:
        booked.append(seat.row)
        row = store.load("ada")
        assert row is not None
        then.save("ada", row.blob, expected=None)  # what is left of a process that dies here
        return "booked"

    server.add_tool(book, description="Book a seat.")
    backend = ScriptedBackend(Calls([("book", {})]), "Done.", "Done.")
    with MCPTools(server, approve="none", timeout=SECONDS) as tools, Chat(backend, tools=[*tools]) as chat:
        (question,) = chat.conversation(store, "ada").send("Book it.").pending
        first = chat.conversation(store, "ada").resume({question.id: ToolReturn({"row": 3})})
        second = chat.conversation(then, "ada").resume()

    assert log_of(first) == [("book", "ok")]
    assert log_of(second) == [("book", "unknown")]
    assert booked == [3]
