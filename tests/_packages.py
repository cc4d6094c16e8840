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

__all__ = ["NAME", "ROOT", "all_of", "declared", "distributions", "extras_of", "imports", "plain"]

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"[A-Za-z0-9._-]+")

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
    """The extras for users: all but those of the tests and of the site."""
    return [name for name in _project()["optional-dependencies"] if name not in ("docs", "test")]


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
