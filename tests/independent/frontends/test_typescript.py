"""The example in TypeScript: its types are made from the description of a running server, it compiles with
them, and it talks to that server."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from goaitools_py import AsyncChat, tool
from goaitools_py.frontends import AGUI, AISDK
from goaitools_py.serve import serve
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

from ...serve._running import running
from ...serve._world import World
from .conftest import ROOT, installed

EXAMPLE = ROOT / "examples" / "typescript"
SAID = [
    "streamed: Good evening.",
    'waits: fire {"at":"y"}',
    "complete: Hit.",
    "4 messages: user, assistant, user, assistant",
    "problem: 404 urn:goaitools:HTTP404",
]


@tool(requires_approval=True)
def fire(at: str) -> str:
    """Fire at something."""
    return f"hit {at}"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server with three replies."""
    chat = AsyncChat(ScriptedBackend("Good evening.", Calls([("fire", {"at": "y"})]), "Hit."), tools=[fire])
    with running(serve(chat, AsyncMemoryStore(), key=World.whose, frontends=(AISDK, AGUI))) as url:
        yield url


@pytest.fixture(scope="module")
def project(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example beside the installed packages, with its types made."""
    folder = tmp_path_factory.mktemp("typescript")
    for one in EXAMPLE.iterdir():
        if one.is_file():
            shutil.copy(one, folder)
    (folder / "node_modules").symlink_to(installed("typescript", "typescript") / "node_modules")
    (folder / "openapi.json").write_bytes(httpx.get(f"{server}/openapi.json", timeout=30).content)
    made = node(folder, "openapi-typescript/bin/cli.js", "openapi.json", "-o", "api.d.ts")
    assert made.returncode == 0, made.stderr
    return folder


def node(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of an installed package, or a file of the example."""
    path = f"node_modules/{script}" if "/" in script else script
    return subprocess.run(["node", path, *arguments], cwd=folder, capture_output=True, text=True, timeout=180)


def test_the_example_compiles_and_talks(project: Path, server: str) -> None:
    compiled = node(project, "typescript/bin/tsc")
    assert compiled.returncode == 0, compiled.stdout

    ran = node(project, "chat.js", server)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == SAID


def test_wrong_members_do_not_compile(project: Path) -> None:
    """The types know what the server takes and gives."""
    text = (EXAMPLE / "chat.ts").read_text(encoding="utf-8")
    wrong_lines = set()
    for right, wrong in (
        ("body: { text, turn_id }", "body: { txt: text, turn_id }"),
        ("{ approve: true }", "{ approve: false }"),
        ("message.role", "message.speakers"),
        ("error.title", "error.text"),
    ):
        assert right in text
        wrong_lines.add(text[: text.index(right)].count("\n") + 1)
        text = text.replace(right, wrong, 1)
    (project / "wrong.ts").write_text(text, encoding="utf-8")
    settings = (EXAMPLE / "tsconfig.json").read_text(encoding="utf-8")
    (project / "wrong.json").write_text(settings.replace("chat.ts", "wrong.ts"), encoding="utf-8")

    compiled = node(project, "typescript/bin/tsc", "--noEmit", "-p", "wrong.json")

    found = {int(one) for one in re.findall(r"wrong\.ts\((\d+),", compiled.stdout)}
    assert wrong_lines <= found, compiled.stdout
