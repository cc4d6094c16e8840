"""A package of an extra that is not installed: the error names the extra, where Python names a module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from goaitools_py.base.advice import missing_extra_error

ROOT = Path(__file__).resolve().parents[2]

NEEDED = [
    ("from goaitools_py.stores import DjangoStore", "DjangoStore", "asgiref", "django"),
    ("from goaitools_py.stores import AsyncDjangoStore", "AsyncDjangoStore", "asgiref", "django"),
    ("from goaitools_py.stores import SQLAlchemyStore", "SQLAlchemyStore", "sqlalchemy", "sqlalchemy"),
    (
        "from goaitools_py.stores import AsyncSQLAlchemyStore",
        "AsyncSQLAlchemyStore", "sqlalchemy", "sqlalchemy",
    ),
    (
        "from goaitools_py.stores import PostgresStore; PostgresStore.open('postgresql://')",
        "PostgresStore", "psycopg_pool", "psycopg",
    ),
    (
        "from goaitools_py.stores import AsyncPostgresStore; AsyncPostgresStore.open('postgresql://')",
        "AsyncPostgresStore", "asyncpg", "asyncpg",
    ),
    ("import goaitools_py.serve", "goaitools_py.serve", "starlette", "serve"),
    ("import goaitools_py.telemetry", "Telemetry", "opentelemetry", "otel"),
    ("from goaitools_py.mcp import MCPTools; MCPTools('http://127.0.0.1:1')", "MCPTools", "mcp", "mcp"),
    ("import goaitools_py.integrations.sqlalchemy", "StateType", "sqlalchemy", "sqlalchemy"),
    (
        "import goaitools_py.integrations.django",
        "goaitools_py.integrations.django", "django", "django",
    ),
    ("import goaitools_py.integrations.django_admin", "ConversationAdmin", "django", "django"),
    ("import goaitools_py.integrations.django_views", "serve_view", "asgiref", "django"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "what", "package", "extra"), NEEDED, ids=[row[0][-40:] for row in NEEDED])
def test_a_missing_package_is_told_with_its_extra(code: str, what: str, package: str, extra: str) -> None:
    """In an interpreter that does not find the package. The error is still one of a missing module."""
    program = f"""
import sys
sys.modules[{package!r}] = None
try:
    {code}
except ModuleNotFoundError as error:
    print(error.name.partition(".")[0], "|", error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert done.stdout.strip() == (
        f"{package} | {what} needs the package {package}: pip install 'goaitools-py[{extra}]'"
    )


def test_a_mistake_in_this_package_is_no_missing_extra() -> None:
    """A module of ours that is not there is told as Python tells it."""
    error = ModuleNotFoundError("No module named 'goaitools_py.nothing'", name="goaitools_py.nothing")

    assert missing_extra_error(error, "serve", "serve") is error
