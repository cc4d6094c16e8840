"""A bot behind a webhook: tools with deps, approvals, errors, a store. Read by type checkers, never run."""

from __future__ import annotations

import os
from dataclasses import dataclass

from goaitools_py import Approve, Chat, Deny, GoAIToolsError, PendingCall, ToolContext, ToolError, event, tool
from goaitools_py.stores import PostgresStore


@dataclass
class Shop:
    """What the tools work on."""

    orders: dict[int, int]


@tool
def price(ctx: ToolContext[Shop], order: int) -> int:
    """Price of an order."""
    if order not in ctx.deps.orders:
        raise ToolError("There is no such order.")
    return ctx.deps.orders[order]


@tool(requires_approval=True, idempotent=True)
def refund(ctx: ToolContext[Shop], order: int, reason: str = "") -> str:
    """Pay the price of an order back."""
    return f"{ctx.idempotency_key}: {ctx.deps.orders.pop(order)} {reason}"


chat = Chat("sim", system="You are a shop.", tools=[price, refund], deps=Shop({7: 20}))
store = PostgresStore.open(os.environ["POSTGRES_URL"])


def webhook(customer: str, message_id: str, text: str) -> tuple[int, str]:
    """Answer one delivery."""
    conversation = chat.conversation(store, customer, save="checkpoint")
    try:
        result = conversation.send(text, turn_id=message_id)
    except GoAIToolsError as error:
        return (503 if error.retryable else 200), "Later, please."
    return 200, result.text if result.status == "complete" else ask_clerk(result.pending)


def ask_clerk(calls: tuple[PendingCall, ...]) -> str:
    """Name the calls that wait."""
    return ", ".join(f"{call.name}({call.arguments})" for call in calls)


def decide(customer: str, is_allowed: bool) -> str:
    """A clerk answers the calls."""
    conversation = chat.conversation(store, customer)
    conversation.append(event("A clerk looks at the case."))
    answer = Approve() if is_allowed else Deny("Not this time.")
    return conversation.resume({call.id: answer for call in conversation.pending()}).text
