"""The application that the files beside this one run: conversations in PostgreSQL, streams by way of Redis.

Install: pip install 'goaitools-py[serve,asyncpg,redis]' uvicorn gunicorn
Make the tables once: goaitools store init postgresql+psycopg://app@db/app
"""

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from goaitools_py import AsyncChat
from goaitools_py.serve import Caller, RedisRelay, Refused, ServeLimits, serve
from goaitools_py.stores import AsyncPostgresStore

USERS = dict(pair.split("=", 1) for pair in os.environ.get("APP_USERS", "").split())
"""Yours is a login. Here: ``APP_USERS="SHA-256 of a token=user …"``."""


def whose(request: Request, name: str) -> Caller:
    """Say whose conversation it is: the user of the token."""
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    user = USERS.get(hashlib.sha256(token.encode()).hexdigest())
    if user is None:
        raise Refused(401)
    return Caller(f"{user}/{name}", owner=user, prefix=f"{user}/")


@asynccontextmanager
async def lifespan(outer: Starlette) -> AsyncIterator[None]:
    """Open everything in the worker, after the fork. At the end the turns get their time first."""
    async with AsyncExitStack() as stack:
        chat = await stack.enter_async_context(AsyncChat(os.environ["GOAITOOLS_MODEL"]))
        store = await stack.enter_async_context(AsyncPostgresStore.open(os.environ["APP_DATABASE"]))
        relay = None
        if "APP_REDIS" in os.environ:
            redis: Redis = await stack.enter_async_context(Redis.from_url(os.environ["APP_REDIS"]))
            relay = RedisRelay(redis)
        hosts = os.environ["APP_HOSTS"].split() if "APP_HOSTS" in os.environ else None
        limits = ServeLimits(grace_seconds=20)
        server = serve(chat, store, key=whose, relay=relay, limits=limits, allowed_hosts=hosts)
        await stack.enter_async_context(server.running())
        outer.router.routes.append(Mount("/", server))
        yield


app = Starlette(lifespan=lifespan)
