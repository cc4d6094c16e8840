"""Uses the official `anthropic` client and its variants for clouds.

Owns: which clients can be used, how one is made, the headers of a request, and the client's exceptions.
Must never know: how a body is sent, or its content.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import anthropic

from ..base import ModelRequest
from ..dialects import endpoint_family
from ..http.async_pool import ShardedClient
from ..http.deadlines import DeadlineClient
from ..http.exchange import wire_errors
from ..http.sdk import ClientOptions, SdkErrors, refuse_options
from ..http.sdk_edge import AsyncSdkEdge, SdkEdge
from .history_needs import betas_beside

__all__ = ["anthropic_edge", "async_anthropic_edge"]

_BETAS = "anthropic-beta"
_GOOGLE = "claude.googleapis.com"
"""The host of an `AnthropicGoogleCloud`, which may not know it before its first request."""
_UNRESOLVED = "Could not resolve"
"""The beginnings of the `TypeError` and `RuntimeError` texts that mean "no credentials"."""
_SIGNING_ERRORS = (("botocore.exceptions", "BotoCoreError"), ("google.auth.exceptions", "GoogleAuthError"))
"""The exceptions of the clouds' sign-in libraries, if these are imported."""

_Client = TypeVar("_Client", anthropic.Anthropic, anthropic.AsyncAnthropic)


