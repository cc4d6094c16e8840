"""A server process that a test can kill: ``python -m tests.serve._process FOLDER STEP…``.

Owns: the application in a process of its own. Must never know: what a test expects.

The folder has the store, the port of the server, a file with a line for each effect, and the files ``hold``
and ``stay``: as long as they are there, the tools `look` and `stay` do not end. A file ``wanted``, if there
is one, has the port that the server is to take. With a file ``page`` the process serves the page of
`goaitools serve`. With a file ``relay``, which has a prefix of keys in Redis, the process steers. The steps
are what the model says: a text, or ``fire``, ``look`` and ``stay`` for a call.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import uvicorn
from redis.asyncio import Redis
from starlette.requests import Request

from goaitools_py import AsyncChat, ToolContext, tool
from goaitools_py.frontends import AGUI, AISDK
from goaitools_py.serve import Caller, RedisRelay, ServeLimits, serve
from goaitools_py.serve.page.page_app import PageSettings, page_app
from goaitools_py.stores import AsyncSQLiteStore
from goaitools_py.testing import Calls, ScriptedBackend

from ._relays import REDIS


def main(folder: Path, *steps: str) -> None:
    """Serve until somebody ends the process."""

    def note(line: str) -> None:
        with (folder / "effects").open("a") as file:
            file.write(f"{line}\n")

    @tool
    def fire(at: str) -> str:
        """Fire at something, once."""
        note("fire")
        return f"hit {at}"

    @tool(idempotent=True)
    async def look(ctx: ToolContext[None], at: str) -> str:
        """Look at something; the key makes it once."""
        note(f"look {ctx.idempotency_key}")
        while (folder / "hold").exists():
            await asyncio.sleep(0.01)
        return f"seen {at}"

    @tool(idempotent=True)
    async def stay(ctx: ToolContext[None], at: str) -> str:
        """Stay somewhere; the key makes it once."""
        note(f"stay {ctx.idempotency_key}")
        while (folder / "stay").exists():
            await asyncio.sleep(0.01)
        return f"stayed at {at}"

    calls = ("fire", "look", "stay")
    replies: list[Any] = [
        Calls([(step, {"at": "door"})], text=f"I {step}. ") if step in calls else step for step in steps
    ]
    chat = AsyncChat(ScriptedBackend(*replies), tools=[fire, look, stay])

    def whose(request: Request, name: str) -> Caller:
        return Caller(f"ada/{name}", owner="ada")

    limits = ServeLimits(grace_seconds=30)
    store = AsyncSQLiteStore(str(folder / "store.db"))
    how: dict[str, Any] = {"frontends": (AISDK, AGUI), "lease_ttl": 3.0, "limits": limits}
    if (folder / "relay").exists():
        relay = RedisRelay(Redis.from_url(REDIS), prefix=(folder / "relay").read_text(), alive_seconds=1.0)
        how |= {"gate": "steer", "relay": relay}
    app: Any = serve(chat, store, key=whose, **how)
    if (folder / "page").exists():
        app = page_app(chat, store, PageSettings(), limits=limits, lease_ttl=1.0)
    wanted = folder / "wanted"
    port = int(wanted.read_text()) if wanted.exists() else 0

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            port = self.servers[0].sockets[0].getsockname()[1]
            (folder / "port.new").write_text(str(port))
            (folder / "port.new").rename(folder / "port")

    Server(uvicorn.Config(app, port=port, log_level="error", timeout_graceful_shutdown=40)).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
