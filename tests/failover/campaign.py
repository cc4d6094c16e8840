"""The campaign: engines, faults and ways of saving, each with eight workers on sixteen conversations.

A worker is killed now and then, and its next process sends the same turn again.

Owns: one run, its judgement, and the printed table. Must never know: how an engine makes a fault.

    python -m tests.failover.campaign                          everything: about an hour
    python -m tests.failover.campaign postgres sentinel        these engines
    python -m tests.failover.campaign sentinel --faults pause --parts store --waits 1

A run is judged if the engine is PostgreSQL, or if all replicas of Redis confirm: it must lose nothing, double
nothing, and leave no conversation blocked. Other runs are printed only.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from .engines import ENGINES, FAULTS, Engine
from .nodes import until
from .workers import Load, deliveries_in, opened

__all__ = ["Outcome", "run"]

BACK_WITHIN = 30.0
"""Seconds after all nodes are back until each conversation must have gone on."""


@dataclass
class Outcome:
    """What one run showed.

    Attributes:
        acknowledged: Turns with an answer.
        lost: Acknowledged turns that are not in the store.
        doubled: Turns that are in the store more than once.
        blocked: Conversations without an answer in the 30 seconds after all nodes were back.
        silent: The longest wait of one caller for one answer, in seconds.
        away: Seconds from the fault until all nodes were back.
        asked_again: Turns whose model was asked for the same reply more than once.
        effects: Effects that ran twice or more, by idempotency key.
        killed: Workers that were killed.
        errors: What the callers got, by error and cause.
    """

    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    silent: float = 0.0
    away: float = 0.0
    asked_again: int = 0
    effects: dict[str, int] = field(default_factory=dict)
    killed: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def is_good(self) -> bool:
        """True if nothing is lost, doubled or blocked."""
        return not (self.lost or self.doubled or self.blocked)

    @property
    def more(self) -> str:
        """What is not in the table, for a person."""
        return (
            f"away {self.away:.1f} s, asked again {self.asked_again}, effects twice {self.effects}, "
            f"errors {dict(self.errors)}"
        )


class _Logs:
    """The workers' files, read again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lines(self, kind: str) -> Iterator[list[Any]]:
        """The entries of a kind: the time, and what was noted."""
        for file in sorted(self._folder.glob("worker-*.log")):
            for line in file.read_text().splitlines():
                entry = json.loads(line)
                if entry[1] == kind:
                    yield [entry[0], *entry[2:]]

    def acknowledged_since(self, moment: float) -> list[tuple[str, str]]:
        """The turns with an answer after a moment: key and id."""
        return [(key, id) for at, id, key, _ in self.lines("acknowledged") if at >= moment]


