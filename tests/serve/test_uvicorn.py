"""A real server on a real socket: pieces arrive as they are made, and the server ends in good order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn
from fastapi import FastAPI

from goaitools_py.testing import Calls

from ._world import World, asynchronous, said

LOOK = Calls([("look", {"at": "door"})], text="Hm.")


@asynccontextmanager
async def served(app: object) -> AsyncIterator[httpx.AsyncClient]:
    """The application on a free port of the loopback, and a client of it."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="on")  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0)
    port = server.servers[0].sockets[0].getsockname()[1]
    headers = {"x-user": "ada", "accept": "text/event-stream"}
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30
        ) as client:
            yield client
    finally:
        server.should_exit = True
        await task


@asynchronous
async def test_pieces_arrive_as_they_are_made() -> None:
    """The first words are there while a tool runs; the client goes, and another one gets all."""
    world = World(LOOK, "Done.")
    async with served(world.app) as client:
        async with client.stream("POST", "/conversations/hall/turns", json=said()) as first:
            assert first.headers["x-accel-buffering"] == "no"
            seen = ""
            async for piece in first.aiter_text():
                seen += piece
                if "tool_call" in seen:
                    break
            assert not world.held.is_set()
        async with client.stream("GET", "/conversations/hall/turns/current") as second:
            world.held.set()
            text = (await second.aread()).decode()

    assert text.startswith(seen)
    assert text.count("event: done") == 1


@asynchronous
async def test_the_application_is_mounted_in_another_one() -> None:
    """A mounted application does not see the server's end; the outer one passes it on."""
    world = World(LOOK)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with world.app.running():
            yield

    outer = FastAPI(lifespan=lifespan)
    outer.mount("/chat", world.app)
    async with served(outer) as client:
        async with client.stream("POST", "/chat/conversations/hall/turns", json=said()):
            await world.is_inside.wait()
        world.held.set()

    stored = await world.store.load("ada/hall")
    assert stored is not None
    assert world.app._hub.running("ada/hall") is None
