"""A web chat: a login, conversations of each user, streams and a stop button.

Serve it with ``uvicorn webchat_fastapi:app`` and open http://127.0.0.1:8000. Close the page while a reply
comes and open it again, or open a second one: the reply goes on in both.
Install: pip install 'goaitools-py[serve]' fastapi uvicorn
"""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import HTMLResponse

from goaitools_py import AsyncChat
from goaitools_py.serve import Caller, Refused, serve
from goaitools_py.stores import AsyncSQLiteStore

PAGE = Path(__file__).with_name("webchat_page.html")
users: dict[str, str] = {}  # session -> user; a database in your program


def whose(request: Request, name: str) -> Caller:
    """Say whose conversation it is. The key begins with the user, so nobody reads what is another user's."""
    user = users.get(request.cookies.get("session", ""))
    if user is None:
        raise Refused(401)
    return Caller(f"{user}/{name}", owner=user, prefix=f"{user}/")


chat = AsyncChat(os.environ.get("GOAITOOLS_MODEL", "sim"), system="You are a game guide.")
store = AsyncSQLiteStore(os.environ.get("GOAITOOLS_STORE", "chat.db"))
server = serve(chat, store, key=whose)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Give running turns their time when the server stops, then close the chat and the store."""
    async with chat, store, server.running():
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/chat", server)


@app.get("/")
def page() -> HTMLResponse:
    """Send the page."""
    return HTMLResponse(PAGE.read_text(encoding="utf-8"))


@app.post("/login", status_code=204)
def login(answer: Response, user: str = Query(pattern="^[a-z]{1,30}$")) -> None:
    """Begin a session. Check a password here: this example believes everybody."""
    session = secrets.token_urlsafe()
    users[session] = user
    answer.set_cookie("session", session, httponly=True, samesite="strict")
