"""The Markdown of the page of `goaitools serve`, in Chromium: what it means, attacks, huge texts, streams."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from goaitools_py import AsyncChat
from goaitools_py.backends.base import ModelRequest
from goaitools_py.serve.page.page_app import PageSettings, page_app
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import ScriptedBackend

from .conftest import browser, installed
from .test_page import served

HERE = Path(__file__).resolve().parent
SCENARIOS = (
    "meaning", "attacks", "refused_links_are_text", "directions_are_shown", "hostile_texts_are_quick",
    "huge_replies_leave_the_page_usable", "streams", "looks",
)  # fmt: skip


def _repeated(request: ModelRequest) -> Any:
    return json.loads(request.body)["messages"][-1]["content"]


async def _told(folder: Path, chromium: str) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        chat = AsyncChat(ScriptedBackend(*[_repeated] * 100))
        app = page_app(chat, AsyncMemoryStore(), PageSettings(model="scripted"))
        url = await stack.enter_async_context(served(app))
        node = await asyncio.create_subprocess_exec(
            "node", HERE / "page_markdown.mjs", folder, chromium, url,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(240):
                out, wrong = await node.communicate()
        finally:
            if node.returncode is None:
                node.kill()
    assert node.returncode == 0, wrong.decode()
    return json.loads(out)  # type: ignore[no-any-return]


def test_replies_are_markdown_and_nothing_else() -> None:
    """Each scenario ends as it should, nothing was loaded from elsewhere, the console is silent, and axe-core
    finds nothing.

    It is one test, so that several workers do not open several browsers.
    """
    told = asyncio.run(_told(installed("page", "playwright-core"), browser()))

    assert {name: wrong for name, wrong in told["scenarios"].items() if wrong is not None} == {}
    assert tuple(told["scenarios"]) == SCENARIOS
    assert told["console"] == []
    assert told["elsewhere"] == []
    assert told["axe"] == {"light": [], "dark": []}
