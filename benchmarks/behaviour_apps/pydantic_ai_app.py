"""The app with pydantic-ai: a `Conversation` as JSON in a column, as its page on persistence shows."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import shell
from pydantic_ai import Agent, DeferredToolRequests, ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

agent: Agent[None, Any] = Agent(
    OpenAIChatModel(shell.MODEL, provider=OpenAIProvider(base_url=shell.URL, api_key="sim")),
    instructions=shell.SYSTEM,
    output_type=[str, DeferredToolRequests],
)
if shell.THINKS:

    def keep_recent(messages: list[ModelMessage]) -> list[ModelMessage]:
        """Keep the newest two turns: a cut between a call and its result would be refused."""
        return messages[([0, *starts(messages)])[-2] :] if len(starts(messages)) > 2 else messages

    agent = Agent(
        AnthropicModel(
            shell.MODEL,
            provider=AnthropicProvider(base_url=shell.ANTHROPIC_URL, api_key="sim"),
            settings={
                "anthropic_thinking": {"type": "enabled", "budget_tokens": 1024},
                "max_tokens": 4096,
            },
        ),
        instructions=shell.SYSTEM,
        capabilities=[ProcessHistory(keep_recent)],
    )


@agent.tool_plain
def pay(euros: int) -> str:
    """Pay an amount."""
    return shell.pay(euros)


@agent.tool_plain(requires_approval=not shell.THINKS)
def refund(euros: int) -> str:
    """Pay an amount back."""
    return shell.pay(euros)


@agent.tool_plain
def report() -> str:
    """Read the report."""
    return shell.report()


database = sqlite3.connect(shell.FOLDER / "pydantic.db", timeout=30)
database.execute("CREATE TABLE IF NOT EXISTS conversations (key TEXT PRIMARY KEY, value TEXT)")


def load() -> Conversation:
    """The stored conversation, or a new one."""
    row = database.execute("SELECT value FROM conversations WHERE key = 'ada'").fetchone()
    return ConversationTypeAdapter.validate_json(row[0]) if row else Conversation()


def save(conversation: Conversation) -> None:
    """Put it into its row."""
    value = ConversationTypeAdapter.dump_json(conversation).decode()
    with database:
        database.execute("INSERT OR REPLACE INTO conversations VALUES ('ada', ?)", (value,))


def finish(result: Any) -> str:
    """Save what a run gave."""
    save(result.conversation)
    return "" if isinstance(result.output, DeferredToolRequests) else result.output


def send(id: str, text: str) -> str:
    """A message of the user."""
    return finish(agent.run_sync(text, conversation=load()))


async def stream(text: str) -> AsyncIterator[str]:
    """The answer in pieces. The conversation is saved behind the last one."""
    async with agent.run_stream(text, conversation=load()) as result:
        async for piece in result.stream_text(delta=True):
            yield piece
        save(result.conversation)


def leave(id: str, text: str) -> str:
    """The user reads the first piece of the answer and goes."""

    async def first() -> str:
        pieces = stream(text)
        try:
            return await anext(pieces)
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]

    return asyncio.run(first())


def approve() -> str:
    """The button beside a call that waits."""
    conversation = load()
    if (waits := conversation.deferred_tool_requests) is None:
        return "Nothing waits."
    results = waits.build_results(approve_all=True)
    return finish(agent.run_sync(conversation=conversation, deferred_tool_results=results))


def starts(messages: list[ModelMessage]) -> list[int]:
    """Where the messages of the user stand."""
    return [
        at
        for at, message in enumerate(messages)
        if isinstance(message, ModelRequest) and any(isinstance(p, UserPromptPart) for p in message.parts)
    ]


def edit(text: str) -> str:
    """The user changes the newest message."""
    messages = load().messages
    return finish(agent.run_sync(text, message_history=messages[: starts(messages)[-1]]))


shell.serve(send, leave, approve, edit)
