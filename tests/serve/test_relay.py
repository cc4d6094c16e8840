"""Several workers over one store: a relay shows each of them the turns of the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import PendingCall, ToolCall
from goaitools_py.backends import BackendError
from goaitools_py.frontends import Called, Problem, Returned, Said, Step, Waits
from goaitools_py.prices import Bill
from goaitools_py.serve import MemoryRelay, Opened, RedisRelay, Relay, RelayLostError, ServeLimits
from goaitools_py.serve.relay_codec import Ended, Found, RunAnnouncer, read_notes, write_notes
from goaitools_py.serve.runs import Run
from goaitools_py.testing import Calls
from goaitools_py.types.errors import GoAIToolsError
from goaitools_py.types.events import Compacted, ModelReplied, TextDelta, TurnCompleted
from goaitools_py.types.messages import Usage
from goaitools_py.types.result import ChatResult, CompactionReport
from goaitools_py.types.turn_warnings import TurnWarning

from ._relays import relays
from ._world import World, asynchronous, said

HALL = "/conversations/hall"
CURRENT = f"{HALL}/turns/current"
TURNS = f"{HALL}/turns"
LOOK = Calls([("look", {"at": "door"})], text="Hm.")
KINDS = ["memory", pytest.param("redis", marks=pytest.mark.service)]


@asynccontextmanager
async def workers(kind: str, *steps: Any, other: Sequence[Any] = ()) -> AsyncIterator[tuple[World, World]]:
    """Two workers over one store."""
    async with relays(kind) as (one, two):
        first = World(*steps, relay=one)
        second = World(*other, store=first.store, relay=two)
        async with first.app.running(), second.app.running():
            yield first, second


def kinds(events: list[tuple[str, Any]]) -> list[str]:
    return [name for name, _ in events if name != "text"]


# ------------------------------------------------------------------------------------------ the workers


@pytest.mark.parametrize("kind", KINDS)
@asynchronous
async def test_a_page_that_is_loaded_again_at_another_worker_replays_and_follows(kind: str) -> None:
    """It sees the first words while the tool still runs, and at the end the same events with the same ids."""
    async with workers(kind, LOOK, "Done.") as (one, two):
        async with one.stream("POST", TURNS, said()) as first:
            await one.is_inside.wait()
            async with two.stream("GET", CURRENT) as second:
                seen = []
                async for event in second:
                    seen.append(event)
                    if event[0] == "tool_call":
                        assert not one.held.is_set()
                        one.held.set()
                assert seen == await first.events()
        assert kinds(seen) == ["started", "tool_call", "tool_result", "done"]
        async with two.stream("GET", CURRENT, headers={"last-event-id": seen[-2][1]["#"]}) as rest:
            assert await rest.events() == seen[-1:]
        assert two.backend.requests == []


@pytest.mark.parametrize("kind", KINDS)
@asynchronous
async def test_a_stop_reaches_the_worker_that_runs_the_turn(kind: str) -> None:
    """Also inside a tool. Nobody goes on with the turn, at either worker."""
    async with workers(kind, LOOK, "Other.") as (one, two):
        async with one.stream("POST", TURNS, said()) as first:
            await one.is_inside.wait()
            async with two.stream("GET", CURRENT) as second:
                events = aiter(second)
                while (await anext(events))[0] != "tool_call":
                    pass
                assert await two.ask("DELETE", CURRENT) == (200, {"stopped": True})
                assert [name async for name, _ in events] == ["tool_result", "stopped"]
            assert kinds(await first.events())[-2:] == ["tool_result", "stopped"]
        for world in (one, two):
            assert await world.ask("GET", CURRENT) == (204, None)
            assert (await world.ask("DELETE", CURRENT))[1] == {"stopped": False}
        assert (await one.ask("POST", TURNS, said("Next", "m2")))[1]["text"] == "Other."


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@asynchronous
async def test_a_message_that_comes_to_two_workers_is_one_turn(kind: str, accept: str) -> None:
    """At the same moment, while it runs, and after its end. Both get the reply."""
    how = {"headers": {"accept": accept}}
    async with workers(kind, LOOK, "Done.", other=[LOOK, "Done."]) as (one, two):

        async def sent(world: World) -> Any:
            async with world.asked("POST", TURNS, said(), **how) as answer:
                assert answer.status == 200
                return await (answer.json() if "json" in accept else answer.events())

        tasks = [asyncio.create_task(sent(world)) for world in (one, two)]
        inside = [asyncio.create_task(world.is_inside.wait()) for world in (one, two)]
        await asyncio.wait(inside, return_when=asyncio.FIRST_COMPLETED)
        tasks += [asyncio.create_task(sent(world)) for world in (one, two)]
        assert [(await world.ask("POST", TURNS, said("Else")))[0] for world in (one, two)] == [409, 409]
        assert [(await world.ask("POST", TURNS, said("Else", "m2")))[0] for world in (one, two)] == [409, 409]
        for world in (one, two):
            world.held.set()
        found = await asyncio.gather(*tasks)
        found += [await sent(world) for world in (one, two)]
        for task in inside:
            task.cancel()

        assert all(one == found[0] for one in found)
        assert sorted(len(world.backend.requests) for world in (one, two)) == [0, 2]
        assert sorted(len(world.looked) for world in (one, two)) == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
@asynchronous
async def test_an_answer_that_comes_to_both_workers_counts_once(kind: str) -> None:
    async with workers(kind, Calls([("fire", {"at": "y"})]), other=["Hit."]) as (one, two):
        await one.ask("POST", TURNS, said())
        yes = {"answers": {"call_1_0": {"approve": True}}}
        async with two.stream("POST", f"{HALL}/answers", yes) as answer:
            first = await answer.events()
        async with one.stream("POST", f"{HALL}/answers", yes) as answer:
            again = await answer.events()

        assert again == first
        assert kinds(first) == ["started", "tool_result", "done"]
        assert (one.looked, two.looked) == ([], ["y"])


@pytest.mark.parametrize("kind", KINDS)
@asynchronous
async def test_a_turn_that_fails_is_the_same_problem_everywhere(kind: str) -> None:
    """A page at the other worker gets the error. Then the same message goes on, at any worker."""
    async with workers(kind, LOOK, BackendError("away"), other=["Done."]) as (one, two):
        async with one.stream("POST", TURNS, said()) as first:
            await one.is_inside.wait()
            async with two.stream("GET", CURRENT) as second:
                seen = aiter(second)
                await anext(seen)
                one.held.set()
                events = await first.events()
                assert [event async for event in seen][-1] == events[-1]
        assert events[-1][1]["type"] == "urn:goaitools:ProviderUnavailableError"

        async with two.stream("POST", TURNS, said()) as answer:
            assert kinds(await answer.events()) == ["started", "tool_call", "tool_result", "done"]
        assert two.looked == []


@asynchronous
async def test_a_new_turn_at_another_worker_is_the_one_that_is_followed() -> None:
    """A worker that keeps the end of an older turn does not show it in the place of the newest one."""
    async with workers("memory", "One.", other=[LOOK, "Two."]) as (one, two):
        await one.ask("POST", TURNS, said())
        async with two.stream("POST", TURNS, said("More", "m2")):
            await two.is_inside.wait()
            async with one.stream("GET", CURRENT) as page:
                two.held.set()
                assert (await page.events())[-1][1]["text"] == "Two."


class Broken:
    """A relay that is away."""

    keep_every = 0.001

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any) -> None:
            raise OSError("Harrogate-4711")

        async def none(*_: Any) -> AsyncIterator[Any]:
            raise OSError("Harrogate-4711")
            yield

        return none if name in ("follow", "stops") else fail


@pytest.mark.parametrize("fails", ["open", "put", "end", "find"])
@asynchronous
async def test_a_relay_that_fails_costs_no_turn(fails: str, caplog: Any) -> None:
    class Halfway(MemoryRelay):
        pass

    setattr(Halfway, fails, getattr(Broken(), fails))
    for relay in (Halfway(), Broken()):
        world = World(LOOK, "Done.", relay=relay)
        world.held.set()
        with caplog.at_level(logging.WARNING, "goaitools_py"):
            async with world.app.running(), world.stream("POST", TURNS, said()) as answer:
                assert kinds(await answer.events()) == ["started", "tool_call", "tool_result", "done"]
                assert (await world.ask("GET", HALL))[1]["status"] == "complete"
                assert (await world.ask("DELETE", CURRENT))[1] == {"stopped": False}
        assert "OSError" in caplog.text
        assert "Harrogate" not in caplog.text


class Interrupted(MemoryRelay):
    """A relay that fails once, at one call, and has lost all notes and announcements then."""

    keep_every = 0.01

    def __init__(self, name: str, at: int) -> None:
        super().__init__()
        self.left = {name: at}
        self.opened: list[int] = []

    def _count(self, name: str) -> None:
        self.left[name] = self.left.get(name, -1) - 1
        if self.left[name] == 0:
            self._runs.clear()
            raise OSError

    async def open(self, key: str, run: Opened) -> None:
        self._count("open")
        self.opened.append(run.again)
        await super().open(key, run)

    async def put(self, run: Opened, note: bytes) -> None:
        self._count("put")
        await super().put(run, note)

    async def keep(self, key: str, run: Opened) -> None:
        self._count("keep")

    async def end(self, key: str, run: Opened, outcome: str) -> None:
        self._count("end")
        await super().end(key, run, outcome)

    async def follow(self, key: str, run: Opened) -> AsyncIterator[Sequence[bytes]]:
        async for notes in super().follow(key, run):
            self._count("follow")
            yield notes


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("name", ["open", "put", "keep", "end", "follow"])
@asynchronous
async def test_a_relay_that_fails_once_shows_the_whole_turn_all_the_same(name: str, at: int) -> None:
    """A page at the other worker gets each event once, in the order of the first worker's pages. Only a page
    that comes while nothing is announced may get the reply from the store."""
    relay = Interrupted(name, at)
    one = World(LOOK, "Done.", relay=relay)
    two = World(store=one.store, relay=relay)
    async with one.app.running(), two.app.running(), one.stream("POST", TURNS, said()) as first:
        await one.is_inside.wait()
        while not relay.opened:
            await asyncio.sleep(0)
        pages = [asyncio.create_task(_whole(two)) for _ in range(2)]
        for _ in range(20):
            await asyncio.sleep(0.005)
        one.held.set()
        events = await first.events()
        for page in pages:
            found = await page
            assert found == events or at == 1
            assert kinds(found) == kinds(events)
            assert "".join(data["text"] for name, data in found if name == "text") == "Hm.Done."
    if at == 1 and name != "follow":
        assert relay.opened == ([1] if name == "open" else [0, 1])


async def _whole(world: World) -> list[tuple[str, Any]]:
    """Read a page's stream to its end. It comes back as often as it breaks off."""
    seen: list[tuple[str, Any]] = []
    while not seen or seen[-1][0] != "done":
        last = {"last-event-id": seen[-1][1]["#"]} if seen else {}
        async with world.stream("GET", CURRENT, headers=last) as page:
            assert page.status == 200
            seen += await page.events()
    return seen


