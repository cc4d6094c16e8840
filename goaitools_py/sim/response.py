"""An HTTP response as a value: what goes out, in which pieces, and how the sending ends.

Owns: the order to the server, good or bad. Must never know: a socket, or what the bytes mean.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["EVENT_STREAM", "JSON", "Ending", "Headers", "Hold", "Response"]

Headers = tuple[tuple[str, str], ...]
JSON: Headers = (("content-type", "application/json"),)
EVENT_STREAM: Headers = (("content-type", "text/event-stream; charset=utf-8"),)

Ending = Literal[
    "complete",  # as HTTP wants it; the connection stays open
    "eof",  # the connection closes where the pieces end, however much was promised
    "reset",  # the same, with a TCP reset
    "pings",  # keep-alive bytes from then on, until the client goes away
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A wait in mid-sending, after so many pieces (None: before the headers).

    It lasts until `gate` is set, if there is one, and `seconds` more.
    """

    after: int | None = None
    gate: threading.Event | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response. A streamed one goes out in HTTP chunks, one per piece; any other with its length.

    Attributes:
        status: The HTTP status; 0 if the connection breaks before there is one.
        missing: So many bytes are promised in Content-Length beyond those that come.
    """

    status: int = 200
    headers: Headers = ()
    pieces: tuple[bytes, ...] = field(default=(), repr=False)
    streamed: bool = False
    hold: Hold | None = None
    missing: int = 0
    ending: Ending = "complete"

    @property
    def body(self) -> bytes:
        """All pieces together."""
        return b"".join(self.pieces)
