"""The steps of a PostgreSQL store: each step is a flow of statements and answers.

Owns: which statement follows which answer, and the meaning of the server's answers and errors. Must never
know: a driver, or whether its caller is async.

A step is a generator. It yields a statement with its parameters, and is sent the rows of the answer.
`problem` translates the driver's errors before they are thrown into the step.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Generator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, TypeVar

from ..types.errors import StoreError, StoreUnavailableError
from . import common
from .base import RowFacts, Stored, StoredHead, StoredKey, StoredPage, StoredPart
from .layout import ascii_facts, facts_of, plain_values
from .postgres_pools import pooler_problem
from .postgres_sql import Statements

__all__ = ["LeaseToken", "PostgresSteps", "Step", "only_reads", "problem"]

T = TypeVar("T")
Step: TypeAlias = Generator[tuple[str, tuple[Any, ...]], Sequence[Sequence[Any]], T]

_REMEDY: Final = (
    "make the store with prepare=False, and a pool of your own of asyncpg with statement_cache_size=0"
)

_NO_TABLE: Final = "42P01"
_NO_COLUMN: Final = "42703"
_ONLY_READS: Final = "25006"
_LOST_RACES: Final = ("40001", "40P01")
_NO_SIGN: Final = ("22P05", "22021")
_MADE_BY_ANOTHER: Final = ("23505", "42P07", "42710")
"""SQLSTATEs of two workers that make a table at the same time; "if not exists" does not prevent them."""


class _NoTableError(Exception):
    """A table is not there yet."""


class _RefusedError(Exception):
    """The server did not do the statement: it lost a race, or breaks a constraint.

    Attributes:
        code: The server's SQLSTATE.
    """

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def problem(error: Exception) -> Exception:
    """Translate an error of a driver for a step. Its text is dropped: it may quote a key or a blob."""
    if isinstance(error, StoreError):
        return error
    code = getattr(error, "sqlstate", None) or ""
    if code == _NO_TABLE:
        return _NoTableError()
    if (pooled := pooler_problem(error, _REMEDY)) is not None:
        return pooled.because_of(error)
    if code == _NO_COLUMN:
        return common.older_layout("a table").because_of(error)
    if code in _LOST_RACES or code in _MADE_BY_ANOTHER or code.startswith("23"):
        return _RefusedError(code)
    return common.unavailable("PostgreSQL", error)


def _lacks_a_sign(error: StoreUnavailableError) -> bool:
    """Whether a text cannot be written in the encoding of the database or of the connection."""
    found = error.sdk_error
    return isinstance(found, UnicodeEncodeError) or getattr(found, "sqlstate", None) in _NO_SIGN


def only_reads(error: Exception) -> bool:
    """Whether the server refuses writes: after a failover the connection may lead to the former primary.

    The connection works, so a pool would lend it again. It has to be closed.
    """
    return getattr(error, "sqlstate", None) == _ONLY_READS


class LeaseToken:
    """The row of one holder's lease: its key, its token, and its length."""

    def __init__(self, key: str, ttl: float) -> None:
        self.key = common.check_key(key)
        self.token = secrets.token_hex(16)
        self.ttl_ms = max(1, round(common.check_ttl(ttl) * 1000))
        self.is_taken = False
        """True once the server has confirmed it."""

    @property
    def values(self) -> tuple[str, str, int]:
        """The parameters of its statements."""
        return self.key, self.token, self.ttl_ms


