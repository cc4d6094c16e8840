"""`goaitools upgrade`: all states of a place in the newest format, sealed with the newest key.

Owns: the command's options, the loop, the report, and the places (files, folders, stores, columns): how each
lists its states, and how one is replaced so that no other worker's save is lost. Must never know: the changes
of an upgrade in a state, or the content of a part.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from .codec_options import add_options, check_options, opened_with
from .source import from_text, read_file, refuse_other, write_file
from .store_urls import add_store, has_store, opened_store, sqlite_path
from .text_output import Progress, add_json, columns, counted, printable, show_json

if TYPE_CHECKING:
    from ..chat.kept.facade import PartsPlace

__all__ = ["Outcome", "StateFiles", "StatePlace", "StoreRows", "TableColumn", "Upgrade", "add_to"]

_SHOWN_NAMES: Final = 10
_WIDTH: Final = 14
_TEXTS: Final = {
    "upgraded": "written anew",
    "current": "new already",
    "no_state": "not a state, left alone",
    "gone": "deleted meanwhile",
    "busy": "in use: run the command again when their turns are over",
    "refused": "not opened: the keys or the --binding do not fit, or they were changed",
    "newer": "written by a newer release; this one cannot read them",
    "unreadable": "damaged, or not a state",
    "failed": "not read or not written",
}
"""The words of a report for each outcome."""
_PROBLEMS: Final = ("busy", "refused", "newer", "unreadable", "failed")


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "upgrade",
        description="Write states in the newest version of the format, sealed with the first --key-env. "
        "States that are so already stay as they are. It may be stopped at any time, and run again. No save "
        "of another worker is lost: a state in use is left out, and named in the report.",
    )
    parser.add_argument("path", nargs="?", metavar="PATH", help="a file, or a folder with files")
    add_store(parser, what="all conversations of this store")
    parser.add_argument("--prefix", metavar="TEXT", default="", help="only keys that begin with this")
    parser.add_argument("--column", metavar="NAME", help="the states are in this column of --table instead")
    parser.add_argument(
        "--key-column", metavar="NAME", help="the column that tells the rows of --table apart"
    )
    parser.add_argument(
        "--parts",
        choices=("store", "inline"),
        help="also write each conversation as chat.conversation(…, parts=…) does: its parts in the store's "
        "table of parts, or all of it in its row",
    )
    add_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="only count what would be done")
    add_json(parser)
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Upgrade each state. Returns 1 if a state could not be upgraded."""
    _check(args)
    found: Counter[str] = Counter()
    names: dict[str, list[str]] = {}
    stopped = False
    with _place(args) as place, Progress(place.count()) as progress:
        try:
            for name in place.names():
                outcome = _upgrade(args, place, name)
                found[outcome] += 1
                if outcome in _PROBLEMS and len(shown := names.setdefault(outcome, [])) < _SHOWN_NAMES:
                    shown.append(name)
                progress.step(f"{found['upgraded']:,} written anew")
        except KeyboardInterrupt:
            stopped = True
    _report(args, found, names, stopped)
    if stopped:
        raise KeyboardInterrupt
    return 1 if any(found[name] for name in _PROBLEMS) else 0


def _check(args: argparse.Namespace) -> None:
    if args.path is not None and args.store is not None:
        args.error("name a PATH or a --store URL, not both")
    if args.path is None and not has_store(args):
        args.error("name what to upgrade: a PATH (a file or a folder), or a --store URL")
    if args.column is not None and not (args.store and args.table and args.key_column):
        args.error("--column needs more: --store URL --table NAME --key-column NAME")
    if args.column is None and args.key_column is not None:
        args.error("--key-column goes with --column")
    if args.parts is not None and (args.path is not None or args.column is not None):
        args.error("--parts goes with --store, without --column: files and columns hold whole states")
    check_options(args)


@contextmanager
def _place(args: argparse.Namespace) -> Iterator[StatePlace]:
    if args.path is not None:
        if os.path.isfile(args.path):  # a named file must be a state; a folder may hold other files
            with open(args.path, "rb") as file:
                refuse_other(args.path, file.read(64))
        yield StateFiles(args.path)
    elif args.column is not None:
        path = sqlite_path(args.store)
        url = args.store if path is None else f"sqlite:///{path}"
        with closing(TableColumn(url, args.table, args.column, args.key_column)) as column:
            yield column
    else:
        with opened_store(args.store, args.table) as store:
            opening = partial(_opening, args)
            yield StoreRows(store, opening, args.prefix, args.parts)


