"""A desk for approvals: calls of all customers wait in one list, and any clerk decides.

The shop and the desk may be two processes: both know the database only. The list is read from its plain
columns, so no conversation is loaded that does not wait.
Install: pip install goaitools-py
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from goaitools_py import Approve, Chat, Conversation, Deny, PendingCall, tool
from goaitools_py.stores import SQLiteStore

MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


@tool(requires_approval=True)
def refund(euros: int, order: int) -> str:
    """Pay money back for an order."""
    return f"{euros} euros are on their way."


class Desk:
    """What waits, and what a clerk does about it."""

    def __init__(self, chat: Chat, store: SQLiteStore) -> None:
        self.chat, self.store = chat, store

    def customer(self, key: str) -> Conversation:
        """A customer's conversation. Each step is saved, so that a crash pays nothing twice."""
        return self.chat.conversation(self.store, key, save="checkpoint")

    def waiting(self) -> Iterator[tuple[str, PendingCall]]:
        """Every call that waits, with its customer."""
        for row in self.store.list(limit=1000).keys:
            if row.facts and row.facts.status == "awaiting_tools":
                yield from ((row.key, call) for call in self.customer(row.key).pending())

    def decide(self, key: str, call: PendingCall, clerk: str, most: int) -> str:
        """Approve up to a sum. The model hears a refusal with its reason, and tells the customer."""
        is_small = int(call.parsed["euros"]) <= most
        answer = Approve() if is_small else Deny(f"More than {most} euros need the manager.")
        return self.customer(key).resume({call.id: answer}, metadata={"clerk": clerk}).text


if __name__ == "__main__":
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)")
    with tempfile.TemporaryDirectory() as folder, Chat(MODEL, tools=[refund]) as chat, \
         SQLiteStore(Path(folder, "shop.db")) as store:  # fmt: skip
        desk = Desk(chat, store)
        for key, text in ("ada", "Refund 20 euros for order 7."), ("bob", "Refund 300 euros for order 9."):
            print(f"{key}: {desk.customer(key).send(text).status}")
        print(desk.customer("eve").send("My name is Eve.").text)
        for key, call in list(desk.waiting()):
            print(f"to {key}: {desk.decide(key, call, 'Clara', 100)}")
        print("left:", len(list(desk.waiting())))
