"""An async web service: streams, a typed answer, limits, and a store. Read by type checkers, never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from goaitools_py import AsyncChat, Compactor, Limits, ModelSettings, TextDelta, TurnError
from goaitools_py.stores import AsyncSQLiteStore


class Ticket(BaseModel):
    """What the model makes of a complaint."""

    title: str
    is_urgent: bool


chat = AsyncChat(
    "sim",
    system="You are a help desk.",
    settings=ModelSettings(max_output_tokens=500),
    limits=Limits(max_tool_calls=5, conversation_max_cost_usd=Decimal("0.50")),
    compactor=Compactor.default("sim"),
)
store = AsyncSQLiteStore("desk.db")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    """Close both at the end."""
    async with chat, store:
        yield


app = FastAPI(lifespan=lifespan)


async def pieces(user: str, text: str) -> AsyncIterator[str]:
    """The answer as it comes."""
    try:
        async with chat.conversation(store, user).start(text) as turn:
            async for one in turn:
                if isinstance(one, TextDelta):
                    yield one.text
            result = await turn.result()
            print(result.usage.output_tokens, result.cost_usd, result.warnings)
    except TurnError as error:
        yield f"Sorry: {error.code or 'unknown'}, after {error.retry_after or 0:.0f} seconds."


@app.post("/{user}")
async def talk(user: str, text: str) -> StreamingResponse:
    """Stream an answer."""
    return StreamingResponse(pieces(user, text))


@app.post("/{user}/ticket")
async def ticket(user: str, text: str) -> Ticket:
    """A typed answer."""
    result = await chat.conversation(store, user).send(text, output_type=Ticket)
    if result.output is None:  # the turn has not ended, for example because a call waits
        raise HTTPException(409)
    return result.output


@app.get("/{user}")
async def history(user: str) -> list[str]:
    """All that was said."""
    found = await chat.conversation(store, user).history()
    return [f"{message.role}: {message.text}" for message in found.all_messages()]
