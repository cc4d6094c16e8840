"""A server of this package as a Django view, with the sessions, users and middleware of the site.

Owns: the way between Django's requests and an ASGI application. Must never know: the application's routes.

The application runs beside the request, in a context of its own. The reason: Django ends the threads of a
request with it, and a turn goes on when its client has gone.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from http.cookies import SimpleCookie
from typing import Any, Final

from ..base.advice import missing_extra_error

try:
    from asgiref.sync import sync_to_async
    from django.core.exceptions import ImproperlyConfigured
    from django.core.handlers.asgi import ASGIRequest
    from django.db import close_old_connections
    from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
except ModuleNotFoundError as error:
    raise missing_extra_error(error, "serve_view", "django") from None

__all__ = ["django_request", "serve_view"]

ASGIApplication = Callable[[Any, Any, Any], Awaitable[None]]

_REQUEST: Final = "goaitools.django"
_STREAM: Final = "text/event-stream"
_PIECE: Final = 65_536


def serve_view(app: ASGIApplication) -> Callable[..., Awaitable[HttpResponseBase]]:
    """Make an async view of an application, for example of `goaitools_py.serve.serve(…)`.

    Route everything below an address to it: ``path("chat/<path:path>", serve_view(app))``. It needs Django's
    ASGI handler. The CSRF middleware holds for it: a page sends the header ``X-CSRFToken``, or the view is
    wrapped in ``csrf_exempt``.
    """

    async def view(request: HttpRequest, path: str = "") -> HttpResponseBase:
        if not isinstance(request, ASGIRequest):
            raise ImproperlyConfigured(
                "serve_view needs Django's ASGI handler: a turn outlives the request that began it"
            )
        answer = _Answer(request)
        await answer.begin(app, _scope_of(request, path))
        return await answer.response()

    return view


def django_request(request: Any) -> HttpRequest:
    """Give Django's request. `request`: the request that a `key` function gets. The user is
    ``await django_request(r).auser()``. LookupError for a request that did not come through `serve_view`."""
    found = request.scope.get(_REQUEST)
    if not isinstance(found, HttpRequest):
        raise LookupError("the request did not come through serve_view")
    return found


def _scope_of(request: ASGIRequest, path: str) -> dict[str, Any]:
    whole: str = request.scope["path"]
    root = whole[: len(whole) - len(path)] if whole.endswith(path) else whole
    return {**request.scope, "root_path": root.rstrip("/"), _REQUEST: request}


class _Answer:
    """One request to the application, and its answer."""

    def __init__(self, request: ASGIRequest) -> None:
        self._request = request
        self._has_body = True
        self._gone = asyncio.Event()
        self._begun: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._error: Exception | None = None

    async def begin(self, app: ASGIApplication, scope: dict[str, Any]) -> None:
        """Run the application until its response begins."""

        async def run() -> None:
            try:
                await sync_to_async(close_old_connections)()  # as Django does for the threads of requests
                await app(scope, self._receive, self._send)
            except Exception as error:
                self._failed(error)
            finally:
                if not self._begun.done():
                    self._failed(RuntimeError("the ASGI application has ended without a response"))
                self._pieces.put_nowait(None)

        task = asyncio.get_running_loop().create_task(run(), context=contextvars.Context())
        _running.add(task)
        task.add_done_callback(_running.discard)
        try:
            await asyncio.shield(self._begun)
        except asyncio.CancelledError:
            self._gone.set()
            raise

    def _failed(self, error: Exception) -> None:
        """Keep an error for the request. Django logs it, and breaks off a response that has begun."""
        if self._begun.done():
            self._error = error
        else:
            self._begun.set_exception(error)
            self._begun.exception()  # the request may be gone

    async def response(self) -> HttpResponseBase:
        """Give the response: a stream as a stream, and anything else as a whole."""
        start = self._begun.result()
        headers: dict[str, str] = {}
        cookies: list[str] = []
        for name, value in start["headers"]:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            if key == "set-cookie":
                cookies.append(text)
            else:
                headers[key] = f"{headers[key]}, {text}" if key in headers else text
        made: HttpResponseBase
        if headers.get("content-type", "").startswith(_STREAM):
            made = StreamingHttpResponse(self._body(), status=start["status"])
        else:
            made = HttpResponse(b"".join([piece async for piece in self._body()]), status=start["status"])
        del made.headers["content-type"]
        for name, value in headers.items():
            made.headers[name] = value
        for cookie in cookies:
            for name, morsel in SimpleCookie(cookie).items():
                # Django sends each value of the dict under the cookie's own name, and ignores the dict's key.
                # So two cookies of one name, with different paths, need different keys.
                key = name if name not in made.cookies else f"{name} {len(made.cookies)}"
                dict.__setitem__(made.cookies, key, morsel)
        return made

    async def _receive(self) -> dict[str, Any]:
        if self._has_body:
            piece = self._request.read(_PIECE)
            self._has_body = len(piece) == _PIECE
            return {"type": "http.request", "body": piece, "more_body": self._has_body}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._begun.set_result(message)
        elif piece := message.get("body"):
            self._pieces.put_nowait(piece)

    async def _body(self) -> AsyncIterator[bytes]:
        try:
            while (piece := await self._pieces.get()) is not None:
                yield piece
            if self._error is not None:
                raise self._error
        finally:
            self._gone.set()


_running: set[asyncio.Task[None]] = set()
"""Tasks, which the event loop holds by weak references only."""
