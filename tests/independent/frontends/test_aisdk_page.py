"""The AI SDK's own chat talks to a running server: what a page holds at the end is what is stored."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from goaitools_py.backends import BackendError
from goaitools_py.testing import Calls

from ...serve._world import World
from ._compare import comparable

LOOK = Calls([("look", {"at": "door"})], text="Let me see.", reasoning="Dark.")
FIRE = Calls([("fire", {"at": "y"})], text="Now.")
SCRIPTS: dict[str, tuple[Any, ...]] = {
    "text": ("Good evening.", "A lamp."),
    "tools": (LOOK, "Done."),
    "approve": (FIRE, "Hit."),
    "parallel": (Calls([("look", {"at": "x"}), ("fire", {"at": "y"}), ("fire", {"at": "z"})]), "Both."),
    "deny": (FIRE, "As you wish."),
    "approve_while_the_provider_fails": (FIRE, BackendError("away"), "Hit."),
    "stop": (LOOK, "Short."),
    "reload": (LOOK, "Done."),
    "cut": (LOOK, "Done."),
    "double": (LOOK, "Done."),
    "regenerate": ("One.", "Two.", "Three."),
}
TOOLS_RUN = {
    "tools": 1,
    "approve": 1,
    "parallel": 3,
    "approve_while_the_provider_fails": 1,
    "reload": 1,
    "cut": 1,
    "double": 1,
}


def controlled(world: World) -> list[Route]:
    async def inside(_: Request) -> Response:
        await world.is_inside.wait()
        return Response()

    async def release(_: Request) -> Response:
        world.held.set()
        return Response()

    return [
        Route("/control/inside", inside, methods=["POST"]),
        Route("/control/release", release, methods=["POST"]),
    ]


@pytest.fixture(scope="session")
def pages(client_folder: Path) -> dict[str, Any]:
    """What the page holds after each scenario, and the tools that ran."""

    async def all_of_them() -> dict[str, Any]:
        worlds = {name: World(*steps) for name, steps in SCRIPTS.items()}
        mounts = [
            Mount(f"/{name}", routes=[*controlled(world), Mount("/", app=world.app)])
            for name, world in worlds.items()
        ]
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=mounts), port=0, log_level="error"))
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0)
        port = server.servers[0].sockets[0].getsockname()[1]
        script = Path(__file__).resolve().parent / "chat.mjs"
        node = await asyncio.create_subprocess_exec(
            shutil.which("node") or "node", script, client_folder, f"http://127.0.0.1:{port}",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(120):
                out, wrong = await node.communicate()
        finally:
            if node.returncode is None:
                node.kill()
            server.should_exit = True
            await task
        assert node.returncode == 0, wrong.decode()
        found = json.loads(out)
        return {name: {**one, "tools": len(worlds[name].looked)} for name, one in found.items()}

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_page_holds_what_is_stored(pages: dict[str, Any], name: str) -> None:
    found = pages[name]

    assert "failed" not in found, found.get("failed")
    assert found["status"] == "ready"
    assert comparable(found["messages"]) == comparable(found["stored"])
    assert [one["role"] for one in found["messages"]] == [one["role"] for one in found["stored"]]
    assert found["tools"] == TOOLS_RUN.get(name, found["tools"])
