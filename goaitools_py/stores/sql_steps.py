"""The steps of a store in SQL: each step is a flow of statements and answers.

Owns: which statement follows which answer, and the meaning of an answer. Must never know: a driver, or
whether its caller is async.

A step is a generator. It yields a list of commands, each a statement with its parameters, and is sent the
rows of the answer. A list of several commands is one transaction: it is rolled back if the first command
changes no row, and the answer is the first one's. A statement that returns no rows is answered with one empty
row if it changed something. The driver's errors are translated by `sql_errors.problem` before they are thrown
into the step.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from ..types.errors import StoreUnavailableError
from . import common
from .base import RowFacts, Stored, StoredHead, StoredKey, StoredPage, StoredPart
from .layout import ascii_facts, facts_of, plain_values
from .sql_errors import NoTableError, RefusedError, is_unwritable
from .sql_statements import Statements, now_ms

__all__ = ["DONE", "Command", "LeaseToken", "Rows", "Running", "SQLSteps", "Step"]

T = TypeVar("T")
Command: TypeAlias = tuple[Any, Any]
"""A statement, and its parameters by name; or a list of them, to do the statement with each."""
Rows: TypeAlias = Sequence[Sequence[Any]]
Step: TypeAlias = Generator[Sequence[Command], Rows, T]

DONE: Final[Rows] = ((),)
"""The answer to a statement that returns no rows and changed something."""

_NAMES_AT_ONCE: Final = 500
"""How many names one statement holds; SQLite before 3.32 takes 999."""


class Running(Generic[T]):
    """A step that runs. A driver does its commands until it is over, on one connection after another.

    Attributes:
        commands: The commands to do now.
        is_over: The step has ended, with `result`.
    """

    __slots__ = ("_step", "commands", "is_over", "result")

    def __init__(self, step: Step[T]) -> None:
        self._step = step
        self.is_over = False
        self.commands = next(step)

    def answer(self, rows: Rows) -> None:
        """The commands were done."""
        try:
            self.commands = self._step.send(rows)
        except StopIteration as end:
            self.is_over, self.result = True, cast("T", end.value)

    def fail(self, error: Exception) -> None:
        """The commands were not done, or their answer did not come. Raises what the step makes of it."""
        try:
            self.commands = self._step.throw(error)
        except StopIteration as end:
            self.is_over, self.result = True, cast("T", end.value)


class LeaseToken:
    """The row of one holder's lease: its key, its token, and its length."""

    def __init__(self, key: str, ttl: float) -> None:
        self.key = common.check_key(key)
        self.token = secrets.token_hex(16)
        self.ttl_ms = max(1, round(common.check_ttl(ttl) * 1000))
        self.is_taken = False
        """True once the database has confirmed it."""