@asynchronous
async def test_a_turn_that_always_has_news_is_alive() -> None:
    """Its announcement would end otherwise, and no other worker would find the turn."""
    relay, run = Interrupted("", 0), Run("r1", "hall", "ada")
    telling = RunAnnouncer(run, "w1", relay)
    await telling.announce()
    task = asyncio.create_task(telling.tell_all())
    while relay.left.get("keep", 0) > -3:
        run.tell(TextDelta(text="word ", iteration=1))
        await asyncio.sleep(0)
    run.finish()
    run.end()
    await task
    assert relay.left["put"] < relay.left["keep"]


@asynchronous
async def test_a_page_that_has_lost_its_stream_gets_the_stored_reply() -> None:
    """Once: a page that has the last event gets nothing more, and neither does a page that names no event."""
    world = World("Done.", "More.", limits=ServeLimits(keep_seconds=0))
    async with world.stream("POST", TURNS, said()) as first:
        events = await first.events()
    await asyncio.sleep(0.01)
    for headers in ({}, {"last-event-id": events[-1][1]["#"]}):
        assert await world.ask("GET", CURRENT, headers=headers) == (204, None)
    for method in ("GET", "POST"):
        lost = {"last-event-id": events[0][1]["#"], "idempotency-key": "k"}
        async with world.stream(method, CURRENT, headers=lost) as page:
            again = await page.events()
        assert kinds(again) == ["started", "done"]
        assert again[-1][1]["text"] == "Done."
        seen = {"last-event-id": again[-1][1]["#"]}
        assert await world.ask("GET", CURRENT, headers=seen) == (204, None)
    assert len(world.backend.requests) == 1


