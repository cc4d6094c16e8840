"""Events: what happens in your application enters the conversation without asking a model.

The next turn takes them along. A topic keeps only the newest; an id enters once, however often it is sent.
"""

import os

from goaitools_py import Chat, event, inspect_state

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


def main() -> None:
    """Let four events happen between two turns; two of them are still there when the model looks."""
    with Chat(MODEL, system="You are the guide of a game in Harrogate.") as chat:
        state = chat.chat_with_state(None, user="My name is Ada.").state

        happened = [
            event("Ada entered Valley Gardens", topic="position"),
            event("Ada reached Harrogate Theatre", topic="position"),  # replaces the one above
            event("Ada earned 50 points", id="award-17"),
            event("Ada earned 50 points", id="award-17"),  # a webhook that was sent twice
        ]
        for one in happened:
            state = chat.append_to_state(state, one)
        print(f"{len(happened)} events, {inspect_state(state).waiting_messages} of them wait for the model")

        result = chat.chat_with_state(state, user="Where am I, and what is my score?")
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)")
    print(result.text)


if __name__ == "__main__":
    main()
