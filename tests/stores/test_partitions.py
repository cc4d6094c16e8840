"""PostgreSQL with partitioned tables: the contract, the race, and the move of a table that is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from goaitools_py import Chat
from goaitools_py.cli import main
from goaitools_py.stores import PostgresStore
from goaitools_py.testing import store_contract

from ._places import Place, maker, place_of
from .test_races import check, run

STORES = Path(__file__).resolve().parents[2] / "docs" / "store_care.md"
KINDS = ["postgres", "postgres-async", "postgresql", "postgresql-asyncpg"]

pytestmark = pytest.mark.service


def plain(url: str) -> str:
    return re.sub(r"^postgresql\+\w+:", "postgresql:", url)


def init(place: Place, *options: str) -> int:
    url = plain(place.url).replace("postgresql:", "postgresql+psycopg:")
    return main(["store", "init", url, *options])


def partitions(url: str, table: str) -> int:
    with psycopg.connect(plain(url)) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = %s::regclass", (table,)
        )
        return int(found.fetchone()[0])  # type: ignore[index]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty database."""
    with place_of(getattr(request, "param", "postgres"), tmp_path) as found:
        yield found


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_stores_keep_the_contract_on_partitioned_tables(place: Place) -> None:
    assert init(place, "--partitions", "16") == 0
    store_contract(maker(place))
    assert {partitions(place.url, table) for table in ("goaitools_state", "goaitools_state_part")} == {16}


@pytest.mark.heavy
def test_a_race_on_partitioned_tables_loses_nothing(place: Place, tmp_path: Path) -> None:
    assert init(place, "--partitions", "16") == 0
    print(check(place, run(place, tmp_path)))


def test_a_table_moves_by_the_lines_of_the_page(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """While a store is open: it goes on. Parts go with their row, as before."""
    page = STORES.read_text(encoding="utf-8").partition("## Partitions")[2]
    lines = re.findall(r"```sql\n(.*?)```", page, re.S)[0]
    assert init(place) == 0
    with PostgresStore.open(plain(place.url)) as store, Chat("sim") as chat:
        talks = [chat.conversation(store, f"ada/{number}", parts="store") for number in range(20)]
        for talk in talks:
            talk.send("My name is Ada.")
        before = [talk.state() for talk in talks]
        assert init(place, "--partitions", "16") == 1
        assert "is there already" in capsys.readouterr().err
        assert init(place, "--table", "goaitools_new", "--partitions", "16") == 0
        with psycopg.connect(plain(place.url), autocommit=True) as connection:
            for line in filter(str.strip, lines.split(";")):
                connection.execute(line)
        assert [talk.state() for talk in talks] == before
        assert all("Ada" in talk.send("What is my name?").text for talk in talks)
        assert talks[0].erase() == 1
    assert {partitions(place.url, table) for table in ("goaitools_state", "goaitools_state_part")} == {16}
    with psycopg.connect(plain(place.url)) as connection:
        orphans = "SELECT 1 FROM goaitools_state_part WHERE key NOT IN (SELECT key FROM goaitools_state)"
        assert connection.execute(orphans).fetchall() == []


def test_partitions_are_for_postgresql(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "init", f"sqlite:///{tmp_path / 'a.db'}", "--partitions", "4"]) == 1
    assert "PostgreSQL only" in capsys.readouterr().err
