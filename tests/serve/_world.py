"""A server for tests: one application over a scripted model, and a client that sees each piece as it comes.

Owns: the application, the client, and a tool that a test can hold. Must never know: what a test expects.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request

from goaitools_py import AsyncChat, tool, user
from goaitools_py.backends.base import ModelRequest
from goaitools_py.frontends import AGUI, AISDK
from goaitools_py.serve import Caller, Refused, Relay, ServeApp, ServeLimits, serve
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import ScriptedBackend
from goaitools_py.testing.scripted import AsyncScriptedExchange

__all__ = ["Answer", "World", "asynchronous", "late_world", "said"]


def asynchronous(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on an event loop of its own, for a minute at most."""

    @functools.wraps(test)
    def run(*args: Any, **fields: Any) -> None:
        async def in_time() -> None:
            async with asyncio.timeout(60):
                await test(*args, **fields)

        asyncio.run(in_time())

    return run


def said(text: str = "Hello", id: str = "m1", **members: Any) -> dict[str, Any]:
    """A message in plain JSON."""
    return {"text": text, "turn_id": id, **members}


class Answer:
    """A response as it comes: the status when it has begun, then the pieces."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.begun = asyncio.Event()

    async def body(self) -> bytes:
        """The rest of the body."""
        found = b""
        while (piece := await self.pieces.get()) is not None:
            found += piece
        return found

    async def json(self) -> Any:
        """The body as JSON; None if there is none."""
        body = await self.body()
        return json.loads(body) if body else None

    async def events(self) -> list[tuple[str, Any]]:
        """The rest of a stream."""
        return [event async for event in self]

    async def __aiter__(self) -> AsyncIterator[tuple[str, Any]]:
        """The names and data of events as they come; ids are in the data as "#"."""
        kept = b""
        while (piece := await self.pieces.get()) is not None:
            kept += piece
            while b"\n\n" in kept:
                one, _, kept = kept.partition(b"\n\n")
                members = dict(line.split(": ", 1) for line in one.decode().splitlines() if ": " in line)
                if "data" in members and members["data"] != "[DONE]":
                    data = json.loads(members["data"])
                    yield members.get("event", data.get("type", "")), {**data, "#": members.get("id")}


class World:
    """One application. `user` is the authenticated user of a request: the header ``x-user``.

    `backend`: a model of the test's own, in place of one that says `steps`.
    `gunner`: what the model of another chat says, which is the tool "gunner" and can fire.
    """

    def __init__(
        self,
        *steps: Any,
        gunner: Sequence[Any] = (),
        store: Any = None,
        limits: ServeLimits | None = None,
        relay: Relay | None = None,
        allowed_hosts: list[str] | None = None,
        more_tools: Sequence[Any] = (),
        backend: ScriptedBackend | None = None,
        keep_branches: bool = False,
        compact: Any = "turn",
        gate: Any = "reject",
        lease_ttl: float = 1.0,
        **fields: Any,
    ) -> None:
        self.held = asyncio.Event()
        self.is_inside = asyncio.Event()
        self.looked: list[str] = []
        self.store = AsyncMemoryStore() if store is None else store
        self.backend = backend or ScriptedBackend(*steps)

        @tool(idempotent=True)
        async def look(at: str) -> str:
            """Look at something, for as long as the test wants."""
            self.looked.append(at)
            self.is_inside.set()
            await self.held.wait()
            return f"seen {at}"

        @tool(requires_approval=True)
        def fire(at: str) -> str:
            """Fire at something."""
            self.looked.append(at)
            return f"hit {at}"

        @tool(external=True)
        def ask_player(question: str) -> str:
            """Ask the player."""
            raise AssertionError

        tools: list[Any] = [look, fire, ask_player, *more_tools]
        if gunner:
            other = AsyncChat(ScriptedBackend(*gunner), tools=[fire])
            tools.append(other.as_tool("gunner", "Fires.", store=AsyncMemoryStore()))
        self._how = {"lease_ttl": lease_ttl, "gate": gate}
        self.chat = AsyncChat(self.backend, tools=tools, **fields)
        self.app: ServeApp = serve(
            self.chat,
            self.store,
            key=self.whose,
            frontends=(AISDK, AGUI),
            **self._how,
            stop_every=1e-9,
            limits=limits or ServeLimits(),
            relay=relay,
            allowed_hosts=allowed_hosts,
            keep_branches=keep_branches,
            compact=compact,
        )

    def twin(self, relay: Relay | None, **how: Any) -> ServeApp:
        """Another worker over the same store, with the same script and the same tools."""
        how = {"frontends": (AISDK, AGUI), **self._how, "stop_every": 1e-9, **how}
        return serve(self.chat, self.store, key=self.whose, relay=relay, **how)

    @staticmethod
    def whose(request: Request, name: str) -> Caller:
        """Whose conversation it is: "game" is a program that is trusted, "bad" may nothing."""
        user = request.headers.get("x-user")
        if user is None:
            raise Refused(401)
        if user == "bad":
            raise Refused
        return Caller(f"{user}/{name}", owner=user, prefix=f"{user}/", trusted=user == "game")

    @contextlib.asynccontextmanager
    async def asked(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = "ada",
        headers: dict[str, str] | None = None,
        slowly: bool = False,
    ) -> AsyncIterator[Answer]:
        """A request whose response is read as it comes. At the end of the block the client is gone."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"content-type": "application/json", **({"x-user": user} if user else {}), **(headers or {})}
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
            "method": method, "scheme": "http", "path": path, "raw_path": path.encode(), "root_path": "",
            "query_string": query.encode(), "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        }  # fmt: skip
        answer = Answer()
        waiting = [{"type": "http.request", "body": raw, "more_body": slowly}]

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await answer.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                answer.begun.set()
            else:
                answer.pieces.put_nowait(message.get("body", b""))
                if not message.get("more_body"):
                    answer.pieces.put_nowait(None)

        task = asyncio.create_task(self.app(scope, receive, send))
        try:
            begun = asyncio.create_task(answer.begun.wait())
            await asyncio.wait([task, begun], return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()
            yield answer
        finally:
            answer.gone.set()
            await task

    async def ask(self, method: str, path: str, body: Any = None, **how: Any) -> tuple[int, Any]:
        """A request, its status, and its JSON."""
        async with self.asked(method, path, body, **how) as answer:
            return answer.status, await answer.json()

    def stream(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """A request for a stream of plain events."""
        headers = {"accept": "text/event-stream", **how.pop("headers", {})}
        return self.asked(method, path, body, headers=headers, **how)


class _Interrupted(ScriptedBackend):
    """A model. An application appends a message to the conversation "ada/hall" beside its first reply."""

    store: AsyncMemoryStore

    async def asend(self, request: ModelRequest) -> AsyncScriptedExchange:
        if not self.requests:
            other = AsyncChat(ScriptedBackend(wire=self.dialect.wire))
            await other.conversation(self.store, "ada/hall", gate="steer").append(user("Late."))
        return await super().asend(request)


def late_world(*steps: Any, wire: str = "openai", **fields: Any) -> World:
    """A server that steers. A message comes beside the first reply, so the other steps answer this message in
    a turn of its own, in the same call."""
    backend = _Interrupted("First.", *steps, wire=wire)
    world = World(backend=backend, **{"gate": "steer", "lease_ttl": 30.0, **fields})
    backend.store = world.store
    return world
