"""Stable. Backends: a pure dialect for each provider API, and a thin layer over the provider's own SDK.

Owns: the public names of the backends. Must never know: the engine, a state.

Importing this package imports no SDK; making a backend does.
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
from .gating import gated
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
    "gated",
]
