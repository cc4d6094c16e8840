"""The note in a history that tells the model of its tool ``recall``.

Owns: the note's text, where it stands, and when it is left out. Must never know: how the tool searches, or
who makes the cut: a compactor, or a limit.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

from ..base.values import replace
from .base import CompactionRequest, Kept, NoChange, Planned
from .turn_views import TurnView

__all__ = ["RECALL", "is_only_note_removed", "with_recall_note"]

RECALL: Final = "recall"
"""The name of the tool that searches the archive, and the kind of the note."""

RECALL_NOTE: Final = (
    "Earlier turns of this conversation are no longer shown. They are kept word for word: the tool recall "
    "searches them."
)


def with_recall_note(request: CompactionRequest, turns: Any) -> Any:
    """Put a note in front of the turns in a strategy's answer, if a cut removes turns.

    Beside the provider's own compaction there is no note: the provider has signed the entries behind it.
    """
    if isinstance(turns, Generator):
        return _noted_later(request, turns)
    if isinstance(turns, Planned):
        return replace(turns, turns=with_recall_note(request, turns.turns))
    if isinstance(turns, NoChange):
        return turns
    if isinstance(turns, Kept):
        return replace(turns, turns=with_recall_note(request, turns.turns))
    kept = tuple(turns)
    if not all(isinstance(turn, TurnView) for turn in kept):
        return turns  # `checked_turns` reports the mistake
    stays = {turn.position for turn in kept}
    gone = sum(turn.entry_bytes for turn in request.turns if not turn.note and turn.position not in stays)
    if not gone or any(turn.note == RECALL or turn.has_boundary for turn in kept):
        return turns
    at = next((at for at, turn in enumerate(kept) if not turn.note), len(kept))
    old = next((turn for turn in request.turns if turn.note == RECALL), None)
    if old is not None and all(turn.position < old.position for turn in kept[:at]):
        return (*kept[:at], old, *kept[at:])
    note = request.note(RECALL_NOTE, kind=RECALL)
    return (*kept[:at], note, *kept[at:]) if old is not None or note.entry_bytes < gone else turns


def _noted_later(request: CompactionRequest, asks: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    return with_recall_note(request, (yield from asks))


def is_only_note_removed(request: CompactionRequest, kept: Sequence[TurnView]) -> bool:
    """True if a cut would remove nothing but the note, which stays."""
    stays = {turn.position for turn in kept}
    return all(turn.note == RECALL for turn in request.turns if turn.position not in stays)
