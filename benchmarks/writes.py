"""Bytes that a kept turn makes each store write, and the client's CPU beside them.

Owns: the conversations, and what a turn in them says. Must never know: what a database counts as written.

Each store is on a database of its own, see `_written`. A conversation with the text of recorded ones is put
into it. Then come turns with one message and one reply each, which are measured one by one: with
``parts="inline"``, where a save writes the whole state, and with ``parts="store"``, where it writes what is
new.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import httpx2
from _conversations import JSON, Turn, answer, corpus
from _report import Figure, Report, at_most, info
from _wires import WIRES
from _written import AbsentError, Database, database

from goaitools_py import Chat
from goaitools_py.states import state_from_messages
from goaitools_py.stores import PostgresStore, RedisStore, SQLAlchemyStore, SQLiteStore

__all__ = ["Talk", "history_of", "run", "said"]

SIZES = (10, 1_000, 5_000)
TURNS, SHORT = 200, 8
WAYS: tuple[Literal["inline", "store"], ...] = ("inline", "store")
GROWTH = 1.5
"""How many times the bytes at 1,000 messages a turn at 5,000 may write."""
AIMS = {"PostgreSQL": 4.0, "Redis": 4.0, "MariaDB": 6.0}
"""Kilobytes (1,000 bytes) of a turn at 1,000 messages, with ``parts="store"``."""
PAGE = 4.12
"""Kilobytes of a page in SQLite's log. A turn may write one page more than one at 10 messages."""
CPU_MORE = 10.0
"""Per cent of client CPU that a turn in parts may take more, up to 1,000 messages."""


class Measured(NamedTuple):
    """Turns of one conversation: bytes written, and microseconds of CPU of client and server, each a list."""

    written: list[int]
    client: list[float]
    server: list[float]

    @property
    def mean(self) -> float:
        """Kilobytes of a turn."""
        return statistics.mean(self.written) / 1000

    @property
    def largest(self) -> float:
        """Kilobytes of the turn that wrote most."""
        return max(self.written) / 1000


def run(*, short: bool = False) -> Report:
    """Measure each store that can be had. `short`: fewer turns, and not the largest size."""
    sizes, turns = (SIZES[:-1], SHORT) if short else (SIZES, TURNS)
    figures: list[Figure] = []
    away: list[str] = []
    for name, opened in _STORES.items():
        try:
            with database(name) as at, opened(at) as store:
                found = {size: _measured(at, store, size, turns) for size in sizes}
        except (AbsentError, ImportError) as error:
            away.append(f"{name} ({error})")
            continue
        figures += _figures(name, found)
    return Report(
        title='Written by a kept turn: kilobytes (1,000 bytes), with parts="inline" and parts="store"',
        method="a server of its own for each store; PostgreSQL: its log by pg_current_wal_insert_lsn(), with "
        "full_page_writes off; Redis: its append-only file; MariaDB: Innodb_os_log_written; SQLite: its log, "
        f"whole pages; {corpus().source}; mean of {turns} turns of one message and one reply each, at "
        f"{SIZES[0]} messages 10 turns of each conversation, after one that is not counted and writes all of "
        "it; both kinds in turns, and of both the CPU time of the client's process, with the model in it, "
        "and of the server's processes" + (f"; not measured: {', '.join(away)}" if away else ""),
        figures=figures,
    )


