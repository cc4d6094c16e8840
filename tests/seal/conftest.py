"""Shared by the tests of sealing: turns in both ways, and all wires."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(params=["unary", "streamed"])
def run(request: pytest.FixtureRequest) -> Any:
    """Each test that asks for it runs its turns once with `chat_with_state` and once with `start`."""

    def turn(chat: Any, state: bytes | None, **fields: Any) -> Any:
        if request.param == "streamed":
            return chat.start(state, **fields).result()
        return chat.chat_with_state(state, **fields)

    return turn


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it runs once on every wire."""
    return str(request.param)
