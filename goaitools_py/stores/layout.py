"""The layout of a store's data: tables, columns, sizes. Every store reads it from here.

Owns: names, types and sizes of the columns, and the values that fill them: `RowFacts`, `StoredPart`. Must
never know: an engine, or the contents of a blob.

A conversation is one row. Beside its blob stand *plain columns*, which can be listed, filtered and sorted
without the key of a codec. They describe the blob of the same row: a save replaces them together with it, and
a save without `RowFacts` empties them. They are for lists and reports. A turn reads the blob alone.

A table of *parts* holds data that a conversation keeps outside of its blob: one row for each part, under the
conversation's key and the part's name. A table of *leases* holds the current holder of each turn.

Every column that came after the first layout can be empty or has a default. So a table gets it without a copy
of its rows (`goaitools store migrate`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "LEASE_COLUMNS",
    "MAX_KEY_BYTES",
    "MAX_STATUS_CHARACTERS",
    "MAX_TITLE_CHARACTERS",
    "PART_COLUMNS",
    "PLAIN_COLUMNS",
    "STATE_COLUMNS",
    "Column",
    "RowFacts",
    "StoredPart",
    "ascii_facts",
    "combines",
    "facts_of",
    "lease_table_name",
    "part_table_name",
    "plain_values",
    "takes_facts",
]

MAX_KEY_BYTES: Final = 512
"""The longest key, in bytes of UTF-8. The indexes of all engines hold keys of this length."""

MAX_TITLE_CHARACTERS: Final = 200
"""Characters in the title column. A longer title is cut there; the blob keeps all of it."""

MAX_STATUS_CHARACTERS: Final = 32
MAX_PART_NAME_BYTES: Final = 32
"""A part's name is the SHA-256 digest of its bytes."""

_MAX_INTEGER: Final = 2**63 - 1

PlainValue: TypeAlias = str | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFacts:
    """The values of a row's plain columns. A kept conversation gives them with each save.

    Attributes:
        title: The conversation's title, or "". Empty for a codec with a key, unless the conversation
            was made with ``plain_title=True``.
        status: As `StateInfo.status`: "complete", "awaiting_tools", "in_progress" or "failed".
        turns: How many turns the conversation has had, with the turns that a cut has removed.
        total_tokens: Input and output tokens of the conversation's life.
        cost_nano_dollars: The cost of the conversation, in billionths of a US dollar; None if unknown.
    """

    title: str = field(default="", repr=False)
    status: str = ""
    turns: int | None = None
    total_tokens: int | None = None
    cost_nano_dollars: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """A piece of a conversation that is kept outside of its blob.

    Attributes:
        name: 32 bytes: the SHA-256 digest of `data`. Under one key a name always means the same bytes.
        kind: The kind of the part, as in the blob's directory; a number below 128.
        data: The bytes.
    """

    name: bytes
    kind: int
    data: bytes = field(repr=False)


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        name: Its name in every engine, and the name of the field of a Redis hash.
        kind: "key" is text that is compared byte by byte; "text" is Unicode text; "integer" has 64 bits;
            "flag" is 0 or 1; "bytes" has any length; "digest" is a short byte string.
        size: Bytes for a key and a digest, characters for a text; 0 for the others.
        is_required: It may not be empty. If the first layout did not have the column, it has a `default`.
        default: The value of rows that do not name one.
        when_added: The value that rows of an older table get.
    """

    name: str
    kind: Literal["key", "text", "integer", "flag", "bytes", "digest"]
    size: int = 0
    is_required: bool = False
    default: int | None = None
    when_added: int | None = None


_KEY: Final = Column("key", "key", MAX_KEY_BYTES, is_required=True)

PLAIN_COLUMNS: Final = (
    Column("title", "text", MAX_TITLE_CHARACTERS),
    Column("status", "text", MAX_STATUS_CHARACTERS),
    Column("turns", "integer"),
    Column("total_tokens", "integer"),
    Column("cost_nano_dollars", "integer"),
)
"""The columns that `RowFacts` fills, in its order."""

STATE_COLUMNS: Final = (
    _KEY,
    Column("version", "integer", is_required=True),
    Column("updated_at", "integer", is_required=True),
    Column("blob", "bytes", is_required=True),
    *PLAIN_COLUMNS,
    Column("stop_requested", "flag", is_required=True, default=0),
)
"""One row for each conversation. ``updated_at`` is the time of the last save in milliseconds since 1970.
``stop_requested`` belongs to the row, not to the blob: a save leaves it as it is."""

LEASE_COLUMNS: Final = (
    _KEY,
    Column("token", "text", 32, is_required=True),
    Column("ends_at", "integer", is_required=True),
    Column("ttl_ms", "integer", is_required=True, when_added=60_000),
)
"""One row for each lease. ``ttl_ms`` is its length. The first layout did not store the length: its leases
count as leases of a minute."""

PART_COLUMNS: Final = (
    _KEY,
    Column("name", "digest", MAX_PART_NAME_BYTES, is_required=True),
    Column("kind", "integer", is_required=True),
    Column("data", "bytes", is_required=True),
)
"""One row for each part; key and name together are the primary key. A part goes when its conversation
does."""


def lease_table_name(table: str) -> str:
    """The name of the table of leases beside a table of conversations."""
    return f"{table}_lease"


def part_table_name(table: str) -> str:
    """The name of the table of parts beside a table of conversations."""
    return f"{table}_part"


def takes_facts(store: object) -> bool:
    """Whether the store's `save` has a parameter called ``facts``. Other stores get no facts."""
    save = getattr(store, "save", None)
    try:
        return _names_facts(getattr(save, "__func__", save))
    except (TypeError, ValueError):  # it cannot be hashed, or its signature cannot be read
        return False


