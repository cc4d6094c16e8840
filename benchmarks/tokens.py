"""How well the next request's input tokens are known before it is sent, against recorded usages.

Owns: the prediction along each recorded chain, and its error. Must never know: how a prediction is made.

Every number is compared with what the real provider counted. The simulator's counts prove nothing here, and
are not used; the conversations of the data directory carry no usage, and are not either.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from _recorded import FILES, Kind, Step, steps
from _report import Figure, Report, at_most, info

from goaitools_py.backends.dialects import dialect_of
from goaitools_py.open_turn.meter import booked, count_entries, gauge_of, unanchored
from goaitools_py.state.records import Meta

__all__ = ["Prediction", "predictions", "run"]

TARGET: Final = 3.0
"""Per cent, the mean over all requests but the first of a chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A recorded request: the estimate, the estimate of four bytes to the token, and the provider's count."""

    step: Step
    expected: int
    naive: int
    real: int

    @property
    def error(self) -> float:
        """Per cent of the real number, without a sign."""
        return 100 * abs(self.expected - self.real) / self.real

    @property
    def naive_error(self) -> float:
        return 100 * abs(self.naive - self.real) / self.real


def predictions(wire: str) -> Iterator[Prediction]:
    """Go along every chain: predict each request but the first from the usages before it, then learn."""
    dialect = dialect_of(wire)
    known: dict[tuple[str, int], tuple[Meta, int]] = {}
    for step in steps(wire):
        meta, size = known.get(step.before, (None, 0)) if step.before else (None, 0)
        usage = step.reply.usage
        added = sum(map(len, step.sent))
        if meta is None:
            meta = Meta(wire=wire)
        else:
            if step.kind == "prefix changed":
                meta = unanchored(meta)
            expected = gauge_of(meta).expected(count_entries(step.sent, dialect))
            is_anchored = gauge_of(meta).is_anchored or step.kind == "prefix changed"
            if usage.input_tokens and is_anchored:
                yield Prediction(
                    step=step, expected=expected, naive=(size + added) // 4, real=usage.input_tokens
                )
        meta = booked(Meta(**{**_fields(meta), "model": step.model}), step.sent, step.reply, dialect)
        known[step.where] = meta, size + added + sum(map(len, step.reply.entries))


def _fields(meta: Meta) -> dict[str, object]:
    return {name: getattr(meta, name) for name in meta.__struct_fields__}


def run(*, short: bool = False) -> Report:
    """Measure all wires; `short` changes nothing, it takes seconds."""
    figures: list[Figure] = []
    found = {wire: list(predictions(wire)) for wire in FILES}
    for kind in get_args(Kind):
        for wire, every in found.items():
            of_kind = [each for each in every if each.step.kind == kind]
            if of_kind:
                figures.append(_figure(wire, kind, of_kind))
    source = ", ".join(FILES.values()) if figures else "no recorded traffic: set GOAITOOLS_TEST_DATA"
    return Report(
        title="Input tokens of the next request, predicted: mean error against the provider's own count",
        method=f"{source}; each request whose predecessor in a chain has a usage, weighted alike; expected = "
        "tokens after that usage + estimate of what is new, calibrated along the chain; 'bytes/4' is of the "
        "whole history. "
        "Without a target, because nobody can know: sizes of media by URL or id, what a hosted tool reads",
        figures=figures or [info("predictions", 0, "")],
    )


def _figure(wire: str, kind: Kind, found: Sequence[Prediction]) -> Figure:
    errors = sorted(each.error for each in found)
    note = (
        f"{len(errors)} requests, median {statistics.median(errors):.1f}, p90 "
        f"{errors[int(0.9 * (len(errors) - 1))]:.1f}; bytes/4 "
        f"{statistics.mean(each.naive_error for each in found):.0f}"
    )
    name, value = f"{wire}: {kind}", statistics.mean(errors)
    if kind == "words and tools":
        return at_most(TARGET, name, value, "%", timed=False, note=note)
    return info(name, value, "%", timed=False, note=note)
