"""How large the stores of other libraries are for the same conversations: an optional run.

Owns: each library's own way to keep a conversation. Must never know: how ours does it.

``python benchmarks/run.py --peers`` measures those that are installed and names the others.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _conversations import JSON, Turn, compact, corpus
from _report import Figure, Report, info
from blob_size import written_turn_by_turn

__all__ = ["pydantic_messages", "run"]

SIZES = (2, 10, 50)


def run(*, short: bool = False) -> Report:
    """Store the conversations with every library that is there, and with ours."""
    figures: list[Figure] = []
    absent: list[str] = []
    count = 3 if short else 10
    for messages in SIZES:
        chains = [corpus().of_length(messages, start=start) for start in range(count)]
        raw = statistics.mean(len(compact([m for turn in chain for m in turn])) for chain in chains)
        for name, (package, stored) in {"ours": ("", _ours), **_PEERS}.items():
            try:
                size = statistics.mean(stored(chain) for chain in chains)
            except ImportError:
                if package not in absent:
                    absent.append(package)
                continue
            note = f"{100 * size / raw:,.1f} % of the raw JSON"
            figures.append(info(f"{messages:>2} messages: {name}", size, "bytes", timed=False, note=note))
    missing = f"; not installed, so not measured: pip install {' '.join(absent)}" if absent else ""
    return Report(
        title="Stores of other libraries: bytes after the last turn",
        method=f"{corpus().source}; turn by turn; mean of {count} conversations; payload columns only, "
        f"without the database's own overhead{missing}",
        figures=figures,
    )


def _ours(turns: Sequence[Turn]) -> int:
    return len(written_turn_by_turn(turns))


def _openai_agents(turns: Sequence[Turn]) -> int:
    from agents import SQLiteSession

    async def write(path: Path) -> None:
        session = SQLiteSession("conversation", path)
        for turn in turns:
            await session.add_items([item for message in turn for item in _responses_items(message)])
        session.close()

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "session.db"
        asyncio.run(write(path))
        return _payload(path, "SELECT sum(length(CAST(message_data AS BLOB))) FROM agent_messages")


def _responses_items(message: Any) -> list[Any]:
    """A message in the shape of the Responses API, which is what its runner stores."""
    if message["role"] == "tool":
        called = message["tool_call_id"]
        return [{"type": "function_call_output", "call_id": called, "output": message["content"]}]
    if message["role"] == "user":
        return [{"role": "user", "content": message["content"]}]
    if not message.get("tool_calls"):
        text = {"type": "output_text", "text": message["content"], "annotations": []}
        ids = {"id": "msg_0123456789", "type": "message", "role": "assistant", "status": "completed"}
        return [{**ids, "content": [text]}]
    return [
        {
            "type": "function_call",
            "id": "fc_0123456789",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
            "status": "completed",
        }
        for call in message["tool_calls"]
    ]


def _pydantic_ai(turns: Sequence[Turn]) -> int:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    history = pydantic_messages([message for turn in turns for message in turn])
    return len(ModelMessagesTypeAdapter.dump_json(history))  # what all_messages_json() gives


def pydantic_messages(messages: Sequence[JSON]) -> list[Any]:
    """Messages of Chat Completions as pydantic-ai keeps them."""
    from pydantic_ai import messages as words

    names: dict[str, str] = {}
    history: list[words.ModelMessage] = []
    for message in messages:
        if message["role"] == "user":
            history.append(words.ModelRequest(parts=[words.UserPromptPart(message["content"])]))
        elif message["role"] == "tool":
            called = message["tool_call_id"]
            part = words.ToolReturnPart(names[called], message["content"], tool_call_id=called)
            history.append(words.ModelRequest(parts=[part]))
        else:
            calls = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
            names.update({called: function["name"] for called, function in calls})
            parts: list[Any] = [words.TextPart(message["content"])] if message["content"] else []
            parts += [words.ToolCallPart(f["name"], f["arguments"], tool_call_id=c) for c, f in calls]
            history.append(words.ModelResponse(parts=parts, model_name="gpt-4o-2024-08-06"))
    return history


def _langgraph(turns: Sequence[Turn]) -> int:
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, MessagesState, StateGraph

    def said(message: Any) -> Any:
        if message["role"] == "tool":
            return ToolMessage(message["content"], tool_call_id=message["tool_call_id"])
        calls = [
            {"id": c["id"], "name": c["function"]["name"], "args": json.loads(c["function"]["arguments"])}
            for c in message.get("tool_calls") or ()
        ]
        return AIMessage(message["content"] or "", tool_calls=calls)

    waiting: list[Any] = []
    graph = StateGraph(MessagesState)
    graph.add_node("step", lambda _: {"messages": [said(waiting.pop(0))]})
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda _: "step" if waiting else END)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "checkpoints.db"
        with SqliteSaver.from_conn_string(str(path)) as saver:
            app = graph.compile(checkpointer=saver)
            for turn in turns:
                waiting += [message for message in turn if message["role"] != "user"]
                asked = [("user", message["content"]) for message in turn if message["role"] == "user"]
                config = {"configurable": {"thread_id": "1"}, "recursion_limit": 1000}
                app.invoke({"messages": asked}, config)
        checkpoints = "SELECT sum(length(checkpoint) + length(metadata)) FROM checkpoints"
        return _payload(path, checkpoints) + _payload(path, "SELECT sum(length(value)) FROM writes")


def _payload(path: Path, query: str) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(query).fetchone()[0] or 0)
    finally:
        connection.close()


_PEERS: dict[str, tuple[str, Callable[[Sequence[Turn]], int]]] = {
    "openai-agents SQLiteSession": ("openai-agents", _openai_agents),
    "pydantic-ai all_messages_json": ("pydantic-ai-slim", _pydantic_ai),
    "LangGraph SqliteSaver": ("langgraph-checkpoint-sqlite langgraph", _langgraph),
}
