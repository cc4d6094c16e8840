"""Run the benchmarks: ``python benchmarks/run.py [--short] [--strict] [--only NAME …] [--json] [--peers]``.

``--runs 3 --into benchmarks/README.md`` runs them three times, and puts a table with the ranges into the
page.

Owns: the command line. Must never know: what a benchmark measures.

Each figure is printed with its target and "ok" or "MISSED". Times are CPU times, and what is compared is
measured in the same run; still, a busy machine can miss a timed target, so a miss ends the run with 1
only under ``--strict``.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _report import Report

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # measure this checkout, whatever else is installed

NAMES = (
    "imports",
    "blob_size",
    "codec",
    "seal",
    "sse",
    "first_delta",
    "whole_turn",
    "archive",
    "kept",
    "writes",
    "many",
    "load",
    "serve",
    "memory",
    "tokens",
    "compaction",
    "facts",
    "recall",
    "recall_cost",
)
PEERS = ("peers", "peer_turns", "peer_writes")


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; 1 if a target was missed and ``--strict`` was given."""
    parser = argparse.ArgumentParser(description="Measure goaitools_py against its targets.")
    parser.add_argument("--short", action="store_true", help="fewer rounds and sizes: seconds, for CI")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    each = (*NAMES, *PEERS)
    parser.add_argument("--only", nargs="+", choices=each, metavar="NAME", help=f"of {', '.join(each)}")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write what --json prints to a file")
    parser.add_argument(
        "--peers", action="store_true", help="also turns and stores of other libraries, if installed"
    )
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="run all of it N times")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put a table of all runs into this page")
    options = parser.parse_args(arguments)
    if options.runs < 1:
        parser.error(f"--runs must be at least 1, got {options.runs}")
    names = tuple(dict.fromkeys((*(options.only or NAMES), *(PEERS if options.peers else ()))))
    if not options.json:
        print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}\n")
    runs = [_run(names, short=options.short, silent=options.json) for _ in range(options.runs)]
    reports = runs[-1]
    if options.into is not None:
        from _report import markdown, put_into

        put_into(options.into, markdown(runs))
    missed = [figure.name for report in reports.values() for figure in report.figures if not figure.ok]
    text = json.dumps({name: report.as_json() for name, report in reports.items()}, indent=2)
    if options.report is not None:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(text, encoding="utf-8")
    if options.json:
        print(text)
    elif missed:
        print(f"{len(missed)} missed: {'; '.join(missed)}")
    return 1 if missed and options.strict else 0


def _run(names: Sequence[str], *, short: bool, silent: bool) -> dict[str, Report]:
    reports: dict[str, Report] = {}
    for name in names:
        reports[name] = import_module(name).run(short=short)
        if not silent:
            print(reports[name].table(), end="\n\n", flush=True)
    return reports


if __name__ == "__main__":
    sys.exit(main())
