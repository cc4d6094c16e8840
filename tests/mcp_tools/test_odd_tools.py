"""Tools of MCP servers that no JSON of a request can hold, and results that no JSON can hold."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("mcp")

from mcp import StdioServerParameters
from mcp_types import CallToolResult, TextContent, Tool

from goaitools_py import AsyncChat
from goaitools_py.mcp import MCPTools
from goaitools_py.mcp.tool_descriptions import returned
from goaitools_py.states import read_history
from goaitools_py.testing import Calls, ScriptedBackend

from ._raw_server import schema
from .test_bad_servers import ListToolsResult, listing

NAN, INFINITY, HALF = float("nan"), float("inf"), "\ud800"
API = Literal["openai", "openai-responses", "anthropic"]
RAW = Path(__file__).with_name("_raw_server.py")
LEFT_OUT = "the MCP tool 'deep' is left out: its description cannot be used"


def turn_with(server: Any, wire: API, *steps: Any) -> tuple[list[str], Any]:
    """The names of a server's tools, and a turn that has them all."""

    async def main() -> tuple[list[str], Any]:
        async with MCPTools(server, approve="none") as tools:
            chat = AsyncChat(ScriptedBackend(*steps, "Done.", wire=wire), tools=[*tools])
            return [tool.name for tool in tools], await chat.chat(user="Go.")

    return asyncio.run(main())


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of this package."""
    ours = [record for record in caplog.records if record.name.startswith("goaitools_py")]
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("depth", [1, 20, 27, 28, 29, 30, 31, 32, 33, 40, 64, 90])
@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
def test_a_schema_of_any_depth_leaves_the_others(
    wire: API, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The tool is sent, or a warning that names it says that it is left out. The other tool is there."""
    tools = [
        Tool(name="deep", input_schema=schema(depth)),
        Tool(name="good", input_schema={"type": "object"}),
    ]

    names, result = turn_with(listing(lambda _: ListToolsResult(tools=tools)), wire)

    assert result.text == "Done."
    told = warnings_of(caplog)
    assert (names, told) in ((["deep", "good"], []), (["good"], [LEFT_OUT]))
    assert ("deep" in names) == (depth < 29)


@pytest.mark.parametrize(
    "odd", [{"default": NAN}, {"default": -INFINITY}, {"default": HALF}, {"enum": [HALF]}, {HALF: 1}], ids=str
)
@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
def test_a_schema_with_odd_values_leaves_the_others(
    wire: API, odd: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """NaN and halves of surrogate pairs: the tool is left out, or its turn goes on with a request of JSON."""
    told = Tool(name="deep", description=HALF, input_schema={"type": "object", "properties": {"a": odd}})
    tool = MCPTools("http://127.0.0.1:1")._usable(told, "deep")
    script = ScriptedBackend("Done.", wire=wire)

    result = asyncio.run(AsyncChat(script, tools=[tool] if tool else []).chat(user="Go."))

    assert result.text == "Done."
    json.loads(script.requests[0].body, parse_constant=_refused)
    assert [record.getMessage() for record in caplog.records] == ([] if tool else [LEFT_OUT])


@pytest.mark.parametrize("depth", [20, 40, 64, 90])
def test_a_deep_schema_of_a_program_leaves_the_others(depth: int, caplog: pytest.LogCaptureFixture) -> None:
    """The package `mcp` reads each of them."""
    names, result = turn_with(program(depth), "openai", Calls([("good", {})]))

    assert result.text == "Done."
    told = warnings_of(caplog)
    assert (names, told) == ((["deep", "good"], []) if depth == 20 else (["good"], [LEFT_OUT]))


def program(depth: int, result: str = "{}") -> StdioServerParameters:
    """The program that writes such bytes."""
    return StdioServerParameters(command=sys.executable, args=[str(RAW), str(depth), result])


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ('{"a":NaN,"b":[1e999,-Infinity]}', {"a": "NaN", "b": ["Infinity", "-Infinity"]}),
        ('{"a":1.5}', {"a": 1.5}),
        ('{"a":' + "[" * 90 + "]" * 90 + "}", {"a": json.loads("[" * 90 + "]" * 90)}),
    ],
    ids=lambda value: str(value)[:16],
)
def test_a_structured_result_reaches_the_model_as_json(sent: str, read: Any) -> None:
    """As a server wrote it."""
    _, result = turn_with(program(1, sent), "openai", Calls([("good", {})]))

    (call,) = read_history(result.state).tool_calls()
    assert json.loads(call.result or "", parse_constant=_refused) == read


def _refused(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.parametrize("number", [NAN, INFINITY, -INFINITY, 1.5])
@pytest.mark.parametrize("text", [HALF, "é", ""])
def test_numbers_and_halves_together(number: float, text: str) -> None:
    """Any value of a structured result becomes JSON, or the texts of the server stand alone."""
    structured = {"a": number, text: [text, {"b": number}]}

    (part,) = returned(CallToolResult(content=[], structured_content=structured)).value
    found = json.loads(part.text, parse_constant=_refused)
    assert found == json.loads(json.dumps(structured), parse_constant=str)
    beside = CallToolResult(content=[TextContent(text="said")], structured_content=structured)
    assert [one.text for one in returned(beside).value] == ["said"]
