"""The public backends for OpenAI's two APIs.

Owns: the options of a connection. Must never know: how a request is sent or read.

The SDK and the dialect are imported when a backend is made, not when this module is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from ...base.advice import advised, own_names
from ..base import AsyncExchange, Dialect, Exchange, ModelRequest
from ..dialects import checked_url
from ..gate import gating

if TYPE_CHECKING:
    from ..http.sdk import ClientOptions

__all__ = [
    "AsyncOpenAIChatBackend",
    "AsyncOpenAIResponsesBackend",
    "OpenAIChatBackend",
    "OpenAIResponsesBackend",
]


class _OpenAIBackend:
    """The shared part of all four backends."""

    _path: str
    server: tuple[str, int]
    """The host and the port that requests go to."""

    @advised("{0} takes a model without a name, and each other value by name: {0}(MODEL, base_url=…)")
    def __init__(
        self,
        model: str | None = None,
        *,
        client: object = None,
        http_client: object = None,
        http: Literal["aiohttp"] | None = None,
        base_url: str | None = None,
        api_key: str | Callable[[], Any] | None = None,
        context_window: int | None = None,
        max_retries: int = 2,
        max_concurrent_calls: int | None = None,
        **client_options: Any,
    ) -> None:
        from ..http.client import checked_http
        from ..http.sdk import ClientOptions

        checked_url(base_url)
        options = ClientOptions(
            client=client,
            http_client=http_client,
            http=None if http is None else checked_http(http, is_async=hasattr(self, "asend")),
            base_url=base_url,
            api_key=api_key,
            client_options=client_options,
        )
        self.dialect: Dialect = self._dialect(*self._connect(options))
        self.model = model
        self.context_window = context_window
        self.max_retries = max_retries
        self._gating = gating(max_concurrent_calls, "openai", model, base_url, api_key, client)

    def _connect(self, options: ClientOptions) -> tuple[str, str]:
        """Make the connection to the SDK; return the endpoint family that it found, and the host."""
        raise NotImplementedError

    def _dialect(self, family: str, host: str) -> Dialect:
        raise NotImplementedError


class _Sync(_OpenAIBackend):
    def _connect(self, options: ClientOptions) -> tuple[str, str]:
        from .sdk import openai_edge

        self._edge = openai_edge(options, path=self._path)
        self.server = self._edge.server
        return self._edge.family, self._edge.host

    def send(self, request: ModelRequest) -> Exchange:
        """Post a request; return when 2xx headers have come. Raises `BackendError`. Never retries."""
        if self._gating is not None:
            return self._gating.send(self.dialect, self._edge.send, request)
        return self._edge.send(request)

    def close(self) -> None:
        """Close the connections, unless they are your own."""
        self._edge.close()


class _Async(_OpenAIBackend):
    def _connect(self, options: ClientOptions) -> tuple[str, str]:
        from .sdk import async_openai_edge

        self._edge = async_openai_edge(options, path=self._path)
        self.server = self._edge.server
        return self._edge.family, self._edge.host

    async def asend(self, request: ModelRequest) -> AsyncExchange:
        """Post a request; return when 2xx headers have come. Raises `BackendError`. Never retries."""
        if self._gating is not None:
            return await self._gating.asend(self.dialect, self._edge.asend, request)
        return await self._edge.asend(request)

    async def warm_up(self) -> None:
        """Do the imports and the set-up for the running loop's first request now."""
        await self._edge.warm_up()

    async def aclose(self) -> None:
        """Close the running loop's connections, unless they are your own; a later call opens new ones."""
        await self._edge.aclose()


class _Chat(_OpenAIBackend):
    _path = "/chat/completions"

    def _dialect(self, family: str, host: str) -> Dialect:
        from ..openai_chat.dialect import OpenAIChatDialect

        return OpenAIChatDialect(family, host=host)


class _Responses(_OpenAIBackend):
    _path = "/responses"

    def _dialect(self, family: str, host: str) -> Dialect:
        from ..openai_responses.dialect import OpenAIResponsesDialect

        return OpenAIResponsesDialect(family, host=host)


@own_names
class OpenAIChatBackend(_Chat, _Sync):
    """OpenAI's Chat Completions, or any server that speaks it, for `Chat`.

    Args:
        model: The model, unless a turn's settings name one.
        client: Your own `openai.OpenAI`, used as it is and never closed. An `AzureOpenAI` needs its
            `azure_deployment`; for Azure's v1 API use `openai.OpenAI` with that base URL.
        http_client: An `httpx2.Client` or a classic `httpx.Client` to send through, never closed. A classic
            one keeps its proxies, mounts, authentication and event hooks.
        http: "aiohttp": send over aiohttp (the extra `aiohttp`), which is cheaper with many chats at a time.
            Async backends only. The backend makes and closes the client.
        base_url: The server, such as "http://127.0.0.1:11434/v1".
        api_key: The key, or a callable that returns one.
        context_window: Tokens that fit into the model's context; it overrides the built-in table.
        max_retries: How often a turn retries after a failure that may be temporary.
        max_concurrent_calls: At most so many requests at a time, for all backends of this process with the
            same server, key and model; None: no limit. Others wait in the order in which they came, within
            their turn's timeout. A refusal with a time to wait (429) holds them all.
        client_options: Other arguments that `openai.OpenAI` takes, such as `organization`, `timeout` (seconds
            without an answer, within the turn's own deadline) or `default_headers`.

    Missing values come from the SDK and its environment variables: OPENAI_API_KEY, OPENAI_BASE_URL and so on.

    Raises:
        ValueError: There is no key.
        TypeError: `client` or `http_client` cannot be used; the text names the usable classes. Or `http` is
            given for plain code, or beside one of them.
        ImportError: `http` is "aiohttp", and aiohttp is not installed.
    """


@own_names
class AsyncOpenAIChatBackend(_Chat, _Async):
    """As `OpenAIChatBackend`, for `AsyncChat`: with `openai.AsyncOpenAI` and the async HTTP clients.

    One backend serves any number of event loops; each loop gets its own connections. Your own `client` or
    `http_client` is used unchanged, so it works in the loops that it was made for.
    """


@own_names
class OpenAIResponsesBackend(_Responses, _Sync):
    """OpenAI's Responses, or any server that speaks it, for `Chat`; the server keeps nothing.

    The arguments and errors are as for `OpenAIChatBackend`. A `client` of class `AzureOpenAI` needs no
    `azure_deployment` here, because Azure takes the deployment's name as the model.
    """


@own_names
class AsyncOpenAIResponsesBackend(_Responses, _Async):
    """As `OpenAIResponsesBackend`, for `AsyncChat`: see `AsyncOpenAIChatBackend` for event loops."""
