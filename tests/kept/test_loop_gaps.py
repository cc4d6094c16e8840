"""No async method holds the event loop for more than 50 ms, whatever the state: near the limit of JSON values
in a few hundred bytes, or a long conversation.

A task wakes up each millisecond. How much the thread of the loop has computed since it last woke up is how
long the loop was held. This is the thread's CPU time, so other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, Compactor, KeepRecentTurns, TurnLimit, user
from goaitools_py.seal import PLAIN, Encrypted, Key, Keyring, Signed
from goaitools_py.state.whole_blobs import rewrap
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import ScriptedBackend
from tests.history._bombs import bomb

MOST_MS = 50.0
FACTOR = 3.0
"""What these tests look for holds the loop ten times as long or more."""
TRIES = 3
"""A method that seems to hold the loop is measured again, and its shortest time counts. Other programs on the
machine make a single measurement several times slower. A method that holds the loop does so each time."""
PACE_STEPS, PACE_MS = 400_000, 6.0
"""Steps of `pace`, and its CPU time on a machine on which each method stays below `MOST_MS`."""
OWNER = {"user": "1"}
RING = Keyring(Key(b"k" * 32))
CODECS: dict[str, Any] = {"plain": PLAIN, "signed": Signed(RING), "encrypted": Encrypted(RING)}
CUT = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)


def conversation() -> bytes:
    """Two hundred turns of some two megabytes, as they are stored."""
    chance = random.Random(1)
    words = [f"{chance.getrandbits(40):x}" for _ in range(20_000)]
    replies = [" ".join(chance.choices(words, k=1_500)) for _ in range(200)]
    state = b""
    with Chat(ScriptedBackend(*replies)) as chat:
        for _ in replies:
            state = chat.chat_with_state(state, user=" ".join(chance.choices(words, k=300))).state
    return state


STATES: dict[str, Callable[[], bytes]] = {
    "a reply of many values": lambda: bomb("openai", "member: zeros", 900_000),
    "a waiting message of many parts": lambda: bomb("openai", "inbox: zeros", 900_000),
    "an unfinished turn with many facts": lambda: bomb("openai", "open facts: zeros", 900_000),
    "an unfinished turn with many calls": lambda: bomb("openai", "open calls", 80_000),
    "a long conversation": conversation,
}


@cache
def plain_state(name: str) -> bytes:
    return STATES[name]()


KEPT: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "send": lambda kept: kept.send("Hi.", on_pending="deny"),
    "append": lambda kept: kept.append(user("Hi.")),
    "history": lambda kept: kept.history(),
    "info": lambda kept: kept.info(),
    "pending": lambda kept: kept.pending(),
    "snapshot": lambda kept: kept.snapshot(),
    "redact": lambda kept: kept.redact("Hello"),
    "export": lambda kept: kept.export(),
    "fork": lambda kept: kept.fork("other"),
    "erase": lambda kept: kept.erase(),
    "stop": lambda kept: kept.stop(),
    "compact": lambda kept: kept.compact(CUT),
    "rewind": lambda kept: kept.rewind(),
    "update": lambda kept: kept.update(title="x"),
    "state": lambda kept: kept.state(),
}
BARE: dict[str, Callable[[Any, bytes, Any], Awaitable[Any]]] = {
    "chat_with_state": lambda chat, blob, binding: chat.chat_with_state(
        blob, user="Hi.", on_pending="deny", binding=binding
    ),
    "compact_state": lambda chat, blob, binding: chat.compact_state(blob, CUT, binding=binding),
}


async def longest_gap(work: Awaitable[Any]) -> float:
    """The milliseconds of the longest time that the loop was held while this ran."""
    gaps, is_done = [0.0], False

    async def beat() -> None:
        last = time.thread_time()
        while not is_done:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            gaps.append(now - last)
            last = now

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0)
    try:
        await work
    finally:
        await asyncio.sleep(0.002)
        is_done = True
        await beating
    return 1000 * max(gaps)


async def gap_of(name: str, blob: bytes, codec: Any) -> float:
    binding = None if codec is PLAIN else OWNER
    store = AsyncMemoryStore()
    await store.save("k", blob, expected=None)
    async with AsyncChat(ScriptedBackend(*["Yes."] * 3), codec=codec) as chat:
        if name in BARE:
            return await longest_gap(BARE[name](chat, blob, binding))
        kept = chat.conversation(store, "k", binding=binding)
        return await longest_gap(KEPT[name](kept))


def pace() -> float:
    """The milliseconds of CPU time that the machine needs now for a fixed computation."""
    began = time.thread_time()
    sum(range(PACE_STEPS))
    return 1000 * (time.thread_time() - began)


def held_too_long(name: str, blob: bytes, codec: Any) -> float | None:
    """The shortest of the longest gaps, in milliseconds of a machine of the usual speed. None if it is short
    enough."""
    shortest = math.inf
    for _ in range(TRIES):
        slowness = max(1.0, pace() / PACE_MS)
        gap = asyncio.run(gap_of(name, blob, codec)) / slowness
        shortest = min(shortest, gap)
        if shortest <= FACTOR * MOST_MS:
            return None
    return shortest


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("state", STATES)
def test_no_method_holds_the_loop(state: str, codec: str) -> None:
    """Each method, on a state of its own."""
    blob, protects = plain_state(state), CODECS[codec]
    if protects is not PLAIN:
        blob = rewrap(blob, PLAIN, to=protects, to_binding=OWNER)

    gc.collect()
    gc.freeze()  # else a collection in the loop's thread also walks through what earlier tests have left
    try:
        held = {name: held_too_long(name, blob, protects) for name in (*KEPT, *BARE)}
    finally:
        gc.unfreeze()

    assert {name: gap for name, gap in held.items() if gap is not None} == {}


def test_a_held_loop_is_seen() -> None:
    """The measure itself: computing in a coroutine."""

    async def hold() -> None:
        end = time.thread_time() + 2 * FACTOR * MOST_MS / 1000
        while time.thread_time() < end:
            pass

    assert asyncio.run(longest_gap(hold())) > FACTOR * MOST_MS


def test_a_method_that_holds_the_loop_each_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does so once is not."""
    gaps = iter([10, 4, 10, 4, 4, 4])

    async def gap(*_: Any) -> float:
        return next(gaps) * MOST_MS

    monkeypatch.setattr(f"{__name__}.gap_of", gap)
    monkeypatch.setattr(f"{__name__}.pace", lambda: PACE_MS)
    assert held_too_long("send", b"", PLAIN) == 4 * MOST_MS
    monkeypatch.setattr(f"{__name__}.pace", lambda: 2 * PACE_MS)
    assert held_too_long("send", b"", PLAIN) is None
