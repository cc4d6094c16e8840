"""The edge to OpenAI's wires: posts a finished body through the official `openai` client.

Owns: the client (made here or handed in), one post, and the SDK's exceptions as `BackendError`.
Must never know: what is inside a body, how often to retry, how long a turn may take.

Bodies go out as ``content=`` bytes. That keeps the SDK's credentials, headers, connection pool and error
classes, and skips its typed request path, which rewrites every message of the history on every call.
`tests/backends/test_sdk_pins.py` pins each behaviour of the SDK that this file counts on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2
import openai

from ._endpoints import endpoint_family, is_plain_loopback
from ._exchange import (
    HttpAsyncExchange,
    HttpExchange,
    body_of,
    bounded_timeout,
    is_timeout,
    status_errors,
    wire_errors,
)
from .base import BackendError, ModelRequest

__all__ = ["AsyncOpenAIEdge", "OpenAIEdge", "OpenAIOptions"]

_REQUEST_ID = "x-request-id"

_UNREAD = {"X-Stainless-Raw-Response": "stream"}
"""The header by which the SDK's own `with_streaming_response` asks for a response with its body unread."""

_REWRITTEN_BY_AZURE = "/chat/completions"
"""`AzureOpenAI` reads the deployment for this path from the JSON body; it cannot read bytes."""

_Client = TypeVar("_Client", openai.OpenAI, openai.AsyncOpenAI)


# ------------------------------------------------------------------------------------- SDK clients


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIOptions:
    """How to reach the server. What is None or missing is left to the SDK and its environment variables."""

    client: object = None
    http_client: object = None
    base_url: str | None = None
    api_key: str | Callable[[], Any] | None = field(default=None, repr=False)
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def _check_given(options: OpenAIOptions, wanted: type[_Client], path: str) -> _Client | None:
    """The caller's own SDK client, known to be usable; None if there is none."""
    client = options.client
    if client is None:
        return None
    if not isinstance(client, wanted):
        raise TypeError(
            f"client= must be an openai.{wanted.__name__}, not {type(client).__name__}: OpenAI belongs to "
            "OpenAIChatBackend and Chat, AsyncOpenAI to AsyncOpenAIChatBackend and AsyncChat"
        )
    named = {"http_client": options.http_client, "base_url": options.base_url, "api_key": options.api_key}
    named |= options.client_options
    unused = [name for name, value in named.items() if value is not None]
    if unused:
        raise TypeError(f"client= is used as it is; set {', '.join(unused)} on that client instead")
    if _rewrites_body(client, path):
        raise TypeError(
            f"{type(client).__name__} without azure_deployment= finds its URL by rewriting a JSON body, and "
            "bodies are sent as bytes here; use "
            'openai.OpenAI(base_url="https://RESOURCE.openai.azure.com/openai/v1/", api_key=…), or pass '
            "azure_deployment="
        )
    return client


def _rewrites_body(client: openai.OpenAI | openai.AsyncOpenAI, path: str) -> bool:
    azure = isinstance(client, (openai.AzureOpenAI, openai.AsyncAzureOpenAI))
    return azure and path == _REWRITTEN_BY_AZURE and "/deployments" not in client.base_url.path


def _make(sdk_class: type[_Client], options: OpenAIOptions, http_client: object) -> _Client:
    named: dict[str, Any] = {
        "base_url": options.base_url,
        "api_key": options.api_key,
        "http_client": http_client,
    }
    given = {name: value for name, value in named.items() if value is not None}
    try:
        return sdk_class(**given, **options.client_options)
    except openai.OpenAIError as error:
        raise ValueError(
            "the OpenAI client got no usable credentials: set OPENAI_API_KEY, or pass api_key= "
            "(any text for a server that wants none) or client="
        ) from error


def _http_client(options: OpenAIOptions) -> httpx2.Client:
    """The caller's HTTP client, over a bridge if it is a classic one; else the SDK's default."""
    if options.http_client is None:
        return openai.DefaultHttpxClient(trust_env=_trust_env(options))
    if isinstance(options.http_client, httpx2.Client):
        return options.http_client
    from . import _transport

    return _transport.bridge(options.http_client)


def _async_http_client(options: OpenAIOptions) -> httpx2.AsyncClient:
    """As `_http_client`. What connection pool an event loop gets by default is decided here only."""
    if options.http_client is None:
        return openai.DefaultAsyncHttpxClient(trust_env=_trust_env(options))
    if isinstance(options.http_client, httpx2.AsyncClient):
        return options.http_client
    from . import _transport

    return _transport.bridge_async(options.http_client)


def _trust_env(options: OpenAIOptions) -> bool:
    # A proxy named in the environment cannot reach a server on this machine's loopback.
    return not is_plain_loopback(options.base_url or os.environ.get("OPENAI_BASE_URL"))


