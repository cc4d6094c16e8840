"""A Redis that restarts while 60 pages follow turns of another worker: each page gets its reply whole.

A page that loses its stream comes back with `Last-Event-ID`, as an `EventSource` does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from goaitools_py import ToolContext, tool
from goaitools_py.serve import Caller, RedisRelay, ServeLimits
from goaitools_py.testing import Calls
from tests.stores._private import Server, private_redis, private_redis_cluster

from ._world import World, asynchronous, said

PAGES = 60
TEXT = "a word " * 20
GROUPS = ("early", "down", "late")
"""Turns that end before Redis is killed or soon after; while it is away; when it is back."""


class Gates:
    """The tool `wait` of the conversation "late.7" ends when the gate "late" is open."""

    def __init__(self) -> None:
        self.waits: Counter[str] = Counter()
        self.open = {group: asyncio.Event() for group in GROUPS}


def worker(*steps: Any, **how: Any) -> tuple[Gates, World]:
    """A worker of a server with the tool `wait`."""
    gates = Gates()

    @tool
    async def wait(ctx: ToolContext[str]) -> str:
        """Wait."""
        gates.waits[ctx.deps] += 1
        await gates.open[ctx.deps].wait()
        return "waited"

    limits = ServeLimits(turns_per_owner=PAGES, keep_seconds=0.5, keep_alive_seconds=0.2)
    world = World(*steps, more_tools=[wait], limits=limits, **how)

    def whose(request: Any, name: str) -> Caller:
        return Caller(f"ada/{name}", owner="ada", options={"deps": name.partition(".")[0]})

    world.app._whose = whose
    return gates, world


async def read_whole(world: World, path: str, inside: set[str]) -> tuple[list[tuple[str, Any]], int]:
    """Read a stream up to its last event, and come back as often as it breaks off. Give the events from the
    last `started` on, and how often the page came back. `inside`: gets the path when the turn's tool runs."""
    seen: list[tuple[str, Any]] = []
    last, breaks = "", -1
    while not seen or seen[-1][0] not in ("done", "error"):
        breaks += 1
        headers = {"last-event-id": last} if last else {}
        async with world.stream("GET", path, headers=headers) as answer:
            if answer.status != 200:
                raise AssertionError(f"{answer.status} {answer.headers}")
            async for name, data in answer:
                if name == "started":
                    seen.clear()
                seen.append((name, data))
                last = data["#"]
                if name == "tool_call":
                    inside.add(path)
    return seen, breaks


def is_whole(events: list[tuple[str, Any]]) -> bool:
    text = "".join(data["text"] for name, data in events if name == "text")
    results = [name for name, _ in events].count("tool_result")
    return events[-1][0] == "done" and text == f"Hm.{TEXT}" and results == 1


async def whole_streams(one: Any, two: Any, restart: Callable[[Gates], Awaitable[None]]) -> tuple[int, int]:
    """Begin 60 turns at one worker, follow them at the other, and restart Redis in the middle. Give how many
    streams are whole, and how often pages came back."""
    gates, first = worker(*[Calls([("wait", {})], text="Hm.")] * PAGES, *[TEXT] * PAGES, relay=one)
    _, second = worker(store=first.store, relay=two)
    paths = [f"/conversations/{GROUPS[at % 3]}.{at}/turns" for at in range(PAGES)]
    async with first.app.running(), second.app.running():
        posts = [asyncio.create_task(first.ask("POST", path, said())) for path in paths]
        while gates.waits.total() < PAGES:
            await asyncio.sleep(0.01)
        inside: set[str] = set()
        pages = [asyncio.create_task(read_whole(second, f"{path}/current", inside)) for path in paths]
        while len(inside) < PAGES:
            await asyncio.sleep(0.01)
        await restart(gates)
        gates.open["late"].set()
        assert {status for status, _ in await asyncio.gather(*posts)} == {200}
        found = await asyncio.gather(*pages, return_exceptions=True)
    for page in found:
        if isinstance(page, BaseException):
            print(f"a page is not whole: {page!r}"[:200])
    good = [page for page in found if not isinstance(page, BaseException)]
    return sum(is_whole(events) for events, _ in good), sum(breaks for _, breaks in good)


def restarting(server: Server) -> Callable[[Gates], Awaitable[None]]:
    async def restart(gates: Gates) -> None:
        gates.open["early"].set()
        await asyncio.to_thread(server.kill)
        gates.open["down"].set()
        await asyncio.sleep(0.2)  # pages notice it
        await asyncio.to_thread(server.start)

    return restart


@pytest.fixture(params=["kept", "lost"])
def server(request: Any, tmp_path: Path) -> Iterator[Server]:
    """A Redis that keeps its data over a restart, or loses them."""
    with private_redis(tmp_path, *(("--appendonly", "no") if request.param == "lost" else ())) as found:
        yield found


@asynccontextmanager
async def clients(count: int, make: Callable[[], Any]) -> Any:
    made = [make() for _ in range(count)]
    try:
        yield made
    finally:
        for client in made:
            await client.aclose()


@pytest.mark.heavy
@pytest.mark.service
@pytest.mark.parametrize(("is_patient", "alive"), [(True, 3), (False, 3), (False, 0.2)])
@asynchronous
async def test_all_streams_are_whole_after_a_restart(server: Server, is_patient: bool, alive: float) -> None:
    """Also if the client of Redis does not wait until Redis is back, and the other worker takes this one for
    dead: then streams break off, and pages come back."""
    how: dict[str, Any] = {} if is_patient else {"retry": Retry(NoBackoff(), 0)}
    async with clients(2, lambda: redis.Redis(port=server.port, **how)) as made:
        one, two = (RedisRelay(client, alive_seconds=alive) for client in made)
        whole, breaks = await whole_streams(one, two, restarting(server))
    print(f"{whole} of {PAGES} streams are whole, pages came back {breaks} times")
    assert whole == PAGES


@pytest.mark.heavy
@pytest.mark.service
@asynchronous
async def test_all_streams_are_whole_after_a_node_of_a_cluster_restarts(tmp_path: Path) -> None:
    """The runs of the other node do not notice it."""
    with private_redis_cluster(tmp_path, made=(nodes := [])) as ports:

        def client() -> Any:
            return RedisCluster(host="127.0.0.1", port=ports[0])

        async with clients(2, client) as made:
            one, two = (RedisRelay(client, alive_seconds=3) for client in made)
            whole, breaks = await whole_streams(one, two, restarting(nodes[1]))
    print(f"{whole} of {PAGES} streams are whole, pages came back {breaks} times")
    assert whole == PAGES
