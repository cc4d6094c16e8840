"""Draws `docs/turn.svg`: a turn with a tool, as `read_history` gives it.

    python docs/draw_turn.py     # writes the picture; a test fails while it shows other data

Owns: where each value stands in the picture. Must never know: a value; a scripted turn has them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from goaitools_py import Chat, tool
from goaitools_py.states import HistoryTurn, read_history
from goaitools_py.testing import Calls, ScriptedBackend

PICTURE: Final = Path(__file__).resolve().parent / "turn.svg"
STYLE: Final = """
text { fill: #1f2328 } .ground { fill: #ffffff } .name { fill: #59636e }
.user { fill: #ddf4ff } .assistant { fill: #dafbe1 } .tool { fill: #fff8c5 }
.frame { fill: none; stroke: #d1d9e0 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .ground { fill: #0d1117 } .name { fill: #9198a1 }
.user { fill: #0c2d6b } .assistant { fill: #033a16 } .tool { fill: #4b2900 } .frame { stroke: #3d444d } }
"""


@tool
def get_score(team: str) -> int:
    """Current score of one team."""
    return 30


def turn() -> HistoryTurn:
    """The turn."""
    script = ScriptedBackend(Calls([("get_score", {"team": "Red"})]), "Red has 30 points.")
    with Chat(script, tools=[get_score]) as chat:
        state = chat.chat(user="How is Red doing?").state
    return read_history(state).turns[0]


def pieces() -> Iterator[str]:
    """The picture, piece by piece."""
    found = turn()
    yield (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 348" font-family="system-ui, sans-serif" '
        'font-size="14" role="img" aria-labelledby="title">'
    )
    yield '<title id="title">A turn has iterations, an iteration has messages and calls</title>'
    yield f'<style>{STYLE}</style><rect class="ground" width="860" height="348"/>'
    head = f"read_history(state).turns[0]    number {found.number}    status {found.status}"
    yield f'<text x="20" y="30" font-weight="600" xml:space="preserve">{escape(head)}</text>'
    y = 48
    for iteration in found.iterations:
        yield f'<rect class="frame" x="20" y="{y}" width="820" height="134" rx="6"/>'
        usage = iteration.usage
        yield from (
            f'<text class="name" x="640" y="{y + 34 + 24 * at}" font-size="13">{name}: {value}</text>'
            for at, (name, value) in enumerate(
                (
                    ("finish_reason", iteration.finish_reason),
                    ("usage.input_tokens", usage.input_tokens),
                    ("usage.output_tokens", usage.output_tokens),
                    ("model", iteration.model),
                )
            )
        )
        label = f"iterations[{iteration.number - 1}]"
        yield f'<text class="name" x="36" y="{y + 22}" font-size="13">{label}</text>'
        for at, message in enumerate(iteration.messages):
            top = y + 34 + 48 * at
            said = message.said
            if message.role == "assistant" and iteration.calls:
                said = ", ".join(f"{call.name}({call.arguments})" for call in iteration.calls)
            yield f'<rect class="{message.role}" x="36" y="{top}" width="580" height="38" rx="5"/>'
            yield f'<text class="name" x="50" y="{top + 24}" font-size="13">{message.role}</text>'
            yield f'<text x="140" y="{top + 24}">{escape(said)}</text>'
        y += 148
    yield "</svg>\n"


def drawn() -> str:
    """The picture as SVG."""
    return "\n".join(pieces())


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