def _opening(args: argparse.Namespace, blob: bytes, key: str) -> dict[str, Any]:
    return opened_with(args, blob, key=key)


def _upgrade(args: argparse.Namespace, place: StatePlace, name: str) -> str:
    from ..history.stored_states import upgrade_state
    from ..types.errors import StateAuthError, StateError, StateVersionError, StoreError

    def new_of(blob: bytes, key: str) -> bytes:
        return upgrade_state(blob, **opened_with(args, blob, key=key))

    try:
        return place.upgrade(name, new_of, dry=args.dry_run)
    except StateAuthError:
        return "refused"
    except StateVersionError:
        return "newer"
    except StateError:
        return "unreadable"
    except (ValueError, StoreError, OSError):
        return "failed"


def _report(
    args: argparse.Namespace, found: Counter[str], names: dict[str, list[str]], stopped: bool
) -> None:
    if args.json:
        facts = {name: found[name] for name in _TEXTS}
        show_json({**facts, "dry_run": args.dry_run, "stopped": stopped, "names": names})
        return
    for name, text in _TEXTS.items():
        if not found[name] and name not in ("upgraded", "current"):
            continue
        if args.dry_run and name == "upgraded":
            text = "would be written anew"
        label = counted(found[name], "file" if name == "no_state" else "state")
        for line in columns(label, text, width=max(_WIDTH, len(label) + 2)):
            print(line)
        for one in names.get(name, ()):  # whole, so that it can be copied
            print(f"      {printable(one)}")
        if found[name] > len(names.get(name, ())) > 0:
            print("      …")
    if stopped:
        print("stopped; run the command again, and it goes on with the rest")


Outcome: TypeAlias = Literal["upgraded", "current", "gone", "busy", "no_state"]
Upgrade: TypeAlias = Callable[[bytes, str], bytes]
"""From a state and its name (key or path) to the state to store; the same one if there is nothing to do."""

_TRIES: Final = 3
"""How often a row is read anew because another worker saved meanwhile."""
_PAGE: Final = 500
_STARTS: Final = (b"\xf5GAS", b"gas1.")
_BYTES: Final = (bytes, bytearray, memoryview)


class StatePlace(Protocol):
    """A place of states. `StatePlace.names` gives the names that its methods take."""

    def count(self) -> int:
        """How many names there are, for the progress bar."""
        ...

    def names(self) -> Iterator[str]:
        """The names, in pages, so that memory does not grow with them."""
        ...

    def upgrade(self, name: str, new_of: Upgrade, *, dry: bool) -> Outcome:
        """Replace one state. `dry`: only find out whether it would be replaced."""
        ...


class StateFiles:
    """A file, or all states in a folder and its folders. Links are not followed there."""

    def __init__(self, path: str) -> None:
        self._path = path

    def count(self) -> int:
        """How many files there are."""
        return sum(1 for _ in self.names())

    def names(self) -> Iterator[str]:
        """The paths in order."""
        if not os.path.isdir(self._path):
            yield self._path
            return
        for folder, folders, files in os.walk(self._path):
            folders.sort()
            for name in sorted(files):
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    yield path

    def upgrade(self, name: str, new_of: Upgrade, *, dry: bool) -> Outcome:
        """Replace one file in one step, as `save_state` does."""
        with open(name, "rb") as file:
            if not file.read(5).startswith(_STARTS):
                return "no_state"
        blob, is_text = read_file(name)
        new = new_of(blob, name)
        if new == blob:
            return "current"
        if not dry:
            if read_file(name)[0] != blob:
                return "busy"
            write_file(name, new, as_text=is_text)
        return "upgraded"


