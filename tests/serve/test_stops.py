"""A stop is remembered from the moment it is answered, and hides nothing that comes after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import event, user
from goaitools_py.backends import BackendError
from goaitools_py.serve import ServeLimits
from goaitools_py.stores import AsyncMemoryStore, TurnStoppedError
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.errors import StoreUnavailableError

from ..stores._places import maker, place_of
from ._relays import relays
from ._world import World, asynchronous, said

HALL = "/conversations/hall"
CURRENT = f"{HALL}/turns/current"
TURNS = f"{HALL}/turns"
LOOK = Calls([("look", {"at": "door"})], text="Hm.")
FRONTS = ("plain", "aisdk", "agui")
STORES = (
    "memory-async", "sqlite-async", "callable-async", "sqlalchemy-sqlite-async", "postgres-async",
    "postgresql-async", "mariadb-async", "redis-async",
)  # fmt: skip
NOT_KEPT = ServeLimits(keep_seconds=0)


class Held(ScriptedBackend):
    """The model does not answer before the test says so. A request that comes is counted."""

    def __init__(self, *steps: Any) -> None:
        super().__init__(*steps)
        self.is_inside = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.asked = 0

    async def asend(self, request: Any) -> Any:
        self.asked += 1
        self.is_inside.set()
        await self.goes_on.wait()
        return await super().asend(request)


def held(*steps: Any, **how: Any) -> tuple[World, Held]:
    """A server whose model waits."""
    backend = Held(*steps)
    return World(backend=backend, limits=NOT_KEPT, **how), backend


def another(world: World, *steps: Any, store: Any = None, **how: Any) -> World:
    """Another worker over the same store, or over what is left of it."""
    return World(*steps, store=world.store if store is None else store, limits=NOT_KEPT, **how)


async def left(world: World, key: str = "ada/hall") -> AsyncMemoryStore:
    """What a worker leaves that dies now: what is stored, and no lease."""
    stored, after = await world.store.load(key), AsyncMemoryStore()
    if stored is not None:
        await after.save(key, stored.blob, expected=None)
    return after


def saying(front: str, text: str = "Hello", id: str = "m1") -> tuple[str, str, Any]:
    """The request with which a client of a front end says something."""
    if front == "plain":
        return "POST", TURNS, said(text, id)
    if front == "aisdk":
        message: Any = {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}
        return "POST", "/aisdk", {"id": "hall", "messages": [message]}
    message = {"id": id, "role": "user", "content": text}
    return "POST", "/agui", {"threadId": "hall", "runId": "r1", "messages": [message], "protocolVersion": "1"}


def stopping(front: str) -> tuple[str, str]:
    return "DELETE", CURRENT if front == "plain" else f"/{front}/hall/stream"


EMPTY_RUN = {"threadId": "hall", "runId": "r2", "messages": [], "protocolVersion": "1"}


async def looked(
    world: World, method: str, path: str, body: Any = None, **how: Any
) -> tuple[int, str | None]:
    """The status of a request that follows, and what it says of the newest turn."""
    async with world.stream(method, path, body, **how) as answer:
        await answer.body()
        return answer.status, answer.headers.get("turn-status")


async def follows(world: World) -> set[tuple[int, str | None]]:
    """What each route says that follows a turn, or goes on with one unasked."""
    found = {
        await looked(world, method, path)
        for path in (CURRENT, "/aisdk/hall/stream", "/agui/hall/stream")
        for method in ("HEAD", "GET")
    }
    found.add(await looked(world, "POST", CURRENT))
    async with world.stream("POST", "/agui", EMPTY_RUN) as run:
        ended = (await run.events())[-1][1]
    assert ended["type"] == "RUN_FINISHED"
    return found


async def view(world: World) -> str:
    return str((await world.ask("GET", HALL))[1]["turn_status"])


# ------------------------------------------------------------------------------------- remembered


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("front", FRONTS)
@asynchronous
async def test_a_stop_before_the_first_reply_is_remembered(front: str, store: str, tmp_path: Path) -> None:
    """At the same worker, at another one, and over every store. The message is kept, and is read by the model
    with the next one."""
    async with opened(store, tmp_path) as kept:
        world, model = held("Never said.", store=kept)
        other = another(world, "Both.")
        async with world.stream(*saying(front)) as first:
            await model.is_inside.wait()
            assert await world.ask(*stopping(front)) == (200, {"stopped": True})
            await first.body()
        model.goes_on.set()

        for one in (world, other):
            assert await follows(one) == {(204, "stopped")}
            assert await view(one) == "stopped"
            assert [row["text"] for row in (await one.ask("GET", f"{HALL}/messages"))[1]] == ["Hello"]
        assert (model.asked, len(other.backend.requests)) == (1, 0)
        assert (await other.ask("DELETE", CURRENT))[1] == {"stopped": False}

        assert (await other.ask("POST", TURNS, said("Next", "m2")))[1]["text"] == "Both."
        assert [one["content"] for one in other.backend.bodies()[0]["messages"]] == ["Hello", "Next"]
        assert await view(other) == "none"


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Any]:
    with place_of(kind, folder) as place:
        made = maker(place)()
        if not hasattr(made, "__aenter__") or kind in ("memory-async", "callable-async"):
            yield made
            return
        async with made as store:
            if hasattr(store, "create_tables"):
                await store.create_tables()
            yield store


@pytest.mark.parametrize("when", ["in the first request", "in a tool"])
@pytest.mark.parametrize("front", FRONTS)
@asynchronous
async def test_a_stop_is_stored_when_it_is_answered(front: str, when: str) -> None:
    """The worker dies at that moment. Whoever finds what it left does not go on."""
    if when == "in a tool":
        world = World(LOOK, limits=NOT_KEPT)
        inside = world.is_inside
    else:
        world, model = held("Never said.")
        inside = model.is_inside
    async with world.stream(*saying(front)) as first:
        await inside.wait()
        assert (await world.ask(*stopping(front)))[1] == {"stopped": True}
        after = another(world, store=await left(world))
        await first.body()

    assert await follows(after) == {(204, "stopped")}
    assert await view(after) == "stopped"
    assert after.backend.requests == []


@pytest.mark.parametrize("front", FRONTS)
@asynchronous
async def test_a_stop_at_another_worker_outlives_the_worker_that_runs_the_turn(front: str) -> None:
    """It dies before it has looked at the flag, and its lease lasts."""
    world, model = held("Never said.")
    other = another(world)
    async with world.stream(*saying(front)) as first:
        await model.is_inside.wait()
        assert (await other.ask(*stopping(front)))[1] == {"stopped": True}
        assert await view(other) == "stopped"
        after = another(world, store=await left(world))
        async with after.store.lease("ada/hall", 60):
            assert await follows(after) == {(204, "stopped")}
        assert await follows(after) == {(204, "stopped")}
        model.goes_on.set()
        await first.body()

    assert after.backend.requests == []
    assert await follows(other) == {(204, "stopped")}
    assert model.asked == 1


@asynchronous
async def test_a_stop_at_another_worker_of_a_turn_of_which_nothing_is_stored() -> None:
    """With ``save="turn"``. The stop is answered when the worker of the turn has stored it."""
    world, model = held("One.", "Never said.")
    world.app, other = world.twin(None, save="turn"), another(world)
    other.app = other.twin(None, save="turn")
    model.goes_on.set()
    await world.ask("POST", TURNS, said())
    model.goes_on.clear()
    model.is_inside.clear()
    sent = asyncio.create_task(world.ask("POST", TURNS, said("Next", "m2")))
    await model.is_inside.wait()
    stop = asyncio.create_task(other.ask("DELETE", CURRENT))
    while not await world.store.stop_requested("ada/hall"):
        await asyncio.sleep(0)
    model.goes_on.set()
    assert await stop == (200, {"stopped": True})
    assert (await sent)[1]["status"] == "stopped"
    for one in (world, other):
        assert await view(one) == "stopped"
        assert await looked(one, "POST", CURRENT) == (204, "stopped")


@pytest.mark.parametrize("is_held", [True, False], ids=["its lease lasts", "its lease has ended"])
@asynchronous
async def test_the_turn_of_a_dead_worker_can_be_stopped(is_held: bool) -> None:
    world, model = held("Never said.")
    async with world.stream(*saying("plain")) as first:
        await model.is_inside.wait()
        after = another(world, "Next.", store=await left(world))
        model.goes_on.set()
        await first.body()

    if is_held:
        async with after.store.lease("ada/hall", 60):
            assert await view(after) == "running"
            assert (await after.ask("DELETE", CURRENT))[1] == {"stopped": True}
    else:
        assert await view(after) == "waiting"
        assert (await after.ask("DELETE", CURRENT))[1] == {"stopped": True}
    assert await follows(after) == {(204, "stopped")}
    assert after.backend.requests == []
    assert (await after.ask("POST", TURNS, said("Next", "m2")))[1]["text"] == "Next."


@pytest.mark.parametrize("path", [CURRENT, "/aisdk/hall/stream"])
@asynchronous
async def test_a_page_that_waits_at_another_worker_does_not_take_a_stopped_turn_over(path: str) -> None:
    """It waits for the lease to go on with the turn if its worker dies. A stop is no death."""
    world = World(LOOK, limits=NOT_KEPT)
    other = another(world)
    async with world.stream("POST", TURNS, said()) as first:
        await world.is_inside.wait()
        async with other.stream("POST" if path == CURRENT else "GET", path) as page:
            assert page.status == 200
            assert (await world.ask("DELETE", CURRENT))[1] == {"stopped": True}
            await first.body()
            ended = (await page.events())[-1][0]
    assert ended == ("stopped" if path == CURRENT else "abort")
    assert other.backend.requests == []
    assert await follows(other) == {(204, "stopped")}


class Hooked(AsyncMemoryStore):
    """A store where something is done, once, at a step: "look" before it tells whether a turn runs, "lease"
    before a lease is taken, "released" after it is given back, "load" before a load."""

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[str, Any] = {}

    async def _do(self, step: str) -> None:
        done = self.at.pop(step, None)
        if done is not None:
            await done()

    async def is_held(self, key: str) -> bool:
        await self._do("look")
        return await super().is_held(key)

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[Any]:
        await self._do("lease")
        async with super().lease(key, ttl) as lease:
            yield lease
        await self._do("released")

    async def load(self, key: str) -> Any:
        await self._do("load")
        return await super().load(key)

    async def load_head(self, key: str, **how: Any) -> Any:
        await self._do("load")
        return await super().load_head(key, **how)


async def hooked(*steps: Any) -> tuple[World, World, Hooked]:
    """Two workers over what a dead one has left, in a store with hooks."""
    stored = await (await abandoned()).store.load("ada/hall")
    store = Hooked()
    await store.save("ada/hall", stored.blob, expected=None)
    return World(*steps, store=store, limits=NOT_KEPT), World(*steps, store=store, limits=NOT_KEPT), store


@pytest.mark.parametrize("is_failure", [False, True], ids=["by a user", "by a program"])
@asynchronous
async def test_a_stop_that_comes_while_a_turn_is_taken_over_is_kept(is_failure: bool) -> None:
    """Between the look at the store and the lease. The model is not asked, and the stop is remembered."""
    world, other, store = await hooked("Never said.")

    async def stop() -> None:
        if not is_failure:
            assert (await other.ask("DELETE", CURRENT))[1] == {"stopped": True}
            return
        conversation = other.chat.conversation(store, "ada/hall", save="checkpoint", stop_every=1e-9)
        with pytest.raises(TurnStoppedError):
            await conversation.start_resume(on_event=lambda _: store.set_stop("ada/hall")).result()

    store.at["lease"] = stop
    async with world.stream("POST", CURRENT) as page:
        assert (await page.events())[-1][0] == "stopped"
    assert world.backend.requests == []
    assert await follows(world) == {(204, "stopped")}


@asynchronous
async def test_nobody_takes_a_turn_over_in_the_moment_of_its_stop() -> None:
    """Its lease is free, and the server has not answered yet."""
    store = Hooked()
    world, other = World(LOOK, store=store, limits=NOT_KEPT), World(store=store, limits=NOT_KEPT)
    told: list[Any] = []

    async def come_back() -> None:
        told.append(await looked(other, "POST", CURRENT))

    async with world.stream("POST", TURNS, said()) as first:
        await world.is_inside.wait()
        store.at["released"] = come_back
        assert (await world.ask("DELETE", CURRENT))[1] == {"stopped": True}
        await first.body()
    assert told == [(204, "stopped")]
    assert other.backend.requests == []


@asynchronous
async def test_a_turn_that_ends_while_somebody_looks_does_not_wait() -> None:
    """The look has found it unfinished, and then its lease free."""
    world, other, store = await hooked("Done.")

    async def end() -> None:
        assert (await other.ask("POST", TURNS, said()))[1]["text"] == "Done."

    store.at["look"] = end
    assert await view(world) == "none"
    assert other.backend.requests != []
    assert world.backend.requests == []


@asynchronous
async def test_two_workers_that_take_a_turn_over_run_it_once() -> None:
    """The one that comes late waits once more, and tells what the other one has done."""
    world, other, store = await hooked(LOOK, "Done.")
    tasks: list[Any] = []

    async def begin() -> None:
        tasks.append(asyncio.create_task(other.ask("POST", CURRENT)))
        await other.is_inside.wait()

    lease = super(Hooked, store).lease("ada/hall", 60)
    await lease.__aenter__()
    async with world.stream("POST", CURRENT) as page:
        store.at["lease"] = begin
        await lease.__aexit__(None, None, None)
        await other.is_inside.wait()
        other.held.set()
        assert (await page.events())[-1][1]["text"] == "Hm.Done."
    assert (await tasks[0])[1]["text"] == "Done."
    assert (len(other.backend.requests), world.backend.requests) == (2, [])


@pytest.mark.parametrize("fails", [False, True], ids=["", "and the store fails"])
@pytest.mark.parametrize("front", FRONTS)
@asynchronous
async def test_a_stop_before_the_message_is_stored_does_not_lose_it(front: str, fails: bool) -> None:
    """It is stored first. If it cannot be, its client gets the error, and may send it again."""
    store, is_inside, goes_on = Hooked(), asyncio.Event(), asyncio.Event()
    world, model = held("Never said.", store=store)

    async def wait() -> None:
        is_inside.set()
        await goes_on.wait()
        if fails:
            raise StoreUnavailableError("away")

    store.at["load"] = wait
    sent = asyncio.create_task(looked(world, *saying(front)))
    await is_inside.wait()
    stop = asyncio.create_task(world.ask(*stopping(front)))
    run = world.app._hub.running("ada/hall")
    assert run is not None
    while not run.was_stopped:
        await asyncio.sleep(0)
    goes_on.set()
    assert (await stop)[1] == {"stopped": not fails}
    assert (await sent)[0] == (503 if fails else 200)
    assert model.asked == 0
    if not fails:
        assert [row["text"] for row in (await world.ask("GET", f"{HALL}/messages"))[1]] == ["Hello"]
        assert await follows(world) == {(204, "stopped")}


@pytest.mark.parametrize("is_noted", [False, True], ids=["", "and is noted already"])
@asynchronous
async def test_a_stop_that_comes_too_late_is_none(is_noted: bool) -> None:
    """The turn ends while the server looks what is stored, or notes the stop. So does a message that was
    answered before."""
    store = Hooked()
    world, model = held("Done.", store=store)
    async with world.stream("POST", TURNS, said()) as first:
        await model.is_inside.wait()
        run = world.app._hub.running("ada/hall")
        assert run is not None

        async def end() -> None:
            model.goes_on.set()
            await run.over()

        async def next_time() -> None:
            store.at["load"] = end

        store.at["load"] = next_time if is_noted else end
        assert (await world.ask("DELETE", CURRENT))[1] == {"stopped": False}
        assert (await first.events())[-1][0] == "done"
    snapshot = await world.chat.conversation(store, "ada/hall").snapshot()
    assert snapshot is not None
    assert "goaitools.stopped" not in snapshot.info.metadata

    is_inside, goes_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        is_inside.set()
        await goes_on.wait()

    store.at["load"] = wait
    again = asyncio.create_task(world.ask("POST", TURNS, said()))
    await is_inside.wait()
    stop = asyncio.create_task(world.ask("DELETE", CURRENT))
    run = world.app._hub.running("ada/hall")
    assert run is not None
    while not run.was_stopped:
        await asyncio.sleep(0)
    goes_on.set()
    assert (await stop)[1] == {"stopped": False}
    assert (await again)[1]["text"] == "Done."


@asynchronous
async def test_a_stop_that_cannot_be_stored_is_not_answered_as_one() -> None:
    """The turn ends all the same: the user does not pay for more."""
    world = World(LOOK, limits=NOT_KEPT)
    async with world.stream("POST", TURNS, said()) as first:
        await world.is_inside.wait()
        await world.chat.conversation(world.store, "ada/hall").update(metadata={"a": "x" * 4080})
        status, problem = await world.ask("DELETE", CURRENT)
        assert (status, problem["type"]) == (500, "urn:goaitools:InternalError")
        assert (await first.events())[-1][0] == "stopped"
    assert len(world.backend.requests) == 1


@asynchronous
async def test_a_stop_reaches_the_worker_whose_turn_is_only_followed_here() -> None:
    """The same message came to both: one runs the turn, the other one tells it, too."""
    async with relays("memory") as (one, two):
        first = World(LOOK, relay=one, limits=NOT_KEPT)
        second = World(store=first.store, relay=two, limits=NOT_KEPT)
        async with first.app.running(), second.app.running():
            async with first.stream("POST", TURNS, said()) as own:
                await first.is_inside.wait()
                with pytest.MonkeyPatch.context() as patch:  # it has not heard of the turn yet
                    patch.setattr(second.app._hub, "find_anywhere", _nothing)
                    page = second.stream("POST", TURNS, said())
                    copy = await page.__aenter__()
                assert second.app._hub.running("ada/hall") is not None
                assert (await second.ask("DELETE", CURRENT))[1] == {"stopped": True}
                assert (await own.events())[-1][0] == "stopped"
                assert (await copy.events())[-1][0] == "stopped"
                await page.__aexit__(None, None, None)
            assert await follows(second) == {(204, "stopped")}


@asynchronous
async def test_a_stop_that_comes_before_it_is_known_who_runs_the_turn() -> None:
    """The worker that is asked finds then that another one runs this message, and stops it there."""
    store, is_inside, goes_on = Hooked(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        is_inside.set()
        await goes_on.wait()

    async with relays("memory") as (one, two):
        first = World(LOOK, relay=one, store=store, limits=NOT_KEPT)
        second = World(store=store, relay=two, limits=NOT_KEPT)
        async with first.app.running(), second.app.running(), first.stream("POST", TURNS, said()) as own:
            await first.is_inside.wait()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(second.app._hub, "find_anywhere", _nothing)
                store.at["lease"] = wait
                copy = asyncio.create_task(second.ask("POST", TURNS, said()))
                await is_inside.wait()
            stop = asyncio.create_task(second.ask("DELETE", CURRENT))
            run = second.app._hub.running("ada/hall")
            assert run is not None
            while not run.was_stopped:
                await asyncio.sleep(0)
            goes_on.set()
            await asyncio.wait([stop], timeout=5.0)
            first.held.set()  # a turn that was not stopped ends so
            assert (await stop)[1] == {"stopped": True}
            assert (await own.events())[-1][0] == "stopped"
            assert (await copy)[0] == 200


async def _nothing(key: str) -> None:
    return None


# ------------------------------------------------------------------------------------- the next one


@pytest.mark.parametrize("when", ["in the first request", "in a tool"])
@pytest.mark.parametrize("front", FRONTS)
@asynchronous
async def test_a_stopped_turn_does_not_hide_the_next_one(front: str, when: str) -> None:
    """The worker dies while the model reads the next message. It waits, and is answered once it is asked
    for."""
    world, model = held(*([LOOK] if when == "in a tool" else []), "Never said.")
    if when == "in a tool":
        model.goes_on.set()
    async with world.stream(*saying(front)) as first:
        await (world.is_inside if when == "in a tool" else model.is_inside).wait()
        assert (await world.ask(*stopping(front)))[1] == {"stopped": True}
        await first.body()
    model.goes_on.clear()
    model.is_inside.clear()
    async with world.stream(*saying(front, "Next", "m2")) as second:
        await model.is_inside.wait()
        store = await left(world)
        model.goes_on.set()
        await second.body()

    after = another(world, "Answered.", store=store)
    assert await view(after) == "waiting"
    assert await looked(after, "GET", CURRENT) == (204, "waiting")
    assert after.backend.requests == []
    async with after.stream("POST", CURRENT) as answer:
        assert (await answer.events())[-1][1]["text"] == "Answered."
    said_to = [one["content"] for one in after.backend.bodies()[0]["messages"] if one["role"] == "user"]
    assert said_to == ["Hello", "Next"]
    assert await view(after) == "none"


@pytest.mark.parametrize("when", ["in the first request", "in a tool"])
@asynchronous
async def test_a_message_that_is_appended_after_a_stop_waits(when: str) -> None:
    """It is answered in a turn of its own when somebody asks for that, and a GET does not. An event does not
    wait: the stopped turn stays stopped."""
    world, model = held(*([LOOK] if when == "in a tool" else []), "Answered.")
    if when == "in a tool":
        model.goes_on.set()
    async with world.stream("POST", TURNS, said()) as first:
        await (world.is_inside if when == "in a tool" else model.is_inside).wait()
        await world.ask("DELETE", CURRENT)
        await first.body()
    model.goes_on.set()
    conversation = world.chat.conversation(world.store, "ada/hall")
    await conversation.append(event("It rains."))
    assert await follows(world) == {(204, "stopped")}
    before = model.asked

    await conversation.append(user("Are you there?"))
    assert await view(world) == "waiting"
    for path in (CURRENT, "/agui/hall/stream"):
        assert await looked(world, "GET", path) == (204, "waiting")
    assert model.asked == before
    assert (await world.ask("POST", CURRENT))[1]["text"] == "Answered."
    assert await view(world) == "none"
    assert (await world.ask("POST", CURRENT)) == (204, None)


@asynchronous
async def test_a_message_that_is_appended_to_a_finished_conversation_waits() -> None:
    world = World("One.", "Two.")
    await world.ask("POST", TURNS, said())
    assert await view(world) == "none"
    await world.chat.conversation(world.store, "ada/hall").append(user("More?"))

    assert await view(world) == "waiting"
    async with world.stream("GET", "/aisdk/hall/stream") as replay:  # of the turn that has just ended
        assert replay.status == 200
    assert len(world.backend.requests) == 1
    assert (await world.ask("POST", CURRENT))[1]["text"] == "Two."


@pytest.mark.parametrize("when", ["in the first request", "in a tool"])
@pytest.mark.parametrize("again", ["a reply again", "the message again"])
@asynchronous
async def test_a_stopped_turn_that_is_asked_for_is_not_stopped_any_more(when: str, again: str) -> None:
    """The worker dies while it goes on. Whoever finds the turn may go on with it."""
    world, model = held(*([LOOK] if when == "in a tool" else []), "Never said.")
    if when == "in a tool":
        model.goes_on.set()
    async with world.stream("POST", TURNS, said()) as first:
        await (world.is_inside if when == "in a tool" else model.is_inside).wait()
        await world.ask("DELETE", CURRENT)
        await first.body()
    model.goes_on.clear()
    model.is_inside.clear()
    world.held.set()
    asked = said() if again == "the message again" else said(id="m9", again="")
    async with world.stream("POST", TURNS, asked) as second:
        await model.is_inside.wait()
        await asyncio.sleep(0)
        store = await left(world)
        model.goes_on.set()
        await second.body()

    after = another(world, "Answered.", store=store)
    after.held.set()
    if again == "the message again" and when == "in the first request":
        # Nothing tells this message from the one that was stopped. It can be sent, or asked for, once more.
        assert await view(after) == "stopped"
        assert (await after.ask("POST", TURNS, said()))[1]["text"] == "Answered."
    else:
        assert await view(after) == "waiting"
        assert (await after.ask("POST", CURRENT))[1]["text"].endswith("Answered.")


@asynchronous
async def test_a_stop_of_a_program_is_one_too() -> None:
    """`conversation.stop()` beside the server: the turn failed with the stop, and nobody goes on."""
    world = World(LOOK, limits=NOT_KEPT)
    conversation = world.chat.conversation(world.store, "ada/hall", save="checkpoint", stop_every=1e-9)
    turn = conversation.start("Hello", turn_id="m1")
    reading = asyncio.create_task(turn.result())
    await world.is_inside.wait()
    await conversation.stop()
    world.held.set()
    with pytest.raises(TurnStoppedError):
        await reading
    assert await follows(world) == {(204, "stopped")}
    assert await view(world) == "stopped"


@asynchronous
async def test_a_copy_of_a_stopped_conversation_is_stopped() -> None:
    world, model = held("Never said.")
    async with world.stream("POST", TURNS, said()) as first:
        await model.is_inside.wait()
        await world.ask("DELETE", CURRENT)
        await first.body()
    await world.chat.conversation(world.store, "ada/hall").fork("ada/copy")
    assert (await world.ask("GET", "/conversations/copy"))[1]["turn_status"] == "stopped"


# ------------------------------------------------------------------------------------- who goes on


async def abandoned(*steps: Any, **how: Any) -> World:
    """A server over a conversation whose worker has died while the model was asked."""
    world, model = held("Never said.")
    async with world.stream("POST", TURNS, said()) as first:
        await model.is_inside.wait()
        store = await left(world)
        model.goes_on.set()
        await first.body()
    return another(world, *steps, store=store, **how)


@pytest.mark.parametrize("site", [None, "same-origin", "same-site", "cross-site", "none"])
@asynchronous
async def test_no_get_of_another_site_is_paid_for(site: str | None) -> None:
    """Nor any HEAD. The reconnect of the AI SDK goes on for its own page, and for what is no browser."""
    world = await abandoned("Done.")
    headers = {} if site is None else {"sec-fetch-site": site}
    paths = [
        route.path.replace("{name}", "hall")  # type: ignore[attr-defined]
        for route in world.app.routes
        if "GET" in route.methods  # type: ignore[attr-defined]
    ]
    for path in paths:
        for method in ("HEAD", "GET"):
            if (method, path) != ("GET", "/aisdk/hall/stream"):
                async with world.asked(method, path, headers=headers) as answer:
                    assert answer.status in (200, 204), path
                    await answer.body()
    assert world.backend.requests == []
    before = await world.store.load("ada/hall")

    found = await looked(world, "GET", "/aisdk/hall/stream", headers=headers)
    assert found == ((200, None) if site in (None, "same-origin") else (204, "waiting"))
    assert len(world.backend.requests) == (site in (None, "same-origin"))
    if found[0] == 204:
        assert await world.store.load("ada/hall") == before
        assert (await world.ask("POST", CURRENT, headers=headers))[1]["text"] == "Done."


@asynchronous
async def test_a_reconnect_that_names_another_host_or_origin_does_not_go_on() -> None:
    for headers, hosts in (
        ({"origin": "http://evil.test", "host": "chat.test"}, None),
        ({"origin": "http://evil.test", "host": "chat.test"}, ["chat.test"]),
        ({"host": "evil.test"}, ["chat.test"]),
        ({"sec-fetch-site": "cross-site", "host": "chat.test"}, ["chat.test"]),
    ):
        world = await abandoned("Done.", allowed_hosts=hosts)
        status, _ = await looked(world, "GET", "/aisdk/hall/stream", headers=headers)
        assert status in (204, 403, 421)
        assert world.backend.requests == []
    world = await abandoned("Done.", allowed_hosts=["chat.test"])
    own = {"origin": "http://chat.test", "host": "chat.test", "sec-fetch-site": "same-origin"}
    assert (await looked(world, "GET", "/aisdk/hall/stream", headers=own))[0] == 200


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-type": "text/plain"}, b"", 415),
        ({"content-type": ""}, b"", 415),
        ({"content-type": "multipart/form-data; boundary=x"}, b"--x--", 415),
        ({"content-type": "application/json"}, b'{"text": "Hello"}', 400),
        ({"content-type": "application/json"}, b"", 200),
        ({"content-type": "application/json"}, b"{}", 200),
        ({"content-type": "text/plain", "idempotency-key": "k1"}, b"", 200),
        ({"content-type": "text/plain", "idempotency-key": ""}, b"", 415),
    ],
)
@asynchronous
async def test_what_a_page_of_another_site_can_send_does_not_go_on(
    headers: dict[str, str], body: bytes, status: int
) -> None:
    """A form, or a fetch without a preflight, has neither a JSON type nor a header of its own."""
    world = await abandoned("Done.")
    found, answer = await world.ask("POST", CURRENT, body, headers=headers)
    assert found == status
    assert len(world.backend.requests) == (status == 200)
    if status == 200:
        assert answer["text"] == "Done."


@pytest.mark.parametrize("front", FRONTS)
@asynchronous
async def test_a_page_that_comes_back_goes_on_with_what_a_dead_worker_left(front: str) -> None:
    """Each front end in its own way. A second request follows the turn, and does not begin one."""
    world = await abandoned(LOOK, "Done.")
    method, path, body, end = {
        "plain": ("POST", CURRENT, None, "done"),
        "aisdk": ("GET", "/aisdk/hall/stream", None, "finish"),
        "agui": ("POST", "/agui", EMPTY_RUN, "RUN_FINISHED"),
    }[front]
    async with world.stream(method, path, body) as first:
        await world.is_inside.wait()
        assert await view(world) == "running"
        async with world.stream(method, path, body) as second, world.stream("GET", CURRENT) as third:
            world.held.set()
            assert [(await one.events())[-1][0] for one in (first, second, third)] == [end, end, "done"]
    assert len(world.backend.requests) == 2
    assert (await world.ask("GET", f"{HALL}/messages"))[1][-1]["text"] == "Hm.Done."


@pytest.mark.parametrize("asks", [("GET", CURRENT), ("POST", CURRENT), ("GET", "/aisdk/hall/stream")])
@asynchronous
async def test_a_page_waits_at_another_worker_for_a_worker_that_dies(asks: tuple[str, str]) -> None:
    """A page that only looks is cut off without an end; the others see the turn go on."""
    world = await abandoned("Done.")
    lease = world.store.lease("ada/hall", 60)
    await lease.__aenter__()
    async with world.stream(*asks) as page:
        assert page.status == 200
        await lease.__aexit__(None, None, None)
        events = await page.events()
    if asks == ("GET", CURRENT):
        assert (events, world.backend.requests) == ([], [])
        assert await view(world) == "waiting"
    else:
        assert events[-1][0] in ("done", "finish")
        assert len(world.backend.requests) == 1


@asynchronous
async def test_a_turn_that_fails_elsewhere_is_not_gone_on_with() -> None:
    """The page that waited is cut off. Its user decides, as with every turn that failed."""
    world = World(LOOK, BackendError("away"), limits=NOT_KEPT)
    other = another(world)
    async with world.stream("POST", TURNS, said()) as first:
        await world.is_inside.wait()
        async with other.stream("POST", CURRENT) as page:
            world.held.set()
            await first.body()
            assert await page.events() == []
    assert other.backend.requests == []
    assert await looked(other, "POST", CURRENT) == (204, "none")
    assert (await other.ask("GET", HALL))[1]["status"] == "failed"


@asynchronous
async def test_the_stopped_turn_is_shown_as_such_to_an_agent() -> None:
    world = World(LOOK, limits=NOT_KEPT)
    async with world.stream("POST", TURNS, said()) as first:
        await world.is_inside.wait()
        await world.ask("DELETE", CURRENT)
        await first.body()
    async with world.stream("POST", "/agui", EMPTY_RUN) as run:
        events = await run.events()
    assert [name for name, _ in events][:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert events[-1][1]["outcome"] == {"type": "cancelled"}


@asynchronous
async def test_a_server_says_which_turns_run() -> None:
    """Its own, those that a relay shows, and those of a worker that has the lease."""
    async with relays("memory") as (one, two):
        world = World(LOOK, "Done.", relay=one)
        seen = [World(store=world.store, relay=two), another(world)]
        async with world.app.running():
            async with world.stream("POST", TURNS, said()) as first:
                await world.is_inside.wait()
                assert [await view(each) for each in (world, *seen)] == ["running"] * 3
                world.held.set()
                await first.body()
            assert [await view(each) for each in (world, *seen)] == ["none"] * 3


@asynchronous
async def test_a_server_that_ends_cuts_the_pages_that_wait() -> None:
    world = await abandoned()
    async with world.store.lease("ada/hall", 60):
        async with world.app.running():
            page = world.stream("POST", CURRENT)
            cut = await page.__aenter__()
        assert await cut.events() == []
        await page.__aexit__(None, None, None)
    assert world.backend.requests == []


@pytest.mark.parametrize("said_then", ["9" * 4000, "x", "", "²"])
@asynchronous
async def test_a_mark_that_is_none_of_ours_breaks_nothing(said_then: str) -> None:
    """A program may write any metadata. The turn that they name counts as stopped."""
    world = await abandoned()
    mark = {"goaitools.stopped": "ada/hall-1", "goaitools.stopped_said": said_then}
    await world.chat.conversation(world.store, "ada/hall").update(metadata=mark)
    assert await follows(world) == {(204, "stopped")}
    assert world.backend.requests == []
