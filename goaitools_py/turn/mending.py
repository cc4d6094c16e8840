"""Histories that no provider would take, made such that it does: entries in, entries out.

Owns: what is mended, and in which order. Must never know: a wire's JSON (that is its dialect's and its
rules'), a turn, or a state.

A history that the rules take comes back as the very same objects; so a repaired one is never repaired again.
What is mended, and what it is called in reports:

================  ===================================================================================
unreadable        an entry that is no JSON object of its wire: it goes
rewritten         one of a shape that the wire refuses: it is written anew from what it says
empty             one of which then nothing is left: it goes
result_added      a call without a result: it gets a flagged one, "unknown", for nobody knows any more
result_moved      a result that does not stand where its call needs it: it is moved there
duplicate_result  another result of a call that has one: the first stays
stray_result      a result without a call: it goes. In other words, as a message of the user's say, what a
                  tool found would speak with a voice that it never had
duplicate_call    a reply with calls that stands there twice: one goes
call_renamed      another call under the id of one beside it: it gets an id of its own, its result too
orphan            reasoning without what has to follow it: it goes
unfinished        a hosted tool's call without its result: it goes
calls_removed     calls that nothing of the above helps: the reply stays without them
reply_removed     a reply that nothing of the above helps
================  ===================================================================================

Everything else stays as it is, byte for byte, and so does all that stands before the first damaged place.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final, Literal

import msgspec

from .. import rawjson
from ..backends import rules
from ..backends.atoms import apart, together
from ..backends.base import Dialect, Reply
from ..errors import StateInvalidError
from ..messages import Message, ResultFlag, Text, ToolCall, ToolResult
from ..values import Value, field, replace
from .journal import SYNTHETIC

__all__ = ["Entry", "Mend", "Mended", "mended", "problems", "require_valid", "summary"]

Mend = Literal[
    "unreadable",
    "rewritten",
    "empty",
    "result_added",
    "result_moved",
    "duplicate_result",
    "stray_result",
    "duplicate_call",
    "call_renamed",
    "orphan",
    "unfinished",
    "calls_removed",
    "reply_removed",
]

_JOIN: Final = b",\n"
_UNKNOWN: Final[ResultFlag] = "unknown"


class Entry(Value, frozen=True, kw_only=True):
    """An entry of a mended history.

    `source` is the entry of the given history that it is, or was made of; None for one that was put in.
    `letter` is its role letter, `flags` those of the results that were put in, by call id.
    """

    unshown = frozenset({"entry"})

    entry: bytes
    source: int | None
    letter: str
    flags: Mapping[str, str] = {}


class Mended(Value, frozen=True, kw_only=True):
    """A history that its provider takes, and what was done for that: kind, and at which given entry."""

    unshown = frozenset({"entries"})

    entries: tuple[Entry, ...]
    log: tuple[tuple[Mend, int], ...]


def summary(log: Iterable[tuple[Mend, int]]) -> dict[str, int]:
    """How often each kind of mending was done, by kind in the order of their names."""
    return dict(sorted(Counter[str](kind for kind, _ in log).items()))


def mended(entries: Sequence[bytes], dialect: Dialect) -> Mended:
    """A closed history as its provider takes it. One that it takes already has an empty log.

    Raises:
        StateInvalidError: What came of it would be refused too.
    """
    wire = dialect.wire
    if not problems(wire, entries):
        same = tuple(Entry(entry=entry, source=n, letter="") for n, entry in enumerate(entries))
        return Mended(entries=same, log=())
    found = _Mending(dialect).run(entries)
    require_valid(wire, [one.entry for one in found.entries])
    if not found.log:
        raise StateInvalidError("the state's history is invalid and cannot be repaired; it cannot be used")
    return found


def require_valid(wire: str, entries: Sequence[bytes]) -> None:
    """Raise `StateInvalidError` unless the provider takes the history."""
    if found := problems(wire, entries):
        raise StateInvalidError(
            f"the state's history cannot be repaired ({found[0]}); the state cannot be used"
        )


def problems(wire: str, entries: Sequence[bytes], *, open_end: bool = False) -> list[str]:
    """What the provider would refuse in a history; nothing where no rules are known."""
    if wire not in rules.WIRES:
        return []
    return rules.check_history(wire, entries, open_end=open_end, unique_ids=False)


class _Atom(Value, frozen=True, kw_only=True, eq=False):
    """The smallest thing that can be moved: an entry, or one result of an entry with several.

    `whole` numbers the entry that it is a part of. `answers` is the call that it is the result of.
    """

    unshown = frozenset({"entry", "message"})

    entry: bytes
    source: int | None
    whole: int
    message: Message
    letter: str
    answers: str = ""
    flags: Mapping[str, str] = {}

    @property
    def is_silent(self) -> bool:
        return not self.message.parts and not self.message.tool_calls


class _Slot(msgspec.Struct, kw_only=True, eq=False):
    """A call, and the result that was found for it."""

    call: ToolCall
    result: _Atom | None = None


class _Round(msgspec.Struct, kw_only=True, eq=False):
    """What a model said in a row, its calls, and the results that stand directly behind them."""

    run: list[_Atom]
    own: list[_Atom] = field(default_factory=list)
    slots: list[_Slot] = field(default_factory=list)
    in_order: bool = False
    log: list[tuple[Mend, int]] = field(default_factory=list)

    def has_call(self, id: str) -> bool:
        """Whether the model made a call of this id in the round."""
        return any(call.id == id for atom in self.run for call in atom.message.tool_calls)

    def results(self) -> list[_Atom]:
        """The results as they were if they are all there, else in call order."""
        if self.in_order:
            return self.own
        return [slot.result for slot in self.slots if slot.result is not None]


class _Mending:
    """One repair: the whole entries that were taken apart, and the log."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._wire = dialect.wire
        self._wholes: list[tuple[bytes, list[_Atom]]] = []
        self._log: list[tuple[Mend, int]] = []

    def run(self, entries: Sequence[bytes]) -> Mended:
        """Mend a history."""
        pieces, strays = _pieces(self._read(entries))
        rounds = [piece for piece in pieces if isinstance(piece, _Round)]
        for one in rounds:
            strays += self._pair(one)
        self._place(strays, rounds)
        out: list[_Atom] = []
        for piece, following in pairwise([*pieces, None]):
            if isinstance(piece, _Round):
                self._fill(piece)
                tail = following.run if isinstance(following, _Round) else []
                out += self._settle(piece, tail)
            elif piece is not None:
                out.append(piece)
        made = tuple(self._whole_again(out))
        return Mended(entries=made, log=tuple(sorted(self._log, key=lambda row: row[1])))

    # ------------------------------------------------------------------------------------- reading

    def _read(self, entries: Sequence[bytes]) -> Iterator[_Atom]:
        for at, entry in enumerate(entries):
            pieces = [entry]
            try:
                self._dialect.view(pieces)
            except ValueError:
                self._log.append(("unreadable", at))
                continue
            if rules.check_entry(self._wire, entry):
                pieces = self._anew(entry)
                self._log.append(("rewritten" if pieces else "empty", at))
            for piece in pieces:
                yield from self._apart(piece, at)

    def _apart(self, entry: bytes, source: int | None, flags: Mapping[str, str] = {}) -> list[_Atom]:
        atoms = [self._atom(part, source, len(self._wholes), flags) for part in apart(self._wire, entry)]
        self._wholes.append((entry, atoms))
        return atoms

    def _atom(self, entry: bytes, source: int | None, whole: int, flags: Mapping[str, str]) -> _Atom:
        message = self._dialect.view([entry])[0]
        answers = message.tool_call_id or ""
        if answers and not problems(self._wire, [entry]):
            answers = ""  # of a call that the rules do not pair, such as a provider tool's
        return _Atom(
            entry=entry,
            source=source,
            whole=whole,
            message=message,
            letter=_letter(message),
            answers=answers,
            flags={id: flag for id, flag in flags.items() if id == answers},
        )

    def _anew(self, entry: bytes) -> list[bytes]:
        """An entry that the wire refuses, written from what it says. Nothing if it says nothing."""
        made: list[bytes] = []
        for message in self._dialect.view([entry]):
            calls = tuple(_readable(call) for call in message.tool_calls if call.id and call.name)
            if not message.parts and not calls and message.role != "tool":
                continue
            said = replace(message, tool_calls=calls, raw=None, reasoning="")
            try:
                if message.role == "tool":
                    result = ToolResult(call_id=message.tool_call_id or "", parts=message.parts)
                    written = self._dialect.results([result])
                else:
                    written = self._dialect.entries([said])
            except ValueError:
                continue  # white space only, say
            made += [one for one in written if self._is_sound(message, one, entry)]
        return made

    def _is_sound(self, message: Message, written: bytes, given: bytes) -> bool:
        # What is of a role that the wire does not know is not taken for the user's words.
        is_users = message.role == "user" and _role(written) != _role(given)
        return not is_users and not rules.check_entry(self._wire, written)

    # ------------------------------------------------------------------------------- calls and results

    def _pair(self, one: _Round) -> list[_Atom]:
        """Find the results of a round's calls behind them; what is left over is handed back."""
        self._distinct(one)
        one.slots = [_Slot(call=call) for atom in one.run for call in atom.message.tool_calls]
        waiting: defaultdict[str, deque[_Slot]] = defaultdict(deque)
        for slot in one.slots:
            waiting[slot.call.id].append(slot)
        taken: set[bytes] = set()
        own: list[_Atom] = []
        left: list[_Atom] = []
        for atom in one.own:
            if waiting[atom.answers]:
                waiting[atom.answers].popleft().result = atom
                own.append(atom)
                taken.add(atom.entry)
            elif atom.entry in taken:
                self._note("duplicate_result", atom)
            else:
                left.append(atom)
        one.own = own
        one.in_order = len(own) == len(one.slots)
        return left

    def _distinct(self, one: _Round) -> None:
        """Take out what a round says twice, and give calls of one id beside each other ids of their own."""
        run: list[_Atom] = []
        said: set[bytes] = set()
        used: set[str] = set()
        renamed: defaultdict[str, list[tuple[str, ToolCall]]] = defaultdict(list)
        for atom in one.run:
            if atom.message.tool_calls and atom.entry in said:
                self._note("duplicate_call", atom)
                continue
            said.add(atom.entry)
            ids: list[str] = []
            for n, call in enumerate(atom.message.tool_calls):
                ids.append(_fresh_id(atom.entry, n) if call.id in used else call.id)
                renamed[call.id].append((ids[-1], call))
                used |= {call.id, ids[-1]}
            run.append(self._renamed(atom, ids))
        one.run = run
        own: list[_Atom] = []
        for atom in one.own:
            if names := renamed[atom.answers]:
                id, call = names.pop(0)
                if id != atom.answers:
                    atom = self._answering(atom, id, call)
            own.append(atom)
        one.own = own

    def _renamed(self, atom: _Atom, ids: Sequence[str]) -> _Atom:
        calls = atom.message.tool_calls
        if ids == [call.id for call in calls]:
            return atom
        self._note("call_renamed", atom)
        reply = self._dialect.with_call_ids(Reply(entries=(atom.entry,), calls=calls), ids)
        return self._apart(reply.entries[0], atom.source)[0]

    def _answering(self, atom: _Atom, id: str, call: ToolCall) -> _Atom:
        """The result written anew, for a call of another id or kind."""
        result = ToolResult(call_id=id, name=call.name, parts=atom.message.parts, kind=call.kind)
        return self._apart(self._dialect.results([result])[0], atom.source)[0]

    def _place(self, strays: Sequence[_Atom], rounds: Sequence[_Round]) -> None:
        """Move results to the calls they are of: the nearest before them that has none, else after them."""
        waiting: defaultdict[str, list[tuple[int, _Slot]]] = defaultdict(list)
        known: set[str] = set()
        for one in rounds:
            at = max((atom.source for atom in one.run if atom.source is not None), default=0)
            for slot in one.slots:
                known.add(slot.call.id)
                if slot.result is None:
                    waiting[slot.call.id].append((at, slot))
        for atom in sorted(strays, key=lambda one: one.source or 0):
            places = waiting[atom.answers]
            if not places:
                self._note("duplicate_result" if atom.answers in known else "stray_result", atom)
                continue
            behind = bisect_left(places, atom.source or 0, key=lambda place: place[0])
            _, slot = places.pop(max(behind - 1, 0))
            slot.result = replace(atom, source=None)
            self._note("result_moved", atom)

    def _fill(self, one: _Round) -> None:
        """Put a flagged result in for each call that has none."""
        for slot in one.slots:
            if slot.result is None:
                call = slot.call
                made = ToolResult(
                    call_id=call.id,
                    name=call.name,
                    parts=(Text(SYNTHETIC[_UNKNOWN]),),
                    flag=_UNKNOWN,
                    kind=call.kind,
                )
                entry = self._dialect.results([made])[0]
                slot.result = self._apart(entry, None, {call.id: _UNKNOWN})[0]
                one.log.append(("result_added", one.run[-1].source or 0))

    # ------------------------------------------------------------------------------------ whole rounds

    def _settle(self, one: _Round, tail: Sequence[_Atom]) -> list[_Atom]:
        """A round as its provider takes it: with as little changed as will do."""
        for run, results, log in self._ways(one):
            for atoms in self._orders(
                run, results, is_begun=any(atom.source is not None for atom in results)
            ):
                if self._is_valid(atoms, tail):
                    self._log += log
                    if atoms != run + results:
                        self._log += (
                            ("result_moved", atom.source) for atom in results if atom.source is not None
                        )
                    return atoms
        return []

    def _orders(self, run: list[_Atom], results: list[_Atom], *, is_begun: bool) -> Iterator[list[_Atom]]:
        """Where results may stand: behind all that was said where some stand there already, else directly
        behind the calls, or behind the message with the calls."""
        if is_begun or not results:
            yield run + results
        yield _interleaved(_stretches(run), results)
        yield _interleaved(self._messages(run), results)
        yield run + results

    def _ways(self, one: _Round) -> Iterator[tuple[list[_Atom], list[_Atom], list[tuple[Mend, int]]]]:
        """What a round may be made into, the best first."""
        at = one.run[0].source or 0
        results = one.results()
        yield one.run, results, one.log
        run, log = self._without_orphans(one.run)
        if log:
            log = [*one.log, *log]
            yield run, results, log
        else:
            log = one.log
        settled = self._replaced(run, self._dialect.settled([atom.entry for atom in run]))
        if settled != run:
            log = [*log, ("unfinished", at)]
            run = settled
            yield run, results, log
        if results:
            anew = [
                self._answering(atom, slot.call.id, slot.call) if not atom.flags else atom
                for slot in one.slots
                if (atom := slot.result) is not None
            ]
            yield run, anew, [*log, ("rewritten", at)]
            said = self._without_calls(run)
            if said:
                yield said, [], [("calls_removed", at)]
        yield [], [], [("reply_removed", at)]

    def _without_orphans(self, run: Sequence[_Atom]) -> tuple[list[_Atom], list[tuple[Mend, int]]]:
        kept: deque[_Atom] = deque()
        log: list[tuple[Mend, int]] = []
        following: list[_Atom] = []
        for atom in reversed(run):
            is_lonely = atom.is_silent and bool(self._problems([atom], open=True))
            if is_lonely and self._problems([atom, *following], open=True):
                log.append(("orphan", atom.source or 0))
                continue
            kept.appendleft(atom)
            if not is_lonely:
                following = [atom]
        return list(kept), log

    def _replaced(self, run: list[_Atom], entries: Sequence[bytes]) -> list[_Atom]:
        """The run with other bytes for its atoms, b"" for one that goes."""
        return [
            atom if new is atom.entry else self._apart(new, atom.source)[0]
            for new, atom in zip(entries, run, strict=True)
            if new
        ]

    def _without_calls(self, run: list[_Atom]) -> list[_Atom]:
        left: list[_Atom] = []
        for atoms in self._messages(run):
            view = self._dialect.view([atom.entry for atom in atoms])
            calls = tuple(call for message in view for call in message.tool_calls)
            text = "".join(message.text for message in view)
            reply = Reply(entries=tuple(atom.entry for atom in atoms), text=text, calls=calls)
            entries = self._dialect.without_calls(reply).entries
            known = {atom.entry: atom for atom in atoms}
            left += [known.get(new) or self._apart(new, atoms[0].source)[0] for new in entries]
        return left

    def _messages(self, run: Sequence[_Atom]) -> Iterator[list[_Atom]]:
        """The atoms of a run that are one message each."""
        left = iter(run)
        for message in self._dialect.view([atom.entry for atom in run]):
            yield [next(left) for _ in range((message.raw or b"").count(_JOIN) + 1)]

    def _is_valid(self, atoms: list[_Atom], tail: Sequence[_Atom]) -> bool:
        if not self._problems(atoms):
            return True
        # What has to follow may have stood behind a result that is gone.
        return bool(tail) and not self._problems([*atoms, *tail], open=True)

    def _problems(self, atoms: Sequence[_Atom], *, open: bool = False) -> list[str]:
        entries = [entry for entry, _ in self._joined(atoms)]
        return problems(self._wire, entries, open_end=open)

    # ------------------------------------------------------------------------------------- writing

    def _joined(self, atoms: Sequence[_Atom]) -> Iterator[tuple[bytes, list[_Atom]]]:
        """Atoms as entries: results that stand together as the wire has them."""
        results: list[_Atom] = []
        for atom in (*atoms, None):
            if atom is not None and atom.answers:
                results.append(atom)
                continue
            if results:
                entries = together(self._wire, [one.entry for one in results])
                if len(entries) == len(results):
                    yield from ((entry, [one]) for entry, one in zip(entries, results, strict=True))
                else:
                    yield entries[0], results
                results = []
            if atom is not None:
                yield atom.entry, [atom]

    def _whole_again(self, atoms: Sequence[_Atom]) -> Iterator[Entry]:
        """Entries of atoms. One that was taken apart, and is all there, is the very entry again."""
        rest: list[_Atom] = []
        at = 0
        while at < len(atoms):
            whole, parts = self._wholes[atoms[at].whole]
            end = at + len(parts)
            is_whole = len(parts) > 1 and _same(atoms[at:end], parts)
            # Results that go together with others are one entry with them.
            joins = is_whole and (
                (bool(parts[0].answers) and bool(rest) and bool(rest[-1].answers))
                or (bool(parts[-1].answers) and end < len(atoms) and bool(atoms[end].answers))
            )
            if is_whole and not joins:
                yield from self._written(rest)
                rest = []
                yield Entry(entry=whole, source=parts[0].source, letter=parts[0].letter)
                at = end
            else:
                rest.append(atoms[at])
                at += 1
        yield from self._written(rest)

    def _written(self, atoms: Sequence[_Atom]) -> Iterator[Entry]:
        for entry, own in self._joined(atoms):
            source = next((one.source for one in own if one.source is not None), None)
            if len(own) == 1 and not own[0].answers and rules.check_entry(self._wire, entry):
                self._log.append(("empty", source or 0))  # fine beside others, and not alone
                continue
            given = [one for one in own if one.source is not None]
            for one in given:
                if one.whole != given[0].whole:
                    self._note("result_moved", one)  # into the entry of those that it belongs to
            flags = {id: flag for one in own for id, flag in one.flags.items()}
            yield Entry(entry=entry, source=source, letter=own[0].letter, flags=flags)

    def _note(self, kind: Mend, atom: _Atom) -> None:
        self._log.append((kind, atom.source or 0))


