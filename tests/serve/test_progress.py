"""A tool that says how far it is: listeners hear it while it runs, and not more of it than they can use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from goaitools_py import tool
from goaitools_py.serve import MemoryRelay
from goaitools_py.serve.listeners import Pace
from goaitools_py.testing import Calls
from goaitools_py.tools import ToolContext
from goaitools_py.types.events import ToolProgress

from ._world import World, asynchronous, said

HALL = "/conversations/hall"


def told(reports: Iterable[tuple[float, float | None]], call_id: str = "c1", pace: Pace | None = None) -> int:
    pace = pace or Pace()
    return sum(pace.tells(ToolProgress(call_id, "climb", 1, at, total)) for at, total in reports)


def test_with_a_total_each_percent_is_told() -> None:
    assert told((at, 10_000) for at in range(10_001)) == 101
    assert told((at, 4) for at in range(5)) == 5
    assert told([(1, 4)] * 50) == 1


def test_without_a_total_reports_are_told_more_and_more_rarely() -> None:
    assert told((at, None) for at in range(5)) == 5
    assert 40 <= told((at, None) for at in range(1_000_000)) <= 80
    assert told((at, 0.0) for at in range(1000)) == told((at, None) for at in range(1000))
    assert told((float("nan"), 1.0) for _ in range(1000)) == told((at, None) for at in range(1000))


def test_a_tool_that_goes_back_and_forth_fills_no_stream() -> None:
    assert told((at % 100, 100) for at in range(100_000)) == 200


def test_each_call_has_its_own_reports() -> None:
    pace = Pace()

    assert [told([(1, 2)], call_id, pace) for call_id in ("a", "b", "a")] == [1, 1, 0]


@pytest.mark.parametrize("is_far", [False, True], ids=["here", "in another process"])
@asynchronous
async def test_listeners_hear_it_while_the_tool_runs(is_far: bool) -> None:
    """Also those of another process, by the relay; the numbers of the events are the same there."""
    may_end = asyncio.Event()

    @tool
    async def climb(ctx: ToolContext) -> str:
        """Climb."""
        for at in range(5001):
            ctx.report_progress(at, 10_000, "up")
            if at % 500 == 0:
                await asyncio.sleep(0)
        await may_end.wait()
        return "there"

    relay = MemoryRelay()
    world = World(Calls([("climb", {})]), "Done.", more_tools=[climb], relay=relay)
    twin = World(relay=relay, store=world.store) if is_far else world
    async with world.stream("POST", f"{HALL}/turns", said()) as first:
        seen = []
        async for name, data in first:
            seen.append((name, data))
            if name == "progress" and data["progress"] == 5000:
                break
        async with twin.stream("GET", f"{HALL}/turns/current") as second:
            may_end.set()
            rest = [event async for event in first]
            again = await second.events()
    whole = seen + rest

    assert 1 <= len([name for name, _ in whole if name == "progress"]) <= 51
    assert whole[-1][1]["text"] == "Done."
    assert [(name, data["#"]) for name, data in again] == [(name, data["#"]) for name, data in whole]
