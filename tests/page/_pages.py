"""A page over a scripted model, and a browser's requests without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

from goaitools_py import AsyncChat, tool
from goaitools_py.serve.page.page_app import PageSettings, page_app
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import ScriptedBackend

__all__ = ["BASE", "fire", "paged", "said"]

BASE = "http://127.0.0.1:8765"


@tool(requires_approval=True)
def fire(at: str) -> str:
    """Fire at something."""
    return f"hit {at}"


@contextmanager
def paged(
    *steps: Any, store: Any = None, codec: Any = None, binding: Any = None, base: str = BASE, **settings: Any
) -> Iterator[TestClient]:
    """A client of a page's server, which runs."""
    given: dict[str, Any] = {} if codec is None else {"codec": codec}
    chat = AsyncChat(ScriptedBackend(*steps), tools=[fire], **given)
    how: dict[str, Any] = {} if binding is None else {"binding": binding}
    app = page_app(chat, store or AsyncMemoryStore(), PageSettings(**settings), **how)
    with TestClient(app, base_url=base) as client:
        yield client


def said(client: TestClient, text: str, name: str = "hall", **members: Any) -> Any:
    """Say something, and give the result."""
    body = {"text": text, "turn_id": text, **members}
    answer = client.post(f"/api/conversations/{name}/turns", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()
