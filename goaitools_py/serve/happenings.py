"""Events that a program tells a conversation, as a client sends them.

Owns: their bodies and members. Must never know: HTTP, or where the conversation is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ..frontends import AskError
from ..types.messages import event as event_message

__all__ = ["event_rows", "events_by_name", "events_of"]


def events_of(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Make messages of events that a client sends. Raises `AskError` for anything else."""
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


def event_rows(body: bytes, most: int) -> list[Any]:
    """Read a list of events."""
    found = _json(body)
    if not isinstance(found, list) or len(found) > most:
        raise AskError(f"the body must be a list of at most {most} events")
    return found


def events_by_name(body: bytes, most: int) -> dict[str, Any]:
    """Read lists of events by the names of conversations. The lists are not looked at."""
    found = _json(body)
    if not isinstance(found, dict) or len(found) > most:
        raise AskError(f"the body must be an object with at most {most} members")
    return found


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise AskError("the body is not JSON") from None
