"""The limits of a server.

Owns: the limits and their defaults. Must never know: who keeps them.
"""

from __future__ import annotations

from typing import Final

from ..base.values import Given

__all__ = ["MAX_DIGITS", "ServeLimits"]

MAX_DIGITS: Final = 18
"""The longest number that a request may have. Python refuses to read one of thousands of digits."""


class ServeLimits(Given, frozen=True, kw_only=True):
    """Limits of one server process. Times are in seconds.

    Attributes:
        body_bytes: The longest body of a request; beyond it the answer is 413.
        body_seconds: How long a body may take to arrive; after that the answer is 408.
        state_bytes: Without a store: the longest state, as text, that a client can keep, such as 4,000 for a
            cookie. A message that does not fit is answered 413 before a model is asked. None: nine tenths of
            `body_bytes`, because the state comes back in a body.
        upload_bytes: The longest form with files; beyond it the answer is 413.
        upload_seconds: How long a form may take to arrive; after that the answer is 408.
        files: Files of one form; one more is answered 413.
        turns_per_owner: Turns of one owner that run at a time; one more is answered 429.
        turns: Turns of all owners that run at a time; one more is answered 503.
        listeners_per_owner: Requests of one owner that follow a turn at a time, as a stream or until its
            result; one more is answered 429.
        listeners: The same for the requests of all owners; one more is answered 503.
        events: Events, and conversations, of one request.
        keep_seconds: How long a turn that is over can be replayed from memory. A page that read the history
            before its end needs this, and a message that comes twice. After that the store answers.
        keep_alive_seconds: A stream without news for so long gets a comment.
        grace_seconds: How long running turns may take when the server stops. Then they are cancelled, and
            saved as they are. A turn that has not begun by then, because the store does not answer, gets the
            same time once more, at least 5 seconds. Then its message is answered with 503.
    """

    body_bytes: int = 1_000_000
    body_seconds: float = 10.0
    state_bytes: int | None = None
    upload_bytes: int = 10_000_000
    upload_seconds: float = 60.0
    files: int = 10
    turns_per_owner: int = 4
    turns: int = 200
    listeners_per_owner: int = 100
    listeners: int = 5_000
    events: int = 1_000
    keep_seconds: float = 10.0
    keep_alive_seconds: float = 15.0
    grace_seconds: float = 20.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None and name == "state_bytes":
                continue
            if not value > 0 and name not in ("keep_seconds", "grace_seconds"):
                raise ValueError(f"{name} must be more than 0, got {value}")
