"""Crash and resume: a process is killed while a tool runs, and another process finishes the turn.

A finished tool does not run again. The running tool may have had its effect: ask the bank, then answer.
Install: pip install goaitools-py
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from goaitools_py import Approve, Chat, ToolContext, ToolReturn, tool
from goaitools_py.stores import SQLiteStore

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


@tool
def get_price(item: str) -> int:
    """The price of an item."""
    print(f"looking up the price of {item}", flush=True)
    return 30


@tool
def charge_card(ctx: ToolContext[Path], amount: int) -> None:
    """Charge the player's card."""
    (ctx.deps / "charged").write_text(str(amount))
    os.kill(os.getpid(), signal.SIGKILL)  # the card is charged, and the process dies before it can say so


def live(folder: Path) -> None:
    """Begin a turn, or finish the turn that another process began."""
    with SQLiteStore(folder / "states.db") as store, Chat(MODEL, tools=[get_price, charge_card]) as chat:
        # The lease of the killed process must run out first.
        conversation = chat.conversation(store, "ada", save="checkpoint", lease_ttl=1.0)
        if conversation.info() is None:
            conversation.send('Get the price of "tea", then charge the card: 30.', deps=folder)
            return
        answer = ToolReturn("charged, says the bank") if (folder / "charged").exists() else Approve()
        answers = {call.id: answer for call in conversation.pending()}
        print(f"resumed: {conversation.resume(answers, deps=folder).text}")


if __name__ == "__main__" and sys.argv[1:2] == ["--in"]:
    live(Path(sys.argv[2]))
elif __name__ == "__main__":
    print("(simulated: no language model is asked)" if MODEL.startswith("sim") else MODEL)
    with tempfile.TemporaryDirectory() as made:
        print("killed:", subprocess.run([sys.executable, __file__, "--in", made]).returncode)
        live(Path(made))
