"""Runs scripts of node: over standard input, and as a page against a server.

Owns: the processes. Must never know: which client a script uses, or what a test expects.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from ...serve._relays import relays
from ...serve._world import World

__all__ = ["HERE", "answer_of", "pages_of", "run"]

HERE = Path(__file__).resolve().parent


def answer_of(script: str, folder: Path, given: Any) -> Any:
    """What a script answers to a value on its standard input."""
    found = subprocess.run(
        ["node", HERE / script, folder], input=json.dumps(given).encode(), capture_output=True, timeout=120
    )
    assert found.returncode == 0, found.stderr.decode()
    return json.loads(found.stdout)


class RoundRobin:
    """Gives each request to the next worker."""

    def __init__(self, *workers: Any) -> None:
        self._next = itertools.cycle(workers)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        await next(self._next)(scope, receive, send)


def pages_of(script: str, folder: Path, worlds: dict[str, World], *, workers: int = 1) -> dict[str, Any]:
    """What a script answers that talks to one application for each name; and the tools that ran in each.

    `workers`: several applications take the requests of each name in turn, with a relay in Redis.
    """
    return asyncio.run(
        _pages(script, folder, worlds) if workers == 1 else _in_turn(script, folder, worlds, workers)
    )


async def _in_turn(script: str, folder: Path, worlds: dict[str, World], workers: int) -> dict[str, Any]:
    async with relays("redis", workers) as found, AsyncExitStack() as running:
        apps = {name: [world.twin(relay) for relay in found] for name, world in worlds.items()}
        for app in itertools.chain.from_iterable(apps.values()):
            await running.enter_async_context(app.running())
        return await _pages(script, folder, worlds, {name: RoundRobin(*one) for name, one in apps.items()})


async def _pages(
    script: str, folder: Path, worlds: dict[str, World], apps: dict[str, Any] | None = None
) -> dict[str, Any]:
    mounts = [
        Mount(f"/{name}", routes=[*_controlled(world), Mount("/", app=(apps or {}).get(name, world.app))])
        for name, world in worlds.items()
    ]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=mounts), port=0, log_level="error"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        out = await run([str(HERE / script), str(folder), f"http://127.0.0.1:{port}"])
    finally:
        server.should_exit = True
        await task
    return {
        name: {
            **one,
            "tools": len(worlds[name].looked),
            "requests": [request.body.decode() for request in worlds[name].backend.requests],
        }
        for name, one in json.loads(out).items()
    }


async def run(arguments: Sequence[str]) -> bytes:
    """What a script prints."""
    node = await asyncio.create_subprocess_exec(
        shutil.which("node") or "node", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(120):
            out, wrong = await node.communicate()
    finally:
        if node.returncode is None:
            node.kill()
    assert node.returncode == 0, wrong.decode()
    return out


def _controlled(world: World) -> list[Route]:
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
