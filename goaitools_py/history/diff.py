"""The changes of a conversation between two of its states.

Owns: `StateDiff`, and how turns of two states are matched. Must never know: the content of an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..base.values import Value, field
from ..state.closed_turns import UNSENT, ClosedTurn, numbers_of, with_numbers
from ..state.codec import PLAIN, Codec
from ..state.records import Meta
from ..state.state import ConversationState, closed_turns, load_state

__all__ = ["StateDiff", "diff_states"]

_FACTS: Final = {
    "wire": "wire",
    "model": "model",
    "conversation_id": "id",
    "revision": "rev",
    "status": "status",
    "messages": "messages",
    "turns": "turns",
    "turns_ever": "processed",
    "tokens": "tokens",
    "usage": "total",
    "cost": "cost",
    "settings": "sticky",
    "title": "title",
    "metadata": "about",
    "system": "preamble",
    "tools": "tools",
    "context": "context",
}
"""Names of facts, and the fields of the meta data behind them. The last three are digests."""


class StateDiff(Value, frozen=True, kw_only=True):
    """How the state `b` differs from the state `a`. Turns are named by their numbers, which never change.

    Attributes:
        first: The number of the first turn that is not the same in both; None if all turns are.
        added: Turns that only `b` has.
        removed: Turns that only `a` has: cut or rewound.
        changed: Turns that both have, with other entries: a compaction or a redaction rewrote them.
        notes_added: Notes that compactions left and only `b` has.
        waiting: How many messages wait for a model, in `a` and in `b`.
        unfinished: Whether there is an unfinished turn, in `a` and in `b`.
        cuts: How many rows the journal of cuts has, in `a` and in `b`.
        facts: The facts of the conversation that differ, by name: the value in `a`, and that in `b`.
            "system", "tools" and "context" are digests.
    """

    _unshown = frozenset({"facts"})

    first: int | None = None
    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    changed: tuple[int, ...] = ()
    notes_added: int = 0
    waiting: tuple[int, int] = (0, 0)
    unfinished: tuple[bool, bool] = (False, False)
    cuts: tuple[int, int] = (0, 0)
    facts: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """True if anything differs."""
        pairs = (self.waiting, self.unfinished, self.cuts)
        return bool(
            self.first is not None
            or self.notes_added
            or self.facts
            or any(one != other for one, other in pairs)
        )

    def to_dict(self) -> dict[str, Any]:
        """The difference as JSON-able values. `facts` may have the conversation's title and metadata."""
        return {
            "first": self.first,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": list(self.changed),
            "notes_added": self.notes_added,
            "waiting": list(self.waiting),
            "unfinished": list(self.unfinished),
            "cuts": list(self.cuts),
            "facts": {name: [_plain(one), _plain(other)] for name, (one, other) in self.facts.items()},
        }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def diff_states(
    a: bytes | bytearray | memoryview,
    b: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
) -> StateDiff:
    """Compare two states of one conversation, or of two.

    Args:
        a: The earlier state.
        b: The later state.
        codec: How both blobs are protected.
        binding: The owner of both, for sealed blobs.
        min_revision: The least revision that either may have.

    Raises:
        StateError: One of them cannot be read.
    """
    # One after the other: both states as Python values may take twice 200 MB.
    old = _side(load_state(a, codec=codec, binding=binding, min_revision=min_revision))
    new = _side(load_state(b, codec=codec, binding=binding, min_revision=min_revision))
    before, after = old.turns, new.turns
    added = tuple(sorted(after.keys() - before.keys()))
    removed = tuple(sorted(before.keys() - after.keys()))
    changed = tuple(
        number for number in sorted(before.keys() & after.keys()) if before[number] != after[number]
    )
    known = set(old.notes)
    return StateDiff(
        first=min((*added, *removed, *changed), default=None),
        added=added,
        removed=removed,
        changed=changed,
        notes_added=sum(note not in known for note in new.notes),
        waiting=(old.waiting, new.waiting),
        unfinished=(old.is_unfinished, new.is_unfinished),
        cuts=(len(old.meta.cuts), len(new.meta.cuts)),
        facts=_facts(old.meta, new.meta),
    )


class _Side(NamedTuple):
    """What is compared of one state: the entries of its numbered turns and of its notes, and counts."""

    turns: dict[int, tuple[bytes, ...]]
    notes: list[tuple[bytes, ...]]
    waiting: int
    is_unfinished: bool
    meta: Meta


def _side(state: ConversationState) -> _Side:
    turns = with_numbers(closed_turns(state))
    numbers = numbers_of([turn.record for turn in turns])
    return _Side(
        {number: _said(turn) for number, turn in zip(numbers, turns, strict=True) if number},
        [turn.entries for number, turn in zip(numbers, turns, strict=True) if not number],
        len(state.inbox),
        state.open is not None,
        state.meta,
    )


def _said(turn: ClosedTurn) -> tuple[bytes, ...]:
    """The identity of a turn for the comparison: its entries, and whether requests have them."""
    return turn.entries if turn.record.is_sent else (*turn.entries, UNSENT.encode())


def _facts(old: Meta, new: Meta) -> dict[str, tuple[Any, Any]]:
    pairs = {name: (getattr(old, member), getattr(new, member)) for name, member in _FACTS.items()}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
