"""A turn outlives its listeners: they may go, come back, stop it, or find it dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from goaitools_py.serve import ServeLimits, hub
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

from ._world import World, asynchronous, said

HALL = "/conversations/hall"
CURRENT = f"{HALL}/turns/current"
LOOK = Calls([("look", {"at": "door"})], text="Hm.")


@asynchronous
async def test_the_listener_goes_and_the_turn_is_saved() -> None:
    world = World(LOOK, "Done.")
    async with world.stream("POST", f"{HALL}/turns", said()):
        await world.is_inside.wait()

    world.held.set()
    async with world.stream("GET", CURRENT) as again:
        await again.body()

    messages = (await world.ask("GET", f"{HALL}/messages"))[1]
    assert [message["text"] for message in messages] == ["Hello", "Hm.Done."]


@asynchronous
async def test_a_page_that_is_loaded_again_gets_everything_and_follows() -> None:
    world = World(LOOK, "Done.")
    async with world.stream("POST", f"{HALL}/turns", said()) as first:
        await world.is_inside.wait()
        async with world.stream("GET", CURRENT) as second:
            assert second.status == 200
            world.held.set()
            assert await second.events() == await first.events()


@asynchronous
async def test_a_listener_goes_on_behind_the_last_event_it_saw() -> None:
    world = World(LOOK, "Done.")
    async with world.stream("POST", f"{HALL}/turns", said()) as first:
        seen = []
        async for event in first:
            seen.append(event)
            if event[0] == "tool_call":
                break
    async with world.stream("GET", CURRENT, headers={"last-event-id": seen[-1][1]["#"]}) as rest:
        world.held.set()
        events = await rest.events()
    assert [name for name, _ in events if name != "text"] == ["tool_result", "done"]

    for id in ("other.2", "x", "9" * 30, ""):  # of another run, or none: from the beginning
        world = World(LOOK, "Done.")
        async with world.stream("POST", f"{HALL}/turns", said()):
            await world.is_inside.wait()
        async with world.stream("GET", CURRENT, headers={"last-event-id": id}) as whole:
            world.held.set()
            assert (await whole.events())[0][0] == "started"


@asynchronous
async def test_nothing_runs() -> None:
    world = World("Done.", limits=ServeLimits(keep_seconds=0))

    assert await world.ask("GET", CURRENT) == (204, None)
    await world.ask("POST", f"{HALL}/turns", said())
    await asyncio.sleep(0)
    assert await world.ask("GET", CURRENT) == (204, None)
    assert await world.ask("DELETE", CURRENT) == (200, {"stopped": False})


@asynchronous
async def test_a_stop_keeps_what_was_said_and_nobody_goes_on() -> None:
    world = World(LOOK, "Other.")
    async with world.stream("POST", f"{HALL}/turns", said()) as first:
        await world.is_inside.wait()
        assert await world.ask("DELETE", CURRENT) == (200, {"stopped": True})
        events = await first.events()
    assert [name for name, _ in events][-2:] == ["tool_result", "stopped"]
    assert events[-2][1]["flag"] == "unknown"

    assert await world.ask("GET", CURRENT) == (204, None)
    stored = (await world.ask("GET", f"{HALL}/messages"))[1]
    assert stored[1]["text"] == "Hm."
    assert stored[1]["pieces"][-1]["flag"] == "unknown"
    assert (await world.ask("POST", f"{HALL}/turns", said("Next", "m2")))[1]["text"] == "Other."
    assert (await world.ask("GET", f"{HALL}/messages"))[1][:2] == stored


@asynchronous
async def test_a_stopped_turn_says_so_in_json() -> None:
    world = World(LOOK)
    request = asyncio.create_task(world.ask("POST", f"{HALL}/turns", said()))
    await world.is_inside.wait()
    await world.ask("DELETE", CURRENT)

    assert await request == (200, {"turn": "ada/hall-1", "status": "stopped"})


@asynchronous
async def test_another_process_goes_on_with_a_turn_that_died() -> None:
    """The worker is gone without a word. A page that comes back to another one sees the whole turn."""
    dead = World(LOOK)
    turn = dead.chat.conversation(dead.store, "ada/hall", save="checkpoint").start("Hello", turn_id="m1")
    async for event in turn:
        if type(event).__name__ == "ToolStarted":
            break
    rows = await dead.store.load("ada/hall")
    await turn.cancel()
    world = World("Done.", limits=ServeLimits(keep_seconds=0))
    await world.store.save("ada/hall", rows.blob, expected=None)
    world.held.set()

    assert await world.ask("GET", CURRENT) == (204, None)
    async with world.stream("POST", CURRENT) as answer:
        events = await answer.events()

    kinds = [name for name, _ in events if name != "text"]
    assert kinds == ["started", "tool_call", "tool_result", "done"]
    assert "".join(data["text"] for name, data in events if name == "text") == "Hm.Done."
    assert world.looked == ["door"]
    await asyncio.sleep(0)
    assert await world.ask("GET", CURRENT) == (204, None)


@asynchronous
async def test_a_page_that_comes_a_moment_too_late_gets_the_turn() -> None:
    """It read the history while the turn ran, and asks for the stream when the turn is over."""
    world = World(LOOK, "Done.")
    world.held.set()
    await world.ask("POST", f"{HALL}/turns", said())

    async with world.stream("GET", CURRENT) as answer:
        assert (await answer.events())[-1][1]["text"] == "Done."
    await world.ask("DELETE", HALL)
    assert await world.ask("GET", CURRENT) == (204, None)


@asynchronous
async def test_a_page_at_another_worker_waits_for_the_turn_and_sees_it() -> None:
    """Two workers, one store: the lease keeps the second one out until the turn is over."""
    world = World(LOOK, "Done.")
    other = World(store=world.store, limits=ServeLimits(keep_alive_seconds=0.01))
    async with world.stream("POST", f"{HALL}/turns", said()) as first:
        await world.is_inside.wait()
        assert (await other.ask("POST", f"{HALL}/turns", said("Else", "m2")))[0] == 409
        async with other.stream("GET", CURRENT) as second:
            assert await second.pieces.get() == b": keep-alive\n\n"
            world.held.set()
            await first.body()
            events = await second.events()

    assert [name for name, _ in events if name != "text"] == ["started", "tool_call", "tool_result", "done"]
    assert other.backend.requests == []


@pytest.mark.parametrize("grace", [0, 20], ids=["cancelled", "waited for"])
@asynchronous
async def test_the_server_stops(grace: float) -> None:
    """Turns get the grace. Then they are cancelled and saved, and the next server goes on."""
    world = World(LOOK, "Done.", limits=ServeLimits(grace_seconds=grace))
    async with world.app.running():
        async with world.stream("POST", f"{HALL}/turns", said()):
            await world.is_inside.wait()
        if grace:
            world.held.set()

    assert (await world.ask("POST", "/conversations/other/turns", said()))[0] == 503
    after = World("Later.", store=world.store)
    after.held.set()
    async with after.app.running(), after.stream("POST", CURRENT) as answer:
        assert answer.status == (204 if grace else 200)
        await answer.body()
    texts = [message["text"] for message in (await after.ask("GET", f"{HALL}/messages"))[1]]
    assert texts == ["Hello", "Hm.Done." if grace else "Hm.Later."]


@asynchronous
async def test_a_quiet_stream_gets_comments() -> None:
    world = World(LOOK, "Done.", limits=ServeLimits(keep_alive_seconds=0.01))
    async with world.stream("POST", f"{HALL}/turns", said()) as answer:
        await world.is_inside.wait()
        while await answer.pieces.get() != b": keep-alive\n\n":
            pass
        world.held.set()
        assert (await answer.events())[-1][0] == "done"


@asynchronous
async def test_a_stop_reaches_a_turn_at_another_worker() -> None:
    """It ends before its next model call, and nobody goes on with it. Where no turn runs nothing happens."""
    world = World(LOOK, "Never said.", "Other.")
    other = World("Never said either.", store=world.store)
    assert (await other.ask("DELETE", CURRENT))[1] == {"stopped": False}
    async with world.stream("POST", f"{HALL}/turns", said()) as first:
        await world.is_inside.wait()
        assert (await other.ask("DELETE", CURRENT))[1] == {"stopped": True}
        world.held.set()
        assert (await first.events())[-1][0] == "stopped"

    assert len(world.backend.requests) == 1
    for one in (world, other):
        assert await one.ask("GET", CURRENT) == (204, None)
    stored = (await other.ask("GET", f"{HALL}/messages"))[1]
    assert stored[1]["pieces"][-1]["output"] == "seen door"
    assert (await world.ask("POST", f"{HALL}/turns", said("Next", "m2")))[1]["text"] == "Never said."
    assert (await other.ask("DELETE", CURRENT))[1] == {"stopped": False}


class SlowLease:
    """A lease that takes a few rounds of the loop, also after it is taken, as one on a server does."""

    def __init__(self, lease: Any) -> None:
        self._lease = lease

    async def __aenter__(self) -> Any:
        await _rounds()
        held = await self._lease.__aenter__()
        await _rounds()
        return held

    async def __aexit__(self, *error: Any) -> None:
        await _rounds()
        await self._lease.__aexit__(*error)


class SlowStore(AsyncMemoryStore):
    """A store with such leases."""

    def lease(self, key: str, ttl: float) -> Any:
        return SlowLease(super().lease(key, ttl))


async def _rounds() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


@asynchronous
async def test_after_a_stop_the_next_message_is_taken() -> None:
    """Wherever the stop met the turn: once the answer says "stopped", the conversation is free."""
    stopped = 0
    for at in range(1, 60):
        world = World("One.", "Two.", "Three.", store=SlowStore())
        first = asyncio.create_task(world.ask("POST", f"{HALL}/turns", said()))
        for _ in range(at):
            await asyncio.sleep(0)
        _, told = await world.ask("DELETE", CURRENT)
        if told["stopped"]:
            stopped += 1
            assert not await world.store.is_held("ada/hall"), at
            status, answer = await world.ask("POST", f"{HALL}/turns", said("And?", "m2"))
            assert status == 200, (at, answer)
        await first
    assert stopped > 10


@asynchronous
async def test_a_server_that_stops_does_not_wait_for_a_turn_that_cannot_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store is silent. The message was not taken and no model was asked. It is answered later."""
    monkeypatch.setattr(hub, "LEAST_SECONDS", 0.05)
    store = SlowToLease()
    world = World("Never said.", store=store, limits=ServeLimits(grace_seconds=0))
    async with asyncio.timeout(30), world.app.running():
        asked = asyncio.create_task(world.ask("POST", f"{HALL}/turns", said()))
        await store.is_asked.wait()
    status, answer = await asked
    assert (status, answer["retryable"]) == (503, True)
    assert world.backend.requests == []

    store.answers.set()
    after = World("Here.", store=store)
    assert (await after.ask("POST", f"{HALL}/turns", said()))[0] == 200
    texts = [message["text"] for message in (await after.ask("GET", f"{HALL}/messages"))[1]]
    assert texts == ["Hello", "Here."]


