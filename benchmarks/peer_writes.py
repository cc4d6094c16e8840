"""Bytes that a kept turn of other libraries makes their stores write: an optional run.

Owns: how a long conversation is put into each library's own store. Must never know: what a database counts as
written, or how a library makes a turn.

``python benchmarks/run.py --only writes peer_writes`` prints ours beside those that are installed. Messages
and databases are those of `writes`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

from _conversations import corpus
from _report import Figure, Report, info
from _written import AbsentError, Database, database
from peer_turns import agents_items, graph, openai_agent, pydantic_agent
from writes import Talk, history_of

__all__ = ["run"]

TURNS = {10: 10, 1_000: 12, 5_000: 4}
SHORT = {10: 4, 1_000: 2}
"""Turns by the length of the history. The bytes of a turn hardly differ, and long turns take a second."""
KEY = "conversation"

Say = Callable[[str], object]
Opened = Callable[[ExitStack, Any, Database, Talk, list[Any]], Say]


def run(*, short: bool = False) -> Report:
    """Measure each library that is installed. `short`: fewer turns, and not the largest size."""
    figures: list[Figure] = []
    absent: list[str] = []
    with closing(asyncio.new_event_loop()) as loop:
        for place, peers in _PEERS.items():
            for name, opened in peers.items():
                for size, turns in (SHORT if short else TURNS).items():
                    try:
                        found = _measured(place, opened, loop, size, turns)
                    except (AbsentError, ImportError) as error:
                        absent.append(f"{name} ({error})")
                        break
                    note = f"the largest turn {max(found) / 1000:,.1f}, of {turns} turns"
                    mean = statistics.mean(found) / 1000
                    figures.append(
                        info(f"{place}, {size:>5,} messages, {name}", mean, "KB", timed=False, note=note)
                    )
        loop.run_until_complete(loop.shutdown_default_executor())
    missing = f"; not measured: {', '.join(absent)}" if absent else ""
    return Report(
        title="Written by a kept turn of other libraries: kilobytes (1,000 bytes)",
        method=f"as the table of ours; {corpus().source}; each library's own store, with pydantic-ai, which "
        f"has none, one JSON column; the history is put in beforehand{missing}",
        figures=figures,
    )


def _measured(place: str, opened: Opened, loop: Any, size: int, turns: int) -> list[int]:
    talk = Talk(size)
    with database(place) as at, ExitStack() as stack:
        say = opened(stack, loop, at, talk, history_of(size))
        say(talk.question())
        return [at.cost(lambda: say(talk.question())).written for _ in range(turns)]


# ---------------------------------------------------------------------------------- each library


def _sqlite_session(stack: ExitStack, loop: Any, at: Database, talk: Talk, messages: list[Any]) -> Say:
    from agents import Runner, SQLiteSession

    session = SQLiteSession(KEY, at.url)
    stack.callback(session.close)
    loop.run_until_complete(session.add_items(agents_items(messages)))
    agent = openai_agent(talk)
    return lambda text: loop.run_until_complete(Runner.run(agent, text, session=session))


def _sqlalchemy_session(stack: ExitStack, loop: Any, at: Database, talk: Talk, messages: list[Any]) -> Say:
    from agents import Runner
    from agents.extensions.memory import SQLAlchemySession
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(at.url.replace("postgresql", "postgresql+asyncpg"))
    stack.callback(lambda: loop.run_until_complete(engine.dispose()))
    session = SQLAlchemySession(KEY, engine=engine, create_tables=True)
    loop.run_until_complete(session.add_items(agents_items(messages)))
    agent = openai_agent(talk)
    return lambda text: loop.run_until_complete(Runner.run(agent, text, session=session))


def _column(mark: str) -> Opened:
    def opened(stack: ExitStack, loop: Any, at: Database, talk: Talk, messages: list[Any]) -> Say:
        from peers import pydantic_messages
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        connection = stack.enter_context(closing(_connected(at, mark)))
        agent = pydantic_agent(talk)
        connection.execute("CREATE TABLE kept (name TEXT PRIMARY KEY, messages TEXT)")
        first = ModelMessagesTypeAdapter.dump_json(pydantic_messages(messages)).decode()
        connection.execute(f"INSERT INTO kept VALUES ({mark}, {mark})", (KEY, first))
        connection.commit()

        async def turn(text: str) -> None:
            row = connection.execute(f"SELECT messages FROM kept WHERE name = {mark}", (KEY,)).fetchone()
            history = ModelMessagesTypeAdapter.validate_json(row[0])
            kept = (await agent.run(text, message_history=history)).all_messages_json().decode()
            connection.execute(f"UPDATE kept SET messages = {mark} WHERE name = {mark}", (kept, KEY))
            connection.commit()

        return lambda text: loop.run_until_complete(turn(text))

    return opened


def _connected(at: Database, mark: str) -> Any:
    if mark == "?":
        return sqlite3.connect(at.url)
    import psycopg

    return psycopg.connect(at.url)


def _saver(module: str, name: str) -> Opened:
    def opened(stack: ExitStack, loop: Any, at: Database, talk: Talk, messages: list[Any]) -> Say:
        from importlib import import_module

        from langchain_core.messages import convert_to_messages

        saver = stack.enter_context(getattr(import_module(module), name).from_conn_string(at.url))
        saver.setup()
        app, config = graph(saver, talk), {"configurable": {"thread_id": KEY}}
        app.update_state(config, {"messages": convert_to_messages(messages)}, as_node="model")
        return lambda text: app.invoke({"messages": [("user", text)]}, config)

    return opened


_PEERS: dict[str, dict[str, Opened]] = {
    "SQLite": {
        "openai-agents SQLiteSession": _sqlite_session,
        "pydantic-ai, JSON column": _column("?"),
        "LangGraph SqliteSaver": _saver("langgraph.checkpoint.sqlite", "SqliteSaver"),
    },
    "PostgreSQL": {
        "openai-agents SQLAlchemySession": _sqlalchemy_session,
        "pydantic-ai, JSON column": _column("%s"),
        "LangGraph PostgresSaver": _saver("langgraph.checkpoint.postgres", "PostgresSaver"),
    },
}
