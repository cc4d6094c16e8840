"""Reads the consumption of a request from an Anthropic response.

Owns: which counts belong to the reply, which were consumed beside it, and which say how large the context
is. Must never know: the content of a response.

One request may make the model run several times: between server tools, to compact the history, to ask an
advisor. ``usage.iterations`` lists the runs (anthropic 2.14, types/beta/beta_iterations_usage). The totals
are the sum of the ``message`` runs; a ``fallback_message`` counts like one. Runs of other types are not in
the totals, and their text is not in the next request (recorded 2026-11: totals of 2,417 tokens in, beside an
advisor's 2,529).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...base.values import replace
from ...types.messages import Usage
from ..wire.bill import consumed
from ..wire.tolerance import as_dict, as_str, count, object_of

__all__ = ["asides_of", "billed", "context_of", "usage_of"]

_OWN: Final = frozenset({"message", "fallback_message"})
"""Types of runs that are in the totals."""

_RUNS: Final = b'"iterations"'


def usage_of(raw: bytes) -> Usage:
    """Read the totals of a usage object, for one request. A member that is missing or not a count is 0.

    Anthropic's `input_tokens` leave out tokens that the cache read or wrote; `Usage` includes them.
    It never raises, because a reply must not be lost for its usage.
    """
    return _totals(object_of(raw))


def _totals(counts: Mapping[str, Any]) -> Usage:
    cached = count(counts.get("cache_read_input_tokens"))
    cache_write = count(counts.get("cache_creation_input_tokens"))
    details = as_dict(counts.get("output_tokens_details"))
    return consumed(
        read=count(counts.get("input_tokens")) + cached + cache_write,
        written=count(counts.get("output_tokens")),
        cached=cached,
        cache_write=cache_write,
        reasoning=count(details.get("thinking_tokens")),
    )


def _runs(raw: bytes) -> list[dict[str, Any]]:
    """The readable runs of the model."""
    found = object_of(raw).get("iterations") if _RUNS in raw else None
    return [run for run in found if isinstance(run, dict)] if isinstance(found, list) else []


def asides_of(raw: bytes) -> dict[str, Usage]:
    """The consumption beside the totals, by the model's name; "" is the reply's own model."""
    found: dict[str, Usage] = {}
    for run in _runs(raw):
        if as_str(run.get("type")) not in _OWN:
            model = as_str(run.get("model"))
            found[model] = found.get(model, Usage()) + replace(_totals(run), requests=0)
    return found


def billed(raw: bytes) -> Usage:
    """The whole consumption of the request, for a response that is not a reply."""
    return sum(asides_of(raw).values(), start=usage_of(raw))


def context_of(raw: bytes) -> Usage | None:
    """The newest run's usage, which says how large the context is; None if the totals say it.

    Only the totals tell how much of the output was thinking. Thinking that does not fit into the output of
    the earlier runs belongs to the newest one.
    """
    own = [run for run in _runs(raw) if as_str(run.get("type")) in _OWN]
    if len(own) < 2:
        return None
    last, total = _totals(own[-1]), usage_of(raw)
    if last.reasoning_tokens or not total.reasoning_tokens:
        return last
    earlier = max(0, total.output_tokens - last.output_tokens)
    return replace(last, reasoning_tokens=max(0, total.reasoning_tokens - earlier))
