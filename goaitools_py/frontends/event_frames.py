"""Server-sent events as bytes, and the members that all front ends write in them alike.

Owns: the framing, how far a tool is, and the state as a client carries it. Must never know: a front end's
protocol, or the content of a state. The HTML standard defines the format, section "Server-sent events". JSON
text has no line break, so one ``data:`` line is enough.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

import orjson

from ..state.whole_blobs import state_to_text
from ..types.events import ToolProgress

__all__ = ["HEADERS", "KEEP_ALIVE", "frame", "numbered", "progress_of", "state_of"]

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment. It says nothing, and keeps proxies from closing an idle connection."""

HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}
"""Headers of a response that streams events. The last one tells nginx not to collect them."""


def frame(data: Any, *, event: str = "") -> bytes:
    """Write one event. `data`: a JSON-able value, or bytes to send as they are. `event`: its type."""
    text = data if isinstance(data, bytes) else orjson.dumps(data)
    return b"event: %s\ndata: %s\n\n" % (event.encode(), text) if event else b"data: %s\n\n" % text


def numbered(event: bytes, id: str) -> bytes:
    """Give an event an id. A client that comes back names the last id that it has seen."""
    return b"id: %s\n%s" % (id.encode(), event)


def progress_of(event: ToolProgress) -> dict[str, Any]:
    """Write a report. A number that JSON does not have, such as infinity, is None."""
    return {
        "progress": _number(event.progress),
        "total": _number(event.total),
        "message": event.message,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def state_of(told: object) -> dict[str, str]:
    """Give the member ``state`` of a result, or of an error that carries the state so far; else nothing."""
    state = getattr(told, "state", None)
    return {"state": state_to_text(state)} if isinstance(state, bytes) and state else {}
