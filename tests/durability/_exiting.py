"""A program that ends in the middle of something: ``python -m tests.durability._exiting WHAT HOW KIND URL``.

WHAT it has begun, HOW it ends; KIND and URL name the place of a store. All of it stays referenced to the end.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import Any

from goaitools_py import AsyncChat, Chat, tool
from goaitools_py.backends import OpenAIChatBackend
from goaitools_py.stores import AsyncMemoryStore, AsyncSQLiteStore, MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend, SimServer

from ..stores._places import Place, opened

WHATS = ("kept", "checkpoint", "tool", "lease", "plain", "http", "two")
"""What a program has begun in plain code: a kept turn, with checkpoints, with a tool in a thread, with a
lease that is being renewed; a turn by itself, one over HTTP; two kept turns, one of them ended."""
HOWS = ("exit", "raise", "ctrl-c", "end", "thread")
"""`sys.exit`, an error, Ctrl-C, the end of the program, its end while a daemon thread runs the turn."""

held: list[Any] = []
"""Stands for the globals of an application."""


@tool(thread=True, idempotent=True)
def wait() -> str:
    """Wait."""
    threading.Event().wait()
    return "never"


def begun(what: str, store: Any) -> Any:
    """A turn that was begun: it has told its first events."""
    backend: Any = ScriptedBackend(Calls([("wait", {})]) if what == "tool" else "Hello to you.", "Two.")
    if what == "http":
        sim = SimServer().start()
        chat = Chat(OpenAIChatBackend("gpt-5", base_url=sim.base_url, api_key="sim"))
        held.append(sim)
    else:
        chat = Chat(backend, tools=[wait])
    held.extend((chat, store))
    if what == "plain":
        return chat.start(None, user="Hello?")
    settings: dict[str, Any] = {"save": "checkpoint"} if what == "checkpoint" else {}
    if what == "lease":
        settings["lease_ttl"] = 0.3
    conversation = chat.conversation(store, "ada", **settings)
    held.append(conversation)
    if what == "two":
        over = conversation.start("First?")
        over.result()
        held.append(over)
    return conversation.start("Hello?")


def leave(how: str) -> None:
    if how == "exit":
        sys.exit(3)
    if how == "raise":
        raise RuntimeError("the application's")
    if how == "ctrl-c":
        raise KeyboardInterrupt


def go(what: str, how: str, store: Any) -> None:
    turn = begun(what, store)
    held.append(turn)
    if how == "thread":
        is_under_way = threading.Event()

        def read() -> None:
            for event in turn:
                held.append(event)
                is_under_way.set()
                if what != "tool":
                    while True:  # takes locks again and again, so that some are held at the end
                        store.load("ada")

        threading.Thread(target=read, daemon=True).start()
        is_under_way.wait()
        return
    events = iter(turn)
    held.append(events)
    for event in events:
        if type(event).__name__ in ("TextDelta", "ModelReplied", "ToolStarted") or what in ("kept", "two"):
            if what == "lease":
                time.sleep(0.15)  # until a thread renews it
            leave(how)
            return


def go_async(what: str, how: str, path: str) -> None:
    """The same on an event loop, which is closed before Python ends, or not."""

    async def main() -> None:
        store: Any = AsyncSQLiteStore(path) if what == "async-sqlite" else AsyncMemoryStore()
        turn = AsyncChat(ScriptedBackend("Hello to you.")).conversation(store, "ada").start("Hello?")
        held.extend((store, turn))
        async for event in turn:
            held.append(event)
            leave(how)
            return

    if what == "async-open":
        loop = asyncio.new_event_loop()
        held.append(loop)
        loop.run_until_complete(main())
    else:
        asyncio.run(main())


def go_mcp(how: str) -> None:
    """Tools of a program that was started, never closed."""
    from mcp import StdioServerParameters

    from goaitools_py.mcp import MCPTools

    server = Path(__file__).parents[1] / "mcp_tools" / "_server.py"
    program = StdioServerParameters(command=sys.executable, args=[str(server)])
    held.append(MCPTools(program).open())
    leave(how)


if __name__ == "__main__":
    what, how, kind, url = sys.argv[1:]
    if what.startswith("async"):
        go_async(what, how, url)
    elif what == "mcp":
        go_mcp(how)
    elif kind == "memory":
        go(what, how, MemoryStore())
    else:
        place = opened(Place(kind, url))
        held.append(place)
        go(what, how, place.__enter__())
