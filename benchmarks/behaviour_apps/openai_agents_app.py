"""The app with openai-agents: `SQLiteSession`, and a `RunState` as text while a call waits."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import shell
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    RunState,
    SessionSettings,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.shared import Reasoning

set_tracing_disabled(True)
loop = asyncio.new_event_loop()


@function_tool
def pay(euros: int) -> str:
    """Pay an amount."""
    return shell.pay(euros)


@function_tool(needs_approval=True)
def refund(euros: int) -> str:
    """Pay an amount back."""
    return shell.pay(euros)


@function_tool
def report() -> str:
    """Read the report."""
    return shell.report()


client = AsyncOpenAI(base_url=shell.URL, api_key="sim")
agent: Agent[Any] = Agent(
    name="desk",
    instructions=shell.SYSTEM,
    model=OpenAIChatCompletionsModel(shell.MODEL, openai_client=client),
    tools=[pay, refund, report],
)
settings = None
if shell.THINKS:
    agent = Agent(
        name="desk",
        instructions=shell.SYSTEM,
        model=OpenAIResponsesModel(shell.MODEL, openai_client=client),
        tools=[pay],
        model_settings=ModelSettings(
            store=False,
            reasoning=Reasoning(effort="medium"),
            response_include=["reasoning.encrypted_content"],
        ),
    )
    settings = SessionSettings(limit=6)
session = SQLiteSession("ada", shell.FOLDER / "agents.db", session_settings=settings)
waiting = sqlite3.connect(shell.FOLDER / "waiting.db", timeout=30)
waiting.execute("CREATE TABLE IF NOT EXISTS waiting (key TEXT PRIMARY KEY, state TEXT)")


def finish(result: Any) -> str:
    """Keep a run that waits for an approval, and forget it when it does not wait any more."""
    with waiting:
        if result.interruptions:
            state = result.to_state().to_string()
            waiting.execute("INSERT OR REPLACE INTO waiting VALUES ('ada', ?)", (state,))
            return ""
        waiting.execute("DELETE FROM waiting WHERE key = 'ada'")
    return result.final_output


def send(id: str, text: str) -> str:
    """A message of the user."""
    return finish(loop.run_until_complete(Runner.run(agent, text, session=session)))


async def stream(text: str) -> AsyncIterator[str]:
    """The answer in pieces."""
    result = Runner.run_streamed(agent, text, session=session)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            yield event.data.delta


def leave(id: str, text: str) -> str:
    """The user reads the first piece of the answer and goes."""

    async def first() -> str:
        pieces = stream(text)
        try:
            return await anext(pieces)
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]

    return loop.run_until_complete(first())


def approve() -> str:
    """The button beside a call that waits."""
    row = waiting.execute("SELECT state FROM waiting WHERE key = 'ada'").fetchone()
    if row is None:
        return "Nothing waits."

    async def go_on() -> Any:
        state = await RunState.from_string(agent, row[0])
        for call in state.get_interruptions():
            state.approve(call)
        return await Runner.run(agent, state, session=session)

    return finish(loop.run_until_complete(go_on()))


def edit(text: str) -> str:
    """The user changes the newest message."""

    async def run() -> Any:
        while (item := await session.pop_item()) is not None and item.get("role") != "user":
            pass
        return await Runner.run(agent, text, session=session)

    return finish(loop.run_until_complete(run()))


shell.serve(send, leave, approve, edit)
