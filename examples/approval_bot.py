"""Approvals: a refund waits in one row of a database until a person approves it.

In an application two processes run the two functions. Here each function has its own chat and store, and
they share the SQLite file only: no process has to stay alive, and no refund is paid twice.
Install: pip install goaitools-py
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from goaitools_py import Approve, Chat, ToolContext, tool
from goaitools_py.states import pending_calls
from goaitools_py.stores import SQLiteStore

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


def is_large(arguments: dict[str, Any]) -> bool:
    """True if a person must approve the refund. The model cannot avoid this."""
    return bool(arguments["euros"] > 50)


@tool(requires_approval=is_large)
def refund(ctx: ToolContext, euros: int, order: int) -> str:
    """Pay money back for an order."""
    print(f"  [bank] {euros} euros for order {order}, paid once under key {ctx.idempotency_key[:6]}…")
    return f"{euros} euros are on their way."


def on_monday(file: Path) -> None:
    """The shop: a customer asks. The small refund is paid at once, the large one waits."""
    with SQLiteStore(file) as store, Chat(MODEL, tools=[refund]) as chat:
        result = chat.chat(user="Refund 20 euros for order 7, and refund 300 euros for order 9.")
        store.save("ada", result.state, expected=None)
        print(f"Monday: {result.status}, {len(result.state)} bytes saved")


def on_tuesday(file: Path) -> None:
    """The back office: look at what waits, approve it, and let the turn go on to its reply."""
    with SQLiteStore(file) as store, Chat(MODEL, tools=[refund]) as chat:
        saved = store.load("ada")
        assert saved is not None
        waiting = pending_calls(saved.blob)
        print("Tuesday: approved", *(f"{call.name} {call.shown}" for call in waiting))
        text, state = chat.resume(saved.blob, {call.id: Approve() for call in waiting})
        store.save("ada", state, expected=saved.version)
        print(f"To the customer: {text}")


if __name__ == "__main__":
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)")
    with tempfile.TemporaryDirectory() as folder:
        on_monday(Path(folder, "shop.db"))
        on_tuesday(Path(folder, "shop.db"))
