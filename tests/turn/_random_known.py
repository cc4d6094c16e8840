"""What is known of a blob, and how numbered things are found again in states and requests.

Owns: these values and readings. Must never know: how a conversation is driven, or which rules hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from goaitools_py.sim import Recorded

from ._reading import HISTORY, MARK, read_body, without_marks

__all__ = ["MARKS", "Broken", "Killed", "Known", "Sent", "marks_of", "require", "unsigned"]

MARKS = re.compile(r"\b[AEPRSTU]\d+x\b")
UNREAD = {
    "signature",
    "data",
    "encrypted_content",
    "image_url",
    "id",
    "call_id",
    "tool_call_id",
    "tool_use_id",
}
THOUGHT = ("thinking", "redacted_thinking", "reasoning")


class Broken(AssertionError):
    """An invariant does not hold; the text says which."""


class Killed(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Sent:
    """A request that the provider took: what stands before its settings."""

    tools: bytes
    system: bytes
    history: bytes

    @classmethod
    def of(cls, request: Recorded, wire: str) -> Sent:
        """Read a request, marks for the prompt cache aside."""
        spans = read_body(request.body).spans
        tools, lead, history = (
            spans.get(key, b"").replace(MARK, b"") for key in ("tools", "system", HISTORY[wire])
        )
        return cls(tools, lead, history)


@dataclass(frozen=True)
class Known:
    """A blob, and what a caller knows of the conversation in it."""

    blob: bytes | None = None
    marks: tuple[str, ...] = ()
    ran: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    """Events that a newer one of their topic may replace."""
    sent: Sent | None = None
    voice: tuple[Any, ...] = ()
    usage: tuple[int, ...] = (0,) * 6
    told: frozenset[str] = frozenset()
    """What was warned of since then."""
    is_imported: bool = False
    """Made of messages: the state does not know under which prefix they were signed."""
    was_imported: bool = False
    """Made so once: what a provider drops without refusing it stays in the history."""


def walk(value: Any) -> Iterator[str]:
    """Every text of a JSON value in order, signatures, pictures and ids left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in UNREAD:
                yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


def marks_of(value: Any) -> tuple[str, ...]:
    """The marks in a JSON value, in order."""
    return tuple(mark for text in walk(value) for mark in MARKS.findall(text))


def require(condition: object, what: str) -> None:
    """Raise `Broken` unless the condition holds."""
    if not condition:
        raise Broken(what)


def unsigned(value: Any) -> Any:
    """A history without thinking, without ids that a wire ties to it, and without messages left empty."""
    if isinstance(value, Mapping):
        return {key: unsigned(inner) for key, inner in without_marks(value).items() if key != "id"}
    if isinstance(value, list):
        parts = [unsigned(p) for p in value if not (isinstance(p, Mapping) and p.get("type") in THOUGHT)]
        return [p for p in parts if not (isinstance(p, Mapping) and p.get("content") == [])]
    return value
