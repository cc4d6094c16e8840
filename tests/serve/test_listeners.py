"""How many requests may follow a turn: a client that opens streams without end keeps nobody out."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from goaitools_py.serve import ServeLimits
from goaitools_py.serve.listeners import Listeners, TooManyListenersError
from goaitools_py.testing import Calls

from ._world import World, asynchronous, said

HALL = "/conversations/hall"
LOOK = Calls([("look", {"at": "door"})])
FOLLOWS = [
    ("GET", f"{HALL}/turns/current"), ("GET", "/aisdk/hall/stream"), ("GET", "/agui/hall/stream"),
    ("POST", f"{HALL}/turns/current"),
]  # fmt: skip


@asynchronous
async def test_an_owner_has_so_many_listeners() -> None:
    """One more is answered 429 on each route that follows; another owner is not. A place comes free again
    when its client goes, and when its stream ends."""
    world = World(LOOK, "Done.", "For Bob.", "Again.", limits=ServeLimits(listeners_per_owner=3))
    async with AsyncExitStack() as pages:
        first = await pages.enter_async_context(world.stream("POST", f"{HALL}/turns", said()))
        await world.is_inside.wait()
        second = await pages.enter_async_context(world.stream(*FOLLOWS[0]))
        async with world.stream(*FOLLOWS[1]) as third:
            assert third.status == 200
            for method, path in FOLLOWS:
                status, problem = await world.ask(method, path)
                assert (status, problem["retryable"]) == (429, True)
                assert "pages" in problem["title"]
        async with world.stream(*FOLLOWS[2]) as third:
            assert third.status == 200
            assert (await world.ask("POST", "/conversations/x/turns", said("?", "m9")))[0] == 429
        assert (await world.ask("POST", f"{HALL}/turns", said(), user="bob"))[0] == 200
        world.held.set()
        for answer in (first, second):
            await answer.events()
    assert (await world.ask("POST", f"{HALL}/turns", said("?", "m2")))[0] == 200
    assert len(world.backend.requests) == 4


@asynchronous
async def test_a_message_is_refused_before_its_turn_begins() -> None:
    """No turn runs whose client got 429: it would be paid for, and the client would not know."""
    world = World(LOOK, "Done.", "Two.", limits=ServeLimits(listeners=1, listeners_per_owner=1))
    agui = {"threadId": "x", "runId": "r1", "messages": [{"id": "m", "role": "user", "content": "?"}],
            "tools": [], "context": [], "state": {}, "forwardedProps": {}}  # fmt: skip
    aisdk = {"id": "x", "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "?"}]}]}
    async with world.stream("POST", f"{HALL}/turns", said()) as answer:
        await world.is_inside.wait()
        asked: list[tuple[str, Any]] = [
            ("/conversations/x/turns", said("?", "m2")), ("/aisdk", aisdk), ("/agui", agui),
            ("/conversations/x/answers", {"answers": {"call": {"approve": True}}}),
        ]  # fmt: skip
        for path, body in asked:
            assert (await world.ask("POST", path, body))[0] == 503
        assert len(world.backend.requests) == 1
        world.held.set()
        await answer.events()
    for path, _ in asked[:2]:
        assert (await world.ask("GET", "/conversations/x"))[0] == 404, path


@asynchronous
async def test_requests_that_are_refused_or_answered_at_once_keep_no_place() -> None:
    """Errors, results and 204 give the place back."""
    world = World("One.", limits=ServeLimits(listeners_per_owner=1))
    for _ in range(3):
        assert (await world.ask("GET", f"{HALL}/turns/current"))[0] == 204
        assert (await world.ask("POST", f"{HALL}/turns/current"))[0] == 204
        assert (await world.ask("POST", f"{HALL}/answers", {"answers": {"c": {"approve": True}}}))[0] == 409
    for _ in range(3):
        assert (await world.ask("POST", f"{HALL}/turns", said()))[0] == 200
    assert not world.app._listeners._owners


def test_places_are_counted_once() -> None:
    """A place that is given back twice is one place."""
    listeners = Listeners(ServeLimits(listeners_per_owner=1))
    with listeners.seat("ada") as seat:
        seat.is_kept = True
    with pytest.raises(TooManyListenersError), listeners.seat("ada"):
        pass
    seat.free()
    seat.free()
    with listeners.seat("ada"), pytest.raises(TooManyListenersError), listeners.seat("ada"):
        pass
