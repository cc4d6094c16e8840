"""Summaries by a cheaper model: the facts of older turns stay, for a fraction of the tokens.

The summary is a note in the history, in the place of the older turns.
`before_cut` is given the turns before they go, so that you can keep them.
Install: pip install goaitools-py
"""

import os

from goaitools_py import Chat, Compactor, Summarize, TurnLimit, event
from goaitools_py.compaction import TurnView
from goaitools_py.states import read_history

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")
CHEAPER = os.environ.get("GOAITOOLS_CHEAPER_MODEL", MODEL)

archived: list[str] = []


def archive(turns: tuple[TurnView, ...]) -> None:
    """Keep what goes; here in a list, in an application in a table."""
    archived.extend(message.text for turn in turns for message in turn.messages)


def main() -> None:
    """Talk for eight turns, while older ones are summarised. Then ask for a fact from them."""
    summarised = Compactor(TurnLimit(5), Summarize(CHEAPER, keep_turns=2), before_cut=archive)
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)")
    with Chat(MODEL, system="You are the guide of a game.", compactor=summarised) as chat:
        result = chat.chat(user="My name is Ada.")
        state = chat.append_to_state(result.state, event("Ada reached Harrogate Theatre: +50 points"))
        for text in (*(f"I open door {n}." for n in range(1, 7)), "What is my name, and my score?"):
            result = chat.chat_with_state(state, user=text)
            state = result.state
            if (cut := result.compaction) is not None:
                print(f"{cut.by}: {cut.outcome}, {cut.messages_before} -> {cut.messages_after} messages")
                print(f"  for {cut.usage.total_tokens} tokens; {len(archived)} messages are in the archive")
    print(f"note: {read_history(state).turns[0].messages[0].text}")
    print(f"model: {result.text}")
    print(f"{result.aside_usage.total_tokens} of {result.total_usage.total_tokens} tokens were for summaries")


if __name__ == "__main__":
    main()
