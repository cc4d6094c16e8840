"""The app with a scripted model: one short way through all its parts."""

from __future__ import annotations

import asyncio
from typing import Any

from goaitools_py import AsyncChat, Tool
from goaitools_py.cli.tui.chat_app import ChatApp
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend


def test_a_turn_with_an_approval() -> None:
    """A line is sent, a card asks, a button answers, and the reply and the header are drawn."""

    async def open_door() -> str:
        return "It is open."

    async def play() -> None:
        script = ScriptedBackend(Calls([("door", {})]), "**Come in.**")
        door = Tool("door", "Open.", {"type": "object"}, open_door, requires_approval=True)
        app: Any = ChatApp(AsyncChat(script, tools=[door]), AsyncMemoryStore(), "ada")
        async with app.run_test(size=(60, 20)) as pilot:
            await app.until_idle()
            app._prompt.insert("Open the door.")
            await pilot.press("enter")
            await app.until_idle()
            app.query_one(".approve").press()
            await pilot.pause()
            await app.until_idle()
            await pilot.pause()
            shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())

        assert shown.startswith(" ada │ 1 turn │ ")
        assert "⚙ door · done" in shown
        assert "It is open." in shown
        assert " Come in. " in shown

    asyncio.run(play())
