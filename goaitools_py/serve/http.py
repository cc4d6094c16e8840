"""Requests and responses: bodies within limits, problem documents, streams.

Owns: HTTP. Must never know: the input of a turn, or which routes there are.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..frontends import FrontEnd, Problem, problem_of
from ..types.errors import GoAIToolsError, UnderlyingError
from .hub import TooManyTurnsError
from .identity import BadCallerError, NotTrusted, Refused
from .listeners import Seat, TooManyListenersError
from .relay import RelayLostError
from .runs import Run
from .serve_limits import MAX_DIGITS, ServeLimits

__all__ = [
    "ALIVE",
    "READY",
    "TURN_STATUS",
    "Handler",
    "answered",
    "guarded",
    "json_response",
    "no_content",
    "private",
    "probes",
    "problem_response",
    "read_body",
    "route",
    "streamed",
    "take_body",
]

TURN_STATUS: Final = "turn-status"
"""The header that says how the newest turn stands, where there is nothing to follow."""

Handler = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger("goaitools_py")

_TITLES: Final = {
    401: "You are not signed in.",
    403: "You may not do that.",
    404: "There is nothing here.",
    405: "This address does not take that method.",
    421: "This server does not answer for that host.",
    408: "The request took too long to arrive.",
    413: "The request is too long.",
    415: "The request must be JSON, or for a message a form.",
    429: "Too many of your turns run at a time. Try again in a moment.",
    503: "The service is busy. Try again in a moment.",
}


_TRUST: Final = (
    "Events, context and metadata are for programs for which the key function gives Caller(trusted=True)."
)
_CROWD: Final = "Too many of your pages wait for replies. Try again in a moment."


def route(method: str, path: str, handler: Handler) -> Route:
    """Make a route that answers errors with problem documents."""
    return Route(path, guarded(handler), methods=[method])


ALIVE, READY = "/healthz", "/readyz"
"""The paths of the probes. They need no login and no known host, and tell nothing of a conversation."""

_READY_WITHIN: Final = 2.0
"""Seconds that the store has for its answer to a probe."""


def probes(ask: Callable[[], Awaitable[bool]]) -> list[Route]:
    """Make the routes that tell whether the process is alive, and whether it can take turns.

    `ask`: True if it can. It may raise.
    """

    async def alive(_: Request) -> Response:
        return _probed("alive", 200)

    async def ready(_: Request) -> Response:
        try:
            async with asyncio.timeout(_READY_WITHIN):
                is_ready = await ask()
        except Exception as error:
            _log.warning("the server is not ready: the store failed with %s", type(error).__name__)
            is_ready = False
        return _probed("ready", 200) if is_ready else _probed("not ready", 503)

    return [Route(ALIVE, alive, methods=["GET"]), Route(READY, ready, methods=["GET"])]


def _probed(status: str, code: int) -> Response:
    response = json_response({"status": status}, code)
    response.headers["cache-control"] = "no-store"
    return response


def json_response(value: Any, status: int = 200) -> Response:
    """Answer with JSON."""
    return Response(orjson.dumps(value), status, media_type="application/json")


def no_content(headers: Mapping[str, str] | None = None) -> Response:
    """Answer that there is nothing."""
    return Response(status_code=204, headers=headers)


def problem_response(error: BaseException) -> Response:
    """Answer with a problem document of RFC 9457."""
    problem = _problem(error)
    headers = {}
    if problem.retry_after is not None:
        headers["retry-after"] = str(math.ceil(problem.retry_after))
    return Response(
        orjson.dumps(problem.to_dict()), problem.status, headers, media_type="application/problem+json"
    )


def _problem(error: BaseException) -> Problem:
    if isinstance(error, (TooManyTurnsError, TooManyListenersError, RelayLostError, Refused)):
        if isinstance(error, NotTrusted):
            return Problem(code="Refused", status=error.status, title=_TRUST)
        is_crowd = isinstance(error, TooManyListenersError) and error.status == 429
        return Problem(
            code=type(error).__name__,
            status=error.status,
            title=_CROWD if is_crowd else _TITLES[error.status],
            retryable=error.retryable,
            retry_after=getattr(error, "retry_after", None),
        )
    if isinstance(error, HTTPException):
        title = _TITLES.get(error.status_code, "The request cannot be answered.")
        return Problem(code=f"HTTP{error.status_code}", status=error.status_code, title=title)
    return problem_of(error)


def answered(error: Exception) -> Response:
    """Answer an error with a problem document.

    An error that is not of this package is logged by its class and the line that raised it: its text may
    quote a request.
    """
    if not isinstance(error, (GoAIToolsError, HTTPException)):
        found = error if isinstance(error, BadCallerError) else UnderlyingError.of(error)
        _log.error("a request of the server failed with %s", found)
    return problem_response(error)


def private(response: Response) -> Response:
    """Mark an answer as one user's own: no cache keeps it or gives it to another user."""
    response.headers["cache-control"] = "no-store"
    response.headers.add_vary_header("Authorization, Cookie")
    return response


def guarded(handler: Handler) -> Handler:
    """Answer each error of a handler with a problem document; see `answered`. All answers are private."""

    async def answer(request: Request) -> Response:
        try:
            return private(await handler(request))
        except ClientDisconnect:
            return no_content()  # the client is gone
        except Exception as error:
            return private(answered(error))

    return answer


async def read_body(request: Request, limits: ServeLimits) -> bytes:
    """Read a JSON body.

    Only ``application/json`` is taken: another page cannot make a browser send that without asking first.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(415)
    found = bytearray()
    await take_body(request, found.extend, limits.body_bytes, limits.body_seconds)
    return bytes(found)


async def take_body(request: Request, take: Callable[[bytes], object], most: int, seconds: float) -> None:
    """Hand each piece of a body to a function as it comes. It may have `most` bytes, and take `seconds`."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > MAX_DIGITS or int(length) > most):
        raise HTTPException(413)
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                most -= len(piece)
                if most < 0:
                    raise HTTPException(413)
                take(piece)
    except TimeoutError:
        raise HTTPException(408) from None


class _EventStream(StreamingResponse):
    """A stream. Its listener keeps a seat until the stream ends or the client is gone."""

    def __init__(self, frames: AsyncIterator[bytes], headers: dict[str, str], seat: Seat) -> None:
        super().__init__(frames, headers=headers)
        self._seat = seat
        seat.is_kept = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._seat.free()


async def streamed(
    request: Request,
    run: Run,
    front: FrontEnd,
    limits: ServeLimits,
    seat: Seat,
    *,
    goes_on: bool = False,
) -> Response:
    """Answer with the stream of a run. The run does not notice when the client goes away."""
    frames: AsyncIterator[bytes] = run.follow(
        front,
        goes_on=goes_on,
        last_id=request.headers.get("last-event-id", ""),
        keep_alive=limits.keep_alive_seconds,
    )
    return _EventStream(frames, dict(front.headers), seat)
