"""A network in front of an application: it refuses, answers as a proxy does, and loses answers.

Owns: which POST to a turn gets which answer. Must never know: the application, or the client.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["BAD", "Weather"]

BAD = ("429", "html", "lost")
"""A 429 of the server, an HTML page of a proxy, and an answer that is lost on its way."""


class Weather:
    """An ASGI application that gives the first messages bad answers. `left`: those that are still to come."""

    def __init__(self, app: Any, *answers: str) -> None:
        self.app, self.left, self.turns = app, list(answers), 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        says = scope["type"] == "http" and scope["method"] == "POST" and scope["path"].endswith("/turns")
        self.turns += says
        kind = self.left.pop(0) if says and self.left else ""
        if kind == "429":
            problem = {"type": "urn:goaitools:X", "title": "Later.", "status": 429, "retryable": True}
            body = json.dumps({**problem, "retry_after": 0.01}).encode()
            await _answer(send, 429, b"application/problem+json", body)
        elif kind == "html":
            await _answer(send, 502, b"text/html", b"<html><h1>502 Bad Gateway</h1></html>")
        elif kind == "lost":
            # The turn is done and saved. Of its answer only the beginning comes.
            await self.app(scope, receive, _nowhere)
            await _answer(send, 200, b"application/json", b'{"te', is_whole=False)
        else:
            await self.app(scope, receive, send)


async def _nowhere(_: Any) -> None:
    """The answer is lost."""


async def _answer(send: Any, status: int, kind: bytes, body: bytes, *, is_whole: bool = True) -> None:
    length = len(body) if is_whole else 1000
    headers = [(b"content-type", kind), (b"content-length", str(length).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": not is_whole})
