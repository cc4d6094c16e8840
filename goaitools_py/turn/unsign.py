"""Taking signed blocks out of closed turns, when what stands before them has changed.

Owns: the stored rewrite that strips thinking and reasoning, and what stays signed after it.
Must never know: why the prefix changed, or which blocks a wire signs (that is the dialect's).

A provider that signs a block over everything before it refuses or drops it behind another prefix, and all
that were signed after it. So blocks are taken out of the whole closed history at once, never out of its
middle. An open turn keeps its own: its next request has to ask the provider to drop what does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from ..backends.base import Dialect
from ..state.records import Iteration, TurnRecord, with_cut
from ..state.state import ConversationState, closed_turns, rebuild
from ..values import replace

__all__ = ["Turn", "is_signed", "unsign", "unsigned_turns"]

Turn: TypeAlias = tuple[Sequence[bytes], TurnRecord]


def is_signed(entries: Sequence[bytes], dialect: Dialect) -> bool:
    """True if there are signed blocks in these entries."""
    return any(new is not old for new, old in zip(dialect.unsigned(entries), entries, strict=True))


def unsigned_turns(turns: Sequence[Turn], dialect: Dialect) -> list[Turn]:
    """The turns without their signed blocks; entries of which nothing is left are gone."""
    return [_unsigned(entries, record, dialect) for entries, record in turns]


def _unsigned(entries: Sequence[bytes], record: TurnRecord, dialect: Dialect) -> Turn:
    stripped = dialect.unsigned(entries)
    if all(new is old for new, old in zip(stripped, entries, strict=True)):
        return entries, record
    left = iter(stripped)
    messages = record.messages
    iterations: list[Iteration] = []
    for iteration in record.iterations:
        roles = "".join(letter for letter in iteration.roles if next(left))
        if "a" in iteration.roles and "a" not in roles:
            messages -= 1  # the whole reply was signed
        iterations.append(replace(iteration, roles=roles))
    kept = [entry for entry in stripped if entry]
    return kept, replace(record, iterations=tuple(iterations), messages=messages)


def unsign(state: ConversationState, dialect: Dialect, *, at: int) -> ConversationState:
    """The state with its closed turns unsigned, as its journal of cuts then says.

    `at`: milliseconds after the conversation began.
    """
    turns = unsigned_turns(closed_turns(state), dialect)
    still = state.open is not None and is_signed(state.open.entries, dialect)
    meta = msgspec.structs.replace(
        state.meta,
        messages=sum(record.messages for _, record in turns),
        signed=still,
        unbound=still,
        cuts=with_cut(state.meta, at, "unsigned", 0, 0),
    )
    return replace(rebuild(state, turns), meta=meta)
