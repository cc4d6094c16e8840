"""Conversations for the tests of front ends.

Owns: a chat with tools, and how its turns are written. Must never know: what a test expects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from goaitools_py import Chat, Conversation, ToolError, tool
from goaitools_py.chat.sync_turn import Turn
from goaitools_py.frontends import FrontEnd, Piece
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import ScriptedBackend

__all__ = ["conversation", "frames", "parsed", "shown"]


@tool
def look(at: str) -> dict[str, str]:
    """Look at something."""
    return {"seen": at}


@tool
def fail(why: str) -> str:
    """Fail."""
    raise ToolError(f"it failed: {why}")


@tool(requires_approval=True)
def fire(at: str) -> str:
    """Fire at something."""
    return f"hit {at}"


@tool(external=True)
def ask_player(question: str) -> str:
    """Ask the player."""
    raise AssertionError


def conversation(*steps: Any, **fields: Any) -> Conversation:
    """A conversation in memory whose model says the steps."""
    chat = Chat(ScriptedBackend(*steps), tools=[look, fail, fire, ask_player], **fields)
    return chat.conversation(MemoryStore(), "hall", save="checkpoint")


def frames(
    front: FrontEnd, turn: Turn, *, before: Sequence[Piece] = (), goes_on: bool = False
) -> list[bytes]:
    """What a front end writes of a turn, run to its end."""
    stream = front.stream(before=before, goes_on=goes_on)
    written: list[bytes] = []
    try:
        for event in turn:
            written += stream.feed(event)
    except Exception as error:
        written += stream.fail(error)
    return written


def parsed(written: Iterable[bytes]) -> list[tuple[str, Any]]:
    """The names and the data of server-sent events; data that is not JSON as text."""
    found = []
    for one in written:
        assert one.endswith(b"\n\n")
        assert one.count(b"\n\n") == 1
        lines = one.decode().splitlines()
        members = dict(line.split(": ", 1) for line in lines if line)
        data = members["data"]
        found.append((members.get("event", ""), orjson.loads(data) if data != "[DONE]" else data))
    return found


def shown(front: FrontEnd, talk: Conversation) -> list[dict[str, Any]]:
    """The stored history, as a front end writes it."""
    snapshot = talk.snapshot()
    assert snapshot is not None
    id = snapshot.info.state.conversation_id
    return front.history(snapshot.history, conversation_id=id, pending=snapshot.pending)
