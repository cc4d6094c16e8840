"""Stores with a `ttl`: a conversation that was not saved for so long is as if it were deleted.

In SQL the row stays until something deletes it. No test sleeps: the saved times are set back, or the clock
of the saves is a number of the test.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, StateConflictError, event
from goaitools_py.__main__ import main
from goaitools_py.stores import AsyncSQLiteStore, RowFacts, SQLiteStore, StoredPart, sql_steps
from goaitools_py.stores.sql_statements import Statements
from goaitools_py.stores.sql_steps import SQLSteps
from goaitools_py.testing import store_contract
from goaitools_py.testing._store_case import Face, Loop
from goaitools_py.testing._store_case import opened as entered
from goaitools_py.types.errors import StoreUnavailableError

from ._places import DRIVERS, SHARED, Place, maker, opened

SQL = ("sqlite", "sqlite-async", *DRIVERS, "postgres", "postgres-async")
TTL = 1_000.0
OLDER = 1_000_001
"""Milliseconds by which a row is set back."""


@contextmanager
def setting_back(place: Place) -> Iterator[Callable[[str], None]]:
    """Make the row of a key older than `TTL`, past the store."""
    with ExitStack() as stack:
        if place.kind.startswith("redis"):
            import redis

            url, _, prefix = place.url.partition("#")
            client = stack.enter_context(redis.Redis.from_url(url))

            def expire(key: str) -> None:
                for name in client.scan_iter(f"{prefix}:*{{{key}}}"):
                    if b":lease:" not in name:
                        client.pexpire(name, 0)
                for name in client.scan_iter(f"{prefix}:recent*"):
                    client.zrem(name, f"{prefix}:state:{{{key}}}")

            yield expire
            return
        import sqlalchemy

        url = place.url if "://" in place.url else f"sqlite:///{place.url}"
        for each, plain in (("+aiosqlite", ""), ("+asyncpg", "+psycopg"), ("+asyncmy", "+pymysql")):
            url = url.replace(each, plain)
        if url.startswith("postgresql://"):
            url = url.replace("postgresql://", "postgresql+psycopg://")
        engine = sqlalchemy.create_engine(url)
        stack.callback(engine.dispose)
        name = "`key`" if url.startswith("mysql") else "key"
        back = f"UPDATE goaitools_state SET updated_at = updated_at - {OLDER} WHERE {name} = :key"

        def set_back(key: str) -> None:
            with engine.begin() as connection:
                changed = connection.execute(
                    sqlalchemy.text(back), {"key": key.encode() if "`" in name else key}
                )
                assert changed.rowcount == 1

        yield set_back


@contextmanager
def faces(place: Place, count: int = 1) -> Iterator[list[Face]]:
    """Stores with a `ttl` over one place, of either colour."""
    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        yield [Face(stack.enter_context(entered(maker(place, TTL), loop)), loop) for _ in range(count)]


@pytest.mark.parametrize("place", [*SQL, "redis", "redis-async", "redis-decoding"], indirect=True)
def test_a_store_with_a_ttl_keeps_the_contract(place: Place) -> None:
    """All of it, and each method takes an old row for a deleted one. SQL is as Redis."""
    with setting_back(place) as expire:
        store_contract(maker(place, TTL), max_blob_bytes=100_000, lease_ttl=0.3, expire=expire)


# ----------------------------------------------------------------------------------------- histories


class Clock:
    """The clock of `updated_at`, in milliseconds."""

    now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Row:
    """What a model of the store keeps of one conversation."""

    version: int
    blob: bytes
    at: int
    is_stopped: bool = False
    parts: set[bytes] = field(default_factory=set)


def part_of(number: int) -> StoredPart:
    data = b"part %d" % number
    return StoredPart(name=sha256(data).digest(), kind=64 + number % 2, data=data)


PARTS = tuple(map(part_of, range(4)))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("place", SQL, indirect=True)
def test_random_histories_equal_those_of_deleted_rows(
    place: Place, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that deletes each row when its time is over gives the same answers, to the millisecond."""
    print(f"seed {seed}")
    clock, rng = Clock(), random.Random(f"{place.kind} {seed}")
    monkeypatch.setattr(sql_steps, "_now", clock)
    rows: dict[str, Row] = {}
    ends = 0
    with faces(place, 2) as both:
        for number in range(40):
            clock.now += rng.choice((0, 1, 300_000, 999_999, 1_000_000))
            for key in [key for key, row in rows.items() if row.at + 1_000_000 <= clock.now]:
                del rows[key]
                ends += 1
            key, face = rng.choice("abc"), both[number % 2]
            row = rows.get(key)
            match rng.randrange(8):
                case 0 | 1 | 2:
                    save(rng, face, rows, key, b"blob %d" % number, clock.now)
                case 3:
                    assert face.set_stop(key) is (row is not None)
                    if row is not None:
                        row.is_stopped = True
                case 4:
                    expected = None if row is None or rng.random() < 0.5 else row.version
                    assert face.delete(key, expected=expected) is (rows.pop(key, None) is not None)
                case 5:
                    if row is None and rng.random() < 0.3:
                        with face.lease(key, 60.0):
                            save(rng, face, rows, key, b"leased %d" % number, clock.now)
                case _:
                    pass
            for face in both:
                look(face, rows)
    assert ends > 2


