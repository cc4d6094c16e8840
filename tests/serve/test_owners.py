"""What a server refuses: other owners' conversations, strange names, bodies and numbers of turns."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request

from goaitools_py import AsyncChat, Chat
from goaitools_py.frontends import AISDK
from goaitools_py.serve import Caller, Refused, ServeLimits, serve
from goaitools_py.stores import AsyncMemoryStore, StoredPage
from goaitools_py.testing import Calls, ScriptedBackend

from ._world import World, asynchronous, said

HALL = "/conversations/hall"
LOOK = Calls([("look", {"at": "door"})])
ROUTES = [
    ("GET", "/conversations"),
    ("GET", HALL),
    ("DELETE", HALL),
    ("PATCH", HALL),
    ("GET", f"{HALL}/messages"),
    ("POST", f"{HALL}/turns"),
    ("GET", f"{HALL}/turns/current"),
    ("POST", f"{HALL}/turns/current"),
    ("DELETE", f"{HALL}/turns/current"),
    ("POST", f"{HALL}/answers"),
    ("POST", f"{HALL}/events"),
    ("GET", "/aisdk/hall/stream"),
    ("DELETE", "/aisdk/hall/stream"),
    ("GET", "/aisdk/hall/messages"),
    ("GET", "/agui/hall/stream"),
    ("DELETE", "/agui/hall/stream"),
    ("GET", "/agui/hall/messages"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@asynchronous
async def test_each_route_asks_whose_it_is(method: str, path: str) -> None:
    world = World("One.")

    assert (await world.ask(method, path, {}, user=None))[0] == 401
    status, problem = await world.ask(method, path, {}, user="bad")

    assert (status, problem["type"]) == (403, "urn:goaitools:Refused")
    assert world.backend.requests == []


def test_each_route_is_in_the_list() -> None:
    found = {
        (next(iter(route.methods - {"HEAD"})), route.path.replace("{name}", "hall"))  # type: ignore[attr-defined]
        for route in World().app.routes
    }

    assert found == {
        *ROUTES,
        ("POST", "/aisdk"),
        ("POST", "/agui"),
        ("POST", "/events"),
        ("GET", "/openapi.json"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
    }


@asynchronous
async def test_owners_do_not_see_each_other() -> None:
    world = World("For Ada.", "For Bob.")
    await world.ask("POST", f"{HALL}/turns", said("I am Ada."))

    assert (await world.ask("GET", HALL, user="bob"))[0] == 404
    assert (await world.ask("GET", f"{HALL}/messages", user="bob")) == (200, [])
    await world.ask("POST", f"{HALL}/turns", said("I am Bob."), user="bob")
    assert b"Ada" not in world.backend.requests[-1].body
    assert [row["name"] for row in (await world.ask("GET", "/conversations"))[1]["conversations"]] == ["hall"]
    assert await world.ask("DELETE", HALL, user="bob") == (204, None)
    assert len((await world.ask("GET", f"{HALL}/messages"))[1]) == 2


@pytest.mark.parametrize("name", ["..", ".", "a b", "ä", "a" * 129, "a\x00", "a%2Fb", "a\\b", "*"])
@asynchronous
async def test_a_strange_name_is_refused(name: str) -> None:
    """No name leads out of its owner's keys: the key function never sees it."""
    world = World()
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}

    assert (await world.ask("POST", f"/conversations/{name}/turns", said()))[0] in (400, 404)
    assert (await world.ask("POST", "/aisdk", {"id": name, "messages": [message]}))[0] == 400
    assert (await world.ask("POST", "/events", {name: [{"text": "x"}]}, user="game"))[1][name][
        "status"
    ] == 400
    assert (await world.ask("POST", "/aisdk", {"id": "a/b", "messages": [message]}))[0] == 400


@asynchronous
async def test_bodies_have_limits() -> None:
    world = World("One.", limits=ServeLimits(body_bytes=100, body_seconds=0.01))
    turns = f"{HALL}/turns"

    assert (await world.ask("POST", turns, said("x" * 100)))[0] == 413
    assert (await world.ask("POST", turns, said("x"), headers={"content-length": "101"}))[0] == 413
    assert (await world.ask("POST", turns, said("x"), slowly=True))[0] == 408
    assert (await world.ask("POST", turns, said("x"), headers={"content-type": "text/plain"}))[0] == 415
    assert (await world.ask("POST", turns, b"{"))[0] == 400
    assert (await world.ask("PUT", turns, said("x")))[0] == 405
    assert (await world.ask("GET", "/elsewhere"))[0] == 404
    assert (await world.ask("POST", turns, said("x")))[0] == 200


