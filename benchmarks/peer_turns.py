"""What a whole turn costs with other libraries, and with their stores: an optional run.

Owns: how each library makes a turn and keeps a conversation, as its documentation shows. Must never know:
how time is taken.

``python benchmarks/run.py --peers`` measures those that are installed and names the others. Every library
talks to the same model in this process, through the official SDK and a transport without a socket.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
from _conversations import ANSWER_TEXT, JSON, MODEL, answer, corpus
from _report import Figure, Report, info
from _timing import Blocks, interleaved
from _wires import WIRES

from goaitools_py import Chat
from goaitools_py.states import state_from_messages
from goaitools_py.stores import PostgresStore, SQLiteStore

__all__ = ["agents_items", "graph", "openai_agent", "pydantic_agent", "run"]

SIZES = (2, 10, 200, 1000)
QUESTION = "And is my second bag still on the reservation?"
POSTGRES = "postgresql://postgres@127.0.0.1:5432/postgres"
TURNS = 10
"""Turns of a kept conversation; then the next one begins."""

Side = Callable[[], object]
Opened = Callable[[ExitStack, Any], Iterator[tuple[str, Side]]]


def run(*, short: bool = False) -> Report:
    """Whole turns at each size, then turns of conversations in each library's own store."""
    figures: list[Figure] = []
    absent: list[str] = []
    with ExitStack() as stack:
        loop = stack.enter_context(closing(asyncio.new_event_loop()))
        stack.callback(lambda: loop.run_until_complete(loop.shutdown_default_executor()))
        for size in SIZES[:-1] if short else SIZES:
            figures += _compared(f"{size:>4} messages", _whole(size, loop, absent), short)
        for place, opened in (("SQLite", _in_sqlite), ("PostgreSQL", _in_postgres)):
            try:
                sides = dict(opened(stack, loop, absent))
            except Exception as error:  # a server that is away is not this benchmark's subject
                absent.append(f"{place} ({type(error).__name__})")
                continue
            figures += _compared(f"kept in {place}", sides, short, rounds_of=TURNS)
    missing = f"; not measured: {', '.join(dict.fromkeys(absent))}" if absent else ""
    return Report(
        title="Whole turns of other libraries",
        method=f"CPU time of the process, all threads; {corpus().source}; Chat Completions; an instant model "
        "in this process, so no socket to it; blocks interleaved; a time is the median of the blocks, a "
        "ratio the median over the rounds; whole turns: the conversation comes as bytes and goes as bytes; "
        "with previous_response_id (Responses API) the provider keeps it, and only an id comes and goes; "
        f"kept turns: conversations of {TURNS} turns, each library's own store, with pydantic-ai, which has "
        f"none, one JSON column{missing}",
        figures=figures,
    )


def _compared(where: str, sides: dict[str, Side], short: bool, *, rounds_of: int = 1) -> list[Figure]:
    found: dict[str, Blocks] = interleaved(
        sides, short=short, rounds_of=rounds_of, clock=time.process_time_ns
    )
    ours = found["ours"]
    return [
        info(
            f"{where}: {name}",
            blocks.median / 1000,
            "ms",
            note="" if blocks is ours else f"{blocks.times(ours):.1f} times ours",
        )
        for name, blocks in found.items()
    ]


# -------------------------------------------------------------------------------------------- the model


