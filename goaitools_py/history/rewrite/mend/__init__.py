"""Mend a history that its provider refuses. Entries in, entries out.

Owns: the order of the steps. Must never know: a provider's JSON (that is the dialect's and its rules'), a
turn, or a state.

A history that the rules accept comes back as the same objects, so a repaired history is never repaired again.
Everything that needs no change stays as it is, byte for byte, and so does everything before the first damaged
place.

`kinds` has the names of the repairs. The steps are `atoms` (entries become the pieces that are moved, and
these become entries again) and `rounds` (calls get their results, and each round becomes valid).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ....backends.base import Dialect
from ....backends.protocols import problems_of
from ....types.errors import StateInvalidError
from .atoms import Atom, Round, Workbench, read_atoms, split_rounds, write_entries
from .kinds import Entry, Mend, Mended, require_valid, summary
from .rounds import add_missing_results, pair, place_strays, settle

__all__ = ["Entry", "Mend", "Mended", "mended", "require_valid", "summary"]


def mended(entries: Sequence[bytes], dialect: Dialect) -> Mended:
    """A closed history as its provider takes it. The log is empty if the provider takes it already.

    Raises:
        StateInvalidError: The provider would refuse the mended history too.
    """
    if not problems_of(dialect, entries):
        same = tuple(Entry(entry=entry, source=n, letter="") for n, entry in enumerate(entries))
        return Mended(entries=same, log=())
    found = _mended(entries, dialect)
    require_valid(dialect, [one.entry for one in found.entries])
    if not found.log:
        raise StateInvalidError("the state's history is invalid and cannot be repaired; it cannot be used")
    return found


def _mended(entries: Sequence[bytes], dialect: Dialect) -> Mended:
    bench = Workbench(dialect)
    pieces, strays = split_rounds(read_atoms(bench, entries))
    rounds = [piece for piece in pieces if isinstance(piece, Round)]
    # All rounds take their own results first: a stray result may only fill a place that is still free then.
    for one in rounds:
        strays += pair(bench, one)
    place_strays(bench, strays, rounds)
    out: list[Atom] = []
    for piece, following in pairwise([*pieces, None]):
        if isinstance(piece, Round):
            add_missing_results(bench, piece)
            tail = following.run if isinstance(following, Round) else []
            out += settle(bench, piece, tail)
        elif piece is not None:
            out.append(piece)
    made = tuple(write_entries(bench, out))
    return Mended(entries=made, log=tuple(sorted(bench.log, key=lambda row: row[1])))
