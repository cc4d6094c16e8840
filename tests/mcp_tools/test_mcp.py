"""Tools of MCP servers: what a model is told, what a result becomes, and connections that break or close.

Long form: GOAITOOLS_MCP_CALLS=1000 calls from 50 turns at a time.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from goaitools_py import Approve, AsyncChat, Chat
from goaitools_py.mcp import MCPConnectionError, MCPTools
from goaitools_py.mcp.tool_descriptions import named, returned, schema_of
from goaitools_py.states import read_history
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.messages import Text

from . import _server

SERVER = Path(_server.__file__)
CALLS = int(os.environ.get("GOAITOOLS_MCP_CALLS", "100"))
SECONDS = 60.0


def program() -> StdioServerParameters:
    """The server, as a program to start."""
    return StdioServerParameters(command=sys.executable, args=[str(SERVER)])


def script(*calls: tuple[str, dict[str, Any]]) -> ScriptedBackend:
    """A model that makes these calls in one reply, and then says "Done."."""
    return ScriptedBackend(Calls(list(calls)), "Done.")


# ------------------------------------------------------------------------------------------- described


def test_tools_are_what_the_server_says() -> None:
    """In the order of their names, with a prefix; those that claim to read only run without an approval."""

    async def main() -> None:
        async with MCPTools(_server.server, prefix="t_", only=["pid", "add", "delete"]) as tools:
            assert [tool.name for tool in tools] == ["t_add", "t_delete", "t_pid"]
            assert [tool.requires_approval for tool in tools] == [False, True, False]
            assert len(tools) == 3
            (add, _, _) = tools
            assert add.description == "Add two numbers."
            assert set(add.parameters["properties"]) == {"a", "b"}  # type: ignore[index, arg-type]
            assert not await tools.refresh()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("hints", "approve", "waits"),
    [
        (None, "destructive", True),
        (ToolAnnotations(), "destructive", True),
        (ToolAnnotations(destructive_hint=True), "destructive", True),
        (ToolAnnotations(destructive_hint=False), "destructive", False),
        (ToolAnnotations(read_only_hint=True), "destructive", False),
        (ToolAnnotations(read_only_hint=True), "all", True),
        (None, "none", False),
    ],
)
def test_what_waits_for_an_approval(hints: Any, approve: Any, waits: bool) -> None:
    """What is destructive, or does not say; unless the program decides otherwise."""
    server = MCPServer("one", log_level="CRITICAL")
    server.add_tool(lambda: "x", name="act", description="Act.", annotations=hints)

    async def main() -> None:
        async with MCPTools(server, approve=approve) as tools:
            assert [tool.requires_approval for tool in tools] == [waits]

    asyncio.run(main())


def test_a_function_decides_by_name_and_arguments() -> None:
    """And a call that waits is approved as any other."""

    async def main() -> None:
        async with MCPTools(_server.server, approve=lambda name, given: given["name"] == "all") as tools:
            chat = AsyncChat(script(("delete", {"name": "one"}), ("delete", {"name": "all"})), tools=[*tools])
            result = await chat.chat(user="Delete.")
            (call,) = result.pending
            assert call.arguments == '{"name":"all"}'
            result = await chat.resume(result.state, {call.id: Approve()})
            assert result.text == "Done."
            assert [one.flag for one in result.tool_log][-1] == "ok"

    asyncio.run(main())


def test_hints_are_believed_on_request_only() -> None:
    """A server may say anything: a call that is repeated could act twice."""

    async def idempotent(trust: bool) -> list[bool]:
        async with MCPTools(_server.server, only=["die_once"], trust_hints=trust) as tools:
            return [tool.idempotent for tool in tools]

    assert asyncio.run(idempotent(False)) == [False]
    assert asyncio.run(idempotent(True)) == [True]


def test_names_are_those_that_a_provider_takes() -> None:
    """Others become underscores; two that would be one are refused."""
    assert named(["b.x", "a"], "p-") == {"a": "p-a", "b.x": "p-b_x"}
    assert len(next(iter(named(["n" * 99], "").values()))) == 64
    with pytest.raises(ValueError, match="a_x"):
        named(["a.x", "a/x"], "")


def test_a_schema_is_a_copy() -> None:
    """Whatever becomes of the server's object, the request's bytes stay."""
    given = {"properties": {"a": {"type": "integer"}}}

    schema = schema_of(given, "add")
    given["properties"]["b"] = {}

    assert schema == {"type": "object", "properties": {"a": {"type": "integer"}}}
    with pytest.raises(ValueError, match="'add' is not that of an object"):
        schema_of({"type": "string"}, "add")


def test_only_names_tools_that_are_there() -> None:
    """With the list of those that are."""

    async def main() -> None:
        async with MCPTools(_server.server, only=["add", "nothing"]):
            pass

    with pytest.raises(ValueError, match=r"'nothing'; it has .*'add'"):
        asyncio.run(main())


# --------------------------------------------------------------------------------------------- results


def test_results_are_parts() -> None:
    """Text, a picture, structured content, and an error that the model may read."""

    async def main() -> None:
        async with MCPTools(_server.server) as tools:
            calls: list[Any] = [
                ("add", {"a": 1, "b": 2}),
                ("picture", {}),
                ("fail", {}),
                ("slow", {"seconds": 0}),
            ]
            backend = ScriptedBackend(Calls(calls), "Done.", wire="anthropic")
            result = await AsyncChat(backend, tools=[*tools]).chat(user="All of it.")
        assert [one.flag for one in result.tool_log] == ["ok", "ok", "error", "ok"]
        history = read_history(result.state)
        found = {one.name: one.result for one in history.tool_calls()}
        assert found["add"] == "3"
        assert base64.b64encode(_server.PIXEL) in backend.requests[-1].body
        assert "fail" in found["fail"]

    asyncio.run(main())


def test_resources_are_parts_or_words() -> None:
    """What no provider takes becomes a note, with its address and size."""
    from mcp_types import (
        BlobResourceContents,
        CallToolResult,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        TextResourceContents,
    )

    blocks = [
        ResourceLink(name="log", uri="file:///log"),
        EmbeddedResource(resource=TextResourceContents(uri="file:///a", text="said")),
        EmbeddedResource(resource=BlobResourceContents(uri="file:///b", blob="AAAA", mime_type="x/y")),
        EmbeddedResource(resource=BlobResourceContents(uri="file:///c", blob="AAAA", mime_type="image/png")),
        ImageContent(data="no base64!", mime_type="image/png"),
    ]

    parts = returned(CallToolResult(content=blocks)).value

    assert [part.text if isinstance(part, Text) else type(part).__name__ for part in parts] == [
        "[resource file:///log] log",
        "[resource file:///a]\nsaid",
        "[resource file:///b: x/y, 3 bytes, left out]",
        "Image",
        "[image that could not be read]",
    ]


# ---------------------------------------------------------------------------------------- connections


def test_many_turns_share_a_connection_and_another_task_closes_it() -> None:
    """Calls of many turns at a time; no task is left."""

    async def main() -> None:
        tools = MCPTools(_server.server, only=["add"])
        await tools.__aenter__()

        async def turn(number: int) -> list[str]:
            calls = [("add", {"a": number, "b": at}) for at in range(CALLS // 50)]
            result = await AsyncChat(script(*calls), tools=[*tools]).chat(user="Add.")
            return [one.result for one in read_history(result.state).tool_calls()]

        for number, texts in enumerate(await asyncio.gather(*(turn(number) for number in range(50)))):
            assert texts == [str(number + at) for at in range(CALLS // 50)]
        await asyncio.create_task(tools.aclose())
        await tools.aclose()
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    asyncio.run(main())


def test_a_call_that_takes_too_long_is_unknown() -> None:
    """And the connection goes on."""

    async def main() -> None:
        async with MCPTools(_server.server, timeout=0.5) as tools:
            chat = AsyncChat(script(("slow", {"seconds": 60})), tools=[*tools])
            result = await chat.chat(user="Wait.")
            assert [one.flag for one in result.tool_log] == ["unknown"]
            chat = AsyncChat(script(("add", {"a": 1, "b": 1})), tools=[*tools])
            assert [one.flag for one in (await chat.chat(user="Add.")).tool_log] == ["ok"]

    asyncio.run(main())


def test_tools_that_are_not_open_say_so() -> None:
    """They are listed when they open."""
    tools = MCPTools(_server.server)
    with pytest.raises(MCPConnectionError, match="not open"):
        list(tools)


def test_a_call_after_the_with_block_is_told_so() -> None:
    """The chat outlived its `with MCPTools(…)`: the tool's error says what to change."""
    with MCPTools(_server.server, approve="none") as tools:
        chat = Chat(ScriptedBackend(Calls([("add", {"a": 1, "b": 2})]), "Done."), tools=[*tools])

    result = chat.chat(user="Add.")

    assert [record.flag for record in result.tool_log] == ["error"]
    assert "the MCP tools are closed" in str(result.tool_log[0].error)