@asynchronous
async def test_a_worker_that_stops_cuts_the_pages_that_follow_another_one() -> None:
    """They come back to a worker that is there. The turn itself does not notice."""
    async with relays("memory") as (one, two):
        first, second = World(LOOK, "Done.", relay=one), World(relay=two)
        second.store = second.app._store = first.store
        async with first.app.running(), first.stream("POST", TURNS, said()) as own:
            await first.is_inside.wait()
            async with second.app.running():
                page = second.stream("GET", CURRENT)
                cut = await page.__aenter__()
                events = aiter(cut)
                assert (await anext(events))[0] == "started"
            assert "tool_call" in [name async for name, _ in events]
            assert not first.held.is_set()
            await page.__aexit__(None, None, None)
            first.held.set()
            assert (await own.events())[-1][0] == "done"


@pytest.mark.service
@asynchronous
async def test_a_worker_that_dies_is_noticed() -> None:
    """Its page is cut off without an end; it comes back, and another worker goes on with the turn."""
    async with relays("redis", alive_seconds=0.05) as (dead, alive):
        world = World("Done.", relay=alive, limits=ServeLimits(keep_alive_seconds=0.05))
        run = Opened(id="r1", worker="w1", turn_id="m1")
        await dead.open("ada/hall", run)
        await dead.put(run, write_notes(0, [Found((Step(), Said("Hm.")))]))
        await dead.put(run, write_notes(1, [ModelReplied(usage=Usage(), message_count=1)]))
        async with world.stream("GET", CURRENT) as page:
            if page.status == 200:  # else it was dead before the page came
                assert "done" not in kinds(await page.events())

        assert (await world.ask("POST", TURNS, said()))[1]["text"] == "Done."


