"""A conversation is one value: give it back, and the model knows what was said.

Each turn below uses its own chat, as two processes would. They share one file only.
Set GOAITOOLS_MODEL=openai:MODEL and OPENAI_API_KEY for a real model.
Install: pip install goaitools-py
"""

import os
import tempfile
from pathlib import Path

from goaitools_py import Chat
from goaitools_py.states import inspect_state

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


def one_turn(file: Path, text: str) -> None:
    """Load the state, say something, save the new state."""
    state = file.read_bytes() if file.exists() else None

    with Chat(MODEL, system="You are a friendly guide. Answer briefly.") as chat:
        reply, state = chat.chat_with_state(state, user=text)

    file.write_bytes(state)
    info = inspect_state(state)
    print(f"you:   {text}")
    print(f"model: {reply}")
    print(f"       state: {info.blob_bytes} bytes for {info.messages} messages\n")


def main() -> None:
    """Say two things. Only the state can answer the second."""
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)\n")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "conversation.state")
        one_turn(file, "My name is Ada.")
        one_turn(file, "What is my name?")


if __name__ == "__main__":
    main()
