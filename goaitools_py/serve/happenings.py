"""Events that a program tells a conversation, as a client sends them.

Owns: their members. Must never know: HTTP, or where the conversation is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..frontends import AskError
from ..messages import event as event_message

__all__ = ["events_of"]


def events_of(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Make messages of events that a client sends. Raises `AskError` for what is none."""
    made = []
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("text"), str) or not row["text"]:
            raise AskError("an event must be an object with text")
        if row.keys() - {"text", "topic", "id"}:
            raise AskError("an event has text, topic and id")
        try:
            made.append(event_message(row["text"], topic=row.get("topic"), id=row.get("id")))
        except (TypeError, ValueError) as error:
            raise AskError("the topic or the id of an event cannot be taken") from error
    return made
