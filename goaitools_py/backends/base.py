"""The engine's view of a provider: a pure `Dialect` for the bytes, and a thin `Backend` for the network.

Owns: the two protocols, and the values that pass between them and the engine. What only some dialects can do
is in `protocols`.
Must never know: a particular provider, a socket, an SDK.

A *dialect* is pure: bytes in, values out. It encodes neutral messages as *entries*. One entry is one element
of the provider's history array, as compact JSON without raw newlines. The dialect splices stored entries into
a request body without parsing them, and it cuts a reply's entries out of the response without changing a byte
that the provider sent. A *backend* posts a finished body and returns the response in chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Literal, Protocol, runtime_checkable

from ..base.values import ByShape, Value
from ..types.citations import Citation
from ..types.messages import Message, ToolCall, ToolResult, Usage
from ..types.request_parts import ProviderTool, ToolSpec

__all__ = [
    "REDIRECTED",
    "AsyncBackend",
    "AsyncExchange",
    "Backend",
    "BackendError",
    "Delta",
    "Dialect",
    "Exchange",
    "Fault",
    "FaultKind",
    "ModelRequest",
    "ProtocolFault",
    "Reply",
    "RequestParts",
    "ResponseHead",
    "StreamDecoder",
    "warm_up",
    "warm_up_async",
]

FaultKind = Literal[
    "unavailable",  # connection, timeout, 408, 409, 423, 425, 499, 5xx
    "rate_limit",  # 429
    "auth",  # 401, 407; 402 and 403, unless they refuse the content
    "rejected",  # every other 4xx
    "context",  # the history does not fit into the model's context
    "protocol",  # 200 with a body that is not a reply
    "interrupted",  # broke off in the middle of a reply
    "signature",  # a sealed block of the history does not fit what stands before it
    "forked",  # the caller's own client was used before the process forked
]


# ----------------------------------------------------------------------------------------- requests


class RequestParts(Value, frozen=True, kw_only=True):
    """The parts of a request.

    `history` holds pieces: entries joined by ``,\\n``. The dialect joins the pieces in the same way.
    `settings` has the given fields of `ModelSettings`, never with None. `preamble` and `tools` are results of
    the dialect's own methods.
    """

    model: str
    history: Sequence[bytes]
    preamble: bytes = b""
    tools: bytes = b""
    settings: Mapping[str, Any] = {}
    stream: bool = False
    cache_key: str | None = None
    """The conversation's id, for provider APIs with a prompt-cache key. They send a digest of it, never the
    id itself. A setting overrides it."""
    forbid_tools: bool = False
    """Send the same tools, but forbid the model to call them (`tool_choice` "none")."""
    carried: Mapping[str, str] = {}
    """Values of earlier replies (`Reply.carried`) that this request needs. Expired ones are left out."""
    has_system: bool = True
    """False: no entry of the history is a system message, so the dialect does not have to look for one."""
    has_media: bool = True
    """False: no entry of the stored history holds a large picture, so a view does not have to look for one
    before a server has refused too many."""
    cache_marks: bool = True
    """False: set no cache marks, because the next request will come after the cache has expired."""
    output: bytes = b""
    """The result of `WritesOutput.output`, if the answer is to be JSON of a type; else b""."""
    drop_signed: bool = False
    """True: some sealed blocks do not fit the history before them now. Ask the provider to drop such blocks
    instead of refusing the request, where the provider API allows that."""
    left_out: Mapping[str, int] = {}
    """The number of parts, by kind ("image"), that `ViewsHistory.request_view` left out of this request
    although a model could have read them. For a warning; a dialect does not send it."""


class ModelRequest(Value, frozen=True, kw_only=True):
    """A finished request.

    Attributes:
        timeout: Seconds for the whole response from now on; None for no limit.
        head_timeout: Seconds until its headers are there, if that is less than `timeout`.
    """

    _unshown = frozenset({"body", "headers"})

    path: str
    body: bytes
    headers: Mapping[str, str] = {}
    stream: bool = False
    timeout: float | None = None
    head_timeout: float | None = None


# ---------------------------------------------------------------------------------------- responses


class ResponseHead(Value, frozen=True, kw_only=True):
    """A 2xx response's status and headers (names in lower case)."""

    _unshown = frozenset({"headers"})

    status: int
    headers: Mapping[str, str] = {}
    request_id: str | None = None


