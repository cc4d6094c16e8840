"""Makes each round of a history one that its provider takes: calls get their results, the rest is settled.

Owns: pairing within a round, results in other places, ids that are not unique, results that are missing; the
repairs that are tried on a round, and their order. The smallest change that is enough wins. Must never know:
a provider's rules.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ....backends.base import Reply
from ....base.values import replace
from ....open_turn.journal import SYNTHETIC
from ....types.messages import ResultFlag, Text, ToolCall, ToolResult
from .atoms import Atom, Round, Slot, Workbench
from .kinds import Mend

__all__ = ["add_missing_results", "answering", "pair", "place_strays", "settle"]

_UNKNOWN: Final[ResultFlag] = "unknown"
_HASHED_WHOLE: Final = 64 * 2**10
"""Bytes. Ids of calls are made from a shorter entry itself, and from the digest of a longer one."""


def pair(bench: Workbench, one: Round) -> list[Atom]:
    """Pair the calls of a round with the results behind them. Returns the results that fit no call."""
    _make_distinct(bench, one)
    one.slots = [Slot(call=call) for atom in one.run for call in atom.message.tool_calls]
    waiting: defaultdict[str, deque[Slot]] = defaultdict(deque)
    for slot in one.slots:
        waiting[slot.call.id].append(slot)
    taken: set[bytes] = set()
    own: list[Atom] = []
    left: list[Atom] = []
    for atom in one.own:
        if waiting[atom.answers]:
            waiting[atom.answers].popleft().result = atom
            own.append(atom)
            taken.add(atom.entry)
        elif atom.entry in taken:
            bench.note("duplicate_result", atom)
        else:
            left.append(atom)
    one.own = own
    one.in_order = len(own) == len(one.slots)
    return left


def _make_distinct(bench: Workbench, one: Round) -> None:
    """Drop an atom that a round has twice, and give calls with the same id ids of their own."""
    run: list[Atom] = []
    seen: set[bytes] = set()
    used: set[str] = set()
    renamed: defaultdict[str, deque[tuple[str, ToolCall]]] = defaultdict(deque)
    for atom in one.run:
        if atom.message.tool_calls and atom.entry in seen:
            bench.note("duplicate_call", atom)
            continue
        seen.add(atom.entry)
        ids: list[str] = []
        # A long entry may have 100,000 calls, and is not hashed for each of them.
        named = atom.entry if len(atom.entry) <= _HASHED_WHOLE else hashlib.sha256(atom.entry).digest()
        for n, call in enumerate(atom.message.tool_calls):
            ids.append(_fresh_id(named, n) if call.id in used else call.id)
            renamed[call.id].append((ids[-1], call))
            used |= {call.id, ids[-1]}
        run.append(_renamed(bench, atom, ids))
    one.run = run
    own: list[Atom] = []
    for atom in one.own:
        if names := renamed[atom.answers]:
            # Results take the ids of their calls in order: the first result belongs to the first call.
            id, call = names.popleft()
            if id != atom.answers:
                atom = answering(bench, atom, id, call)
        own.append(atom)
    one.own = own


def _renamed(bench: Workbench, atom: Atom, ids: Sequence[str]) -> Atom:
    calls = atom.message.tool_calls
    if ids == [call.id for call in calls]:
        return atom
    bench.note("call_renamed", atom)
    reply = bench.dialect.with_call_ids(Reply(entries=(atom.entry,), calls=calls), ids)
    return bench.apart(reply.entries[0], atom.source)[0]


def answering(bench: Workbench, atom: Atom, id: str, call: ToolCall) -> Atom:
    """The result written again, for a call of another id or kind."""
    result = ToolResult(call_id=id, name=call.name, parts=atom.message.parts, kind=call.kind)
    return bench.apart(bench.dialect.results([result])[0], atom.source)[0]


def place_strays(bench: Workbench, strays: Sequence[Atom], rounds: Sequence[Round]) -> None:
    """Move stray results to calls without one: to the nearest earlier call of the id, else to a later one."""
    waiting: defaultdict[str, list[tuple[int, Slot]]] = defaultdict(list)
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
            bench.note("duplicate_result" if atom.answers in known else "stray_result", atom)
            continue
        behind = bisect_left(places, atom.source or 0, key=lambda place: place[0])
        _, slot = places.pop(max(behind - 1, 0))
        slot.result = replace(atom, source=None)
        bench.note("result_moved", atom)


def add_missing_results(bench: Workbench, one: Round) -> None:
    """Add a result with the flag "unknown" for each call without a result."""
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
            entry = bench.dialect.results([made])[0]
            slot.result = bench.apart(entry, None, {call.id: _UNKNOWN})[0]
            one.log.append(("result_added", one.run[-1].source or 0))


def _fresh_id(entry: bytes, position: int) -> str:
    return f"call_{hashlib.sha256(b'%d/%s' % (position, entry)).hexdigest()[:24]}"


# ---------------------------------------------------------------------------------------------- settling


def settle(bench: Workbench, one: Round, tail: Sequence[Atom]) -> list[Atom]:
    """The atoms of a round, as the provider takes them. `tail`: the run of the next round."""
    for run, results, log in _versions(bench, one):
        is_begun = any(atom.source is not None for atom in results)
        for atoms in _orders(bench, run, results, is_begun=is_begun):
            if _is_valid(bench, atoms, tail):
                bench.log += log
                if atoms != run + results:
                    bench.log += (
                        ("result_moved", atom.source) for atom in results if atom.source is not None
                    )
                return atoms
    return []


def _is_valid(bench: Workbench, atoms: list[Atom], tail: Sequence[Atom]) -> bool:
    if not bench.problems(atoms):
        return True
    # A dropped result may have stood between this round and the atoms that it needs behind it.
    return bool(tail) and not bench.problems([*atoms, *tail], open=True)


def _orders(
    bench: Workbench, run: list[Atom], results: list[Atom], *, is_begun: bool
) -> Iterator[list[Atom]]:
    """The orders of run and results to try, the best first.

    `is_begun`: some results are behind the run already, so the others are tried there first. Otherwise they
    are tried directly behind their calls, and behind the message with the calls.
    """
    if is_begun or not results:
        yield run + results
    yield _interleaved(_stretches(run), results)
    yield _interleaved(bench.messages(run), results)
    yield run + results


def _versions(
    bench: Workbench, one: Round
) -> Iterator[tuple[list[Atom], list[Atom], list[tuple[Mend, int]]]]:
    """The possible forms of a round: its run, its results and the log. The smallest change comes first."""
    at = one.run[0].source or 0
    results = one.results()
    yield one.run, results, one.log
    run, log = _without_orphans(bench, one.run)
    if log:
        log = [*one.log, *log]
        yield run, results, log
    else:
        log = one.log
    settled = _replaced(bench, run, bench.dialect.settled([atom.entry for atom in run]))
    if settled != run:
        log = [*log, ("unfinished", at)]
        run = settled
        yield run, results, log
    if results:
        again = [
            answering(bench, atom, slot.call.id, slot.call) if not atom.flags else atom
            for slot in one.slots
            if (atom := slot.result) is not None
        ]
        yield run, again, [*log, ("rewritten", at)]
        without = _without_calls(bench, run)
        if without:
            yield without, [], [("calls_removed", at)]
    yield [], [], [("reply_removed", at)]


def _without_orphans(bench: Workbench, run: Sequence[Atom]) -> tuple[list[Atom], list[tuple[Mend, int]]]:
    """The run without reasoning that lacks its required successor, and the log of the change."""
    kept: deque[Atom] = deque()
    log: list[tuple[Mend, int]] = []
    following: list[Atom] = []
    # From the end: whether a piece of reasoning is an orphan depends on the atoms that stay behind it.
    for atom in reversed(run):
        is_lonely = atom.is_silent and bool(bench.problems([atom], open=True))
        if is_lonely and bench.problems([atom, *following], open=True):
            log.append(("orphan", atom.source or 0))
            continue
        kept.appendleft(atom)
        if not is_lonely:
            following = [atom]
    return list(kept), log


def _replaced(bench: Workbench, run: list[Atom], entries: Sequence[bytes]) -> list[Atom]:
    """The run with other bytes for its atoms; b"" drops an atom."""
    return [
        atom if new is atom.entry else bench.apart(new, atom.source)[0]
        for new, atom in zip(entries, run, strict=True)
        if new
    ]


def _without_calls(bench: Workbench, run: list[Atom]) -> list[Atom]:
    left: list[Atom] = []
    for atoms in bench.messages(run):
        view = bench.dialect.view([atom.entry for atom in atoms])
        calls = tuple(call for message in view for call in message.tool_calls)
        text = "".join(message.text for message in view)
        reply = Reply(entries=tuple(atom.entry for atom in atoms), text=text, calls=calls)
        entries = bench.dialect.without_calls(reply).entries
        known = {atom.entry: atom for atom in atoms}
        left += [known.get(new) or bench.apart(new, atoms[0].source)[0] for new in entries]
    return left


def _stretches(run: Sequence[Atom]) -> Iterator[list[Atom]]:
    """A run cut behind its calls: each piece but the last ends with atoms that have calls."""
    piece: list[Atom] = []
    for atom in run:
        if piece and piece[-1].message.tool_calls and not atom.message.tool_calls:
            yield piece
            piece = []
        piece.append(atom)
    yield piece


def _interleaved(pieces: Iterable[Sequence[Atom]], results: Sequence[Atom]) -> list[Atom]:
    """Each piece of a run with the results of its own calls directly behind it."""
    waiting: defaultdict[str, deque[Atom]] = defaultdict(deque)
    for atom in results:
        waiting[atom.answers].append(atom)
    found: list[Atom] = []
    for atoms in pieces:
        found += atoms
        calls = (call for atom in atoms for call in atom.message.tool_calls)
        found += (waiting[call.id].popleft() for call in calls if waiting[call.id])
    return found