class _SilentPosts(logging.Filter):
    """Removes bodies and headers from the SDK's log records of a post, which every request here is.

    At level DEBUG the SDK logs all options of a request, with the conversation and any key in a header
    (anthropic 2.12, ``_base_client._build_request``). Requests that it encodes itself have no `content`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        options = record.args
        if isinstance(options, Mapping) and "content" in options:
            record.args = {key: value for key, value in options.items() if key not in ("content", "headers")}
        return True


logging.getLogger("anthropic._base_client").addFilter(_SilentPosts())


def anthropic_edge(options: ClientOptions, *, betas: Sequence[str]) -> SdkEdge[anthropic.Anthropic]:
    """Connect. `betas` go with each request.

    Raises `ValueError` without credentials, `TypeError` for a client that cannot be used."""
    return SdkEdge(_Anthropic(anthropic.Anthropic, DeadlineClient, betas), options)


def async_anthropic_edge(
    options: ClientOptions, *, betas: Sequence[str]
) -> AsyncSdkEdge[anthropic.AsyncAnthropic]:
    """As `anthropic_edge`, awaited."""
    return AsyncSdkEdge(_Anthropic(anthropic.AsyncAnthropic, ShardedClient, betas), options)


class _Anthropic(Generic[_Client]):
    log = logging.getLogger("anthropic")
    plain_options = frozenset({"auth_token", "default_headers", "default_query", "max_retries", "timeout"})
    base_url_variable = "ANTHROPIC_BASE_URL"
    key_variable = "ANTHROPIC_API_KEY"
    errors = SdkErrors(
        base=anthropic.AnthropicError,
        status=anthropic.APIStatusError,
        timeout=anthropic.APITimeoutError,
        request_id="request-id",
    )

    def __init__(self, client_class: type[_Client], http_class: type[Any], betas: Sequence[str]) -> None:
        if isinstance(betas, str):
            raise TypeError("betas= takes a sequence of names, such as ['NAME'], not a str")
        self._client_class: type[_Client] = client_class
        self.http_class: Callable[..., Any] = http_class
        self._betas = tuple(betas)

    # ---------------------------------------------------------------------------------- the clients

    def checked(self, options: ClientOptions) -> _Client:
        client: Any = options.client
        if not isinstance(client, (self._client_class, self._mantle())):
            raise TypeError(_refusal(client, self._client_class.__name__))
        refuse_options(options)
        return client

    def _mantle(self) -> type[Any]:
        """The one class of the family that does not inherit from the others, and sends bytes as they are."""
        is_async = self._client_class is anthropic.AsyncAnthropic
        return anthropic.AsyncAnthropicBedrockMantle if is_async else anthropic.AnthropicBedrockMantle

    def make(self, given: Mapping[str, Any]) -> _Client:
        try:
            client = self._client_class(**given)
        except anthropic.AnthropicError as error:
            raise ValueError(_NO_CREDENTIALS) from error
        if not _has_credentials(client):
            raise ValueError(_NO_CREDENTIALS)  # the SDK itself would raise at the first request
        return client

    def family(self, client: _Client) -> str:
        url = client.base_url
        return endpoint_family(str(url), "anthropic") if url.host else _GOOGLE

    # ---------------------------------------------------------------------------------- one request

    def headers(self, client: _Client, request: ModelRequest) -> Mapping[str, str]:
        standing = _standing_headers(client)
        headers = {name.lower(): value for name, value in request.headers.items()}
        own = list(_names((standing.get(_BETAS), ",".join(self._betas))))
        betas = _merged(",".join(own), ",".join(betas_beside(own, _names((headers.get(_BETAS),)))))
        if betas:
            headers[_BETAS] = betas
        key = getattr(client, "api_key", None)
        # The SDK sends the key as a bearer token. Compatible servers may know the older
        # `x-api-key` only; they get no key in it that the SDK would not have sent there anyway.
        is_bearer = key and standing.get("authorization") == f"Bearer {key}"
        if is_bearer and "x-api-key" not in standing and self.family(client) not in _OWN:
            headers.setdefault("x-api-key", str(key))
        return headers

    # -------------------------------------------------------------------------------- its failures

    def lacks_credentials(self, error: Exception) -> bool:
        if isinstance(error, anthropic.AnthropicError):
            return _is_about_credentials(error)
        if isinstance(error, (TypeError, RuntimeError)):
            return str(error).lstrip('"').startswith(_UNRESOLVED)
        return isinstance(error, tuple(_signing_errors()))

    def refused(self, client: _Client) -> None:
        # The SDK does this before a retry, and its retries are switched off here.
        cache = getattr(client, "_token_cache", None)
        if cache is not None:
            cache.invalidate()


_EMPTY_BEARER = "Bearer "
_OWN = ("anthropic", "foundry", "aws", _GOOGLE)

_NO_CREDENTIALS = (
    "the Anthropic client got no usable credentials: set ANTHROPIC_API_KEY, or pass api_key= "
    "(any text for a server that wants none) or client="
)


def _refusal(client: object, wanted: str) -> str:
    name = type(client).__name__
    twin = {"AnthropicBedrock": "AnthropicBedrockMantle", "AnthropicVertex": "AnthropicGoogleCloud"}
    plain = name.removeprefix("Async")
    if plain in twin:
        instead = name.replace(plain, twin[plain])
        return (
            f"{name} finds its URL by rewriting a JSON body, and bodies are sent as bytes here; "
            f"use anthropic.{instead}"
        )
    return (
        f"client= must be an anthropic.{wanted} or one of its relatives for Foundry, AWS, Bedrock Mantle and "
        f"Google Cloud, not {name}: Anthropic belongs to AnthropicBackend and Chat, AsyncAnthropic to "
        "AsyncAnthropicBackend and AsyncChat"
    )


def _standing_headers(client: anthropic.Anthropic | anthropic.AsyncAnthropic) -> dict[str, Any]:
    """The headers that a client adds to each request, by lower-case name; a value may be the SDK's `Omit`."""
    return {name.lower(): value for name, value in client.default_headers.items()}


def _has_credentials(client: anthropic.Anthropic | anthropic.AsyncAnthropic) -> bool:
    standing = _standing_headers(client)
    bearer = standing.get("authorization", _EMPTY_BEARER)
    return client.credentials is not None or "x-api-key" in standing or bearer != _EMPTY_BEARER


def _merged(*lists: object) -> str:
    """Join comma-separated lists, each name once. Values that are not text are skipped."""
    return ",".join(dict.fromkeys(_names(lists)))


def _names(lists: Iterable[object]) -> Iterable[str]:
    return (
        name
        for given in lists
        if isinstance(given, str)
        for part in given.split(",")
        if (name := part.strip())
    )


def _is_about_credentials(error: anthropic.AnthropicError) -> bool:
    if isinstance(error, (anthropic.APIError, anthropic.RetryableError)):
        return False
    if isinstance(error, anthropic.CredentialsError):
        return True
    # A token exchange failed: its server did not answer, had an error, or refused.
    status = getattr(error, "status_code", None) or 0
    return not (status == 429 or status >= 500 or isinstance(error.__cause__, wire_errors()))


def _signing_errors() -> Iterable[type[Exception]]:
    for module, name in _SIGNING_ERRORS:
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            yield found
