"""`goaitools store`: makes the tables of a store, and brings older ones to the present layout."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat, StoreError, StoreUnavailableError
from goaitools_py.cli import main
from goaitools_py.cli.store_urls import opened_store
from goaitools_py.stores import RowFacts, SQLAlchemyStore, SQLiteStore
from goaitools_py.stores.layout import LEASE_COLUMNS, PART_COLUMNS, STATE_COLUMNS, Column

from ..stores._places import REDIS, mariadb_database, postgres_database

OLDER = {
    "sqlite": (
        "CREATE TABLE {0} (key TEXT PRIMARY KEY, version INTEGER NOT NULL, updated_at INTEGER NOT NULL,"
        " blob BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE {0}_lease (key TEXT PRIMARY KEY, token TEXT NOT NULL, ends_at INTEGER NOT NULL)"
        " WITHOUT ROWID",
    ),
    "postgresql": (
        'CREATE TABLE {0} (key VARCHAR(512) COLLATE "C" NOT NULL PRIMARY KEY, version BIGINT NOT NULL,'
        " updated_at BIGINT NOT NULL, blob BYTEA NOT NULL)",
        'CREATE UNLOGGED TABLE {0}_lease (key VARCHAR(512) COLLATE "C" NOT NULL PRIMARY KEY,'
        " token VARCHAR(32) NOT NULL, ends_at BIGINT NOT NULL)",
    ),
    "mariadb": (
        "CREATE TABLE {0} (`key` VARBINARY(512) NOT NULL PRIMARY KEY, version BIGINT NOT NULL,"
        " updated_at BIGINT NOT NULL, `blob` LONGBLOB NOT NULL) ENGINE=InnoDB",
        "CREATE TABLE {0}_lease (`key` VARBINARY(512) NOT NULL PRIMARY KEY, token VARCHAR(32) NOT NULL,"
        " ends_at BIGINT NOT NULL) ENGINE=InnoDB",
    ),
}
"""The tables of the first layout, that of leases without ``ttl_ms``."""


@pytest.fixture(params=[*OLDER])
def kind(request: pytest.FixtureRequest) -> str:
    """Which engine."""
    return str(request.param)


@pytest.fixture
def url(kind: str, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'states.db'}"
    else:
        with (postgres_database if kind == "postgresql" else mariadb_database)() as address:
            yield address


def execute(url: str, *statements: str) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def make_older(kind: str, url: str, table: str = "goaitools_state", *, ttl: bool = False) -> None:
    """The first layout, with two conversations in it."""
    states, leases = (statement.format(table) for statement in OLDER[kind])
    if ttl:
        leases = leases.replace(
            "ends_at INTEGER NOT NULL", "ends_at INTEGER NOT NULL, ttl_ms INTEGER NOT NULL"
        )
        leases = leases.replace("ends_at BIGINT NOT NULL", "ends_at BIGINT NOT NULL, ttl_ms BIGINT NOT NULL")
    key, blob = ("`key`", "`blob`") if kind == "mariadb" else ("key", "blob")
    rows = ", ".join(
        f"('{name}', {number}, 1700000000000, {bytes_of(kind, name)})" for number, name in enumerate("ab", 1)
    )
    execute(url, states, leases, f"INSERT INTO {table} ({key}, version, updated_at, {blob}) VALUES {rows}")


def bytes_of(kind: str, text: str) -> str:
    """Bytes as SQL has them."""
    return f"'\\x{text.encode().hex()}'" if kind == "postgresql" else f"x'{text.encode().hex()}'"


def columns(url: str, table: str) -> set[str]:
    import sqlalchemy

    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    found = sqlalchemy.inspect(engine)
    return {column["name"] for column in found.get_columns(table)} if found.has_table(table) else set()


def names(layout: tuple[Column, ...]) -> set[str]:
    return {column.name for column in layout}


def store_at(url: str, table: str = "goaitools_state") -> SQLAlchemyStore:
    import sqlalchemy

    return SQLAlchemyStore(sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool), table=table)


# ----------------------------------------------------------------------------------------------------- init


def test_init_makes_all_tables(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Conversations, leases and parts have a table then, and a second time there is nothing to do."""
    assert main(["store", "init", url, "--table", "talk"]) == 0
    first = capsys.readouterr().out
    assert main(["store", "init", url, "--table", "talk"]) == 0
    second = capsys.readouterr().out

    assert [line.split(" … ")[0] for line in first.splitlines()] == [
        "make table talk done",
        "make table talk_lease done",
        "make table talk_part done",
    ]
    assert second == "nothing to do: all tables are there\n"
    assert columns(url, "talk") == names(STATE_COLUMNS)
    assert columns(url, "talk_lease") == names(LEASE_COLUMNS)
    assert columns(url, "talk_part") == names(PART_COLUMNS)
    store = store_at(url, "talk")
    store.save("ada", b"blob", expected=None, facts=RowFacts(title="☃ 😀", status="complete"))
    assert store.list().keys[0].facts == RowFacts(title="☃ 😀", status="complete")


