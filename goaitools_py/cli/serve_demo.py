"""The chat of `goaitools serve --demo`: a small game on the offline simulator.

Owns: the game, its tools, and the lines that the page suggests. Must never know: the page, or a store.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from .. import Compactor, MessageLimit, ToolContext, ToolError, tool
from ..compaction import MiddleOut

if TYPE_CHECKING:
    from .. import AsyncChat

__all__ = ["HINTS", "demo_chat"]

HINTS: Final = (
    "My name is Ada.",
    "Look around the Theatre.",
    "Add points to Red: 5.",
    "What is my name, and what happened?",
)
_PAUSE_SECONDS: Final = 0.03
_PLACES: Final = {
    "Station": "a clock that stopped at ten past four.",
    "Theatre": "a stage, and a locked box.",
    "Library": "a book with a page torn out.",
}


@tool
def look_around(place: str) -> str:
    """What there is to see at a place.

    Args:
        place: Station, Theatre or Library.
    """
    if place not in _PLACES:
        raise ToolError(f"There is no {place}; there are {', '.join(_PLACES)}.")
    return _PLACES[place]


@tool(requires_approval=True)
def add_points(ctx: ToolContext[dict[str, int]], team: str, points: int) -> int:
    """Give points to a team and return its new score.

    Args:
        team: Name of the team.
        points: How many.
    """
    ctx.deps[team] = ctx.deps.get(team, 0) + points
    return ctx.deps[team]


def demo_chat(stack: AsyncExitStack) -> AsyncChat:
    """Make the chat. It and its simulator end with the stack."""
    from .. import AsyncChat
    from ..backends import AsyncOpenAIChatBackend
    from ..sim import SimServer

    server = stack.enter_context(SimServer(pause=_PAUSE_SECONDS))
    scores = {"Red": 30, "Blue": 25}
    chat = AsyncChat(
        AsyncOpenAIChatBackend("sim-game-master", base_url=server.base_url, api_key="sim"),
        system="You are the guide of a game in Harrogate.",
        tools=[look_around, add_points],
        deps=scores,
        compactor=Compactor(MessageLimit(24), MiddleOut(first=2, last=6), retain=True),
    )
    stack.push_async_callback(chat.aclose)
    return chat
