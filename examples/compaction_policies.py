"""Compaction policies: which turns a conversation can drop, and when.

The same conversation runs under several policies. At the end each is asked for a fact from the first turn.
Install: pip install goaitools-py
"""

import os

from goaitools_py import (
    Chat,
    ClearToolResults,
    Compactor,
    KeepRecentTurns,
    Summarize,
    TokenLimit,
    TurnLimit,
    all_of,
    first_of,
)
from goaitools_py.compaction import ColdCache, CollapseToolExchanges, ContextWindow, MiddleOut

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")

POLICIES = {
    "keep everything": None,
    "the last 3 turns": Compactor(TurnLimit(8), KeepRecentTurns(3)),
    "a window": ContextWindow(max_messages=16, min_recent_turns=3, strategy="oldest_first"),
    "the beginning and the end": Compactor(TurnLimit(8), MiddleOut(first=1, last=3)),
    "a summary": Compactor(TurnLimit(8), Summarize(keep_turns=3)),
    # Cheap steps first. After a pause (cold_after=) a cut loses no cache, so it may be deeper.
    "a ladder": first_of(
        Compactor(all_of(ColdCache(), TurnLimit(4)), Summarize(keep_turns=2)),
        Compactor(TurnLimit(8), ClearToolResults(keep=3)),
        Compactor(TurnLimit(8), CollapseToolExchanges(keep_turns=2)),
        Compactor(TokenLimit(60_000), Summarize(keep_turns=4)),
    ),
}


def inspect_room(number: int) -> str:
    """What is in a room of the theatre."""
    return f"Room {number}: a door, {number} chairs, and on the wall a long list of plays. " * 4


def main() -> None:
    """Ten turns under each policy; then the question."""
    said = ["My name is Ada.", *(f"Please inspect room {n}." for n in range(1, 10)), "What is my name?"]
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)")
    with Chat(MODEL, system="You guide players.", tools=[inspect_room], cold_after=300) as chat:
        for name, compactor in POLICIES.items():
            result = chat.run_turns(None, said, compactor=compactor)
            print(f"{name:26} {result.total_usage.input_tokens:6} tokens  {result.text}")


if __name__ == "__main__":
    main()
