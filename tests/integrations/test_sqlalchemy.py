"""A state in a column of SQLAlchemy's, on real servers."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.orm.exc import StaleDataError
from sqlalchemy.schema import CreateTable

from goaitools_py import Chat, StateFormatError, event
from goaitools_py.integrations.sqlalchemy import StateType
from goaitools_py.states import read_history

from ..stores._places import mariadb_database, postgres_database

WORD = "Harrogate-4711"
STATE = Chat("sim").append_to_state(None, event(WORD))
LARGE = STATE + bytes(200_000)
"""Beyond what MySQL's plain BLOB holds."""


BLOCKING = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
AWAITED = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "mysql": "mysql+asyncmy"}


class Base(DeclarativeBase):
    """The tests' own classes."""


class Player(Base):
    """A row of the user's own, guarded by its version."""

    __tablename__ = "player"

    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[bytes | None] = mapped_column(StateType)
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - SQLAlchemy's own spelling


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.URL]:
    """A database of the module's own."""
    if request.param == "sqlite":
        yield sa.make_url(f"sqlite:///{tmp_path_factory.mktemp('sqlalchemy') / 'players.db'}")
        return
    with postgres_database() if request.param == "postgres" else mariadb_database() as made:
        yield sa.make_url(made)


@pytest.fixture
def engine(url: sa.URL) -> Iterator[sa.Engine]:
    """The database with an empty table in it."""
    made = sa.create_engine(url.set(drivername=BLOCKING[url.get_backend_name()]))
    Base.metadata.create_all(made)
    yield made
    Base.metadata.drop_all(made)
    made.dispose()


@pytest.mark.parametrize(
    ("dialect", "column"),
    [
        (postgresql.dialect(), "state BYTEA"),
        (mysql.dialect(), "state LONGBLOB"),
        (sqlite.dialect(), "state BLOB"),
    ],
    ids=["postgresql", "mysql", "sqlite"],
)
def test_each_engine_has_its_type(dialect: sa.Dialect, column: str) -> None:
    """The column is bytea on PostgreSQL, LONGBLOB on MySQL, BLOB on SQLite."""
    assert column in str(CreateTable(Player.__table__).compile(dialect=dialect))  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [STATE, LARGE, b"", None], ids=["small", "large", "empty", "none"])
def test_bytes_come_back_as_they_went(engine: sa.Engine, state: bytes | None) -> None:
    """Every byte comes back, also of a state too large for a plain BLOB, and what is shown is the size."""
    with Session(engine) as session:
        session.add(Player(id=1, state=state))
        session.commit()
        found = session.get_one(Player, 1).state

    assert found == state
    assert found is None or repr(found) == f"<state of {len(found)} bytes>"


@pytest.mark.parametrize("state", [bytearray(STATE), memoryview(STATE)], ids=["bytearray", "memoryview"])
def test_any_bytes_are_taken(engine: sa.Engine, state: Any) -> None:
    """A bytearray and a memoryview are stored as the bytes that they are."""
    with engine.begin() as connection:
        connection.execute(sa.insert(Player), [{"id": 1, "state": state, "version": 1}])
        assert connection.scalar(sa.select(Player.state)) == STATE


def test_text_is_refused_by_name(engine: sa.Engine) -> None:
    """Text is refused with the likely damage, in an error that quotes neither it nor the rest of the row."""
    text = base64.b64encode(STATE).decode()

    with pytest.raises(StateFormatError, match="it is base64") as caught, engine.begin() as connection:
        connection.execute(sa.insert(Player), [{"id": 4711, "state": text, "version": 1}])

    assert text not in str(caught.value)
    assert "4711" not in str(caught.value)


def test_text_out_of_a_column_of_another_type_is_refused(engine: sa.Engine) -> None:
    """A state that lies in a text column as base64 is refused when it is read."""
    text = sa.literal(base64.b64encode(STATE).decode(), sa.String)

    with (
        engine.connect() as connection,
        pytest.raises(StateFormatError, match="it is base64"),
    ):
        connection.scalar(sa.select(sa.type_coerce(text, StateType)))


def test_neither_the_log_nor_an_error_shows_a_state(
    engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """With ``echo`` on, and in the error of a refused row, the parameters show the size of the state."""
    size = f"<state of {len(STATE)} bytes>"

    with caplog.at_level(logging.DEBUG, logger="sqlalchemy.engine"), engine.connect() as connection:
        connection.execute(sa.insert(Player), [{"id": 1, "state": STATE, "version": 1}])
        connection.execute(sa.select(Player.state)).all()
        with pytest.raises(sa.exc.IntegrityError) as caught:
            connection.execute(sa.insert(Player), [{"id": 1, "state": STATE, "version": 1}])
    said = caplog.text + str(caught.value)

    assert size in caplog.text
    assert size in str(caught.value)
    assert "GAS" not in said
    assert WORD not in said
    assert STATE.hex()[:16] not in said


@pytest.fixture
def players(engine: sa.Engine) -> sessionmaker[Session]:
    """Sessions whose rows stay readable after their transaction; one player is there."""
    made = sessionmaker(engine, expire_on_commit=False)
    with made.begin() as session:
        session.add(Player(id=1))
    return made


@pytest.fixture(scope="module")
def chat() -> Iterator[Chat]:
    """A chat for all threads."""
    with Chat("sim") as made:
        yield made


def turn(chat: Chat, players: sessionmaker[Session], text: str) -> None:
    """A turn of the recipe: read the row, ask the model without a transaction, write the row it read."""
    with players() as session:
        player = session.get_one(Player, 1)
    _, player.state = chat.chat_with_state(player.state, user=text)
    with players.begin() as session:
        session.add(player)


def said(players: sessionmaker[Session]) -> list[str]:
    """What the player said, by the stored state."""
    with players() as session:
        state = session.get_one(Player, 1).state
    assert state is not None
    return [m.text for m in read_history(state).all_messages() if m.role == "user"]


def test_the_second_of_two_turns_is_refused(chat: Chat, players: sessionmaker[Session]) -> None:
    """A row that changed since it was read is not written; the row keeps the first turn."""
    with players() as session:
        late = session.get_one(Player, 1)
    turn(chat, players, "I am first.")

    late.state = STATE
    with pytest.raises(StaleDataError), players.begin() as session:
        session.add(late)

    assert said(players) == ["I am first."]


def test_no_turn_is_lost_in_a_race(chat: Chat, players: sessionmaker[Session]) -> None:
    """Four threads with three turns each, begun again when refused: the state holds all twelve once."""
    texts = [f"Message {n}." for n in range(12)]

    def until_saved(text: str) -> int:
        for tries in range(1, 200):
            try:
                turn(chat, players, text)
            except (StaleDataError, sa.exc.OperationalError):  # SQLite says that the database is locked
                continue
            return tries
        raise AssertionError("never saved")

    with ThreadPoolExecutor(4) as pool:
        tries = list(pool.map(until_saved, texts))

    assert sorted(said(players)) == sorted(texts)
    assert sum(tries) >= len(texts)


def test_async_drivers_take_the_column_too(url: sa.URL, engine: sa.Engine) -> None:
    """asyncpg, asyncmy and aiosqlite store and give the same bytes."""

    async def run() -> bytes | None:
        made = create_async_engine(url.set(drivername=AWAITED[url.get_backend_name()]))
        async with made.begin() as connection:
            await connection.execute(sa.insert(Player), [{"id": 1, "state": LARGE, "version": 1}])
            found = await connection.scalar(sa.select(Player.state))
        await made.dispose()
        return found

    assert asyncio.run(run()) == LARGE
