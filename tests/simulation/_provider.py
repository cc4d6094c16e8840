"""The provider of a run: a model that follows rules, and that refuses a history which no provider takes.

Owns: what the model answers. Must never know: who asks, or what became of an answer.

A message carries what the model is to do with it: ``<<m3:pay,look|ask>>`` makes it call `pay` and `look`,
then `ask`, and then say ``answer m3``. The calls of the reply `1` have the ids ``m3.1.0``, ``m3.1.1`` … in
their arguments, by which each effect is known. A request with the word `REFUSED` in it is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base import rawjson
from goaitools_py.testing import check_history
from goaitools_py.testing._reply_shapes import SHAPES

__all__ = ["REFUSED", "Provider", "as_seen", "directive", "outage", "refusal"]

REFUSED: Final = "((refused))"
"""What the provider takes in no request."""

_DIRECTIVE: Final = re.compile(rb"<<m(\d+):([a-z,|]*)>>")
_RECALLED: Final = b" earlier turns, oldest first:"
_PAGE: Final = re.compile(rb' earlier turns, oldest first:(?:[^"\\]|\\.)*')
"""What a search in the archive gives: it repeats old messages, which say nothing new."""


_ARGUMENTS: Final = {"recall": "query", "other": "message"}
"""The name of a call's only argument, where it is not `id`."""


def directive(id: int, rounds: tuple[tuple[str, ...], ...]) -> str:
    """What a message has to say for the model to do this."""
    return f"<<m{id}:{'|'.join(','.join(calls) for calls in rounds)}>>"


def as_seen(text: bytes) -> bytes:
    """Entries without what a search has repeated of older ones."""
    return _PAGE.sub(b"", text) if _RECALLED in text else text


def refusal() -> BackendError:
    """What comes instead of a reply if the provider does not take a request."""
    return BackendError("bad request", status=400, body=b'{"error": {"message": "bad request"}}')


def outage(choice: float) -> BackendError:
    """One of the ways in which no reply comes."""
    if choice < 0.5:
        return BackendError("the connection broke", kind="unavailable")
    if choice < 1.0:
        return BackendError("too many requests", kind="rate_limit", status=429)
    if choice < 2.0:
        return refusal()
    return BackendError("server error", status=503)


@lru_cache(maxsize=4_096)
def _problems(wire: str, body: bytes) -> list[str]:
    """What is wrong with a request's history. Many schedules ask the same thing."""
    return check_history(wire, rawjson.loads(body)["input" if wire == "openai-responses" else "messages"])


class Provider:
    """A backend for `Chat`, whose replies a worker's edge fetches with `reply`."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.dialect = dialect_of(wire)
        self.model = "simulated"
        self.max_retries = 1
        self.context_window = None
        self._asked = 0

    def send(self, request: ModelRequest) -> Any:
        """A chat never asks itself: each worker's edge does."""
        raise AssertionError("asked past the edge")

    def close(self) -> None:
        """Nothing is open."""

    def problems(self, request: ModelRequest) -> list[str]:
        """What a provider would refuse in the request's history."""
        return _problems(self.wire, request.body)

    def reply(self, request: ModelRequest) -> tuple[bytes, str]:
        """The body of the answer, and what it is known by in a state."""
        self._asked += 1
        text, calls = self._said(request.body)
        shape = SHAPES[self.wire]
        answer = shape.reply(
            text, calls, reasoning="", model=self.model, number=self._asked, sent=len(request.body)
        )
        mark = next(iter(calls[0][1].values())) if calls else text
        return rawjson.dumps(answer), mark

    def _said(self, body: bytes) -> tuple[str, list[tuple[str, dict[str, str]]]]:
        found, body = None, as_seen(body)
        for found in _DIRECTIVE.finditer(body):  # noqa: B007 - the last one counts
            pass
        if found is None:
            return "hello", []
        name, rounds = f"m{found[1].decode()}", found[2].decode()
        for number, calls in enumerate(rounds.split("|") if rounds else ()):
            if f"{name}.{number}.".encode() not in body:
                made = [
                    (call, {_ARGUMENTS.get(call, "id"): f"{name}.{number}.{at}"})
                    for at, call in enumerate(calls.split(","))
                ]
                return "", made
        return f"answer {name}", []
