"""A server in its own process: ours, or a bare Starlette application that passes the model's stream on.

Owns: both applications, and how the process is begun. Must never know: who asks, or how time is taken.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

__all__ = ["served"]


@contextmanager
def served(kind: str, model: str, slow: str) -> Iterator[int]:
    """Serve "ours" or "bare" over a model that answers, and under /slow over one that does not. The port."""
    command = [sys.executable, str(Path(__file__)), kind, model, slow]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _ours(url: str) -> Any:
    from starlette.requests import Request

    from goaitools_py import AsyncChat
    from goaitools_py.backends.openai.backends import AsyncOpenAIChatBackend
    from goaitools_py.serve import Caller, ServeLimits, serve
    from goaitools_py.stores import AsyncMemoryStore

    def whose(request: Request, name: str) -> Caller:
        return Caller(name)

    backend = AsyncOpenAIChatBackend("gpt-5-mini", base_url=f"{url}/v1", api_key="sk-none", timeout=600)
    limits = ServeLimits(turns=10_000, keep_seconds=0)
    return serve(AsyncChat(backend), AsyncMemoryStore(), key=whose, limits=limits)


def _bare(url: str) -> Any:
    import httpx
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    client = httpx.AsyncClient(base_url=url, timeout=600, limits=httpx.Limits(max_connections=None))

    async def say(request: Request) -> Response:
        asked = await request.json()
        body = {
            "model": "gpt-5-mini",
            "stream": True,
            "messages": [{"role": "user", "content": asked["text"]}],
        }

        async def pieces() -> AsyncIterator[bytes]:
            async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                async for piece in answer.aiter_bytes():
                    yield piece

        return StreamingResponse(pieces(), media_type="text/event-stream")

    return Starlette(routes=[Route("/conversations/{name}/turns", say, methods=["POST"])])


def _main(kind: str, model: str, slow: str) -> None:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Mount, Route

    async def cpu(request: Request) -> Response:
        return PlainTextResponse(str(time.process_time()))

    make = _ours if kind == "ours" else _bare
    apps = [make(slow), make(model)]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if kind == "ours":
            async with apps[0].running(), apps[1].running():
                yield
        else:
            yield

    routes = [Route("/cpu", cpu), Mount("/slow", app=apps[0]), Mount("/", app=apps[1])]

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print(self.servers[0].sockets[0].getsockname()[1], flush=True)

    app = Starlette(routes=routes, lifespan=lifespan)
    Server(uvicorn.Config(app, port=0, log_level="error", access_log=False, backlog=2048)).run()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    _main(*sys.argv[1:4])
