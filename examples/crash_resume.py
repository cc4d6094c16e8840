"""Crash and resume: a process is killed in the middle of a tool, and another one finishes the turn.

What had finished is not run again. What was running may have taken effect: ask the other side, and answer.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from goaitools_py import Approve, Chat, ChatOptions, ToolContext, ToolReturn, pending_calls, tool
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
    os.kill(os.getpid(), signal.SIGKILL)  # the card is charged, and nobody lives to tell


def live(folder: Path) -> None:
    """Begin a turn, or finish the one that another process began."""
    with SQLiteStore(folder / "states.db") as store, Chat(MODEL, deps=folder) as chat:
        row = store.load("ada")
        version = row.version if row else None

        def keep(blob: bytes) -> None:
            nonlocal version
            version = store.save("ada", blob, expected=version)

        options = ChatOptions(tools=[get_price, charge_card], on_checkpoint=keep)
        if row is None:
            keep(chat.chat(options, user='Get the price of "tea", then charge the card: 30.').state)
            return
        answer = ToolReturn("charged, says the bank") if (folder / "charged").exists() else Approve()
        text, state = chat.resume(row.blob, {c.id: answer for c in pending_calls(row.blob)}, options)
        keep(state)
        print(f"resumed: {text}")


if __name__ == "__main__" and sys.argv[1:2] == ["--in"]:
    live(Path(sys.argv[2]))
elif __name__ == "__main__":
    print("(simulated: no language model is asked)" if MODEL.startswith("sim") else MODEL)
    with tempfile.TemporaryDirectory() as made:
        print("killed:", subprocess.run([sys.executable, __file__, "--in", made]).returncode)
        live(Path(made))
