"""Provider connections: a pure dialect for each wire, a thin edge over the provider's own SDK.

Owns: the names that a caller of the backends needs. Must never know: the engine, a state.

Importing this package imports no SDK; that happens when a backend is made.
"""

from __future__ import annotations

from .anthropic.backends import AnthropicBackend, AsyncAnthropicBackend
from .base import (
    AsyncBackend,
    AsyncExchange,
    Backend,
    BackendError,
    Dialect,
    Exchange,
    ModelRequest,
    ResponseHead,
)
from .http.client import async_http_client
from .openai.backends import (
    AsyncOpenAIChatBackend,
    AsyncOpenAIResponsesBackend,
    OpenAIChatBackend,
    OpenAIResponsesBackend,
)

__all__ = [
    "AnthropicBackend",
    "AsyncAnthropicBackend",
    "AsyncBackend",
    "AsyncExchange",
    "AsyncOpenAIChatBackend",
    "AsyncOpenAIResponsesBackend",
    "Backend",
    "BackendError",
    "Dialect",
    "Exchange",
    "ModelRequest",
    "OpenAIChatBackend",
    "OpenAIResponsesBackend",
    "ResponseHead",
    "async_http_client",
]
