"""A closed turn: its entries, the record that describes them, and its number.

Owns: these values, the steps that keep entries, letters and counts together, and the names of turn facts.
Must never know: the meta data of a state, or the content of an entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ..base.values import Value, replace
from ..types.messages import Usage
from .letters import ASSISTANT, GIVEN, TOOL, USER, Mark
from .row_codec import MAX_COUNT, iteration_end, with_marks

__all__ = [
    "FACTS",
    "UNSENT",
    "ClosedTurn",
    "Iteration",
    "TurnRecord",
    "has_gap",
    "numbers_of",
    "with_few_numbers",
    "with_numbers",
]


FACTS: Final = frozenset(
    {
        "acts",
        "answers",
        "c",
        "calls_started",
        "citations",
        "claim",
        "done",
        "failed",
        "fallback",
        "flags",
        "interrupted",
        "metadata",
        "n",
        "note",
        "pin",
        "repaired",
        "rewritten",
        "same_call",
        "settings",
        "status",
        "turn_ids",
        "unsent",
        "who",
    }
)
"""The names of all turn facts that this release writes. A later release may write other names: their values
are kept byte for byte, as `msgspec.Raw`."""


UNSENT: Final = "unsent"
"""The name of a turn fact: True if no request has the turn, because the provider would refuse it."""


class Iteration(Value, frozen=True, kw_only=True):
    """One model call of a turn. `roles`: the role letters of the new entries that it sent and of its reply.

    `start`: milliseconds since the turn began; `ms`: how long the model took.
    `more`: the JSON object at the end of its row, with names that later releases add; b"" without one.
    """

    _unshown = frozenset({"more"})

    roles: str
    finish_reason: str = ""
    usage: Usage = Usage()
    start: int = 0
    ms: int = 0
    more: bytes = b""

    @property
    def marks(self) -> dict[int, Mark]:
        """Speakers and pins, by the place of the message among the entries of the iteration."""
        if not self.more:
            return {}
        end = iteration_end(self.more)
        if not end.who and not end.pin:
            return {}
        names, pins = dict(end.who), dict(end.pin)
        users = given = -1
        found: dict[int, Mark] = {}
        for at, letter in enumerate(self.roles):
            if letter not in GIVEN:
                continue
            given += 1
            users += letter == USER
            name = names.get(users) if letter == USER else None
            pin = pins.get(given)
            if name is not None or pin is not None:
                found[at] = Mark(name, None if pin is None else bool(pin))
        return found

    def with_roles(self, roles: str, marks: Mapping[int, Mark]) -> Iteration:
        """The iteration with other entries. `marks`: as `marks`, by their new places."""
        end = iteration_end(self.more) if self.more else None
        if not marks and (end is None or not (end.who or end.pin)):
            return replace(self, roles=roles)
        given = [at for at, letter in enumerate(roles) if letter in GIVEN]
        users = [at for at in given if roles[at] == USER]
        none = Mark()
        named = [(place, marks.get(at, none).speaker) for place, at in enumerate(users)]
        pins = [(place, marks.get(at, none).pinned) for place, at in enumerate(given)]
        more = with_marks(
            self.more,
            [[place, name] for place, name in named if name is not None],
            [[place, int(pinned)] for place, pinned in pins if pinned is not None],
        )
        return replace(self, roles=roles, more=more)

    @property
    def request_id(self) -> str:
        """The provider's id of the request; "" if it was not recorded."""
        return iteration_end(self.more).q if self.more else ""

    @property
    def call_ms(self) -> tuple[int, ...]:
        """How long each call of its reply ran, in milliseconds, without calls that the provider ran itself;
        () if each took less than a millisecond, or if the times were not recorded."""
        return iteration_end(self.more).s if self.more else ()

    @property
    def model(self) -> int:
        """The place of the call's model among `Meta.models`."""
        return iteration_end(self.more).m if self.more else 0


class TurnRecord(Value, frozen=True, kw_only=True):
    """The record of a closed turn.

    `at`: when it began, in milliseconds after the conversation; `messages`: how many messages it has.
    """

    _unshown = frozenset({"facts"})

    at: int
    messages: int
    iterations: tuple[Iteration, ...]
    facts: Mapping[str, Any] = {}

    @property
    def entries(self) -> int:
        """How many stored entries the turn has."""
        return sum([len(iteration.roles) for iteration in self.iterations])

    @property
    def is_sent(self) -> bool:
        """False if no request has the turn, because the provider would refuse it. Readers have it."""
        return not self.facts.get(UNSENT)

    @property
    def letters(self) -> str:
        """The role letters of the turn, one for each entry."""
        return "".join([iteration.roles for iteration in self.iterations])


