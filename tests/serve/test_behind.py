"""`serve(…, compact="after")`: a turn is answered first. Its due compaction gives way to the next turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import Request

from goaitools_py import NO_COMPACTION, AsyncChat, Compactor, KeepRecentTurns, MessageLimit, Summarize
from goaitools_py.backends import BackendError
from goaitools_py.seal import Key, Keyring, Signed
from goaitools_py.serve import Caller, ServeLimits, serve
from goaitools_py.states import read_history
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

from ._world import World, asynchronous, said

HALL = "/conversations/hall"
SUMMING = Compactor(MessageLimit(3), Summarize(keep_turns=1))
LONG = "I found a small brass key under the stage. " * 8


class Slow(ScriptedBackend):
    """A model that writes summaries slowly: each waits for `summary`."""

    def __init__(self, *steps: Any) -> None:
        super().__init__(*steps)
        self.summary = asyncio.Event()
        self.is_asked = asyncio.Event()
        self.cancelled = 0

    async def asend(self, request: Any) -> Any:
        if b"Your summary will stand in its place" in request.body:
            self.is_asked.set()
            try:
                await self.summary.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return await super().asend(request)


async def ask(world: World, id: str, text: str = LONG) -> dict[str, Any]:
    status, answer = await world.ask("POST", f"{HALL}/turns", said(text, id))
    assert status == 200, answer
    return dict(answer)


async def stored(world: World) -> list[str]:
    found = await world.store.load("ada/hall")
    return [] if found is None else [one.text for one in read_history(found.blob).all_messages()]


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


@pytest.mark.parametrize("compact", ["turn", "after"])
@asynchronous
async def test_the_answer_comes_before_the_summary(compact: str) -> None:
    """With "turn" the client waits for the summary; with "after" it has its answer while the model writes."""
    backend = Slow("One.", "Two.", "They count.")
    world = World(backend=backend, compactor=SUMMING, compact=compact)
    await ask(world, "m1")

    second = asyncio.create_task(ask(world, "m2"))
    await backend.is_asked.wait()
    for _ in range(200):
        await asyncio.sleep(0)
    answered = second.done()
    is_held = await world.store.is_held("ada/hall")
    backend.summary.set()
    answer = await second
    await until(lambda: not world.app._hub._behind)

    assert answered == (compact == "after")
    assert is_held == (compact == "turn")
    assert answer["text"] == "Two."
    texts = await stored(world)
    assert "They count." in texts[0]
    assert texts[1:] == [LONG, "Two."]


@asynchronous
async def test_the_next_message_does_not_wait() -> None:
    """The summary is dropped, nothing is lost, and the next turn's end asks for one again."""
    backend = Slow("One.", "Two.", "Three.", "They count.")
    world = World(backend=backend, compactor=SUMMING, compact="after")
    await ask(world, "m1")
    await ask(world, "m2")
    await backend.is_asked.wait()

    answer = await ask(world, "m3")

    assert (answer["text"], backend.cancelled) == ("Three.", 1)
    assert await stored(world) == [LONG, "One.", LONG, "Two.", LONG, "Three."]
    backend.summary.set()
    await until(lambda: not world.app._hub._behind)
    assert (await stored(world))[1:] == [LONG, "Three."]


@asynchronous
async def test_another_workers_message_does_not_wait() -> None:
    """It is answered at once, and the summary of this worker is dropped when it comes."""
    backend = Slow("One.", "Two.", "Three.", "They count.")
    world = World(backend=backend, compactor=SUMMING, compact="after")
    twin = AsyncChat(ScriptedBackend("Three.")).conversation(
        world.store, "ada/hall", save="checkpoint", gate="reject"
    )
    await ask(world, "m1")
    await ask(world, "m2")
    await backend.is_asked.wait()

    answer = await twin.send(LONG, turn_id="m3")
    backend.summary.set()
    await until(lambda: not world.app._hub._behind)

    assert answer.text == "Three."
    assert await stored(world) == [LONG, "One.", LONG, "Two.", LONG, "Three."]


@asynchronous
async def test_the_server_stops_cleanly() -> None:
    """A compaction is cancelled, no lease is left, and nothing has changed."""
    backend = Slow("One.", "Two.")
    world = World(backend=backend, compactor=SUMMING, compact="after")
    async with world.app.running():
        await ask(world, "m1")
        await ask(world, "m2")
        await backend.is_asked.wait()
        before = await stored(world)

    assert backend.cancelled == 1
    assert world.app._hub._behind == {}
    assert await stored(world) == before
    assert not await world.store.is_held("ada/hall")