def _stretches(run: Sequence[_Atom]) -> Iterator[list[_Atom]]:
    """A run cut behind its calls: each piece ends with atoms that have some."""
    piece: list[_Atom] = []
    for atom in run:
        if piece and piece[-1].message.tool_calls and not atom.message.tool_calls:
            yield piece
            piece = []
        piece.append(atom)
    yield piece


def _interleaved(pieces: Iterable[Sequence[_Atom]], results: Sequence[_Atom]) -> list[_Atom]:
    """Each piece of a run with the results of its own calls directly behind it."""
    waiting: defaultdict[str, deque[_Atom]] = defaultdict(deque)
    for atom in results:
        waiting[atom.answers].append(atom)
    found: list[_Atom] = []
    for atoms in pieces:
        found += atoms
        calls = (call for atom in atoms for call in atom.message.tool_calls)
        found += (waiting[call.id].popleft() for call in calls if waiting[call.id])
    return found


def _pieces(atoms: Iterable[_Atom]) -> tuple[list[_Atom | _Round], list[_Atom]]:
    """What was said, in rounds, and the results that stand directly behind no call of theirs."""
    pieces: list[_Atom | _Round] = []
    strays: list[_Atom] = []
    for atom in atoms:
        last = pieces[-1] if pieces else None
        if atom.message.role == "assistant":
            if isinstance(last, _Round) and not last.own:
                last.run.append(atom)
            else:
                pieces.append(_Round(run=[atom]))
        elif not atom.answers:
            pieces.append(atom)
        elif isinstance(last, _Round) and last.has_call(atom.answers):
            last.own.append(atom)
        else:  # it does not end the round: what is said behind it follows what was said before it
            strays.append(atom)
    return pieces, strays


def _same(some: Sequence[_Atom], others: Sequence[_Atom]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


_LETTERS: Final = {"system": "s", "user": "u", "assistant": "a", "tool": "t"}


def _readable(call: ToolCall) -> ToolCall:
    """The call with arguments that were written as text inside of text taken out of it."""
    with suppress(ValueError):
        written = call.parsed
        if isinstance(written, str) and isinstance(rawjson.loads(written.encode()), dict):
            return replace(call, arguments=written)
    return call


def _letter(message: Message) -> str:
    return "e" if message.is_event else _LETTERS[message.role]


def _role(entry: bytes) -> bytes:
    return rawjson.members(entry).get("role", b"")


def _fresh_id(entry: bytes, position: int) -> str:
    return f"call_{hashlib.sha256(b'%d/%s' % (position, entry)).hexdigest()[:24]}"