# ----------------------------------------------------------------------------------------- one post


def _post_arguments(client: openai.OpenAI | openai.AsyncOpenAI, request: ModelRequest) -> dict[str, Any]:
    accept = {"Accept": "text/event-stream"} if request.stream else {}
    options: dict[str, Any] = {
        "headers": {"Content-Type": "application/json", **accept, **request.headers, **_UNREAD},
        "max_retries": 0,
    }
    if request.timeout is not None:
        options["timeout"] = bounded_timeout(client.timeout, request.timeout)
    return {"path": request.path, "content": request.body, "cast_to": httpx2.Response, "options": options}


def _failures() -> tuple[type[Exception], ...]:
    return (openai.OpenAIError, *wire_errors())


@contextlib.contextmanager
def _findings(host: str) -> Iterator[None]:
    try:
        yield
    except _failures() as error:
        raise _finding(error, host) from error


def _finding(error: Exception, host: str) -> BackendError:
    response = _answer_behind(error)
    if response is not None:
        return BackendError(
            f"{host} answered {response.status_code}",
            status=response.status_code,
            headers=dict(response.headers.items()),
            body=body_of(response) or b"",
            request_id=response.headers.get(_REQUEST_ID),
        )
    reason = type(error.__cause__ or error).__name__
    if isinstance(error, openai.APITimeoutError) or is_timeout(error):
        return BackendError(f"{host} did not answer in time ({reason})", timed_out=True)
    if isinstance(error, openai.OpenAIError) and not isinstance(error, openai.APIError):
        return BackendError(f"no usable credentials for {host} ({reason})", kind="auth")
    return BackendError(f"no answer from {host} ({reason})")


def _answer_behind(error: Exception) -> httpx2.Response | None:
    """The error answer that an exception stands for, if there is one."""
    if isinstance(error, openai.APIStatusError):
        return error.response
    if isinstance(error, openai.OpenAIError):
        return None
    # An error answer whose body broke off surfaces as the bare transport error, raised while the SDK
    # handled the status; the status still says more than "connection lost".
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, status_errors()) and (link is error or body_of(link.response) is None):
            return link.response
        link = link.__context__
    return None


# ----------------------------------------------------------------------------------------- the edges


class OpenAIEdge:
    """One sync client and the posts through it. Threads may share it, as they may share the client."""

    def __init__(self, options: OpenAIOptions, *, path: str) -> None:
        given = _check_given(options, openai.OpenAI, path)
        self._owned = given is None and options.http_client is None
        self._client = given or _make(openai.OpenAI, options, _http_client(options))
        self.family = endpoint_family(str(self._client.base_url))

    def send(self, request: ModelRequest) -> HttpExchange:
        """Post a request; return once 2xx headers are there. Raises `BackendError`."""
        with _findings(self._client.base_url.host):
            response = self._client.post(**_post_arguments(self._client, request))
        return HttpExchange(response, _REQUEST_ID)

    def close(self) -> None:
        """Close the connections, unless they are the caller's own."""
        if self._owned:
            self._client.close()


class AsyncOpenAIEdge:
    """An async client for each event loop, since connections belong to the loop that opened them.

    A `client` or `http_client` of the caller's is used as it is, whichever loop runs.
    """

    def __init__(self, options: OpenAIOptions, *, path: str) -> None:
        given = _check_given(options, openai.AsyncOpenAI, path)
        # Made now rather than in the first turn, so that a missing key shows where the backend is built.
        first = given or _make(openai.AsyncOpenAI, options, _async_http_client(options))
        owned = given is None and options.http_client is None
        self._shared = None if owned else first
        self._spare = first if owned else None
        self._clients: dict[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = {}
        self._options = options
        self._lock = threading.Lock()
        self.family = endpoint_family(str(first.base_url))

    async def asend(self, request: ModelRequest) -> HttpAsyncExchange:
        """Post a request; return once 2xx headers are there. Raises `BackendError`."""
        client = self._shared or self._of_this_loop()
        with _findings(client.base_url.host):
            response = await client.post(**_post_arguments(client, request))
        return HttpAsyncExchange(response, _REQUEST_ID)

    async def aclose(self) -> None:
        """Close the running loop's connections, unless they are the caller's own."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _of_this_loop(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._clients:
                # An open connection keeps its loop alive, so weak keys would never let go of a closed loop.
                self._clients = {known: c for known, c in self._clients.items() if not known.is_closed()}
                self._clients[loop] = self._spare or _make(
                    openai.AsyncOpenAI, self._options, _async_http_client(self._options)
                )
                self._spare = None
            return self._clients[loop]
