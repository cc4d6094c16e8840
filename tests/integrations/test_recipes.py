"""The recipes of the documentation are stores: they keep the contract on real servers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest

from goaitools_py.stores import AsyncCallableStore, CallableStore
from goaitools_py.testing import store_contract

from ..stores._places import postgres_database

PAGE = Path(__file__).resolve().parents[2] / "docs" / "columns.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
NEW_ROW = "INSERT INTO player (name) VALUES ({}) ON CONFLICT DO NOTHING"


def block(beginning: str) -> str:
    """The block of the page in which a line begins so."""
    (found,) = [code for code in BLOCKS if re.search(rf"^{re.escape(beginning)}", code, re.M)]
    return found


def defined(*beginnings: str, **given: Any) -> dict[str, Any]:
    """What the recipe for psycopg defines, and other blocks after it."""
    names: dict[str, Any] = dict(given)
    for beginning in ("def load", *beginnings):
        exec(compile(block(beginning), "columns.md", "exec", dont_inherit=True), names)
    return names


@pytest.fixture
def postgres() -> Iterator[str]:
    """An empty database with the table of the page."""
    with postgres_database() as url:
        url = url.replace("postgresql+psycopg:", "postgresql:")
        with psycopg.connect(url) as db:
            db.execute(
                "CREATE TABLE player (name text PRIMARY KEY, state bytea,"
                " version bigint NOT NULL DEFAULT 0, state_at timestamptz)"
            )
        yield url


def test_psycopg(postgres: str) -> None:
    """The recipe for psycopg keeps the contract."""

    @contextmanager
    def make_store() -> Iterator[CallableStore]:
        with psycopg.connect(postgres, autocommit=True) as db:
            names = defined(db=db)

            def save(key: str, blob: bytes, expected: int | None) -> Any:
                db.execute(NEW_ROW.format("%s"), [key])
                return names["save"](key, blob, expected)

            yield CallableStore(names["load"], save)

    store_contract(make_store)


def test_asyncpg(postgres: str) -> None:
    """The recipe for asyncpg keeps the contract."""
    names = defined("def asyncpg_store")

    @asynccontextmanager
    async def make_store() -> AsyncIterator[AsyncCallableStore]:
        async with asyncpg.create_pool(postgres, min_size=1, max_size=4) as pool:
            store = names["asyncpg_store"](pool)

            async def save(key: str, blob: bytes, expected: int | None) -> Any:
                await pool.execute(NEW_ROW.format("$1"), key)
                return await store._save(key, blob, expected)

            yield AsyncCallableStore(store._load, save)

    store_contract(make_store)


def test_aiosqlite(tmp_path: Path) -> None:
    """The recipe for aiosqlite keeps the contract."""
    names = defined("def asyncpg_store", "def aiosqlite_store")
    table = re.search(r'TABLE = "(.*)"', PAGE.read_text(encoding="utf-8"))
    assert table is not None

    @asynccontextmanager
    async def make_store() -> AsyncIterator[AsyncCallableStore]:
        async with aiosqlite.connect(tmp_path / "players.db", isolation_level=None, timeout=60) as db:
            await db.execute(table[1].replace("TABLE player", "TABLE IF NOT EXISTS player"))
            store = names["aiosqlite_store"](db)

            async def save(key: str, blob: bytes, expected: int | None) -> Any:
                await db.execute(NEW_ROW.format("?"), [key])
                return await store._save(key, blob, expected)

            yield AsyncCallableStore(store._load, save)

    store_contract(make_store)
