"""Replies stream as server-sent events, the state is a column of the user's own row.

Install: pip install 'goaitools-py[sqlalchemy]' aiosqlite fastapi uvicorn
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import CancelScope
from fastapi import FastAPI
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy import exc, orm
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from goaitools_py import AsyncChat, TurnError
from goaitools_py.integrations.sqlalchemy import StateType

engine = create_async_engine(os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///users.db"))
sessions = async_sessionmaker(engine, expire_on_commit=False)


class Base(orm.DeclarativeBase): ...


class User(Base):
    __tablename__ = "user"
    name: orm.Mapped[str] = orm.mapped_column(primary_key=True)
    state: orm.Mapped[bytes | None] = orm.mapped_column(StateType)
    version: orm.Mapped[int] = orm.mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - the second of two turns at once fails


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncChat(os.environ.get("GOAITOOLS_MODEL", "sim")) as app.state.chat:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/chat/{name}", response_class=EventSourceResponse)
async def say(name: str, text: str) -> AsyncIterator[ServerSentEvent]:
    async with sessions() as session:
        user = await session.get(User, name) or User(name=name)
    try:  # no transaction is open while the model answers
        async with app.state.chat.start(user.state, user=text) as turn:
            try:
                async for piece in turn.text_deltas():
                    yield ServerSentEvent(event="text", data=piece)
            finally:  # also when the turn failed, or the listener has gone away
                user.state = turn.state
                with CancelScope(shield=True):
                    async with sessions.begin() as session:
                        session.add(user)
        yield ServerSentEvent(event="done")
    except (TurnError, exc.IntegrityError, orm.exc.StaleDataError):
        yield ServerSentEvent(event="failed")