@asynchronous
async def test_an_erased_conversation_has_no_summary() -> None:
    """The question to the model is given up before the conversation is erased."""
    backend = Slow("One.", "Two.")
    world = World(backend=backend, compactor=SUMMING, compact="after")
    await ask(world, "m1")
    await ask(world, "m2")
    await backend.is_asked.wait()

    status, _ = await world.ask("DELETE", HALL)

    assert (status, backend.cancelled) == (204, 1)
    assert await world.store.load("ada/hall") is None


@asynchronous
async def test_a_refused_history_is_cut_in_its_turn() -> None:
    """What does not fit into the model's context cannot wait: the compactor acts at once."""
    refused = BackendError(
        "no", status=400, body=b'{"error":{"code":"context_length_exceeded","message":"long"}}'
    )
    backend = ScriptedBackend("One.", "Two.", refused, "Three.")
    keeping = Compactor(MessageLimit(50), KeepRecentTurns(1))
    world = World(backend=backend, compactor=keeping, compact="after")
    await ask(world, "m1")
    await ask(world, "m2")

    answer = await ask(world, "m3")

    assert answer["text"] == "Three."
    assert await stored(world) == [LONG, "Two.", LONG, "Three."]


@asynchronous
async def test_a_turn_that_waits_is_not_compacted() -> None:
    """Only a complete turn has a compaction behind it."""
    world = World("One.", Calls([("fire", {"at": "door"})]), compactor=SUMMING, compact="after")
    await ask(world, "m1")

    answer = await ask(world, "m2")

    assert answer["status"] == "awaiting_tools"
    assert world.app._hub._behind == {}


@asynchronous
async def test_a_failed_summary_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The answer was given, and the log has the class of the error and no content."""
    backend = ScriptedBackend("One.", "Two.", BackendError("secret", status=400))
    world = World(backend=backend, compactor=SUMMING, compact="after")
    await ask(world, "m1")
    await ask(world, "m2")
    await until(lambda: not world.app._hub._behind)

    told = [record.getMessage() for record in caplog.records if "behind a turn" in record.getMessage()]
    assert len(told) == 1
    assert "CompactionError" in told[0]
    assert "secret" not in told[0]
    assert len(await stored(world)) == 4


@asynchronous
async def test_the_compactor_of_a_caller() -> None:
    """A caller's own compactor is the one that acts, with the `system` of the caller; None: there is none."""
    backend = ScriptedBackend("One.", "Two.", "They count.", "Three.", "Four.")
    own: dict[str, Any] = {"compactor": SUMMING, "system": "You are a guide.", "deps": {"a": 1}}
    chat, store = AsyncChat(backend), AsyncMemoryStore()

    def whose(request: Request, name: str) -> Caller:
        return Caller(f"ada/{name}", options=own)

    world = World("…")
    world.store = store
    world.app = serve(chat, store, key=whose, compact="after")
    await ask(world, "m1")
    await ask(world, "m2")
    await until(lambda: not world.app._hub._behind)
    assert "They count." in (await stored(world))[0]
    assert b"You are a guide." in backend.requests[-1].body
    own["compactor"] = None
    await ask(world, "m3")
    own["compactor"] = NO_COMPACTION
    await ask(world, "m4")
    assert chat._cuts_behind(own) == (own, None)
    assert len(await stored(world)) == 7


@asynchronous
async def test_there_is_room_for_so_many() -> None:
    """As many compactions as turns; a further one is left to the next turn's end."""
    backend = Slow("One.", "Two.", "One.", "Two.")
    world = World(backend=backend, compactor=SUMMING, compact="after", limits=ServeLimits(turns=1))
    await ask(world, "m1")
    await ask(world, "m2")
    await backend.is_asked.wait()

    for id in ("m1", "m2"):
        await world.ask("POST", "/conversations/cave/turns", said(LONG, id))

    assert [*world.app._hub._behind] == ["ada/hall"]
    await world.app._hub.close()


def test_what_compact_may_be() -> None:
    """A word of the two; and without a store there is nothing to compact behind a turn."""
    chat = AsyncChat(ScriptedBackend(), codec=Signed(Keyring(Key(b"k" * 32))))
    with pytest.raises(ValueError, match="compact must be 'turn' or 'after'"):
        serve(chat, AsyncMemoryStore(), key=World.whose, compact="later")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="needs a store"):
        serve(chat, None, key=World.whose, compact="after")  # type: ignore[call-overload]
