"""Backends over every kind of client that a caller may hand in, for tests that hold for all of them.

Owns: how each is made for an address on the loopback. Must never know: what a test does with it.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

import anthropic
import httpx
import httpx2
import openai

from goaitools_py import backends
from goaitools_py.backends import async_http_client

__all__ = ["CLIENTS", "backend_over", "close_client"]

BACKENDS: Final = {
    "openai": "OpenAIChatBackend",
    "openai-responses": "OpenAIResponsesBackend",
    "anthropic": "AnthropicBackend",
}

CLIENTS: Final = ("own", "http_client", "classic", "client", "cloud", "aiohttp")
"""Made by the backend; an `httpx2` or classic `httpx` client as ``http_client=``; an SDK client as
``client=``; one of the SDK's for Azure; an HTTP client over aiohttp (async only)."""


def backend_over(
    kind: str, wire: str, root: str, *, is_async: bool, api_key: str, opened: list[Any], **options: Any
) -> Any:
    """A backend that speaks `wire` with the server at `root`, such as ``http://127.0.0.1:80``.

    `opened` gets the client that was handed in, for whoever closes it.
    """
    make = getattr(backends, ("Async" if is_async else "") + BACKENDS[wire])
    options = {"max_retries": 0, **options}
    base_url = root if wire == "anthropic" else f"{root}/v1"
    named = {"base_url": base_url, "api_key": api_key}
    if kind == "own":
        return make("m", **named, **options)
    if kind in ("client", "cloud"):
        opened.append(_sdk_client(kind, wire, base_url, api_key, is_async))
        return make("m", client=opened[-1], **options)
    opened.append(_http_client(kind, is_async))
    return make("m", http_client=opened[-1], **named, **options)


def close_client(client: Any, run: Any) -> None:
    """Close a client of either colour; `run` awaits."""
    answer = client.aclose() if hasattr(client, "aclose") else client.close()
    if inspect.isawaitable(answer):
        run(answer)


def _http_client(kind: str, is_async: bool) -> Any:
    given: dict[str, Any] = {"follow_redirects": True, "trust_env": False}
    if kind == "aiohttp":
        return async_http_client(**given)
    module: Any = httpx if kind == "classic" else httpx2
    return (module.AsyncClient if is_async else module.Client)(**given)


def _sdk_client(kind: str, wire: str, base_url: str, api_key: str, is_async: bool) -> Any:
    prefix = "Async" if is_async else ""
    if wire == "anthropic":
        name = "AnthropicFoundry" if kind == "cloud" else "Anthropic"
        return getattr(anthropic, prefix + name)(base_url=base_url, api_key=api_key)
    if kind == "client":
        return getattr(openai, prefix + "OpenAI")(
            base_url=base_url, api_key=api_key, organization="org-canary"
        )
    azure = {"azure_deployment": "d"} if wire == "openai" else {}
    return getattr(openai, prefix + "AzureOpenAI")(
        azure_endpoint=base_url.removesuffix("/v1"), api_key=api_key, api_version="2026-01-01", **azure
    )
