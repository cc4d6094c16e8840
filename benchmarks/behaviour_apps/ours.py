"""The app with this package: a kept conversation in `SQLiteStore`, as the README shows."""

from __future__ import annotations

import shell

from goaitools_py import Approve, Chat, Compactor, KeepRecentTurns, ModelSettings, TextDelta, tool
from goaitools_py.backends import AnthropicBackend, OpenAIChatBackend
from goaitools_py.compaction import TurnLimit
from goaitools_py.stores import SQLiteStore


@tool
def pay(euros: int) -> str:
    """Pay an amount."""
    return shell.pay(euros)


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay an amount back."""
    return shell.pay(euros)


@tool
def report() -> str:
    """Read the report."""
    return shell.report()


backend = OpenAIChatBackend(shell.MODEL, base_url=shell.URL, api_key="sim")
chat = Chat(backend, system=shell.SYSTEM, tools=[pay, refund, report])
if shell.THINKS:
    chat = Chat(
        AnthropicBackend(shell.MODEL, base_url=shell.ANTHROPIC_URL, api_key="sim"),
        system=shell.SYSTEM,
        tools=[pay],
        settings=ModelSettings(thinking_budget_tokens=1024, max_output_tokens=4096),
        compactor=Compactor(TurnLimit(2), KeepRecentTurns(1)),
    )
conversation = chat.conversation(SQLiteStore(shell.FOLDER / "ours.db"), "ada", save="checkpoint")


def send(id: str, text: str) -> str:
    """A message of the user."""
    return conversation.send(text, turn_id=id).text


def leave(id: str, text: str) -> str:
    """The user reads the first piece of the answer and goes."""
    with conversation.start(text, turn_id=id) as turn:
        return next(event.text for event in turn if isinstance(event, TextDelta))


def approve() -> str:
    """The button beside a call that waits."""
    answers = {call.id: Approve() for call in conversation.pending()}
    return conversation.resume(answers).text if answers else "Nothing waits."


def edit(text: str) -> str:
    """The user changes the newest message."""
    conversation.rewind(1)
    return conversation.send(text).text


shell.serve(send, leave, approve, edit)