class SQLSteps:
    """The steps of one store.

    Args:
        statements: Its statements.
        tables: The statements that make a table, by its role: "state", "lease" or "part"; by "all" if the
            first write makes every table. Each inner list is one list of commands.
        ttl: Seconds after its last save until a row is as if it were not there, by the clock that
            ``updated_at`` is from. None: the statements do not compare times.
    """

    def __init__(
        self, statements: Statements, tables: Mapping[str, Sequence[Sequence[Any]]], ttl: float | None = None
    ) -> None:
        self._sql = statements
        self._ttl_ms = 0 if ttl is None else max(1, round(common.check_lifetime(ttl) * 1000))
        self._tables = tables
        self._has_parts = not statements.find_parts

    def _key(self, key: str) -> Any:
        """A key as a parameter. MySQL compares it with bytes, in any character set of the connection."""
        return key.encode() if self._sql.is_mysql else key

    def _at(self, key: str) -> dict[str, Any]:
        """Check a key, and give the parameters of a statement on its row, if the row is not forgotten."""
        return {"key": self._key(common.check_key(key)), **self._oldest()}

    def _oldest(self) -> dict[str, int]:
        """The parameter of statements that compare the times of rows."""
        return {"oldest": _now() - self._ttl_ms} if self._sql.forgets else {}

    # ------------------------------------------------------------------------------------- blobs

    def load(self, key: str) -> Step[Stored | None]:
        """The blob under `key`, or None."""
        rows = yield from self._if_there(self._sql.load, self._at(key))
        return _stored(rows[0]) if rows else None

    def save(
        self,
        key: str,
        blob: bytes,
        expected: int | None,
        facts: RowFacts | None,
        lease: LeaseToken | None = None,
    ) -> Step[int]:
        """Save if the stored version is still `expected`. The same step ends `lease`, if one is given."""
        common.check_key(key)
        sql = self._sql
        statement = sql.save(is_new=expected is None, ends_lease=lease is not None)
        more: dict[str, Any] = {}
        then: list[Command] = []
        if lease is not None and sql.is_single:
            more["token"] = lease.token
        elif lease is not None and sql.is_local:
            then.append(self._release(lease))
        version = yield from self._saved(key, blob, expected, facts, statement, more, then)
        if lease is not None and sql.is_mysql:
            # There a transaction would cost more round trips. A lease that is left ends by itself.
            with suppress(StoreUnavailableError):
                yield from self.release(lease)
        return version

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
        """As `save`; the same step adds parts and drops parts.

        The head's row is changed first, and so locked. Of two savers the second one waits, finds another
        version, and changes nothing. The lease comes last, so that all savers lock the rows in one order.
        """
        common.check_key(key)
        sql = self._sql
        added = {part.name: part for part in new}.values()
        dropped = sorted(set(gone) - {part.name for part in added})
        statement = sql.save(is_new=expected is None, has_parts=True, ends_lease=lease is not None)
        if sql.is_single:
            more: dict[str, Any] = {
                "gone": dropped,
                "names": [part.name for part in added],
                "kinds": [part.kind for part in added],
                "data": [part.data for part in added],
            }
            if lease is not None:
                more["token"] = lease.token
            return (yield from self._saved(key, head, expected, facts, statement, more, [], "part"))
        if not self._has_parts:
            # Before the transaction: on MySQL, making a table would end it.
            yield from self._made([(sql.find_parts, {})], "part")
            self._has_parts = True
        its_key = self._key(key)
        then: list[Command] = [
            (sql.drop_parts(len(names)), {"key": its_key, **names}) for names in _groups(dropped)
        ]
        if added:
            rows = [{"key": its_key, "name": p.name, "kind": p.kind, "data": p.data} for p in added]
            then.append((sql.add_part, rows))
        if lease is not None:
            then.append(self._release(lease))
        return (yield from self._saved(key, head, expected, facts, statement, {}, then, "part"))

    def _saved(
        self,
        key: str,
        blob: bytes,
        expected: int | None,
        facts: RowFacts | None,
        statement: str,
        more: Mapping[str, Any],
        then: Sequence[Command],
        role: str = "state",
    ) -> Step[int]:
        blob, version = bytes(blob), common.new_version(expected)
        values = {
            "key": self._key(key),
            "blob": blob,
            "version": version,
            "updated_at": _now(),
            **plain_values(facts),
            **more,
        }
        ways: list[Callable[[], Step[Rows]]] = [lambda: self._made([(statement, values), *then], role)]
        if expected is not None:
            values |= {"expected": expected, **self._oldest()}
        elif self._sql.forgets:
            ways.append(lambda: self._replaced(values, then, role))
        for write in ways:
            try:
                try:
                    rows = yield from write()
                except StoreUnavailableError as exc:
                    if facts is None or facts.title.isascii() or not is_unwritable(exc.sdk_error):
                        raise
                    values |= plain_values(ascii_facts(facts))
                    rows = yield from write()
            except RefusedError as exc:
                if exc.lost_race:
                    raise common.conflict(expected) from None
                rows = ()
            except StoreUnavailableError:
                if self._sql.is_local:
                    raise
                # The connection may have broken after the statement was sent: look whether it was done.
                found = yield from self.load(key)
                if found is None or (found.version, found.blob) != (version, blob):
                    raise
                return version
            if rows:
                return version
        if expected is None and (yield from self.load(key)) is None:
            raise StoreUnavailableError(
                "the database refused the row, and not because the key is taken: look at the table's "
                "constraints and triggers"
            )
        raise common.conflict(expected)

    def _replaced(self, values: Mapping[str, Any], then: Sequence[Command], role: str) -> Step[Rows]:
        """Save in the place of a row that is forgotten. The same step drops its parts and its stop flag."""
        sql, old = self._sql, {**self._oldest(), "names": [], **values}

        def commands(drops: bool) -> list[Command]:
            statement = sql.replace(has_parts=role == "part", ends_lease="token" in values, drops=drops)
            drop: Command = (sql.drop_all_parts, {"key": values["key"]})
            return [(statement, old), *([drop] if drops and not sql.is_single else []), *then]

        try:
            return (yield commands(drops=True))
        except NoTableError:  # there is no table of parts
            return (yield from self._made(commands(drops=False), role))

    def load_head(self, key: str, kinds: Collection[int] | None) -> Step[StoredHead | None]:
        """The head and its parts of these kinds (None: all kinds), read in one statement."""
        values = self._at(key)
        if kinds is None or kinds:
            statement = self._sql.load_head(None if kinds is None else sorted(kinds))
            try:
                rows = yield [(statement, values)]
            except NoTableError:
                pass  # there may be a table of conversations
            else:
                head = next((row for row in rows if row[1] is not None), None)
                return None if head is None else _head(head, [row[4:] for row in rows if row[1] is None])
        rows = yield from self._if_there(self._sql.load, values)
        return _head(rows[0], ()) if rows else None

    def load_parts(self, key: str, names: Collection[bytes]) -> Step[tuple[StoredPart, ...]]:
        """The named parts that are stored."""
        values = self._at(key)
        asked = [*dict.fromkeys(names)]
        groups: list[dict[str, Any]] = [{"names": asked}] if self._sql.is_single else [*_groups(asked)]
        found: list[StoredPart] = []
        for group in groups:
            rows = yield from self._if_there(self._sql.load_parts(len(group)), {**values, **group})
            found += map(_part, rows)
        return tuple(found)

    def set_stop(self, key: str, is_wanted: bool) -> Step[bool]:
        """Set or clear the stop flag of a key. False if nothing is stored there."""
        values = {**self._at(key), "flag": int(is_wanted)}
        return bool((yield from self._if_there(self._sql.set_stop, values)))

    def stop_requested(self, key: str) -> Step[bool]:
        """The stop flag of a key."""
        rows = yield from self._if_there(self._sql.stop_requested, self._at(key))
        return bool(rows and rows[0][0])

    def delete(self, key: str, expected: int | None) -> Step[bool]:
        """Delete the entry under `key`, with `expected` only that version."""
        common.check_key(key)
        values = {"key": self._key(key)}
        if self._sql.forgets:
            # Forgotten rows go first: their bytes too must be gone, and they do not count as deleted.
            aside, end = common.aside_range(key)
            old = {**values, "aside": self._key(aside), "end": self._key(end), **self._oldest()}
            yield from self._if_there(self._sql.evict, old)
        if expected is not None:
            values["expected"] = expected
        if (yield from self._if_there(self._sql.delete(compares=expected is not None), values)):
            return True
        if expected is not None and (yield from self.load(key)) is not None:
            raise common.conflict(expected)
        return False

    def list(self, prefix: str, cursor: str | None, limit: int) -> Step[StoredPage]:
        """A page of the keys that begin with `prefix`, in code point order."""
        common.check_page(prefix, limit, cursor)
        is_after, start = (False, prefix) if cursor is None or cursor < prefix else (True, cursor)
        end = common.after_prefix(prefix)
        values = {"start": self._key(start), "count": limit + 1, **self._oldest()}
        if end is not None:
            values["end"] = self._key(end)
        statement = self._sql.list(is_after=is_after, has_end=end is not None)
        rows = [*map(_texts, (yield from self._if_there(statement, values)))]
        cursor = rows[limit - 1][0] if len(rows) > limit else None
        return StoredPage(keys=_listed(rows[:limit], prefix), cursor=cursor)

    def recent(self, prefix: str, before: str | None, limit: int) -> Step[StoredPage]:
        """A page of the keys that begin with `prefix`, the one that was saved last first."""
        cursor = common.read_recent(prefix, limit, before)
        end = common.after_prefix(prefix)
        values: dict[str, Any] = {"count": limit + 1, **self._oldest()}
        if prefix:
            values["start"] = self._key(prefix)
        if end is not None:
            values["end"] = self._key(end)
        if cursor is not None:
            values |= {"at": cursor[0], "before": self._key(cursor[1])}
        statement = self._sql.recent(
            has_start=bool(prefix), has_end=end is not None, is_before=cursor is not None
        )
        rows = [*map(_texts, (yield from self._if_there(statement, values)))]
        last = common.recent_cursor(rows[limit - 1][2], rows[limit - 1][0]) if len(rows) > limit else None
        return StoredPage(keys=_listed(rows[:limit], prefix), cursor=last)

    # ------------------------------------------------------------------------------------ leases

    def take(self, lease: LeaseToken) -> Step[None]:
        """Begin a lease, or raise `LeaseHeldError`."""
        rows: Rows = ()
        with suppress(RefusedError):
            rows = yield from self._made([(self._sql.take, self._timed(lease))], "lease")
        if not rows and self._sql.take_over:
            with suppress(RefusedError):
                rows = yield [(self._sql.take_over, self._timed(lease))]
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
        return bool((yield from self._if_there(self._sql.renew, self._timed(lease))))

    def is_held(self, key: str) -> Step[bool]:
        """True while a holder has the lease of `key`. It only reads."""
        common.check_key(key)
        values = {"key": self._key(key), **self._clock()}
        return bool((yield from self._if_there(self._sql.is_held, values)))

    def release(self, lease: LeaseToken) -> Step[None]:
        """End the lease, if the row still holds its token."""
        yield from self._if_there(*self._release(lease))

    def _release(self, lease: LeaseToken) -> Command:
        return self._sql.release, {"key": self._key(lease.key), "token": lease.token, **self._clock()}

    def _timed(self, lease: LeaseToken) -> dict[str, Any]:
        return {"key": self._key(lease.key), "token": lease.token, "ttl": lease.ttl_ms, **self._clock()}

    def _clock(self) -> dict[str, int]:
        return {} if self._sql.has_clock else {"now": now_ms()}

    # ------------------------------------------------------------------------------------ tables

    def make_tables(self, role: str = "") -> Step[None]:
        """Make the tables that are missing. Another process may do the same at the same time.

        `role`: make only this table, and the one that it refers to.
        """
        roles = ("all", "state", "part") if role == "part" else ("all", role)
        for statements in (
            made for name, table in self._tables.items() if not role or name in roles for made in table
        ):
            try:
                yield [(statement, {}) for statement in statements]
            except RefusedError as exc:
                if not exc.is_made:
                    raise exc.error from exc.error.__cause__

    def _if_there(self, statement: str, values: dict[str, Any]) -> Step[Rows]:
        """The answer to a statement; no rows if a table is missing."""
        try:
            return (yield [(statement, values)])
        except NoTableError:
            return ()
        except RefusedError as exc:
            raise exc.error from exc.error.__cause__

    def _made(self, commands: Sequence[Command], role: str) -> Step[Rows]:
        """The answer to commands; tables that are missing are made first."""
        try:
            return (yield commands)
        except NoTableError:
            pass
        yield from self._make(role)
        try:
            return (yield commands)
        except NoTableError as exc:
            raise exc.error from exc.error.__cause__

    def _make(self, role: str) -> Step[None]:
        try:
            yield from self.make_tables(role)
        except StoreUnavailableError:
            if self._sql.is_local:
                raise
            # The answer of one of them may be lost. Make them again: what is there stays.
            yield from self.make_tables(role)


