"""Describes an SDK and its clients for an edge.

Owns: the `Sdk` protocol, and the options of a connection. Must never know: how a body is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import httpx2

from ..base import ModelRequest

__all__ = ["ClientOptions", "Sdk", "SdkClient", "SdkErrors", "refuse_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How to reach the server. The SDK and its environment variables give values that are None or missing."""

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
    named = {"http_client": options.http_client, "base_url": options.base_url, "api_key": options.api_key}
    named |= options.client_options
    unused = [name for name, value in named.items() if value is not None]
    if unused:
        raise TypeError(f"client= is used as it is; set {', '.join(unused)} on that client instead")
