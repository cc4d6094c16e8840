"""Lists of conversations by HTTP: newest first, titles, costs that are known or null, and no cache."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest

from goaitools_py import ToolContext, tool
from goaitools_py.backends.base import BackendError
from goaitools_py.stores import AsyncMemoryStore, AsyncSQLiteStore
from goaitools_py.testing import Calls

from ._world import World, asynchronous, said


class Plain(AsyncMemoryStore):
    """A store that can list, and knows no order."""

    recent = None  # type: ignore[assignment]


async def listed(world: World, query: str = "") -> dict[str, Any]:
    return (await world.ask("GET", f"/conversations{query}"))[1]  # type: ignore[no-any-return]


async def say(world: World, name: str, text: str, id: str) -> tuple[int, Any]:
    return await world.ask("POST", f"/conversations/{name}/turns", said(text, id))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@asynchronous
async def test_the_newest_conversation_comes_first(kind: str, tmp_path: Any) -> None:
    """Page by page; a conversation that goes on moves to the front, and no other one moves."""
    store: Any = AsyncSQLiteStore(tmp_path / "chat.db") if kind == "sqlite" else AsyncMemoryStore()
    world = World(*["Hello."] * 9, store=store)
    for number in range(5):
        await say(world, f"c{number}", "Hi", "m")
    await say(world, "c1", "Again", "m2")

    first = await listed(world, "?limit=2")
    assert [row["name"] for row in first["conversations"]] == ["c1", "c4"]
    assert first["ordered"] is True
    await say(world, "c2", "Again", "m2")
    found, cursor = [row["name"] for row in first["conversations"]], first["cursor"]
    while cursor:
        page = await listed(world, f"?limit=2&cursor={quote(cursor)}")
        found += [row["name"] for row in page["conversations"]]
        cursor = page["cursor"]
    assert found == ["c1", "c4", "c3", "c0"]
    assert (await listed(world))["conversations"][0]["name"] == "c2"
    assert (await world.ask("GET", "/conversations?cursor=nonsense"))[0] == 400
    if kind == "sqlite":
        await store.aclose()


@asynchronous
async def test_a_store_without_an_order_says_so() -> None:
    world = World("Hello.", store=Plain())
    await say(world, "b", "Hi", "m")
    page = await listed(world)
    assert (page["ordered"], [row["name"] for row in page["conversations"]]) == (False, ["b"])


@asynchronous
async def test_the_first_message_is_the_title_at_once() -> None:
    """Also if the provider is down; the second message changes nothing."""
    seen: list[Any] = []
    world = World(BackendError("away", status=503), "Hello.", "Again.")
    text = "My  name\n is Ada, and I want to know all of the rules of this game, please"

    await say(world, "hall", text, "m1")
    seen.append((await listed(world))["conversations"][0]["title"])
    await say(world, "hall", text, "m1")
    await say(world, "hall", "And now?", "m2")
    seen.append((await listed(world))["conversations"][0]["title"])

    assert seen == ["My name is Ada, and I want to know all of the rules of…"] * 2
    assert len(seen[0]) <= 60


@asynchronous
async def test_a_conversation_is_renamed() -> None:
    world = World("Hello.", "Again.")
    await say(world, "hall", "Hi", "m1")

    assert (await world.ask("PATCH", "/conversations/hall", {"title": "The hall"}))[0] == 204
    await say(world, "hall", "And now?", "m2")
    assert (await world.ask("GET", "/conversations/hall"))[1]["title"] == "The hall"
    assert (await world.ask("PATCH", "/conversations/nowhere", {"title": "x"}))[0] == 404
    assert (await world.ask("PATCH", "/conversations/hall", {"title": "x"}, user=None))[0] == 401
    for body in ({}, {"title": 3}, {"title": "x" * 257}, {"title": "x", "more": 1}, [], b"{"):
        assert (await world.ask("PATCH", "/conversations/hall", body))[0] == 400
    assert (await world.ask("PATCH", "/conversations/hall", {"title": ""}))[0] == 204
    assert (await listed(world))["conversations"][0]["title"] == ""


@pytest.mark.parametrize("price", [Decimal("0.25"), Decimal(0), None])
@asynchronous
async def test_a_cost_is_known_or_null(price: Decimal | None) -> None:
    """It is 0 only for a price of 0. A reply from the store has no cost of its own."""
    world = World("Hello.", prices=lambda charge: price)

    first = (await say(world, "hall", "Hi", "m1"))[1]
    row = (await listed(world))["conversations"][0]

    known = None if price is None else float(price)
    assert first["cost_usd"] == row["cost_usd"] == known
    assert (await world.ask("GET", "/conversations/hall"))[1]["cost_usd"] == known


@asynchronous
async def test_without_prices_no_cost_is_told() -> None:
    world = World("Hello.")
    await say(world, "hall", "Hi", "m1")
    assert (await listed(world))["conversations"][0]["cost_usd"] is None


@asynchronous
async def test_actions_of_tools_are_told() -> None:
    """In plain JSON, and as the metadata of the AI SDK's and AG-UI's replies."""

    @tool(idempotent=True)
    def light(ctx: ToolContext, at: str) -> str:
        """Light a lamp."""
        ctx.log_action("lit a lamp", at=at)
        return "lit"

    script = [Calls([("light", {"at": "hall"})]), "It is bright."]
    world = World(*script * 3, more_tools=[light])
    wanted = [{"text": "lit a lamp", "data": {"at": "hall"}}]

    assert (await say(world, "a", "Light!", "m"))[1]["actions"] == wanted
    message: Any = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "Light!"}]}
    async with world.asked("POST", "/aisdk", {"id": "b", "messages": [message]}) as answer:
        events = dict(await answer.events())
    assert events["finish"]["messageMetadata"]["actions"] == wanted
    message = {"id": "m", "role": "user", "content": "Light!"}
    async with world.asked("POST", "/agui", {"threadId": "c", "runId": "r", "messages": [message]}) as answer:
        events = dict(await answer.events())
    assert events["RUN_FINISHED"]["result"]["actions"] == wanted


@asynchronous
async def test_no_cache_keeps_an_answer() -> None:
    """Answers, streams, problems, also for addresses that are not there."""
    world = World("Hello.", "Hello.")
    asked: list[tuple[str, str, Any, Any]] = [
        ("GET", "/conversations", None, None),
        ("POST", "/conversations/hall/turns", said(), None),
        ("POST", "/conversations/hall/turns", said(id="m2"), {"accept": "text/event-stream"}),
        ("GET", "/conversations/hall", None, None),
        ("GET", "/conversations/hall/messages", None, None),
        ("GET", "/conversations/nowhere/turns/current", None, None),
        ("POST", "/conversations/hall/turns", b"{", None),
        ("GET", "/nothing", None, None),
    ]
    for method, path, body, headers in asked:
        async with world.asked(method, path, body, headers=headers) as answer:
            await answer.body()
            assert answer.headers["cache-control"] == "no-store", path
            assert "Cookie" in answer.headers["vary"], path
