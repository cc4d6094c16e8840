"""A game with 50 characters. An event costs no model call, and a saved game is one JSON file of texts.

Install: pip install goaitools-py
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from goaitools_py import Chat, ToolContext, event, tool
from goaitools_py.states import inspect_state, state_from_text, state_to_text

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


@tool
def open_gate(ctx: ToolContext[dict[str, int]], gate: str) -> str:
    """Open a gate of the town."""
    ctx.deps["gates"] += 1
    return f"The gate {gate} is open."


@dataclass
class Game:
    """The world, and the state of each character, in text."""

    world: dict[str, int]
    states: dict[str, str]

    def tick(self, chat: Chat, news: str) -> None:
        """One turn of the game loop. Everybody hears the news, and nobody answers."""
        self.world["tick"] += 1
        heard = event(news, id=f"tick-{self.world['tick']}")  # heard once, also if it is told again
        for name, state in self.states.items():
            self.states[name] = state_to_text(chat.append_to_state(state_from_text(state), heard))

    def talk(self, chat: Chat, name: str, text: str) -> str:
        """A player speaks to a character."""
        answer, new = chat.chat_with_state(state_from_text(self.states[name]), user=text, deps=self.world)
        self.states[name] = state_to_text(new)
        return answer


if __name__ == "__main__":
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)")
    with (
        Chat(MODEL, system="You guard Harrogate.", tools=[open_gate]) as chat,
        TemporaryDirectory() as folder,
    ):
        nobody_spoke = state_to_text(chat.append_to_state(None))
        game = Game({"tick": 0, "gates": 0}, {f"guard {n}": nobody_spoke for n in range(1, 51)})
        game.tick(chat, "A dragon was seen over the theatre: +50 points")
        print(game.talk(chat, "guard 7", "What happened? My name is Ada."))
        file = Path(folder, "game.json")
        print(f"saved: {file.write_text(json.dumps(asdict(game))):,} bytes for 50 characters")
        game = Game(**json.loads(file.read_text()))  # another day, another process
        game.tick(chat, "The dragon has left")
        print(game.talk(chat, "guard 7", "What is my name? Open gate North."))
        print(game.world, inspect_state(state_from_text(game.states["guard 8"])).waiting_messages, "wait")
