"""A password in the URL of a store is never printed, however wrong the URL is.

A password that was not percent-encoded moves the borders of a URL. So a driver may take a part of it for a
port, and say so in the text of its error.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from goaitools_py.cli import main
from goaitools_py.cli.store_urls import opened_async_store
from goaitools_py.stores import AsyncPostgresStore, PostgresStore
from goaitools_py.types.errors import StoreError

SECRET = "S3cr3t"
URLS = [
    f"{scheme}://u:{password}@{host}"
    for scheme in ("redis", "rediss", "postgresql", "postgresql+psycopg", "mysql+pymysql", "mongodb", "unix")
    for password in (
        "S3cr3t",
        "S3cr3t#S3cr3t",
        "S3cr3t/S3cr3t",
        "S3cr3t?S3cr3t",
        "S3cr3t@S3cr3t:S3cr3t",
        "[S3cr3t",
    )
    for host in ("127.0.0.1:1/0", "127.0.0.1:S3cr3t/0")
]
COMMANDS: list[list[str]] = [
    ["store", "init", "URL"],
    ["store", "migrate", "URL", "--dry-run"],
    ["doctor", "--store", "URL"],
    ["upgrade", "--store", "URL"],
    ["inspect", "--store", "URL", "--thread", "x"],
    ["chat", "sim", "--store", "URL", "Hello."],
    ["serve", "--demo", "--port", "0", "--store", "URL"],
]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL that is taken for a file makes it here."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: "-".join(command[:2]))
def test_no_command_prints_the_password(
    command: list[str], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Each ends with a problem or wrong usage, and with no traceback."""
    with caplog.at_level(logging.DEBUG):
        for url in URLS:
            code = main([url if word == "URL" else word for word in command])
            told = "".join(capsys.readouterr()) + "".join(record.getMessage() for record in caplog.records)
            caplog.clear()
            assert code in (1, 2), (url, told)
            assert SECRET not in told, (url, told)


def chain(error: BaseException) -> str:
    """All that a printed or inspected exception shows."""
    shown = f"{error} {error!r} {error.args!r} {getattr(error, '__notes__', '')}"
    for link in (error.__cause__, None if error.__suppress_context__ else error.__context__):
        shown += "" if link is None else chain(link)
    return shown


@pytest.mark.parametrize("url", URLS)
def test_no_store_shows_the_password(url: str) -> None:
    """Stores that are opened by a URL: neither their errors nor their reprs."""
    tried: list[Any] = []

    async def opened() -> None:
        async with opened_async_store(url) as store:
            tried.append(repr(store))
            await store.load("x")

    async def opened_by_asyncpg() -> None:
        async with AsyncPostgresStore.open(url, timeout=1.0) as store:
            tried.append(repr(store))
            await store.load("x")

    def opened_by_psycopg() -> None:
        with PostgresStore.open(url, timeout=0.2) as store:
            tried.append(repr(store))
            store.load("x")

    for step in (lambda: asyncio.run(opened()), lambda: asyncio.run(opened_by_asyncpg()), opened_by_psycopg):
        with pytest.raises((StoreError, OSError, ValueError)) as caught:
            step()
        assert SECRET not in chain(caught.value)
    assert SECRET not in "".join(tried)
