"""The game of both demonstrations: of `goaitools demo`, before and after its restart, and of `serve --demo`.

Owns: the game, its tools and the player's texts. Must never know: the other process, the page, or a store of
the page.

In `goaitools demo` it works as an application would: load the blob, run a turn, save the blob.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .. import (
    AsyncChat,
    Chat,
    ChatResult,
    Compactor,
    MessageLimit,
    ToolContext,
    ToolError,
    event,
    tool,
)
from ..backends import AsyncOpenAIChatBackend, OpenAIChatBackend
from ..compaction import CompactionRequest, MiddleOut, TurnView
from ..states import inspect_state
from ..stores import SQLiteStore
from .text_output import columns, counted

__all__ = ["HINTS", "KEY", "demo_chat", "play"]

KEY = "ada"
_LABEL_WIDTH = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Town:
    """The object that the tools work on. They get it as `deps`; it is never stored."""

    places: Mapping[str, str]
    code: int
    scores: dict[str, int] = field(default_factory=dict)


TOWN = Town(
    places={
        "Station": "a clock that stopped at ten past four.",
        "Theatre": "a stage, and a locked box.",
        "Library": "a book with a page torn out.",
    },
    code=1815,
)


@tool
def look_around(ctx: ToolContext[Town], place: str) -> str:
    """What there is to see at a place.

    Args:
        place: Name of the place.
    """
    if place not in ctx.deps.places:
        raise ToolError(f"There is no {place}; there are {', '.join(ctx.deps.places)}.")
    return ctx.deps.places[place]


@tool
def open_box(ctx: ToolContext[Town], code: int) -> str:
    """Try a code on the box.

    Args:
        code: Four digits.
    """
    if code != ctx.deps.code:
        return "the lock does not move."
    ctx.log_action("Ada has the silver key", item="silver key")
    return "it opens: a silver key."


@tool(requires_approval=True)
def add_points(ctx: ToolContext[Town], team: str, points: int) -> int:
    """Give points to a team and return its new score.

    Args:
        team: Name of the team.
        points: How many.
    """
    ctx.deps.scores[team] = ctx.deps.scores.get(team, 0) + points
    return ctx.deps.scores[team]


SYSTEM: Final = "You are the guide of a game in Harrogate."
HINTS: Final = (
    "My name is Ada.",
    "Look around the Theatre.",
    "Add points to Red: 5.",
    "What is my name, and what happened?",
)
"""Lines that the page suggests."""

_PAUSE_SECONDS: Final = 0.03


def demo_chat(stack: AsyncExitStack) -> AsyncChat:
    """Make the chat of the page. It and its simulator end with the stack."""
    from ..sim import SimServer

    server = stack.enter_context(SimServer(pause=_PAUSE_SECONDS))
    chat = AsyncChat(
        AsyncOpenAIChatBackend("sim-game-master", base_url=server.base_url, api_key="sim"),
        system=SYSTEM,
        tools=[look_around, add_points],
        deps=Town(places=TOWN.places, code=TOWN.code, scores={"Red": 30, "Blue": 25}),
        compactor=Compactor(MessageLimit(24), MiddleOut(first=2, last=6), retain=True),
    )
    stack.push_async_callback(chat.aclose)
    return chat


def introduction_and_recent(request: CompactionRequest) -> Sequence[TurnView]:
    """A compaction strategy is any function from a request to the turns that stay."""
    turns = request.turns
    return (*turns[:1], *turns[1:][-2:])


class Game:
    """One player's conversation. Every turn loads it from the database and saves it there."""

    def __init__(self, base_url: str, database: Path) -> None:
        self.chat = Chat(
            OpenAIChatBackend("sim-game-master", base_url=base_url, api_key="sim"),
            system=SYSTEM,
            tools=[look_around, open_box],
            deps=TOWN,
            compactor=Compactor(MessageLimit(12), introduction_and_recent),
        )
        self.store = SQLiteStore(database)

    def close(self) -> None:
        self.chat.close()
        self.store.close()

    def say(self, text: str, *, context: str | None = None) -> str:
        """Run one turn of the player. `context`: facts that change from turn to turn."""
        stored = self.store.load(KEY)
        _print_said(text, context)
        result = self.chat.chat_with_state(stored.blob if stored else None, user=text, context=context)
        version = self.store.save(KEY, result.state, expected=stored.version if stored else None)
        _print_result(result, version)
        return result.text

    def happen(self, text: str) -> None:
        """Add an event of the game. The model reads it in the next turn."""
        stored = self.store.load(KEY)
        state = self.chat.append_to_state(stored.blob if stored else None, event(text))
        version = self.store.save(KEY, state, expected=stored.version if stored else None)
        _print_event(text, state, version)


def play(half: str, base_url: str, database: Path) -> int:
    """Play one half of the demonstration in this process.

    Returns:
        0, or 1 if the model's reply shows that something was lost.
    """
    game = Game(base_url, database)
    try:
        return (_before if half == "before" else _after)(game)
    finally:
        game.close()


def _before(game: Game) -> int:
    game.say("My name is Ada.", context="Time: 10:00. Place: Station. Score: 0 points.")
    game.say("Please look around the Station.")
    game.happen("Ada reached Harrogate Theatre: +50 points")
    game.say("Where am I, and what is my score?")
    game.say(
        "Look around the Theatre, and open the box with code 1815.",
        context="Time: 10:20. Place: Theatre. Score: 50 points.",
    )
    game.say("That was fun!", context="Time: 10:25. Place: Theatre. Score: 50 points.")
    return 0


def _after(game: Game) -> int:
    game.happen("Ada brought the silver key home: +20 points")
    replies = [game.say("What is my name, and what is my score?")]
    game.say("Look around the Library.", context="Time: 11:00. Place: Library. Score: 70 points.")
    replies.append(game.say("What is my name, and what is my score?"))
    lost = [fact for fact in ("name is Ada", "70 points") for reply in replies if fact not in reply]
    if lost:
        _print("lost", f"the model should have said {lost[0]!r}")
    return 1 if lost else 0


# ------------------------------------------------------------------------------------------ the report


def _print_said(text: str, context: str | None) -> None:
    print()
    if context:
        _print("context", context)
    _print("player", text)


def _print_event(text: str, state: bytes, version: int) -> None:
    print()
    _print("event", text)
    _print_state("", len(state), "appended; no model was asked", version)


def _print_result(result: ChatResult, version: int) -> None:
    for record in result.tool_log:
        arguments = ", ".join(f"{name}={value!r}" for name, value in record.call.parsed.items())
        _print("tool", f"{record.call.name}({arguments}) -> {record.result}")
    for action in result.actions:
        _print("action", action.text)
    _print("model", result.text)
    info, usage = inspect_state(result.state), result.usage
    _print_state(
        f"= turn {info.turns_processed}",
        info.blob_bytes,
        f"{info.messages:2} messages | {usage.input_tokens:5,} in, "
        f"{usage.cached_input_tokens:5,} cached, {usage.output_tokens:3,} out",
        version,
    )
    if (cut := result.compaction) is not None:
        removed = (
            f"{counted(cut.removed_turns, 'turn')} and {counted(cut.removed_messages, 'message')} removed"
        )
        _print("compacted", f"{removed}: {cut.bytes_before:,} to {cut.bytes_after:,} bytes of history")


def _print_state(label: str, blob_bytes: int, facts: str, version: int) -> None:
    _print(label, f"{facts:45} | {blob_bytes:5,} bytes, version {version:2}")


def _print(label: str, text: str) -> None:
    print(*columns(label, text, width=_LABEL_WIDTH), sep="\n", flush=True)
