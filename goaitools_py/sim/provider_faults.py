"""Faults on demand: errors of a provider, or of the network before it.

Owns: the list of faults, and the effect of each on a response. Must never know: a socket, or the JSON of a
provider API, which writes its own errors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from .http_values import JSON, Ending, Headers, Hold, Response
from .model.prompt import Prompt, Reply
from .openai.common_rules import Refusal
from .wire import Wire

__all__ = ["Fault", "Scripted", "damage"]

_SLICE_BYTES = 16
_OVERLOADED = Refusal("The server is overloaded. Please try again later.", type="server_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, for one request; queued with `SimServer.push`.

    `reply` is the reply that the fault damages; None means the model's own. "Pieces" are the events of a
    stream, or 16-byte slices of a JSON body.
    """

    kind: Literal["error", "error_event", "hollow", "badly_sent"]
    refusal: Refusal = _OVERLOADED
    status: int = 200
    headers: Headers = ()
    ending: Ending = "complete"
    after: int | None = None
    missing: int = 0
    wait: Hold | None = None
    as_null: bool = False
    reply: Reply | None = None

    # -------------------------------------------------------------------------------- error statuses

    @classmethod
    def error(
        cls,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Headers = (),
    ) -> Fault:
        """Answer with an HTTP error status and the provider's own error object."""
        refusal = Refusal(message, param, code, type)
        return cls(kind="error", refusal=refusal, status=status, headers=headers)

    @classmethod
    def rate_limit(
        cls, *, retry_after: float | str | None = None, retry_after_ms: int | None = None
    ) -> Fault:
        """429. `retry_after` is in seconds (or an HTTP date), `retry_after_ms` in milliseconds."""
        given = (("retry-after", retry_after), ("retry-after-ms", retry_after_ms))
        headers = tuple((name, str(value)) for name, value in given if value is not None)
        message = "Rate limit reached for requests. Please try again later."
        return cls.error(429, message, type="requests", code="rate_limit_exceeded", headers=headers)

    @classmethod
    def quota(cls) -> Fault:
        """429 because the account has no credit; a retry does not help."""
        message = "You exceeded your current quota, please check your plan and billing details."
        return cls.error(429, message, type="insufficient_quota", code="insufficient_quota")

    @classmethod
    def server_error(cls, status: int = 500) -> Fault:
        """500, or 502, 503, 504, with a JSON error."""
        message = "The server had an error while processing your request. Sorry about that!"
        return cls.error(status, message, type="server_error")

    @classmethod
    def overloaded(cls) -> Fault:
        """529: Anthropic is overloaded."""
        return cls(kind="error", status=529)

    @classmethod
    def too_large(cls) -> Fault:
        """413: the request has too many bytes."""
        message = "Request exceeds the maximum size"
        return cls.error(413, message, type="request_too_large")

    @classmethod
    def unauthorized(cls) -> Fault:
        """401."""
        return cls.error(401, "Incorrect API key provided.", code="invalid_api_key")

    @classmethod
    def not_found(cls) -> Fault:
        """404: the model does not exist."""
        message = "The model does not exist or you do not have access to it."
        return cls.error(404, message, code="model_not_found")

    @classmethod
    def bad_request(
        cls, message: str = "Invalid request.", *, param: str | None = None, code: str | None = None
    ) -> Fault:
        """400."""
        return cls.error(400, message, param=param, code=code)

    @classmethod
    def context_length(cls) -> Fault:
        """400: the history does not fit into the model's context."""
        message = (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 "
            "tokens. Please reduce the length of the messages."
        )
        return cls.bad_request(message, param="messages", code="context_length_exceeded")

    # ---------------------------------------------------------------------------- 200, but no answer

    @classmethod
    def error_body(cls) -> Fault:
        """200 with an error object instead of a reply."""
        return cls(kind="error")

    @classmethod
    def error_event(cls, *, after: int = 2, reply: Reply | None = None) -> Fault:
        """An error event after this number of events, and the stream ends. Unary: as `error_body`."""
        return cls(kind="error_event", after=after, reply=reply)

    @classmethod
    def no_choices(cls, *, null: bool = False) -> Fault:
        """200 with a list of choices that is empty or null."""
        return cls(kind="hollow", as_null=null)

    @classmethod
    def null(cls) -> Response:
        """200 with ``null``."""
        return Response(headers=JSON, pieces=(b"null",))

    @classmethod
    def broken_json(cls) -> Response:
        """200 with JSON that stops in the middle. Content-Length matches the sent bytes."""
        return Response(headers=JSON, pieces=(b'{"id":"sim-broken","choices":[{"index":0,"mess',))

    @classmethod
    def html(cls, status: int = 200) -> Response:
        """A web page, as a proxy sends it."""
        page = b"<!doctype html><html><body><h1>Please log in</h1></body></html>"
        return Response(
            status=status, headers=(("content-type", "text/html; charset=utf-8"),), pieces=(page,)
        )

    # ------------------------------------------------------------------------------------ badly sent

    @classmethod
    def reset(cls, *, after: int | None = None, reply: Reply | None = None) -> Fault:
        """A TCP reset before the headers, or after this number of pieces of the body."""
        return cls(kind="badly_sent", ending="reset", after=after, reply=reply)

    @classmethod
    def hang_up(cls, *, after: int | None = None, reply: Reply | None = None) -> Fault:
        """The connection closes: before the headers, or in the middle of the body."""
        return cls(kind="badly_sent", ending="eof", after=after, reply=reply)

    @classmethod
    def cut_stream(cls, after: int, *, reply: Reply | None = None) -> Fault:
        """The response ends after this number of pieces. It is valid HTTP, but has no terminal event."""
        return cls(kind="badly_sent", after=after, reply=reply)

    @classmethod
    def short_body(cls, *, missing: int = 16, reply: Reply | None = None) -> Fault:
        """Content-Length is larger than the body by `missing` bytes. A stream loses its last event."""
        return cls(kind="badly_sent", ending="eof", missing=missing, reply=reply)

    @classmethod
    def hold(
        cls,
        gate: threading.Event | None = None,
        *,
        seconds: float = 0.0,
        after: int | None = None,
        reply: Reply | None = None,
    ) -> Fault:
        """Wait before the headers, or after this number of pieces, until `gate` is set; then answer normally.

        Stopping the server ends every wait.
        """
        return cls(kind="badly_sent", wait=Hold(after=after, gate=gate, seconds=seconds), reply=reply)

    @classmethod
    def pings(cls, *, after: int = 0, reply: Reply | None = None) -> Fault:
        """Send keep-alive comments after this number of events, until the client disconnects."""
        return cls(kind="badly_sent", ending="pings", after=after, reply=reply)