class StoreRows:
    """The conversations of a store. Each is replaced under its lease, and with compare-and-swap.

    Args:
        store: The store.
        opening: Gives the codec and the binding of a blob under a key.
        prefix: The beginning of the keys.
        parts: "store": move parts into the store's table of parts; "inline": into the rows; None: leave them.
    """

    def __init__(
        self,
        store: Any,
        opening: Callable[[bytes, str], dict[str, Any]],
        prefix: str,
        parts: PartsPlace | None = None,
    ) -> None:
        self._store = store
        self._opening = opening
        self._prefix = prefix
        self._parts = parts
        self._titled: set[str] = set()

    def count(self) -> int:
        """How many keys there are."""
        return sum(1 for _ in self.names())

    def names(self) -> Iterator[str]:
        """The keys, a page at a time."""
        cursor = None
        while True:
            page = self._store.list(self._prefix, cursor=cursor, limit=_PAGE)
            self._titled = {one.key for one in page.keys if one.facts is not None and one.facts.title}
            yield from (one.key for one in page.keys)
            cursor = page.cursor
            if cursor is None:
                return

    def upgrade(self, name: str, new_of: Upgrade, *, dry: bool) -> Outcome:
        """Replace one row with its parts; a row that a turn holds is busy."""
        from ..chat.kept.full_row import held, load_row
        from ..types.errors import StateConflictError, TurnInProgressError

        def opening(blob: bytes) -> dict[str, Any]:
            return self._opening(blob, name)

        for _ in range(_TRIES):
            row = load_row(self._store, name, opening)
            if row is None:
                return "gone"
            new = new_of(row.blob, name)
            if not row.differs(new, place=self._parts):
                return "current"
            if dry:
                return "upgraded"
            with_title = name in self._titled or None
            try:
                with held(self._store, name):
                    row.save(new, place=self._parts, with_title=with_title)
            except TurnInProgressError:
                return "busy"
            except StateConflictError:
                continue
            return "upgraded"
        return "busy"


class TableColumn:
    """A column of a table of the application. The update names the old bytes, so a newer save stays."""

    def __init__(self, url: str, table: str, column: str, key: str) -> None:
        try:
            import sqlalchemy
        except ModuleNotFoundError:
            raise OSError("a column needs an extra: pip install 'goaitools-py[sqlalchemy]'") from None
        self._sql = sqlalchemy
        schema, _, name = table.rpartition(".")
        self._key: Any = sqlalchemy.column(key)
        self._state: Any = sqlalchemy.column(column)  # without a type: it may hold bytes, or texts
        self._table = sqlalchemy.table(name, self._key, self._state, schema=schema or None)
        self._engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
        self._keys: dict[str, Any] = {}

    def count(self) -> int:
        """How many rows have a state."""
        statement = (
            self._sql.select(self._sql.func.count()).select_from(self._table).where(self._state.is_not(None))
        )
        return int(self._read(statement)[0][0])

    def names(self) -> Iterator[str]:
        """The keys as texts, in the order of the column, a page at a time."""
        last: list[Any] = []
        while True:
            statement = self._sql.select(self._key).where(self._state.is_not(None))
            if last:
                statement = statement.where(self._key > last[0])
            statement = statement.order_by(self._key).limit(_PAGE)
            keys = [row[0] for row in self._read(statement)]
            self._keys = {str(key): key for key in keys}
            yield from self._keys
            if len(keys) < _PAGE:
                return
            last = keys[-1:]

    def upgrade(self, name: str, new_of: Upgrade, *, dry: bool) -> Outcome:
        """Replace the state of one row, if it has not changed since it was read. A text stays a text."""
        from ..state.whole_blobs import state_to_text

        is_row = self._key == self._keys[name]
        for _ in range(_TRIES):
            read = self._sql.select(self._state).where(is_row)
            rows = self._read(read)
            if not rows or rows[0][0] is None:
                return "gone"
            found = rows[0][0]
            is_text = isinstance(found, str)
            old = found.encode() if is_text else bytes(found) if isinstance(found, _BYTES) else b""
            if not old.startswith(_STARTS):
                return "no_state"
            blob = from_text(old)
            if (new := new_of(blob, name)) == blob:
                return "current"
            if dry:
                return "upgraded"
            value = state_to_text(new) if is_text else new
            values = {self._state.name: value}
            is_old = self._state == (found if is_text else old)
            write = self._sql.update(self._table).where(is_row, is_old).values(values)
            if self._write(write):
                return "upgraded"
        return "busy"

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _read(self, statement: Any) -> list[Any]:
        with self._begun() as connection:
            return list(connection.execute(statement))

    def _write(self, statement: Any) -> int:
        with self._begun() as connection:
            return int(connection.execute(statement).rowcount)

    @contextmanager
    def _begun(self) -> Iterator[Any]:
        from ..types.errors import StoreUnavailableError

        try:
            with self._engine.begin() as connection:
                yield connection
        except self._sql.exc.SQLAlchemyError as error:
            # Do not chain this error: the driver's text quotes the row.
            raise StoreUnavailableError(f"the database refused: {type(error).__name__}") from None
