"""A turn asks a failing provider three times, unless the backend was told another number of retries."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from goaitools_py import AsyncChat, Chat, ProviderUnavailableError, backends


@pytest.mark.parametrize(
    "given", [{}, {"max_retries": 0}, {"max_retries": 4}], ids=["default", "none", "four"]
)
@pytest.mark.parametrize("name", ["OpenAIChatBackend", "OpenAIResponsesBackend", "AnthropicBackend"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_how_often_a_provider_is_asked(is_async: bool, name: str, given: dict[str, Any]) -> None:
    """Two retries by default, in every backend and both colours."""
    asked: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(500, headers={"retry-after": "0"})

    transport = httpx2.MockTransport(handler)
    http_client = (httpx2.AsyncClient if is_async else httpx2.Client)(transport=transport)
    made = getattr(backends, f"{'Async' if is_async else ''}{name}")
    backend = made("m", api_key="k", http_client=http_client, **given)

    def ask() -> object:
        if is_async:
            return asyncio.run(AsyncChat(backend).chat(user="Hello?"))
        return Chat(backend).chat(user="Hello?")

    with pytest.raises(ProviderUnavailableError):
        ask()

    assert len(asked) == 1 + given.get("max_retries", 2)
