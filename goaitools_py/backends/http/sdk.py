"""Describes an SDK for an edge, makes its clients, and decides how a body is posted with each.

Owns: the `Sdk` protocol, the options of a connection, which HTTP client is used, and whether posts take the
short way (`fast_post`). Must never know: which SDK it is, or the meaning of a body.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import httpx2

from ..base import ModelRequest
from ..dialects import is_plain_loopback
from .async_fast_post import AsyncFastPost, AsyncRecordingClient
from .fast_post import FastPost, RecordingClient
from .heads import ClientDefaults

__all__ = [
    "ClientOptions",
    "Line",
    "Sdk",
    "SdkClient",
    "SdkErrors",
    "async_http_class",
    "async_line",
    "callers_line",
    "refuse_options",
    "sync_line",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How to reach the server. The SDK and its environment variables give values that are None or missing."""

    client: object = None
    http_client: object = None
    http: str | None = None
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
    def log(self) -> logging.Logger:
        """Its logger."""
        ...

    @property
    def plain_options(self) -> frozenset[str]:
        """The options of its clients that only add headers, a query or a timeout to each post."""
        ...

    @property
    def base_url_variable(self) -> str:
        """The environment variable with the base URL, which the SDK reads if no URL is given."""
        ...

    @property
    def key_variable(self) -> str:
        """The environment variable with the key, which the SDK reads if no key is given."""
        ...

    def checked(self, options: ClientOptions) -> _Client:
        """The caller's own client. Raises `TypeError` if it cannot be used."""
        ...

    def make(self, given: Mapping[str, Any]) -> _Client:
        """A new client with these options. Raises `ValueError` without credentials."""
        ...

    def family(self, client: _Client) -> str:
        """The company that runs the client's server."""
        ...

    def headers(self, client: _Client, request: ModelRequest) -> Mapping[str, str]:
        """The headers of a request in addition to the client's own."""
        ...

    def lacks_credentials(self, error: Exception) -> bool:
        """True for a failure before the server answered, because credentials are missing."""
        ...

    def refused(self, client: _Client) -> None:
        """The server answered 401: a client that keeps a token gets a new one for the next request."""
        ...


def refuse_options(options: ClientOptions) -> None:
    """Raise `TypeError` for options that have no effect beside a caller's own `client`."""
    names = ("http_client", "http", "base_url", "api_key")
    named = {name: getattr(options, name) for name in names} | dict(options.client_options)
    unused = [name for name, value in named.items() if value is not None]
    if unused:
        raise TypeError(f"client= is used as it is; set {', '.join(unused)} on that client instead")


# ----------------------------------------------------------------------------------------------- clients


class Line(Generic[_Client]):
    """An SDK's client, and how a body is posted with it: by its own `post`, or by a cheaper one.

    Attributes:
        client: The client.
        http_client: The HTTP client that it sends through; None if the client is the caller's own.
        post: As the client's `post`.
    """

    __slots__ = ("client", "http_client", "post")

    def __init__(self, client: _Client, http_client: object, post: Callable[..., Any]) -> None:
        self.client = client
        self.http_client = http_client
        self.post = post


def callers_line(sdk: Sdk[_Client], options: ClientOptions) -> Line[_Client]:
    """The caller's own client. Raises `TypeError` if it cannot be used."""
    client = sdk.checked(options)
    return Line(client, None, client.post)


def sync_line(sdk: Sdk[_Client], options: ClientOptions) -> Line[_Client]:
    """A new client. Raises `ValueError` without credentials, `TypeError` for an HTTP client that cannot be
    used."""
    http_client = _http_client(sdk, options)
    if not _is_plain(sdk, options, http_client):
        client = _made(sdk, options, http_client)
        return Line(client, http_client, client.post)
    client = _made(sdk, options, RecordingClient(http_client))
    return Line(client, http_client, FastPost(client, http_client, _client_defaults(sdk, options)).post)


def async_line(sdk: Sdk[_Client], options: ClientOptions) -> Line[_Client]:
    """As `sync_line`, for an async SDK."""
    http_client = _async_http_client(sdk, options)
    if not _is_plain(sdk, options, http_client):
        client = _made(sdk, options, http_client)
        return Line(client, http_client, client.post)
    client = _made(sdk, options, AsyncRecordingClient(http_client))
    return Line(client, http_client, AsyncFastPost(client, http_client, _client_defaults(sdk, options)).post)


def _made(sdk: Sdk[_Client], options: ClientOptions, http_client: object) -> _Client:
    named = {"base_url": options.base_url, "api_key": options.api_key, "http_client": http_client}
    given = {name: value for name, value in named.items() if value is not None}
    return sdk.make({**given, **options.client_options})


def _is_plain(sdk: Sdk[Any], options: ClientOptions, http_client: object) -> bool:
    """True if a client's posts differ only in parts that are known here.

    Code that fetches a key, or signs, may give another header for each request. An unknown option may change
    every part.
    """
    build = getattr(getattr(http_client, "build_request", None), "__func__", None)
    return (
        not callable(options.api_key)
        and options.client_options.keys() <= sdk.plain_options
        and build is httpx2.Client.build_request
    )


def _client_defaults(sdk: Sdk[Any], options: ClientOptions) -> ClientDefaults:
    given = options.client_options
    return ClientDefaults(given.get("default_headers"), given.get("default_query"), sdk.log)


def _http_client(sdk: Sdk[Any], options: ClientOptions) -> httpx2.Client:
    """The caller's HTTP client, over a bridge if it is a classic one; without one, the SDK's default."""
    if options.http_client is None:
        return sdk.http_class(**_way_out(sdk, options))  # type: ignore[no-any-return]
    if isinstance(options.http_client, httpx2.Client):
        return options.http_client
    from .transport import bridge

    return bridge(options.http_client)


def _async_http_client(sdk: Sdk[Any], options: ClientOptions) -> httpx2.AsyncClient:
    """As `_http_client`. Only this function chooses the default connection pool of an event loop."""
    if options.http_client is None:
        return async_http_class(sdk, options)(**_way_out(sdk, options))
    if options.http is not None:
        raise TypeError("give http= or http_client=, not both: http='aiohttp' makes a client by itself")
    if isinstance(options.http_client, httpx2.AsyncClient):
        return options.http_client
    from .async_transport import bridge_async

    return bridge_async(options.http_client)


def async_http_class(sdk: Sdk[Any], options: ClientOptions) -> Callable[..., httpx2.AsyncClient]:
    """Makes the HTTP clients of an async backend that was not given one."""
    if options.http is None:
        return sdk.http_class
    from .client import aiohttp_client

    return aiohttp_client


def _way_out(sdk: Sdk[Any], options: ClientOptions) -> dict[str, Any]:
    # A proxy that the environment names cannot reach a server on this machine's loopback. `httpx2` ignores
    # the environment without `trust_env`. The anthropic SDK before 2.14 reads it itself, and only a mount
    # overrides that.
    if is_plain_loopback(options.base_url or os.environ.get(sdk.base_url_variable)):
        return {"trust_env": False, "mounts": {"http://": None}}
    return {}
