"""Turns that are cancelled at any moment: nothing is lost or doubled, and the next turn begins at once.

Each kind of store with leases, the served ones also by way of a proxy that takes 20 ms for a question and its
answer. The moments are spread over the time that an undisturbed turn takes. ``GOAITOOLS_CANCELS=2800`` makes
so many cancellations instead of a few for each kind; ``pytest -rP`` shows how many came in time.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from goaitools_py import AsyncChat, AsyncTurn, TurnInProgressError, tool
from goaitools_py.states import state_messages
from goaitools_py.stores import AsyncCallableStore, AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.tools import ToolContext

from ..stores._places import Place, async_opened, place_of
from ..stores._wire import wire_to

LONG = int(os.environ.get("GOAITOOLS_CANCELS", "0"))
SHORT = 16
"""Cancellations of each kind in the short form."""

NEAR = (
    "memory-async", "callable-async", "sqlite-async", "sqlalchemy-sqlite-async", "postgresql-async",
    "postgresql-asyncpg", "mariadb-async", "postgres-async", "redis-async",
)  # fmt: skip
FAR = ("postgresql-async", "postgresql-asyncpg", "mariadb-async", "postgres-async", "redis-async")
KINDS = [*((kind, 0.0) for kind in NEAR), *((kind, 0.01) for kind in FAR)]

AT_ONCE = 8
"""Conversations that are cancelled side by side."""

SAID = ["Hi?", "Hi.", "Pay.", "", "paid", "Paid."]


class Pausing(AsyncMemoryStore):
    """A store in memory that lets other tasks run before and after each step."""

    async def load(self, key: str) -> Any:
        await _pause()
        found = await super().load(key)
        await _pause()
        return found

    async def save(self, key: str, blob: bytes, **rest: Any) -> int:
        await _pause()
        version = await super().save(key, blob, **rest)
        await _pause()
        return version

    @asynccontextmanager
    async def lease(self, key: str, ttl: float) -> AsyncIterator[Any]:
        await _pause()
        async with super().lease(key, ttl) as lease:
            await _pause()
            yield lease
            await _pause()


async def _pause() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Borrowing(AsyncCallableStore):
    """A store of two functions, with the leases of another store."""

    def __init__(self) -> None:
        self._kept = Pausing()
        super().__init__(self._kept.load, self._save_it)
        self.lease, self.is_held = self._kept.lease, self._kept.is_held

    async def _save_it(self, key: str, blob: bytes, expected: int | None) -> int:
        return await self._kept.save(key, blob, expected=expected)


@asynccontextmanager
async def store_at(place: Place) -> AsyncIterator[Any]:
    if place.kind == "memory-async":
        yield Pausing()
    elif place.kind == "callable-async":
        yield Borrowing()
    else:
        async with async_opened(place) as store:
            yield store


class Case(NamedTuple):
    """One cancellation: when it comes, how, and of which conversation."""

    number: int
    moment: float
    """As a part of the time that a turn takes."""

    @property
    def key(self) -> str:
        return f"user-{self.number}"

    @property
    def how(self) -> Callable[[Any, float], Awaitable[bool]]:
        return HOW[self.number % len(HOW)]

    def settings(self, store: Any) -> dict[str, Any]:
        number = self.number // len(HOW)
        can_part = hasattr(store, "save_parts")
        return {
            "save": ("turn", "checkpoint")[number % 2],
            "parts": ("inline", "store")[number // 2 % 2] if can_part else "inline",
            "gate": ("queue", "reject")[number // 4 % 2],
            "concurrent_turns": bool(number // 8 % 2),
        }


# ------------------------------------------------------------------------------------------- five ways


def _started(conversation: Any) -> AsyncTurn[Any]:
    turn: AsyncTurn[Any] = conversation.start("Pay.", turn_id="m-1")
    return turn


async def cancelled(conversation: Any, seconds: float) -> bool:
    """The task of the turn is cancelled."""
    task = asyncio.create_task(conversation.send("Pay.", turn_id="m-1"))
    asyncio.get_running_loop().call_later(seconds, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        assert task.result().text == "Paid."
    return task.cancelled()


async def timed_out(conversation: Any, seconds: float) -> bool:
    """A timeout around the turn."""
    try:
        async with asyncio.timeout(seconds):
            assert (await conversation.send("Pay.", turn_id="m-1")).text == "Paid."
    except TimeoutError:
        return True
    return False


async def stopped(conversation: Any, seconds: float) -> bool:
    """Another task calls `turn.cancel`, as a server does when the stop button is pressed."""
    turn = _started(conversation)

    async def read() -> list[Any]:
        return [event async for event in turn]

    reader = asyncio.create_task(read())
    await asyncio.sleep(seconds)
    is_in_time = not reader.done()
    await turn.cancel()
    await reader
    return is_in_time


async def left(conversation: Any, seconds: float) -> bool:
    """The reader leaves the block at the next event."""
    end = time.monotonic() + seconds
    async with _started(conversation) as turn:
        async for _ in turn:
            if time.monotonic() >= end:
                return True
    return False


async def cancelled_again(conversation: Any, seconds: float) -> bool:
    """The task of the turn is cancelled twice, the second time while it cleans up. That ends the wait for the
    end of the turn, so this waits for it."""
    task = asyncio.create_task(conversation.send("Pay.", turn_id="m-1"))
    for more in (0.0, 0.002):
        asyncio.get_running_loop().call_later(seconds + more, task.cancel)
    await asyncio.wait([task])
    async with asyncio.timeout(5.0):
        while await conversation.is_running():
            await asyncio.sleep(0.005)
    return task.cancelled()


HOW = (cancelled, timed_out, stopped, left, cancelled_again)


# ------------------------------------------------------------------------------------------ the campaign


class Bank:
    """A chat whose model pays once, and what was paid."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()

        @tool(idempotent=True)
        async def pay(ctx: ToolContext) -> str:
            """Pay."""
            await asyncio.sleep(0)
            self.paid[ctx.idempotency_key] += 1
            return "paid"

        def answer(request: Any) -> Any:
            last = request.body.rpartition(b'"role"')[2]
            if b"Hi?" in last:
                return "Hi."
            return "Paid." if b"paid" in last else Calls([("pay", {})])

        self.chat = AsyncChat(ScriptedBackend(*[answer] * 200), tools=[pay])


