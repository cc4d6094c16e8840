"""The app with a pilot: keys go in, and the screen is read as lines of text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from goaitools_py import AsyncChat, tool
from goaitools_py.backends import AsyncOpenAIChatBackend
from goaitools_py.cli.tui.chat_app import ChatApp
from goaitools_py.sim import SimServer
from goaitools_py.states import read_history
from goaitools_py.stores import AsyncSQLiteStore, SQLiteStore


@tool
def look(place: str) -> str:
    """Look around.

    Args:
        place: Where.
    """
    return f"The {place} has a clock."


@tool(requires_approval=True)
def open_box(code: int) -> str:
    """Open the box.

    Args:
        code: Four digits.
    """
    return "It opens: a silver key." if code == 1815 else "It stays shut."


class Watched(ChatApp):
    """The app, and a way to wait for a status of its header."""

    was_not_ready = False
    """True if the header has said "ready" while a message would not have been taken."""

    def _show_header(self, *, status: str = "", width: int = 0) -> None:
        super()._show_header(status=status, width=width)
        self.was_not_ready |= self._status == "ready" and (self._job is None or self.is_busy)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def reached(self, wanted: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is asked at each change of the header."""
        async with asyncio.timeout(30):
            while not wanted():
                await self.changed.wait()


class Terminal:
    """A running app."""

    def __init__(self, app: Watched, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        """Press keys."""
        await self.pilot.press(*keys)

    async def paste(self, text: str) -> None:
        """Paste into the prompt, as a terminal does."""
        self.app._prompt.post_message(events.Paste(text))
        await self.pilot.pause()

    async def say(self, text: str) -> None:
        """Send a line, and wait for what comes of it."""
        await self.send(text)
        await self.settle()

    async def send(self, text: str) -> None:
        """Send a line."""
        await self.paste(text)
        await self.press("enter")

    async def settle(self) -> None:
        """Wait until nothing runs."""
        async with asyncio.timeout(30):
            while self.app.is_busy:
                await self.app.until_idle()
                await self.pilot.pause()
        await self.pilot.pause()

    async def status(self, wanted: str) -> None:
        """Wait for a status of the header."""
        await self.app.reached(lambda: self.app._status == wanted)
        await self.pilot.pause()

    @property
    def lines(self) -> list[str]:
        """The screen as it is seen, without blanks at the ends of lines."""
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.lines)


class Place:
    """A simulated provider and a database; an app can be started on them again and again."""

    def __init__(self, sim: SimServer, path: Path) -> None:
        self.sim, self.path = sim, path

    @asynccontextmanager
    async def open(self, key: str = "ada", *, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Terminal]:
        """A running app on the conversation `key`."""
        backend = AsyncOpenAIChatBackend("sim", base_url=self.sim.base_url, api_key="sim", max_retries=0)
        async with (
            AsyncSQLiteStore(self.path) as store,
            AsyncChat(backend, tools=[look, open_box], on_bad_state="raise") as chat,
        ):
            app = Watched(
                chat, store, key, check=lambda key, blob: chat.append_to_state(blob), about="simulated"
            )
            app.changed = asyncio.Event()
            async with app.run_test(size=size) as pilot:
                terminal = Terminal(app, pilot)
                await terminal.settle()
                yield terminal
            assert not app.was_not_ready

    def run(self, play: Callable[[Terminal], Awaitable[Any]], **options: Any) -> None:
        """Open the app, play, close it."""

        async def opened() -> None:
            async with self.open(**options) as terminal:
                await play(terminal)

        asyncio.run(opened())

    def said(self, key: str = "ada") -> list[str]:
        """What is stored of a conversation."""
        with SQLiteStore(self.path) as store:
            stored = store.load(key)
        return [message.said for message in read_history(stored.blob).all_messages()] if stored else []

    def keys(self) -> set[str]:
        """The conversations of the store."""
        with SQLiteStore(self.path) as store:
            return {stored.key for stored in store.list().keys}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A place with an empty database."""
    for name in ("NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with SimServer() as sim:
        yield Place(sim, tmp_path / "chat.db")
