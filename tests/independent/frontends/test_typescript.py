"""The example in TypeScript: its types are made from the description of a running server, it compiles with
them, and it talks to that server."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from goaitools_py import AsyncChat, tool
from goaitools_py.frontends import AGUI, AISDK
from goaitools_py.serve import serve
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

from ...serve._running import running
from ...serve._weather import BAD, Weather
from ...serve._world import World
from .conftest import ROOT, installed

EXAMPLE = ROOT / "examples" / "typescript"
SAID = [
    "went on: false",
    "streamed: Good evening.",
    'waits: fire {"at":"y"}',
    "complete: Hit.",
    "4 messages: user, assistant, user, assistant",
    "problem: 404 urn:goaitools:HTTP404",
]

REPLIES = ("Good evening.", Calls([("fire", {"at": "y"})]), "Hit.")

MISTAKES = {
    "body: { text, turn_id }": "body: { txt: text, turn_id }",
    "{ approve: true }": "{ approve: false }",
    "message.role": "message.speakers",
    "problem?.title": "problem?.text",
}
"""Right members of the example, and wrong ones in their place."""


@tool(requires_approval=True)
def fire(at: str) -> str:
    """Fire at something."""
    return f"hit {at}"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server with three replies."""
    with running(application(ScriptedBackend(*REPLIES))) as url:
        yield url


def application(script: ScriptedBackend) -> Any:
    """The server that the example talks to."""
    chat = AsyncChat(script, tools=[fire])
    return serve(chat, AsyncMemoryStore(), key=World.whose, frontends=(AISDK, AGUI))


@pytest.fixture(scope="module")
def project(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example beside the installed packages, with its types made, and beside it a copy with mistakes."""
    folder = tmp_path_factory.mktemp("typescript")
    for one in EXAMPLE.iterdir():
        if one.is_file():
            shutil.copy(one, folder)
    (folder / "node_modules").symlink_to(installed("typescript", "typescript") / "node_modules")
    (folder / "openapi.json").write_bytes(httpx.get(f"{server}/openapi.json", timeout=30).content)
    made = node(folder, "openapi-typescript/bin/cli.js", "openapi.json", "-o", "api.d.ts")
    assert made.returncode == 0, made.stderr
    text = (EXAMPLE / "chat.ts").read_text(encoding="utf-8")
    for right, wrong in MISTAKES.items():
        assert right in text
        text = text.replace(right, wrong, 1)
    (folder / "wrong.ts").write_text(text, encoding="utf-8")
    settings = (EXAMPLE / "tsconfig.json").read_text(encoding="utf-8")
    (folder / "tsconfig.json").write_text(
        settings.replace('"chat.ts"', '"chat.ts", "wrong.ts"'), encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def complaints(project: Path) -> dict[str, set[int]]:
    """The lines of each file of which the compiler complains. It runs once, which takes seconds."""
    compiled = node(project, "typescript/bin/tsc")
    found: dict[str, set[int]] = {}
    for line in compiled.stdout.splitlines():
        if named := re.match(r"([\w./]+)\((\d+),\d+\): error", line):
            found.setdefault(named[1], set()).add(int(named[2]))
        else:
            assert "error" not in line or line.startswith(" "), line
    assert compiled.returncode in (0, 1, 2), compiled.stderr
    return found


def node(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of an installed package, or a file of the example."""
    path = f"node_modules/{script}" if "/" in script else script
    return subprocess.run(["node", path, *arguments], cwd=folder, capture_output=True, text=True, timeout=180)


def test_the_example_compiles_and_talks(project: Path, server: str, complaints: dict[str, set[int]]) -> None:
    """Neither it nor the types that were made have a mistake."""
    assert complaints.keys() == {"wrong.ts"}

    ran = node(project, "chat.js", server)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == SAID


@pytest.mark.parametrize("skipped", [0, 1])
def test_the_example_talks_over_a_bad_network(
    project: Path, complaints: dict[str, set[int]], skipped: int
) -> None:
    """A stream, and a message without one, are sent again; a turn that was done asks no model again."""
    script = ScriptedBackend(*REPLIES)
    answers = ("",) * skipped + BAD
    app = Weather(application(script), *answers)

    with running(app) as url:
        ran = node(project, "chat.js", url, "0.01")

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == SAID
    assert (app.left, app.turns, len(script.requests)) == ([], 2 + len(BAD), len(REPLIES))


def test_wrong_members_do_not_compile(complaints: dict[str, set[int]]) -> None:
    """The types know what the server takes and gives."""
    text = (EXAMPLE / "chat.ts").read_text(encoding="utf-8")

    assert {text[: text.index(right)].count("\n") + 1 for right in MISTAKES} <= complaints["wrong.ts"]
