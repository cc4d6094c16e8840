"""What the edges over both SDKs share: which client is used, how one post goes out, what its failures mean.

Owns: HTTP clients and their lifetimes, one post, an SDK's exceptions as `BackendError`.
Must never know: which SDK it is (an `Sdk` says), what is inside a body, how often to retry.

Bodies are sent as ``content=`` bytes. So an SDK's credentials, headers, connection pool and error classes are
used, but not its typed requests, which walk through every message of the history on every call.
`tests/backends/test_sdk_pins.py` has a test for each behaviour of the SDKs that the edges rely on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import httpx2

from ..base import BackendError, ModelRequest
from ..endpoints import is_plain_loopback
from .aside import within
from .clients import ClientOfProcess, ClientsOfLoops
from .deadlines import DeadlineClient, until
from .exchange import (
    HttpAsyncExchange,
    HttpExchange,
    body_of,
    bounded_timeout,
    is_timeout,
    let_body_take,
    status_errors,
    wire_errors,
)
from .posts import quicken
from .redirects import MAX_REDIRECTS, redirect_of
from .rehearsal import rehearse

__all__ = [
    "AsyncSdkEdge",
    "ClientOptions",
    "Sdk",
    "SdkClient",
    "SdkEdge",
    "SdkErrors",
    "refuse_options",
]

_UNREAD = {"X-Stainless-Raw-Response": "stream"}
"""The header by which `with_streaming_response` of both SDKs asks for a response whose body is not read."""

_REHEARSAL_SECONDS = 5.0
"""How long the post of a warm-up may take."""


# -------------------------------------------------------------------------------------- what varies


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How to reach the server. For what is None or missing, the SDK and its environment variables decide."""

    client: object = None
    http_client: object = None
    base_url: str | None = None
    api_key: str | Callable[[], Any] | None = field(default=None, repr=False)
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


