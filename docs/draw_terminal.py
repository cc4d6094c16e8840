"""Draws `docs/terminal.svg`: the chat app as it looks, with simulated replies.

    python docs/draw_terminal.py       # writes the picture; a test fails while it shows other text

Owns: what is said in the picture. Must never know: how the app draws.
"""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from goaitools_py import AsyncChat, tool
from goaitools_py.backends import AsyncOpenAIChatBackend
from goaitools_py.cli.tui.chat_app import ChatApp
from goaitools_py.sim import Reply, SimServer
from goaitools_py.stores import AsyncMemoryStore

PICTURE = Path(__file__).resolve().parent / "terminal.svg"
SIZE = (80, 26)
MODEL = "gpt-4o"
"""A model whose context window is known, so that the bar is drawn. It is simulated."""

SYSTEM = "You are the guide of a game in Harrogate. Places, people and rules follow. " * 2000


@tool
def look_around(place: str) -> str:
    """What there is to see at a place.

    Args:
        place: Its name.
    """
    return "A clock that stopped at ten past four, and a locked box."


@tool(requires_approval=True)
def open_box(code: int) -> str:
    """Try a code on the box.

    Args:
        code: Four digits.
    """
    return "It opens: a silver key."


async def drawn() -> str:
    """The picture as SVG. It names no other host: fonts are those of the reader."""
    with SimServer() as sim:
        sim.push(
            Reply.text(
                "[simulated] Welcome to **Harrogate**, Ada. From the Station you can go to\n\n"
                "1. the *Theatre*\n2. the *Library*, with `142` steps"
            ),
            Reply.calls(("look_around", '{"place": "Station"}')),
            Reply.calls(("open_box", '{"code": 1815}')),
        )
        backend = AsyncOpenAIChatBackend(MODEL, base_url=sim.base_url, api_key="sim")
        chat = AsyncChat(
            backend, system=SYSTEM, tools=[look_around, open_box], prices=lambda charge: Decimal("0.0041")
        )
        store = AsyncMemoryStore()
        async with chat:
            await chat.conversation(store, "ada").update(title="A night out")
            app: Any = ChatApp(chat, store, "ada", clock=partial(next, count(0, 1.4)))
            async with app.run_test(size=SIZE) as pilot:
                app.query_one("#prompt").cursor_blink = False
                await app.until_idle()
                for line in ("I am Ada. Where can I go?", "Look around here, then open the box with 1815."):
                    app.query_one("#prompt").insert(line)
                    await pilot.press("enter")
                    await app.until_idle()
                    await pilot.pause()
                app.query_one("#prompt").insert("What is in it?")
                await pilot.pause()
                picture = app.export_screenshot(title="goaitools chat")
    return re.sub(r"@font-face\s*\{.*?\}\s*|<!--.*?-->", "", str(picture), flags=re.DOTALL)


def texts(picture: str) -> list[str]:
    """What the picture says, piece by piece."""
    return [
        re.sub(r"&#160;|\s", " ", text).strip() for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    ]


if __name__ == "__main__":
    PICTURE.write_text(asyncio.run(drawn()), encoding="utf-8")
