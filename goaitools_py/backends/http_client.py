"""HTTP clients for those who make their SDK clients themselves.

Owns: the name and its explanation. Must never know: how it is done; `httpx2` is loaded when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

__all__ = ["async_http_client"]


def async_http_client(**options: Any) -> httpx2.AsyncClient:
    """Make an HTTP client for an SDK client of your own that serves many chats at a time.

    The backends use the like of it by themselves; you need it only together with ``client=``. The pool that
    the SDKs have by default looks at every open connection for every request: with 512 chats at a time that
    costs more than all the rest of a turn. This one does not.

    Args:
        options: Anything that `httpx2.AsyncClient` takes, such as ``proxy``, ``verify``, ``limits`` or
            ``timeout``. The defaults are the SDKs': 600 seconds (5 to connect), 1000 connections of which
            100 are kept when free, redirects followed, proxies from the environment; TCP keep-alive is on.

    Returns:
        A client that is yours to close; an SDK client closes it together with itself. It belongs to the
        event loop in which it is used first. With ``http2=True`` or a ``transport`` of your own it is a
        plain `httpx2.AsyncClient`.

    Example:
        >>> from openai import AsyncOpenAI
        >>> from goaitools_py.backends import AsyncOpenAIChatBackend, async_http_client
        >>> client = AsyncOpenAI(api_key="…", http_client=async_http_client())
        >>> backend = AsyncOpenAIChatBackend("gpt-4o", client=client)

        `AsyncAnthropic(http_client=async_http_client())` works alike.
    """
    from ._async_http import new_client

    return new_client(**options)
