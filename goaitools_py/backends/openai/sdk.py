"""Uses the official `openai` client.

Owns: which clients can be used, how one is made, and the client's exceptions.
Must never know: how a body is sent, or its content.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import openai

from ..base import ModelRequest
from ..dialects import endpoint_family
from ..http.async_pool import ShardedClient
from ..http.deadlines import DeadlineClient
from ..http.sdk import ClientOptions, SdkErrors, refuse_options
from ..http.sdk_edge import AsyncSdkEdge, SdkEdge

__all__ = ["async_openai_edge", "openai_edge"]

_REWRITTEN_BY_AZURE = "/chat/completions"
"""`AzureOpenAI` reads the deployment for this path from the JSON body; it cannot read bytes."""

_Client = TypeVar("_Client", openai.OpenAI, openai.AsyncOpenAI)


def openai_edge(options: ClientOptions, *, path: str) -> SdkEdge[openai.OpenAI]:
    """Connect. `path` is the endpoint of the provider API.

    Raises `ValueError` without a key, `TypeError` for a client that cannot be used."""
    return SdkEdge(_OpenAI(openai.OpenAI, DeadlineClient, path), options)


def async_openai_edge(options: ClientOptions, *, path: str) -> AsyncSdkEdge[openai.AsyncOpenAI]:
    """As `openai_edge`, awaited."""
    return AsyncSdkEdge(_OpenAI(openai.AsyncOpenAI, ShardedClient, path), options)


class _OpenAI(Generic[_Client]):
    log = logging.getLogger("openai")
    plain_options = frozenset(
        {"default_headers", "default_query", "max_retries", "organization", "project", "timeout"}
    )
    base_url_variable = "OPENAI_BASE_URL"
    key_variable = "OPENAI_API_KEY"
    errors = SdkErrors(
        base=openai.OpenAIError,
        status=openai.APIStatusError,
        timeout=openai.APITimeoutError,
        request_id="x-request-id",
    )

    def __init__(self, client_class: type[_Client], http_class: type[Any], path: str) -> None:
        self._client_class: type[_Client] = client_class
        self.http_class: Callable[..., Any] = http_class
        self._path = path

    def checked(self, options: ClientOptions) -> _Client:
        client = options.client
        if not isinstance(client, self._client_class):
            raise TypeError(
                f"client= must be an openai.{self._client_class.__name__}, not {type(client).__name__}: "
                "OpenAI belongs to OpenAIChatBackend, OpenAIResponsesBackend and Chat, "
                "AsyncOpenAI to AsyncOpenAIChatBackend, AsyncOpenAIResponsesBackend and AsyncChat"
            )
        refuse_options(options)
        if self._rewrites_body(client):
            raise TypeError(
                f"{type(client).__name__} without azure_deployment= finds its URL by rewriting a JSON body, "
                "and bodies are sent as bytes here; use "
                'openai.OpenAI(base_url="https://RESOURCE.openai.azure.com/openai/v1/", api_key=…), or pass '
                "azure_deployment="
            )
        return client

    def _rewrites_body(self, client: openai.OpenAI | openai.AsyncOpenAI) -> bool:
        azure = isinstance(client, (openai.AzureOpenAI, openai.AsyncAzureOpenAI))
        return azure and self._path == _REWRITTEN_BY_AZURE and "/deployments" not in client.base_url.path

    def make(self, given: Mapping[str, Any]) -> _Client:
        try:
            return self._client_class(**given)
        except openai.OpenAIError as error:
            raise ValueError(
                "the OpenAI client got no usable credentials: set OPENAI_API_KEY, or pass api_key= "
                "(any text for a server that wants none) or client="
            ) from error

    def family(self, client: _Client) -> str:
        return endpoint_family(str(client.base_url))

    def headers(self, client: _Client, request: ModelRequest) -> Mapping[str, str]:
        return request.headers

    def lacks_credentials(self, error: Exception) -> bool:
        return isinstance(error, openai.OpenAIError) and not isinstance(error, openai.APIError)

    def refused(self, client: _Client) -> None:
        pass  # a refused key is not replaced; a callable is asked for each request