class ClosedTurn(Value, frozen=True):
    """A closed turn: its entries, and the record that describes them.

    Each entry has exactly one role letter in the record. Change a turn with the methods below: they keep
    entries, letters and the count of messages in step.

    Raises ValueError if the record describes another number of entries.
    """

    _unshown = frozenset({"entries"})

    entries: tuple[bytes, ...]
    record: TurnRecord

    def __post_init__(self) -> None:
        if len(self.entries) != self.record.entries:
            raise ValueError(
                f"a turn has {len(self.entries)} entries, and its record describes {self.record.entries}"
            )

    @property
    def letters(self) -> str:
        """The role letters, one for each entry."""
        return self.record.letters

    @property
    def has_tool_results(self) -> bool:
        """True if the turn has a tool result."""
        return TOOL in self.letters

    def by_iteration(self) -> Iterator[tuple[Iteration, tuple[bytes, ...]]]:
        """Give each iteration with its entries."""
        start = 0
        for iteration in self.record.iterations:
            end = start + len(iteration.roles)
            yield iteration, self.entries[start:end]
            start = end

    def last_reply(self) -> tuple[bytes, ...]:
        """Give the last reply, and the replies directly before it that its provider had paused.

        Tool results may follow the last reply: its calls were not allowed, or had no result when the turn was
        closed. A last model call with an empty reply has no entry, and there is nothing to give.
        """
        last = self.record.iterations[-1] if self.record.iterations else None
        if last is not None and last.roles and ASSISTANT not in last.roles and last.usage.requests:
            return ()
        end = self.letters.rfind(ASSISTANT) + 1
        return self.entries[len(self.letters[:end].rstrip(ASSISTANT)) : end]

    def without(self, places: Collection[int]) -> ClosedTurn:
        """Remove the entries at these places.

        `messages` falls by one for each reply that loses all its entries, and by one for each other entry.
        """
        if not places:
            return self
        iterations: list[Iteration] = []
        messages = self.record.messages
        start = 0
        for iteration in self.record.iterations:
            gone = [letter for at, letter in enumerate(iteration.roles, start) if at in places]
            stays = [at for at in range(len(iteration.roles)) if start + at not in places]
            left = "".join([iteration.roles[at] for at in stays])
            messages -= len(gone) - gone.count(ASSISTANT)
            if ASSISTANT in gone and ASSISTANT not in left:
                messages -= 1
            start += len(iteration.roles)
            if gone:
                marks = iteration.marks
                kept = {new: marks[old] for new, old in enumerate(stays) if old in marks}
                iteration = iteration.with_roles(left, kept)
            iterations.append(iteration)
        return ClosedTurn(
            tuple([entry for at, entry in enumerate(self.entries) if at not in places]),
            replace(self.record, iterations=tuple(iterations), messages=messages),
        )

    def with_entries(self, entries: Sequence[bytes]) -> ClosedTurn:
        """Put another entry into each place. An empty one removes the place; see `without`.

        Gives the same object if each entry is the turn's own object.
        """
        if all(new is old for new, old in zip(entries, self.entries, strict=True)):
            return self
        changed = ClosedTurn(tuple(entries), self.record)
        return changed.without({at for at, entry in enumerate(entries) if not entry})

    def with_iterations(self, roles: Sequence[str], entries: Sequence[bytes], *, messages: int) -> ClosedTurn:
        """Replace the entries. `roles` has the letters of each iteration. Letters beyond the iterations that
        the turn has make new iterations.

        Raises ValueError for fewer iterations than before: each holds the usage of a model call.
        """
        known = self.record.iterations
        if len(roles) < len(known):
            raise ValueError(f"a turn of {len(known)} iterations cannot become one of {len(roles)}")
        iterations = tuple(
            [
                replace(known[n], roles=own) if n < len(known) else Iteration(roles=own)
                for n, own in enumerate(roles)
            ]
        )
        return ClosedTurn(tuple(entries), replace(self.record, iterations=iterations, messages=messages))

    def with_user_entries(self, entries: Sequence[bytes], *, messages: int) -> ClosedTurn:
        """Put entries of the user before all others. `messages`: how many messages they are."""
        first, *others = self.record.iterations or (Iteration(roles=""),)
        marks = {len(entries) + at: mark for at, mark in first.marks.items()}
        first = first.with_roles(USER * len(entries) + first.roles, marks)
        record = replace(self.record, iterations=(first, *others), messages=self.record.messages + messages)
        return ClosedTurn((*entries, *self.entries), record)


def numbers_of(records: Iterable[TurnRecord]) -> list[int]:
    """Give the number of each closed turn: its fact "n" if it has one, else one more than the turn before.

    The first turn of a conversation is number 1. A note that a cut left in place of turns is number 0.
    """
    number = 0
    found: list[int] = []
    for record in records:
        fact = record.facts.get("n")
        number = fact if type(fact) is int and 0 <= fact <= MAX_COUNT else number + 1
        found.append(number)
    return found


def with_numbers(turns: Sequence[ClosedTurn]) -> list[ClosedTurn]:
    """Give each turn its number as the fact "n". Call it before a rewrite that removes turns."""
    numbers = numbers_of([turn.record for turn in turns])
    return [_with_number(turn, number) for turn, number in zip(turns, numbers, strict=True)]


def _with_number(turn: ClosedTurn, number: int | None) -> ClosedTurn:
    facts = {name: value for name, value in turn.record.facts.items() if name != "n"}
    if number is not None:
        facts["n"] = number
    return ClosedTurn(turn.entries, replace(turn.record, facts=facts))


def with_few_numbers(turns: Iterable[ClosedTurn]) -> list[ClosedTurn]:
    """Remove the fact "n" from each turn that has the number after the turn before it."""
    before = 0
    found: list[ClosedTurn] = []
    for turn in turns:
        number = numbers_of([turn.record])[0] if "n" in turn.record.facts else before + 1
        found.append(_with_number(turn, None) if number == before + 1 and "n" in turn.record.facts else turn)
        before = number
    return found


def has_gap(turns: Sequence[ClosedTurn], processed: int) -> bool:
    """Tell whether the newest of these turns is not number `processed`; see `Meta.gap`."""
    numbers = numbers_of([turn.record for turn in turns])
    return (numbers[-1] if numbers else 0) != processed
