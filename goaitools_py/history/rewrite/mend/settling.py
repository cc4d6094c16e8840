"""A round that its provider takes, with the smallest change that is enough.

Owns: the repairs that are tried, and their order. Must never know: other rounds, except the run that follows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence

from ....backends.base import Reply
from .atoms import Atom, Round, Workbench
from .pairing import answering
from .report import Mend

__all__ = ["settle"]


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