class SdkClient(Protocol):
    """The part of an SDK's client that an edge uses, sync or async."""

    @property
    def base_url(self) -> httpx2.URL: ...

    @property
    def timeout(self) -> float | httpx2.Timeout | None: ...

    @property
    def post(self) -> Callable[..., Any]: ...

    @property
    def get(self) -> Callable[..., Any]: ...

    @property
    def close(self) -> Callable[[], Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkErrors:
    """An SDK's exception classes, and the response header with the provider's id of a request."""

    base: type[Exception]
    status: type[Exception]
    timeout: type[Exception]
    request_id: str


_Client = TypeVar("_Client", bound=SdkClient)


class Sdk(Protocol[_Client]):
    """One SDK for one provider API, sync or async."""

    @property
    def errors(self) -> SdkErrors: ...

    @property
    def http_class(self) -> Callable[..., Any]:
        """Makes an HTTP client with the SDK's timeouts and limits."""
        ...

    @property
    def post_options(self) -> Any:
        """Its `posts.options_class`."""
        ...

    @property
    def base_url_variable(self) -> str:
        """The environment variable with the base URL, for the SDK to use if none is given."""
        ...

    @property
    def key_variable(self) -> str:
        """The environment variable with the key, for the SDK to use if none is given."""
        ...

    def checked(self, options: ClientOptions) -> _Client:
        """The caller's own client. Raises `TypeError` if it cannot be used."""
        ...

    def make(self, given: Mapping[str, Any]) -> _Client:
        """A new client with these options. Raises `ValueError` without credentials."""
        ...

    def family(self, client: _Client) -> str:
        """The company whose server a client talks to."""
        ...

    def headers(self, client: _Client, request: ModelRequest) -> Mapping[str, str]:
        """The headers of a request in addition to the client's own."""
        ...

    def lacks_credentials(self, error: Exception) -> bool:
        """True for a failure without an answer of the server that says that there are no credentials."""
        ...

    def refused(self, client: _Client) -> None:
        """The server answered 401: a client that keeps a token gets a new one for the next request."""
        ...


# ---------------------------------------------------------------------------------------- the clients


def refuse_options(options: ClientOptions) -> None:
    """Raise `TypeError` for options that have no effect beside a caller's own `client`."""
    named = {"http_client": options.http_client, "base_url": options.base_url, "api_key": options.api_key}
    named |= options.client_options
    unused = [name for name, value in named.items() if value is not None]
    if unused:
        raise TypeError(f"client= is used as it is; set {', '.join(unused)} on that client instead")


def _made(sdk: Sdk[_Client], options: ClientOptions, http_client: object) -> _Client:
    named = {"base_url": options.base_url, "api_key": options.api_key, "http_client": http_client}
    given = {name: value for name, value in named.items() if value is not None}
    client = sdk.make({**given, **options.client_options})
    quicken(client, http_client, sdk.post_options)
    return client


def _http_client(sdk: Sdk[Any], options: ClientOptions) -> httpx2.Client:
    """The caller's HTTP client, over a bridge if it is a classic one; without one, the SDK's default."""
    if options.http_client is None:
        return sdk.http_class(**_way_out(sdk, options))  # type: ignore[no-any-return]
    if isinstance(options.http_client, httpx2.Client):
        return options.http_client
    from . import transport as _transport

    return _transport.bridge(options.http_client)


def _async_http_client(sdk: Sdk[Any], options: ClientOptions) -> httpx2.AsyncClient:
    """As `_http_client`. Here alone it is decided which connection pool an event loop gets by default."""
    if options.http_client is None:
        return sdk.http_class(**_way_out(sdk, options))  # type: ignore[no-any-return]
    if isinstance(options.http_client, httpx2.AsyncClient):
        return options.http_client
    from . import transport as _transport

    return _transport.bridge_async(options.http_client)


def _new(sdk: Sdk[_Client], options: ClientOptions) -> _Client:
    return _made(sdk, options, _http_client(sdk, options))


def _new_async(sdk: Sdk[_Client], options: ClientOptions) -> _Client:
    return _made(sdk, options, _async_http_client(sdk, options))


def _way_out(sdk: Sdk[Any], options: ClientOptions) -> dict[str, Any]:
    # A proxy that the environment names cannot reach a server on this machine's loopback. `httpx2` ignores
    # the environment without `trust_env`. The anthropic SDK reads it itself, and only a mount overrides that.
    if is_plain_loopback(options.base_url or os.environ.get(sdk.base_url_variable)):
        return {"trust_env": False, "mounts": {"http://": None}}
    return {}


# ------------------------------------------------------------------------------------------- one post


def _address(client: SdkClient, options: ClientOptions) -> str:
    """What stands before a request's path. For a client that was made here it is the whole address: so the
    SDK need not build one for each request. For a caller's own client it is empty, because that may look at
    the path, or move to another address.
    """
    return str(client.base_url).rstrip("/") if options.client is None else ""


def _server(client: SdkClient) -> tuple[str, int]:
    """The host and the port of a client's server."""
    url = client.base_url
    return url.host, url.port or (80 if url.scheme == "http" else 443)


def _post_arguments(
    sdk: Sdk[_Client], client: _Client, address: str, request: ModelRequest, timeout: float | None
) -> dict[str, Any]:
    accept = {"Accept": "text/event-stream"} if request.stream else {}
    headers = {"Content-Type": "application/json", **accept, **sdk.headers(client, request), **_UNREAD}
    # The SDK does not retry, so it need not make a key by which the server would recognise a retry.
    # No HTTP client follows a redirect by itself, not even a caller's own: see `redirects`.
    options: dict[str, Any] = {
        "headers": headers,
        "max_retries": 0,
        "idempotency_key": "",
        "follow_redirects": False,
    }
    if timeout is not None or address:  # a client that was made here always gets one: see `posts`
        options["timeout"] = bounded_timeout(client.timeout, timeout)
    path = address + request.path
    return {"path": path, "content": request.body, "cast_to": httpx2.Response, "options": options}


def _redirected(
    sdk: Sdk[_Client], client: _Client, error: Exception, given: dict[str, Any], hop: int
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """How a request goes on after an error that is a redirect within its origin: the method that sends it,
    and its arguments. For any other error, raises what it means. Called while the error is handled."""
    response = _answer_behind(sdk.errors, error)
    try:
        redirect = None if response is None else redirect_of(response)
    except BackendError as found:
        found.sdk_error = error
        raise found from None
    if redirect is None or hop == MAX_REDIRECTS:
        _raise_for(sdk, client, error)
    given = {**given, "path": redirect.url}
    if redirect.is_post and "content" in given:
        return client.post, given
    given.pop("content", None)
    return client.get, given


def _raise_for(sdk: Sdk[_Client], client: _Client, error: Exception) -> NoReturn:
    """Raise what a failed post means. Called while the error is handled."""
    found = _finding(sdk, error, client.base_url.host or "the server")
    if isinstance(found, BackendError):
        if found.status == 401:
            sdk.refused(client)
        found.sdk_error = error
        raise found from None
    if found is error:
        raise
    raise found from None


def _finding(sdk: Sdk[Any], error: Exception, host: str) -> Exception:
    """What a failure means: a `BackendError`, or an exception that is a defect and goes on."""
    response = _answer_behind(sdk.errors, error)
    if response is not None:
        return BackendError(
            f"{host} answered {response.status_code}",
            status=response.status_code,
            headers=dict(response.headers.items()),
            body=body_of(response) or b"",
            request_id=response.headers.get(sdk.errors.request_id),
        )
    of_sdk = isinstance(error, sdk.errors.base)
    origin = error.__cause__ if of_sdk and isinstance(error.__cause__, Exception) else error
    reason = type(origin).__name__
    if isinstance(error, sdk.errors.timeout) or is_timeout(origin):
        return BackendError(f"{host} did not answer in time ({reason})", timed_out=True)
    if sdk.lacks_credentials(error):
        text = f"no usable credentials for {host} ({reason})"
        return BackendError(text, kind="auth", key_variable=sdk.key_variable)
    if isinstance(origin, (sdk.errors.base, *wire_errors())):
        return BackendError(f"no answer from {host} ({reason})")
    return origin  # an SDK may wrap any exception of an HTTP client as a lost connection


def _answer_behind(errors: SdkErrors, error: Exception) -> httpx2.Response | None:
    """The error answer behind an exception; None if there is none."""
    if isinstance(error, errors.base):
        stated = error if isinstance(error, errors.status) else error.__cause__
        known = isinstance(stated, (errors.status, *status_errors()))
        return getattr(stated, "response") if known else None  # noqa: B009 - the classes are values here
    # If the body of an error answer breaks off, the exception is that of the network, raised while the SDK
    # handled the status. The status says more than "connection lost".
    link: BaseException | None = error
    while link is not None and isinstance(error, wire_errors()):
        if isinstance(link, status_errors()) and (link is error or body_of(link.response) is None):
            return link.response
        link = link.__context__
    return None


# ------------------------------------------------------------------------------------------ the edges


class SdkEdge(Generic[_Client]):
    """One sync client for each process, and the posts through it. Threads may share both.

    In a child of a fork, a `client` or `http_client` of the caller's that was used before is refused.
    """

    def __init__(self, sdk: Sdk[_Client], options: ClientOptions) -> None:
        self._sdk = sdk
        self._owned = options.client is None and options.http_client is None
        http_client = None if options.client is not None else _http_client(sdk, options)
        first = sdk.checked(options) if http_client is None else _made(sdk, options, http_client)
        self._client = ClientOfProcess(first, partial(_new, sdk, options) if self._owned else None)
        # A caller's client, and code that fetches a token, may wait for anything, and keep no deadline.
        self._keeps_time = (
            isinstance(http_client, DeadlineClient)
            and http_client.is_exact
            and not callable(options.api_key)
            and getattr(first, "credentials", None) is None
        )
        self._address = _address(first, options)
        self.family = sdk.family(first)
        self.server = _server(first)

    def send(self, request: ModelRequest) -> HttpExchange:
        """Post a request; return once 2xx headers are there. Raises `BackendError`."""
        client, whole, head = self._client.get(), request.timeout, request.head_timeout
        soon = whole if head is None else head
        if soon is None:
            response = self._response(client, request, None)
        elif self._keeps_time:
            with until(soon):
                response = self._response(client, request, soon)
        else:
            try:
                response = within(soon, lambda: self._response(client, request, soon), httpx2.Response.close)
            except TimeoutError:
                host = client.base_url.host or "the server"
                raise BackendError(f"{host} did not answer in time", timed_out=True) from None
        if head is not None:
            let_body_take(response, bounded_timeout(client.timeout, whole))
        return HttpExchange(response, self._sdk.errors.request_id)

    def _response(self, client: _Client, request: ModelRequest, seconds: float | None) -> httpx2.Response:
        ask, given = client.post, _post_arguments(self._sdk, client, self._address, request, seconds)
        for hop in range(MAX_REDIRECTS + 1):
            try:
                return ask(**given)  # type: ignore[no-any-return]
            except Exception as error:
                ask, given = _redirected(self._sdk, client, error, given, hop)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the connections, unless they are the caller's own."""
        client = self._client.peek()
        if self._owned and client is not None:
            client.close()


class AsyncSdkEdge(Generic[_Client]):
    """An async client for each event loop, since connections belong to the loop that opened them.

    A `client` or `http_client` of the caller's is used as it is, in any loop. In a child of a fork, one that
    was used before is refused.
    """

    def __init__(self, sdk: Sdk[_Client], options: ClientOptions) -> None:
        self._sdk = sdk
        self._new = new = partial(_new_async, sdk, options)
        # Made now and not in the first turn, so that a missing key raises where the backend is made.
        first = new() if options.client is None else sdk.checked(options)
        owned = options.client is None and options.http_client is None
        self._own = ClientsOfLoops(first, new) if owned else None
        self._clients = self._own or ClientOfProcess(first, None)
        self._address = _address(first, options)
        self.family = sdk.family(first)
        self.server = _server(first)

    async def asend(self, request: ModelRequest) -> HttpAsyncExchange:
        """Post a request; return once 2xx headers are there. Raises `BackendError`.

        The caller has to see that the headers come in time.
        """
        client = self._clients.get()
        ask, given = client.post, _post_arguments(self._sdk, client, self._address, request, request.timeout)
        for hop in range(MAX_REDIRECTS + 1):
            try:
                response = await ask(**given)
                break
            except Exception as error:
                ask, given = _redirected(self._sdk, client, error, given, hop)
        return HttpAsyncExchange(response, self._sdk.errors.request_id)

    async def warm_up(self) -> None:
        """Make the running loop's client, and import everything that a request needs, both in a thread."""
        if self._own is not None and not self._own.is_ready():
            self._own.keep(await asyncio.to_thread(self._new))
        await asyncio.to_thread(rehearse, self._rehearsed)

    async def _rehearsed(self, root: str) -> None:
        # A client of its own: a caller's hooks and credentials are for real requests.
        http_client = self._sdk.http_class(trust_env=False)
        options = ClientOptions(http_client=http_client, base_url=root, api_key="none")
        client = _made(self._sdk, options, http_client)
        request = ModelRequest(path="/", body=b"{}", timeout=_REHEARSAL_SECONDS)
        try:
            response = await client.post(
                **_post_arguments(self._sdk, client, root, request, _REHEARSAL_SECONDS)
            )
            await response.aclose()
        except (self._sdk.errors.base, *wire_errors()):
            pass  # even if it failed, everything is imported now
        finally:
            await client.close()

    async def aclose(self) -> None:
        """Close the running loop's connections, unless they are the caller's own."""
        client = None if self._own is None else self._own.pop()
        if client is not None:
            await client.close()
