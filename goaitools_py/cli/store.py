"""`goaitools store`: makes the tables of a store, and brings older ones to the present layout.

Owns: the command's options, and its output. Must never know: how a step is done.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any, Final

from .store_urls import SERVERS, is_redis, opened_redis
from .text_output import add_json, show_json

if TYPE_CHECKING:
    from ..stores.migration import Tables

__all__ = ["add_to"]

_URLS: Final = f"sqlite:///FILE, {SERVERS}"
_SQL: Final = ("postgresql", "mysql", "mariadb")


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "store",
        help="make or migrate the tables of a store",
        description="Make the tables of a store, or bring older ones to the present layout.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    init = actions.add_parser(
        "init",
        help="make the tables; what is there already stays as it is",
        description="Make the tables of a store: conversations, leases, parts. What is there stays as it is.",
    )
    migrate = actions.add_parser(
        "migrate",
        help="bring tables of an older layout to the present one; all rows stay",
        description="Bring tables of an older layout to the present one. Missing columns and tables are "
        "added. No row is read, changed or lost. The new columns of a row stay empty until its next save. "
        "Run it before the new version of your program starts.",
    )
    for action in (init, migrate):
        action.add_argument("url", type=_url, metavar="URL", help=_URLS)
        action.add_argument(
            "--table", default="goaitools_state", help="the table of conversations (default: goaitools_state)"
        )
        add_json(action)
    migrate.add_argument("--dry-run", action="store_true", help="only print what would be done")
    init.set_defaults(run=lambda args: _reported(args, _init))
    migrate.set_defaults(run=lambda args: _reported(args, _migrate))


def _reported(args: argparse.Namespace, work: Callable[[argparse.Namespace, list[str]], int]) -> int:
    """Do the work. With --json its lines go to standard error, and the list of steps is printed at the
    end."""
    done: list[str] = []
    with redirect_stdout(sys.stderr) if args.json else nullcontext():
        code = work(args, done)
    if args.json:
        show_json({"steps": done, "dry_run": getattr(args, "dry_run", False), "done": code == 0})
    return code


def _init(args: argparse.Namespace, done: list[str]) -> int:
    """Make the missing tables. Returns 1 if a table has an older layout."""
    from ..stores.migration import steps_of

    if is_redis(args.url):
        return _redis(args.url)
    with closing(_tables(args.url, args.table, mode="rwc")) as tables:
        steps = steps_of(tables, args.table)
        older = sorted({step.table for step in steps if step.column is not None})
        for step in steps:
            if step.column is None:
                with _timed(str(step)):
                    tables.do(step)
                done.append(str(step))
        if older:
            print(
                f"goaitools: {', '.join(older)} has an older layout: run `goaitools store migrate`",
                file=sys.stderr,
            )
            return 1
        if not steps:
            print("nothing to do: all tables are there")
    return 0


def _migrate(args: argparse.Namespace, done: list[str]) -> int:
    """Do the missing steps, or print them."""
    from ..stores.migration import steps_of

    if is_redis(args.url):
        return _redis(args.url)
    with closing(_tables(args.url, args.table, mode="ro" if args.dry_run else "rw")) as tables:
        if tables.columns(args.table) is None:
            print(f"goaitools: there is no table {args.table}; see `goaitools store init`", file=sys.stderr)
            return 1
        steps = steps_of(tables, args.table)
        for step in steps:
            done.append(str(step))
            if args.dry_run:
                print(f"would {step}")
                continue
            with _timed(str(step)):
                tables.do(step)
        if not steps:
            print("nothing to do: the tables have the present layout")
    return 0


@contextmanager
def _timed(told: str) -> Iterator[None]:
    """Print the name of a step, and after each second the time that it has taken."""
    print(f"{told} ", end="", flush=True)
    is_over = threading.Event()
    began = time.monotonic()

    def tick() -> None:
        while not is_over.wait(1.0):
            print(f"… {time.monotonic() - began:.0f} s ", end="", flush=True)

    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield
    except BaseException:
        print("failed")
        raise
    else:
        print("done")
    finally:
        is_over.set()
        ticking.join()


def _redis(url: str) -> int:
    """Redis has no tables; say so, once it answers."""
    with opened_redis(url) as store:
        store.is_held("goaitools")
    print("nothing to do: Redis needs no tables, and adds new fields with the next save")
    return 0


def _tables(url: str, table: str, *, mode: Any) -> Tables:
    if url.startswith("sqlite:///"):
        from ..stores.migration import SQLiteTables

        return SQLiteTables(url.removeprefix("sqlite:///"), mode, table)
    try:
        from ..stores.migration_sql import SQLTables
    except ModuleNotFoundError:
        raise OSError("this database needs an extra: pip install 'goaitools-py[sqlalchemy]'") from None
    try:
        return SQLTables(url, table)
    except ValueError as exc:
        raise OSError(str(exc)) from None


def _url(text: str) -> str:
    scheme, found, rest = text.partition("://")
    is_file = scheme == "sqlite" and rest.startswith("/") and rest not in ("/", "/:memory:")
    if found and (is_file or scheme.partition("+")[0] in _SQL or is_redis(text)):
        return text
    file = f"; a SQLite file is sqlite:///{text}" if text and not found else ""
    raise argparse.ArgumentTypeError(f"the URL must be {_URLS}{file}")
