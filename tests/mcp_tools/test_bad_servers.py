"""MCP servers that do not answer, never come to an end, or break their own promises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("mcp")

import anyio
from mcp import Client
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from goaitools_py import AsyncChat
from goaitools_py.mcp import MCPConnectionError, MCPTools
from goaitools_py.mcp.connection import Connection
from goaitools_py.mcp.mcp_tools import _all_tools
from goaitools_py.states import read_history
from goaitools_py.testing import Calls, ScriptedBackend

PROMPT = 4.0
"""Seconds: less than what a connection that ends by itself is waited for."""

DOOR = Tool(
    name="door",
    input_schema={"type": "object"},
    output_schema={"type": "object", "properties": {"steps": {"type": "integer"}}, "required": ["steps"]},
)


class Silent:
    """A client whose server takes the connection, and says nothing."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __aenter__(self) -> Any:
        self.begun.set()
        await asyncio.Event().wait()

    async def __aexit__(self, *_: object) -> None: ...


def listing(answer: Callable[[str | None], ListToolsResult | None]) -> Server[Any]:
    """A server whose list is this function's, of the cursor. None: it never answers."""

    async def on_list_tools(_: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        found = answer(params.cursor if params is not None else None)
        if found is None:
            await asyncio.Event().wait()
            raise AssertionError
        return found

    async def on_call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
        said = [TextContent(text="the door is closed")]
        return CallToolResult(content=said, structured_content={"steps": "closed"})

    return Server("bad", on_list_tools=on_list_tools, on_call_tool=on_call_tool)


def test_a_server_that_says_nothing_fails_in_time() -> None:
    """The connection that never opened is cancelled: nothing of it can end by itself."""

    async def main() -> None:
        began = time.monotonic()
        with pytest.raises(MCPConnectionError, match="no connection to the MCP server within"):
            await Connection(Silent, timeout=0.01).client()  # type: ignore[arg-type]
        assert time.monotonic() - began < PROMPT
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_tools_that_still_connect_can_be_closed() -> None:
    """The task that connects gets a typed error, and does not wait for the server any more."""

    async def main() -> None:
        silent = Silent()
        connection = Connection(lambda: silent, timeout=600)  # type: ignore[arg-type, return-value]
        opening = asyncio.create_task(connection.client())
        await silent.begun.wait()
        began = time.monotonic()
        await connection.aclose()
        with pytest.raises(MCPConnectionError, match="closed while they connected"):
            await opening
        assert time.monotonic() - began < PROMPT

    asyncio.run(main())


LISTS: dict[str, tuple[Callable[[str | None], ListToolsResult | None], str, float]] = {
    "no answer": (lambda cursor: None, "not listed its tools within", 0.2),
    "no answer to the second page": (
        lambda cursor: ListToolsResult(tools=[DOOR], next_cursor="2") if cursor is None else None,
        "not listed its tools within",
        0.2,
    ),
    "one page for ever": (
        lambda cursor: ListToolsResult(tools=[DOOR], next_cursor="2"),
        "without an end",
        60,
    ),
}


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_that_does_not_end(kind: str) -> None:
    """It is a typed error that may be tried again, at the beginning and at a refresh."""
    answer, error, timeout = LISTS[kind]

    async def opened() -> None:
        async with MCPTools(listing(answer), timeout=timeout):
            pass

    with pytest.raises(MCPConnectionError, match=error):
        asyncio.run(opened())


def test_a_server_without_a_list_is_a_typed_error() -> None:
    """The text of the server is not quoted."""

    async def main() -> None:
        async with MCPTools(Server("none")):
            pass

    with pytest.raises(MCPConnectionError, match="did not list its tools"):
        asyncio.run(main())


def test_an_answer_that_breaks_the_tools_own_schema() -> None:
    """The tool has run, so its outcome is known: the model reads that, and the connection goes on.

    Words of the server do not look like a broken connection.
    """

    async def main() -> None:
        server = listing(lambda cursor: ListToolsResult(tools=[DOOR]))
        async with MCPTools(server, approve="none") as tools:
            before = tools._connection._client  # type: ignore[union-attr]
            chat = AsyncChat(ScriptedBackend(Calls([("door", {})]), "Done."), tools=[*tools])
            result = await chat.chat(user="Open it.")
            assert [one.flag for one in result.tool_log] == ["error"]
            assert "does not fit" in read_history(result.state).tool_calls()[0].result
            assert tools._connection._client is before  # type: ignore[union-attr]

    asyncio.run(main())


class Babbling:
    """A client whose server answers with something that is no list of tools."""

    async def list_tools(self, **_: Any) -> ListToolsResult:
        return ListToolsResult.model_validate({"tools": "secret nonsense"})


def test_a_list_that_is_nonsense_is_an_error_of_the_connection() -> None:
    """Its text quotes nothing."""
    with pytest.raises(MCPConnectionError, match="no list of tools") as found:
        asyncio.run(_all_tools(Babbling()))  # type: ignore[arg-type]
    assert "secret" not in str(found.value)


def _unreadable_list(request: Any) -> Any:
    """What a transport gives for each request of a server whose list of tools nests too deep."""
    if request.method == "tools/list":
        return ValueError("recursion limit exceeded at SECRET")
    if request.method != "initialize":
        return JSONRPCError(
            jsonrpc="2.0", id=request.id, error=ErrorData(code=METHOD_NOT_FOUND, message="no")
        )
    said = {
        "protocolVersion": request.params["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "deep", "version": "1"},
    }
    return JSONRPCResponse(jsonrpc="2.0", id=request.id, result=said)


@asynccontextmanager
async def unreadable() -> AsyncIterator[Any]:
    """A transport that could not read one answer, and passes on its error, as those of `mcp` do."""
    to_client, read = anyio.create_memory_object_stream[Any](10)
    write, from_client = anyio.create_memory_object_stream[Any](10)

    async def serve() -> None:
        async for sent in from_client:
            if isinstance(sent.message, JSONRPCRequest):
                answer = _unreadable_list(sent.message)
                await to_client.send(answer if isinstance(answer, Exception) else SessionMessage(answer))

    with to_client, read, write, from_client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            yield read, write
            tasks.cancel_scope.cancel()


def test_a_list_that_cannot_be_read_is_told_as_that() -> None:
    """It was answered, so it is not told as a server that says nothing."""

    async def main() -> None:
        async with MCPTools(Client(unreadable()), timeout=0.5):
            pass

    with pytest.raises(MCPConnectionError, match=r"within 0\.5 s: what it answered cannot be read") as caught:
        asyncio.run(main())
    assert "SECRET" not in str(caught.value)