# ------------------------------------------------------------------------------------- the relay itself


@pytest.mark.parametrize("kind", KINDS)
@asynchronous
async def test_what_a_relay_does(kind: str) -> None:
    async with relays(kind) as (one, two):
        run = Opened(id="r1", worker="w1", turn_id="m1", said="ab", answered=("c1",))
        assert await two.find("hall") is None
        await one.open("hall", run)
        assert await two.find("hall") == run
        await one.put(run, b"\x00first")
        read: list[bytes] = []
        async with aclosing(two.follow("hall", run)) as follow:
            async for notes in follow:
                read += notes
                if read == [b"\x00first"]:
                    await one.keep("hall", run)
                    await one.put(run, b"second")
                    await one.end("hall", run, "good")
        assert read == [b"\x00first", b"second"]
        assert (await two.find("hall")).outcome == "good"

        other = Opened(id="r2", worker="w2")
        await two.open("hall", other)
        await two.stop(run)
        async with aclosing(one.stops("w1")) as stops:
            assert await anext(stops) == "r1"
        assert (await one.find("hall")) == other
        lost = Opened(id="r3", worker="w3")
        with pytest.raises(RelayLostError):
            await anext(one.follow("hall", lost))


@pytest.mark.service
@asynchronous
async def test_a_run_that_is_over_does_not_take_the_place_of_a_newer_one() -> None:
    """Its worker lost the lease, and ends late. The keys go by themselves."""
    async with relays("redis", keep_seconds=0.05) as (one, two):
        old, new = Opened(id="r1", worker="w1"), Opened(id="r2", worker="w2")
        await one.open("hall", old)
        await two.open("hall", new)
        await one.keep("hall", old)
        await one.end("hall", old, "good")
        assert await one.find("hall") == new
        await two.end("hall", new, "bad")
        while await one.find("hall") is not None:
            await asyncio.sleep(0.01)


