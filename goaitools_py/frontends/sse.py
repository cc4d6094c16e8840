"""Server-sent events as bytes.

Owns: the framing. Must never know: the content of an event. The HTML standard defines the format, section
"Server-sent events". JSON text has no line break, so one ``data:`` line is enough.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

__all__ = ["HEADERS", "KEEP_ALIVE", "frame", "numbered"]

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
