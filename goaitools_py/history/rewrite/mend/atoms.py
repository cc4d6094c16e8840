"""The pieces that a repair moves: atoms, and the rounds that they make; from entries to atoms, and back.

Owns: `Atom`, `Round`, the workbench that cuts entries apart and joins atoms, which entries are dropped or
written again because they are not valid alone, and which come back byte for byte. Must never know: which
result belongs to which call of another round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from ....backends.base import Dialect
from ....backends.protocols import ChecksHistory, SplitsResults, failed_calls, lacks, problems_of
from ....base import rawjson
from ....base.values import Value, field, replace
from ....state.letters import letter_of
from ....types.errors import StateInvalidError
from ....types.messages import Message, ResultFlag, ToolCall, ToolResult
from .kinds import Entry, Mend

__all__ = ["Atom", "Round", "Slot", "Workbench", "read_atoms", "split_rounds", "write_entries"]

_JOIN: Final = b",\n"


class Atom(Value, frozen=True, kw_only=True, eq=False):
    """The smallest piece that can be moved: an entry, or one result of an entry that holds several.

    Attributes:
        entry: The piece as an entry of its own.
        source: The place of the given entry that it comes from; None for an added one.
        whole: The number of the whole entry that it is a part of; see `Workbench.wholes`.
        message: The piece in neutral words.
        letter: Its role letter.
        answers: The id of the call that it is the result of; "" for anything else.
        flags: The flag of an added result, by call id.
    """

    _unshown = frozenset({"entry", "message"})

    entry: bytes
    source: int | None
    whole: int
    message: Message
    letter: str
    answers: str = ""
    flags: Mapping[str, str] = {}

    @property
    def is_silent(self) -> bool:
        """True if the piece has neither content nor calls, such as a piece of reasoning."""
        return not self.message.parts and not self.message.tool_calls


class Slot(msgspec.Struct, kw_only=True, eq=False):
    """A call, and the result that was found for it."""

    call: ToolCall
    result: Atom | None = None


class Round(msgspec.Struct, kw_only=True, eq=False):
    """A run of the model's own atoms, its calls, and the results directly behind them.

    Attributes:
        run: The atoms that the model wrote, without a break.
        own: The results behind the run.
        slots: The calls of the run, each with its result.
        in_order: True if `own` has exactly one result for each call.
        log: The repairs in this round; they count only if the round stays.
        ids, read: The ids of the calls in the first `read` atoms of the run; see `has_call`.
    """

    run: list[Atom]
    own: list[Atom] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    in_order: bool = False
    log: list[tuple[Mend, int]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    read: int = 0

    def has_call(self, id: str) -> bool:
        """True if the model made a call with this id in the round.

        It is asked for each result while `run` grows at its end, and a history from anywhere may have 10,000
        results and more calls. So each atom of the run is read once.
        """
        for atom in self.run[self.read :]:
            self.ids.update(call.id for call in atom.message.tool_calls)
        self.read = len(self.run)
        return id in self.ids

    def results(self) -> list[Atom]:
        """The results in their given order if they are complete, else in the order of the calls."""
        if self.in_order:
            return self.own
        return [slot.result for slot in self.slots if slot.result is not None]


class Workbench:
    """One repair: the entries that were cut apart, and the log.

    Attributes:
        dialect: Reads and writes the entries.
        wholes: Each entry that was cut apart, with its atoms.
        log: The repairs so far.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._splits = dialect if isinstance(dialect, SplitsResults) else None
        self.wholes: list[tuple[bytes, list[Atom]]] = []
        self.log: list[tuple[Mend, int]] = []

    def note(self, kind: Mend, atom: Atom) -> None:
        """Add a repair to the log."""
        self.log.append((kind, atom.source or 0))

    def is_valid_alone(self, entry: bytes) -> bool:
        """True if the entry breaks no rule at any position."""
        return not isinstance(self.dialect, ChecksHistory) or not any(self.dialect.entry_problems(entry))

    def apart(self, entry: bytes, source: int | None, flags: Mapping[str, str] = {}) -> list[Atom]:
        """The atoms of an entry."""
        parts = self._splits.split_results(entry) if self._splits is not None else [entry]
        atoms = [self._atom(part, source, len(self.wholes), flags) for part in parts]
        self.wholes.append((entry, atoms))
        return atoms

    def _atom(self, entry: bytes, source: int | None, whole: int, flags: Mapping[str, str]) -> Atom:
        message, *more = self.dialect.view([entry])
        if more and self._splits is None:
            missing = lacks(self.dialect, SplitsResults)
            raise StateInvalidError(f"an entry with several results cannot be repaired: {missing}")
        answers = message.tool_call_id or ""
        if answers and not problems_of(self.dialect, [entry]):
            answers = ""  # a result that the rules do not pair with a call, such as a provider tool's
        return Atom(
            entry=entry,
            source=source,
            whole=whole,
            message=message,
            letter=letter_of(message),
            answers=answers,
            flags={id: flag for id, flag in flags.items() if id == answers},
        )

    def joined(self, atoms: Sequence[Atom]) -> Iterator[tuple[bytes, list[Atom]]]:
        """Atoms as entries, each with its atoms. Results in a row are joined as the provider API wants it."""
        results: list[Atom] = []
        for atom in (*atoms, None):
            if atom is not None and atom.answers:
                results.append(atom)
                continue
            if results:
                entries = [one.entry for one in results]
                if self._splits is not None:
                    entries = self._splits.join_results(entries)
                if len(entries) == len(results):
                    yield from ((entry, [one]) for entry, one in zip(entries, results, strict=True))
                else:
                    yield entries[0], results
                results = []
            if atom is not None:
                yield atom.entry, [atom]

    def messages(self, run: Sequence[Atom]) -> Iterator[list[Atom]]:
        """The atoms of a run, message by message."""
        left = iter(run)
        for message in self.dialect.view([atom.entry for atom in run]):
            yield [next(left) for _ in range((message.raw or b"").count(_JOIN) + 1)]

    def problems(self, atoms: Sequence[Atom], *, open: bool = False) -> list[str]:
        """The errors that the provider would find in these atoms. `open`: more may follow."""
        entries = [entry for entry, _ in self.joined(atoms)]
        return problems_of(self.dialect, entries, open_end=open)


