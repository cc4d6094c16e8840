"""From atoms back to entries.

Owns: which entries come back byte for byte, and which are joined anew. Must never know: why an atom has its
place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .atoms import Atom, Workbench
from .report import Entry

__all__ = ["write_entries"]


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