class Reply(Value, frozen=True, kw_only=True):
    """A complete model reply.

    Attributes:
        entries: The bytes that are stored: the provider's, without response-only keys and raw newlines.
        text: The reply's visible text.
        calls: Tool calls in order, ids unique within the reply.
        finish_reason: The provider's own word, "" without one.
        stop: The neutral meaning: "end", "length", "refusal", or "pause" (send again unchanged).
            A reply with calls that may run has "end", with every finish reason.
        run_calls: True if `calls` are complete and may be executed.
        model: The model that answered, as the provider names it.
        signed: True if `entries` hold sealed blocks: signed thinking or encrypted reasoning. They are valid
            only after the same history. See `Dialect.unsigned`.
        carried: Values that later requests must contain, by a name that the dialect chooses: the value (at
            most 256 characters) and its expiry in milliseconds since the epoch, 0 for never.
        dropped: Why the provider ignored parts of the request's history: its own word for the reason, once
            for each part. Never content.
        asides: Consumption in addition to `usage`, for example of a compaction that the provider made. By
            the model's name, "" for the reply's own model. It is not part of the following context.
        context: The usage of the newest run, if the model ran several times within the request. It says how
            large the context is. None: `usage` says it.
        cost_usd: The cost of the request with its `asides`, as the provider states it; None if it does not.
        messages: The number of neutral messages in the entries. More than one only if the server answered
            its own calls in the middle of the reply.
        cut: True if parts of the reply are not in `entries` because they nest too deep to be read.
        citations: The sources that the text names. Their positions count in `text`.
        blocks: True if the provider, or a guardrail before it, refuses each later request with this turn.
    """

    _unshown = frozenset({"entries", "text", "reasoning", "carried"})

    entries: tuple[bytes, ...]
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    stop: Literal["end", "length", "refusal", "pause"] = "end"
    run_calls: bool = False
    usage: Usage = Usage()
    model: str = ""
    id: str = ""
    signed: bool = False
    carried: Mapping[str, tuple[str, int]] = {}
    dropped: tuple[str, ...] = ()
    asides: Mapping[str, Usage] = {}
    context: Usage | None = None
    cost_usd: Decimal | None = None
    citations: tuple[Citation, ...] = ()
    messages: int = 1
    cut: bool = False
    blocks: bool = False


class Delta(Value, frozen=True, kw_only=True, gc=False):
    """A piece of a streamed reply."""

    _unshown = frozenset({"text"})

    kind: Literal["text", "reasoning"]
    text: str


class Fault(Value, frozen=True, kw_only=True):
    """The meaning of an error response.

    Attributes:
        code: The provider's error code or type, never its text.
        rules: The rules of the host that the server's words name, each a letter of `host_rules.RULES`.
    """

    kind: FaultKind
    code: str = ""
    retryable: bool = False
    retry_after: float | None = None
    rules: str = ""


REDIRECTED: Final = Fault(kind="rejected", code="redirected")
"""A response that redirects the request to another origin (`BackendError.redirect`)."""


class ProtocolFault(Exception):  # noqa: N818
    """A dialect raises it for a 2xx body that is not a reply, or for an error inside a stream.

    Its text must not quote the body. `fault` is its meaning for the turn. `usage` is the consumption, if the
    response states it. `partial_text` is the readable text of the body: it is paid for, so the turn keeps it
    and does not ask again by itself.
    """

    def __init__(
        self, message: str, fault: Fault | None = None, *, usage: Usage | None = None, partial_text: str = ""
    ) -> None:
        super().__init__(message)
        self.fault = fault or Fault(kind="protocol", retryable=True)
        self.usage = usage
        self.partial_text = partial_text