@asynchronous
async def test_a_run_whose_beginning_is_gone_cannot_be_followed() -> None:
    """The relay has dropped it, or another release wrote it: the page is cut off, and no turn begins."""
    relay = MemoryRelay()
    for at, entry in enumerate((write_notes(3, [Ended()]), b"\xff", write_notes(0, []))):
        run = Opened(id=f"r{at}", worker="w1")
        await relay.open("ada/hall", run)
        await relay.put(run, entry)
        world = World(relay=relay)
        page = asyncio.create_task(world.ask("GET", CURRENT))
        if entry == write_notes(0, []):
            await relay.end("ada/hall", run, "good")
        assert (await page) == (204, None) or (await page)[0] == 200
        assert world.backend.requests == []


def test_notes_are_read_as_they_were_written() -> None:
    result: ChatResult[Any] = ChatResult(
        text="Done.", state=b"", status="awaiting_tools", finish_reason="stop", duplicate=True, model="m",
        pending=(PendingCall(id="c", name="fire", arguments="{}", reason="approval"),),
        usage=Usage(input_tokens=3), total_usage=Usage(input_tokens=4), total_cost_usd=Decimal("0.1"),
        warnings=(TurnWarning("tools_changed", "they did"),), request_ids=("r1",), context_fraction=0.5,
        bill=Bill(booked=(Decimal("0.2"), Decimal("0.3"))),
    )  # fmt: skip
    call = ToolCall(id="c", name="fire", arguments="{}")
    notes = [
        Found((Step(), Said("Hm."), Called(call), Returned("c", "ok", "{}"), Waits("d", "approval"))),
        ModelReplied(conversation_id="a", usage=Usage(output_tokens=1), message_count=2, tool_calls=(call,)),
        Compacted(report=CompactionReport(outcome="compacted", removed_turns=2, error=OSError("x"))),
        Ended(was_stopped=True, problem=Problem(code="A", status=409, title="B", retry_after=1.5)),
    ]  # fmt: skip

    at, read = read_notes(write_notes(7, [*notes, TurnCompleted(result=result, turn_ref="a-1")]))

    assert (at, read[0], read[1], read[3]) == (7, notes[0], notes[1], notes[3])
    assert read[2].report.removed_turns == 2  # type: ignore[union-attr]
    completed = read[4]
    assert isinstance(completed, TurnCompleted)
    for name in ("text", "status", "pending", "usage", "total_usage", "total_cost_usd", "warnings",
                 "request_ids", "duplicate", "model", "context_fraction", "cost_usd"):  # fmt: skip
        assert getattr(completed.result, name) == getattr(result, name)
    for wrong in (b"", b"\x93", write_notes(0, [])[:-1], b"\x92\x00\x91\x92\xa1x\xc0"):
        with pytest.raises(GoAIToolsError, match="cannot read"):
            read_notes(wrong)


def test_a_relay_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="alive_seconds must be more than 0"):
        RedisRelay(None, alive_seconds=0)  # type: ignore[arg-type]
    relay: Relay = MemoryRelay()
    assert relay.keep_every > 0
