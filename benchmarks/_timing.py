"""CPU time of several things, measured side by side.

Owns: the order of the measurements, and which figures are kept. Must never know: what is measured.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Blocks", "interleaved"]


@dataclass(frozen=True, slots=True)
class Blocks:
    """CPU microseconds per call, one number for each block of calls."""

    per_call: tuple[float, ...]

    @property
    def minimum(self) -> float:
        """The least disturbed block."""
        return min(self.per_call)

    @property
    def median(self) -> float:
        """What a call usually took, neighbours on the machine included."""
        return statistics.median(self.per_call)

    def times(self, *others: Blocks) -> float:
        """How many times as long as the others together: the median over the rounds. Each round compares what
        ran in the same moments, which minima do not where a machine has quiet ones and busy ones."""
        rounds = zip(self.per_call, *(other.per_call for other in others), strict=True)
        return statistics.median(own / sum(rest) for own, *rest in rounds)


def interleaved(
    sides: Mapping[str, Callable[[], object]],
    *,
    short: bool = False,
    rounds_of: int = 1,
    clock: Callable[[], int] = time.thread_time_ns,
) -> dict[str, Blocks]:
    """Measure in turns, A B A B …, so that a slow second of the machine slows all sides.

    Args:
        sides: What to call, by name. Each is called once before anything is measured.
        short: 3 blocks of 5 ms for each side instead of 25 of 25 ms; a block is at least one call. So many,
            that each side meets quiet moments of a machine that others use as well.
        rounds_of: A block is a whole number of so many calls, for sides that do something else each time; but
            one call where a single one takes longer than a block.
        clock: Nanoseconds of CPU time: of this thread, or of the process where a side works in several.

    Returns:
        For each side its blocks: CPU time, so that other processes steal no time, though
        they do disturb caches and the clock of the core.
    """
    rounds, block_us = (3, 5_000) if short else (25, 25_000)
    calls = {}
    for name, side in sides.items():
        side()
        wished = block_us / _per_call(side, 1, clock)
        calls[name] = 1 if wished < 1 else rounds_of * max(1, round(wished / rounds_of))
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            gc.collect()
            side()  # what was collected, and the side before, left the core's caches cold
            found[name].append(_per_call(side, calls[name], clock))
    return {name: Blocks(tuple(blocks)) for name, blocks in found.items()}


def _per_call(side: Callable[[], object], calls: int, clock: Callable[[], int]) -> float:
    began = clock()
    for _ in range(calls):
        side()
    return max(1, clock() - began) / calls / 1000
