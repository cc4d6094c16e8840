"""What compaction policies cost with and without the tool ``recall``, with and without the answers' money.

Owns: which policies meet the plain chat, and how often its model searches. Must never know: how a cache or a
policy works.

The turns that search are a share that this benchmark sets. How often a language model searches is not
measured here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from _cases import airline, plain
from _prompt_cache import PRICE_LISTS
from _replay import SUMMARY_TOKENS, Bill, replay
from _report import Figure, Report, at_most, info

from goaitools_py import NO_COMPACTION, Compactor, KeepRecentTurns, Summarize, TokenLimit

__all__ = ["run"]

LIMITS: Final = (5_000, 8_000)
OWN: Final = 40.0
"""Per cent of no compaction, answers left out, that recall may cost if three turns in ten search."""

_PLENTY: Final = 2**22
_NONE: Final = "no compaction"
_KEEP: Final = KeepRecentTurns(2)


def _policies(limit: int) -> Mapping[str, tuple[Compactor, int]]:
    """By name: the compactor, and of how many turns one searches (0: none)."""
    full, summary = TokenLimit(limit), Summarize(keep_turns=2)
    recall = Compactor(full, _KEEP, recall=True, retain_bytes=_PLENTY)
    both = Compactor(full, summary, recall=True, retain_bytes=_PLENTY)
    return {
        "keep 2 turns": (Compactor(full, _KEEP), 0),
        "summarise, keep 2 turns": (Compactor(full, summary), 0),
        "keep 2 turns, recall, no turn asks": (recall, 0),
        "keep 2 turns, recall, 10 % of turns ask": (recall, 10),
        "keep 2 turns, recall, 20 % of turns ask": (recall, 5),
        "keep 2 turns, recall, 33 % of turns ask": (recall, 3),
        "summarise, keep 2 turns, recall, 5 % of turns ask": (both, 20),
        "summarise, keep 2 turns, recall, 10 % of turns ask": (both, 10),
    }


def run(*, short: bool = False) -> Report:
    """Replay and compare. `short`: one limit and one provider API."""
    wires = ("anthropic",) if short else ("anthropic", "openai-responses")
    case = plain(200).case
    figures: list[Figure] = []
    for wire in wires:
        none = replay(case, lambda _: NO_COMPACTION, wire)
        for limit in LIMITS[: 1 if short else 2]:
            for name, (compactor, asks) in _policies(limit).items():
                bills = replay(case, _always(compactor), wire, asks=asks)
                figures += [_figure(f"at {limit:,}: {name}", bills[one], none[one], asks) for one in bills]
    figures += [] if short else _desk(wires)
    return Report(
        title=f"Recall: dollars of 200 turns (at …: plain chat), per cent of {_NONE}, answers left out",
        method="as the benchmark of compaction: the library's own turns on a scripted provider, billed by "
        f"the rules and prices of {len(PRICE_LISTS)} models; a summary has {SUMMARY_TOKENS} tokens; a page "
        "an eighth of the limit; a turn that asks searches once, and the page stays until the next cut. The "
        "share of turns that ask is set, not measured",
        figures=figures,
    )


def _desk(wires: Sequence[str]) -> list[Figure]:
    """An airline desk with tools, where its recorded conversations are; the limit counts 4,000 beside."""
    measured = airline(200)
    if measured is None:
        return []
    full = TokenLimit(measured.limit)
    rows = {
        "summarise, keep 2 turns": (Compactor(full, Summarize(keep_turns=2)), 0),
        "keep 2 turns, recall of 600 tokens, 10 % of turns ask": (
            Compactor(full, _KEEP, retain_bytes=_PLENTY, recall=True, recall_tokens=600),
            10,
        ),
    }
    found: list[Figure] = []
    for wire in wires:
        none = replay(measured.case, lambda _: NO_COMPACTION, wire)
        for name, (compactor, asks) in rows.items():
            bills = replay(measured.case, _always(compactor), wire, asks=asks)
            label = f"{measured.case.name}: {name}"
            found += [_figure(label, bills[one], none[one], 0) for one in bills]
    return found


def _always(compactor: Compactor) -> Any:
    return lambda _: compactor


def _figure(name: str, bill: Bill, none: Bill, asks: int) -> Figure:
    own = 100 * bill.own / none.own
    note = f"with the answers {100 * bill.dollars / none.dollars:.0f} %; {bill.requests} requests"
    full = f"{bill.prices.name}, {name}"
    # Above that limit a page is larger too, and three in ten cost up to 46 %.
    if asks >= 3 and name.startswith("at 5,000: keep") and bill.prices.cached * 9 < bill.prices.read:
        return at_most(OWN, full, own, "%", timed=False, note=note)
    return info(full, own, "%", timed=False, note=note)