def _measured(at: Database, store: Any, size: int, turns: int) -> dict[str, Measured]:
    blob = state_from_messages("openai", history_of(size))
    talk = Talk(size)
    with Chat(WIRES["openai"].backend(talk)) as chat:
        found = {way: Measured([], [], []) for way in WAYS}
        for number in range(turns):
            if number % max(10, size // 5) == 0:
                kept = {way: chat.conversation(store, f"{way}-{size}-{number}", parts=way) for way in WAYS}
                for conversation in kept.values():
                    store.save(conversation.key, blob, expected=None)
                    conversation.send(talk.question())
            question, place = talk.question(), talk.place
            for way in WAYS if number % 2 else reversed(WAYS):
                talk.place = place  # both hear the same reply
                cost = at.cost(partial(_timed, kept[way], question, found[way].client))
                found[way].written.append(cost.written)
                found[way].server.append(cost.server)
    return {**found}


def _timed(conversation: Any, question: str, took: list[float]) -> None:
    # Not the thread's time: a store may save in a thread beside this one.
    began = time.process_time_ns()
    conversation.send(question)
    took.append((time.process_time_ns() - began) / 1000)


def _figures(name: str, found: dict[int, dict[str, Measured]]) -> Iterator[Figure]:
    first, middle = found[SIZES[0]]["store"].mean, found[SIZES[1]]["store"].mean
    for size, ways in found.items():
        for way, measured in ways.items():
            at = f"{name}, {size:>5,} messages, {way}"
            note = f"the largest turn {measured.largest:,.1f}"
            aim = None
            if way == "store" and size != SIZES[0]:
                small = AIMS.get(name)
                aim = first + PAGE if small is None else small if size == SIZES[1] else GROWTH * middle
            if aim is None:
                yield info(at, measured.mean, "KB", timed=False, note=note)
            else:
                yield at_most(round(aim, 2), at, measured.mean, "KB", timed=False, note=note)
        inline, store = (statistics.mean(ways[way].client) for way in WAYS)
        at = f"{name}, {size:>5,} messages: client CPU in parts, more"
        more, note = 100 * (store / inline - 1), f"{store:,.0f} and {inline:,.0f} µs, means"
        yield (
            at_most(CPU_MORE, at, more, "%", note=note)
            if size <= SIZES[1]
            else info(at, more, "%", note=note)
        )
        if any(ways["store"].server):
            both = {
                way: statistics.mean(ways[way].client) + statistics.mean(ways[way].server) for way in WAYS
            }
            at = f"{name}, {size:>5,} messages: CPU of client and server in parts, more"
            note = f"{both['store']:,.0f} and {both['inline']:,.0f} µs, means"
            yield info(at, 100 * (both["store"] / both["inline"] - 1), "%", note=note)


# ---------------------------------------------------------------------------------- what is said


def history_of(messages: int) -> list[dict[str, Any]]:
    """So many messages of the corpus, or a few less: whole turns."""
    return [dict(message) for turn in corpus().of_length(messages) for message in turn]


def said(turns: Sequence[Turn]) -> list[tuple[str, str]]:
    """A user's text and the reply, of each turn that has both."""
    pairs = ((turn[0].get("content"), turn[-1].get("content")) for turn in turns)
    return [(asked, answered) for asked, answered in pairs if asked and answered]


class Talk(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """A model in this process. It replies as the recorded one did; each question has its own reply.

    Args:
        messages: How long the history is. Its usage says about as many tokens as that.
    """

    def __init__(self, messages: int) -> None:
        turns = [turn for talk in reversed(corpus().conversations) for turn in talk]
        self._said = said(turns)
        self.tokens = max(1_200, messages * 60)
        """How many its usage says."""
        self.place = 0
        """How many replies it has given."""

    def question(self) -> str:
        """What the user says next."""
        return self._said[self.place % len(self._said)][0]

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._response()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._response()

    def _response(self) -> httpx2.Response:
        message: JSON = {"role": "assistant", "content": self._said[self.place % len(self._said)][1]}
        self.place += 1
        body = answer(message, number=self.place, prompt_tokens=self.tokens)
        headers = {"content-type": "application/json", "x-request-id": f"req_{self.place:010}"}
        return httpx2.Response(200, headers=headers, content=body)


# ---------------------------------------------------------------------------------------- stores


@contextmanager
def _postgres(at: Database) -> Iterator[Any]:
    with PostgresStore.open(at.url) as store:
        yield store


@contextmanager
def _redis(at: Database) -> Iterator[Any]:
    import redis

    with redis.Redis.from_url(at.url) as client:
        yield RedisStore(client)


@contextmanager
def _mariadb(at: Database) -> Iterator[Any]:
    import sqlalchemy

    engine = sqlalchemy.create_engine(at.url)
    yield SQLAlchemyStore(engine)
    engine.dispose()


@contextmanager
def _sqlite(at: Database) -> Iterator[Any]:
    with SQLiteStore(at.url) as store:
        yield store


_STORES: dict[str, Callable[[Database], Any]] = {
    "PostgreSQL": _postgres,
    "Redis": _redis,
    "MariaDB": _mariadb,
    "SQLite": _sqlite,
}
