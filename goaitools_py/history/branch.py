"""A conversation made from another one: a fork, an earlier point of it, or the history before the newest cut.

Owns: these pure steps from blob to blob, and the text that says why a cut cannot be undone. Must never know:
a store, a model, or the format of a record of the archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ..backends.base import Dialect
from ..backends.dialects import dialect_for
from ..base.values import replace
from ..open_turn.meter import count_entries, gauge_of, unanchored
from ..open_turn.turn_ids import TURN_IDS_FACT, with_texts
from ..state.closed_turns import ClosedTurn, has_gap, numbers_of, with_numbers
from ..state.codec import PLAIN, Codec
from ..state.media_rows import results_of, with_results
from ..state.parts import ARCHIVE
from ..state.records import cut_facts, digest8, fresh_id, with_cut
from ..state.row_codec import bounded
from ..state.state import (
    ConversationState,
    closed_turns,
    dump_state,
    hard_limits,
    load_state,
    rebuild,
    without_lost,
)
from ..types.options import check_options
from .archive_reading import is_undoable, newest_cut, undoable, undone
from .rewrite.repair import REPAIRED, checked
from .rewrite.rewritten import UNSIGNED, unsigned_turns

__all__ = ["fork_state", "rewind_state", "undo_cut"]


def fork_state(
    blob: bytes | bytearray | memoryview,
    *,
    conversation_id: str | None = None,
    codec: Codec = PLAIN,
    binding: Any = None,
) -> bytes:
    """Copy a conversation under an id of its own, so that its tool calls have idempotency keys of their own.

    Without `conversation_id` the id is random. An unfinished turn can be finished in both copies.

    Raises `StateError` if the blob cannot be read.
    """
    check_options({"conversation_id": conversation_id})
    state = load_state(blob, codec=codec, binding=binding)
    meta = msgspec.structs.replace(state.meta, id=conversation_id or fresh_id())
    return _next(blob, replace(state, meta=meta), codec, binding)


def rewind_state(
    blob: bytes | bytearray | memoryview,
    turns: int = 1,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    dialect: Dialect | None = None,
) -> bytes:
    """Take the newest turns out of a conversation. An unfinished turn counts as one turn.

    Usage and cost stay counted, a `turn_id` stays used, and waiting messages stay in the inbox.

    Args:
        blob: The state.
        turns: How many turns to take out. Turns from before the newest cut can be taken out only if the blob
            has the record of this cut; see ``Compactor(…, retain=True)``. The cut is then undone: the
            turns come back as they were before it.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        dialect: The dialect of a provider API that is not built in.

    Raises:
        ValueError: There are fewer turns since the newest cut that cannot be undone. The text says how many.
        StateError: The blob cannot be read.
    """
    if not isinstance(turns, int) or turns < 1:
        raise ValueError(f"turns must be a positive whole number, got {turns!r}")
    state = load_state(blob, codec=codec, binding=binding)
    dialect = dialect_for(state.meta.wire, dialect)
    left, is_unbound = turns, False
    while left > (there := _since_cut(state) + (state.open is not None)):
        behind = state if not there else _without_newest(state, there, dialect)
        if not is_undoable(behind, codec, binding):
            possible = turns - left + there
            there_are = "there is 1 turn" if possible == 1 else f"there are {possible} turns"
            since = " since the newest cut" if state.meta.cuts else ""
            raise ValueError(f"{there_are}{since}, and {turns} cannot go")
        state = undone(behind, codec, binding)
        left -= there
        is_unbound = state.meta.unbound
    return _next(blob, _without_newest(state, left, dialect, is_unbound=is_unbound), codec, binding)


def _without_newest(
    state: ConversationState, turns: int, dialect: Dialect, *, is_unbound: bool = False
) -> ConversationState:
    """Remove so many of the newest turns. All of them are younger than the newest cut.

    `is_unbound`: the signed blocks that an undone cut gave back do not fit their prefix now.
    """
    meta, closed = state.meta, closed_turns(state)
    was_open = state.open is not None
    left = turns - was_open
    kept, removed = closed[: len(closed) - left], closed[len(closed) - left :]
    begun = state.open.facts.get(TURN_IDS_FACT, ()) if state.open is not None else ()
    size, frame = state.history_bytes() or 1, min(meta.tokens, gauge_of(meta).frame)
    state = without_lost(state, rebuild(replace(state, open=None), kept))
    meta = msgspec.structs.replace(
        with_texts(meta, removed, dialect),
        messages=sum(turn.record.messages for turn in kept),
        turns=len(kept),
        processed=meta.processed + was_open,  # its number is not given again
        tokens=frame + (meta.tokens - frame) * state.history_bytes() // size,
        gauge=unanchored(meta).gauge,
        context="",
        turn=tuple(row for row in meta.turn if row.id not in begun),
        unbound=is_unbound,
        failed=(),
        status="complete",
        cuts=with_cut(meta, meta.updated, "rewound", 0, 0),
        gap=has_gap(kept, meta.processed + was_open),
    )
    return replace(state, meta=meta)


def _since_cut(state: ConversationState) -> int:
    """How many closed turns are younger than the newest cut.

    A cut that removed nothing counts only if its record is in the archive. Then the originals of its turns
    are there, and these turns must not be taken out of the history alone.
    """
    closed = closed_turns(state)
    kept = any(part.kind == ARCHIVE for part in state.parts)
    for row in reversed(state.meta.cuts):
        facts = cut_facts(row)
        if not (row.turns or row.messages or (kept and facts is not None and facts.record)):
            continue
        if facts is None:  # another writer's row: its clock has to do
            return sum(turn.record.at > row.at for turn in closed)
        return sum(number > facts.number for number in numbers_of([turn.record for turn in closed]))
    return len(closed)


def _next(blob: Any, state: ConversationState, codec: Codec, binding: Any) -> bytes:
    meta = msgspec.structs.replace(state.meta, rev=state.meta.rev + 1, parent=digest8(bytes(blob)[:112]))
    return dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))


_CORRECTIONS: Final = (REPAIRED, UNSIGNED)
"""Changes of the closed history that no compactor has made. They are undone together with the cut before
them. The turn that made them, or the next turn, makes them again if they are still needed."""


def undo_cut(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
) -> bytes:
    """Undo the newest cut: its turns come back as they were before it, from the archive in the state.

    Without a turn since the cut, the conversation is as before the cut: its signed thinking is valid again.
    Turns since the cut follow the turns that come back. Their signed thinking is taken out, because it was
    signed over the shorter history. Usage, cost, used ids and waiting messages stay. Call it again to undo
    the cut before. Turns that were repaired since the cut, or lost their signed thinking, come back as they
    were, too. The next turn takes signed thinking out again if it does not fit.

    Args:
        blob: The state. It has the record of its newest cut, see ``Compactor(…, retain=True)``.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        min_revision: The lowest revision that the state may have.
        dialect: The dialect of a provider API that is not built in.

    Raises:
        ValueError: There is no cut, a turn is unfinished, or the record of the cut is not there. The text
            names the remedy.
        StateTooLargeError: The whole history is too large for a state.
        StateError: The blob cannot be read.
    """
    state = load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    results = results_of(state.parts)
    dialect = dialect_for(state.meta.wire, dialect)
    if state.open is not None:
        raise ValueError(
            "the newest cut cannot be undone while a turn is unfinished: finish it with resume, or take it "
            "out with rewind_state(state), then undo the cut"
        )
    since: list[ClosedTurn] = []
    while True:
        record = undoable(state, codec, binding)
        if record is None:
            raise ValueError(_why_not(state))
        turns = with_numbers(closed_turns(state))
        numbers = numbers_of([turn.record for turn in turns])
        first = next((place for place, number in enumerate(numbers) if number > record.number), len(turns))
        since[:0] = turns[first:]
        state = undone(rebuild(state, turns[:first]), codec, binding)
        if record.by not in _CORRECTIONS or newest_cut(state.meta) is None:
            break
    if since:
        state = _with_turns_since(state, since, dialect)
    state = replace(state, parts=with_results(state.parts, results))  # also those of the turns since
    meta = msgspec.structs.replace(state.meta, rev=state.meta.rev + 1, parent=digest8(bytes(blob)[:112]))
    return dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))


def _with_turns_since(
    early: ConversationState, since: Sequence[ClosedTurn], dialect: Dialect
) -> ConversationState:
    """The state before a cut, with the turns since the cut behind it. The whole history is checked."""
    since = unsigned_turns(since, dialect)
    turns = [*with_numbers(closed_turns(early)), *since]
    meta = unanchored(early.meta)
    added = count_entries([entry for turn in since for entry in turn.entries], dialect)
    meta = msgspec.structs.replace(
        meta,
        messages=meta.messages + sum(turn.record.messages for turn in since),
        turns=meta.turns + len(since),
        tokens=bounded(gauge_of(meta).expected(added)),
        context="",  # the newest context block is not where the record says, so the context is sent again
        rules=0,
        gap=has_gap(turns, meta.processed),
    )
    state, _ = checked(replace(rebuild(early, turns), meta=meta), dialect)
    return state


def _why_not(state: ConversationState) -> str:
    """The reason why the newest cut cannot be undone, and the remedy."""
    row = newest_cut(state.meta)
    if row is None:
        return "there is no cut to undo; rewind_state(state, turns) takes the newest turns out"
    archive = [part for part in state.parts if part.kind == ARCHIVE]
    if archive and not archive[-1].is_here:
        return (
            "the newest cut cannot be undone: the archive of this state is kept elsewhere; undo it through "
            "conversation.undo_cut(), or in the whole state of conversation.state()"
        )
    return (
        f"the newest cut (by {row.by!r}) cannot be undone: the archive has no record of it that fits. "
        "Compactor(…, retain=True) keeps records, up to retain_bytes. What is possible: take out turns since "
        "the cut, with rewind_state(state, turns)"
    )
