"""The app with LangGraph: `create_agent` over `SqliteSaver`. A run that broke off is resumed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import shell
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, before_model
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, RemoveMessage, trim_messages
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command


@tool
def pay(euros: int) -> str:
    """Pay an amount."""
    return shell.pay(euros)


@tool
def refund(euros: int) -> str:
    """Pay an amount back."""
    return shell.pay(euros)


@tool
def report() -> str:
    """Read the report."""
    return shell.report()


@before_model
def keep_recent(state: Any, runtime: Any) -> dict[str, Any]:
    """Keep the newest messages, from a message of the user on."""
    kept = trim_messages(
        state["messages"], strategy="last", token_counter=len, max_tokens=6, start_on="human"
    )
    return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *kept]}


saver = SqliteSaver(sqlite3.connect(shell.FOLDER / "graph.db", check_same_thread=False, timeout=30))
agent: Any = create_agent(
    ChatOpenAI(model=shell.MODEL, base_url=shell.URL, api_key="sim"),  # type: ignore[arg-type]
    [pay, refund, report],
    system_prompt=shell.SYSTEM,
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"refund": True})],
    checkpointer=saver,
)
if shell.THINKS:
    agent = create_agent(
        ChatAnthropic(  # type: ignore[call-arg]
            model_name=shell.MODEL,
            base_url=shell.ANTHROPIC_URL,
            api_key="sim",  # type: ignore[arg-type]
            max_tokens_to_sample=4096,
            thinking={"type": "enabled", "budget_tokens": 1024},
        ),
        [pay],
        system_prompt=shell.SYSTEM,
        middleware=[keep_recent],
        checkpointer=saver,
    )
config: Any = {"configurable": {"thread_id": "ada"}}


def said(id: str, text: str) -> Any:
    """The input of a run: None goes on with the one that broke off at this message."""
    state = agent.get_state(config)
    if state.next and not state.interrupts:
        asked = [m for m in state.values.get("messages", ()) if isinstance(m, HumanMessage)]
        if asked and asked[-1].id == id:
            return None
    return {"messages": [HumanMessage(text, id=id)]}


def send(id: str, text: str) -> str:
    """A message of the user."""
    return agent.invoke(said(id, text), config)["messages"][-1].text


def stream(id: str, text: str) -> Iterator[str]:
    """The answer in pieces."""
    for message, _ in agent.stream(said(id, text), config, stream_mode="messages"):
        if message.text:
            yield message.text


def leave(id: str, text: str) -> str:
    """The user reads the first piece of the answer and goes."""
    pieces = stream(id, text)
    try:
        return next(pieces)
    finally:
        pieces.close()  # type: ignore[attr-defined]


def approve() -> str:
    """The button beside a call that waits."""
    waits = agent.get_state(config).interrupts
    if not waits:
        return "Nothing waits."
    decisions = [{"type": "approve"} for _ in waits[0].value["action_requests"]]
    return agent.invoke(Command(resume={"decisions": decisions}), config)["messages"][-1].text


def edit(text: str) -> str:
    """The user changes the newest message: a run from the checkpoint before it."""
    history = agent.get_state_history(config)
    begin = next(state for state in history if state.metadata["source"] == "input")
    return agent.invoke({"messages": [HumanMessage(text)]}, begin.parent_config)["messages"][-1].text


shell.serve(send, leave, approve, edit)
