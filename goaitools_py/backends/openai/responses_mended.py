"""Turns output items of an impossible shape into items that the server accepts in a history.

Owns: which items no server should send, and how they are changed. Must never know: a reply, a stream.

The table of changes is in `responses_reply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...base import rawjson
from ..base import ProtocolFault
from ..rules.openai_responses import entry_problems
from .mended import has_odd_content, mended_content

__all__ = ["SPEAKERS", "is_odd_item", "mended_item"]

_ROLES: Final = ("assistant", "user", "system", "developer")


SPEAKERS: Final = ("assistant",)
"""Roles that a message of a reply may have. A tuple, because the value to look up may be unhashable."""


def is_odd_item(item: Mapping[str, Any], speakers: Sequence[str] = SPEAKERS) -> bool:
    """True for an item of an impossible shape, such as a message with a role outside of `speakers`."""
    kind = item.get("type")
    if _has_odd_id(item):
        return True
    if kind == "message":
        content = item.get("content")
        return item.get("role") not in speakers or content is None or has_odd_content(content)
    if not isinstance(kind, str) or kind in ("", *_ROLES):
        return True
    return next(entry_problems(item), None) is not None


def _has_odd_id(item: Mapping[str, Any]) -> bool:
    id = item.get("id")
    return id is not None and not isinstance(id, str)


def mended_item(entry: bytes, item: Mapping[str, Any], speakers: Sequence[str] = SPEAKERS) -> bytes:
    """The item in a form that can be sent back.

    Raises:
        ProtocolFault: The item has no type and is not a message.
    """
    changed: dict[str, bytes] = {}
    kind = item.get("type")
    if not isinstance(kind, str) or kind in ("", "message", *_ROLES):
        if "content" not in item and kind != "message":
            raise ProtocolFault("an item of the answer is neither a message nor of any type")
        changed["type"] = b'"message"'
        if item.get("role") not in speakers:
            changed["role"] = b'"assistant"'
        if item.get("content") is None:
            changed["content"] = b"[]"
        elif has_odd_content(item["content"]):
            changed["content"] = mended_content(rawjson.members(entry)["content"], text_type="output_text")
    elif kind == "reasoning" and not isinstance(item.get("summary"), list):
        changed["summary"] = b"[]"
    entry = rawjson.without(entry, {"id"}) if _has_odd_id(item) else entry
    return rawjson.replaced(entry, changed) if changed else entry
