"""How well input tokens are predicted for traffic that the estimate's numbers were not fitted to.

Owns: fitting those numbers, once for each source repository with that one left out. Must never know: how an
estimate is made of them.

``python benchmarks/token_fit.py`` takes some minutes and prints, for each provider API and source, the error
with the numbers that the package ships, and with numbers fitted to all other sources. It changes nothing.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # measure this checkout

from _recorded import FILES
from _report import Figure, Report, at_most, info
from tokens import Prediction, predictions

from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.protocols import frames_of
from goaitools_py.base.values import replace
from goaitools_py.types import tokens  # `text_tokens` reads `RATES` of this module

__all__ = ["run"]

TARGET: Final = 5.0
"""Per cent, the mean over all requests of a provider API, each predicted without its own source."""

STEPS: Final = (1.3, 1.1, 1.03)
"""By what factor a number is tried larger and smaller; the next smaller one once none of these helps."""

START: Final[Mapping[str, float]] = {
    "letter": 0.2,
    "digit": 0.5,
    "blank": 0.5,
    "line_break": 0.5,
    "beyond_ascii": 0.5,
    "sign": 0.5,
    "word": 12.0,
    "dense": 0.5,
}
"""Where every fit begins; not at the numbers that the package ships, which have seen all sources."""

START_FRAMES: Final[Mapping[str, float]] = {
    "density": 1.0,
    "said": 5.0,
    "result": 10.0,
    "call": 5.0,
    "parallel": 10.0,
}


def _put_frames(wire: str, frames: tokens.Frames) -> None:
    kind: Any = type(dialect_of(wire))
    kind.frames = frames


class _Numbers:
    """All numbers of the estimate, by name, put in place for the time of a measurement."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], float] = {("", name): value for name, value in START.items()}
        for wire in FILES:
            self.values |= {(wire, name): value for name, value in START_FRAMES.items()}

    def put(self) -> None:
        """Let the estimate use these numbers."""
        tokens.RATES = replace(tokens.RATES, **self._of(""))
        for wire in FILES:
            _put_frames(wire, replace(frames_of(dialect_of(wire)), **self._of(wire)))

    def _of(self, wire: str) -> dict[str, Any]:
        return {name: value for (of, name), value in self.values.items() if of == wire}


def _of_words(wire: str) -> Iterator[Prediction]:
    return (each for each in predictions(wire) if each.step.kind == "words and tools")


def _error(without: str) -> float:
    """The mean of the provider APIs' mean errors over all sources but one."""
    means = []
    for wire in FILES:
        errors = [each.error for each in _of_words(wire) if each.step.source != without]
        means.append(statistics.mean(errors) if errors else 0.0)
    return statistics.mean(means)


def _fit(without: str) -> None:
    """Fit every number, one after another, to all sources but one; leaves them in place."""
    numbers = _Numbers()
    numbers.put()
    best = _error(without)
    for step in STEPS:
        helped = True
        while helped:
            before = best
            for name, value in list(numbers.values.items()):
                for tried in (value * step, value / step):
                    numbers.values[name] = tried
                    numbers.put()
                    error = _error(without)
                    if error < best:
                        best = error
                        break
                    numbers.values[name] = value
            helped = best < before - 0.002
    numbers.put()


def run(*, short: bool = False) -> Report:
    """Fit once for each source; `short` prints the shipped numbers only."""
    shipped = tokens.RATES, {wire: frames_of(dialect_of(wire)) for wire in FILES}
    known = {wire: list(_of_words(wire)) for wire in FILES}
    sources = sorted({each.step.source for found in known.values() for each in found})
    unseen: dict[tuple[str, str], list[float]] = {}
    try:
        for source in () if short else sources:
            print(f"fitting without {source}", file=sys.stderr, flush=True)
            _fit(source)
            for wire in FILES:
                errors = [each.error for each in _of_words(wire) if each.step.source == source]
                if errors:
                    unseen[wire, source] = errors
    finally:
        tokens.RATES = shipped[0]
        for wire, frames in shipped[1].items():
            _put_frames(wire, frames)
    return Report(
        title="Input tokens of the next request, predicted for a source that was left out of the fit",
        method="words and tools only, weighted alike; every number of the estimate is fitted by coordinate "
        "descent to all source repositories but one, from the same start, and judged on that one",
        figures=[figure for wire in FILES for figure in _figures(wire, known[wire], unseen)]
        or [info("predictions", 0, "")],
    )


def _figures(
    wire: str, known: Sequence[Prediction], unseen: Mapping[tuple[str, str], Sequence[float]]
) -> Iterator[Figure]:
    left_out = {source: errors for (of, source), errors in unseen.items() if of == wire}
    if left_out:
        every = [error for errors in left_out.values() for error in errors]
        shipped = statistics.mean(each.error for each in known)
        note = f"{len(every)} requests, median {statistics.median(every):.1f}; shipped numbers {shipped:.1f}"
        yield at_most(
            TARGET, f"{wire}: each source left out", statistics.mean(every), "%", timed=False, note=note
        )
    for source in sorted({each.step.source for each in known}):
        shipped = statistics.mean(each.error for each in known if each.step.source == source)
        errors = left_out.get(source)
        name, note = f"{wire}: {source}", f"shipped numbers {shipped:.1f}"
        yield info(name, statistics.mean(errors) if errors else shipped, "%", timed=False, note=note)


if __name__ == "__main__":
    print(run(short="--short" in sys.argv[1:]).table())
