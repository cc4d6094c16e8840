"""Many chats at a time on one event loop, against the plain async `openai` client.

Owns: the turns that are compared and how many run at a time. Must never know: how the model answers.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx2
import openai
from _conversations import ANSWER_TEXT, MODEL, answer, corpus
from _loopback import loopback_model
from _report import Figure, Report, at_least, info

from goaitools_py import AsyncChat
from goaitools_py.backends import async_http_client
from goaitools_py.backends.base import ModelRequest, ResponseHead
from goaitools_py.backends.openai.backends import AsyncOpenAIChatBackend
from goaitools_py.states import state_from_messages

__all__ = ["run"]

QUESTION = "And is my second bag still on the reservation?"
_HISTORY = 10
_KEY = "sk-none"
_PATIENCE = 120.0
"""Seconds: a busy machine must not end a measurement with a timeout."""
_ANSWER = answer({"role": "assistant", "content": ANSWER_TEXT})

Side: TypeAlias = tuple[Callable[[], Awaitable[object]], Callable[[], Awaitable[None]]]
"""One turn of any chat, and what closes the connections after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    chats: int
    seconds: float
    turns: int
    rounds: int
    times_more: float

    @property
    def name(self) -> str:
        """Such as "512 chats, 1 s"."""
        return f"{self.chats:>3} chats, {self.seconds:g} s"


LOADS = (
    _Load(chats=64, seconds=0.0, turns=6, rounds=9, times_more=4.0),
    _Load(chats=512, seconds=1.0, turns=4, rounds=3, times_more=3.5),
)
SHORT = (
    _Load(chats=64, seconds=0.0, turns=2, rounds=1, times_more=4.0),
    _Load(chats=512, seconds=0.25, turns=1, rounds=1, times_more=3.5),
)


def run(*, short: bool = False) -> Report:
    """Measure each load. `short` takes one round of few turns and a quicker model."""
    figures: list[Figure] = []
    for load in SHORT if short else LOADS:
        with loopback_model(_ANSWER, seconds=load.seconds) as url:
            figures += _of_one_load(load, url)
    return Report(
        title="Many chats at a time: turns per CPU second of the client's process",
        method=f"{_HISTORY} messages of history, {corpus().source}; a loopback server in another process "
        "answers fixed bytes after the seconds named; CPU time of this process, connections opened by a turn "
        "before, of which the SDK's limit keeps 100; rounds of all sides in turns; figures and ratios of the "
        "minima, medians beside them; the plain side keeps its history as JSON",
        figures=figures,
    )


def _of_one_load(load: _Load, url: str) -> list[Figure]:
    sides = _sides(url)
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(load.rounds):
        for name, make in sides.items():
            cpu[name].append(asyncio.run(_cpu_per_turn(make(), load)))
    median = {name: statistics.median(found) for name, found in cpu.items()}
    least = {name: min(found) for name, found in cpu.items()}
    figures = [
        at_least(
            load.times_more,
            f"{load.name}: times more than create(), {words}",
            least["plain"] / least[name],
            "x",
            note=f"ratio of medians {median['plain'] / median[name]:.1f}",
        )
        for name, words in (("ours", "by default"), ("aiohttp", "over async_http_client()"))
        if name in least
    ]
    for name, words in _WORDS.items():
        if name in median:
            note = f"{least[name] * 1e6:,.0f} µs per turn, median {median[name] * 1e6:,.0f}"
            figures.append(info(f"{load.name}: {words}", 1 / least[name], "turns/s", note=note))
    return figures


async def _cpu_per_turn(side: Side, load: _Load) -> float:
    turn, close = side

    async def chat(turns: int) -> None:
        for _ in range(turns):
            await turn()

    async def all_chats(turns: int) -> None:
        await asyncio.gather(*(chat(turns) for _ in range(load.chats)))

    await all_chats(1)
    gc.collect()
    began = time.process_time()
    await all_chats(load.turns)
    taken = time.process_time() - began
    await close()
    return taken / (load.chats * load.turns)


# ------------------------------------------------------------------------------------------ the sides

_WORDS = {
    "ours": "ours",
    "plain": "plain create()",
    "sdk pool": "ours, over the SDK's own pool",
    "aiohttp": "ours, http_client=async_http_client(), over aiohttp",
    "own code": "ours, without SDK and socket",
}


def _sides(url: str) -> dict[str, Callable[[], Side]]:
    history = [dict(message) for turn in corpus().of_length(_HISTORY) for message in turn]
    blob = state_from_messages("openai", history)
    stored = json.dumps(history)
    base_url = f"{url}/v1"

    def chat(backend: Any) -> Side:
        made = AsyncChat(backend)
        return lambda: made.chat_with_state(blob, user=QUESTION), backend.aclose

    def ours() -> Side:
        return chat(AsyncOpenAIChatBackend(MODEL, base_url=base_url, api_key=_KEY, timeout=_PATIENCE))

    def over(http_client: httpx2.AsyncClient) -> Side:
        backend = AsyncOpenAIChatBackend(
            MODEL, base_url=base_url, api_key=_KEY, http_client=http_client, timeout=_PATIENCE
        )
        return chat(backend)[0], http_client.aclose

    def plain() -> Side:
        client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=_KEY,
            timeout=_PATIENCE,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        )

        async def turn() -> object:
            messages = json.loads(stored)
            messages.append({"role": "user", "content": QUESTION})
            completion = await client.chat.completions.create(model=MODEL, messages=messages)
            messages.append({"role": "assistant", "content": completion.choices[0].message.content})
            return json.dumps(messages)

        return turn, client.close

    sides = {
        "ours": ours,
        "plain": plain,
        "sdk pool": lambda: over(openai.DefaultAsyncHttpxClient(trust_env=False)),
        "own code": lambda: chat(_NoBackend()),
    }
    try:
        import aiohttp  # noqa: F401 - without it the SDK's client for it cannot be made
    except ImportError:
        return sides
    return sides | {"aiohttp": lambda: over(async_http_client(trust_env=False))}


class _NoBackend:
    """Answers at once, without SDK, HTTP and socket."""

    dialect = AsyncOpenAIChatBackend(MODEL, api_key=_KEY).dialect
    model = MODEL
    context_window = None
    max_retries = 0

    async def asend(self, request: ModelRequest) -> _Answered:
        return _Answered()

    async def aclose(self) -> None:
        pass


class _Answered:
    head = ResponseHead(status=200, headers={"content-type": "application/json"})

    def __init__(self) -> None:
        self._chunks = [_ANSWER]

    async def read(self) -> bytes:
        return self._chunks.pop() if self._chunks else b""

    async def aclose(self) -> None:
        pass