def test_a_wrong_argument_is_refused_where_it_is_made() -> None:
    """What was found, and what to give."""
    other: Any = MCPTools
    for given, kind, words in (
        ({"timeout": "5"}, TypeError, "a positive number of seconds, not str"),
        ({"timeout": 0}, ValueError, "a positive number of seconds, got 0"),
        ({"transport": "stdio"}, ValueError, "got 'stdio'; for a program to start pass mcp.StdioServer"),
        ({"approve": "never"}, ValueError, "got 'never'"),
    ):
        with pytest.raises(kind, match=words):
            other(_server.server, **given)
    with pytest.raises(TypeError, match=r"for one server, got list: .* a program to start is mcp\.Stdio"):
        other(["npx", "server"])


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_headers_go_with_the_first_request(transport: Any) -> None:
    """A server that wants a key gets it. Here it refuses it, so that nothing else is asked."""
    seen: list[str | None] = []

    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers.get("x-key"))
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Refuses) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        place = f"http://127.0.0.1:{listening.server_port}/mcp"
        with pytest.raises(MCPConnectionError) as caught:
            MCPTools(place, headers={"x-key": "canary"}, transport=transport, timeout=SECONDS).open()
        listening.shutdown()
        thread.join()

    assert set(seen) == {"canary"}
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_tools_behind_headers_run(transport: Any, url: str, sse_url: str) -> None:
    """The same calls as without."""
    place = url if transport == "http" else sse_url
    model = ScriptedBackend(Calls([("add", {"a": 1, "b": 2})]), "Done.")

    with (
        MCPTools(place, headers={"x-key": "k"}, transport=transport) as tools,
        Chat(model, tools=[*tools]) as chat,
    ):
        assert [record.result for record in chat.chat(user="Add.").tool_log] == ["3"]


