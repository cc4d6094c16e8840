"""A chat endpoint: each request loads the user's state, runs one turn, and saves the new state.

Serve it with ``uvicorn fastapi_app:app``. One `Chat` and one store serve all users and threads.
Install: pip install goaitools-py fastapi uvicorn
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from goaitools_py import Chat, StateConflictError, TurnError
from goaitools_py.stores import SQLiteStore

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


class Said(BaseModel):
    """What a user says."""

    text: str


class Reply(BaseModel):
    """What the model answers; `simulated` is True when no language model was asked."""

    text: str
    simulated: bool = MODEL.startswith("sim")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the chat and the store with the application, and close them with it."""
    with (
        Chat(MODEL, system="You are a game guide.") as app.state.chat,
        SQLiteStore(os.environ.get("GOAITOOLS_STORE", "chat.db")) as app.state.store,
    ):
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/chat/{user}")
def say(user: str, said: Said, request: Request) -> Reply:
    """Run one turn, and save the conversation also if the turn fails."""
    chat, store = request.app.state.chat, request.app.state.store
    saved = store.load(user)
    version = saved.version if saved else None
    try:
        result = chat.chat_with_state(saved.blob if saved else None, user=said.text)
        store.save(user, result.state, expected=version)
    except TurnError as error:
        store.save(user, error.state, expected=version)
        raise HTTPException(503 if error.retryable else 502, "Please try again later.") from error
    except StateConflictError as error:
        raise HTTPException(409, "You said something else meanwhile; please say it again.") from error
    return Reply(text=result.text)
