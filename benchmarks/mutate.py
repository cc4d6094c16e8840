"""Mutation run: small random changes of the package, each of which a test should notice.

Owns: the changes, which tests are run for each, and the list of those that no test noticed (survivors).
Must never know: what a test says.

Run it by hand; no other run includes it, and 200 changes take some hours::

    python benchmarks/mutate.py                        # 200 changes of turn/, history/, state/, chat/kept/
    python benchmarks/mutate.py --count 10 --only state/records.py

The package and its tests are copied, and only the copies are changed. A survivor is no proof of a missing
test: some changes leave the behaviour as it is. Judge each, then write a test or leave it.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "goaitools_py"
ROOMS = ("turn", "history", "open_turn", "state", "chat/kept")

_ROOM = (
    "tests/history/test_room_bounds.py tests/turn/test_room.py tests/turn/test_sizes.py "
    "tests/kept/test_any_size.py"
)
TESTS = (
    ("state/records.py", "tests/state tests/turn/test_accounting.py tests/history tests/turn"),
    (
        "history/redact/rows.py",
        "tests/seal/test_later.py tests/seal/test_parts.py tests/history/test_redact_details.py",
    ),
    ("state", "tests/state tests/history tests/compaction/test_turns.py"),
    ("chat/kept", "tests/kept/test_conversation.py tests/kept"),
    (
        "types/answers.py",
        "tests/history/test_pending_inside.py tests/turn/test_waiting.py tests/turn/test_answers_again.py",
    ),
    ("open_turn/given_answers.py", "tests/turn/test_answers_again.py tests/kept/test_answers_again.py"),
    ("open_turn/turn_ids.py", "tests/turn/test_turn_ids.py tests/turn/test_unanswered.py"),
    (
        "open_turn/inbox.py",
        "tests/turn/test_inbox.py tests/kept/test_left_waiting.py tests/turn/test_unanswered.py tests/turn",
    ),
    ("open_turn/room.py", _ROOM),
    ("open_turn", "tests/turn tests/history"),
    ("history/rewrite/mend", "tests/history/test_repair_details.py tests/history/test_repair.py"),
    ("history/rewrite", "tests/history tests/compaction tests/turn/test_repair.py tests/turn"),
    ("open_turn/meter.py", "tests/turn/test_accounting.py tests/types/test_tokens.py tests/turn"),
    (
        "history/rebase.py",
        "tests/history/test_rebase.py tests/turn/test_other_provider.py tests/kept/test_conflicts.py",
    ),
    ("history", "tests/history tests/state tests/compaction/test_turns.py"),
    ("turn/shrink.py", "tests/turn/test_compaction.py tests/compaction tests/turn"),
    (
        "turn/tool_calls.py",
        "tests/turn/test_tools.py tests/turn/test_waiting.py tests/kept/test_claims.py tests/turn",
    ),
    ("turn/turn_state.py", "tests/kept/test_left_waiting.py tests/turn"),
    ("turn", "tests/turn"),
)
"""For the beginning of a module's path, the tests that cover it, the likeliest first. The first row fits."""

_ELSEWHERE = ".git .mypy_cache .ruff_cache .pytest_cache __pycache__ .hypothesis .venv dist build"

_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_COMPUTED: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*"}


class Change(NamedTuple):
    """One change of one file: the bytes from `start` to `end` become `new`."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.old.split())}  ->  {' '.join(self.new.split())}"


class Tried(NamedTuple):
    """What became of a change: "caught", "survived", or "slow" for tests that did not end in time."""

    change: Change
    word: str
    seconds: float


def changes_of(path: str) -> list[Change]:
    """Every change of a file, in the order of its text."""
    data = (ROOT / PACKAGE / path).read_bytes()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def changed(node: ast.expr | ast.stmt, new: str) -> Change:
        start, end = span(node)
        return Change(path, node.lineno, start, end, data[start:end].decode(), new)

    def text(node: ast.expr) -> str:
        start, end = span(node)
        return f"({data[start:end].decode()})"

    def joined(node: ast.BoolOp, word: str) -> str:
        return f"({f' {word} '.join(map(text, node.values))})"

    def of(node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
                yield changed(node, f"({text(left)} {_COMPARED[type(op)]} {text(right)})")
            case ast.BoolOp(op=op):
                yield changed(node, joined(node, "or" if isinstance(op, ast.And) else "and"))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield changed(node, text(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTED:
                yield changed(node, f"({text(left)} {_COMPUTED[type(op)]} {text(right)})")
            case ast.Constant(value=bool(value)):
                yield changed(node, str(not value))
            case ast.Constant(value=int(value)):
                yield changed(node, str(value + 1))
            case ast.IfExp(body=body, orelse=orelse, test=test):
                yield changed(node, f"({text(orelse)} if {text(test)} else {text(body)})")
            case ast.Continue():
                yield changed(node, "break")
            case ast.AugAssign() | ast.Expr(value=ast.Call()):
                yield changed(node, "pass")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield changed(node, "return None")

    def walk(node: ast.AST) -> Iterator[Change]:
        for name, field in ast.iter_fields(node):
            # What only type checkers and readers see: a change of it changes nothing.
            if name in ("annotation", "returns", "decorator_list", "keywords", "type_params") and not (
                name == "keywords" and isinstance(node, ast.Call)
            ):
                continue
            for child in field if isinstance(field, list) else [field]:
                if isinstance(child, ast.AST) and not _is_silent(child):
                    yield from of(child)
                    yield from walk(child)

    return sorted(walk(ast.parse(data)), key=lambda change: change.start)


def _is_silent(node: ast.AST) -> bool:
    """True for what does nothing at run time, or only words an error."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "_unshown")]) | ast.Raise() | ast.JoinedStr():
            return True
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
    return False


