"""The public backends for Anthropic's API.

Owns: the options of a connection. Must never know: how a request is sent or read.

The SDK and the dialect are imported when a backend is made, not when this module is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...base.advice import advised, own_names
from ..base import AsyncExchange, Dialect, Exchange, ModelRequest
from ..dialects import checked_url
from ..gate import gating

if TYPE_CHECKING:
    from ..http.sdk import ClientOptions

__all__ = ["AnthropicBackend", "AsyncAnthropicBackend"]


class _AnthropicBackend:
    """The shared part of both backends."""

    @advised("{0} takes a model without a name, and each other value by name: {0}(MODEL, base_url=…)")
    def __init__(
        self,
        model: str | None = None,
        *,
        client: object = None,
        http_client: object = None,
        http: Literal["aiohttp"] | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        context_window: int | None = None,
        max_retries: int = 2,
        max_concurrent_calls: int | None = None,
        betas: Sequence[str] = (),
        **client_options: Any,
    ) -> None:
        from ..http.client import checked_http
        from ..http.sdk import ClientOptions
        from .dialect import AnthropicDialect

        checked_url(base_url)
        options = ClientOptions(
            client=client,
            http_client=http_client,
            http=None if http is None else checked_http(http, is_async=hasattr(self, "asend")),
            base_url=base_url,
            api_key=api_key,
            client_options=client_options,
        )
        family, host = self._connect(options, betas)
        self.dialect: Dialect = AnthropicDialect(family=family, model=model or "", host=host)
        self.model = model
        self.context_window = context_window
        self.max_retries = max_retries
        self._gating = gating(max_concurrent_calls, "anthropic", model, base_url, api_key, client)

    def _connect(self, options: ClientOptions, betas: Sequence[str]) -> tuple[str, str]:
        """Make the connection to the SDK; return the endpoint family that it found, and the host."""
        raise NotImplementedError


@own_names
class AnthropicBackend(_AnthropicBackend):
    """Anthropic's Messages, or any server that speaks it, for `Chat`.

    Args:
        model: The model, unless a turn's settings name one.
        client: Your own client, used as it is and never closed: an `anthropic.Anthropic`,
            `AnthropicFoundry`, `AnthropicAWS`, `AnthropicBedrockMantle` or `AnthropicGoogleCloud`. The older
            `AnthropicBedrock` and `AnthropicVertex` cannot be used.
        http_client: An `httpx2.Client` or a classic `httpx.Client` to send through, never closed. A classic
            one keeps its proxies, mounts, authentication and event hooks.
        http: "aiohttp": send over aiohttp (the extra `aiohttp`), which is cheaper with many chats at a time.
            Async backends only. The backend makes and closes the client.
        base_url: The server, without ``/v1``, such as "http://127.0.0.1:11434". One that is neither
            Anthropic's nor a cloud's gets the key as `x-api-key` too; if it also wants an older
            `anthropic-version`, set that with `default_headers`.
        api_key: The key.
        context_window: Tokens that fit into the model's context; it overrides the built-in table.
        max_retries: How often a turn retries after a failure that may be temporary.
        max_concurrent_calls: At most so many requests at a time, for all backends of this process with the
            same server, key and model; None: no limit. Others wait in the order in which they came, within
            their turn's timeout. A refusal with a time to wait (429) holds them all.
        betas: Names for the `anthropic-beta` header of each request.
        client_options: Other arguments that `anthropic.Anthropic` takes, such as `auth_token`, `credentials`,
            `timeout` (seconds without an answer, within the turn's own deadline) or `default_headers`.

    Missing values come from the SDK and its environment variables: ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL and
    so on.

    Raises:
        ValueError: There are no credentials.
        TypeError: `client` or `http_client` cannot be used; the text names the usable classes. Or `http` is
            given for plain code, or beside one of them.
        ImportError: `http` is "aiohttp", and aiohttp is not installed.
    """

    def _connect(self, options: ClientOptions, betas: Sequence[str]) -> tuple[str, str]:
        from .sdk import anthropic_edge

        self._edge = anthropic_edge(options, betas=betas)
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


@own_names
class AsyncAnthropicBackend(_AnthropicBackend):
    """As `AnthropicBackend`, for `AsyncChat`: with `anthropic.AsyncAnthropic` and the async HTTP clients.

    One backend serves any number of event loops; each loop gets its own connections. Your own `client` or
    `http_client` is used unchanged, so it works in the loops that it was made for.
    """

    def _connect(self, options: ClientOptions, betas: Sequence[str]) -> tuple[str, str]:
        from .sdk import async_anthropic_edge

        self._edge = async_anthropic_edge(options, betas=betas)
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