@lru_cache(maxsize=256)
def _names_facts(save: Any) -> bool:
    return "facts" in inspect.signature(save).parameters


_COMBINED: Final = {"lease_and_load": ("lease", "load"), "save_and_release": ("save",)}
_COMBINED_PARTS: Final = {
    "lease_and_load_head": ("lease", "load", "load_head"),
    "save_parts_and_release": ("save", "save_parts"),
}
_PEEK: Final = {"is_held": ("lease",)}
_SINGLE: Final = ("lease", "load", "save")
_SINGLE_OF_PARTS: Final = (*_SINGLE, "load_head", "save_parts")


def combines(store: Any, *, in_parts: bool = False) -> bool:
    """Whether a store is `Combining`, and its combined steps match its own single steps.

    A subclass or a patched object may override `load`, `save` or `lease`, and inherit the combined steps. The
    inherited steps would skip the override, so they are not used.

    `in_parts`: ask for `CombiningParts`. An override of `load_head` or `save_parts` counts there, too.
    """
    own = vars(store) if hasattr(store, "__dict__") else {}
    if in_parts:
        return _has_steps_for_parts(store.__class__) and own.keys().isdisjoint(_SINGLE_OF_PARTS)
    return _has_steps(store.__class__) and own.keys().isdisjoint(_SINGLE)


def peeks(store: Any) -> bool:
    """Whether a store is `Peeking`, and its `is_held` belongs to its own `lease`; see `combines`."""
    own = vars(store) if hasattr(store, "__dict__") else {}
    return ("is_held" in own or _has_peek(store.__class__)) and ("lease" not in own or "is_held" in own)


@lru_cache(maxsize=256)
def _has_steps(kind: type[Any]) -> bool:
    return _are_own(kind, _COMBINED)


@lru_cache(maxsize=256)
def _has_steps_for_parts(kind: type[Any]) -> bool:
    return _are_own(kind, _COMBINED_PARTS)


@lru_cache(maxsize=256)
def _has_peek(kind: type[Any]) -> bool:
    return _are_own(kind, _PEEK)


def _are_own(kind: type[Any], steps: Mapping[str, Sequence[str]]) -> bool:
    def depth(name: str) -> int:
        """How far up the bases the method is defined. The number of bases if it is not defined."""
        line = kind.__mro__
        return next((n for n, base in enumerate(line) if name in vars(base)), len(line))

    return all(
        depth(both) < len(kind.__mro__) and all(depth(both) <= depth(single) for single in of)
        for both, of in steps.items()
    )


def plain_values(facts: RowFacts | None) -> dict[str, PlainValue]:
    """The plain columns of a row. A value that does not fit is cut: a save must not fail because of it."""
    if facts is None:
        return {column.name: None for column in PLAIN_COLUMNS}
    return {
        "title": _fitting(facts.title, MAX_TITLE_CHARACTERS),
        "status": _fitting(facts.status, MAX_STATUS_CHARACTERS),
        "turns": _bounded(facts.turns),
        "total_tokens": _bounded(facts.total_tokens),
        "cost_nano_dollars": _bounded(facts.cost_nano_dollars),
    }


def ascii_facts(facts: RowFacts) -> RowFacts:
    """The facts with ``?`` for each character of the title that is not ASCII.

    They are for a table or a connection that cannot write Unicode text. The blob keeps the whole title.
    """
    return replace(facts, title=facts.title.encode("ascii", "replace").decode())


def facts_of(values: Iterable[PlainValue]) -> RowFacts | None:
    """Make `RowFacts` of plain columns, in their order. None if the last save did not fill them."""
    title, status, turns, tokens, cost = values
    if not status:
        return None
    return RowFacts(
        title=str(title or ""),
        status=str(status),
        turns=None if turns is None else int(turns),
        total_tokens=None if tokens is None else int(tokens),
        cost_nano_dollars=None if cost is None else int(cost),
    )


def _fitting(text: str, most: int) -> str:
    """The text in a form that every engine can keep: without NUL and lone surrogates, and not too long."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:most]


def _bounded(number: int | None) -> int | None:
    return None if number is None else min(max(number, 0), _MAX_INTEGER)
