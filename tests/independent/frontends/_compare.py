"""Messages of the AI SDK, made comparable.

Owns: what a live page may have beside a stored reply. Must never know: a scenario.
"""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["comparable"]


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
