"""Calls and their results: which belongs to which.

Owns: pairing within a round, results in other places, ids that are not unique, and results that are missing.
Must never know: whether the provider takes a round.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final

from ....backends.base import Reply
from ....base.values import replace
from ....open_turn.journal import SYNTHETIC
from ....types.messages import ResultFlag, Text, ToolCall, ToolResult
from .atoms import Atom, Round, Slot, Workbench

__all__ = ["add_missing_results", "answering", "pair", "place_strays"]

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
