"""Which private names of other packages this one uses: each may be gone with their next release.

A private name here is one with a single underscore at its front, which nothing in this package defines.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import goaitools_py

ROOT = Path(goaitools_py.__file__).parent

READ = {
    ("_get_running_loop", "turn/edges/sync_edge.py"),
    ("_token_cache", "backends/anthropic/sdk.py"),
}
"""The first is in asyncio's `__all__`. The public question raises an error where there is no loop, in each
plain turn, and takes ten times as long. The second: the SDK forgets a refused token only before a retry of
its own, and those are switched off. Without this name a backend would go on with that token until it ends."""

OVERRIDDEN = {
    ("ShardedClient", "_init_transport"),
    ("ShardedClient", "_init_proxy_transport"),
    ("DeadlineClient", "_init_transport"),
    ("DeadlineClient", "_init_proxy_transport"),
}
"""The same methods of `httpx2` clients that both SDKs override in their own clients for aiohttp."""

INHERITED = {("_Transport", "_pool")}
"""Attributes that a base class of another package sets for itself.

The pool of an `httpx2.HTTPTransport` has no public name, and its constructor takes no network. If `_pool`
is not in a later `httpx2`, the class works on and says that its deadlines are not exact (`is_exact`)."""

DOCUMENTED = {"_asdict", "_replace", "_fields"}
"""Public methods of named tuples, in spite of their underscore."""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            yield node.attr
    elif isinstance(node, ast.Assign) and any("__slots__" in ast.unparse(target) for target in node.targets):
        yield from (leaf.value for leaf in ast.walk(node.value) if isinstance(leaf, ast.Constant))


def _used(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("getattr", "hasattr", "setattr") and isinstance(node.args[1], ast.Constant):
            yield str(node.args[1].value)
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        yield from (node.module or "").split(".")
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from (part for alias in node.names for part in alias.name.split("."))


def test_private_names_of_others_are_those_of_the_table() -> None:
    """Read, called, or imported."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))}
    defined = {name for tree in trees.values() for node in ast.walk(tree) for name in _defined(node)}
    foreign = {
        (name, path.relative_to(ROOT).as_posix())
        for path, tree in trees.items()
        for node in ast.walk(tree)
        for name in _used(node)
        if _is_private(name) and name not in defined | DOCUMENTED
    }
    assert foreign == READ


def _ours() -> Iterator[tuple[type, list[type]]]:
    """Each class of the package that inherits from classes of other packages, and these."""
    own = ("goaitools_py", "builtins", "typing", "abc", "enum")
    for module in pkgutil.walk_packages(goaitools_py.__path__, "goaitools_py."):
        if module.name.endswith(("__main__", "django")):  # the models of Django need an app with settings
            continue
        for _, made in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            others = [base for base in made.__mro__ if base.__module__.partition(".")[0] not in own]
            if others and made.__module__ == module.name:
                yield made, others


def _attributes(made: type) -> set[str]:
    """The private attributes that the methods of a class read or set."""
    codes = [getattr(method, "__code__", None) for method in vars(made).values()]
    return {name for code in codes if code for name in code.co_names if _is_private(name)}


def test_private_methods_of_others_that_are_overridden_are_those_of_the_table() -> None:
    """In the classes that inherit from one of another package."""
    found = {
        (made.__name__, name)
        for made, others in _ours()
        for name, value in vars(made).items()
        if inspect.isfunction(value) and _is_private(name) and any(name in vars(base) for base in others)
    }
    assert found == OVERRIDDEN


def test_private_attributes_of_others_that_are_inherited_are_those_of_the_table() -> None:
    """Read or set on `self`, in a class that inherits from one of another package that uses the same name."""
    found = {
        (made.__name__, name)
        for made, others in _ours()
        for name in _attributes(made) - vars(made).keys()
        if any(name in _attributes(base) for base in others)
    }
    assert found == INHERITED
