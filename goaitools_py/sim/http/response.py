"""An HTTP response as a value: its bytes, in which pieces they are sent, and how the sending ends.

Owns: the description of a response, valid or damaged. Must never know: a socket, or the meaning of the bytes.
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
    "complete",  # valid HTTP; the connection stays open
    "eof",  # the connection closes after the pieces, whatever Content-Length says
    "reset",  # the same, with a TCP reset
    "pings",  # keep-alive bytes after the pieces, until the client disconnects
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A wait after this number of pieces (None: before the headers).

    It lasts until `gate` is set, if there is one, and `seconds` more.
    """

    after: int | None = None
    gate: threading.Event | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response. A streamed one goes out in HTTP chunks, one per piece; others with their length.

    Attributes:
        status: The HTTP status; 0 if the connection breaks before there is one.
        missing: Content-Length is larger than the body by this number of bytes.
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