def save(rng: random.Random, face: Face, rows: dict[str, Row], key: str, blob: bytes, now: int) -> None:
    """Save with the right version, or an old one, with parts or without."""
    row = rows.get(key)
    right = None if row is None else row.version
    expected = right if rng.random() < 0.7 else rng.choice((None, 4711, LAST.get(key)))
    new, gone = rng.sample(PARTS, 2), [one.name for one in rng.sample(PARTS, 2)]
    has_parts = rng.random() < 0.5

    def write() -> int:
        if has_parts:
            return face.save_parts(key, blob, new, gone, expected=expected)
        return face.save(key, blob, expected=expected)

    if expected != right:
        with pytest.raises(StateConflictError):
            write()
        return
    version = write()
    assert version != LAST.get(key)
    LAST[key] = version
    made = rows[key] = row or Row(version, blob, now)
    made.version, made.blob, made.at = version, blob, now
    if has_parts:
        made.parts = made.parts - set(gone) | {one.name for one in new}


LAST: dict[str, int] = {}
"""The last version of each key, also of a row that has gone."""


def look(face: Face, rows: dict[str, Row]) -> None:
    """Compare each method that reads with the model."""
    for key in "abc":
        row, stored, head = rows.get(key), face.load(key), face.load_head(key)
        parts = {one.name for one in face.load_parts(key, [one.name for one in PARTS])}
        if row is None:
            assert (stored, head, parts, face.stop_requested(key)) == (None, None, set(), False)
            continue
        assert stored is not None
        assert head is not None
        assert (stored.blob, stored.version) == (head.blob, head.version) == (row.blob, row.version)
        assert {one.name for one in head.parts} == parts == row.parts
        assert face.stop_requested(key) is row.is_stopped
    assert [one.key for one in face.list().keys] == sorted(rows)
    newest = sorted(rows, key=lambda key: (rows[key].at, key), reverse=True)
    assert [one.key for one in face.recent().keys] == newest
    pages = [one.key for one in face.recent(limit=1).keys] + [one.key for one in face.list(limit=1).keys]
    assert pages == [*newest[:1], *sorted(rows)[:1]]


@pytest.mark.parametrize("place", SQL, indirect=True)
def test_of_savers_in_the_place_of_an_old_row_one_wins(place: Place) -> None:
    """The others get a conflict, and the parts are those of the winner."""
    with faces(place, 4) as stores, setting_back(place) as expire:
        stores[0].save_parts("ada", b"old", PARTS[:2], expected=None)
        expire("ada")
        won: list[tuple[int, int]] = []

        def write(number: int) -> None:
            part = part_of(10 + number)
            with suppress(StateConflictError):
                version = stores[number].save_parts("ada", part.name, (part,), expected=None)
                won.append((number, version))

        raised = race([lambda number=number: write(number) for number in range(4)])
        head = stores[0].load_head("ada")

    assert raised == []
    assert len(won) == 1
    assert head is not None
    assert (head.version, head.parts) == (won[0][1], (part_of(10 + won[0][0]),))


