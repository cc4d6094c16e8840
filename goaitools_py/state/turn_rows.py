"""Write turns as rows, and read them again: the last line of a history segment.

Owns: the rows of turns and iterations. Must never know: an entry, or where the line stands.

::

    turn        [at, messages, iterations, facts?]
    iteration   [roles, finish reason, input, cached, cache write, output, reasoning tokens, start, ms, more?]

`roles` has one letter for each entry: s, u, e (event), a, t. `at` counts milliseconds since the conversation
began, `start` milliseconds since the turn began, `ms` how long the model took. `more` is one JSON object, to
which later releases add names; it is left out while it is empty.

The rows are checked on their first use, strictly. Where the strict reader refuses a row, `forward_compat`
reads it once more: it keeps the names of a later release byte for byte, and raises `StateVersionError` for a
value that this release cannot understand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from ..base import rawjson
from ..base.values import replace
from ..types.errors import StateError
from ..types.messages import Usage
from . import forward_compat
from .closed_turns import FACTS, Iteration, TurnRecord
from .forward_compat import raw_facts, unreadable
from .letters import LETTERS
from .records import usage_of
from .row_codec import MAX_COUNT, NO_MORE, Count, as_json, bounded, bounded_row, decoded

__all__ = [
    "IterationRow",
    "RoleLetters",
    "are_known",
    "checked_facts",
    "iteration_of",
    "letters_in",
    "records_in",
    "row_of",
    "turn_columns",
]

RoleLetters: TypeAlias = Annotated[str, msgspec.Meta(pattern=rf"^[{LETTERS}]*\Z")]


class IterationRow(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A model call of a turn; see the module for its elements."""

    roles: RoleLetters
    finish_reason: str
    input: Count
    cached: Count
    cache_write: Count
    output: Count
    reasoning: Count
    start: Count
    ms: Count
    more: msgspec.Raw = NO_MORE


class _TurnRow(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    at: Count
    messages: Count
    iterations: list[IterationRow]
    facts: dict[str, Any] = {}


_TURN_COLUMNS = msgspec.json.Decoder(list[_TurnRow])
_FACTS_AT: Final = _TurnRow.__struct_fields__.index("facts")


def row_of(iteration: Iteration) -> list[Any]:
    """Give the row of an iteration, with its numbers within their bounds."""
    u = iteration.usage
    counts = (
        u.input_tokens,
        u.cached_input_tokens,
        u.cache_write_tokens,
        u.output_tokens,
        u.reasoning_tokens,
        iteration.start,
        iteration.ms,
    )
    row: list[Any] = [iteration.roles, iteration.finish_reason, *bounded_row(counts)]
    if iteration.more:
        row.append(msgspec.Raw(iteration.more))
    return row


def _turn_column(record: TurnRecord) -> bytes:
    row: list[Any] = [
        bounded(record.at),
        bounded(record.messages),
        [row_of(item) for item in record.iterations],
    ]
    if record.facts:
        row.append(record.facts)
    return as_json(row)


def turn_columns(records: Iterable[TurnRecord]) -> bytes:
    """Write turns as the last line of a history segment. Join two of these lines with a comma."""
    return b",".join(_turn_column(record) for record in records)


def letters_in(columns: bytes) -> Counter[str]:
    """Count the role letters of a line of turn columns."""
    found: Counter[str] = Counter()
    for row in decoded(_TURN_COLUMNS, b"[" + columns + b"]", _refused_turns):
        for item in row.iterations:
            found.update(item.roles)
    return found


def records_in(columns: bytes) -> list[TurnRecord]:
    """Read a line of turn columns; see `turn_columns`."""
    data = b"[" + columns + b"]"
    rows = decoded(_TURN_COLUMNS, data, _refused_turns)
    if not all(are_known(row.iterations) for row in rows):
        raise _refused_turns(data)
    records = [
        TurnRecord(
            at=row.at,
            messages=row.messages,
            iterations=tuple(iteration_of(item) for item in row.iterations),
            facts=checked_facts(row.facts),
        )
        for row in rows
    ]
    if not all(row.facts.keys() <= FACTS for row in rows):
        records = [
            record
            if record.facts.keys() <= FACTS
            else replace(record, facts=raw_facts(record.facts, rawjson.items(raw)[_FACTS_AT]))
            for record, raw in zip(records, rawjson.items(data), strict=True)
        ]
    return records


def _refused_turns(data: bytes) -> StateError:
    return forward_compat.refused_rows(data, "the turn columns")


def are_known(rows: Sequence[IterationRow]) -> bool:
    """Tell whether each row ends with its own elements, or with one object behind them."""
    return all(not row.more or forward_compat.is_object(row.more) for row in rows)


def checked_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Check the types of the facts that this release uses, and give all facts."""
    flags = facts.get("flags", {})
    flags_are_text = isinstance(flags, dict) and all(isinstance(flag, str) for flag in flags.values())
    every = [facts[name] for name in ("turn_ids", "same_call") if name in facts]
    ids_are_text = all(isinstance(ids, list) and all(isinstance(id, str) for id in ids) for ids in every)
    started = facts.get("calls_started", 0)
    started_is_count = type(started) is int and 0 <= started <= MAX_COUNT
    partial_is_text = isinstance(facts.get("interrupted", ""), str)
    metadata = facts.get("metadata", {})
    metadata_is_text = isinstance(metadata, dict) and all(isinstance(one, str) for one in metadata.values())
    failed = facts.get("failed", [])
    failed_is_text = isinstance(failed, list) and len(failed) <= 2 and all(isinstance(x, str) for x in failed)
    answers = facts.get("answers", [])
    answers_are_places = isinstance(answers, list) and all(
        type(x) is int and 0 <= x <= MAX_COUNT for x in answers
    )
    status_is_text = isinstance(facts.get("status", ""), str)
    unsent_is_bool = type(facts.get("unsent", False)) is bool
    acts_are_rows = all(map(_is_act, acts)) if isinstance(acts := facts.get("acts", []), list) else False
    citations_are_rows = isinstance(facts.get("citations", []), list)
    if not (
        flags_are_text
        and ids_are_text
        and started_is_count
        and partial_is_text
        and metadata_is_text
        and failed_is_text
        and answers_are_places
        and status_is_text
        and acts_are_rows
        and citations_are_rows
        and unsent_is_bool
    ):
        raise unreadable("the turn facts")
    return facts


def _is_act(row: Any) -> bool:
    """Whether this is a text, and perhaps an object behind it."""
    is_row = isinstance(row, list) and 0 < len(row) <= 2
    return is_row and isinstance(row[0], str) and all(isinstance(one, dict) for one in row[1:])


def iteration_of(row: IterationRow) -> Iteration:
    """Read an iteration from its row."""
    counts = (row.input, row.cached, row.cache_write, row.output, row.reasoning)
    usage = usage_of((*counts, 1)) if any(counts) else Usage()
    return Iteration(
        roles=row.roles,
        finish_reason=row.finish_reason,
        usage=usage,
        start=row.start,
        ms=row.ms,
        more=bytes(row.more),
    )
