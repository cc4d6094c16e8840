"""Narrow the history of a state that a server refused, although the rules of its API allow it.

Owns: the closed turns, the open turn and its journal in the view of a host (`ViewsHistory`), and the notes of
the changes. Must never know: the content of an entry, which server was asked, or how a turn runs.

The inbox stays as it is: this package writes all of it, in the narrow form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ...backends.base import Dialect
from ...backends.protocols import HostRules, NarrowedHistory, is_read, narrowed_history
from ...base.values import replace
from ...state.closed_turns import ClosedTurn, with_numbers
from ...state.records import OpenTurn
from ...state.state import ConversationState, closed_turns
from ...types.errors import StateInvalidError
from ..archive_keeping import Retention
from .mend import summary
from .repair import repaired, with_repairs
from .rewritten import is_signed, rewritten, unsigned_turns

__all__ = ["narrowed"]


def narrowed(
    state: ConversationState, dialect: Dialect, *, retention: Retention | None = None
) -> tuple[ConversationState, Mapping[str, int]]:
    """The state with its history in the narrowest form of its provider API, and the changes.

    Ids of calls change in the open turn's journal and in the facts of turns, too. Calls and results that lose
    their counterpart are repaired. If the text for the model changes, the signed blocks leave the closed
    turns, as after any other rewrite. The same object if nothing changes, or if the repair fails.

    `retention`: the limits for the record of the change in the archive; None: keep no record.
    """
    turns, opened = closed_turns(state), state.open
    entries = [entry for turn in turns for entry in turn.entries]
    whole = [*entries, *(opened.entries if opened is not None else ())]
    found = narrowed_history(dialect, whole, HostRules(fully=True))
    if not found.log:
        return state, {}
    made = state if opened is None else replace(state, open=_opened(opened, found, len(entries)))
    if any(at < len(entries) for _, at in found.log):
        made = _closed(made, with_numbers(turns), found, dialect, retention=retention)
    if made.open is not None and is_signed(made.open.entries, dialect) and _is_read(found, at_most=None):
        made = replace(made, meta=msgspec.structs.replace(made.meta, unbound=True))
    with suppress(StateInvalidError):
        made, more = repaired(made, dialect, retention=retention)
        return made, dict(sorted((Counter(summary(found.log)) + Counter(more)).items()))
    return state, {}


def _is_read(found: NarrowedHistory, *, at_most: int | None) -> bool:
    """True if the text for a model has changed in the first `at_most` entries; None: in all."""
    return any(is_read(kind) for kind, at in found.log if at_most is None or at < at_most)


def _closed(
    state: ConversationState,
    turns: Sequence[ClosedTurn],
    found: NarrowedHistory,
    dialect: Dialect,
    *,
    retention: Retention | None,
) -> ConversationState:
    left = list(_turns(turns, found))
    is_reread = _is_read(found, at_most=sum(len(turn.entries) for turn in turns))
    kept = [turn for turn in (unsigned_turns(left, dialect) if is_reread else left) if turn.entries]
    gone = [old for old, new in zip(turns, left, strict=True) if old.entries and not new.entries]
    return rewritten(state, turns, kept, gone, dialect, is_unsigned=is_reread, retention=retention)


def _turns(turns: Sequence[ClosedTurn], found: NarrowedHistory) -> Iterator[ClosedTurn]:
    """The closed turns with their new entries. The facts of each turn list its changes."""
    kinds: dict[int, list[str]] = {}
    for kind, at in found.log:
        kinds.setdefault(at, []).append(kind)
    end = 0
    for turn in turns:
        start, end = end, end + len(turn.entries)
        made = turn.with_entries(found.entries[start:end])
        facts = _with_ids(made.record.facts, _ids(found, start, end))
        record = made.record if facts is made.record.facts else replace(made.record, facts=facts)
        if own := [(kind, at) for at in range(start, end) for kind in kinds.get(at, ())]:
            record = with_repairs(record, {}, own)
        yield made if record is made.record else replace(made, record=record)


def _opened(turn: OpenTurn, found: NarrowedHistory, start: int) -> OpenTurn:
    """The open turn with its new entries, journal and facts. `start`: the place of its first entry."""
    entries, ids = found.entries[start:], _ids(found, start, start + len(turn.entries))
    # The entries behind the last reply are not from a model, and closing would give them an iteration.
    end = len(turn.entries) - len(turn.letters)
    answered = replace(turn, entries=turn.entries[:end], letters="").closed()
    left = answered.with_entries(entries[:end])
    asked = [new or old for new, old in zip(entries[end:], turn.entries[end:], strict=True)]
    return replace(
        turn,
        entries=(*left.entries, *asked),
        iterations=left.record.iterations,
        messages=left.record.messages,
        calls=tuple([replace(call, id=ids[call.id]) if call.id in ids else call for call in turn.calls]),
        facts=_with_ids(turn.facts, ids),
    )


def _ids(found: NarrowedHistory, start: int, end: int) -> Mapping[str, str]:
    """The new ids of calls in these entries, by the given ids. The newest call with an id counts."""
    return {old: new for ids in found.ids[start:end] for old, new in ids.items()}


def _with_ids(facts: Mapping[str, Any], ids: Mapping[str, str]) -> Mapping[str, Any]:
    """The facts of a turn, with the new ids of calls. The same object if no id changes."""
    flags = facts.get("flags")
    if not ids or not isinstance(flags, Mapping):
        return facts
    return {**facts, "flags": {ids.get(id, id): flag for id, flag in flags.items()}}