def test_headers_are_for_a_url() -> None:
    """A program that is started takes none."""
    with pytest.raises(TypeError, match=r"headers are for the URL of a server, not for MCPServer"):
        MCPTools(_server.server, headers={"x-key": "k"})
    other: Any = {"x-key": 3}
    with pytest.raises(TypeError, match="headers must be a dict of text to text"):
        MCPTools("http://127.0.0.1:9/mcp", headers=other)


def test_two_servers_with_one_name_are_told_of_prefix() -> None:
    """A tool of a server cannot be renamed with `@tool`."""
    with (
        MCPTools(_server.server) as one,
        MCPTools(_server.server) as two,
        pytest.raises(ValueError, match=r"those of an MCP server with MCPTools\(…, prefix=…\)"),
    ):
        Chat(ScriptedBackend(), tools=[*one, *two])


@pytest.mark.parametrize("server", ["ftp://x", "python server.py"])
def test_what_is_no_server_is_refused(server: str) -> None:
    """A text is a URL."""
    with pytest.raises(ValueError, match="StdioServerParameters"):
        MCPTools(server)


def test_a_server_that_is_not_there_is_a_typed_error() -> None:
    """It may be there later. Its text has the host, and no more of the address, which may hold a key."""
    with pytest.raises(MCPConnectionError) as caught:
        MCPTools("http://127.0.0.1:9/mcp?key=canary", timeout=SECONDS).open()

    assert caught.value.retryable
    assert str(caught.value).startswith("no connection to the MCP server at 127.0.0.1:9 (")
    assert "canary" not in str(caught.value)
    assert [one.name for one in threading.enumerate() if one.name == "goaitools-mcp"] == []


