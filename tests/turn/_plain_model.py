"""What a conversation must hold, as a plain list: the model that the state machine holds a blob against.

Owns: the list and how it grows. Must never know: a blob, a provider, or the package.

Everything that is said, done or answered is a mark: "U1x" a user message, "E2x" an event, "A3x" a reply,
"T4x" a call and "R4x" its result. A history is the list of its marks, in order.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["Broken", "Call", "Model", "TurnId", "Waiting", "require"]


class Broken(AssertionError):
    """An invariant does not hold; the text says which."""


def require(condition: object, what: str) -> None:
    """Raise `Broken` unless the condition holds."""
    if not condition:
        raise Broken(what)


@dataclass
class Call:
    """A call of the last reply. `excuse`: why it may stay without a result."""

    tool: str
    asked: str
    """The model's argument; `token` is what the tool is given, which somebody may have changed."""
    token: str
    result: str = ""
    excuse: str = ""


@dataclass
class Waiting:
    """A message that no model has accepted."""

    mark: str
    topic: str = ""
    event_id: str = ""
    is_late: bool = False
    """Said when the next request had been written already."""


@dataclass
class TurnId:
    """What was said under a turn's id, and what came of it. `text` is None where nobody was told."""

    said: str
    is_done: bool = False
    text: str | None = None


@dataclass
class Model:
    """The plain list. `items` then the results of `calls`, then `accepted`, then `waiting`."""

    items: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Where each closed turn ends in `items`."""
    calls: list[Call] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    """Seen by a model that has not answered yet."""
    waiting: list[Waiting] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    ids: dict[str, TurnId] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    """Effects that must not take place again along this chain."""
    failed: set[str] = field(default_factory=set)
    """Effects that have no result, because their tool failed."""
    denied: set[str] = field(default_factory=set)
    """Ids of calls that somebody refused."""
    is_open: bool = False
    sent: bytes = b""
    """The last history that a model accepted, to be the beginning of the next."""
    began: int = 0
    """Tools that the open turn has begun."""
    usage: tuple[int, ...] = ()
    cut_off: tuple[list[str], list[int], int] | None = None
    """What the running turn has cut off, as `items` and `ends`, and how many pins of it are left."""
    pinned: set[str] = field(default_factory=set)
    """Messages of the system: a cut leaves them where they are."""
    yields: bool = False
    """In an emergency pinned messages go, too: the oldest first, when all other turns are gone."""
    was_cut: bool = False
    """Since the thinking of closed turns was last taken out: a cut may do that once, some time later."""

    def copied(self) -> Model:
        """This point once more, to go on from separately."""
        return copy.deepcopy(self)

    def view(self) -> list[str]:
        """Every mark, in order."""
        results = [call.result for call in self.calls if call.result]
        return [*self.items, *results, *self.accepted, *(one.mark for one in self.waiting)]

    # --------------------------------------------------------------------------------- how it grows

    def admit(self, message: Waiting) -> None:
        """A message comes in. A newer event of a topic takes the place of one that nobody has seen."""
        if message.event_id:
            if message.event_id in self.seen:
                return
            self.seen.add(message.event_id)
        if message.topic:
            self.waiting = [one for one in self.waiting if one.topic != message.topic]
        self.waiting.append(message)

    def accept(self, sent: Collection[str]) -> None:
        """A model has taken what was sent of all that waits, and the results of its calls."""
        self._settle()
        self.accepted += [one.mark for one in self.waiting if one.mark in sent]
        self.waiting = [one for one in self.waiting if one.mark not in sent]
        self.is_open = True

    def reply(self, mark: str, calls: Sequence[tuple[str, str]]) -> None:
        """A whole reply came."""
        self.items += self.accepted
        self.accepted = []
        self.items += [mark, *(token for _, token in calls)]
        self.calls = [Call(tool, token, token) for tool, token in calls]

    def call(self, token: str) -> Call:
        """The open call with a token."""
        found = [call for call in self.calls if call.token == token]
        require(len(found) == 1, f"a tool runs for {token}, which no open call has")
        return found[0]

    def close(self, text: str | None) -> None:
        """The turn ends; every id whose message a model has accepted is finished."""
        self._settle()
        self.items += self.accepted
        self.accepted = []
        if self.is_open:
            self.ends.append(len(self.items))
        self.is_open, self.began = False, 0
        waiting = {one.mark for one in self.waiting}
        for one in self.ids.values():
            if not one.is_done and one.said not in waiting:
                one.is_done, one.text = True, text

    def _settle(self) -> None:
        left = [call.token for call in self.calls if not call.result and not call.excuse]
        require(not left, f"nothing stood in the way of the calls {left}, and they have no result")
        self.items += [call.result for call in self.calls if call.result]
        self.calls = []

    def hand_back(self, marks: Iterable[str]) -> None:
        """The caller has these messages again: they, their ids and their turn's id are forgotten."""
        given = list(marks)
        require(
            given == [one.mark for one in self.waiting],
            f"handed back {given}, and what waits is {self.waiting}",
        )
        self.seen -= {one.event_id for one in self.waiting}
        self.ids = {id: one for id, one in self.ids.items() if one.is_done or one.said not in given}
        self.waiting = []

    def excuse(self, reason: str, *, tools: Iterable[str] | None = None) -> None:
        """Calls without a result need none."""
        for call in self.calls:
            if not call.result and (tools is None or call.tool in tools):
                call.excuse = call.excuse or reason

    # ------------------------------------------------------------------------------------- cuts

    def cut_to(self, seen: Sequence[str]) -> int:
        """Take whole turns, but for pinned messages, from the beginning, so that `seen` is left.

        Gives how many turns stay.

        Raises Broken if no number of turns does it.
        """
        view = self.view()
        if self.cut_off and self.cut_off[0] + view[self.cut_off[2] :] == list(seen):
            # It did not help, and was undone.
            gone_items, gone_ends, left = self.cut_off
            self.items = gone_items + self.items[left:]
            self.ends = [*gone_ends, *(one + len(gone_items) - left for one in self.ends)]
            self.cut_off = None
            return len(self.ends)
        for gone, end in enumerate([0, *self.ends]):
            pins = [one for one in view[:end] if one in self.pinned]
            lost = len(pins) + len(view) - end - len(seen)
            may_lose = self.yields and gone == len(self.ends)
            if 0 <= lost <= (len(pins) if may_lose else 0) and pins[lost:] + view[end:] == list(seen):
                pins = pins[lost:]
                self.cut_off = self.items[:end], self.ends[:gone], len(pins)
                self.items = pins + self.items[end:]
                self.ends = [one - end + len(pins) for one in self.ends[gone:]]
                if gone:
                    self.sent, self.was_cut = b"", True
                return len(self.ends)
        raise Broken(f"what is left is no whole turns: {list(seen)} of {view}")
