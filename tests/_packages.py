"""What a Python file imports, and what pyproject.toml declares: for the tests of both."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = [
    "NAME",
    "NOT_DECLARED",
    "ROOT",
    "all_of",
    "declared",
    "distributions",
    "extras_at",
    "extras_of",
    "imports",
    "plain",
]

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"[A-Za-z0-9._-]+")

OPTIONAL = {
    "backends/http/client.py": {"aiohttp"},
    "cli/store_urls.py": {"redis", "sqlalchemy"},
    "cli/chat_command.py": {"tui"},
    "cli/serve.py": {"serve"},
    "cli/store.py": {"redis", "sqlalchemy"},
    "cli/chat_options.py": {"mcp"},
    "cli/tui": {"tui"},
    "cli/upgrading.py": {"sqlalchemy"},
    "integrations/django": {"django"},
    "integrations/sqlalchemy": {"sqlalchemy"},
    "mcp": {"mcp"},
    "page": {"serve"},
    "types/usage.py": {"prices"},
    "seal/encrypted.py": {"crypto"},
    "serve": {"serve"},
    "serve/relay.py": {"redis"},
    "stores/clients.py": {"redis"},
    "stores/django.py": {"django"},
    "stores/migration_sql": {"sqlalchemy"},
    "stores/postgres": {"asyncpg", "psycopg"},
    "stores/async_redis.py": {"redis"},
    "stores/async_sqlalchemy.py": {"sqlalchemy"},
    "stores/redis.py": {"redis"},
    "stores/redis_client.py": {"redis"},
    "stores/sql_": {"sqlalchemy"},
    "stores/sqlalchemy.py": {"sqlalchemy"},
    "telemetry": {"otel"},
    "turn/limits.py": {"prices"},
    "types/token_rules.py": {"tiktoken"},
}
"""By the beginning of a file's path: the extras whose packages it may import and name. The longest holds."""

NOT_DECLARED = {
    "uvicorn": "`goaitools serve` runs it and says how to install it; an application takes any server",
    "pytest": "`testing/fixtures.py` is a fixture, which pytest alone imports",
}

_BY_NAME = {"import_module", "find_spec", "__import__", "importorskip"}


@cache
def imports(file: Path) -> set[str]:
    """The dotted names that a file imports, also inside functions, without those for a type checker alone."""
    return set(_names(ast.parse(file.read_text(encoding="utf-8"))))


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for child in node.orelse:
            yield from _names(child)
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _BY_NAME:
        yield from (str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant))
    for child in ast.iter_child_nodes(node):
        yield from _names(child)


def distributions(file: Path, own: set[str]) -> set[str]:
    """The distributions that a file imports from. `own`: modules of this project."""
    tops = {*own, *sys.stdlib_module_names}
    return {_distribution(name) for name in imports(file) if name.partition(".")[0] not in tops}


@cache
def _by_top() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@cache
def _distribution(module: str) -> str:
    found = sorted({plain(name) for name in _by_top().get(module.partition(".")[0], [])})
    if len(found) == 1:
        return found[0]
    parts = module.split(".")
    for length in range(len(parts), 0, -1):  # several distributions have modules below this name
        path = "/".join(parts[:length])
        for name in found:
            if {f"{path}.py", f"{path}/__init__.py"} & _files(name):
                return name
    raise AssertionError(f"no installed distribution has the module {module}")


@cache
def _files(distribution: str) -> set[str]:
    return {str(file) for file in metadata.files(distribution) or ()}


def plain(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def declared(extra: str | None = None) -> dict[str, str]:
    """By distribution: the requirement of the base, or of an extra."""
    project = _project()
    lines = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    return {plain(NAME.match(line)[0]): line for line in lines}  # type: ignore[index]


def extras_of() -> list[str]:
    """The extras for users, each of one thing: not `all`, and not those of the tests and of the site."""
    return [name for name in _project()["optional-dependencies"] if name not in ("all", "docs", "test")]


def extras_at(file: str) -> set[str]:
    """The extras that `OPTIONAL` gives to a file."""
    found = [start for start in OPTIONAL if file.startswith(start)]
    return OPTIONAL[max(found, key=len)] if found else set()


def all_of(names: list[str]) -> set[str]:
    """The installed distributions that these requirements bring, with all that they need in turn."""
    from packaging.requirements import Requirement

    found: set[tuple[str, str]] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        one = waiting.pop()
        for extra in ("", *one.extras):
            if (plain(one.name), extra) in found:
                continue
            found.add((plain(one.name), extra))
            if plain(one.name) == plain(_project()["name"]):
                lines = [*declared(extra or None).values()]
            else:
                lines = _requires(one.name)
            needed = [Requirement(line) for line in lines]
            waiting += [each for each in needed if not each.marker or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def _requires(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # for another Python or system
        return []
