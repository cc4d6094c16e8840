"""Events: tell the conversation what happened in your application, without asking a model.

The next turn takes them to the model. A topic keeps only its newest event. An event with an id enters
once, also if it is sent again.
Install: pip install goaitools-py
"""

import os

from goaitools_py import Chat, event
from goaitools_py.states import inspect_state

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


def main() -> None:
    """Append four events between two turns. The model sees two of them."""
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