def _now() -> int:
    """The time of a save."""
    return common.as_ms(datetime.now(UTC))


def _groups(names: Sequence[bytes]) -> Iterator[dict[str, bytes]]:
    """The names as parameters of statements, as many as one statement can hold."""
    for start in range(0, len(names), _NAMES_AT_ONCE):
        some = names[start : start + _NAMES_AT_ONCE]
        yield {f"name{number}": name for number, name in enumerate(some)}


def _stored(row: Sequence[Any]) -> Stored:
    return Stored(blob=bytes(row[0]), version=int(row[1]), updated_at=common.as_time(int(row[2])))


def _texts(row: Sequence[Any]) -> list[Any]:
    """A row without bytes. Keys are bytes on MySQL, and psycopg gives every text as bytes if the encoding of
    the database is SQL_ASCII, which is no encoding."""
    return [bytes(one).decode("utf-8", "replace") if isinstance(one, bytes) else one for one in row]


def _listed(rows: Sequence[Sequence[Any]], prefix: str) -> tuple[StoredKey, ...]:
    return tuple(
        StoredKey(key=key, version=version, updated_at=common.as_time(at), facts=facts_of(plain))
        for key, version, at, *plain in rows
        if common.is_listed(key, prefix)
    )


def _head(row: Sequence[Any], parts: Sequence[Sequence[Any]]) -> StoredHead:
    found = _stored(row)
    return StoredHead(
        blob=found.blob, version=found.version, updated_at=found.updated_at, parts=tuple(map(_part, parts))
    )


def _part(row: Sequence[Any]) -> StoredPart:
    name, kind, data = row
    return StoredPart(name=bytes(name), kind=int(kind), data=bytes(data))
