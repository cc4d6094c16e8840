"""A server is killed in the middle of a reply, and another one takes its address: clients that this project
did not write show the whole turn at the end, and what was done is not done again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ._compare import comparable, results_in_order
from ._node import HERE, run
from .conftest import ROOT, installed

CLIENTS = {"ai6": "ai", "ai7": "ai", "agui": "@ag-ui/client"}


class Killed:
    """A server process that is killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: Any = None

    async def start(self, *steps: str) -> str:
        """Start a process; its address, once it listens."""
        (self.folder / "port").unlink(missing_ok=True)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.serve._process", str(self.folder), *steps, cwd=ROOT
        )
        while not (self.folder / "port").exists():
            assert self.process.returncode is None
            await asyncio.sleep(0.02)
        port = (self.folder / "port").read_text()
        (self.folder / "wanted").write_text(port)
        return f"http://127.0.0.1:{port}"

    async def kill(self) -> None:
        """End the process as a crash does."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    def effects(self) -> list[str]:
        """What the tools have done."""
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    async def inside(self, _: Request) -> Response:
        """Answer once the tool runs that does not end."""
        while not any(one.startswith("look") for one in self.effects()):
            await asyncio.sleep(0.01)
        return Response()

    async def restart(self, _: Request) -> Response:
        """Kill the server, and start another one, in which the tool ends."""
        await self.kill()
        (self.folder / "hold").unlink()
        await self.start("Done.")
        return Response()


@asynccontextmanager
async def controlled(killed: Killed) -> AsyncIterator[str]:
    """The address of what a script may ask for."""
    routes = [Route(f"/{one.__name__}", one, methods=["POST"]) for one in (killed.inside, killed.restart)]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=0, log_level="error"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@pytest.mark.parametrize("client", CLIENTS)
def test_a_page_outlives_a_server_that_is_killed(client: str, tmp_path: Path) -> None:
    """The page that was open, and one that is opened then, hold what is stored. The tool that was done ran
    once, and the one that was cut off ran again under the same key."""
    folder = installed(client, CLIENTS[client])
    kind = "agui" if client == "agui" else "ai"
    killed = Killed(tmp_path)

    found = asyncio.run(talked(killed, "killed.mjs", kind, str(folder)))

    assert found["broke"]
    assert found["waiting"] == 0
    shown = results_in_order if kind == "agui" else comparable
    assert shown(found["open"]) == shown(found["stored"])
    assert shown(found["later"]) == shown(found["stored"])
    assert "".join(texts_of(found["stored"])) == "I fire. I look. Done."
    assert_done_once(killed)


def test_the_page_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    """It says that the turn is not finished, a click goes on with it, and another tab shows the same."""
    folder = installed("page", "playwright-core")
    chromium = os.environ.get("GOAITOOLS_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        pytest.skip("no browser: `.ci/run` installs chromium and its driver")
    (tmp_path / "page").touch()
    killed = Killed(tmp_path)

    found = asyncio.run(talked(killed, "page_killed.mjs", str(folder), chromium))

    assert found["open"] == found["later"]
    assert found["open"]["said"] == ["Look"]
    assert found["open"]["texts"] == ["I fire. ", "I look. ", "Done."]
    assert found["open"]["tools"] == ["fire: done", "look: done"]
    assert_done_once(killed)


async def talked(killed: Killed, script: str, *arguments: str) -> Any:
    """What a script answers whose server is killed while a tool runs that does not end."""
    (killed.folder / "hold").touch()
    try:
        url = await killed.start("fire", "look")
        async with controlled(killed) as control:
            return json.loads(await run([str(HERE / script), *arguments, url, control]))
    finally:
        await killed.kill()


def assert_done_once(killed: Killed) -> None:
    """What was done ran once, and what was cut off ran again with the same key."""
    fired, first, second = killed.effects()
    assert (fired, first) == ("fire", second)


def texts_of(messages: list[dict[str, Any]]) -> list[str]:
    """The texts of the replies, in either form."""
    replies = [one for one in messages if one["role"] == "assistant"]
    return [part["text"] for one in replies for part in one.get("parts", ()) if part["type"] == "text"] + [
        one["content"] for one in replies if one.get("content")
    ]