class SlowToLease(AsyncMemoryStore):
    """A store that gives no lease before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.answers = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[Any]:
        self.is_asked.set()
        await self.answers.wait()
        async with super().lease(key, ttl) as lease:
            yield lease


class SlowToSave(AsyncMemoryStore):
    """A store whose saves wait, from the first one after `begin` on."""

    def __init__(self) -> None:
        super().__init__()
        self.is_saving, self.may_save = asyncio.Event(), asyncio.Event()
        self.is_slow = False

    async def save(self, *args: Any, **fields: Any) -> Any:
        if self.is_slow:
            self.is_saving.set()
            await self.may_save.wait()
        return await super().save(*args, **fields)


@asynchronous
async def test_a_server_that_stops_waits_until_a_paid_reply_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the store takes."""
    monkeypatch.setattr(hub, "LEAST_SECONDS", 0.01)
    store = SlowToSave()

    def answer(_: Any) -> str:
        store.is_slow = True
        return "Paid."

    world = World(store=store, backend=ScriptedBackend(answer), limits=ServeLimits(grace_seconds=0))
    asked = asyncio.create_task(world.ask("POST", f"{HALL}/turns", said()))
    await store.is_saving.wait()
    closing = asyncio.create_task(world.app._hub.close())
    done, _ = await asyncio.wait([closing], timeout=0.1)
    assert not done

    store.may_save.set()
    store.is_slow = False
    await closing
    await asked
    messages = (await World(store=store).ask("GET", f"{HALL}/messages"))[1]
    assert [message["text"] for message in messages] == ["Hello", "Paid."]
