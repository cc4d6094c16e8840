"""`goaitools store`: makes and migrates the tables of a store; lists, prunes and erases its conversations.

Owns: the command's options, and its output. Must never know: how a step is done, or a blob's contents.

`prune` and `erase` read the list page by page. Each conversation is deleted under its lease: one with a turn
that runs is skipped. A walk that was broken off goes on with the cursor that it has printed, or starts again.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from .store_urls import SERVERS, TABLE, is_redis, opened_redis, opened_store
from .text_output import add_json, counted, printable, show_json

if TYPE_CHECKING:
    from ..stores.base import StoredKey
    from ..stores.migration import Tables

__all__ = ["add_to"]

_URLS: Final = f"sqlite:///FILE, {SERVERS}"
_SQL: Final = ("postgresql", "mysql", "mariadb")
_PAGE: Final = 200
"""Keys that a walk reads at a time."""
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_LEASE: Final = 30.0
"""Seconds of the lease under which a conversation is pruned."""


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "store",
        description="Make the tables of a store, or bring older ones to the present layout. List its "
        "conversations, prune old ones, or erase those of a customer.",
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
    rows = actions.add_parser(
        "list",
        help="list conversations by key",
        description="List the conversations of a store by key: time of the last save in UTC, status, turns, "
        "title. No blob is read.",
    )
    rows.add_argument("--limit", type=_count, default=100, help="at most so many rows (default: 100)")
    prune = actions.add_parser(
        "prune",
        help="delete conversations that were not saved for some time",
        description="Delete the conversations with a last save before a time, with their parts. A "
        "conversation with a turn that runs, or that is saved meanwhile, stays.",
    )
    prune.add_argument(
        "--older-than", type=_age, required=True, metavar="AGE", help="such as 90d, 12h, 30m or 45s"
    )
    erase = actions.add_parser(
        "erase",
        help="erase all conversations under a prefix, such as those of a customer",
        description="Erase all conversations whose keys begin with a prefix, as erase() of a conversation "
        "does: rows, parts, and bytes aside. A conversation with a turn that runs is skipped, and the exit "
        "code is 1.",
    )
    for action in (rows, prune, erase):
        action.add_argument(
            "--prefix",
            default="",
            required=action is erase,
            help="the beginning of the keys, such as customer-7/",
        )
        action.add_argument("--cursor", help="go on where an earlier run stopped: the cursor that it printed")
    for action in (prune, erase):
        action.add_argument("--dry-run", action="store_true", help="only count what would be deleted")
        action.add_argument("--yes", action="store_true", help="delete; needed without --dry-run")
    for action in (init, migrate, rows, prune, erase):
        action.add_argument("url", type=_url, metavar="URL", help=_URLS)
        action.add_argument(
            "--table",
            default=None,
            help=f"the table, or the prefix in Redis (default: {TABLE}; goaitools)",
        )
        add_json(action)
    init.add_argument(
        "--partitions",
        type=_count,
        default=0,
        metavar="N",
        help="on PostgreSQL: make the tables of conversations and parts with N partitions each",
    )
    migrate.add_argument("--dry-run", action="store_true", help="only print what would be done")
    init.set_defaults(run=lambda args: _reported(args, _init), table=TABLE)
    migrate.set_defaults(run=lambda args: _reported(args, _migrate), table=TABLE)
    rows.set_defaults(run=_list)
    prune.set_defaults(run=_prune, error=prune.error)
    erase.set_defaults(run=_erase, error=erase.error)


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

    if is_redis(args.url) and not args.partitions:
        return _redis(args.url)
    with closing(_tables(args.url, args.table, mode="rwc", partitions=args.partitions)) as tables:
        steps = steps_of(tables, args.table)
        if args.partitions and tables.columns(args.table) is not None:
            print(
                f"goaitools: {args.table} is there already; see 'Partitions' in docs/store_care.md",
                file=sys.stderr,
            )
            return 1
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


def _list(args: argparse.Namespace) -> int:
    """Print the rows, a line for each, or as JSON."""
    from ..chat.kept.summaries import summaries_of

    found: list[dict[str, Any]] = []
    cursor = args.cursor
    with opened_store(args.url, args.table) as store:
        while True:
            page = summaries_of(_page(store, args.prefix, cursor, min(_PAGE, args.limit - len(found))))
            for row in page.rows:
                saved = f"{row.updated_at:%Y-%m-%d %H:%M:%S}"
                found.append({"key": row.key, "saved_at": row.updated_at.isoformat(), "status": row.status,
                              "turns": row.turns, "title": row.title})  # fmt: skip
                if not args.json:
                    told = (saved, row.status or "-", "-" if row.turns is None else row.turns, row.title)
                    print(printable("\t".join(map(str, (row.key, *told))).rstrip()))
            cursor = page.cursor
            if cursor is None or len(found) >= args.limit:
                break
    if args.json:
        show_json({"conversations": found, "cursor": cursor})
    elif cursor is not None:
        print(f"more: --cursor {shlex.quote(cursor)}", file=sys.stderr)
    return 0


def _prune(args: argparse.Namespace) -> int:
    """Delete old rows with their bytes aside, under their leases and only in the version that was listed."""
    from ..chat.kept.summaries import keys_aside
    from ..types.errors import LeaseHeldError, StateConflictError

    before = datetime.now(UTC) - args.older_than

    def prune(store: Any, row: StoredKey) -> bool:
        try:
            with store.lease(row.key, _LEASE):
                is_gone = bool(store.delete(row.key, expected=row.version))
                if is_gone:
                    for key in keys_aside(store, row.key):
                        store.delete(key)
                return is_gone
        except (LeaseHeldError, StateConflictError):
            return False

    return _walk(args, lambda row: row.updated_at < before, prune, "pruned")


def _erase(args: argparse.Namespace) -> int:
    """Erase all rows under a prefix."""
    from .. import Chat
    from ..types.errors import TurnInProgressError

    if not args.prefix:
        args.error("--prefix must not be empty: it would erase all conversations of the store")
    with Chat("sim") as chat:

        def erase(store: Any, row: StoredKey) -> bool:
            try:
                chat.conversation(store, row.key, gate="reject").erase()
            except TurnInProgressError:
                return False
            return True

        return _walk(args, lambda _: True, erase, "erased")


def _walk(
    args: argparse.Namespace,
    wanted: Callable[[StoredKey], bool],
    act: Callable[[Any, StoredKey], bool],
    done: str,
) -> int:
    """Act on the wanted rows, page by page. Prints counts and the cursor to standard error after each page.

    Gives 1 if a row was skipped.
    """
    if not args.dry_run and not args.yes:
        args.error("it deletes conversations: give --yes, or --dry-run to see how many")
    looked = acted = skipped = 0
    cursor = args.cursor
    with opened_store(args.url, args.table) as store:
        while True:
            page = _page(store, args.prefix, cursor, _PAGE)
            for row in page.keys:
                looked += 1
                if wanted(row):
                    is_done = args.dry_run or act(store, row)
                    acted, skipped = acted + is_done, skipped + (not is_done)
            cursor = page.cursor
            if cursor is None:
                break
            told = counted(looked, "conversation")
            at = f"{told} read, {acted} {done}; go on with --cursor {shlex.quote(cursor)}"
            print(at, file=sys.stderr, flush=True)
    facts = {"read": looked, done: acted, "skipped": skipped, "dry_run": args.dry_run}
    if args.json:
        show_json(facts)
    else:
        would = "would be " if args.dry_run else ""
        held = f"; {skipped} skipped: in use, run it again" if skipped else ""
        print(f"{counted(looked, 'conversation')} read, {acted} {would}{done}{held}")
    return 1 if skipped else 0


def _page(store: Any, prefix: str, cursor: str | None, limit: int) -> Any:
    """A page of the list. A cursor that the store has not given is an OSError, which the command prints."""
    try:
        return store.list(prefix, cursor=cursor, limit=limit)
    except ValueError:
        raise OSError("the cursor is not one that this store gave, with this prefix") from None


def _age(text: str) -> timedelta:
    found = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"an age is a number with s, m, h or d, such as 90d, not {text!r}")
    seconds = int(found[1]) * _SECONDS[found[2]]
    if seconds > 86_400 * 36_500:
        raise argparse.ArgumentTypeError("an age is at most 36500d")
    return timedelta(seconds=seconds)


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"a number of rows is 1 or more, not {text!r}")
    return int(text)


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


def _tables(url: str, table: str, *, mode: Any, partitions: int = 0) -> Tables:
    if partitions and not url.startswith("postgresql"):
        raise OSError("--partitions is for PostgreSQL only")
    if url.startswith("sqlite:///"):
        from ..stores.migration import SQLiteTables

        return SQLiteTables(url.removeprefix("sqlite:///"), mode, table)
    try:
        from ..stores.migration_sql import SQLTables
    except ModuleNotFoundError:
        raise OSError("this database needs an extra: pip install 'goaitools-py[sqlalchemy]'") from None
    try:
        return SQLTables(url, table, partitions=partitions)
    except ValueError as exc:
        raise OSError(str(exc)) from None


def _url(text: str) -> str:
    scheme, found, rest = text.partition("://")
    is_file = scheme == "sqlite" and rest.startswith("/") and rest not in ("/", "/:memory:")
    if found and (is_file or scheme.partition("+")[0] in _SQL or is_redis(text)):
        return text
    file = f"; a SQLite file is sqlite:///{text}" if text and not found else ""
    raise argparse.ArgumentTypeError(f"the URL must be {_URLS}{file}")
