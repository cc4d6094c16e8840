"""The places with states that `goaitools upgrade` writes anew: files, folders, stores, columns.

Owns: how each place lists its states, and how one is replaced so that no other worker's save is lost. Must
never know: the changes of an upgrade in a state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal, Protocol, TypeAlias

from .source import from_text, read_file, write_file

__all__ = ["Column", "Files", "Outcome", "Place", "Rows", "Upgrade"]

Outcome: TypeAlias = Literal["upgraded", "current", "gone", "busy", "no_state"]
Upgrade: TypeAlias = Callable[[bytes, str], bytes]
"""From a state and its name (key or path) to the state to store; the same one if there is nothing to do."""

_TRIES: Final = 3
"""How often a row is read anew because another worker saved meanwhile."""
_PAGE: Final = 500
_STARTS: Final = (b"\xf5GAS", b"gas1.")
_BYTES: Final = (bytes, bytearray, memoryview)


class Place(Protocol):
    """A place of states. `Place.names` gives the names that its methods take."""

    def count(self) -> int:
        """How many names there are, for the progress bar."""
        ...

    def names(self) -> Iterator[str]:
        """The names, in pages, so that memory does not grow with them."""
        ...

    def upgrade(self, name: str, new_of: Upgrade, *, dry: bool) -> Outcome:
        """Replace one state. `dry`: only find out whether it would be replaced."""
        ...


class Files:
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


class Rows:
    """The conversations of a store. Each is replaced under its lease, and with compare-and-swap."""

    def __init__(self, store: Any, opening: Callable[[bytes, str], dict[str, Any]], prefix: str) -> None:
        self._store = store
        self._opening = opening
        self._prefix = prefix
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
            if not row.differs(new):
                return "current"
            if dry:
                return "upgraded"
            try:
                with held(self._store, name):
                    row.save(new, with_title=name in self._titled or None)
            except TurnInProgressError:
                return "busy"
            except StateConflictError:
                continue
            return "upgraded"
        return "busy"


class Column:
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
        from ..state.text import state_to_text

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
