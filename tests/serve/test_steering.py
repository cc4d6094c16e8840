"""With `gate="steer"` one may type on while it answers: the turn that runs reads the message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, tool, user
from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.serve import MemoryRelay, ServeLimits, serve
from goaitools_py.states import read_history
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.testing.scripted import AsyncScriptedExchange

from ._relays import relays
from ._world import World, asynchronous, late_world, said

HALL = "/conversations/hall"
TURNS = f"{HALL}/turns"
CURRENT = f"{TURNS}/current"
LOOK = Calls([("look", {"at": "door"})], text="Hm.")
REFUSED = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
WIRES = ("openai", "openai-responses", "anthropic")


def world_of(*steps: Any, **fields: Any) -> World:
    """A server that steers. On a busy machine its turns keep their leases, too."""
    return World(*steps, gate="steer", **{"lease_ttl": 30.0, **fields})


async def waiting(world: World, *texts: str) -> None:
    """Wait until these messages of the user are stored."""
    while True:
        found = (await world.ask("GET", f"{HALL}/messages"))[1]
        shown = [one["text"] for one in found if one["role"] == "user"]
        if all(text in shown for text in texts):
            return
        await asyncio.sleep(0.005)


async def users(world: World) -> list[str]:
    """The stored messages of the user, in order."""
    return [one["text"] for one in (await world.ask("GET", f"{HALL}/messages"))[1] if one["role"] == "user"]


def kinds(events: list[tuple[str, Any]]) -> list[str]:
    """The names of events, without texts."""
    return [name for name, _ in events if name != "text"]


@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_both_requests_get_the_turn_that_read_both_messages(wire: str) -> None:
    """As JSON, and as the same stream from its beginning. A redelivery is no second message."""
    backend = ScriptedBackend(LOOK, "Done.", wire=wire)
    world = world_of(backend=backend)
    async with world.stream("POST", TURNS, said()) as first:
        await world.is_inside.wait()
        second = asyncio.create_task(world.ask("POST", TURNS, said("And the window?", "m2")))
        again = asyncio.create_task(world.ask("POST", TURNS, said("And the window?", "m2")))
        await waiting(world, "And the window?")
        async with asyncio.TaskGroup() as group:
            stream = group.create_task(streamed(world, said("And the roof?", "m3")))
            await waiting(world, "And the roof?")
            world.held.set()
        events = await first.events()

    status, answer = await second
    assert (status, answer["text"], answer["turn"]) == (200, "Done.", "ada/hall-1")
    assert {**(await again)[1], "duplicate": 0} == {**answer, "duplicate": 0}
    assert [event[0] for event in stream.result()] == [event[0] for event in events]
    assert stream.result()[-1][1]["text"] == "Done."
    assert kinds(events) == ["started", "tool_call", "tool_result", "done"]
    assert await users(world) == ["Hello", "And the window?", "And the roof?"]
    assert len(backend.requests) == 2
    for id, text in (("m2", "And the window?"), ("m1", "Hello"), ("m3", "And the roof?")):
        assert (await world.ask("POST", TURNS, said(text, id)))[1]["text"].endswith("Done.")
    assert (await world.ask("POST", TURNS, said("Else", "m2")))[0] == 409
    assert await users(world) == ["Hello", "And the window?", "And the roof?"]


async def streamed(world: World, body: Any) -> list[tuple[str, Any]]:
    """Say something, and read the stream to its end."""
    async with world.stream("POST", TURNS, body) as answer:
        assert answer.status == 200
        return await answer.events()


def climbing() -> tuple[asyncio.Event, Any]:
    """A tool that climbs until the event is set."""
    released = asyncio.Event()

    @tool(idempotent=True)
    async def climb() -> str:
        """Climb, until the test has seen enough."""
        await released.wait()
        return "up"

    return released, climb


@asynccontextmanager
async def workers(place: str, *steps: Any) -> AsyncIterator[tuple[World, World, asyncio.Event]]:
    """The worker of the first message, and the worker of the second one: the same, or another one. A relay
    shows it the turn, unless the turn is "unseen". The event ends the tool "climb"."""
    released, climb = climbing()
    if place == "here":
        world = world_of(*steps, more_tools=[climb])
        yield world, world, released
        return
    found = nullcontext((None, None)) if place == "unseen" else relays(place)
    async with found as (one, two):
        first = world_of(*steps, more_tools=[climb], relay=one)
        second = world_of(more_tools=[climb], relay=two, store=first.store)
        async with first.app.running(), second.app.running():
            yield first, second, released


PLACES = ["here", "memory", pytest.param("redis", marks=pytest.mark.service)]


@pytest.mark.parametrize("place", PLACES)
@asynchronous
async def test_the_second_stream_is_live(place: str) -> None:
    """It begins as soon as the provider has taken the message, and shows text and calls while the turn runs.
    It is the first stream, with the same ids. So a reconnect goes on in it, at each worker."""
    climbs = Calls([("climb", {})], text="I climb.")
    async with workers(place, LOOK, climbs, "Done.") as (one, two, released):
        async with one.stream("POST", TURNS, said()) as first:
            await one.is_inside.wait()
            async with two.stream("POST", TURNS, said("Well?", "m2")) as second:
                await waiting(one, "Well?")
                one.held.set()
                seen, at_release = [], None
                async for event in second:
                    seen.append(event)
                    if event[1].get("name") == "climb":
                        at_release, _ = len(seen), released.set()
            assert seen == await first.events()
        assert at_release is not None
        assert "I climb." in "".join(data["text"] for name, data in seen[:at_release] if name == "text")
        assert kinds(seen) == ["started", *["tool_call", "tool_result"] * 2, "done"]
        for world in (one, two):
            last = {"last-event-id": seen[-2][1]["#"]}
            async with world.stream("GET", CURRENT, headers=last) as rest:
                assert await rest.events() == seen[-1:]
        for world in (one, two):
            assert (await world.ask("POST", TURNS, said("Well?", "m2")))[1]["text"].endswith("Done.")
        assert len(one.backend.requests) + len(two.backend.requests) == 3 + (one is two) * 3
        assert await users(one) == ["Hello", "Well?"]


@pytest.mark.parametrize("place", ["memory", pytest.param("redis", marks=pytest.mark.service)])
@pytest.mark.parametrize("comes_late", [False, True])
@asynchronous
async def test_a_message_that_two_workers_get_at_once(place: str, comes_late: bool) -> None:
    """Both streams end, and have the same pieces."""
    async with relays(place) as (one, two):
        world = late_world(LOOK, "Done.") if comes_late else world_of(LOOK, "Done.")
        world.held.set()
        other = world_of(store=world.store)
        world.app, other.app = world.twin(one), world.twin(two)
        async with world.app.running(), other.app.running():
            found = await asyncio.gather(streamed(world, said()), streamed(other, said()))
    told = [[(name, data.get("text")) for name, data in events] for events in found]
    assert told[0] == told[1]
    assert told[0][-1] == ("done", "Done.")
    assert len(world.backend.requests) == 2 + comes_late


@asynchronous
async def test_without_the_gate_it_is_refused() -> None:
    world = World(LOOK, "Done.")
    async with world.stream("POST", TURNS, said()):
        await world.is_inside.wait()
        assert (await world.ask("POST", TURNS, said("Else", "m2")))[0] == 409
        world.held.set()


@pytest.mark.parametrize("place", PLACES)
@asynchronous
async def test_a_message_that_came_too_late_gets_a_turn_of_its_own(place: str) -> None:
    """The provider refused it in the turn that ran. Its stream is that of its own turn."""
    async with workers(place, LOOK, REFUSED, "Done.", "Yes.") as (one, two, _):
        two.backend.then("Yes.")
        async with one.stream("POST", TURNS, said()) as first:
            await one.is_inside.wait()
            async with asyncio.TaskGroup() as group:
                second = group.create_task(streamed(two, said("And?", "m2")))
                await waiting(one, "And?")
                one.held.set()
            assert (await first.events())[-1][1]["text"].endswith("Done.")

        assert second.result()[0][1]["turn"] == "ada/hall-2"
        assert second.result()[-1][1]["text"] == "Yes."
        assert await users(one) == ["Hello", "And?"]
        for world in (one, two):
            async with world.stream("GET", CURRENT) as current:
                assert await current.events() == second.result()


@pytest.mark.parametrize("place", [*PLACES, "unseen"])
@asynchronous
async def test_a_stop_ends_the_turn_that_has_both_messages(place: str) -> None:
    """No model is asked again, although the second request waited for its turn, here or at another worker,
    with a relay and without one."""
    async with workers(place, LOOK, Calls([("climb", {})]), "Unused.") as (one, two, _):
        async with one.stream("POST", TURNS, said()) as first:
            await one.is_inside.wait()
            async with two.stream("POST", TURNS, said("And?", "m2")) as second:
                await waiting(one, "And?")
                one.held.set()
                events = aiter(first)
                while (await anext(events))[1].get("name") != "climb":
                    pass
                assert await one.ask("DELETE", CURRENT) == (200, {"stopped": True})
                assert [name async for name, _ in events][-1] == "stopped"
                assert kinds(await second.events())[-1] == "stopped"
        while two.app._hub._tasks:
            await asyncio.sleep(0.01)

        assert len(one.backend.requests) == 2
        assert two is one or not two.backend.requests
        for world in (one, two):
            assert (await world.ask("GET", HALL))[1]["turn_status"] == "stopped"
        assert await users(one) == ["Hello", "And?"]


@asynchronous
async def test_a_stop_before_the_message_is_read_leaves_it_a_turn_of_its_own() -> None:
    """The user has said it since, and no reply to it was stopped."""
    world = world_of(LOOK, "Own.")
    async with world.stream("POST", TURNS, said()):
        await world.is_inside.wait()
        async with world.stream("POST", TURNS, said("And?", "m2")) as second:
            await waiting(world, "And?")
            assert await world.ask("DELETE", CURRENT) == (200, {"stopped": True})
            assert (await second.events())[-1][1]["text"] == "Own."
    assert await users(world) == ["Hello", "And?"]
    assert (await world.ask("GET", HALL))[1]["turn_status"] == "none"


@asynchronous
async def test_an_edit_or_an_answer_does_not_steer() -> None:
    world = world_of("Hi.", LOOK, "Done.")
    await world.ask("POST", TURNS, said())
    async with world.stream("POST", TURNS, said("Look", "m2")) as first:
        await world.is_inside.wait()
        edit = said("Other", "m3", edit="m1")
        assert (await world.ask("POST", TURNS, edit))[0] == 409
        again = said("Hello", "m4", again="ada/hall-1")
        assert (await world.ask("POST", TURNS, again))[0] == 409
        world.held.set()
        await first.body()
    assert await users(world) == ["Hello", "Look"]


@pytest.mark.parametrize("has_relay", [False, True])
@asynchronous
async def test_a_message_to_another_worker_steers_too(has_relay: bool) -> None:
    """Its client gets the turn at its end."""
    relay = MemoryRelay() if has_relay else None
    world = world_of(LOOK, "Done.", relay=relay)
    twin = world_of(store=world.store, relay=MemoryRelay() if has_relay else None)
    async with world.stream("POST", TURNS, said()) as first:
        await world.is_inside.wait()
        async with asyncio.TaskGroup() as group:
            second = group.create_task(streamed(twin, said("And?", "m2")))
            await waiting(world, "And?")
            async with twin.stream("GET", CURRENT) as current:
                world.held.set()
                await first.body()
                assert (await current.events())[-1][1]["text"].endswith("Done.")
    assert second.result()[-1][1]["text"].endswith("Done.")
    assert second.result()[0][1]["turn"] == "ada/hall-1"
    assert twin.backend.requests == []
    assert await users(world) == ["Hello", "And?"]


@asynchronous
async def test_front_ends_steer() -> None:
    """Each in its format: the AI SDK and AG-UI."""
    for front, body in (
        ("aisdk", {"id": "hall", "messages": [
            {"id": "m2", "role": "user", "parts": [{"type": "text", "text": "And?"}]}]}),
        ("agui", {"threadId": "hall", "runId": "r2", "state": {}, "tools": [], "context": [],
            "forwardedProps": {}, "messages": [{"id": "m2", "role": "user", "content": "And?"}]}),
    ):  # fmt: skip
        world = world_of(LOOK, "Done.")
        async with world.stream("POST", TURNS, said()) as first:
            await world.is_inside.wait()
            async with asyncio.TaskGroup() as group:
                second = group.create_task(raw(world, f"/{front}", body))
                await waiting(world, "And?")
                world.held.set()
            await first.body()
        assert b"Done." in second.result()
        assert await users(world) == ["Hello", "And?"]
        assert len(world.backend.requests) == 2


async def raw(world: World, path: str, body: Any) -> bytes:
    """The body of a stream."""
    async with world.asked("POST", path, body) as answer:
        assert answer.status == 200
        return await answer.body()


@asynchronous
async def test_a_server_that_stops_loses_no_message() -> None:
    """Both turns are cut off, and the next server goes on."""
    world = world_of(LOOK, "Done.", limits=ServeLimits(grace_seconds=0))
    second = said("And?", "m2")
    async with world.app.running(), world.stream("POST", TURNS, said()), world.stream("POST", TURNS, second):
        await world.is_inside.wait()
        await waiting(world, "And?")
    after = World("Later.", "More.", store=world.store, gate="steer")
    after.held.set()
    async with after.app.running():
        async with after.stream("POST", CURRENT) as answer:
            assert answer.status == 200
            await answer.body()
        answer_again = (await after.ask("POST", TURNS, said("And?", "m2")))[1]
    assert answer_again["text"]
    assert await users(after) == ["Hello", "And?"]


def row_of_a_turn_that_was_over(wire: str) -> bytes:
    """Of a process that died behind the claim of a message that came at the end of its turn."""
    store, rows = MemoryStore(), list[bytes]()
    other = Chat(ScriptedBackend(wire=wire)).conversation(store, "ada/hall", gate="steer")

    def first(_: Any) -> str:
        other.append(user("Late."))
        return "First."

    def second(_: Any) -> str:
        found = store.load("ada/hall")
        rows.append(b"" if found is None else found.blob)
        return "Second."

    with Chat(ScriptedBackend(first, second, wire=wire)) as chat:
        chat.conversation(store, "ada/hall", gate="steer").send("Hello", turn_id="m1")
    return rows[0]


@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_a_reply_that_is_stored_is_streamed_once(wire: str) -> None:
    """The message is posted again after a crash: its stream has the stored reply. What came later waits."""
    store = AsyncMemoryStore()
    await store.save("ada/hall", await asyncio.to_thread(row_of_a_turn_that_was_over, wire), expected=None)
    world = world_of(backend=ScriptedBackend("Second.", wire=wire), store=store)
    async with world.app.running():
        events = await streamed(world, said())
        assert (await world.ask("GET", HALL))[1]["turn_status"] == "waiting"
        async with world.stream("POST", CURRENT) as answer:
            assert b"Second." in await answer.body()
    assert "".join(data["text"] for name, data in events if name == "text") == "First."
    assert events[-1][1]["text"] == "First."
    assert len(world.backend.requests) == 1


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("brings", ["a sender", "an application"])
@asynchronous
async def test_a_stop_before_the_call_for_late_messages(wire: str, brings: str) -> None:
    """It comes from another worker when the turn has claimed them. The turn before is complete. Nobody asks
    for a reply to a message of an application. One that a client has sent gets a turn of its own."""

    class Stopping(AsyncMemoryStore):
        async def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
            version = await super().save(key, blob, expected=expected)
            if not stops and any(m.text == "First." for m in read_history(blob).all_messages()):
                stops.append(asyncio.create_task(twin.ask("DELETE", CURRENT)))
                while not (stops[0].done() or await self.stop_requested(key)):
                    await asyncio.sleep(0.005)
            return version

    class Interrupted(ScriptedBackend):
        async def asend(self, request: ModelRequest) -> AsyncScriptedExchange:
            if not senders and brings == "a sender":
                senders.append(asyncio.create_task(world.ask("POST", TURNS, said("Late.", "m2"))))
                await waiting(world, "Late.")
            elif not senders:
                chat = AsyncChat(ScriptedBackend(wire=wire))
                await chat.conversation(world.store, "ada/hall", gate="steer").append(user("Late."))
            return await super().asend(request)

    stops: list[asyncio.Task[Any]] = []
    senders: list[asyncio.Task[Any]] = []
    backend = Interrupted("First.", "To late.", wire=wire)
    world = world_of(backend=backend, store=Stopping())
    twin = world_of(backend=ScriptedBackend(wire=wire), store=world.store)
    async with world.app.running():
        first = (await world.ask("POST", TURNS, said()))[1]
        second = (await senders[0])[1] if senders else {}
        assert (await stops[0])[1] == {"stopped": True}
        status = (await world.ask("GET", HALL))[1]["turn_status"]
        again = (await world.ask("POST", TURNS, said()))[1]
    assert (again["status"], again["text"]) == ("complete", "First.")
    # The note of the stop may meet the claim in the row: then the message waits, and the turn before is over.
    assert first["status"] in (("complete", "stopped") if senders else ("stopped",))
    assert second.get("text", "") == ("To late." if senders else "")
    assert status == ("none" if senders else "stopped")
    assert len(backend.requests) == (2 if senders else 1)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("named", ["", "ada/hall-1", "ada/hall-2"])
@pytest.mark.parametrize("text", ["Hello", "Late."])
@asynchronous
async def test_a_reply_to_two_turns_is_written_again(wire: str, named: str, text: str) -> None:
    """A client that has followed both shows them as one reply. Its message tells which turn it means."""

    async def come(_: Any) -> None:
        chat = AsyncChat(ScriptedBackend(wire=wire))
        await chat.conversation(world.store, "ada/hall", gate="steer").append(user("Late."))

    class Steered(ScriptedBackend):
        async def asend(self, request: ModelRequest) -> AsyncScriptedExchange:
            if not self.requests:
                await come(request)
            return await super().asend(request)

    world = world_of(backend=Steered("First.", "Second.", "Anew.", wire=wire))
    async with world.app.running():
        assert (await world.ask("POST", TURNS, said()))[1]["text"] == "Second."
        answer = (await world.ask("POST", TURNS, {"text": text, "turn_id": "m1", "again": named}))[1]
        stored = await world.store.load("ada/hall")
    assert answer["text"] == "Anew."
    assert stored is not None
    before = [] if text == "Hello" else ["Hello", "First."]
    assert [m.text for m in read_history(stored.blob).all_messages()] == [*before, text, "Anew."]


def test_what_the_gate_needs() -> None:
    """A store with leases."""
    chat: Any = AsyncChat(ScriptedBackend())

    class Plain:
        async def load(self, key: str) -> Any: ...

        async def save(self, key: str, blob: bytes, *, expected: int | None) -> int: ...

    with pytest.raises(TypeError, match="leases"):
        serve(chat, Plain(), key=World.whose, gate="steer")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs a store"):
        serve(chat, None, key=World.whose, gate="steer")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="'reject' or 'steer'"):
        serve(chat, AsyncMemoryStore(), key=World.whose, gate="queue")  # type: ignore[call-overload]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("named", ["ada/hall-1", "ada/hall-2"])
@asynchronous
async def test_a_reply_is_written_again_once(wire: str, named: str) -> None:
    """The same request comes twice. The second one finds another turn under this name, and is a duplicate."""
    world = late_world("Second.", "Anew.", "Never.", wire=wire)
    body = {"text": "Late.", "turn_id": "m5", "again": named}
    async with world.app.running():
        await world.ask("POST", TURNS, said())
        answers = [(await world.ask("POST", TURNS, body))[1]["text"] for _ in range(2)]
        other = world.twin(None)
        async with other.running():
            world.app = other
            answers.append((await world.ask("POST", TURNS, body))[1]["text"])
        stored = await world.store.load("ada/hall")
    assert answers == ["Anew."] * 3
    assert stored is not None
    assert [m.text for m in read_history(stored.blob).all_messages()] == ["Hello", "First.", "Late.", "Anew."]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("place", ["here", "elsewhere"])
@asynchronous
async def test_answers_come_twice_behind_a_turn_of_later_messages(wire: str, place: str) -> None:
    """They belong to the turn before, which is a part of the same reply."""

    async def late(_: Any) -> None:
        chat = AsyncChat(ScriptedBackend(wire=wire))
        await chat.conversation(world.store, "ada/hall", gate="steer").append(user("Late."))

    class Interrupted(ScriptedBackend):
        async def asend(self, request: ModelRequest) -> AsyncScriptedExchange:
            if len(self.requests) == 1:
                await late(request)
            return await super().asend(request)

    world = world_of(backend=Interrupted(Calls([("fire", {"at": "y"})]), "First.", "Second.", wire=wire))
    async with world.app.running():
        waits = (await world.ask("POST", TURNS, said()))[1]["pending"]
        answers = {"answers": {call["id"]: {"approve": True} for call in waits}}
        first = await world.ask("POST", f"{HALL}/answers", answers)
        if place == "elsewhere":
            world.app = world.twin(None)
        async with world.app.running():
            again = await world.ask("POST", f"{HALL}/answers", answers)
    assert (first[0], first[1]["text"]) == (200, "Second.")
    assert (again[0], again[1]["turn"]) == (200, "ada/hall-1")
    assert world.looked == ["y"]
    assert len(world.backend.requests) == 3


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("front", ["plain", "aisdk", "agui"])
@asynchronous
async def test_a_turn_that_begins_behind_a_claim_has_its_own_pieces(wire: str, front: str) -> None:
    """A process died behind the claim of a later message. The turn before is over, and not told once more."""
    store = AsyncMemoryStore()
    await store.save("ada/hall", await asyncio.to_thread(row_of_a_turn_that_was_over, wire), expected=None)
    world = world_of(backend=ScriptedBackend("Second.", wire=wire), store=store)
    asks: dict[str, Any] = {"threadId": "hall", "runId": "r1", "messages": [], "tools": [], "context": []}
    async with world.app.running():
        if front == "plain":
            async with world.stream("POST", CURRENT) as answer:
                told = await answer.body()
        elif front == "aisdk":
            async with world.asked("GET", "/aisdk/hall/stream") as answer:
                told = await answer.body()
        else:
            told = await raw(world, "/agui", {**asks, "state": {}, "forwardedProps": {}})
        stored = (await world.ask("GET", f"{HALL}/messages"))[1]
    assert b"Second." in told
    assert told.count(b"First.") == (front == "agui")  # in the snapshot of the whole conversation
    assert [one["text"] for one in stored if one["role"] == "assistant"] == ["First.", "Second."]


@pytest.mark.parametrize("named", ["", "ada/hall-1", "m1"])
@pytest.mark.parametrize("later", [False, True])
@asynchronous
async def test_the_same_request_for_a_new_reply_comes_twice(named: str, later: bool) -> None:
    """Here and at another worker, and after a later turn: it is a duplicate, and takes nothing away."""
    world = world_of("Old.", "Anew.", *(["More."] if later else []), "Never.", "Never.")
    body = {"text": "Hello", "turn_id": "m5", "again": named}
    async with world.app.running():
        await world.ask("POST", TURNS, said())
        found = [(await world.ask("POST", TURNS, body))[1]["text"]]
        if later:
            await world.ask("POST", TURNS, said("Later", "m6"))
        found.append((await world.ask("POST", TURNS, body))[1]["text"])
        world.app = world.twin(None)
        async with world.app.running():
            found.append((await world.ask("POST", TURNS, body))[1]["text"])
    assert found == ["Anew."] * 3
    assert await users(world) == ["Hello", *(["Later"] if later else [])]
    assert len(world.backend.requests) == 2 + later


@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_a_message_comes_again_while_a_turn_of_its_call_is_unfinished(wire: str) -> None:
    """A process died while the call of a later turn ran. No result is told that the turn may still get."""
    rows: list[bytes] = []
    world = late_world(LOOK, "Done.", wire=wire)
    async with world.app.running(), world.stream("POST", TURNS, said()):
        await world.is_inside.wait()
        stored = await world.store.load("ada/hall")
        rows.append(b"" if stored is None else stored.blob)
        world.held.set()
    store = AsyncMemoryStore()
    await store.save("ada/hall", rows[0], expected=None)
    other = world_of(backend=ScriptedBackend("Done.", wire=wire), store=store)
    async with other.app.running():
        events = await streamed(other, said())
    assert "First." in "".join(data["text"] for name, data in events if name == "text")
    assert [name for name, _ in events if name in ("tool_result", "pending")] == []
    assert len(other.backend.requests) == 0
