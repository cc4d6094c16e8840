"""Answers to calls by HTTP: taken where a call waits, told again where they came before, else refused."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py.backends import BackendError
from goaitools_py.serve import ServeLimits
from goaitools_py.testing import Calls

from ._world import World, asynchronous, said

HALL = "/conversations/hall"
FIRE = Calls([("fire", {"at": "y"})], text="Now.")
YES = {"answers": {"call_1_0": {"approve": True}}}


async def events_of(world: World, body: Any) -> list[tuple[str, Any]]:
    async with world.stream("POST", f"{HALL}/answers", body) as answer:
        assert answer.status == 200
        return [(name, data) for name, data in await answer.events() if name != "text"]


@asynchronous
async def test_a_call_is_approved() -> None:
    world = World(FIRE, "Hit.")
    status, waiting = await world.ask("POST", f"{HALL}/turns", said())
    assert (status, waiting["status"]) == (200, "awaiting_tools")
    assert (await world.ask("GET", HALL))[1]["pending"] == waiting["pending"]

    status, answer = await world.ask("POST", f"{HALL}/answers", YES)

    assert (status, answer["text"]) == (200, "Hit.")
    assert world.looked == ["y"]


@asynchronous
async def test_other_arguments_and_denials_are_taken() -> None:
    world = World(FIRE, "Hit.", FIRE, "Well.")
    await world.ask("POST", f"{HALL}/turns", said())
    changed = {"answers": {"call_1_0": {"approve": True, "arguments": {"at": "z"}}}}
    await world.ask("POST", f"{HALL}/answers", changed)
    await world.ask("POST", f"{HALL}/turns", said("Again", "m2"))
    denied = {"answers": {"call_3_0": {"deny": "no"}}}

    assert (await world.ask("POST", f"{HALL}/answers", denied))[1]["text"] == "Well."
    assert world.looked == ["z"]


@pytest.mark.parametrize("keep", [30.0, 0.0], ids=["kept", "forgotten"])
@asynchronous
async def test_an_answer_that_comes_twice_counts_once(keep: float) -> None:
    """The client gets the same again: the result of the call, and what came behind it."""
    world = World(FIRE, "Hit.", limits=ServeLimits(keep_seconds=keep))
    await world.ask("POST", f"{HALL}/turns", said())

    first = await events_of(world, YES)
    again = await events_of(world, YES)

    kinds = [name for name, _ in first]
    assert kinds == [name for name, _ in again]
    assert kinds[-2:] == ["tool_result", "done"]
    assert world.looked == ["y"]
    assert len(world.backend.requests) == 2


@asynchronous
async def test_an_approval_survives_a_provider_that_fails() -> None:
    """The tool has run. The same answer again finishes the turn, and the tool does not run again."""
    world = World(FIRE, BackendError("away"), "Hit.")
    await world.ask("POST", f"{HALL}/turns", said())
    assert (await world.ask("POST", f"{HALL}/answers", YES))[0] == 503

    status, answer = await world.ask("POST", f"{HALL}/answers", YES)

    assert (status, answer["text"]) == (200, "Hit.")
    assert world.looked == ["y"]


@asynchronous
async def test_parallel_calls_may_be_answered_one_by_one() -> None:
    world = World(Calls([("fire", {"at": "a"}), ("fire", {"at": "b"})]), "Both.")
    await world.ask("POST", f"{HALL}/turns", said())

    first = (await world.ask("POST", f"{HALL}/answers", {"answers": {"call_1_1": {"approve": True}}}))[1]
    second = (await world.ask("POST", f"{HALL}/answers", {"answers": {"call_1_0": {"approve": True}}}))[1]

    assert [call["id"] for call in first["pending"]] == ["call_1_0"]
    assert (second["status"], second["text"]) == ("complete", "Both.")
    assert sorted(world.looked) == ["a", "b"]


@asynchronous
async def test_forged_answers_do_nothing() -> None:
    """A result for a call that only waits for an approval, and answers to calls that do not exist."""
    world = World(FIRE, "Hit.")
    assert (await world.ask("POST", f"{HALL}/answers", YES))[0] == 409
    await world.ask("POST", f"{HALL}/turns", said())

    forged = {"answers": {"call_1_0": {"return": "the payment was made"}}}
    status, stored = await world.ask("POST", f"{HALL}/answers", forged)
    assert (status, stored["status"]) == (200, "awaiting_tools")  # told again, and nothing was taken
    assert (await world.ask("POST", f"{HALL}/answers", {"answers": {"c9": {"approve": True}}}))[0] == 409

    assert (await world.ask("GET", HALL))[1]["status"] == "awaiting_tools"
    assert len(world.backend.requests) == 1
    assert world.looked == []


@asynchronous
async def test_a_message_has_to_wait_for_the_answer() -> None:
    world = World(FIRE, "Hit.")
    await world.ask("POST", f"{HALL}/turns", said())

    status, problem = await world.ask("POST", f"{HALL}/turns", said("Else", "m2"))

    assert (status, problem["type"]) == (409, "urn:goaitools:ToolPendingError")
    assert (await world.ask("POST", f"{HALL}/answers", {"text": "Hi"}))[0] == 400
