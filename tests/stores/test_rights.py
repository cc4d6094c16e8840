"""A program that may write rows and make no tables: what needs no table of parts is saved."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import sqlalchemy

from goaitools_py import Chat, Image
from goaitools_py.stores import SQLAlchemyStore
from goaitools_py.testing import ScriptedBackend

from ..kept.test_places import Kit, Loop, entered
from ._places import Place, maker, place_of

ROWS = "SELECT, INSERT, UPDATE, DELETE"
PICTURE = Image.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(7_000))


@pytest.fixture(
    params=["postgresql", "postgresql-async", "postgres", "postgres-async", "mariadb", "mariadb-async"]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A database with tables for conversations and leases, as a user who may only change rows."""
    with place_of(request.param, tmp_path) as whole:
        url = sqlalchemy.make_url(whole.url)
        is_mysql = url.get_backend_name() == "mysql"
        owner = url.set(drivername="mysql+pymysql" if is_mysql else "postgresql+psycopg")
        engine = sqlalchemy.create_engine(owner, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
        with Chat(ScriptedBackend("One.")) as chat:
            chat.conversation(SQLAlchemyStore(engine), "before").send("Hello.")
        name = f"goaitools_{secrets.token_hex(6)}"
        role = f"'{name}'@'%'" if is_mysql else name
        make = f"CREATE USER {role}" if is_mysql else f"CREATE ROLE {name} LOGIN"
        tables = f"{url.database}.*" if is_mysql else "ALL TABLES IN SCHEMA public"
        with engine.connect() as connection:
            connection.exec_driver_sql("DROP TABLE IF EXISTS goaitools_state_part")
            connection.exec_driver_sql(make.replace("%", "%%"))
            connection.exec_driver_sql(f"GRANT {ROWS} ON {tables} TO {role}".replace("%", "%%"))
        try:
            limited = url.set(username=name).render_as_string(hide_password=False)
            yield Place(request.param, limited)
        finally:
            with engine.connect() as connection:
                if not is_mysql:
                    connection.exec_driver_sql(f"DROP OWNED BY {name}")
                connection.exec_driver_sql(f"DROP {'USER' if is_mysql else 'ROLE'} {role}".replace("%", "%%"))


@pytest.fixture
def kit(place: Place) -> Iterator[Kit]:
    """A store there."""
    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        yield Kit(place, stack.enter_context(entered(maker(place), loop)), loop)


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The levels of the log lines that say that the store refuses parts."""
    return [one.levelname for one in caplog.records if getattr(one, "event", "") == "state.parts_refused"]


def test_states_without_parts_need_no_table_of_parts(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """Turns, appends and forks are saved, and there is nothing to warn of."""
    conversation = kit.conversation(*["Yes."] * 4, parts="store", save="checkpoint")

    for text in ("One.", "Two.", "Three."):
        assert conversation.send(text).text == "Yes."
    conversation.update(title="Kept")
    conversation.fork("bob")

    assert [turn.messages[0].said for turn in conversation.history().turns] == ["One.", "Two.", "Three."]
    assert sorted(one.key for one in kit.face.list("").keys) == ["ada", "before", "bob"]
    assert refusals(caplog) == []


def test_states_with_parts_are_saved_whole(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """No turn fails for the missing table, and no head is saved without its parts. The log says it once."""
    writer = kit.conversation(*["Seen."] * 2, parts="store", save_timeout=0.0)
    for text in ("Look.", "Look again."):
        assert writer.send([text, PICTURE]).text == "Seen."

    said = [one for turn in kit.conversation().history().turns for one in turn.messages]
    assert [part for one in said for part in one.parts if isinstance(part, Image)] == [PICTURE, PICTURE]
    assert refusals(caplog) == ["WARNING"]
