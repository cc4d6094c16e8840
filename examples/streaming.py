"""Streaming: a handle of a running turn, its events, and its state at each instant.

Here the listener goes away in the middle of a reply. The state is good, and the turn is finished later.
Install: pip install goaitools-py
"""

import os

from goaitools_py import Chat, TextDelta, ToolFinished, tool

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


@tool
def read_clock() -> str:
    """What time it is in the game."""
    return "ten past four"


def main() -> None:
    """Print a reply piece by piece. Break the next one off, and finish it from its state."""
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)")
    with Chat(MODEL, tools=[read_clock]) as chat:
        with chat.start(None, user="Read the clock, please.") as turn:
            for event in turn:
                match event:
                    case ToolFinished(name=name, flag=flag):
                        print(f"<{name}: {flag}> ", end="")
                    case TextDelta(text=text):
                        print(text, end="|")
        print(f"\n{turn.result().usage.requests} model calls")

        with chat.start(turn.state, user="Read the clock again.") as turn:
            for piece in turn.text_deltas():
                print(f"gone after {piece!r}")
                break

        result = chat.resume(turn.state)
        print(f"resumed: {result.text} ({len(result.tool_log)} tools ran again)")


if __name__ == "__main__":
    main()
