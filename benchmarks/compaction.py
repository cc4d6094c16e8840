"""What compaction policies cost: conversations replayed through the library, billed by a model of the caches.

Owns: which cases meet which policies, and the tables of the bills. Must never know: how a cache or a
policy works.

``python benchmarks/compaction.py --write`` measures everything. It writes ``benchmarks/compaction.md``, and
the table and the plot of ``docs/compaction_costs.md``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from _cases import SEED, Measured, airline, plain, real_chat, services, short_ones
from _chart import dot_plot
from _conversations import ROOT
from _policies import (
    CHEAPER,
    DEEP,
    DEFAULT,
    NONE,
    SLIDING,
    SLIDING_EACH,
    after_pauses,
    policies,
    sliding,
    with_tools,
)
from _prompt_cache import PRICE_LISTS
from _replay import SUMMARY_TOKENS, Bill, replay
from _report import Figure, Report, at_least, at_most, info

__all__ = ["Bills", "bills_of", "equal_window", "run"]

Bills = Mapping[str, Mapping[str, Bill]]
"""By policy, then by price list."""

WIRES: Final = ("anthropic", "openai-responses")
TENTH: Final = tuple(one.name for one in PRICE_LISTS if one.cached * 9 < one.read)
SHARE: Final = {"plain chat, 400 turns": 35.0, "airline desk with tools, 100 turns": 60.0}
"""Per cent of no compaction that the recommended policy may cost."""
_SHOWN: Final = ("claude-sonnet-5", "gpt-5.4", "gpt-4o")
"""One price list of each kind: prefixes that are marked, automatic ones read at a tenth, and at half."""
LESS: Final = 4.0
"""Times less than a sliding window of equal mean context, where caches are read at a tenth."""


def bills_of(measured: Measured, names: Sequence[str] | None = None, wires: Sequence[str] = WIRES) -> Bills:
    """Replay a case under its policies, or those of these names."""
    made = dict(policies(measured.limit, measured.history))
    if measured.case.tools:
        made |= with_tools(measured.limit)
    return {name: _on(measured, made[name], wires) for name in names or made}


def _on(
    measured: Measured, policy: Callable[[Any], Any], wires: Sequence[str], **fields: Any
) -> dict[str, Bill]:
    found: dict[str, Bill] = {}
    for wire in wires:
        found |= replay(measured.case, policy, wire, **fields)
    return found


def equal_window(
    measured: Measured, wanted: Mapping[str, Bill], *, each_request: bool = False
) -> dict[str, Bill]:
    """A window that slides with each turn. Its size gives the same mean context as the policy `wanted`.

    `each_request`: it slides in the midst of a turn too, as where messages are trimmed before every call.
    """
    found: dict[str, Bill] = {}
    for wire in WIRES:
        mine = [name for name, bill in wanted.items() if bill.prices.wire == wire]
        if not mine:
            continue
        mean = wanted[mine[0]].mean_context
        tokens = mean - wanted[mine[0]].contexts[0]
        for _ in range(6):
            size = max(1, round(tokens))
            if each_request:
                bills = replay(measured.case, policies(1, 1)[NONE], wire, window=size)
            else:
                bills = replay(measured.case, sliding(size), wire)
            missing = mean - bills[mine[0]].mean_context
            if abs(missing) < 0.02 * mean:
                break
            tokens += missing
        found |= bills
    return found


# ------------------------------------------------------------------------------------------- figures


def run(*, short: bool = False) -> Report:
    """Replay and compare. `short`: only what has a target, on fewer wires and turns."""
    cases = _short() if short else _long()
    figures = [figure for measured, bills in cases for figure in _figures(measured, bills)]
    absent = "" if airline(1) else "; without the recorded conversations: set GOAITOOLS_TEST_DATA"
    return Report(
        title="Compaction: dollars, per cent of no compaction",
        method="a model, no provider was asked: the library's own turns and compactors on a scripted "
        "provider; requests are billed by the rules and prices of benchmarks/_prompt_cache.py (2026), "
        f"tokens are the library's estimate, summaries and compactions {SUMMARY_TOKENS} tokens; seed {SEED}; "
        "a turn each 30 seconds, where cold each 2 hours; what the model answers is in the dollars, but not "
        f"where windows are compared{absent}",
        figures=figures,
    )


def _short() -> list[tuple[Measured, Bills]]:
    found: list[tuple[Measured, Bills]] = []
    for measured, wires in ((plain(400), WIRES[:1]), (airline(100), WIRES)):
        if measured is not None:
            found.append((measured, bills_of(measured, (NONE, DEFAULT), wires)))
    found.append(_with_window(plain(200), (NONE, DEFAULT)))
    return found


def _long() -> list[tuple[Measured, Bills]]:
    found = [_with_window(plain(200)), _with_window(plain(400))]
    for measured in (airline(100), airline(300), services(300), real_chat(150)):
        if measured is not None:
            found.append(_with_window(measured))
    found.append(_short_conversations())
    found.append(_cold())
    return [one for one in found if one[1]]


def _with_window(measured: Measured, names: Sequence[str] | None = None) -> tuple[Measured, Bills]:
    bills = dict(bills_of(measured, names))
    windows = {SLIDING: equal_window(measured, bills[DEFAULT])}
    if measured.case.tools:  # else a turn is one request
        windows[SLIDING_EACH] = equal_window(measured, bills[DEFAULT], each_request=True)
    first = next(iter(bills))
    return measured, {first: bills.pop(first), **windows, **bills}


def _short_conversations() -> tuple[Measured, Bills]:
    """Whole conversations as they were, all on one bill for each policy."""
    together: dict[str, dict[str, Bill]] = {}
    every = list(short_ones(30))
    for measured in every:
        for policy, bills in bills_of(measured, (NONE, "sliding window, 20 turns", DEEP, DEFAULT)).items():
            for name, bill in bills.items():
                sums = together.setdefault(policy, {})
                sums[name] = sums[name].joined(bill) if name in sums else bill
    case = replace(plain(1).case, name=f"{len(every)} short conversations, each by itself")
    return replace(plain(1), case=case), together


def _cold() -> tuple[Measured, Bills]:
    """A turn each two hours: nothing is ever in a cache."""
    measured = plain(100, seconds_between=7200.0)
    bills = dict(bills_of(measured, (NONE, DEEP, DEFAULT)))
    plainly = policies(measured.limit, measured.history)
    bills[f"{DEFAULT}; cold_after=300"] = _on(measured, plainly[DEFAULT], WIRES, cold_after=300)
    bills["the same, earlier after a pause"] = _on(
        measured, after_pauses(measured.limit), WIRES, cold_after=300
    )
    return measured, bills


def _figures(measured: Measured, bills: Bills) -> list[Figure]:
    found: list[Figure] = []
    for policy, by_list in bills.items():
        for name, bill in by_list.items():
            found.append(_share(f"{measured.case.name}, {name}: {policy}", bill, bills[NONE][name], measured))
    for slides, which in ((SLIDING, ""), (SLIDING_EACH, " at each request")):
        for name in TENTH if slides in bills else ():
            mine, window = bills[DEFAULT][name], bills[slides][name]
            means = f"{mine.mean_context:,.0f} and {window.mean_context:,.0f}"
            note = f"mean context {means} tokens, answers not counted"
            times = f"{measured.case.name}, {name}: times less than a window that slides{which}"
            value = window.own / mine.own
            made_up = not measured.case.tools and measured.case.name.startswith("plain")
            found.append(
                at_least(LESS, times, value, "x", timed=False, note=note)
                if made_up
                else info(times, value, "x", timed=False, note=note)
            )
    return found


def _share(name: str, bill: Bill, none: Bill, measured: Measured) -> Figure:
    value = 100 * bill.dollars / none.dollars
    note = (
        f"${bill.dollars:.3f}; {bill.tokens:,} input tokens, {bill.cached_share:.0f} % from the cache; "
        f"context mean {bill.mean_context:,.0f}, p95 {bill.p95_context:,}"
    )
    target = SHARE.get(measured.case.name)
    if target is not None and name.endswith(f": {DEFAULT}"):
        return at_most(target, name, value, "%", timed=False, note=note)
    return info(name, value, "%", timed=False, note=note)


# ---------------------------------------------------------------------------------------------- docs

_TABLES: Final = ROOT / "benchmarks" / "compaction.md"
_PAGE: Final = ROOT / "docs" / "compaction_costs.md"
_PLOT: Final = ROOT / "docs" / "compaction.svg"


def _table(measured: Measured, bills: Bills) -> list[str]:
    """Tokens are those of the first price list, dollars of each."""
    lines = [
        f"**{measured.case.name[0].upper()}{measured.case.name[1:]}**",
        "",
        "| policy | input tokens | from the cache | p95 context | "
        + " | ".join(f"{name}" for name in _SHOWN)
        + " |",
        "|---|--:|--:|--:|" + "--:|" * len(_SHOWN),
    ]
    for policy, by_list in bills.items():
        first = by_list[_SHOWN[0]]
        cost = [_money(by_list[name], bills[NONE][name]) for name in _SHOWN]
        label = f"**{policy}**" if policy == DEFAULT else policy
        lines.append(
            f"| {label} | {first.tokens:,} | {first.cached_share:.0f} % | {first.p95_context:,} | "
            + " | ".join(cost)
            + " |"
        )
    return [*lines, ""]


def _money(bill: Bill, none: Bill) -> str:
    return f"${bill.dollars:.2f} ({100 * bill.dollars / none.dollars:.0f} %)"


_ON_THE_PAGE: Final = (
    "plain chat, 400 turns",
    "airline desk with tools, 100 turns",
    "airline desk with tools, 300 turns",
    "real chat, 149 turns",
)
_FOR_READERS: Final = (
    NONE,
    "sliding window, 20 turns",
    DEEP,
    "ContextWindow (to 40 %)",
    "summarise, keep 4 turns",
    DEFAULT,
    CHEAPER,
    "the provider's compaction, keep 2 turns",
    "clear tool results, each turn",
    "clear tool results, a sixth of all at a time",
    "collapse tool exchanges",
    "clear tool results, then summarise",
)
"""The cases and the policies of the page; the others stand in the tables only."""


def _short_table(cases: Sequence[tuple[Measured, Bills]]) -> list[str]:
    """Per cent of no compaction, for each price list."""
    shown = [(measured.case.name, bills) for measured, bills in cases if measured.case.name in _ON_THE_PAGE]
    lines = ["| policy | " + " | ".join(name for name, _ in shown) + " |", "|---|" + "--:|" * len(shown)]
    for policy in _FOR_READERS:
        cells = []
        for _, bills in shown:
            shares = [
                f"{100 * bills[policy][name].dollars / bills[NONE][name].dollars:.0f}"
                for name in (_SHOWN if policy in bills else ())
            ]
            cells.append(" / ".join(shares))
        lines.append(f"| {f'**{policy}**' if policy == DEFAULT else policy} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _put(page: Path, lines: Sequence[str]) -> None:
    begin, end = "<!-- tables: written by benchmarks/compaction.py -->\n", "<!-- end of tables -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    text = pattern.sub(lambda _: begin + "\n" + "\n".join(lines) + end, page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")


def _write(cases: Sequence[tuple[Measured, Bills]]) -> None:
    _put(_TABLES, [line for measured, bills in cases for line in _table(measured, bills)])
    _put(_PAGE, _short_table(cases))
    panels = []
    for measured, bills in cases:
        if measured.case.name in SHARE:
            rows = {
                policy: {name: 100 * by[name].dollars / bills[NONE][name].dollars for name in _SHOWN}
                for policy, by in bills.items()
            }
            panels.append((measured.case.name, rows))
    title = "What a conversation costs under each policy"
    _PLOT.write_text(
        dot_plot(
            title, "dollars, per cent of no compaction (numbers: the first model)", panels, 200.0, DEFAULT
        ),
        encoding="utf-8",
    )


def main() -> None:
    """Measure all, print it, and with ``--write`` put it into the docs."""
    cases = _long()
    for measured, bills in cases:
        print("\n".join(_table(measured, bills)))
        for figure in _figures(measured, bills):
            if figure.unit == "x" or figure.target is not None:
                print(
                    figure.name,
                    f"{figure.value:.2f}",
                    figure.unit,
                    figure.target,
                    "ok" if figure.ok else "MISSED",
                    figure.note,
                )
    if "--write" in sys.argv:
        _write(cases)


if __name__ == "__main__":
    main()