def race(jobs: list[Callable[[], None]]) -> list[BaseException]:
    from goaitools_py.testing._store_case import StoreCase

    return StoreCase.race(None, jobs)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------- conversations


@pytest.mark.parametrize("parts", ["inline", "store"])
@pytest.mark.parametrize(
    ("place", "model"),
    [*((kind, "sim") for kind in SHARED), ("sqlite", "sim:openai-responses"), ("sqlite", "sim:anthropic")],
    indirect=["place"],
)
def test_an_old_conversation_begins_anew(place: Place, model: str, parts: Any) -> None:
    """A turn after the end knows nothing of the turns before, and leaves nothing of them in the row."""
    with opened(place, TTL) as store, Chat(model) as chat, setting_back(place) as expire:
        conversation = chat.conversation(store, "ada", parts=parts)
        for _ in range(12):
            conversation.send("My name is Ada.")
        expire("ada")
        again = chat.conversation(store, "ada", parts=parts)
        assert again.snapshot() is None
        result = again.send("What is my name?")
        head = store.load_head("ada")

        assert "Ada" not in result.text
        assert head is not None
        assert head.parts == ()
        assert len(again.history().turns) == 1
        again.send("My name is Bob.")
        assert store.load("ada") is not None


def test_async_conversations_begin_anew(tmp_path: Path) -> None:
    """As above, awaited."""
    place = Place("sqlite-async", str(tmp_path / "states.sqlite3"))

    async def talk() -> None:
        async with AsyncSQLiteStore(place.url, ttl=TTL) as store, AsyncChat("sim") as chat:
            await chat.conversation(store, "ada").send("My name is Ada.")
            with setting_back(place) as expire:
                expire("ada")
            result = await chat.conversation(store, "ada").send("What is my name?")
            assert "Ada" not in result.text
            assert len((await chat.conversation(store, "ada").history()).turns) == 1

    asyncio.run(talk())


