"""Messages by HTTP: each is one turn, however often it comes."""

from __future__ import annotations

import asyncio

import pytest

from goaitools_py.backends import BackendError
from goaitools_py.serve import ServeLimits
from goaitools_py.testing import Calls

from ._world import World, asynchronous, said

HALL = "/conversations/hall"
LOOK = Calls([("look", {"at": "door"})], text="Hm.")
FORGETFUL = ServeLimits(keep_seconds=0)


@asynchronous
async def test_a_message_is_answered_in_json() -> None:
    world = World("Good evening.")

    status, answer = await world.ask("POST", f"{HALL}/turns", said())

    assert status == 200
    assert (answer["turn"], answer["text"], answer["status"]) == ("ada/hall-1", "Good evening.", "complete")
    assert answer["usage"]["output_tokens"] > 0


@asynchronous
async def test_a_message_is_answered_as_a_stream() -> None:
    world = World("Good evening.")

    async with world.stream("POST", f"{HALL}/turns", said()) as answer:
        events = await answer.events()

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [name for name, _ in events if name != "text"] == ["started", "done"]
    assert "".join(data["text"] for name, data in events if name == "text") == "Good evening."
    numbers = [int(data["#"].rpartition(".")[2]) for _, data in events]
    assert numbers == list(range(1, len(events) + 1))


@asynchronous
async def test_a_turn_needs_an_id() -> None:
    world = World("One.")

    assert (await world.ask("POST", f"{HALL}/turns", {"text": "Hello"}))[0] == 400
    assert (await world.ask("POST", f"{HALL}/turns", {"text": "Hi", "answers": {"c": {"deny": ""}}}))[
        0
    ] == 400
    status, _ = await world.ask("POST", f"{HALL}/turns", {"text": "Hello"}, headers={"idempotency-key": "m1"})

    assert status == 200
    assert len(world.backend.requests) == 1


@pytest.mark.parametrize("limits", [ServeLimits(), FORGETFUL], ids=["kept", "forgotten"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@asynchronous
async def test_a_message_that_comes_twice_is_answered_once(limits: ServeLimits, accept: str) -> None:
    """From memory, and from the store: with all that the first answer had."""
    world = World(LOOK, "Done.", limits=limits)
    world.held.set()
    how = {"headers": {"accept": accept}}

    found = []
    for _ in range(2):
        async with world.asked("POST", f"{HALL}/turns", said(), **how) as answer:
            found.append(await (answer.json() if "json" in accept else answer.events()))
        await asyncio.sleep(0)

    assert len(world.backend.requests) == 2
    assert world.looked == ["door"]
    if "json" in accept:
        assert [one["text"] for one in found] == ["Done.", "Done."]
        assert [one["turn"] for one in found] == ["ada/hall-1", "ada/hall-1"]
    else:
        kinds = [[name for name, _ in one if name not in ("text", "reasoning")] for one in found]
        assert kinds[0] == kinds[1] == ["started", "tool_call", "tool_result", "done"]
        texts = ["".join(data["text"] for name, data in one if name == "text") for one in found]
        assert texts == ["Hm.Done.", "Hm.Done."]


@asynchronous
async def test_a_double_click_is_one_turn() -> None:
    world = World(LOOK, "Done.")

    async with world.stream("POST", f"{HALL}/turns", said()) as first:
        await world.is_inside.wait()
        async with world.stream("POST", f"{HALL}/turns", said()) as second:
            world.held.set()
            one, other = await first.events(), await second.events()

    assert one == other
    assert len(world.backend.requests) == 2


@asynchronous
async def test_another_message_waits_for_its_time() -> None:
    """While a turn runs, and under an id that another message has, the answer is 409."""
    world = World(LOOK, "Done.", "Next.")

    async with world.stream("POST", f"{HALL}/turns", said()) as first:
        await world.is_inside.wait()
        status, problem = await world.ask("POST", f"{HALL}/turns", said("Other", "m2"))
        assert (status, problem["type"]) == (409, "urn:goaitools:TurnInProgressError")
        assert problem["retryable"] is True
        status, problem = await world.ask("POST", f"{HALL}/turns", said("Other", "m1"))
        assert (status, problem["type"]) == (409, "urn:goaitools:TurnConflictError")
        world.held.set()
        await first.body()

    assert (await world.ask("POST", f"{HALL}/turns", said("Other", "m2")))[1]["text"] == "Next."


@asynchronous
async def test_a_failed_turn_is_a_problem_and_goes_on_with_the_same_message() -> None:
    world = World(BackendError("Harrogate is down"), "Here I am.")

    status, problem = await world.ask("POST", f"{HALL}/turns", said())
    assert (status, problem["type"]) == (503, "urn:goaitools:ProviderUnavailableError")
    assert "Harrogate" not in str(problem)

    assert (await world.ask("POST", f"{HALL}/turns", said()))[1]["text"] == "Here I am."
    assert len((await world.ask("GET", f"{HALL}/messages"))[1]) == 2


@asynchronous
async def test_a_turn_that_failed_goes_on_with_all_that_it_had_said() -> None:
    """The stream of the second delivery begins with the first one's calls and results."""
    world = World(LOOK, BackendError("away"), "Done.")
    world.held.set()
    async with world.stream("POST", f"{HALL}/turns", said()) as answer:
        assert [name for name, _ in await answer.events()][-1] == "error"

    async with world.stream("POST", f"{HALL}/turns", said()) as answer:
        events = await answer.events()

    assert [name for name, _ in events if name != "text"] == ["started", "tool_call", "tool_result", "done"]
    assert world.looked == ["door"]


@asynchronous
async def test_only_a_trusted_caller_gives_context() -> None:
    world = World("One.", "Two.")
    body = said(context="It is 10:20.", metadata={"a": "b"})

    status, problem = await world.ask("POST", f"{HALL}/turns", body)
    assert (status, problem["type"]) == (403, "urn:goaitools:Refused")
    assert "Caller(trusted=True)" in problem["title"]
    assert (await world.ask("POST", f"{HALL}/turns", body, user="game"))[0] == 200
    assert b"10:20" in world.backend.requests[0].body


@asynchronous
async def test_a_message_that_no_text_may_hold_is_refused() -> None:
    world = World()

    for text in ("\ud800", ""):
        body = b'{"text": "%s", "turn_id": "m1"}' % text.encode("unicode_escape")
        assert (await world.ask("POST", f"{HALL}/turns", body))[0] == 400
    assert world.backend.requests == []
