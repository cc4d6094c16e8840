"""Where a conversation and its parts stand in the store, and that `DELETE` leaves nothing of them there."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from goaitools_py import PLAIN, AsyncChat, Compactor, KeepRecentTurns, TurnLimit
from goaitools_py.chat.kept.parts import names_of
from goaitools_py.serve import Caller, serve
from goaitools_py.serve.page.page_app import PageSettings, page_app
from goaitools_py.stores import AsyncCallableStore, AsyncMemoryStore
from goaitools_py.testing import ScriptedBackend

from ._world import World, asynchronous, said
from .test_runs import CURRENT, HALL, LOOK

DAMAGED = b"not a state"


async def _keys(store: AsyncMemoryStore, *prefixes: str) -> list[str]:
    """All keys, also those that a list shows only under their own prefix."""
    return sorted({row.key for one in ("", *prefixes) for row in (await store.list(one)).keys})


@asynchronous
async def test_what_stands_aside_and_the_archive_are_erased() -> None:
    """Also bytes of `on_bad_state="fresh"`, and parts with what cuts took out. Other conversations stay."""
    compactor = Compactor(TurnLimit(2), KeepRecentTurns(1), retain=True)
    backend = ScriptedBackend(*["Hello."] * 8)
    store = AsyncMemoryStore()
    chat = AsyncChat(backend, compactor=compactor, on_bad_state="fresh")
    app = serve(chat, store, key=lambda request, name: Caller(name), parts="store")
    await store.save("hall", DAMAGED, expected=None)
    await store.save("hall.unreadable.other", DAMAGED, expected=None)  # a conversation of this name

    with TestClient(app) as client:

        def ask(method: str, path: str, body: Any = None) -> int:
            return client.request(method, path, json=body).status_code

        for number in range(4):
            assert ask("POST", f"{HALL}/turns", said(f"secret {number}", f"m{number}")) == 200
        assert ask("POST", "/conversations/other/turns", said()) == 200
        before = await _keys(store, "hall.unreadable.")
        stored = await store.load("hall")
        assert stored is not None
        assert (await store.load_head("hall")).parts
        assert len([key for key in before if key.startswith("hall.unreadable.")]) == 2  # one is set aside

        assert ask("DELETE", HALL) == 204
        assert await _keys(store, "hall.unreadable.") == ["hall.unreadable.other", "other"]
        assert ask("GET", HALL) == 404
        assert ask("DELETE", HALL) == 204
        assert ask("POST", f"{HALL}/turns", said("again", "m0")) == 200


@pytest.mark.parametrize("served", ["turns", "page"])
@pytest.mark.parametrize("parts", [None, "store", "inline"])
@asynchronous
async def test_parts_stand_beside_the_row_unless_it_is_asked_otherwise(parts: Any, served: str) -> None:
    """The archive of a cut is a part. A store that keeps no parts has whole rows, and is not refused."""
    compactor = Compactor(TurnLimit(2), KeepRecentTurns(1), retain=True)
    inner = AsyncMemoryStore()

    async def save(key: str, blob: bytes, expected: int | None) -> int:
        return await inner.save(key, blob, expected=expected)

    stores: list[Any] = [AsyncMemoryStore()]
    if parts != "store":
        stores.append(AsyncCallableStore(inner.load, save))
    for store in stores:
        chat = AsyncChat(ScriptedBackend(*["Hello."] * 8), compactor=compactor)
        app: Any
        if served == "page":
            app, path = page_app(chat, store, PageSettings(), parts=parts), f"/api{HALL}/turns"
        else:
            app, path = serve(chat, store, key=lambda _, name: Caller(name), parts=parts), f"{HALL}/turns"
        with TestClient(app, base_url="http://127.0.0.1:8765") as client:
            for number in range(4):
                assert client.post(path, json=said("Hello.", f"m{number}")).status_code == 200
            if served == "page":
                client.post("/conversations/hall/title", json={"title": "Kept as it was"})
                assert len(client.get("/conversations/hall/removed").json()) > 1

        kept = await (store if isinstance(store, AsyncMemoryStore) else inner).load_head("hall")
        assert kept is not None
        is_beside = parts != "inline" and isinstance(store, AsyncMemoryStore)
        assert bool(kept.parts) is bool(names_of(kept.blob, PLAIN)) is is_beside


@asynchronous
async def test_a_turn_that_runs_is_stopped_first() -> None:
    world = World(LOOK, "Done.")
    async with world.stream("POST", f"{HALL}/turns", said()) as answer:
        await world.is_inside.wait()
        assert await world.ask("DELETE", HALL) == (204, None)
        assert (await answer.events())[-1][0] == "stopped"
    assert await _keys(world.store) == []
    assert await world.ask("GET", CURRENT) == (204, None)


@asynchronous
async def test_a_turn_elsewhere_that_cannot_be_stopped_is_not_disturbed() -> None:
    """The answer is 409, nothing is deleted, and it works when that turn is over."""
    world = World("Hello.")
    await world.ask("POST", f"{HALL}/turns", said())
    async with world.store.lease("ada/hall", 60.0):
        status, problem = await world.ask("DELETE", HALL)
        assert (status, problem["retryable"]) == (409, True)
    assert await _keys(world.store) == ["ada/hall"]
    assert await world.ask("DELETE", HALL) == (204, None)


@asynchronous
async def test_a_store_that_cannot_list_gets_a_reset() -> None:
    class Plain:
        """A store with the least that a store must have, and `delete`."""

        def __init__(self) -> None:
            self.inner = AsyncMemoryStore()
            self.load, self.save, self.delete = self.inner.load, self.inner.save, self.inner.delete

    world = World("Hello.", "Hello again.", store=Plain())
    await world.ask("POST", f"{HALL}/turns", said())
    assert await world.ask("DELETE", HALL) == (204, None)
    assert (await world.ask("GET", HALL))[0] == 404