def test_an_event_begins_the_time_anew_and_a_lease_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a save counts: a read, a lease and a stop flag do not."""
    clock = Clock()
    monkeypatch.setattr(sql_steps, "_now", clock)
    with SQLiteStore(tmp_path / "chat.db", ttl=TTL) as store, Chat("sim") as chat:
        conversation = chat.conversation(store, "ada")
        conversation.send("My name is Ada.")
        clock.now += 900_000
        conversation.append(event("It rains."))
        clock.now += 900_000
        assert store.load("ada") is not None
        with store.lease("ada", 10.0) as lease:
            assert lease.renew()
            store.set_stop("ada")
        clock.now += 100_000
        assert store.load("ada") is None


def test_an_erasure_leaves_no_bytes_of_an_old_conversation(tmp_path: Path) -> None:
    """`erase` deletes forgotten rows and bytes aside, too; `goaitools store prune` sees and deletes them."""
    place = Place("sqlite", str(tmp_path / "chat.db"))
    aside = f"ada.unreadable.{'0' * 24}"
    with SQLiteStore(place.url, ttl=TTL) as store, Chat("sim") as chat, setting_back(place) as expire:
        for key in ("ada", "bob", "eve"):
            chat.conversation(store, key, parts="store").send("My name is Ada.")
        stored = store.load("ada")
        assert stored is not None
        store.save_parts("ada", stored.blob, PARTS, (), expected=stored.version)
        store.save(aside, b"aside", expected=None)
        for key in ("ada", aside, "bob"):
            expire(key)
        assert stored_keys(place.url) == ["ada", aside, "bob", "eve"]
        assert chat.conversation(store, "ada").erase() == 0
        assert stored_keys(place.url) == ["bob", "eve"]
        with closing(sqlite3.connect(place.url)) as connection:
            assert connection.execute("SELECT count(*) FROM goaitools_state_part").fetchone() == (0,)
    assert main(["store", "prune", f"sqlite:///{place.url}", "--older-than", "1000s", "--yes"]) == 0
    assert stored_keys(place.url) == ["eve"]


def stored_keys(path: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [key for (key,) in connection.execute("SELECT key FROM goaitools_state ORDER BY key")]


# ---------------------------------------------------------------------------------------- statements


def statements_of(engine: str, *, forgets: bool) -> dict[str, str]:
    """Every statement that a store sends to the tables of conversations and parts."""
    sql = Statements(engine, "states", "leases", "parts", forgets=forgets)
    flags = (True, False)
    found = {
        name: getattr(sql, name) for name in ("load", "set_stop", "stop_requested", "add_part", "is_held")
    }
    for one, two, three in itertools.product(flags, repeat=3):
        which = f"{one} {two} {three}"
        found[f"save {which}"] = sql.save(is_new=one, has_parts=two, ends_lease=three)
        found[f"recent {which}"] = sql.recent(has_start=one, has_end=two, is_before=three)
        found[f"list {which}"] = sql.list(is_after=one, has_end=two)
        found[f"delete {which}"] = sql.delete(compares=one)
        found[f"head {which}"] = sql.load_head([1, 2] if one else None)
        found[f"parts {which}"] = sql.load_parts(2) + sql.drop_parts(2)
    return found


@pytest.mark.parametrize("engine", ["postgresql", "mysql", "mariadb", "sqlite"])
def test_without_a_ttl_no_statement_compares_times(engine: str) -> None:
    """The statements are those with a ttl, without the condition."""
    plain, timed = statements_of(engine, forgets=False), statements_of(engine, forgets=True)
    assert not [name for name, text in plain.items() if "oldest" in text or "EXISTS" in text]
    for name, text in timed.items():
        without = text.replace(" AND updated_at > :oldest", "").replace(" WHERE updated_at > :oldest", "")
        key = "`key`" if engine in ("mysql", "mariadb") else "key"
        without = without.replace(f" AND EXISTS (SELECT 1 FROM states WHERE {key} = :key)", "")
        assert without == plain[name]
        is_same = name.startswith(("save True", "delete", "add_part", "is_held"))
        assert ("oldest" in text) is not is_same, name


def test_without_a_ttl_sqlite_gets_no_time(tmp_path: Path) -> None:
    """Of all methods no statement has the condition; with a ttl a turn has as many statements as without."""
    sent: dict[float | None, list[str]] = {}
    for ttl in (None, TTL):
        heard: list[str] = sent.setdefault(ttl, [])
        with SQLiteStore(tmp_path / f"{ttl}.db", ttl=ttl) as store, Chat("sim") as chat:
            store._connection.set_trace_callback(heard.append)
            for _ in range(3):
                chat.conversation(store, "ada", parts="store").send("Hello.")
            store._connection.set_trace_callback(None)
    assert not [text for text in sent[None] if "updated_at >" in text or "updated_at <" in text]
    assert len(sent[None]) == len(sent[TTL])
    assert [text for text in sent[TTL] if "updated_at >" in text]


def test_an_answer_that_is_lost_in_the_place_of_an_old_row_is_looked_for() -> None:
    """The write was done, and its answer did not come: the save finds it."""
    sql = Statements("postgresql", "states", "leases", "parts", forgets=True)
    step = SQLSteps(sql, {"all": []}, TTL).save("ada", b"new", None, RowFacts(title="A", status="complete"))
    next(step)
    ((statement, values),) = step.send(())  # the insert has found a row
    assert "stop_requested = 0" in statement
    lost = StoreUnavailableError("lost")
    assert step.throw(lost)[0][0] == sql.load
    with pytest.raises(StopIteration) as ended:
        step.send([(b"new", values["version"], values["updated_at"], 0)])
    assert ended.value.value == values["version"]


@pytest.mark.parametrize("ttl", [0, -1.0, float("nan"), float("inf"), 1e12])
def test_a_wrong_ttl_is_told(ttl: float, tmp_path: Path) -> None:
    """Where the store is made, before the file is."""
    with pytest.raises(ValueError, match="ttl must be"):
        SQLiteStore(tmp_path / "chat.db", ttl=ttl)
    for wrong in (True, "10"):
        with pytest.raises(TypeError, match="ttl must be"):
            SQLiteStore(tmp_path / "chat.db", ttl=wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "chat.db").exists()