class PostgresSteps:
    """The steps of one store."""

    def __init__(self, table: str, schema: str | None) -> None:
        self._sql = Statements(table, schema)

    # ------------------------------------------------------------------------------------- blobs

    def load(self, key: str) -> Step[Stored | None]:
        """The blob under `key`, or None."""
        rows = yield from self._if_there(self._sql.load, (common.check_key(key),))
        return _stored(rows[0]) if rows else None

    def save(
        self,
        key: str,
        blob: bytes,
        expected: int | None,
        facts: RowFacts | None,
        lease: LeaseToken | None = None,
    ) -> Step[int]:
        """Save if the stored version is still `expected`. The same statement ends `lease`, if one is
        given."""
        sql = self._sql
        if lease is None:
            statement = sql.insert if expected is None else sql.update
            return (yield from self._saved(statement, key, blob, expected, facts))
        statement = sql.insert_and_release if expected is None else sql.update_and_release
        return (yield from self._saved(statement, key, blob, expected, facts, lease.token))

    def save_parts(
        self,
        key: str,
        head: bytes,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        expected: int | None,
        facts: RowFacts | None,
        lease: LeaseToken | None = None,
    ) -> Step[int]:
        """As `save`; the same statement adds parts and drops parts."""
        added = {part.name: part for part in new}.values()
        dropped = sorted(set(gone) - {part.name for part in added})
        columns = (
            [part.name for part in added],
            [part.kind for part in added],
            [part.data for part in added],
        )
        sql = self._sql
        if lease is None:
            statement = sql.insert_with_parts if expected is None else sql.update_with_parts
            return (yield from self._saved(statement, key, head, expected, facts, dropped, *columns))
        statement = (
            sql.insert_with_parts_and_release if expected is None else sql.update_with_parts_and_release
        )
        return (yield from self._saved(statement, key, head, expected, facts, dropped, *columns, lease.token))

    def _saved(
        self,
        statement: str,
        key: str,
        blob: bytes,
        expected: int | None,
        facts: RowFacts | None,
        *more: Any,
    ) -> Step[int]:
        common.check_key(key)
        blob, version = bytes(blob), common.new_version(expected)
        compared = () if expected is None else (expected,)
        now = common.as_ms(datetime.now(UTC))
        values = (key, blob, version, now, *plain_values(facts).values(), *compared, *more)
        try:
            try:
                rows = yield from self._made(statement, values)
            except StoreUnavailableError as exc:
                if facts is None or facts.title.isascii() or not _lacks_a_sign(exc):
                    raise
                plain = plain_values(ascii_facts(facts)).values()
                rows = yield from self._made(statement, (key, blob, version, now, *plain, *compared, *more))
        except _RefusedError as exc:
            if exc.code not in _LOST_RACES and (yield from self.load(key)) is None:
                raise StoreUnavailableError(
                    "the database refused the row, and not because the key is taken: look at the table's "
                    "constraints and triggers"
                ) from None
            raise common.conflict(expected) from None
        except StoreUnavailableError:
            # The connection may have broken after the statement was sent: look whether it was done.
            found = yield from self.load(key)
            if found is None or (found.version, found.blob) != (version, blob):
                raise
            return version
        if not rows:
            raise common.conflict(expected)
        return version

    def load_head(self, key: str, kinds: Collection[int] | None) -> Step[StoredHead | None]:
        """The head and its parts of these kinds (None: all kinds), read in one statement."""
        common.check_key(key)
        if kinds is not None and not kinds:
            found = yield from self.load(key)
            return None if found is None else _head(found, ())
        asked = None if kinds is None else [int(kind) for kind in kinds]
        rows = yield from self._if_there(self._sql.load_head, (key, asked))
        head = next((_stored(row) for row in rows if row[1] is not None), None)
        if head is None:
            return None
        return _head(head, tuple(_part(row[4:]) for row in rows if row[1] is None))

    def load_parts(self, key: str, names: Collection[bytes]) -> Step[tuple[StoredPart, ...]]:
        """The named parts that are stored."""
        rows = yield from self._if_there(self._sql.load_parts, (common.check_key(key), [*set(names)]))
        return tuple(map(_part, rows))

    def set_stop(self, key: str, is_wanted: bool) -> Step[bool]:
        """Set or clear the stop flag of a key. False if nothing is stored there."""
        values = (common.check_key(key), int(is_wanted))
        return bool((yield from self._if_there(self._sql.set_stop, values)))

    def stop_requested(self, key: str) -> Step[bool]:
        """The stop flag of a key."""
        rows = yield from self._if_there(self._sql.stop_requested, (common.check_key(key),))
        return bool(rows and rows[0][0])

    def delete(self, key: str, expected: int | None) -> Step[bool]:
        """Delete the entry under `key`, with `expected` only that version."""
        if (yield from self._if_there(self._sql.delete, (common.check_key(key), expected))):
            return True
        if expected is not None and (yield from self.load(key)) is not None:
            raise common.conflict(expected)
        return False

    def list(self, prefix: str, cursor: str | None, limit: int) -> Step[StoredPage]:
        """A page of the keys that begin with `prefix`, in code point order."""
        common.check_page(prefix, limit, cursor)
        values = (prefix, common.after_prefix(prefix), cursor, limit + 1)
        rows = yield from self._if_there(self._sql.list, values)
        keys = tuple(
            StoredKey(key=key, version=version, updated_at=common.as_time(at), facts=facts_of(plain))
            for key, version, at, *plain in map(_texts, rows[:limit])
            if common.is_listed(key, prefix)
        )
        return StoredPage(keys=keys, cursor=_texts(rows[limit - 1])[0] if len(rows) > limit else None)

    # ------------------------------------------------------------------------------------ leases

    def take(self, lease: LeaseToken) -> Step[None]:
        """Begin a lease, or raise `LeaseHeldError`."""
        try:
            rows = yield from self._made(self._sql.take, lease.values)
        except _RefusedError:
            rows = ()
        if not rows:
            raise common.held()
        lease.is_taken = True

    def take_and_load(self, lease: LeaseToken) -> Step[Stored | None]:
        """Begin a lease, and then load.

        These are two statements, because one statement sees all rows as they were when it began. If it had to
        wait for the former holder, it would return a blob from before that holder's save.
        """
        yield from self.take(lease)
        return (yield from self.load(lease.key))

    def take_and_load_head(self, lease: LeaseToken, kinds: Collection[int] | None) -> Step[StoredHead | None]:
        """Begin a lease, and then load the head. See `take_and_load`."""
        yield from self.take(lease)
        return (yield from self.load_head(lease.key, kinds))

    def renew(self, lease: LeaseToken) -> Step[bool]:
        """Begin the lease's time anew. False if it ran out."""
        return bool((yield from self._if_there(self._sql.renew, lease.values)))

    def is_held(self, key: str) -> Step[bool]:
        """True while a holder has the lease of `key`. It only reads."""
        return bool((yield from self._if_there(self._sql.is_held, (common.check_key(key),))))

    def release(self, lease: LeaseToken) -> Step[None]:
        """End the lease, if the row still holds its token."""
        yield from self._if_there(self._sql.release, (lease.key, lease.token))

    # ------------------------------------------------------------------------------------ tables

    def make_tables(self) -> Step[None]:
        """Make the tables that are missing. Another process may do the same at the same time."""
        for statement in self._sql.make:
            try:
                yield statement, ()
            except _RefusedError as exc:
                if exc.code not in _MADE_BY_ANOTHER:
                    raise common.unavailable("PostgreSQL", exc) from None

    def _if_there(self, statement: str, values: tuple[Any, ...]) -> Step[Sequence[Sequence[Any]]]:
        """The answer to a statement; no rows if a table is missing."""
        try:
            return (yield statement, values)
        except _NoTableError:
            return ()
        except _RefusedError as exc:
            raise common.unavailable("PostgreSQL", exc) from None

    def _made(self, statement: str, values: tuple[Any, ...]) -> Step[Sequence[Sequence[Any]]]:
        """The answer to a statement; tables that are missing are made first."""
        try:
            return (yield statement, values)
        except _NoTableError:
            yield from self.make_tables()
        try:
            return (yield statement, values)
        except _NoTableError as exc:
            raise common.unavailable("PostgreSQL", exc) from None


def _stored(row: Sequence[Any]) -> Stored | None:
    if row[1] is None:
        return None
    return Stored(blob=bytes(row[0]), version=int(row[1]), updated_at=common.as_time(int(row[2])))


def _texts(row: Sequence[Any]) -> list[Any]:
    """A row without bytes. psycopg gives a text as bytes if the encoding is SQL_ASCII, which is no
    encoding."""
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in row]


def _head(row: Stored, parts: tuple[StoredPart, ...]) -> StoredHead:
    return StoredHead(blob=row.blob, version=row.version, updated_at=row.updated_at, parts=parts)


def _part(row: Sequence[Any]) -> StoredPart:
    name, kind, data = row
    return StoredPart(name=bytes(name), kind=int(kind), data=bytes(data))