def write_entries(bench: Workbench, atoms: Sequence[Atom]) -> Iterator[Entry]:
    """The entries of atoms. If all atoms of an entry are there, in order, the entry stays the same object."""
    rest: list[Atom] = []
    at = 0
    while at < len(atoms):
        whole, parts = bench.wholes[atoms[at].whole]
        end = at + len(parts)
        is_whole = len(parts) > 1 and _same(atoms[at:end], parts)
        # Results in a row share one entry, so an entry that begins or ends with results joins its neighbour.
        joins = is_whole and (
            (bool(parts[0].answers) and bool(rest) and bool(rest[-1].answers))
            or (bool(parts[-1].answers) and end < len(atoms) and bool(atoms[end].answers))
        )
        if is_whole and not joins:
            yield from _written(bench, rest)
            rest = []
            yield Entry(entry=whole, source=parts[0].source, letter=parts[0].letter)
            at = end
        else:
            rest.append(atoms[at])
            at += 1
    yield from _written(bench, rest)


def _written(bench: Workbench, atoms: Sequence[Atom]) -> Iterator[Entry]:
    for entry, own in bench.joined(atoms):
        source = next((one.source for one in own if one.source is not None), None)
        if len(own) == 1 and not own[0].answers and not bench.is_valid_alone(entry):
            bench.log.append(("empty", source or 0))  # valid beside other blocks, but not alone
            continue
        given = [one for one in own if one.source is not None]
        for one in given:
            if one.whole != given[0].whole:
                bench.note("result_moved", one)  # it joins the entry of the results beside it
        flags = {id: flag for one in own for id, flag in one.flags.items()}
        yield Entry(entry=entry, source=source, letter=own[0].letter, flags=flags)


def _same(some: Sequence[Atom], others: Sequence[Atom]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


# --------------------------------------------------------------------------------- from entries to atoms


def read_atoms(bench: Workbench, entries: Sequence[bytes]) -> Iterator[Atom]:
    """The atoms of a history, in order. An entry that cannot be read is dropped."""
    for at, entry in enumerate(entries):
        pieces = [entry]
        try:
            bench.dialect.view(pieces)
        except ValueError:
            bench.log.append(("unreadable", at))
            continue
        if not bench.is_valid_alone(entry):
            pieces = _written_anew(bench, entry)
            bench.log.append(("rewritten" if pieces else "empty", at))
        for piece in pieces:
            yield from bench.apart(piece, at)


def _written_anew(bench: Workbench, entry: bytes) -> list[bytes]:
    """An entry that the provider refuses, written from its content. [] without content."""
    made: list[bytes] = []
    failed = failed_calls(bench.dialect, entry)
    for message in bench.dialect.view([entry]):
        calls = tuple(_readable(call) for call in message.tool_calls if call.id and call.name)
        if not message.parts and not calls and message.role != "tool":
            continue
        bare = replace(message, tool_calls=calls, raw=None, reasoning="")
        try:
            if message.role == "tool":
                id = message.tool_call_id or ""
                flag: ResultFlag = "error" if id in failed else "ok"
                result = ToolResult(call_id=id, parts=message.parts, flag=flag)
                written = bench.dialect.results([result])
            else:
                written = bench.dialect.entries([bare])
        except ValueError:
            continue  # white space only, for example
        made += [one for one in written if _is_sound(bench, message, one, entry)]
    return made


def _is_sound(bench: Workbench, message: Message, written: bytes, given: bytes) -> bool:
    # An entry of an unknown role must not become the user's words.
    is_users = message.role == "user" and _role(written) != _role(given)
    return not is_users and bench.is_valid_alone(written)


def _readable(call: ToolCall) -> ToolCall:
    """The call, its arguments unwrapped if they are JSON text inside a JSON string."""
    with suppress(ValueError):
        written = call.parsed
        if isinstance(written, str) and isinstance(rawjson.loads(written.encode()), dict):
            return replace(call, arguments=written)
    return call


def _role(entry: bytes) -> bytes:
    return rawjson.members(entry).get("role", b"")


def split_rounds(atoms: Iterable[Atom]) -> tuple[list[Atom | Round], list[Atom]]:
    """The history as rounds and single atoms, and the stray results: results that are not directly behind
    their call."""
    pieces: list[Atom | Round] = []
    strays: list[Atom] = []
    for atom in atoms:
        last = pieces[-1] if pieces else None
        if atom.message.role == "assistant":
            if isinstance(last, Round) and not last.own:
                last.run.append(atom)
            else:
                pieces.append(Round(run=[atom]))
        elif not atom.answers:
            pieces.append(atom)
        elif isinstance(last, Round) and last.has_call(atom.answers):
            last.own.append(atom)
        else:  # a stray result does not end the round: the model's next atoms continue the run before it
            strays.append(atom)
    return pieces, strays