def test_init_leaves_older_tables_to_migrate(kind: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A table of the first layout is named, with the command, and nothing of it is changed."""
    make_older(kind, url)

    code = main(["store", "init", url])

    assert code == 1
    assert "goaitools store migrate" in capsys.readouterr().err
    assert columns(url, "goaitools_state") == {"key", "version", "updated_at", "blob"}


# -------------------------------------------------------------------------------------------------- migrate


@pytest.mark.parametrize("ttl", [False, True])
def test_migrate_loses_no_row(kind: str, url: str, ttl: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables of the first layout become those of the present one; every row is there with its version."""
    make_older(kind, url, ttl=ttl)

    assert main(["store", "migrate", url]) == 0
    told = capsys.readouterr().out
    assert main(["store", "migrate", url]) == 0

    assert capsys.readouterr().out == "nothing to do: the tables have the present layout\n"
    assert ("add column ttl_ms to table goaitools_state_lease" in told) is not ttl
    assert "add column title to table goaitools_state " in told
    assert "make table goaitools_state_part" in told
    store = store_at(url)
    for number, name in enumerate("ab", 1):
        stored = store.load(name)
        assert stored is not None
        assert (stored.blob, stored.version) == (name.encode(), number)
    assert [entry.facts for entry in store.list().keys] == [None, None]
    store.save("a", b"new", expected=1, facts=RowFacts(title="T", status="complete"))
    assert store.set_stop("b")
    assert store.stop_requested("b")
    with store.lease("a", 10.0):
        pass


def test_a_dry_run_only_tells(kind: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With --dry-run each step is printed, and none is done."""
    make_older(kind, url)

    assert main(["store", "migrate", url, "--dry-run"]) == 0

    told = capsys.readouterr().out.splitlines()
    assert all(line.startswith("would ") for line in told)
    assert "would add column stop_requested to table goaitools_state" in told
    assert columns(url, "goaitools_state") == {"key", "version", "updated_at", "blob"}
    assert columns(url, "goaitools_state_part") == set()


def test_json_tells_what_was_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output has nothing else; a step is told also if it would only be done."""
    url = f"sqlite:///{tmp_path / 'states.db'}"
    make_older("sqlite", url)

    assert main(["store", "init", url, "--json"]) == 1
    out, err = capsys.readouterr()
    made = ["make table goaitools_state_part"]
    assert json.loads(out) == {"steps": made, "dry_run": False, "done": False}
    assert "make table goaitools_state_part done" in err
    assert main(["store", "migrate", url, "--json", "--dry-run"]) == 0
    would = json.loads(capsys.readouterr().out)
    assert main(["store", "migrate", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {**would, "dry_run": False}
    assert would["dry_run"] is would["done"] is True
    assert len(would["steps"]) > 1
    assert main(["store", "migrate", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == []


def test_a_store_that_meets_an_older_table_names_the_command(
    kind: str, url: str, request: pytest.FixtureRequest
) -> None:
    """The load before a turn says it: nothing was called then, and there is nothing to wait for."""
    make_older(kind, url)
    stores: list[Any] = [store_at(url)]
    if kind == "sqlite":
        file = SQLiteStore(url.removeprefix("sqlite:///"))
        request.addfinalizer(file.close)
        stores.append(file)

    for store in stores:
        calls = (
            partial(store.load, "a"),
            partial(store.save, "a", b"x", expected=1),
            store.list,
            partial(store.lease("a", 10.0).__enter__),
        )
        for call in calls:
            with pytest.raises(StoreError, match="goaitools store migrate URL") as caught:
                call()
            assert not isinstance(caught.value, StoreUnavailableError)


def test_nothing_to_migrate_is_a_problem(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A database without the table is exit code 1, and no table or file is made."""
    code = main(["store", "migrate", url])

    assert code == 1
    assert capsys.readouterr().err.startswith("goaitools: ")
    if url.startswith("sqlite:///"):
        assert not Path(url.removeprefix("sqlite:///")).exists()


def test_parts_go_with_a_row_that_is_deleted_by_hand(tmp_path: Path) -> None:
    """Also over a connection that does not know of foreign keys."""
    path = tmp_path / "states.db"
    assert main(["store", "init", f"sqlite:///{path}"]) == 0
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO goaitools_state (key, version, updated_at, blob) VALUES ('a', 1, 0, x'00')"
        )
        connection.execute("INSERT INTO goaitools_state_part VALUES ('a', x'01', 64, x'02')")
        connection.execute("DELETE FROM goaitools_state")
        left = connection.execute("SELECT count(*) FROM goaitools_state_part").fetchone()

    assert left == (0,)


def test_redis_needs_no_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """It is said, once Redis answers."""
    redis = pytest.importorskip("redis")
    try:
        redis.Redis.from_url(REDIS).ping()
    except redis.ConnectionError:
        pytest.skip("no Redis")

    assert main(["store", "migrate", REDIS]) == 0
    assert "Redis needs no tables" in capsys.readouterr().out


@pytest.mark.parametrize("url", ["chat.db", "sqlite://", "sqlite:///:memory:", "oracle://x", "mongodb://x/y"])
def test_another_url_is_wrong_usage(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the URLs that it takes."""
    assert main(["store", "init", url]) == 2
    assert "sqlite:///FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    "url", ["postgresql+psycopg://nobody@127.0.0.1:1/x", "redis://127.0.0.1:1/0", "postgresql+nodriver://x/y"]
)
def test_a_server_that_is_away_is_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, without a traceback."""
    code = main(["store", "migrate", url])

    err = capsys.readouterr().err
    assert code == 1
    assert err.startswith("goaitools: ")
    assert "Traceback" not in err


def test_a_file_in_place_of_a_url_is_told_its_url(capsys: pytest.CaptureFixture[str]) -> None:
    """Other commands take the path of a SQLite file; this one makes tables, and wants the URL."""
    assert main(["store", "init", "chat.db"]) == 2
    assert "a SQLite file is sqlite:///chat.db" in capsys.readouterr().err


# --------------------------------------------------------------------------------------- conversations


@pytest.fixture(params=[*OLDER, pytest.param("redis", marks=pytest.mark.service)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """The URL of an empty store with all rights, and the options that name its table."""
    if request.param == "redis":
        import redis

        prefix = f"goaitools-test-{tmp_path.name}"
        with redis.Redis.from_url(REDIS) as client:
            try:
                yield REDIS, ["--table", prefix]
            finally:
                for key in client.scan_iter(match=f"{prefix}*"):
                    client.delete(key)
        return
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'states.db'}"
        assert main(["store", "init", url]) == 0
        yield url, []
        return
    with (postgres_database if request.param == "postgresql" else mariadb_database)() as url:
        assert main(["store", "init", url]) == 0
        yield url, []


@contextlib.contextmanager
def opened(place: tuple[str, list[str]]) -> Iterator[Any]:
    url, table = place
    with opened_store(url, table[1] if table else None) as store:
        yield store


def keys_of(place: tuple[str, list[str]]) -> list[str]:
    with opened(place) as store:
        return [row.key for row in store.list(limit=1000).keys]


def test_all_conversations_of_a_customer_are_erased(
    place: tuple[str, list[str]], capsys: Any, monkeypatch: Any
) -> None:
    """With their parts, in pages. Nothing is deleted in a dry run, or without --yes. A conversation with a
    turn that runs stays, and goes with the next run."""
    monkeypatch.setattr("goaitools_py.cli.store._PAGE", 2)
    keys = [f"c7/{number}" for number in range(5)]
    with opened(place) as store, Chat("sim") as chat:
        for key in [*keys, "c70/1", "c8/1"]:
            chat.conversation(store, key, parts="store").send("My name is Ada.")
    url, table = place
    command = ["store", "erase", url, "--prefix", "c7/", *table]
    capsys.readouterr()
    assert main(command) == 2
    assert main(["store", "erase", url, "--prefix", "", "--yes", *table]) == 2
    assert main([*command, "--dry-run"]) == 0
    assert "5 conversations read, 5 would be erased\n" in capsys.readouterr().out
    assert len(keys_of(place)) == 7
    with opened(place) as store, store.lease("c7/3", 30):
        assert main([*command, "--yes", "--json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out) == {"read": 5, "erased": 4, "skipped": 1, "dry_run": False}
    assert "--cursor" in told.err
    assert main([*command, "--yes"]) == 0
    assert sorted(keys_of(place)) == ["c70/1", "c8/1"]
    with opened(place) as store, Chat("sim") as chat:
        assert chat.conversation(store, "c7/1", parts="store").snapshot() is None


def test_old_conversations_are_pruned(place: tuple[str, list[str]], capsys: Any, monkeypatch: Any) -> None:
    """By the time of the last save. What is in use, or is saved after it was listed, stays."""
    monkeypatch.setattr("goaitools_py.cli.store._PAGE", 2)
    with opened(place) as store:
        for number in range(5):
            store.save(f"c7/{number}", b"blob", expected=None)
        store.save("c8/1", b"blob", expected=None)
        aside = [f"c7/{number}.unreadable.{'0' * 24}" for number in (1, 3)]
        for key in aside:
            store.save(key, b"bytes", expected=None)
    url, table = place
    command = ["store", "prune", url, "--prefix", "c7/", *table]
    assert main([*command, "--older-than", "1d", "--yes"]) == 0
    assert len(keys_of(place)) == 6

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(days=2)

    monkeypatch.setattr("goaitools_py.cli.store.datetime", Later)
    real, saved = type(store).delete, []

    def delete(self: Any, key: str, *, expected: int | None = None) -> bool:
        if key == "c7/2" and not saved:
            saved.append(self.save(key, b"newer", expected=expected))
        return bool(real(self, key, expected=expected))

    monkeypatch.setattr(type(store), "delete", delete)
    with opened(place) as held, held.lease("c7/3", 30):
        assert main([*command, "--older-than", "1d", "--yes"]) == 1
    assert sorted(keys_of(place)) == ["c7/2", "c7/3", "c8/1"]
    with opened(place) as store:
        assert [store.load(key) is None for key in aside] == [True, False]  # it goes with its conversation
    capsys.readouterr()
    assert main([*command, "--older-than", "1d", "--yes"]) == 0
    assert capsys.readouterr().out == "2 conversations read, 2 pruned\n"


def test_a_walk_goes_on_with_its_cursor(place: tuple[str, list[str]], capsys: Any) -> None:
    """Each conversation is listed once. Ages have a unit."""
    with opened(place) as store:
        for number in range(7):
            store.save(f"c7/{number}", b"blob", expected=None)
    url, table = place
    seen: list[str] = []
    more: list[str] = []
    for _ in range(20):
        capsys.readouterr()
        assert main(["store", "list", url, "--prefix", "c7/", "--limit", "3", "--json", *more, *table]) == 0
        page = json.loads(capsys.readouterr().out)
        seen += [row["key"] for row in page["conversations"]]
        if page["cursor"] is None:
            break
        more = ["--cursor", page["cursor"]]
    assert sorted(seen) == [f"c7/{number}" for number in range(7)]
    assert main(["store", "list", url, *table]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7
    for wrong in ("90", "0d", "1y", "-1d", "9999999999d"):
        assert main(["store", "prune", url, "--older-than", wrong, "--yes", *table]) == 2