class _Instant(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """A model in this process: the same answer to each request. `tokens`: its usage. With far fewer than a
    history has, our turn would check whether the server has cut the prompt, and read all of the history."""

    def __init__(self, tokens: int = 1_200) -> None:
        self._answer = answer({"role": "assistant", "content": ANSWER_TEXT}, prompt_tokens=tokens)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._response()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._response()

    def _response(self) -> httpx2.Response:
        headers = {"content-type": "application/json", "x-request-id": "req_0123456789"}
        return httpx2.Response(200, headers=headers, content=self._answer)


def _client(model: Any = None) -> Any:
    import openai

    http_client = openai.DefaultHttpxClient(transport=model or _Instant())
    return openai.OpenAI(api_key="sk-none", http_client=http_client)


def _async_client(model: Any = None) -> Any:
    import openai

    http_client = openai.DefaultAsyncHttpxClient(transport=model or _Instant())
    return openai.AsyncOpenAI(api_key="sk-none", http_client=http_client)


def _chat(tokens: int = 1_200) -> Chat:
    return Chat(WIRES["openai"].backend(_Instant(tokens)))


def _tokens(messages: Sequence[JSON]) -> int:
    return max(1_200, len(json.dumps(messages)) // 4)


# ------------------------------------------------------------------------------- whole turns, no store


def _whole(size: int, loop: Any, absent: list[str]) -> dict[str, Side]:
    """A turn of each library behind a conversation of so many messages, which comes and goes as bytes."""
    messages = [dict(message) for turn in corpus().of_length(size) for message in turn]
    sides: dict[str, Side] = {
        "ours": _ours(size, _tokens(messages)),
        "create() and JSON": _plain(messages),
        "responses.create(previous_response_id=…)": _kept_by_the_provider(_tokens(messages)),
    }
    for name, (package, made) in _WHOLE.items():
        try:
            sides[name] = made(messages, loop)
        except ImportError:
            absent.append(package)
    return sides


def _ours(size: int, tokens: int) -> Side:
    # A tail is compressed with each turn until it is sealed: a turn is the mean over states around the size.
    around = range(-70, 70, 10) if size >= 200 else (0,)
    chat = _chat(tokens)
    blobs = cycle(
        [
            state_from_messages("openai", [m for turn in corpus().of_length(size + more) for m in turn])
            for more in around
        ]
    )
    return lambda: chat.chat_with_state(next(blobs), user=QUESTION)


def _plain(messages: Sequence[JSON]) -> Side:
    client, stored = _client(), json.dumps(messages)
    return lambda: WIRES["openai"].plain(client, stored, QUESTION)


def _kept_by_the_provider(tokens: int) -> Side:
    """The provider keeps the history: only the id of its newest response comes and goes."""
    wire = WIRES["openai-responses"]
    client, stored = wire.client(wire.instant(tokens)), "resp_0123456789abcdef"

    def turn() -> str:
        response = client.responses.create(model=MODEL, input=QUESTION, previous_response_id=stored)
        assert response.output_text
        return str(response.id)

    return turn


def agents_items(messages: Sequence[JSON]) -> list[Any]:
    """Messages as items of the Responses API, which its runner takes and gives."""
    items: list[Any] = []
    for message in messages:
        if message["role"] == "tool":
            called = message["tool_call_id"]
            items.append({"type": "function_call_output", "call_id": called, "output": message["content"]})
            continue
        if message.get("content"):
            items.append({"role": message["role"], "content": message["content"]})
        for call in message.get("tool_calls") or ():
            function = call["function"]
            items.append({"type": "function_call", "call_id": call["id"], **function})
    return items


def openai_agent(model: Any = None) -> Any:
    """An agent of openai-agents. `model`: a transport in the place of the instant model."""
    from agents import Agent, OpenAIChatCompletionsModel, set_tracing_disabled

    set_tracing_disabled(True)
    chosen = OpenAIChatCompletionsModel(model=MODEL, openai_client=_async_client(model))
    return Agent(name="assistant", model=chosen)


def _openai_agents(messages: Sequence[JSON], loop: Any) -> Side:
    from agents import Runner

    agent, stored = openai_agent(), json.dumps(agents_items(messages))

    async def turn() -> str:
        items = [*json.loads(stored), {"role": "user", "content": QUESTION}]
        return json.dumps((await Runner.run(agent, items)).to_input_list())

    return lambda: loop.run_until_complete(turn())


def pydantic_agent(model: Any = None) -> Any:
    """An agent of pydantic-ai. `model`: as for `openai_agent`."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=_async_client(model))))


def _pydantic_ai(messages: Sequence[JSON], loop: Any) -> Side:
    from peers import pydantic_messages
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    agent = pydantic_agent()
    stored = ModelMessagesTypeAdapter.dump_json(pydantic_messages(messages))

    async def turn() -> bytes:
        history = ModelMessagesTypeAdapter.validate_json(stored)
        return bytes((await agent.run(QUESTION, message_history=history)).all_messages_json())

    return lambda: loop.run_until_complete(turn())


def graph(saver: Any = None, model: Any = None) -> Any:
    """A graph of LangGraph with a checkpointer. `model`: as for `openai_agent`."""
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, MessagesState, StateGraph

    client = _client(model)
    chosen = ChatOpenAI(
        model=MODEL,
        client=client.chat.completions,
        root_client=client,
        api_key="sk-none",  # type: ignore[arg-type]
    )
    made = StateGraph(MessagesState)
    made.add_node("model", lambda state: {"messages": [chosen.invoke(state["messages"])]})
    made.add_edge(START, "model")
    made.add_edge("model", END)
    return made.compile(checkpointer=saver)


def _langgraph(messages: Sequence[JSON], _: Any) -> Side:
    from langchain_core.messages import convert_to_messages, messages_from_dict, messages_to_dict

    app = graph()
    stored = json.dumps(messages_to_dict(convert_to_messages([dict(message) for message in messages])))

    def turn() -> str:
        history = messages_from_dict(json.loads(stored))
        found = app.invoke({"messages": [*history, ("user", QUESTION)]})
        return json.dumps(messages_to_dict(found["messages"]))

    return turn


_WHOLE: dict[str, tuple[str, Callable[[Sequence[JSON], Any], Side]]] = {
    "openai-agents": ("openai-agents", _openai_agents),
    "pydantic-ai": ("pydantic-ai-slim", _pydantic_ai),
    "LangGraph": ("langgraph langchain-openai", _langgraph),
}


# ------------------------------------------------------------------------------------- kept turns


def _keys() -> Iterator[str]:
    while True:
        key = f"bench-{secrets.token_hex(8)}"
        yield from [key] * TURNS


def _kept(store: Any) -> Side:
    chat, keys = _chat(), _keys()
    return lambda: chat.conversation(store, next(keys)).send(QUESTION)


def _in_sqlite(stack: ExitStack, loop: Any, absent: list[str]) -> Iterator[tuple[str, Side]]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    yield "ours", _kept(stack.enter_context(SQLiteStore(folder / "ours.sqlite3")))
    with _if_installed("openai-agents", absent):
        from agents import Runner, SQLiteSession

        agent, keys, path = openai_agent(), _keys(), folder / "agents.sqlite3"

        async def turn() -> object:
            session = SQLiteSession(next(keys), path)
            try:
                return await Runner.run(agent, QUESTION, session=session)
            finally:
                session.close()

        yield "openai-agents SQLiteSession", lambda: loop.run_until_complete(turn())
    with _if_installed("pydantic-ai-slim", absent):
        connection = stack.enter_context(closing(sqlite3.connect(folder / "pydantic.sqlite3")))
        connection.execute("PRAGMA journal_mode=WAL")
        yield "pydantic-ai, JSON column", _column(connection, loop, "?")
    with _if_installed("langgraph langgraph-checkpoint-sqlite", absent):
        from langgraph.checkpoint.sqlite import SqliteSaver

        saver = stack.enter_context(SqliteSaver.from_conn_string(str(folder / "graph.sqlite3")))
        yield "LangGraph SqliteSaver", _checkpointed(saver)


def _in_postgres(stack: ExitStack, loop: Any, absent: list[str]) -> Iterator[tuple[str, Side]]:
    import psycopg

    database = f"goaitools_bench_{secrets.token_hex(4)}"
    admin = stack.enter_context(psycopg.connect(POSTGRES, autocommit=True, connect_timeout=3))
    admin.execute(f"CREATE DATABASE {database}")  # type: ignore[arg-type]
    stack.callback(lambda: admin.execute(f"DROP DATABASE {database} WITH (FORCE)"))  # type: ignore[arg-type]
    url = f"{POSTGRES.rpartition('/')[0]}/{database}"
    yield "ours", _kept(stack.enter_context(PostgresStore.open(url)))
    with _if_installed("openai-agents sqlalchemy asyncpg", absent):
        from agents import Runner
        from agents.extensions.memory import SQLAlchemySession
        from sqlalchemy.ext.asyncio import create_async_engine

        agent, keys = openai_agent(), _keys()
        engine = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"))
        stack.callback(lambda: loop.run_until_complete(engine.dispose()))
        first = SQLAlchemySession(next(keys), engine=engine, create_tables=True)
        loop.run_until_complete(first.get_items())

        async def turn() -> object:
            session = SQLAlchemySession(next(keys), engine=engine)
            return await Runner.run(agent, QUESTION, session=session)

        yield "openai-agents SQLAlchemySession", lambda: loop.run_until_complete(turn())
    with _if_installed("pydantic-ai-slim", absent):
        yield "pydantic-ai, JSON column", _column(stack.enter_context(psycopg.connect(url)), loop, "%s")
    with _if_installed("langgraph langgraph-checkpoint-postgres", absent):
        from langgraph.checkpoint.postgres import PostgresSaver

        saver = stack.enter_context(PostgresSaver.from_conn_string(url))
        saver.setup()
        yield "LangGraph PostgresSaver", _checkpointed(saver)


def _if_installed(package: str, absent: list[str]) -> Any:
    """Within it, a missing import ends the block and names the package."""

    class Named(suppress):
        def __exit__(self, *found: Any) -> bool:
            if found[0] is not None and issubclass(found[0], ImportError):
                absent.append(package)
                return True
            return False

    return Named()


def _column(connection: Any, loop: Any, mark: str) -> Side:
    """pydantic-ai has no store. Its documentation keeps `all_messages_json()`: here, in a column."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    agent, keys = pydantic_agent(), _keys()
    connection.execute("CREATE TABLE kept (name TEXT PRIMARY KEY, messages TEXT)")
    connection.commit()
    read = f"SELECT messages FROM kept WHERE name = {mark}"
    write = (
        f"INSERT INTO kept VALUES ({mark}, {mark}) "
        "ON CONFLICT (name) DO UPDATE SET messages = excluded.messages"
    )

    async def turn() -> None:
        key = next(keys)
        row = connection.execute(read, (key,)).fetchone()
        history = ModelMessagesTypeAdapter.validate_json(row[0]) if row else None
        result = await agent.run(QUESTION, message_history=history)
        connection.execute(write, (key, result.all_messages_json().decode()))
        connection.commit()

    return lambda: loop.run_until_complete(turn())


def _checkpointed(saver: Any) -> Side:
    app, keys = graph(saver), _keys()
    return lambda: app.invoke({"messages": [("user", QUESTION)]}, {"configurable": {"thread_id": next(keys)}})
