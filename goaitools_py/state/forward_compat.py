"""Read rows of a later release of this format: keep its new names, refuse its new values.

Owns: reading a row with unknown names without losing a byte, and telling this row from a row that breaks a
rule. Must never know: how a row is written, or which operation keeps it.

A later release of the same format version may add names: to the object that ends a row, the meta data, the
open turn and its calls. This release keeps them as raw bytes. A later release may also use a letter, a
state or a flag that this release does not know. Then the conversation's state is not damaged, but this
release cannot read it. So it raises `StateVersionError`: no turn begins afresh, and nothing is set aside.

A reader calls this module only where its strict reading has failed. So a usual turn does not pay for it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

import msgspec

from ..base import rawjson
from ..types.errors import StateError, StateInvalidError
from ..types.messages import CallKind, ResultFlag
from .closed_turns import FACTS
from .frames import newer
from .letters import LETTERS

__all__ = [
    "is_object",
    "raw_facts",
    "refused_meta",
    "refused_open",
    "refused_rows",
    "split_object",
    "unreadable",
    "with_members",
]

_ITERATION_LEN: Final = 9
_TURN_LEN: Final = 4
_INBOX_LEN: Final = 3
_META_ROWS: Final[Mapping[str, int]] = {"cuts": 4, "turn": 2, "ring": 4, "media": 2}
"""The rows of the meta data that may end with an object, and how many elements stand before it."""

_CALL_WORDS: Final[Mapping[str, Collection[str]]] = {
    "state": ("new", "waiting", "started", "done"),
    "reason": ("", "approval", "external"),
    "kind": get_args(CallKind),
    "flag": get_args(ResultFlag),
}
_PART_KINDS: Final = ("image", "document", "audio")


def unreadable(what: str) -> StateInvalidError:
    """Make the error for a state that breaks a rule of every release."""
    return StateInvalidError(f"{what} of the state cannot be read; the state cannot be used")


def is_object(raw: bytes | msgspec.Raw) -> bool:
    """Tell whether valid JSON is an object."""
    return bytes(raw[:1]) == b"{" if isinstance(raw, bytes) else bytes(raw)[:1] == b"{"


# -------------------------------------------------------------------------------------------- keeping


def split_object(data: bytes, known: Collection[str]) -> tuple[bytes, dict[str, msgspec.Raw]]:
    """Split an object into an object with the known members, and the other members byte for byte.

    Raises `RawJSONError` if `data` is not an object.
    """
    members = rawjson.members(data)
    others = {name: msgspec.Raw(value) for name, value in members.items() if name not in known}
    own = b",".join(b"%s:%s" % (_name(name), value) for name, value in members.items() if name in known)
    return b"{" + own + b"}", others


def with_members(data: bytes, members: Mapping[str, msgspec.Raw]) -> bytes:
    """Add members at the end of an object that is not empty."""
    if not members:
        return data
    added = [b"%s:%s" % (_name(name), bytes(value)) for name, value in members.items()]
    return b",".join((data[:-1], *added)) + b"}"


def _name(name: str) -> bytes:
    """Write a member's name as JSON. UTF-8 has no bytes for half a surrogate pair, so it is escaped."""
    try:
        return msgspec.json.encode(name)
    except UnicodeEncodeError:
        return json.dumps(name).encode()


def raw_facts(facts: Mapping[str, Any], raw: bytes) -> dict[str, Any]:
    """Give the facts of a turn, with the facts of a later release byte for byte from `raw`."""
    members = rawjson.members(raw)
    return {name: value if name in FACTS else msgspec.Raw(members[name]) for name, value in facts.items()}


# ------------------------------------------------------------------------------------------- refusing


def refused_meta(raw: bytes) -> StateError:
    """Find out why meta data cannot be read, and make the error."""
    found = rawjson.view_or_none(raw)
    if isinstance(found, dict):
        for name, length in _META_ROWS.items():
            if _has_surplus(found.get(name), length):
                return newer(f"a row of {name!r} with more elements", f"{length} and an object")
        carried = found.get("carry")
        if isinstance(carried, dict) and any(_is_longer(row, 2) for row in carried.values()):
            return newer("a row of 'carry' with more elements", "2")
        if _is_longer(found.get("failed"), 2):
            return newer("more elements of 'failed'", "2")
    return unreadable("the meta data")


def refused_rows(raw: bytes, what: str, *, is_inbox: bool = False) -> StateError:
    """Find out why turn columns, or the inbox's, cannot be read. `raw`: the rows as one JSON array."""
    rows = rawjson.view_or_none(raw)
    if isinstance(rows, list):
        for row in rows:
            error = _inbox_row(row) if is_inbox else _turn_row(row)
            if error is not None:
                return error
    return unreadable(what)


def _turn_row(row: Any) -> StateError | None:
    if not isinstance(row, list):
        return None
    if len(row) > _TURN_LEN:
        return newer("a turn's row with more elements", f"{_TURN_LEN}")
    return _iterations(row[2]) if len(row) > 2 else None


def _inbox_row(row: Any) -> StateError | None:
    if _has_surplus([row], _INBOX_LEN):
        return newer("a row of the inbox with more elements", f"{_INBOX_LEN} and an object")
    if isinstance(row, list) and row and isinstance(row[0], str) and len(row[0]) == 1:
        return _letters(row[0])
    return None


def refused_open(raw: bytes) -> StateError:
    """Find out why the row of the open turn cannot be read, and make the error."""
    found = rawjson.view_or_none(raw)
    if not isinstance(found, dict):
        return unreadable("the open turn")
    error = _iterations(found.get("iterations")) or _letters(found.get("letters"))
    return error or _calls(found.get("calls")) or unreadable("the open turn")


def _iterations(rows: Any) -> StateError | None:
    if not isinstance(rows, list):
        return None
    if _has_surplus(rows, _ITERATION_LEN):
        return newer("an iteration's row with more elements", f"{_ITERATION_LEN} and an object")
    return _first(_letters(row[0]) for row in rows if isinstance(row, list) and row)


def _letters(letters: Any) -> StateError | None:
    if not isinstance(letters, str):
        return None
    unknown = [one for one in letters if one not in LETTERS and one.isascii() and one.isalpha()]
    return newer(f"the role letter {unknown[0]!r}", f"one of {', '.join(LETTERS)}") if unknown else None


def _calls(calls: Any) -> StateError | None:
    if not isinstance(calls, list):
        return None
    return _first(_call(call) for call in calls if isinstance(call, dict))


def _call(call: Mapping[str, Any]) -> StateError | None:
    for name, words in _CALL_WORDS.items():
        found = call.get(name)
        if isinstance(found, str) and found not in words:
            return newer(f"an open call's {name} that is not known", f"one of {', '.join(words)}")
    parts = call.get("parts")
    for part in parts if isinstance(parts, list) else ():
        kind = part.get("kind") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind not in _PART_KINDS:
            return newer("a part of a tool result that is not known", f"one of {', '.join(_PART_KINDS)}")
    return None


def _first(errors: Iterable[StateError | None]) -> StateError | None:
    return next((error for error in errors if error is not None), None)


def _has_surplus(rows: Any, length: int) -> bool:
    """Tell whether a row is longer than `length` elements with one object behind them."""
    if not isinstance(rows, list):
        return False
    return any(_is_longer(row, length) and not _ends_with_object(row, length) for row in rows)


def _is_longer(row: Any, length: int) -> bool:
    return isinstance(row, list) and len(row) > length


def _ends_with_object(row: Sequence[Any], length: int) -> bool:
    return len(row) == length + 1 and isinstance(row[length], dict)
