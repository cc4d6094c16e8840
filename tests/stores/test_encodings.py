"""Databases and connections whose text is not UTF-8: a conversation has the same key there, and is saved.

PostgreSQL has made databases in SQL_ASCII and LATIN1 by the locale of the machine, and ``charset=utf8`` of
MySQL holds no emoji. A title stands in a text column beside the state: it may be shown with other signs, and
never costs a turn.
"""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy

from goaitools_py.stores import RowFacts
from goaitools_py.types.errors import StoreError

from ._places import DRIVERS, Place, mariadb_database, postgres_database
from .test_keys import done, used

pytestmark = pytest.mark.service

KEYS = ("ada", "Ada", "ä", "a\u0308", "é", "日本", "👋", "þ", "ÿ ")
TITLES = ("", "plain", "ä", "日本", "👋 hello", "\u2028")


async def _saved(place: Place) -> tuple[set[str], set[str]]:
    """Save under each key and with each title. Gives the keys that the store keeps, and those that it
    refuses. What it keeps comes back as itself."""
    kept: dict[str, int] = {}
    refused: set[str] = set()
    async with used(place) as store:
        for key in KEYS:
            try:
                assert await done(store.load(key)) is None, ascii(key)
                kept[key] = await done(store.save(key, key.encode(), expected=None))
            except StoreError:
                refused.add(key)
        for key in kept:
            for title in TITLES:
                facts = RowFacts(title=title, status="complete", turns=1)
                saved = store.save(key, key.encode(), expected=kept[key], facts=facts)
                kept[key] = await done(saved)
            found = await done(store.load(key))
            assert (found.blob, found.version) == (key.encode(), kept[key]), ascii(key)
        page = await done(store.list(""))
        assert [row.key for row in page.keys] == sorted(kept, key=str.encode)
        assert all(isinstance(row.facts.title, str) and row.facts.status == "complete" for row in page.keys)
        for key in kept:
            [row] = [row for row in (await done(store.list(key))).keys if row.key == key]
            assert row.version == kept[key]
    return {*kept}, refused


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "UTF8"])
@pytest.mark.parametrize(
    "kind", ["postgres", "postgres-async", "postgresql", "postgresql-async", "postgresql-asyncpg"]
)
def test_a_database_of_any_encoding(kind: str, encoding: str) -> None:
    """A key that the encoding has no sign for is refused with a `StoreError`."""
    with postgres_database(f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0") as url:
        driver = DRIVERS.get(kind, "postgresql")
        made = sqlalchemy.make_url(url).set(drivername=driver)
        if driver == "postgresql+psycopg" and encoding == "SQL_ASCII":
            made = made.update_query_dict({"client_encoding": "utf8"})  # SQLAlchemy itself needs it
        place = Place(kind, made.render_as_string(hide_password=False))

        kept, refused = asyncio.run(_saved(place))

    assert kept | refused == {*KEYS}
    assert refused == ({"日本", "👋", "a\u0308"} if encoding == "LATIN1" else set())


@pytest.mark.parametrize("charset", ["utf8", "latin1", "utf8mb4"])
@pytest.mark.parametrize("kind", ["mariadb", "mariadb-async"])
def test_a_connection_of_any_character_set(kind: str, charset: str) -> None:
    """Keys are bytes there, so all are kept."""
    with mariadb_database() as url:
        made = sqlalchemy.make_url(url).set(drivername=DRIVERS[kind]).update_query_dict({"charset": charset})

        kept, refused = asyncio.run(_saved(Place(kind, made.render_as_string(hide_password=False))))

    assert (kept, refused) == ({*KEYS}, set())