Scripted: TypeAlias = Reply | Fault | Response
"""The values that `SimServer.push` takes: a reply, a fault, or exact bytes."""


def damage(fault: Fault, wire: Wire, prompt: Prompt, answer: Callable[[], Response]) -> Response:
    """The response to `prompt` with the fault. `answer` makes the response that the fault damages."""
    if fault.kind == "error":
        return wire.error(fault.status, fault.refusal, fault.headers)
    if fault.kind == "hollow":
        return wire.hollow(prompt, null=fault.as_null)
    if fault.kind == "badly_sent":
        return _badly_sent(fault, answer())
    if not prompt.stream:
        return wire.error(200, fault.refusal)
    good = answer()
    return replace(good, pieces=(*good.pieces[: fault.after], wire.error_event(fault.refusal)))


def _badly_sent(fault: Fault, good: Response) -> Response:
    breaks = fault.ending in ("eof", "reset")
    if breaks and fault.after is None and not fault.missing:
        return Response(status=0, ending=fault.ending)
    pieces = good.pieces if good.streamed else _slices(good.body)
    pieces = pieces[: fault.after]
    lost = len(good.body) - sum(map(len, pieces)) if breaks else 0
    return replace(
        good,
        pieces=pieces,
        streamed=good.streamed or fault.ending == "pings",
        hold=fault.wait,
        missing=fault.missing + lost,
        ending=fault.ending,
    )


def _slices(body: bytes) -> tuple[bytes, ...]:
    return tuple(body[at : at + _SLICE_BYTES] for at in range(0, len(body), _SLICE_BYTES))
