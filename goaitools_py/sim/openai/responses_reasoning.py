"""Reasoning items of the Responses API: their ids, their prefixes, and which items are ignored.

Owns: the ids and digests by which a server without memory recognises its own items. Must never know: how an
item is written, or a model's text.

The rule is OpenAI's (developers.openai.com/api/docs/guides/keep-prefix-unchanged, seen November 2026): a
reasoning item is dropped if anything before it changed: the tools, the format of the text, an earlier item of
the input, and, for models before GPT-6.2, the instructions. It is not known whether OpenAI compares bytes or
values. Here values are compared, without ids and states, which no model reads.

An id is `{kind}_{reply}{place}{led}{check}`: 32 hex digits name the reply, 3 the item's place in it, one says
whether a reasoning item leads the reply, 12 are a checksum, so that a foreign id is never taken for ours.

Encrypted content is `sim1.` and base64url of `model[8] prefix[16] salt[1] check[8]`; all but the salt are
digests. As on real servers, the same item may be encrypted in different ways; each is valid.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..model.prompt import opened

__all__ = [
    "ItemId",
    "Removed",
    "announced",
    "as_items",
    "encrypted",
    "genuine",
    "known_id",
    "read_from",
    "removed",
    "written_id",
]

_SECRET = b"goaitools simulator"
_ID = re.compile(r"[a-z]+_([0-9a-f]{32})([0-9a-f]{3})([01])([0-9a-f]{12})")
_MARK = "sim1."
_UNSEEN = ("id", "status")

Reason = Literal["organization_mismatch", "model_mismatch", "prefix_mismatch", "turn_boundary"]


# ---------------------------------------------------------------------------------------------- ids


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemId:
    """The content of a simulator's id: the reply, the place in it, whether reasoning leads the reply."""

    reply: str
    place: int
    led: bool

    @property
    def leader(self) -> str | None:
        """The id of the reasoning item that this item needs; None if it stands alone."""
        return written_id("rs", reply=self.reply, place=0, led=True) if self.led and self.place else None


def written_id(kind: str, *, reply: str, place: int, led: bool) -> str:
    """The id of a reply's item; `reply` is 32 hex digits."""
    body = f"{reply}{place:03x}{int(led)}"
    return f"{kind}_{body}{_digest(body.encode(), size=6).hex()}"


def known_id(value: Any) -> ItemId | None:
    """Read an id of this simulator; None for any other value."""
    match = _ID.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    reply, place, led, check = match.groups()
    if _digest(f"{reply}{place}{led}".encode(), size=6).hex() != check:
        return None
    return ItemId(reply=reply, place=int(place, 16), led=led == "1")


# -------------------------------------------------------------------------------- encrypted content


def encrypted(values: Mapping[str, Any], *, salt: int = 0) -> str:
    """The encrypted content of a reasoning item that answers this request; `salt` is a byte's value."""
    payload = _of_model(values) + _of_prefix(values) + bytes([salt])
    return _MARK + base64.urlsafe_b64encode(payload + _digest(payload, size=8)).decode("ascii")


def announced(content: str) -> str:
    """The encrypted content in ``response.output_item.added``: too short, and unusable."""
    return content[: len(content) // 2]


def genuine(content: Any) -> bool:
    """False for encrypted content of this simulator that was changed or is incomplete; else True."""
    return not isinstance(content, str) or not content.startswith(_MARK) or _opened(content) is not None


def _opened(content: str) -> bytes | None:
    try:
        raw = base64.b64decode(content.removeprefix(_MARK), altchars=b"-_", validate=True)
    except ValueError:
        return None
    payload, check = raw[:-8], raw[-8:]
    return payload[:24] if len(raw) == 33 and _digest(payload, size=8) == check else None


# ------------------------------------------------------------------------------------ removed items


@dataclass(frozen=True, slots=True)
class Removed:
    """A reasoning item that the model does not get, and the reason."""

    id: str
    reason: Reason


def removed(values: Mapping[str, Any]) -> list[Removed]:
    """The reasoning items of a valid request that do not fit their prefix, in order.

    Items before a compaction inside a reply, which no model reads, are not among them. It is not known
    whether OpenAI reports these.
    """
    return list(_removed(values))


def _removed(values: Mapping[str, Any]) -> Iterator[Removed]:
    items = as_items(values)
    boundary, start = _boundary(values, items), read_from(items) or 0
    hasher = _frame(values)
    for index, item in enumerate(items):
        content = item.get("encrypted_content")
        if index >= start and item.get("type") == "reasoning" and isinstance(content, str):
            digests = _opened(content)
            reason: Reason | None = None
            if digests is None:
                reason = "organization_mismatch"
            elif digests[:8] != _of_model(values):
                reason = "model_mismatch"
            elif digests[8:] != hasher.copy().digest():
                reason = "prefix_mismatch"
            elif index < boundary:
                reason = "turn_boundary"
            if reason is not None:
                yield Removed(str(item.get("id", "")), reason)
        hasher = _behind(hasher, values, item)


def _behind(hasher: hashlib.blake2b, values: Mapping[str, Any], item: Mapping[str, Any]) -> hashlib.blake2b:
    """The hasher after one more item. A compaction counts as the items that it replaces."""
    found = opened(item.get("encrypted_content")) if item.get("type") == "compaction" else None
    if found is None:
        hasher.update(_canonical(item))
        return hasher
    hasher = _frame(values)
    for original in found[1]:
        hasher = _behind(hasher, values, original)
    return hasher


def _boundary(values: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> int:
    """The index of the current turn, if the request excludes reasoning of earlier turns; else 0."""
    reasoning = values.get("reasoning")
    if not isinstance(reasoning, dict) or reasoning.get("context") != "current_turn":
        return 0
    return max((index for index, item in enumerate(items) if item.get("role") == "user"), default=0)


def as_items(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The request's input as a list of items; a text is one message of the user."""
    given = values.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return [{"type": "message", **item} for item in given or () if isinstance(item, dict)]


def read_from(items: Sequence[Mapping[str, Any]]) -> int | None:
    """The index at which the model begins to read: the newest compaction inside a reply. None without one.

    Before a compaction that a request asked for, the user's messages stay.
    """
    made = (
        at for at, item in enumerate(items) if item.get("type") == "compaction" and known_id(item.get("id"))
    )
    return max(made, default=None)


def _of_model(values: Mapping[str, Any]) -> bytes:
    return _digest(str(values.get("model")).encode("utf-8", "replace"), size=8)


def _of_prefix(values: Mapping[str, Any]) -> bytes:
    hasher = _frame(values)
    for item in as_items(values):
        hasher = _behind(hasher, values, item)
    return hasher.digest()


def _frame(values: Mapping[str, Any]) -> hashlib.blake2b:
    """A hasher over the parts before the input: instructions, tools, the format of the text."""
    text = values.get("text")
    shape = text.get("format") if isinstance(text, dict) else None
    plain = {"instructions": values.get("instructions") or None, "tools": values.get("tools") or None}
    frame = {**plain, "format": None if shape == {"type": "text"} else shape}
    return hashlib.blake2b(_canonical(frame), digest_size=16, key=_SECRET)


def _canonical(value: Mapping[str, Any]) -> bytes:
    """The item as bytes: equal for equal values, without ids and states, which no model reads."""
    seen = {key: inner for key, inner in value.items() if key not in _UNSEEN}
    return json.dumps(seen, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n"


def _digest(data: bytes, *, size: int) -> bytes:
    return hashlib.blake2b(data, digest_size=size, key=_SECRET).digest()
