"""The official MCP servers, which this project did not write: everything, filesystem and memory, from npm.

`tests/independent/mcp` pins them. `.ci/run` installs them into `build/mcp`, or GOAITOOLS_MCP says where they
are.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from mcp import StdioServerParameters

from goaitools_py import Chat
from goaitools_py.mcp import MCPTools
from goaitools_py.states import read_history
from goaitools_py.testing import Calls, ScriptedBackend

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 60.0


def program(name: str, *args: str) -> StdioServerParameters:
    """One of the servers, as a program to start; the test is skipped if it is not there."""
    folder = Path(os.environ.get("GOAITOOLS_MCP") or ROOT / "build" / "mcp")
    command = folder / "node_modules" / ".bin" / f"mcp-server-{name}"
    if shutil.which("node") is None or not command.exists():
        pytest.skip("no MCP servers of npm: `.ci/run` installs them; or say in GOAITOOLS_MCP where they are")
    return StdioServerParameters(command=str(command), args=list(args))


def answers(tools: MCPTools, *calls: tuple[str, dict[str, object]]) -> list[tuple[str, str]]:
    """The flag and the text of each call's result."""
    with Chat(ScriptedBackend(Calls(list(calls)), "Done."), tools=[*tools]) as chat:
        result = chat.chat(user="Go on.")
    texts = [str(call.result) for call in read_history(result.state).tool_calls()]
    return list(zip([one.flag for one in result.tool_log], texts, strict=True))


def test_everything() -> None:
    """Its tools have schemas that a request takes, and its echo answers."""
    with MCPTools(program("everything"), approve="none", timeout=SECONDS) as tools:
        assert "echo" in [tool.name for tool in tools]
        ((flag, text),) = answers(tools, ("echo", {"message": "Harrogate"}))

    assert flag == "ok"
    assert "Harrogate" in text


def test_filesystem(tmp_path: Path) -> None:
    """What reads runs at once, what writes waits; a path outside of its folder is an error of the tool."""
    (tmp_path / "score.txt").write_text("30 points", encoding="utf-8")
    with MCPTools(program("filesystem", str(tmp_path)), prefix="fs_", timeout=SECONDS) as tools:
        waits = {tool.name: tool.requires_approval for tool in tools}
        found = answers(
            tools,
            ("fs_read_text_file", {"path": str(tmp_path / "score.txt")}),
            ("fs_read_text_file", {"path": "/etc/hostname"}),
        )

    assert (waits["fs_read_text_file"], waits["fs_write_file"]) == (False, True)
    assert [flag for flag, _ in found] == ["ok", "error"]
    assert "30 points" in found[0][1]


def test_memory(tmp_path: Path) -> None:
    """A process that is started again finds what another one was told."""
    place = program("memory").model_copy(update={"env": {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}})
    entity = {"name": "Ada", "entityType": "player", "observations": ["is in Team Red"]}

    with MCPTools(place, approve="none", timeout=SECONDS) as tools:
        ((first, _),) = answers(tools, ("create_entities", {"entities": [entity]}))
    with MCPTools(place, approve="none", timeout=SECONDS) as tools:
        ((second, text),) = answers(tools, ("search_nodes", {"query": "Ada"}))

    assert (first, second) == ("ok", "ok")
    assert "Team Red" in text