def tests_of(path: str) -> list[str]:
    """The tests that cover a module."""
    return next(tests for start, tests in TESTS if path.startswith(start)).split()


def _copy(folder: Path) -> None:
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*_ELSEWHERE.split()), symlinks=True)


def _noticed(folder: Path, path: str, args: argparse.Namespace) -> str:
    run = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", args.mark]
    try:
        ran = subprocess.run(
            [*run, *tests_of(path)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=args.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "slow"
    # Also a package that cannot be imported is caught: pytest then returns 2 or 4.
    return "caught" if ran.returncode else "survived"


def tried(change: Change, folder: Path, args: argparse.Namespace) -> Tried:
    """Run the tests with one change; the copy is as before afterwards."""
    file = folder / PACKAGE / change.path
    before = file.read_bytes()
    began = time.monotonic()
    try:
        file.write_bytes(before[: change.start] + change.new.encode() + before[change.end :])
        word = _noticed(folder, change.path, args)
    finally:
        file.write_bytes(before)
    return Tried(change, word, time.monotonic() - began)


def _options(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Change the package at random; list what no test notices.")
    parser.add_argument("--count", type=int, default=200, help="how many changes (200)")
    parser.add_argument("--seed", type=int, default=17, help="the same seed picks the same changes (17)")
    parser.add_argument("--only", default="", help="modules whose path begins so, such as open_turn")
    parser.add_argument("--jobs", type=int, default=2, help="test runs at the same time (2)")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one test run (600)")
    parser.add_argument("--mark", default="not heavy and not service", help="pytest's -m for each run")
    parser.add_argument("--list", action="store_true", help="only list the changes")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Make the changes one by one; returns 0, or 2 if a test fails without any change."""
    args = _options(given)
    modules = sorted(
        path.relative_to(ROOT / PACKAGE).as_posix()
        for room in ROOMS
        for path in (ROOT / PACKAGE / room).rglob("*.py")
    )
    every = [one for path in modules if path.startswith(args.only) for one in changes_of(path)]
    picked = sorted(random.Random(args.seed).sample(every, min(args.count, len(every))))
    print(f"{len(picked)} of {len(every)} changes, seed {args.seed}")
    if args.list:
        print(*picked, sep="\n")
        return 0
    with tempfile.TemporaryDirectory() as made, ThreadPoolExecutor(args.jobs) as pool:
        folders: SimpleQueue[Path] = SimpleQueue()
        for number in range(args.jobs):
            _copy(Path(made) / str(number))
            folders.put(Path(made) / str(number))

        # A test that fails by itself would seem to catch every change.
        sets = {" ".join(tests_of(change.path)): change.path for change in picked}

        def sound(path: str) -> str:
            folder = folders.get()
            try:
                return _noticed(folder, path, args)
            finally:
                folders.put(folder)

        for tests, word in zip(sets, pool.map(sound, sets.values()), strict=True):
            if word != "survived":
                print(f"without any change these tests are {word}: {tests}")
                return 2

        done = count(1)

        def one(change: Change) -> Tried:
            folder = folders.get()
            try:
                outcome = tried(change, folder, args)
            finally:
                folders.put(folder)
            print(f"{next(done):4}  {outcome.word:8}  {outcome.seconds:5.0f} s  {change}", flush=True)
            return outcome

        outcomes = list(pool.map(one, picked))
    survivors = [outcome for outcome in outcomes if outcome.word == "survived"]
    print(f"\n{len(survivors)} of {len(outcomes)} changes survived")
    for outcome in survivors:
        print(f"  {PACKAGE}/{outcome.change}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
