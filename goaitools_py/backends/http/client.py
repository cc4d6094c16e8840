"""The async HTTP clients for servers with many chats at the same time.

Owns: the choice of such a client, and the check of the option `http`. Must never know: a provider. It imports
nothing before a client is made.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

__all__ = ["aiohttp_client", "async_http_client", "checked_http"]


def async_http_client(**options: Any) -> httpx2.AsyncClient:
    """Make an HTTP client that serves hundreds of chats at the same time.

    The SDKs' default pool looks at every open connection for every request. With 512 chats at the same time
    that costs more than the rest of a turn. If aiohttp is installed (the extra ``goaitools-py[aiohttp]``),
    the result is the SDKs' own client over aiohttp, which is the cheapest. Otherwise it is one that spreads
    requests over many small pools; backends use that kind of client by default.

    ``AsyncChat("openai:MODEL", http="aiohttp")`` makes and closes such a client by itself. Use this function
    for options of your own.

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
    return aiohttp_client(**options)


def aiohttp_client(**options: Any) -> httpx2.AsyncClient:
    """Make a client of the SDKs over aiohttp. `options`: as for `async_http_client`."""
    # Both SDKs have one. Take it from the SDK that is imported already.
    if "anthropic" in sys.modules and "openai" not in sys.modules:
        from anthropic import DefaultAioHttpClient
    else:
        from openai import DefaultAioHttpClient
    made: httpx2.AsyncClient = _naming(DefaultAioHttpClient)(**options)
    return made


@lru_cache(maxsize=2)
def _naming(base: Any) -> Any:
    """The class of a client that names its transport."""
    from .heads import has_more

    class AiohttpClient(base):  # type: ignore[misc]
        """A client of an SDK over aiohttp. `lone_transport`: see `DeadlineClient`."""

        lone_transport: httpx2.AsyncBaseTransport | None = None

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            if has_more(options):
                self.lone_transport = None

        def _init_transport(self, *args: Any, **options: Any) -> Any:
            self.lone_transport = super()._init_transport(*args, **options)
            return self.lone_transport

        def _init_proxy_transport(self, *args: Any, **options: Any) -> Any:
            self.lone_transport = None  # the transports of proxies are made last
            return super()._init_proxy_transport(*args, **options)

    return AiohttpClient


def checked_http(http: Any, *, is_async: bool) -> str | None:
    """The option `http` of a chat or a backend.

    Raises:
        TypeError: It is not a text, or it is given for plain code.
        ValueError: No HTTP client has that name.
        ImportError: aiohttp is not installed.
    """
    if http is None:
        return None
    if not isinstance(http, str):
        raise TypeError(
            f"http must be 'aiohttp' or None, not {type(http).__name__}; a client of your own is a backend's "
            "http_client="
        )
    if http != "aiohttp":
        raise ValueError(f"http must be 'aiohttp' or None, got {http!r}")
    if not is_async:
        raise TypeError("http='aiohttp' is for AsyncChat and Async… backends: aiohttp needs an event loop")
    from importlib.util import find_spec  # few chats name an HTTP client

    if find_spec("aiohttp") is None:
        raise ImportError("http='aiohttp' needs the package aiohttp: pip install 'goaitools-py[aiohttp]'")
    return http
