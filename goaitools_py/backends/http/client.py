"""The async HTTP client for servers with many chats at the same time.

Owns: the choice of that client. Must never know: a provider. It imports nothing before a client is made.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

__all__ = ["async_http_client"]


def async_http_client(**options: Any) -> httpx2.AsyncClient:
    """Make an HTTP client that serves hundreds of chats at the same time.

    The SDKs' default pool looks at every open connection for every request. With 512 chats at the same time
    that costs more than the rest of a turn. If aiohttp is installed (the extra ``goaitools-py[aiohttp]``),
    the result is the SDKs' own client over aiohttp, which is the cheapest. Otherwise it is one that spreads
    requests over many small pools; backends use that kind of client by default.

    Args:
        options: Anything that `httpx2.AsyncClient` takes, such as ``proxy``, ``verify``, ``limits`` or
            ``timeout``. The defaults are the SDKs': 600 seconds (5 to connect), 1000 connections, redirects
            followed, proxies from the environment.

    Returns:
        A client. Close it before its event loop ends; an SDK client that has it closes it, too. It belongs to
        the event loop that uses it first.

    Example:
        >>> from goaitools_py.backends import AsyncOpenAIChatBackend, async_http_client
        >>> backend = AsyncOpenAIChatBackend("gpt-4o", http_client=async_http_client())

        `AsyncOpenAI(http_client=async_http_client())`, given as ``client=``, works, too, and so do the
        clients of Anthropic.
    """
    try:
        import aiohttp  # noqa: F401 - without it the SDKs' clients for it cannot be made
    except ImportError:
        from .async_pool import ShardedClient

        return ShardedClient(**options)
    # Both SDKs have a client over aiohttp. Take it from the SDK that is imported already.
    if "anthropic" in sys.modules and "openai" not in sys.modules:
        from anthropic import DefaultAioHttpClient
    else:
        from openai import DefaultAioHttpClient
    return DefaultAioHttpClient(**options)