class BackendError(Exception):
    """A backend raises it if a request got no usable response. The SDK's exception is at `sdk_error`.

    With a `status`, the provider answered, and the dialect classifies `headers` and `body`. Without one the
    transport failed, and `kind` says how. `redirect` is set if the response redirects to another origin,
    which the backend does not follow: the origin that was asked, and the other one. `key_variable` is the
    environment variable from which the SDK takes a key, if a key is missing or refused. `sdk_error` is not
    ``__cause__``, because its text may quote the body: raise a `BackendError` with ``from None``.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FaultKind = "unavailable",
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        request_id: str | None = None,
        timed_out: bool = False,
        redirect: tuple[str, str] | None = None,
        key_variable: str = "",
        sdk_error: BaseException | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.headers = headers or {}
        self.body = body
        self.request_id = request_id
        self.timed_out = timed_out
        self.redirect = redirect
        self.key_variable = key_variable
        self.sdk_error = sdk_error

    @property
    def refused_text(self) -> str:
        """The model's text, if the server has refused what its own model wrote, and shows it; else "".

        Groq has it in ``error.failed_generation`` (console.groq.com/docs/tool-use, 2026-11).
        """
        if b'"failed_generation"' not in self.body:
            return ""
        from ..base import rawjson  # not at the top: this answer is rare

        try:
            answer = rawjson.loads(self.body)
        except ValueError:
            return ""
        error = answer.get("error") if isinstance(answer, dict) else None
        found = error.get("failed_generation") if isinstance(error, dict) else None
        return found if isinstance(found, str) else ""

    def bare(self) -> BackendError:
        """A copy without the server's and the SDK's text, for a printed traceback."""
        return BackendError(
            str(self),
            kind=self.kind,
            status=self.status,
            request_id=self.request_id,
            timed_out=self.timed_out,
            redirect=self.redirect,
            key_variable=self.key_variable,
        )


class StreamDecoder(Protocol):
    """Turns the chunks of one event stream into deltas and, at its end, into the reply.

    It may have a method ``end``: it completes the last event at the end of the stream, and returns deltas.
    Three more properties are optional. ``has_begun``: True when any part of the reply has come, also a part
    of a call; without it, a reply begins with its first delta. ``usage_so_far``: a `Usage` or None, the
    consumption that a broken stream has already reported. ``reads_events``: True if the stream is
    ``text/event-stream``; then the first bytes of a response show whether it is a stream, not its content
    type.
    """

    def feed(self, chunk: bytes) -> Iterable[Delta]:
        """Take the next bytes, which may be cut anywhere; return the deltas that became readable.

        The result is a list, or an iterable that is read to its end before the next bytes come.

        Raises `ProtocolFault` for an error event, an event that is not JSON, or one that is too large."""
        ...

    @property
    def is_done(self) -> bool:
        """True if the terminal event was read (``[DONE]``, ``response.completed``, ``message_stop``).

        Nothing after it is needed, so the reader does not have to wait for the end of the connection."""
        ...

    def finish(self) -> Reply:
        """The complete reply. The connection may have failed after the terminal event.

        Raises `ProtocolFault` (kind "interrupted") without a terminal event."""
        ...

    @property
    def partial_text(self) -> str:
        """Text received so far."""
        ...


# ---------------------------------------------------------------------------------------- protocols


class Dialect(Protocol):
    """One provider API, as pure functions. To add a provider API, write one of these and a backend."""

    @property
    def wire(self) -> str:
        """The name of the provider API, such as "openai". A state belongs to one provider API."""
        ...

    @property
    def family(self) -> str:
        """The operator of the endpoint, such as "openai", "azure" or a host name. A change is a warning."""
        ...

    def entries(self, messages: Sequence[Message]) -> list[bytes]:
        """Encode messages that the caller wrote, one entry each."""
        ...

    def results(self, results: Sequence[ToolResult]) -> list[bytes]:
        """Encode all results of one exchange, in call order."""
        ...

    def preamble(self, messages: Sequence[Message]) -> bytes:
        """Encode the system messages that lead a request but are never stored. b"" without messages."""
        ...

    def tools(self, tools: Sequence[ToolSpec | ProviderTool]) -> bytes:
        """Encode the tool list in canonical order, byte-equal for equal tools. b"" without tools."""
        ...

    def request(self, parts: RequestParts) -> ModelRequest:
        """Splice a request together without parsing the history."""
        ...

    def reply(self, body: bytes) -> Reply:
        """Read a unary response. Raises `ProtocolFault`."""
        ...

    def decoder(self) -> StreamDecoder:
        """A fresh decoder for one streamed response."""
        ...

    def without_calls(self, reply: Reply) -> Reply:
        """The reply with its tool calls cut out; its entries are () if nothing worth keeping remains."""
        ...

    def with_call_ids(self, reply: Reply, ids: Sequence[str]) -> Reply:
        """The reply with its calls' ids replaced in order, in `calls` and in the stored bytes."""
        ...

    def unsigned(self, entries: Sequence[bytes]) -> list[bytes]:
        """The entries without their sealed blocks, one result for each entry.

        An entry without sealed blocks is returned as the same object. b"" means that nothing is left of an
        entry. The rest of an exchange must be a history that the provider accepts.
        """
        ...

    def settled(self, reply: Sequence[bytes]) -> list[bytes]:
        """Change a reply's entries so that any message may follow. One result for each; b"" to drop one.

        A reply that the provider paused ("send again unchanged") may hold calls of hosted tools without a
        result. They are cut out if something other than the continuation follows.
        """
        ...

    def view(self, entries: Sequence[bytes]) -> tuple[Message, ...]:
        """Read consecutive stored entries as neutral messages, each with its `raw`.

        Several entries may make one message (the items of a reply); its `raw` is these entries joined by
        ``,\\n``. One entry may make several messages (tool results).
        """
        ...

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """Classify an error response."""
        ...


