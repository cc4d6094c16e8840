"""One pass over a state: every match is replaced, and then the values that depend on it.

Owns: the order in which the pieces of a state are rewritten, and the places of matches. Must never know: how
a piece is rewritten, or whether the pass is the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ...backends.base import Dialect
from ...base.values import Value, replace
from ...state.closed_turns import ClosedTurn, with_numbers
from ...state.codec import Codec
from ...state.records import Meta
from ...state.state import ConversationState, closed_turns, newest_number, rebuild
from ..rewrite.unsign import is_signed
from ..wires import known_dialect
from .archived import ArchivedCut, cuts_of, with_cuts
from .entries import Redactor
from .rows import inbox_without, meta_without, open_without, record_without
from .signatures import Changed, first_change, open_unsigned, unsigned_behind

__all__ = ["Pass", "RedactedPlace"]

_Where: TypeAlias = Literal["history", "open", "inbox", "archive", "facts", "set_aside"]

_CONTEXT: Final = b"<app-context>"
"""The mark of a context block."""


class RedactedPlace(Value, frozen=True, kw_only=True):
    """Where something was replaced.

    Attributes:
        where: The closed history; the unfinished turn; the messages that wait; the archive; the facts of
            the conversation, such as its title, metadata and remembered replies; or bytes of a kept
            conversation that had been set aside.
        turn: The number of the turn; None where there is no turn, 0 for a note of a compaction.
        count: How many matches were replaced there.
    """

    where: _Where
    turn: int | None
    count: int


class Pass:
    """A pass over a state.

    Attributes:
        state: The state without the matches.
        places: Where something was replaced.
        kept: How many matches were words of the provider API. They stay.
        unsigned: How many entries lost signed blocks.
        dropped: How many names of a later release the archive had.
    """

    def __init__(
        self, state: ConversationState, redactor: Redactor, dialect: Dialect, codec: Codec, binding: Any
    ) -> None:
        self._finder, self._dialect = redactor.finder, dialect
        self._redactor = redactor
        redactor.begin()
        self.places: list[RedactedPlace] = []
        self.unsigned = 0
        cuts = cuts_of(state, codec, binding)
        self.dropped = sum(cut.dropped for cut in cuts)
        self.state = with_cuts(*self._done(state, cuts), codec)
        self.kept = self._redactor.kept

    def _done(
        self, state: ConversationState, cuts: Sequence[ArchivedCut]
    ) -> tuple[ConversationState, list[ArchivedCut]]:
        """The state without the match, but with its old archive; and the records of the new archive."""
        live, newest = with_numbers(closed_turns(state)), newest_number(state)
        entries = [entry for turn in live for entry in turn.entries]
        self._redactor.learn_ids([*entries, *(entry for cut in cuts for entry in cut.entries)])
        self._redactor.learn_ids(state.open.entries if state.open is not None else ())

        turns = [self._turn(turn, "history") for turn in live]
        opened = state.open
        if opened is not None:
            with self._noting("open", newest):
                opened = open_without(self._redactor, opened)
        with self._noting("inbox"):
            inbox = inbox_without(self._redactor, state.inbox)
        records = [self._record(cut) for cut in cuts]
        with self._noting("facts"):
            meta = meta_without(self._redactor, state.meta)

        histories = [[*map(_changed, live, turns)]]
        if state.open is not None and opened is not None:
            running = Changed(newest, state.open.entries, opened.entries, state.open.iterations)
            histories[0].append(running)
        histories += [[*map(_changed, old.turns, new.turns)] for old, new in zip(cuts, records, strict=True)]
        said = Changed(newest, [one.entry for one in state.inbox], [one.entry for one in inbox], ())
        forgets = any(_has_other_context(one) for history in (*histories, [said]) for one in history)

        first = first_change(histories)
        turns = [self._unsigned(turn, first, self._dialect) for turn in turns]
        if opened is not None:
            opened, lost = open_unsigned(opened, newest, first, self._dialect)
            self.unsigned += lost
        records = [
            replace(
                record,
                turns=tuple([self._unsigned(turn, first, self._reader(record)) for turn in record.turns]),
                forgets_context=forgets,
            )
            for record in records
        ]
        if any(new is not old for new, old in zip(turns, live, strict=True)):
            state = rebuild(state, turns)
        if first is not None and meta.signed:
            rest = [entry for turn in turns for entry in turn.entries]
            rest += opened.entries if opened is not None else ()
            signed = is_signed(rest, self._dialect)
            meta = msgspec.structs.replace(meta, signed=signed, unbound=meta.unbound and signed)
        meta = _counted(meta, live, turns)
        if forgets:
            meta = msgspec.structs.replace(meta, context="")  # so the next turn sends it again
        return replace(state, meta=meta, inbox=inbox, open=opened), records

    def _turn(self, turn: ClosedTurn, where: _Where) -> ClosedTurn:
        with self._noting(where, turn.record.facts.get("n")):
            new = turn.with_entries([self._redactor.entry(entry) for entry in turn.entries])
            record = record_without(self._redactor, turn.record)
        return new if record is turn.record else replace(new, record=record)

    def _record(self, cut: ArchivedCut) -> ArchivedCut:
        turns = tuple([self._turn(turn, "archive") for turn in cut.turns])
        with self._noting("archive"):
            by = self._redactor.text(cut.by)[:64]
        return replace(cut, turns=turns, by=by)

    def _reader(self, cut: ArchivedCut) -> Dialect | None:
        wire = cut.record.wire
        return self._dialect if wire == self._dialect.wire else known_dialect(wire)

    def _unsigned(
        self, turn: ClosedTurn, first: tuple[int, int] | None, dialect: Dialect | None
    ) -> ClosedTurn:
        left, lost = unsigned_behind(turn, _number(turn), first, dialect)
        self.unsigned += lost
        return left

    @contextmanager
    def _noting(self, where: _Where, turn: int | None = None) -> Iterator[None]:
        """Note the number of replacements inside the block."""
        before = self._finder.count
        yield
        if found := self._finder.count - before:
            self.places.append(RedactedPlace(where=where, turn=turn, count=found))


def _number(turn: ClosedTurn) -> int:
    number = turn.record.facts.get("n")
    return number if type(number) is int else 0


def _changed(old: ClosedTurn, new: ClosedTurn) -> Changed:
    return Changed(_number(old), old.entries, new.entries, old.record.iterations)


def _has_other_context(turn: Changed) -> bool:
    return any(old is not new and _CONTEXT in old for old, new in zip(turn.old, turn.new, strict=True))


def _counted(meta: Meta, old: Sequence[ClosedTurn], new: Sequence[ClosedTurn]) -> Meta:
    """The meta data with the number of messages that are left."""
    lost = sum(turn.record.messages for turn in old) - sum(turn.record.messages for turn in new)
    return msgspec.structs.replace(meta, messages=max(0, meta.messages - lost)) if lost else meta