async def campaign(store: Any, direct: Any, count: int) -> tuple[Counter[str], list[str]]:
    """Cancel so many turns over `store`. What was left is looked at over `direct`."""
    found: Counter[str] = Counter()
    problems: list[str] = []
    seconds = await turn_seconds(store)
    cases = [Case(number, (number + 0.5) / count) for number in range(count)]
    for at in range(0, count, AT_ONCE):
        some = cases[at : at + AT_ONCE]
        told = await asyncio.gather(*(one(store, direct, case, seconds) for case in some))
        for case, (is_cut, took, wrong) in zip(some, told, strict=True):
            found["cancelled" if is_cut else "too late"] += 1
            seconds = seconds if is_cut else min(seconds, took)  # the machine had more to do before
            for what in wrong:
                found[what.partition(":")[0]] += 1
                problems.append(f"{case.how.__name__} at {case.moment:.2f}, {case.settings(store)}: {what}")
    return found, problems


async def turn_seconds(store: Any) -> float:
    """How long a turn takes where as many run side by side as later."""

    async def turn(number: int) -> float:
        conversation = Bank().chat.conversation(store, f"warm-{number}", save="checkpoint")
        await conversation.send("Hi?")
        began = time.monotonic()
        await conversation.send("Pay.", turn_id="m-1")
        return time.monotonic() - began

    await asyncio.gather(*map(turn, range(AT_ONCE)))
    return min(await asyncio.gather(*map(turn, range(AT_ONCE, 2 * AT_ONCE))))


async def one(store: Any, direct: Any, case: Case, seconds: float) -> tuple[bool, float, list[str]]:
    """One cancellation: whether it came in time, how long it all took, and what is wrong after it."""
    bank = Bank()
    problems: list[str] = []
    settings = case.settings(store)
    await bank.chat.conversation(direct, case.key, **settings).send("Hi?")
    conversation, began = bank.chat.conversation(store, case.key, **settings), time.monotonic()
    is_cut = await case.how(conversation, seconds * case.moment)
    took = time.monotonic() - began
    if await direct.is_held(case.key):
        problems.append("blocked: the lease is held")
    next_turn = bank.chat.conversation(direct, case.key, **{**settings, "gate": "reject"})
    try:
        result = await next_turn.send("Pay.", turn_id="m-1")
    except TurnInProgressError:
        problems.append("blocked: the next turn is refused")
        return is_cut, took, problems
    state = await next_turn.state()
    said = [message.get("content") or "" for message in state_messages(state or b"")]
    if (result.text, said) != ("Paid.", SAID):
        problems.append(f"{'doubled' if len(said) > len(SAID) else 'lost'}: {said}")
    if len(bank.paid) != 1:
        problems.append(f"doubled: paid under {len(bank.paid)} keys")
    return is_cut, took, problems


# asyncmy leaves a socket open if it is cancelled while it connects.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize(("kind", "delay"), KINDS, ids=[f"{k}{'-far' if d else ''}" for k, d in KINDS])
def test_a_cancelled_turn_blocks_nobody(kind: str, delay: float, tmp_path: Path) -> None:
    """A cancellation, a timeout, a stop, a reader who leaves: no lease is left, and the message that is
    delivered again is answered at once, with all that was said before."""
    count = -(-LONG // len(KINDS)) if LONG else SHORT

    async def family(near: Place, at: Place) -> tuple[Counter[str], list[str]]:
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(store_at(at))
            direct = await stack.enter_async_context(async_opened(near)) if delay else store
            return await campaign(store, direct, count)

    with place_of(kind, tmp_path) as place:
        if delay:
            with wire_to(place, delay) as (_, detour):
                found, problems = asyncio.run(family(place, detour))
        else:
            found, problems = asyncio.run(family(place, place))
    gc.collect()
    counts = {name: found[name] for name in ("cancelled", "too late", "lost", "doubled", "blocked")}
    print(f"{kind}, {2000 * delay:.0f} ms away: {counts}")
    assert problems == [], "\n".join(problems)
    assert found["cancelled"] > 0