@asynchronous
async def test_turns_have_limits() -> None:
    """So many at a time for one owner, and for all; the answer says when to try again."""
    world = World(*[LOOK] * 3, *["Done."] * 4, limits=ServeLimits(turns_per_owner=2, turns=3))
    tasks = []
    for user, name in (("ada", "a"), ("ada", "b"), ("bob", "a")):
        world.is_inside.clear()
        tasks.append(
            asyncio.create_task(world.ask("POST", f"/conversations/{name}/turns", said(), user=user))
        )
        await world.is_inside.wait()

    async with world.asked("POST", "/conversations/c/turns", said()) as answer:
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    world.app._limits = world.app._hub._limits = ServeLimits(turns_per_owner=2, turns=9)
    async with world.asked("POST", "/conversations/c/turns", said()) as answer:
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert answer.headers["content-type"] == "application/problem+json"
    world.held.set()
    assert [(await task)[0] for task in tasks] == [200] * 3
    assert (await world.ask("POST", "/conversations/c/turns", said()))[0] == 200
    assert not world.app._hub._owners


@asynchronous
async def test_an_error_for_one_of_many_conversations_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The others get their events; the log has the class of the error, as for any other request."""

    def whose(request: Request, name: str) -> Any:
        if name == "odd":
            raise RuntimeError("Harrogate-4711")
        return World.whose(request, name)

    world = World()
    world.app._whose = whose
    events = [{"text": "It rains."}]

    answer = (await world.ask("POST", "/events", {"odd": events, "hall": events}, user="game"))[1]

    assert [answer[name]["status"] for name in ("odd", "hall")] == [500, 204]
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "RuntimeError" in record.getMessage()
    assert "Harrogate" not in record.getMessage()


@asynchronous
async def test_errors_of_the_program_are_logged_without_content(caplog: Any) -> None:
    """A key function that fails, or answers nonsense, is an error of the server; the log has its class."""

    def whose(request: Request, name: str) -> Any:
        if name == "odd":
            return "ada"
        raise RuntimeError("Harrogate-4711")

    world = World()
    world.app._whose = whose
    with caplog.at_level(logging.ERROR, "goaitools_py"):
        for name in ("odd", "bad"):
            status, problem = await world.ask("GET", f"/conversations/{name}")
            assert (status, problem["type"]) == (500, "urn:goaitools:InternalError")
    assert "RuntimeError" in caplog.text
    assert "Harrogate" not in caplog.text


@asynchronous
async def test_a_game_server_tells_what_happened() -> None:
    """One conversation, or many in one request. A page may not."""
    world = World("I know.")
    lamp = {"text": "The lamp goes out.", "topic": "lamp", "id": "e1"}

    assert (await world.ask("POST", f"{HALL}/events", [lamp]))[0] == 403
    assert await world.ask("POST", f"{HALL}/events", [lamp, lamp], user="game") == (204, None)
    many = {"hall": [{"text": "It rains."}], "a/b": [lamp], "mill": [], "barn": [{"txt": "?"}], "": [lamp]}
    status, answer = await world.ask("POST", "/events", many, user="game")
    assert status == 200
    assert {name: one["status"] for name, one in answer.items()} == {
        "hall": 204, "a/b": 400, "mill": 204, "barn": 400, "": 400,
    }  # fmt: skip
    await world.ask("POST", f"{HALL}/turns", said("What is new?"), user="game")
    (request,) = world.backend.requests
    assert request.body.count(b"lamp goes out") == 1
    assert b"It rains." in request.body
    for wrong in ({}, ["text"], [{"text": ""}], [{"text": "a", "topic": ""}], [{"text": "a", "id": 1}]):
        assert (await world.ask("POST", f"{HALL}/events", wrong, user="game"))[0] == 400


@asynchronous
async def test_conversations_are_listed_in_pages() -> None:
    world = World("One.", "Two.")
    for name in ("a", "b"):
        await world.ask("POST", f"/conversations/{name}/turns", said())

    status, page = await world.ask("GET", "/conversations?limit=1")
    rest = (await world.ask("GET", f"/conversations?limit=9&cursor={page['cursor']}"))[1]

    assert status == 200
    rows = [*page["conversations"], *rest["conversations"]]
    assert [(row["name"], row["status"], row["turns"]) for row in rows] == [
        ("b", "complete", 1), ("a", "complete", 1),
    ]  # fmt: skip
    for limit in ("0", "x", "1001"):
        assert (await world.ask("GET", f"/conversations?limit={limit}"))[0] == 400


class Trusting(AsyncMemoryStore):
    """A store that begins a page behind any cursor, and forgets where the prefix begins."""

    async def list(self, prefix: str = "", *, cursor: str | None = None, limit: int = 100) -> StoredPage:
        page = await super().list("" if cursor else prefix, cursor=cursor, limit=limit)
        return replace(page, keys=tuple(row for row in page.keys if row.key < f"{prefix}~"))

    async def recent(self, prefix: str = "", *, before: str | None = None, limit: int = 100) -> StoredPage:
        return await super().recent("" if before else prefix, before=before, limit=limit)


class WithoutRecent(Trusting):
    recent: Any = None


@asynchronous
async def test_a_cursor_does_not_lead_to_another_owners_conversations() -> None:
    """The client sends the cursor, so it may be any text; the store may believe it."""
    for kind, good, bad in (
        (WithoutRecent, ["", "a", "ada", "0"], ["%00", "a%00b", "x" * 600]),
        (
            Trusting,
            ["9" * 16 + "%20a", "9" * 16 + "%20zoe"],
            ["%00", "", "a", "1", "%20a", "9" * 99 + "%20a", "1%20a%00"],
        ),
    ):
        world = World(store=kind())
        world.app = serve(world.chat, world.store, key=lambda _, name: Caller(f"bob:{name}", prefix="bob:"))
        for key in ("ada:hall", "bob:hall"):
            await world.store.save(key, b"blob", expected=None)

        for cursor in good:
            status, page = await world.ask("GET", f"/conversations?cursor={cursor}")
            assert (status, [row["name"] for row in page["conversations"]]) == (200, ["hall"])
        for cursor in bad:
            status, problem = await world.ask("GET", f"/conversations?cursor={cursor}")
            assert (status, problem["type"]) == (400, "urn:goaitools:AskError")


@asynchronous
async def test_a_conversation_is_forgotten_while_it_runs() -> None:
    world = World(LOOK, "New.")
    async with world.stream("POST", f"{HALL}/turns", said()) as first:
        await world.is_inside.wait()
        assert await world.ask("DELETE", HALL) == (204, None)
        assert (await first.events())[-1][0] == "stopped"

    assert (await world.ask("GET", HALL))[0] == 404
    assert (await world.ask("POST", f"{HALL}/turns", said("Hi", "m2")))[1]["text"] == "New."


@asynchronous
async def test_a_key_function_may_be_awaited_and_give_options() -> None:
    async def whose(request: Request, name: str) -> Caller:
        return Caller(name, options={"context": "It is 10:20.", "metadata": {"a": "b"}})

    backend, store = ScriptedBackend("One."), AsyncMemoryStore()
    world = World()
    world.app = serve(AsyncChat(backend), store, key=whose, frontends=[AISDK, AISDK])

    assert (await world.ask("POST", f"{HALL}/turns", said()))[0] == 200
    assert b"10:20" in backend.requests[0].body
    assert (await world.ask("GET", "/conversations"))[0] == 404


def test_a_server_needs_an_async_chat_and_a_key_function() -> None:
    chat, store = AsyncChat(ScriptedBackend()), AsyncMemoryStore()
    with pytest.raises(TypeError, match="AsyncChat"):
        serve(Chat(ScriptedBackend()), store, key=World.whose)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key must be a function"):
        serve(chat, store, key="ada")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="turns must be more than 0"):
        ServeLimits(turns=0)
    with pytest.raises(ValueError, match="401 or 403"):
        Refused(404)
    assert "hall" not in repr(Caller("ada/hall"))
