"""Repair a history that the provider would refuse: of an older or broken writer, or of an import.

Owns: when the closed history of a state is checked, and its turns, facts and meta data after a repair.
Must never know: how entries are mended (`mend`), a clock, or how a turn runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec

from ...backends.base import Dialect
from ...backends.protocols import ChecksHistory, problems_of
from ...base.values import replace
from ...state.closed_turns import ClosedTurn, TurnRecord, with_numbers
from ...state.letters import ASSISTANT
from ...state.records import RULES_VERSION
from ...state.state import ConversationState, closed_turns
from ..archive_keeping import Retention
from .mend import Entry, Mended, mended, require_valid, summary
from .rewritten import REPAIRED, rewritten, unsigned_turns

__all__ = ["REPAIRED", "checked", "noted", "repaired"]

_REPAIRED_FACT: Final = "repaired"
"""The name of a turn fact: the number of repairs of each kind in the turn."""


def checked(
    state: ConversationState, dialect: Dialect, *, retention: Retention | None = None
) -> tuple[ConversationState, Mapping[str, int]]:
    """The state with a closed history that its provider takes, and the repairs; see `repaired`.

    The history is read only if the state says that it was written under older rules. After the check the
    state says that it is valid under the rules of today.

    Raises:
        StateInvalidError: The history cannot be read, or cannot be mended.
    """
    if state.meta.rules >= RULES_VERSION:
        return state, {}
    state, log = repaired(state, dialect, retention=retention)
    opened = state.open
    if opened is not None and problems_of(dialect, opened.entries, open_end=True):
        return state, log  # the state is checked again after this turn is closed
    return replace(state, meta=msgspec.structs.replace(state.meta, rules=RULES_VERSION)), log


def repaired(
    state: ConversationState, dialect: Dialect, *, retention: Retention | None = None
) -> tuple[ConversationState, Mapping[str, int]]:
    """The state with its closed history mended, and the repairs. The history is always read.

    After a repair, as after any rewrite, the closed turns lose their signed blocks, and the list of cuts has
    a new row. The same object if the rules find nothing, and for a dialect without `ChecksHistory`.

    `retention`: the limits for the record of the repair in the archive; None: keep no record.

    Raises:
        StateInvalidError: The history cannot be read, or cannot be mended.
    """
    if not isinstance(dialect, ChecksHistory):
        return state, {}
    turns = closed_turns(state, checked=False)
    found = mended([entry for turn in turns for entry in turn.entries], dialect)
    if not found.log:
        return state, {}
    turns = with_numbers(turns)
    kept, gone = _turns(turns, found, dialect)
    kept = [turn for turn in unsigned_turns(kept, dialect) if turn.entries]
    require_valid(dialect, [entry for turn in kept for entry in turn.entries])
    made = rewritten(state, turns, kept, gone, dialect, is_unsigned=True, retention=retention)
    return made, summary(found.log)


def noted(turns: Sequence[ClosedTurn], found: Mended) -> list[ClosedTurn]:
    """The turns of a mended history. The facts of each get the flags and the kinds of its repairs.

    `turns` have the entries of `found`, in order. The repair of an entry that is gone is noted in the next
    turn, or in the last one.
    """
    left = iter(found.entries)
    flags: list[dict[str, str]] = []
    ends: list[int] = []
    for turn in turns:
        own = [next(left) for _ in turn.entries]
        flags.append({id: flag for one in own for id, flag in one.flags.items()})
        ends.append(max((one.source for one in own if one.source is not None), default=-1))
    ends = list(accumulate(ends, max))
    kinds: list[list[tuple[str, int]]] = [[] for _ in turns]
    for kind, at in found.log if turns else ():
        kinds[min(bisect_left(ends, at), len(turns) - 1)].append((kind, at))
    return [
        replace(turn, record=_with_repairs(turn.record, own_flags, own_kinds))
        if own_flags or own_kinds
        else turn
        for turn, own_flags, own_kinds in zip(turns, flags, kinds, strict=True)
    ]


def _with_repairs(
    record: TurnRecord, flags: Mapping[str, str], kinds: Sequence[tuple[str, int]]
) -> TurnRecord:
    """The record with these flags of results, by call id, and with these kinds of repairs in its facts."""
    facts: dict[str, Any] = dict(record.facts)
    if flags:
        facts["flags"] = {**facts.get("flags", {}), **flags}
    if kinds:
        before = facts.get(_REPAIRED_FACT)
        facts[_REPAIRED_FACT] = {**(before if isinstance(before, dict) else {}), **summary(kinds)}
    return replace(record, facts=facts)


def _turns(
    turns: Sequence[ClosedTurn], found: Mended, dialect: Dialect
) -> tuple[list[ClosedTurn], list[ClosedTurn]]:
    """The turns with their mended entries, and the old turns of which nothing is left.

    An added entry belongs to the turn at its place. Behind a reply it belongs to the next iteration.
    """
    places = [
        (turn, iteration, letter)
        for turn, closed in enumerate(turns)
        for iteration, one in enumerate(closed.record.iterations)
        for letter in one.roles
    ]
    given = [entry for closed in turns for entry in closed.entries]
    own: list[list[Entry]] = [[] for _ in turns]
    roles: list[list[str]] = [[""] * len(closed.record.iterations) for closed in turns]
    turn, iteration, last = 0, 0, ""
    for one in found.entries:
        letter = one.letter
        if one.source is not None:
            *place, was = places[one.source]
            # Never back: an entry that was moved towards the beginning belongs to its new place.
            turn, iteration = max((turn, iteration), (place[0], place[1]))
            letter = was if one.entry is given[one.source] else letter
        elif last == ASSISTANT:
            iteration += 1
        if iteration == len(roles[turn]):
            roles[turn].append("")
        roles[turn][iteration] += letter
        own[turn].append(one)
        last = letter
    kept: list[ClosedTurn] = []
    gone: list[ClosedTurn] = []
    for old, entries, letters in zip(turns, own, roles, strict=True):
        now = tuple([one.entry for one in entries])
        if now == old.entries:
            kept.append(old)
        elif now:
            kept.append(old.with_iterations(letters, now, messages=len(dialect.view(now))))
        else:
            gone.append(old)
    return noted([turn for turn in kept if turn.entries], found), gone
