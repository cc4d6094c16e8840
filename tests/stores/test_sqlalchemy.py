"""The SQLAlchemy store beyond the contract: its table, its connections, and what it takes from a server."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import create_engine, text
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateTable

from goaitools_py import StateConflictError, StoreUnavailableError
from goaitools_py.stores import LeaseHeldError, SQLAlchemyStore, SQLiteStore, StoredPart, sql_table
from goaitools_py.testing import store_contract

from ._places import Place

ON_SERVERS = ("postgresql", "mariadb")
EACH = (*ON_SERVERS, "sqlalchemy-sqlite")


@pytest.fixture
def engine(place: Place) -> Iterator[sqlalchemy.Engine]:
    """An engine with one connection: whoever holds it blocks all others, and that shows at once."""
    made = sqlalchemy.create_engine(place.url, pool_size=1, max_overflow=0, pool_timeout=2.0)
    yield made
    made.dispose()


# ------------------------------------------------------------------------------------------- the table


def _words(ddl: str) -> list[str]:
    return re.findall(r"[a-z0-9_]+|[(),=]", re.sub(r'[`";]', "", ddl).lower())


def _documented(name: str, table: str) -> str:
    _, _, section = (sql_table.__doc__ or "").partition(f"-- {name}\n")
    written = re.search(rf"CREATE [A-Z ]*TABLE {table} .*?;", section, re.DOTALL)
    assert written is not None
    return written[0]


@pytest.mark.parametrize(
    ("role", "table"), [("state", "goaitools_state"), ("lease", "goaitools_state_lease")]
)
@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("PostgreSQL", postgresql.dialect()),
        ("MySQL, MariaDB", mysql.dialect()),
        ("SQLite", sqlite.dialect()),
    ],
)
def test_the_documented_table_is_the_one_that_is_made(
    role: str, table: str, name: str, dialect: sqlalchemy.Dialect
) -> None:
    """Who migrates by hand copies DDL from the docstrings: it is what the first save and lease would make."""
    [[statement]] = sql_table.tables_of(dialect.name, "goaitools_state", None)[role]
    made = str(CreateTable(statement.element).compile(dialect=dialect))

    made = re.sub(r",\s*PRIMARY KEY \(\W?key\W?\)", "", made).replace("NOT NULL", "NOT NULL PRIMARY KEY", 1)
    assert _words(_documented(name, table)) == _words(made)


@pytest.mark.parametrize("place", EACH, indirect=True)
def test_the_documented_tables_work(place: Place, engine: sqlalchemy.Engine) -> None:
    """Tables made from the docstrings serve, and the store makes none."""
    name = {"postgresql": "PostgreSQL", "mariadb": "MySQL, MariaDB"}.get(place.kind, "SQLite")
    with engine.begin() as connection:
        for table in ("goaitools_state", "goaitools_state_lease"):
            connection.exec_driver_sql(_documented(name, table))
    made: list[str] = []
    sqlalchemy.event.listen(
        engine, "before_cursor_execute", lambda *args: made.append(args[2]) if "CREATE" in args[2] else None
    )

    store = SQLAlchemyStore(engine)

    version = store.save("ada", b"\x00\xff" * 40_000, expected=None)
    with store.lease("ada", 60.0), pytest.raises(LeaseHeldError), store.lease("ada", 60.0):
        raise AssertionError("two have it")
    assert made == []
    stored = store.load("ada")
    assert stored is not None
    assert (stored.blob, stored.version) == (b"\x00\xff" * 40_000, version)


@pytest.mark.parametrize("place", EACH, indirect=True)
def test_looking_makes_no_table(engine: sqlalchemy.Engine) -> None:
    """Load, list and delete leave a database as it was; the first save makes the table."""
    store = SQLAlchemyStore(engine)

    assert store.load("ada") is None
    assert store.list().keys == ()
    assert store.delete("ada") is False
    with engine.connect() as connection:
        assert sqlalchemy.inspect(connection).get_table_names() == []

    store.save("ada", b"blob", expected=None)
    with engine.connect() as connection:
        assert sqlalchemy.inspect(connection).get_table_names() == ["goaitools_state"]


@pytest.mark.parametrize("place", EACH, indirect=True)
def test_a_table_of_another_name(engine: sqlalchemy.Engine) -> None:
    """Two stores with two tables share a database and nothing else, leases neither."""
    one, other = SQLAlchemyStore(engine), SQLAlchemyStore(engine, table="chats")

    with one.lease("ada", 60.0), other.lease("ada", 60.0):
        one.save("ada", b"one", expected=None)
        other.save("ada", b"other", expected=None)

    stored = one.load("ada")
    assert stored is not None
    assert stored.blob == b"one"


@pytest.mark.parametrize("place", EACH, indirect=True)
def test_a_table_with_an_odd_name(engine: sqlalchemy.Engine) -> None:
    """Signs that begin a parameter, or end a name, are part of the name."""
    store = SQLAlchemyStore(engine, table='a:key %s "b" `c`')
    part = StoredPart(name=b"n" * 32, kind=1, data=b"part")

    version = store.save_parts("ada", b"head", (part,), (), expected=None)
    with store.lease("ada", 60.0):
        assert store.is_held("ada")

    assert store.load_parts("ada", [part.name]) == (part,)
    assert [entry.version for entry in store.list("a").keys] == [version]
    assert store.delete("ada")
    assert store.load_parts("ada", [part.name]) == ()


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_table_in_a_schema(engine: sqlalchemy.Engine) -> None:
    """With a schema the tables are made there."""
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA chats"))

    store = SQLAlchemyStore(engine, schema="chats")
    store.save("ada", b"blob", expected=None)
    with store.lease("ada", 60.0):
        pass

    with engine.connect() as connection:
        made = sqlalchemy.inspect(connection).get_table_names(schema="chats")
        assert sorted(made) == ["goaitools_state", "goaitools_state_lease"]
        assert sqlalchemy.inspect(connection).get_table_names() == []


def test_sqlite_files_are_the_same_for_both_stores(tmp_path: Path) -> None:
    """What one of `SQLiteStore` and a SQLAlchemy engine saved or leased, the other knows."""
    path = tmp_path / "states.sqlite3"
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with SQLiteStore(path) as plain:
        store = SQLAlchemyStore(engine)
        version = plain.save("ada", b"1", expected=None)

        newer = store.save("ada", b"2", expected=version)

        assert plain.load("ada") == store.load("ada")
        assert plain.save("ada", b"3", expected=newer) == newer + 1
        for holder, other in ((plain, store), (store, plain)):
            with holder.lease("ada", 60.0), pytest.raises(LeaseHeldError), other.lease("ada", 60.0):
                raise AssertionError("two have it")
    engine.dispose()


def test_an_unknown_database_is_refused_at_once() -> None:
    """A database whose keys and bytes nobody looked at is not guessed at."""
    engine = create_engine("sqlite://")
    engine.dialect.name = "oracle"

    with pytest.raises(ValueError, match=r"'oracle'.*store_contract"):
        SQLAlchemyStore(engine)


# ------------------------------------------------------------------------------------------ connections


@pytest.mark.parametrize("place", EACH, indirect=True)
def test_no_connection_is_held_between_calls(engine: sqlalchemy.Engine) -> None:
    """With one connection in the pool everything works, and between calls it is free."""
    store = SQLAlchemyStore(engine)

    version = store.save("ada", b"1", expected=None)
    store.load("ada")
    with pytest.raises(StateConflictError):
        store.save("ada", b"2", expected=None)
    store.save("ada", b"2", expected=version)
    store.list()

    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", EACH, indirect=True)
def test_a_lease_takes_nothing_from_the_pool(engine: sqlalchemy.Engine) -> None:
    """Leases are held while a model is called: they leave the pool as it is, so that saves go on."""
    store = SQLAlchemyStore(engine)
    version = store.save("ada", b"1", expected=None)

    with ExitStack() as leases:
        for name in ("ada", "bob", "cid"):
            leases.enter_context(store.lease(name, 60.0))

        assert store.save("ada", b"2", expected=version) == version + 1
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_lease_holds_no_connection(place: Place, engine: sqlalchemy.Engine) -> None:
    """Thousands of turns may wait for their models: a held lease costs the server no connection."""
    asked = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend'"
    )
    other = sqlalchemy.create_engine(place.url, poolclass=sqlalchemy.NullPool)

    with SQLAlchemyStore(other).lease("ada", 60.0) as lease, engine.connect() as connection:
        assert lease.renew() is True
        for _ in range(2_000):  # a server takes a moment to notice that a connection was closed
            connection.rollback()  # within a transaction it tells the same again
            if connection.scalar(asked) == 1:
                break
        assert connection.scalar(asked) == 1


@pytest.mark.parametrize("place", EACH, indirect=True)
def test_an_ended_lease_leaves_no_row(engine: sqlalchemy.Engine) -> None:
    """A table of leases is as long as the turns that run are many."""
    store = SQLAlchemyStore(engine)

    with store.lease("ada", 60.0):
        pass

    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM goaitools_state_lease")) == 0


@pytest.mark.parametrize("place", EACH, indirect=True)
def test_a_lease_that_ran_out_is_not_renewed(engine: sqlalchemy.Engine) -> None:
    """Also if nobody has taken it since: somebody may have had it and gone."""
    store = SQLAlchemyStore(engine)

    with store.lease("ada", 60.0) as lease:
        with engine.begin() as connection:
            connection.execute(text("UPDATE goaitools_state_lease SET ends_at = 1"))

        assert lease.renew() is False


# --------------------------------------------------------------------------------------------- servers


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_serializable_database_keeps_the_contract(place: Place) -> None:
    """Where the server undoes a statement for a rival, it is a conflict, not a fault."""
    engine = sqlalchemy.create_engine(
        place.url, connect_args={"options": "-c default_transaction_isolation=serializable"}
    )
    store = SQLAlchemyStore(engine)

    store_contract(lambda: store)

    engine.dispose()


@pytest.mark.parametrize("place", EACH, indirect=True)
def test_a_constraint_of_the_table_is_no_conflict(place: Place, engine: sqlalchemy.Engine) -> None:
    """A row that the table itself refuses would be refused for ever: that is told, without the row."""
    store = SQLAlchemyStore(engine)
    version = store.save("ada", b"blob", expected=None)
    with engine.begin() as connection:
        if place.kind == "sqlalchemy-sqlite":
            connection.execute(
                text(
                    "CREATE TRIGGER only BEFORE INSERT ON goaitools_state WHEN NEW.key <> 'ada'"
                    " BEGIN SELECT RAISE(ABORT, 'no'); END"
                )
            )
        elif place.kind == "mariadb":
            connection.execute(text("ALTER TABLE goaitools_state ADD CHECK (`key` = 'ada')"))
        else:
            connection.execute(text("ALTER TABLE goaitools_state ADD CHECK (key = 'ada')"))

    bob, said = "@".join(("bob", "example.org")), b"CANARY"[::-1]
    with pytest.raises(StoreUnavailableError) as caught:
        store.save(bob, said, expected=None)

    told = "".join(traceback.format_exception(caught.value))
    assert bob not in told
    assert said.decode() not in told
    assert said.hex() not in told
    assert store.save("ada", b"more", expected=version) == version + 1


@pytest.mark.parametrize("place", ["mariadb"], indirect=True)
def test_an_empty_collation_trap(engine: sqlalchemy.Engine) -> None:
    """MariaDB's own collation takes "Ada" and "ada " for "ada"; the store's column does not."""
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT 'Ada' = 'ada ' COLLATE utf8mb4_general_ci")) == 1
    store = SQLAlchemyStore(engine)

    for key in ("ada", "Ada", "ada "):
        store.save(key, key.encode(), expected=None)

    assert [entry.key for entry in store.list().keys] == ["Ada", "ada", "ada "]


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_pool_that_is_used_up_is_the_stores_error(engine: sqlalchemy.Engine) -> None:
    """Waiting for a connection in vain is `StoreUnavailableError`; nothing was sent then."""
    store = SQLAlchemyStore(engine)
    with engine.connect(), pytest.raises(StoreUnavailableError) as caught:
        store.save("ada", b"blob", expected=None)

    assert isinstance(caught.value.sdk_error, sqlalchemy.exc.TimeoutError)
