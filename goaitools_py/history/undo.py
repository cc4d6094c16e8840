"""Undo the newest cut, and put the turns since then behind the turns that come back.

Owns: the pure step from blob to blob, and the text that says why a cut cannot be undone. Must never know: a
store, or the format of a record of the archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ..backends.base import Dialect
from ..base.values import replace
from ..open_turn.meter import count_entries, gauge_of, unanchored
from ..state.closed_turns import ClosedTurn, has_gap, numbers_of, with_numbers
from ..state.codec import PLAIN, Codec
from ..state.parts import ARCHIVE
from ..state.records import digest8
from ..state.row_codec import bounded
from ..state.state import ConversationState, closed_turns, dump_state, hard_limits, load_state, rebuild
from .archive.undoing import newest_cut, undoable, undone
from .rewrite.repair import REPAIRED, checked
from .rewrite.unsign import UNSIGNED, unsigned_turns
from .wires import dialect_for

__all__ = ["undo_cut"]


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