class Exchange(Protocol):
    """One open response: read it chunk by chunk, then close it.

    It may have an ``interrupt()`` that another thread calls to end a waiting `read`; the call itself does not
    wait. Without it, a turn that is cancelled or out of time ends with the next chunk, or when `read` times
    out.
    """

    @property
    def head(self) -> ResponseHead: ...

    def read(self) -> bytes:
        """The next bytes, b"" at the end. Raises `BackendError` (kind "interrupted")."""
        ...

    def close(self) -> None:
        """Release the connection. It is called again if an exception such as Ctrl-C interrupted it."""
        ...


class AsyncExchange(Protocol):
    """As `Exchange`, awaited."""

    @property
    def head(self) -> ResponseHead: ...

    async def read(self) -> bytes: ...

    async def aclose(self) -> None: ...


@runtime_checkable
class Backend(Protocol, metaclass=ByShape):
    """A provider connection for `Chat`."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def model(self) -> str | None: ...

    @property
    def max_retries(self) -> int: ...

    @property
    def context_window(self) -> int | None: ...

    def send(self, request: ModelRequest) -> Exchange:
        """Post a request; return when 2xx headers have come. Raises `BackendError`. Never retries."""
        ...

    def close(self) -> None: ...


def warm_up(backend: Backend) -> None:
    """Call the backend's `warm_up()`, if it has one. It does the slow steps of the first request now."""
    prepare = getattr(backend, "warm_up", None)
    if prepare is not None:
        prepare()


async def warm_up_async(backend: AsyncBackend) -> None:
    """As `warm_up`, awaited."""
    prepare = getattr(backend, "warm_up", None)
    if prepare is not None:
        await prepare()


@runtime_checkable
class AsyncBackend(Protocol, metaclass=ByShape):
    """A provider connection for `AsyncChat`."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def model(self) -> str | None: ...

    @property
    def max_retries(self) -> int: ...

    @property
    def context_window(self) -> int | None: ...

    async def asend(self, request: ModelRequest) -> AsyncExchange: ...

    async def aclose(self) -> None: ...
