"""What the engine asks of a provider: a pure `Dialect` for the words, a thin `Backend` for the wire.

Owns: the two protocols and the values that pass between them and the engine.
Must never know: a particular provider, a socket, an SDK.

A *dialect* is pure: bytes in, values out. It encodes neutral messages as *entries* (one entry is one
element of the wire's history array, as compact JSON without raw newlines), splices stored entries into
a request body without parsing them, and cuts a reply's entries out of the response without changing a
byte that the provider sent. A *backend* posts a finished body and hands the response out as chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, runtime_checkable

from ..citations import Citation
from ..context_management import ContextEdit
from ..messages import Message, ToolCall, ToolResult, Usage
from ..values import Value

__all__ = [
    "REDIRECTED",
    "AsyncBackend",
    "AsyncExchange",
    "Backend",
    "BackendError",
    "CompactsHistory",
    "CountsTokens",
    "Delta",
    "Dialect",
    "EditsContext",
    "Exchange",
    "Fault",
    "FaultKind",
    "ModelRequest",
    "ProtocolFault",
    "ProviderTool",
    "Reply",
    "RequestParts",
    "ResponseHead",
    "RunsProviderTools",
    "StreamDecoder",
    "ToolSpec",
    "warm_up",
    "warm_up_async",
]

FaultKind = Literal[
    "unavailable",  # connection, timeout, 408, 409, 5xx
    "rate_limit",  # 429
    "auth",  # 401, 403
    "rejected",  # 400, 404, 413, 422
    "context",  # the history does not fit into the model's context
    "protocol",  # 200 with a body that is not a reply
    "interrupted",  # broke off in the middle of a reply
    "signature",  # a signed block of the history does not fit what stands before it
    "forked",  # the caller's own client was used before the process was forked
]


# ----------------------------------------------------------------------------------------- requests


class ToolSpec(Value, frozen=True, kw_only=True):
    """What the wire has to know about a function tool. `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = False


class ProviderTool(Value, frozen=True):
    """A provider-hosted tool, passed through as it is: `raw` is the wire's own JSON object.

    Its repr does not show it: the entry of an MCP server holds the server's key.
    """

    unshown = frozenset({"raw"})

    raw: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.raw, Mapping):
            raise TypeError(f"a ProviderTool takes the wire's JSON object, not {type(self.raw).__name__}")


class RequestParts(Value, frozen=True, kw_only=True):
    """Everything a request consists of. `history` holds pieces of entries already joined by ``,\\n``;
    the dialect joins the pieces the same way. `settings` maps `ModelSettings` field names to values
    that were given (never None). `preamble` and `tools` are what the dialect's own methods returned."""

    model: str
    history: Sequence[bytes]
    preamble: bytes = b""
    tools: bytes = b""
    settings: Mapping[str, Any] = {}
    stream: bool = False
    cache_key: str | None = None
    """The conversation's id, for wires with a prompt-cache key: they derive one from it, and never send
    the id itself. A setting overrides it."""
    forbid_tools: bool = False
    """Send the same tools, but let the model call none (`tool_choice: none`)."""
    carried: Mapping[str, str] = {}
    """What earlier replies asked to be sent along (`Reply.carried`), as far as it is still good."""
    has_system: bool = True
    """False: no entry of the history is a system message, so nobody has to look for one."""
    cache_marks: bool = True
    """False: no marks for a prompt cache that nobody will read in time."""
    drop_signed: bool = False
    """Some signed blocks of the history do not fit what stands before them now: ask the provider to drop
    such blocks rather than to refuse the request, where the wire has a word for that."""


class ModelRequest(Value, frozen=True, kw_only=True):
    """A finished request.

    Attributes:
        timeout: Seconds that the whole answer may take from now on, None without a limit.
        head_timeout: Seconds until its headers have to be there, if that is less than `timeout`.
    """

    unshown = frozenset({"body", "headers"})

    path: str
    body: bytes
    headers: Mapping[str, str] = {}
    stream: bool = False
    timeout: float | None = None
    head_timeout: float | None = None


# ---------------------------------------------------------------------------------------- responses


class ResponseHead(Value, frozen=True, kw_only=True):
    """A 2xx response's status and headers (names in lower case)."""

    unshown = frozenset({"headers"})

    status: int
    headers: Mapping[str, str] = {}
    request_id: str | None = None


class Reply(Value, frozen=True, kw_only=True):
    """A complete model reply.

    Attributes:
        entries: What is stored: the provider's bytes, without response-only keys and raw newlines.
        text: The reply's visible text.
        calls: Tool calls in order, ids unique within the reply.
        finish_reason: The provider's own word, "" if it gave none.
        stop: The neutral meaning: "end", "length", "refusal", "pause" (send again unchanged).
            A reply with calls that may run has stop "end" whatever its word.
        run_calls: True if `calls` are complete and may be executed.
        model: The model that answered, as the provider names it.
        signed: True if `entries` hold blocks that the provider has bound to what stands before them, such
            as signed thinking or encrypted reasoning; see `Dialect.unsigned`.
        carried: What has to go along with the next requests, by a name of the dialect's own: its value
            (at most 256 characters), and until when it is good in milliseconds since the epoch, 0 for ever.
        dropped: Why the provider left parts of the request's history out, in its own words for the reason,
            one for each part. Never content.
        aside: What the request consumed beside `usage`, for a compaction of the provider's own accord, say:
            it is no part of the context that follows. None: nothing.
        messages: How many neutral messages the entries are, if there are any: more than one only if the
            server answered calls of its own in the middle of the reply.
        cut: True if parts of the reply were left out of `entries` because they nest too deep to be read.
        citations: The sources that the text names; their places count in `text`.
    """

    unshown = frozenset({"entries", "text", "reasoning", "carried"})

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
    aside: Usage | None = None
    citations: tuple[Citation, ...] = ()
    messages: int = 1
    cut: bool = False


class Delta(Value, frozen=True, kw_only=True, gc=False):
    """A piece of a streamed reply."""

    unshown = frozenset({"text"})

    kind: Literal["text", "reasoning"]
    text: str


class Fault(Value, frozen=True, kw_only=True):
    """What an error answer means. `code` is the provider's error code or type, never its prose."""

    kind: FaultKind
    code: str = ""
    retryable: bool = False
    retry_after: float | None = None


REDIRECTED: Final = Fault(kind="rejected", code="redirected")
"""An answer that redirects the request to another origin (`BackendError.redirect`)."""


class ProtocolFault(Exception):  # noqa: N818
    """A dialect's finding: a 2xx body that is not a reply, or an error inside a stream.

    Its text must not quote the body. `fault` says what it means for the turn; `usage` what the answer has
    consumed all the same, if it says so.
    """

    def __init__(self, message: str, fault: Fault | None = None, *, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.fault = fault or Fault(kind="protocol", retryable=True)
        self.usage = usage


class BackendError(Exception):
    """A backend's finding: the request got no usable response. The SDK's exception is at `sdk_error`.

    With a `status`, `headers` and `body` are the provider's and the dialect classifies them; without
    one the transport failed, and `kind` says how. `redirect` is set if the answer sent the request to another
    origin, where it was not taken to: the origin that was asked, and the other one. `sdk_error` is no
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
        self.sdk_error = sdk_error

    def bare(self) -> BackendError:
        """The same without what the server and the SDK said, for a chain that is printed."""
        return BackendError(
            str(self),
            kind=self.kind,
            status=self.status,
            request_id=self.request_id,
            timed_out=self.timed_out,
            redirect=self.redirect,
        )


class StreamDecoder(Protocol):
    """Turns the chunks of one event stream into deltas and, at its end, into the reply.

    It may also have a property ``has_begun``: True once anything of the reply has come, a piece of a call
    too; without one, a reply begins with its first delta. And one ``usage_so_far``, a `Usage` or None: what
    is known to be consumed by a stream that breaks off, where the wire says so before its end. And one
    ``reads_events``: True if its stream is ``text/event-stream``, so that the first bytes of a response show
    whether it is one, whatever its content type says.
    """

    def feed(self, chunk: bytes) -> Iterable[Delta]:
        """Take the next bytes, however they were cut; return what became readable.

        A list, or anything that can be iterated once: a generator is read to its end before the next bytes.

        Raises `ProtocolFault` for an error event, one that is not JSON, or one that is too large."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether the wire's last word was read (``[DONE]``, ``response.completed``, ``message_stop``).

        Nothing after it matters: whoever reads need not wait for the connection to end."""
        ...

    def finish(self) -> Reply:
        """The complete reply, whatever became of the connection after its terminal event.

        Raises `ProtocolFault` (kind "interrupted") without a terminal event."""
        ...

    @property
    def partial_text(self) -> str:
        """Text received so far."""
        ...


# ---------------------------------------------------------------------------------------- protocols


class Dialect(Protocol):
    """One provider wire, as pure functions. This is all a third party writes to add a wire."""

    @property
    def wire(self) -> str:
        """The name that locks a state to this wire, such as "openai"."""
        ...

    @property
    def family(self) -> str:
        """The endpoint family, such as "openai", "azure" or a host name; a change of it is a warning."""
        ...

    def entries(self, messages: Sequence[Message]) -> list[bytes]:
        """Encode messages that the caller wrote, one entry each."""
        ...

    def results(self, results: Sequence[ToolResult]) -> list[bytes]:
        """Encode all results of one exchange, in call order."""
        ...

    def preamble(self, messages: Sequence[Message]) -> bytes:
        """Encode the system messages that lead a request but are never stored. b"" for none."""
        ...

    def tools(self, tools: Sequence[ToolSpec | ProviderTool]) -> bytes:
        """Encode the tool list in canonical order, byte-equal for equal tools. b"" for none."""
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
        """The entries without what their provider signed over the history before them, one for each.

        An entry in which nothing is signed is returned as the very object it is; b"" stands for one of
        which nothing is left. What is left of an exchange must be a history that the provider takes.
        """
        ...

    def settled(self, reply: Sequence[bytes]) -> list[bytes]:
        """A reply's entries, one for each, so that anything may follow them; b"" for one that must go.

        A reply that the provider paused ("send again unchanged") may hold calls of hosted tools that have
        no result yet; they are cut out when something else than its continuation follows.
        """
        ...

    def view(self, entries: Sequence[bytes]) -> tuple[Message, ...]:
        """Read consecutive stored entries as neutral messages, `raw` set on each.

        Entries that together make one message (the items of a reply) are one message, whose `raw` is
        these entries joined by ``,\\n``; an entry that holds several (tool results) makes several.
        """
        ...

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        """Say what an error answer means."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """What a dialect may have beside the methods of `Dialect`, if its provider counts on request."""

    def count_request(self, parts: RequestParts) -> ModelRequest:
        """The request that asks how many input tokens a request of these parts has."""
        ...

    def counted(self, body: bytes) -> int:
        """The number in the answer. Raises `ProtocolFault`."""
        ...


@runtime_checkable
class CompactsHistory(Protocol):
    """What a dialect may have beside the methods of `Dialect`, if its provider compacts histories."""

    def compaction_request(self, parts: RequestParts, instructions: str) -> ModelRequest:
        """The request that asks the provider to compact this history.

        `instructions`: what to keep, "" for the provider's own idea; ignored where it takes none.
        """
        ...

    def compacted(self, body: bytes) -> Reply:
        """The answer: `entries` stand in the place of the history from now on. Raises `ProtocolFault`, with
        the `usage` of an answer that holds no compaction."""
        ...

    def is_boundary(self, entry: bytes) -> bool:
        """True if a stored entry is, or holds, what the provider has made of all that stood before it."""
        ...


@runtime_checkable
class RunsProviderTools(Protocol):
    """What a dialect may have beside the methods of `Dialect`, if its provider has tools for clients to run.

    Their calls are of kind "provider": `name` is the type of the model's item, `arguments` the whole item.
    """

    def waits_for(self, call: ToolCall) -> Literal["approval", "external"]:
        """What such a call waits for: that somebody allows it, or its result."""
        ...

    def provider_output(self, call: ToolCall, value: Any, *, is_error: bool = False) -> str:
        """The item that answers such a call, as JSON text; `results` takes it back as the result's only part.

        `value`: what was given as the result; True or False for an approval. Raises ValueError, without
        content, for what is no answer.
        """
        ...


@runtime_checkable
class EditsContext(Protocol):
    """What a dialect may have beside the methods of `Dialect`, if its provider edits contexts by itself."""

    def usable_edits(
        self, edits: Sequence[ContextEdit], settings: Mapping[str, Any]
    ) -> tuple[ContextEdit, ...]:
        """What of a compactor's wishes a request with these settings may hold as `context_management`.

        What the wire or the host does not have is left out: nothing of the answer may be refused by
        `Dialect.request`. Equal settings, equal answer, so that a conversation's requests do not differ.
        """
        ...


class Exchange(Protocol):
    """One open response: read it chunk by chunk, then close it.

    It may also have an ``interrupt()``, which another thread calls to end a `read` that waits; it does not
    wait itself. Without one, a turn that another thread gives up, or whose time is up, ends with the next
    chunk, or when `read` itself gives up waiting.
    """

    @property
    def head(self) -> ResponseHead: ...

    def read(self) -> bytes:
        """The next bytes, b"" at the end. Raises `BackendError` (kind "interrupted")."""
        ...

    def close(self) -> None:
        """Let go of the connection. Called again if an exit such as Ctrl-C came in its middle."""
        ...


class AsyncExchange(Protocol):
    """As `Exchange`, awaited."""

    @property
    def head(self) -> ResponseHead: ...

    async def read(self) -> bytes: ...

    async def aclose(self) -> None: ...


@runtime_checkable
class Backend(Protocol):
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
        """Post a request; return once 2xx headers are there. Raises `BackendError`. Never retries."""
        ...

    def close(self) -> None: ...


def warm_up(backend: Backend) -> None:
    """Let a backend do before its first request what that would do first, if it has a `warm_up()`."""
    prepare = getattr(backend, "warm_up", None)
    if prepare is not None:
        prepare()


async def warm_up_async(backend: AsyncBackend) -> None:
    """As `warm_up`, awaited."""
    prepare = getattr(backend, "warm_up", None)
    if prepare is not None:
        await prepare()


@runtime_checkable
class AsyncBackend(Protocol):
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
