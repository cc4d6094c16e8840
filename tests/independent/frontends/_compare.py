"""Messages of clients, made comparable.

Owns: what a live page may have beside a stored reply. Must never know: a scenario.
"""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["comparable", "results_in_order", "without_inner_calls"]


def comparable(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The replies without what only a live stream has: metadata, ids of parts, who approved, empty steps."""
    found = []
    for message in copy.deepcopy(messages):
        if message["role"] != "assistant":
            continue
        message.pop("metadata", None)
        while message["parts"] and message["parts"][-1]["type"] == "step-start":
            message["parts"].pop()
        for part in message["parts"]:
            if part["type"] == "reasoning":
                part.pop("id", None)
            if part.get("state") != "approval-requested":
                part.pop("approval", None)
        found.append(message)
    return found


def results_in_order(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of AG-UI with the results of parallel calls in the order of the calls.

    A live page holds them in the order in which the tools ended.
    """
    calls = [call["id"] for message in messages for call in message.get("toolCalls", ())]
    order = {id: at for at, id in enumerate(calls)}
    found = list(messages)
    for at in range(len(found)):
        end = at
        while end < len(found) and found[end]["role"] == "tool":
            end += 1
        found[at:end] = sorted(found[at:end], key=lambda one: order.get(one["toolCallId"], -1))
    return found


def without_inner_calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without calls of another chat that is a tool. The history has them only while they wait."""
    found = copy.deepcopy(messages)
    for message in found:
        if "toolCalls" in message:
            message["toolCalls"] = [call for call in message["toolCalls"] if "/" not in call["id"]]
        parts = message.get("parts", [])
        for at, part in reversed([*enumerate(parts)]):
            if "/" in part.get("toolCallId", ""):
                assert part["state"] == "approval-responded"
                begins = parts[at - 1]["type"] == "step-start"
                del parts[at - begins : at + 1]
    return found
