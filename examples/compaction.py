"""Compaction: a trigger says when the history shrinks, a strategy says how.

Here the strategy is our own function. It keeps the turn in which the player said her name.
Install: pip install goaitools-py
"""

import os
from collections.abc import Sequence

from goaitools_py import Chat, Compactor, MessageLimit, TokenLimit, any_of
from goaitools_py.compaction import CompactionRequest, TurnView

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


def first_and_recent(request: CompactionRequest) -> Sequence[TurnView]:
    """Keep the first turn and the last. KeepRecentTurns, MiddleOut and others are ready to use."""
    turns = request.turns
    return (*turns[:1], *turns[1:][-1:])


def main() -> None:
    """Talk until the history has been cut twice. Then ask for the name from the first turn."""
    compactor = Compactor(any_of(MessageLimit(8), TokenLimit(8_000)), first_and_recent)
    said = ["My name is Ada.", *(f"I open door {number}." for number in range(1, 7)), "What is my name?"]
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)")
    state = b""
    with Chat(MODEL, system="You are the guide of a game.", compactor=compactor) as chat:
        for text in said:
            result = chat.chat_with_state(state, user=text)
            state = result.state
            print(f"{text:20} {len(state):4} bytes  {result.text}")
            if (cut := result.compaction) is not None:
                print(f"{'':20} {cut.by}: {cut.messages_before} -> {cut.messages_after} messages")


if __name__ == "__main__":
    main()
