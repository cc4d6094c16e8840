"""What a task awaits is ended from outside: whose cancellation it is, and that none is left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import anyio

from goaitools_py.turn.edges.async_wait import Wait

TICK = 0.02


async def ends(wait: Wait, awaited: Callable[[], Awaitable[object]], end: float | None) -> str | None:
    """How a wait for this ends: "done", or what it was ended for; another's cancellation passes through."""
    wait.begin(end)
    try:
        await awaited()
    except asyncio.CancelledError:
        if (why := wait.ended()) is None:
            raise
        return why
    finally:
        wait.over()
    return "done"


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


def test_an_interruption_ends_what_tidies_up_after_its_time() -> None:
    """Its time is over, and what was awaited takes long to end: who interrupts need not wait for it."""
    wait, tidied = Wait(), []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(120)
        except asyncio.CancelledError:
            loop = asyncio.get_running_loop()
            loop.call_later(TICK, wait.interrupt)
            loop.call_later(2 * TICK, wait.interrupt)  # a second time it changes nothing
            await asyncio.sleep(120)
            tidied.append(True)

    async def main() -> tuple[object, int]:
        began = time.monotonic()
        found = await ends(wait, stubborn, began + TICK)
        assert time.monotonic() - began < 10
        await asyncio.sleep(3 * TICK)
        return found, cancelling()

    assert asyncio.run(main()) == ("interrupted", 0)
    assert tidied == []


def test_a_scope_that_ends_at_the_same_moment_keeps_its_cancellation() -> None:
    """A scope of anyio tells its own by a message, which a second cancellation would take away from a task
    that is about to run."""
    wait = Wait()

    async def busy() -> None:
        time.sleep(3 * TICK)  # then both are due, one after the other
        for _ in range(5):
            await asyncio.sleep(0)

    async def main() -> tuple[bool, int]:
        with anyio.CancelScope() as scope:
            asyncio.get_running_loop().call_later(TICK / 2, scope.cancel)
            await ends(wait, busy, time.monotonic() + TICK)
        await asyncio.sleep(2 * TICK)
        return scope.cancelled_caught, cancelling()

    assert asyncio.run(main()) == (True, 0)


def test_a_wait_whose_other_cancellation_is_swallowed_ends_late_all_the_same() -> None:
    """What is awaited has a scope of its own that ends just then, and stalls afterwards."""
    wait = Wait()

    async def stalls() -> None:
        with anyio.CancelScope() as scope:
            asyncio.get_running_loop().call_later(TICK / 2, scope.cancel)
            time.sleep(3 * TICK)  # then both are due, one after the other
            for _ in range(5):
                await asyncio.sleep(0)
        await asyncio.sleep(120)

    async def main() -> tuple[object, int]:
        began = time.monotonic()
        found = await ends(wait, stalls, began + TICK)
        assert time.monotonic() - began < 10
        return found, cancelling()

    assert asyncio.run(main()) == ("late", 0)


def test_the_timer_of_a_wait_ends_no_other_one() -> None:
    """A timer is kept for the next wait until the same time; one without a limit does not hear it."""
    wait = Wait()

    async def main() -> list[object]:
        end = time.monotonic() + TICK
        found = [await ends(wait, lambda: asyncio.sleep(0), end)]
        found.append(await ends(wait, lambda: asyncio.sleep(3 * TICK), None))
        found.append(await ends(wait, lambda: asyncio.sleep(20), end))
        wait.forget()
        return [*found, cancelling()]

    assert asyncio.run(main()) == ["done", "done", "late", 0]
