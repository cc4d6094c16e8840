"""Tools: the model reads and changes a game, and the player sees each change.

A tool is a function. The game is handed to it as `deps`, and is never stored in the state.
Install: pip install goaitools-py
"""

import os
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from goaitools_py import Chat, ToolContext, ToolError, tool

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


@dataclass
class Game:
    """What the tools work on."""

    scores: dict[str, int] = field(default_factory=lambda: {"Red": 30, "Blue": 45})


@tool
def get_score(ctx: ToolContext[Game], team: str) -> int:
    """Current score of one team.

    Args:
        team: Name of the team.
    """
    if team not in ctx.deps.scores:
        raise ToolError(f"There is no team {team}; there are {', '.join(ctx.deps.scores)}.")
    return ctx.deps.scores[team]


@tool
def add_points(ctx: ToolContext[Game], team: str, points: Annotated[int, Field(ge=1, le=100)]) -> str:
    """Give points to a team."""
    ctx.deps.scores[team] = ctx.deps.scores.get(team, 0) + points
    ctx.log_action(f"{team} got {points} points", team=team)
    return f"{team} has {ctx.deps.scores[team]} points now."


def main() -> None:
    """Ask for three calls, one of them impossible."""
    game = Game()
    with Chat(MODEL, system="You keep the score.", tools=[get_score, add_points], deps=game) as chat:
        result = chat.chat(user='Get the score of Red and "Green", then add points to Blue: 5.')
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)")
    print(result.text)
    for record in result.tool_log:
        print(f"  {record.call.name}({record.call.arguments}) -> {record.flag}: {record.result}")
    print("Actions taken:", *(f"\n  * {action.text}" for action in result.actions))


if __name__ == "__main__":
    main()