# ------------------------------------------------------------------------------- programs and sockets


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pid: int) -> bool:
    """True once a process has ended."""
    end = time.monotonic() + SECONDS
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_running(pid)


def test_a_server_that_is_killed_in_a_call(tmp_path: Path) -> None:
    """A call that may run twice runs again, on a new process. Nothing is left over."""
    with MCPTools(program(), approve="none", trust_hints=True, timeout=SECONDS) as tools:
        by_name = {tool.name: tool for tool in tools}

        def run(*calls: tuple[str, dict[str, Any]], **changed: Any) -> list[tuple[str, str]]:
            from dataclasses import replace

            given = [replace(tool, **changed) for tool in by_name.values()] if changed else [*tools]
            with Chat(script(*calls), tools=given) as chat:
                result = chat.chat(user="Go on.")
            texts = [one.result for one in read_history(result.state).tool_calls()]
            return list(zip([one.flag for one in result.tool_log], texts, strict=True))

        ((_, first),) = run(("pid", {}))
        assert run(("die_once", {"mark": str(tmp_path / "a")})) == [("ok", "alive")]
        ((_, second),) = run(("pid", {}))
        assert first != second
        assert gone(int(first))

        ((_, third),) = run(("pid", {}))
        assert third == second
    assert gone(int(third))
    assert [one.name for one in threading.enumerate() if one.name == "goaitools-mcp"] == []


def test_a_call_whose_server_dies_is_unknown() -> None:
    """It may have taken effect, so that it does not run again. The next call starts the program again."""
    with (
        MCPTools(program(), approve="none", timeout=SECONDS) as tools,
        Chat(script(("pid", {})), tools=[*tools]) as chat,
    ):
        result = chat.chat(user="Who are you?")
        pid = int(read_history(result.state).tool_calls()[0].result)
        started = threading.Event()

        def kill() -> None:
            started.wait(SECONDS)
            os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()

        def tell(event: Any) -> None:
            if type(event).__name__ == "ToolStarted":
                threading.Timer(0.3, started.set).start()

        with Chat(script(("slow", {"seconds": 600})), tools=[*tools], on_event=tell) as other:
            result = other.chat(user="Wait.")
        killer.join()
        assert [one.flag for one in result.tool_log] == ["unknown"]
        with Chat(script(("add", {"a": 1, "b": 2})), tools=[*tools]) as other:
            assert [one.flag for one in other.chat(user="Add.").tool_log] == ["ok"]


def test_a_server_over_http(url: str) -> None:
    """For both chats; a client of the caller's own is used as it is."""
    with (
        MCPTools(url, prefix="x_", timeout=SECONDS) as tools,
        Chat(script(("x_add", {"a": 20, "b": 22})), tools=[*tools]) as chat,
    ):
        result = chat.chat(user="Add.")
    assert [one.result for one in read_history(result.state).tool_calls()] == ["42"]

    async def main() -> str:
        async with MCPTools(Client(url), timeout=SECONDS) as tools:
            result = await AsyncChat(script(("add", {"a": 1, "b": 2})), tools=[*tools]).chat(user="Add.")
        return str(read_history(result.state).tool_calls()[0].result)

    assert asyncio.run(main()) == "3"


def test_the_command_line_takes_a_server(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tools are those of the chat."""
    from goaitools_py.cli import main

    code = main(["chat", "--model", "sim", "--mcp", url, "--once", "Please call pid."])

    assert (code, capsys.readouterr().err) == (0, "")


def test_the_command_line_says_that_a_server_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and exit code 1."""
    from goaitools_py.cli import main

    assert main(["chat", "--model", "sim", "--mcp", "no-such-program-4711 x", "--once", "Hi."]) == 1
    assert "no connection to the MCP server 'no-such-program-4711' (" in capsys.readouterr().err


def test_the_command_line_says_that_a_command_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """A quotation mark that does not close."""
    from goaitools_py.cli import main

    assert main(["chat", "--model", "sim", "--mcp", "npx 'x", "--once", "Hi."]) == 1
    assert capsys.readouterr().err == "goaitools: --mcp npx 'x: this is no command: No closing quotation\n"
