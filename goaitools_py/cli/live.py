"""`goaitools doctor --live`: some twenty small calls to a model with the reader's own key, and a report.

Owns: the question before money is spent, the order of the run, the report and the exit code. Must never know:
the question of a check. The report has no key and no reply in it.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .live_checks import CHECKS
from .live_model import THINKING_TOKENS, DiffersError, Live, LiveCheck, NotOfferedError, SkippedError, told
from .summary_lines import dollars
from .text_output import Progress, counted, printable, show_json

if TYPE_CHECKING:
    from .. import Usage

__all__ = ["LiveRow", "run_checks", "run_live"]

_NAME: Final = 80
"""The most characters of a cell, because servers choose some of the names."""
_REFUSED: Final = frozenset({400, 404, 405, 415, 422, 501, None})
"""Statuses by which hosts refuse a missing feature. None: the refusal stands in an answer with 200."""
_TIMEOUT: Final = 60.0
_WORDS: Final = {"differs": "**differs**"}


class LiveRow(NamedTuple):
    """The outcome of a check: "ok", "differs", "not offered" or "skipped"."""

    asked: str
    expected: str
    came: str
    note: str = ""
    milliseconds: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


def run_live(args: argparse.Namespace) -> int:
    """Ask, run all checks, and print the report. Returns 1 if a reply differs from the package's
    assumptions."""
    try:
        live = Live(
            args.live,
            max_output=args.max_output,
            timeout=args.timeout or _TIMEOUT,
            window=args.overflow,
        )
    except ValueError as error:
        args.error(str(error))
        raise
    try:
        if not (args.yes or live.is_simulated) and not _agreed(args, live):
            return 1
        live.connect()
        with Progress(len(CHECKS)) as progress:
            rows = []
            for row in run_checks(live):
                rows.append(row)
                progress.step(row.asked)
        if args.json:
            show_json(_facts(live, rows))
        else:
            print(*map(printable, _report(live, rows)), sep="\n")
    finally:
        live.close()
    return 0 if all(row.came != "differs" for row in rows) else 1


# ------------------------------------------------------------------------------------------- the question


def _agreed(args: argparse.Namespace, live: Live) -> bool:
    """Say how much the run may cost, and ask. Without a terminal a question has no answer: wrong usage."""
    print(*map(printable, _announced(live)), sep="\n", file=sys.stderr)
    if not sys.stdin.isatty():
        args.error("--live spends money: give --yes where no person can answer")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def most(live: Live) -> Usage:
    """The most tokens of the run: the input as it is written, and each reply up to its limit."""
    from .. import Usage

    overflow = 0
    if live.window is not None:
        overflow = 2 * (live.window or live.known.context_window or 0)
    thinking = sum(check.thinks for check in CHECKS) * THINKING_TOKENS
    return Usage(
        input_tokens=sum(check.tokens_in for check in CHECKS) + overflow,
        output_tokens=sum(check.calls for check in CHECKS) * live.max_output + thinking,
        requests=sum(check.calls for check in CHECKS),
    )


def _announced(live: Live) -> Iterator[str]:
    from ..types.usage import cost

    usage = most(live)
    price = cost(usage, live.model, wire=live.wire, family=live.family)
    yield f"This makes up to {usage.requests} small calls to {live.name}, with your key."
    yield (
        f"They have at most {usage.input_tokens:,} tokens of input and {usage.output_tokens:,} of output; "
        + ("the price is not known here." if price is None else f"at most {dollars(price)} at list prices.")
    )


# ------------------------------------------------------------------------------------------------ the run


def run_checks(live: Live, checks: Sequence[LiveCheck] = CHECKS) -> Iterator[LiveRow]:
    """Make the checks, in their order. If the first gets no whole reply, the others are skipped."""
    stopped = False
    for check in checks:
        if stopped:
            yield LiveRow(check.asked, check.expected, "skipped", "the first check has no whole reply")
            continue
        before, began = live.spent, time.perf_counter()
        came, note = _came(live, check)
        yield LiveRow(
            check.asked,
            check.expected,
            came,
            note,
            round((time.perf_counter() - began) * 1000),
            live.spent.input_tokens - before.input_tokens,
            live.spent.output_tokens - before.output_tokens,
        )
        stopped = check is CHECKS[0] and came != "ok" and not live.has_answered


def _came(live: Live, check: LiveCheck) -> tuple[str, str]:
    from ..types.errors import ProviderRejectedError

    try:
        return "ok", check.run(live)
    except DiffersError as found:
        return "differs", str(found)
    except NotOfferedError as found:
        return "not offered", str(found)
    except SkippedError as found:
        return "skipped", str(found)
    except ProviderRejectedError as error:
        is_lacking = check.is_optional and error.status_code in _REFUSED
        return "not offered" if is_lacking else "differs", told(error)
    except Exception as error:  # whatever it is, the other checks go on, and the report names it
        return "differs", told(error)


# --------------------------------------------------------------------------------------------- the report


def _facts(live: Live, rows: Sequence[LiveRow]) -> dict[str, Any]:
    from .. import __version__

    price = _price(live)
    return {
        "model": live.name,
        "answered_as": live.answered_as,
        "server": live.family,
        "version": __version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "tokens_in": live.spent.input_tokens,
        "tokens_out": live.spent.output_tokens,
        "price_usd": None if price is None else str(price),
        "rows": [row._asdict() for row in rows],
    }


def _report(live: Live, rows: Sequence[LiveRow]) -> Iterator[str]:
    """The report in Markdown."""
    facts = _facts(live, rows)
    price = _price(live)
    counts = {came: sum(row.came == came for row in rows) for came in ("ok", "not offered", "skipped")}
    differing = [row.asked for row in rows if row.came == "differs"]
    yield f"### goaitools doctor --live {_cell(live.name)}"
    yield ""
    yield (
        f"goaitools-py {facts['version']}, Python {facts['python']}, {facts['date']}. "
        f"Server: {_cell(live.family)}. Answered as: {_cell(live.answered_as) or 'no model'}."
    )
    yield ""
    yield "| asked | expected | came | note | ms | tokens in | out |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        came, note = _WORDS.get(row.came, row.came), _cell(row.note)
        numbers = f"{row.milliseconds:,} | {row.tokens_in:,} | {row.tokens_out:,}"
        yield f"| {row.asked} | {row.expected} | {came} | {note} | {numbers} |"
    yield ""
    found = ", ".join(f"{number} {came}" for came, number in counts.items())
    yield f"{found}, {len(differing)} differ{'s' if len(differing) == 1 else ''}."
    yield (
        f"{counted(live.spent.input_tokens, 'token')} in, {live.spent.output_tokens:,} out: "
        + ("price unknown." if price is None else f"about {dollars(price)} at list prices.")
    )
    yield ""
    yield "The row for docs/live.md:"
    yield ""
    result = ", ".join(differing) or "all that the package relies on holds"
    yield f"| {facts['date']} | {_cell(live.name)} | {_cell(live.family)} | {facts['version']} | {result} |"


def _price(live: Live) -> Decimal | None:
    from ..types.usage import total

    return total(live.costs)


def _cell(text: str) -> str:
    """A text as a cell of a table in Markdown."""
    plain = "".join(" " if sign in "|`\n\r\t" else sign for sign in text)
    return plain if len(plain) <= _NAME else plain[: _NAME - 1] + "…"
