"""States with histories that no provider would take: a blob of an older or broken writer, an import.

Owns: when a state's closed history is checked, and what its turns, facts and meta data say after a repair.
Must never know: how entries are mended (`mending`), a clock, or what a turn does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final

import msgspec

from ..backends import rules
from ..backends.base import Dialect
from ..state.records import RULES_VERSION, Iteration, TurnRecord, with_cut
from ..state.state import ConversationState, closed_turns, rebuild
from ..values import replace
from .mending import Entry, Mend, Mended, mended, problems, require_valid, summary
from .turn_ids import with_texts
from .unsign import Turn, is_signed, unsigned_turns

__all__ = ["checked", "noted", "repaired"]

FACT: Final = "repaired"
"""The name under which a turn's facts say what was mended in it: kinds and how often."""


def checked(state: ConversationState, dialect: Dialect) -> tuple[ConversationState, Mapping[str, int]]:
    """The state with a closed history that its provider takes, and what was mended for that.

    Costs nothing if whoever wrote the state says that it was valid under the rules of today. Else the
    history is read once, and the state says so from then on.

    Raises:
        StateInvalidError: The history cannot be read, or not be mended.
    """
    if state.meta.rules >= RULES_VERSION:
        return state, {}
    state, log = repaired(state, dialect)
    opened = state.open
    if opened is not None and problems(dialect.wire, opened.entries, open_end=True):
        return state, log  # it is checked again once it is closed
    return replace(state, meta=msgspec.structs.replace(state.meta, rules=RULES_VERSION)), log


def repaired(state: ConversationState, dialect: Dialect) -> tuple[ConversationState, Mapping[str, int]]:
    """The state with its closed history mended, whatever is said of it, and what was mended.

    If anything was, signed blocks are taken out of the closed turns, as after any other rewrite, and the
    journal of cuts has a row more. The very object if the rules find nothing.

    Raises:
        StateInvalidError: The history cannot be read, or not be mended.
    """
    if dialect.wire not in rules.WIRES:
        return state, {}
    turns = closed_turns(state)
    found = mended([entry for entries, _ in turns for entry in entries], dialect)
    if not found.log:
        return state, {}
    kept, gone = _turns(turns, found, dialect)
    kept = [turn for turn in unsigned_turns(kept, dialect) if turn[0]]
    require_valid(dialect.wire, [entry for entries, _ in kept for entry in entries])
    still = state.open is not None and is_signed(state.open.entries, dialect)
    messages = sum(record.messages for _, record in kept)
    meta = msgspec.structs.replace(
        with_texts(state.meta, [turn for turn in gone if _is_readable(turn[0], dialect)], dialect),
        messages=messages,
        turns=len(kept),
        context="",  # the message that carried it may be gone: say it again
        signed=still,
        unbound=still,
        # The time of the last writing: a repair looks at no clock.
        cuts=with_cut(
            state.meta,
            state.meta.updated,
            "repaired",
            len(turns) - len(kept),
            max(0, state.meta.messages - messages),
        ),
    )
    return replace(rebuild(state, kept), meta=meta), summary(found.log)


def _is_readable(entries: Sequence[bytes], dialect: Dialect) -> bool:
    with suppress(ValueError):
        dialect.view(entries)
        return True
    return False


def noted(turns: Sequence[Turn], found: Mended) -> list[Turn]:
    """Turns of a mended history, with flags and kinds of what was done in each among their facts.

    `turns` have the entries of `found`, in order. What was done at an entry that is gone is a fact of the
    next turn that is there.
    """
    left = iter(found.entries)
    flags: list[dict[str, str]] = []
    ends: list[int] = []
    for entries, _ in turns:
        own = [next(left) for _ in entries]
        flags.append({id: flag for one in own for id, flag in one.flags.items()})
        ends.append(max((one.source for one in own if one.source is not None), default=-1))
    ends = list(accumulate(ends, max))
    kinds: list[list[tuple[Mend, int]]] = [[] for _ in turns]
    for kind, at in found.log if turns else ():
        kinds[min(bisect_left(ends, at), len(turns) - 1)].append((kind, at))
    return [
        (entries, _with_facts(record, own_flags, own_kinds) if own_flags or own_kinds else record)
        for (entries, record), own_flags, own_kinds in zip(turns, flags, kinds, strict=True)
    ]


def _with_facts(
    record: TurnRecord, flags: Mapping[str, str], kinds: Sequence[tuple[Mend, int]]
) -> TurnRecord:
    facts: dict[str, Any] = dict(record.facts)
    if flags:
        facts["flags"] = {**facts.get("flags", {}), **flags}
    if kinds:
        before = facts.get(FACT)
        facts[FACT] = {**(before if isinstance(before, dict) else {}), **summary(kinds)}
    return replace(record, facts=facts)


def _turns(turns: Sequence[Turn], found: Mended, dialect: Dialect) -> tuple[list[Turn], list[Turn]]:
    """The turns with their mended entries, and those, as they were, of which nothing is left.

    What was put in is of the turn in which it stands, and of its next iteration if it follows a reply.
    """
    places = [
        (turn, iteration, letter)
        for turn, (_, record) in enumerate(turns)
        for iteration, one in enumerate(record.iterations)
        for letter in one.roles
    ]
    given = [entry for entries, _ in turns for entry in entries]
    own: list[list[Entry]] = [[] for _ in turns]
    roles: list[list[str]] = [[""] * len(record.iterations) for _, record in turns]
    turn, iteration, last = 0, 0, ""
    for one in found.entries:
        letter = one.letter
        if one.source is not None:
            *place, was = places[one.source]
            # Never back: what is moved towards the beginning stands where it is put.
            turn, iteration = max((turn, iteration), (place[0], place[1]))
            letter = was if one.entry is given[one.source] else letter
        elif last == "a":
            iteration += 1
        if iteration == len(roles[turn]):
            roles[turn].append("")
        roles[turn][iteration] += letter
        own[turn].append(one)
        last = letter
    kept: list[Turn] = []
    gone: list[Turn] = []
    for old, entries, letters in zip(turns, own, roles, strict=True):
        if [one.entry for one in entries] == list(old[0]):
            kept.append(old)
        elif entries:
            kept.append(_rebuilt(old[1], [one.entry for one in entries], letters, dialect))
        else:
            gone.append(old)
    return noted([turn for turn in kept if turn[0]], found), gone


def _rebuilt(record: TurnRecord, entries: list[bytes], roles: Sequence[str], dialect: Dialect) -> Turn:
    known = record.iterations
    iterations = [
        replace(known[n], roles=letters) if n < len(known) else Iteration(roles=letters)
        for n, letters in enumerate(roles)
    ]
    count = len(dialect.view(entries))
    return entries, replace(record, iterations=tuple(iterations), messages=count)
