"""HTTP clients for those who serve many chats at a time.

Owns: which async client serves many chats at a time. Must never know: a provider; nothing is loaded before
a client is made.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

__all__ = ["async_http_client"]


def async_http_client(**options: Any) -> httpx2.AsyncClient:
    """Make an HTTP client that serves hundreds of chats at a time.

    The pool that the SDKs have by default looks at every open connection for every request: with 512 chats
    at a time that costs more than all the rest of a turn. If aiohttp is installed (the extra
    ``goaitools-py[aiohttp]``), this is the SDKs' own client over aiohttp, the cheapest; else it spreads
    requests over many small pools, as the backends do by themselves.

    Args:
        options: Anything that `httpx2.AsyncClient` takes, such as ``proxy``, ``verify``, ``limits`` or
            ``timeout``. The defaults are the SDKs': 600 seconds (5 to connect), 1000 connections, redirects
            followed, proxies from the environment.

    Returns:
        A client that is yours to close, before its event loop ends; an SDK client closes it together with
        itself. It belongs to the event loop in which it is used first.

    Example:
        >>> from goaitools_py.backends import AsyncOpenAIChatBackend, async_http_client
        >>> backend = AsyncOpenAIChatBackend("gpt-4o", http_client=async_http_client())

        `AsyncOpenAI(http_client=async_http_client())`, handed in as ``client=``, works alike, and so do
        Anthropic's.
    """
    try:
        import aiohttp  # noqa: F401 - without it the SDKs' clients for it cannot be made
    except ImportError:
        from .async_pool import ShardedClient

        return ShardedClient(**options)
    # Both SDKs have one; take that of the SDK which is there already.
    if "anthropic" in sys.modules and "openai" not in sys.modules:
        from anthropic import DefaultAioHttpClient
    else:
        from openai import DefaultAioHttpClient
    return DefaultAioHttpClient(**options)