def run(
    engine: Engine,
    fault: str,
    parts: str,
    waits: dict[str, Any],
    *,
    before: int = 150,
    workers: int = 8,
    keys: int = 16,
    pause: float = 0.05,
    seed: int = 1,
    save_timeout: float = 5.0,
    is_shared: bool = True,
    commits: bool = True,
    kill_every: float = 0.0,
) -> Outcome:
    """One run: a load, a fault once `before` turns have answers, and the judgement."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="goaitools-load-") as name:
        folder, logs = Path(name), _Logs(Path(name))
        load = Load(
            engine.url, waits, name, parts, seed, workers, keys, pause, save_timeout, is_shared, commits,
            kill_every,
        )  # fmt: skip
        told = json.dumps(load._asdict())
        process = subprocess.Popen([sys.executable, "-m", "tests.failover.workers", told])
        try:
            began = monotonic()
            until(lambda: len(logs.acknowledged_since(began)) >= before, "the load runs", 180.0, 0.2)
            outcome.away = engine.fault(fault)
            back, all_keys = monotonic(), {f"chat-{number}" for number in range(keys)}

            def missing() -> set[str]:
                return all_keys - {key for key, _ in logs.acknowledged_since(back)}

            try:
                until(lambda: not missing(), "each conversation goes on", BACK_WITHIN, 0.2)
            except AssertionError:
                outcome.blocked = sorted(missing())
            (folder / "end").touch()
            try:
                process.wait(60.0)
            except subprocess.TimeoutExpired:
                (folder / "give-up").touch()
                process.wait(120.0)
            assert process.returncode == 0, "a worker failed"
        finally:
            process.kill()
        _judge(outcome, load, logs)
    return outcome


def _judge(outcome: Outcome, load: Load, logs: _Logs) -> None:
    stored: dict[str, list[str]] = {}
    with opened(load.url, load.waits) as store:
        for number in range(load.keys):
            from goaitools_py import Chat

            blob = Chat("sim").conversation(store, f"chat-{number}").state()
            stored[f"chat-{number}"] = deliveries_in(blob) if blob else []
    answers = list(logs.lines("acknowledged"))
    outcome.acknowledged = len(answers)
    outcome.lost = [id for _, id, key, _ in answers if id not in stored[key]]
    outcome.doubled = [id for ids in stored.values() for id, count in Counter(ids).items() if count > 1]
    outcome.silent = max((seconds for *_, seconds in answers), default=0.0)
    asked = Counter((id, what) for _, id, what in logs.lines("asked"))
    outcome.asked_again = sum(count > 1 for count in asked.values())
    effects = Counter(key for _, _, key in logs.lines("effect"))
    outcome.effects = {key: count for key, count in effects.items() if count > 1}
    outcome.killed = sum(1 for _ in logs.lines("killed"))
    outcome.errors = Counter(f"{error}({cause})" for _, _, error, cause, _ in logs.lines("error"))


_COLUMNS = (
    "engine",
    "`wait_replicas`",
    "fault",
    "parts",
    "workers killed",
    "acknowledged",
    "lost",
    "doubled",
    "blocked",
    "longest wait, s",
)


def _row(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Run what the command line names, and print a row for each run. Gives how many judged runs were bad."""
    parser = argparse.ArgumentParser(prog="failover")
    parser.add_argument("engines", nargs="*", choices=[*ENGINES, []], metavar="ENGINE")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS)
    parser.add_argument("--parts", nargs="+", choices=("inline", "store"), default=("inline", "store"))
    parser.add_argument("--waits", nargs="+", type=int, help="wait_replicas (default: each that is of use)")
    parser.add_argument("--save-timeout", type=float, default=5.0)
    parser.add_argument("--sends-again", action="store_true", help="no commit of a StoreCommitError")
    parser.add_argument("--own", action="store_true", help="each conversation has one worker")
    parser.add_argument(
        "--kill-every", type=float, default=4.0, help="seconds from one kill of a worker to the next, or 0"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # servers end with the process
    bad = 0
    print(_row(*_COLUMNS), _row(*["---"] * len(_COLUMNS)), sep="\n", flush=True)
    for name in args.engines or ENGINES:
        replicas = getattr(ENGINES[name], "replicas", None)
        choices = [None] if replicas is None else args.waits or sorted({0, 1, replicas}, reverse=True)
        for waits in choices:
            for fault in args.faults:
                for parts in args.parts:
                    is_judged = waits in (None, replicas)
                    with ENGINES[name]() as engine:
                        given = {} if waits is None else {"wait_replicas": waits}
                        found = run(
                            engine, fault, parts, given, seed=args.seed,
                            save_timeout=args.save_timeout, is_shared=not args.own,
                            commits=not args.sends_again, kill_every=args.kill_every,
                        )  # fmt: skip
                    bad += is_judged and not found.is_good
                    bad_ones = map(len, (found.lost, found.doubled, found.blocked))
                    counts = (found.killed, found.acknowledged, *bad_ones)
                    shown = "" if waits is None else waits
                    print(_row(name, shown, fault, parts, *counts, f"{found.silent:.1f}"), flush=True)
                    print(f"  {found.more}", file=sys.stderr, flush=True)
    print(f"seed {args.seed}: {bad} judged runs were bad")
    return bad


if __name__ == "__main__":
    sys.exit(main())
