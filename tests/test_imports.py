"""Imports point one way, importing costs little, and nothing in the package can run what it reads."""

from __future__ import annotations

import ast
import functools
import graphlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import goaitools_py

from ._sets import WHOLE_FILES

PACKAGE = Path(goaitools_py.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

ROOMS = {
    "base": "",
    "sim": "",
    "types": "base",
    "tools": "base types",
    "state": "base types",
    "stores": "base types",
    "backends": "base types sim",
    "compaction": "base types backends state",
    "open_turn": "base types backends state tools",
    "output": "base types backends state tools",
    "seal": "state",
    "mcp": "base types tools",
    "history": "base types backends state compaction open_turn",
    "frontends": "base types state history",
    "integrations": "base types state stores history",
    "turn": "base types backends state tools compaction history open_turn output",
    "telemetry": "base types backends turn",
    "chat": "base types backends state stores tools history open_turn output turn",
    "prices": "types",
    "tokens": "types",
    "states": "state history chat",
    "__init__": "base types state tools compaction chat",
    "testing": "base types sim backends stores history chat",
    "serve": "base types state stores open_turn history frontends chat states",
    "cli": (
        "base types sim backends state stores seal mcp compaction history chat states __init__ testing serve"
    ),
    "__main__": "cli",
}
"""Which room may import from which: the order of the house, from its ground to its roof."""

NEVER = (
    ("state.blob", "types.messages"),
    ("state.codec", "state.blob"),
    ("turn.engine", "turn.edges.sync_edge"),
    ("chat.kept.turn", "turn.edges.sync_edge"),
    ("chat.kept.turn", "turn.edges.async_edge"),
)
"""What a module must never know, over any number of steps, beside what the order of rooms keeps apart."""


class Import(NamedTuple):
    """One import of a module of ours. `lazy`: it stands inside a function."""

    source: str
    target: str
    lazy: bool


@functools.cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def statements(node: ast.AST, with_types: bool, lazy: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """The statements in a node, and whether a function holds each. Imports are not in expressions."""
    yield node, lazy
    lazy = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        found = getattr(node, name, ())
        if isinstance(found, list) and not (name == "body" and is_for_types and not with_types):
            for child in found:
                yield from statements(child, with_types, lazy)


def imports_of(module: str, *, with_types: bool = False) -> Iterator[Import]:
    """The imports of a module from the package. `with_types`: also those that only type checkers see."""
    folder = list(MODULES[module].relative_to(PACKAGE).parts[:-1])
    for node, lazy in statements(tree_of(module), with_types):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder[: len(folder) - node.level + 1] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                deeper = ".".join([*base, alias.name])
                yield Import(module, deeper if deeper in MODULES else ".".join(base) or "__init__", lazy)


@functools.cache
def all_imports(*, with_types: bool = False) -> list[Import]:
    """The imports of all modules. It reads the whole package, so only once a test needs it."""
    return sorted({found for module in MODULES for found in imports_of(module, with_types=with_types)})


def reachable(start: str) -> set[str]:
    """Each module that a module imports, over any number of steps, also inside functions."""
    known: dict[str, set[str]] = {}
    for found in all_imports():
        known.setdefault(found.source, set()).add(found.target)
    reached: set[str] = set()
    left = [start]
    while left:
        for name in known.get(left.pop(), set()) - reached:
            reached.add(name)
            left.append(name)
    return reached


def room(module: str) -> str:
    """The room of a module: the first part of its name."""
    return module.partition(".")[0] or "__init__"


# -------------------------------------------------------------------------------------------- direction


def test_every_room_has_a_row() -> None:
    """The table names every room, and nothing that is not there."""
    assert {room(module) for module in MODULES} == set(ROOMS)


def test_imports_are_those_of_the_table() -> None:
    """A file imports from its own room and from those that the row of its room names."""
    wrong = [
        f"{found.source} imports {found.target}"
        for module in MODULES
        for found in imports_of(module, with_types=True)
        if (source := room(found.source)) != (target := room(found.target))
        and target not in ROOMS[source].split()
    ]

    assert wrong == []


def test_each_word_of_the_table_is_needed() -> None:
    """A room that no file imports from any more is taken out of the row."""
    used = {(room(found.source), room(found.target)) for found in all_imports(with_types=True)}
    named = {(source, target) for source, row in ROOMS.items() for target in row.split()}

    assert named <= used


def test_imports_are_relative() -> None:
    """Modules of the package name each other relatively, so that the table sees every import."""
    absolute = [
        (module, name)
        for module in MODULES
        for node, _ in statements(tree_of(module), with_types=True)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
        if name.partition(".")[0] == "goaitools_py"
    ]

    assert absolute == []


def test_the_table_points_one_way() -> None:
    """No room imports another that imports it, over any number of steps."""
    rows = {name: row.split() for name, row in ROOMS.items()}

    graphlib.TopologicalSorter(rows).prepare()


def test_modules_do_not_import_in_circles() -> None:
    """Also inside a package no import at module level leads back to where it began."""
    known: dict[str, set[str]] = {}
    for found in all_imports():
        if not found.lazy and not found.source.startswith(f"{found.target}."):
            known.setdefault(found.source, set()).add(found.target)

    graphlib.TopologicalSorter(known).prepare()


def test_no_import_at_all_leads_back() -> None:
    """Not one inside a function either, nor one that only type checkers see.

    A module may name its own package, which has begun to load before it.
    """
    known: dict[str, set[str]] = {}
    for module in MODULES:
        for found in imports_of(module, with_types=True):
            if found.target != module and not module.startswith(f"{found.target}."):
                known.setdefault(module, set()).add(found.target)

    graphlib.TopologicalSorter(known).prepare()


@pytest.mark.parametrize(("source", "target"), NEVER)
def test_what_must_never_be_known(source: str, target: str) -> None:
    """The walls of the house: what a part must not know, it does not know through others either."""
    assert target not in reachable(source)


# ------------------------------------------------------------------------------------------------- cost

HEAVY = (
    "openai",
    "anthropic",
    "cryptography",
    "httpx",
    "httpx2",
    "pydantic",
    "docstring_parser",
    "genai_prices",
    "tiktoken",
    "asyncio",
    "sqlite3",
    "sqlalchemy",
    "django",
    "http.server",
    "socketserver",
    "goaitools_py.sim",
    "goaitools_py.cli",
    "goaitools_py.seal",
    "goaitools_py.testing",
    "goaitools_py.chat.fields",
    "goaitools_py.backends.openai_responses.dialect",
    "goaitools_py.backends.anthropic.dialect",
)
NEEDED = {
    "importing the package": "import goaitools_py",
    "naming backends and reading states": (
        "from goaitools_py import AsyncChat, Chat, event\n"
        "from goaitools_py.states import inspect_state, read_history, state_messages\n"
        "Chat('openai:MODEL'), AsyncChat('sim')\n"
        "state = Chat('openai:MODEL').append_to_state(None, event('It rains.'))\n"
        "inspect_state(state), read_history(state), state_messages(state)"
    ),
}


@pytest.mark.parametrize("code", NEEDED.values(), ids=NEEDED)
def test_little_is_loaded(code: str) -> None:
    """No SDK, HTTP client, schema library, event loop, database or simulator is loaded before it is used."""
    program = (
        f"import sys, time\nstart = time.process_time()\n{code}\n"
        "print(f'{time.process_time() - start:.3f} s CPU', file=sys.stderr)\n"
        "print(*sys.modules, sep='\\n')"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    print(ran.stderr)
    assert set(HEAVY) & set(ran.stdout.split()) == set()


AT_IMPORT = 73
"""How many modules of its own the package may load at its import. More than half come when a chat needs them:
the engine of a turn, the edges of an event loop, the translation between provider APIs."""
LATER = (
    "goaitools_py.turn.engine",
    "goaitools_py.history.additions",
    "goaitools_py.history.rewrite.repair",
    "goaitools_py.state.state",
    "goaitools_py.history.convert.state",
    "goaitools_py.backends.openai_chat.translate",
    "goaitools_py.base.display",
)
PATTERNS = 8
"""How many patterns it may compile at its import: each takes as long as a small module."""
COUNTED = """
import re, sys

compiled, compile = [], re.compile


def noted(*args):
    if "goaitools_py" in sys._getframe(1).f_code.co_filename:
        compiled.append(args[0])
    return compile(*args)


re.compile = noted
import goaitools_py

print(len(compiled))
print(*[name for name in sys.modules if name.partition(".")[0] == "goaitools_py"], sep="\\n")
"""


def test_the_import_loads_what_a_chat_is_made_of() -> None:
    """Counted, because the time of an import depends on the machine."""
    ran = subprocess.run(
        [sys.executable, "-c", COUNTED],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    compiled, *own = ran.stdout.split()
    assert set(LATER) & set(own) == set()
    assert len(own) <= AT_IMPORT
    assert int(compiled) <= PATTERNS


# ----------------------------------------------------------------------------------------------- safety


def test_nothing_can_run_what_it_reads() -> None:
    """No file of the package mentions pickle, eval, exec or import by name.

    One imports a module that the user names on the command line: `goaitools chat --tools MODULE:NAME`.
    """
    forbidden = re.compile(r"pickle|\beval\(|\bexec\(|\b__import__\(|import_module|\bmarshal\b|\bshelve\b")

    found = [name for name, path in MODULES.items() if forbidden.search(path.read_text(encoding="utf-8"))]

    assert found == ["cli.chat_options"]


# ---------------------------------------------------------------------------------------- other systems

ELSEWHERE = r"""
import builtins, importlib, os, pkgutil, signal, socket, sys

import django
from django.conf import settings

absent = {"fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
gone = {
    os: "fork forkpty register_at_fork fchown chown getuid geteuid getgid killpg getpgid setsid O_NOFOLLOW",
    signal: "SIGHUP SIGKILL SIGUSR1 SIGUSR2 SIGWINCH SIGALRM setitimer pthread_sigmask",
    socket: "AF_UNIX SO_REUSEPORT",
}
imported = builtins.__import__


def without(name, globals=None, *rest, **named):
    if name.partition(".")[0] in absent and str((globals or {}).get("__name__")).startswith("goaitools_py"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return imported(name, globals, *rest, **named)


def import_all():
    import goaitools_py

    for found in pkgutil.walk_packages(goaitools_py.__path__, "goaitools_py."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)


settings.configure()
django.setup()
import_all()  # the libraries of others, which know the system they are on
for name in [name for name in sys.modules if name.partition(".")[0] == "goaitools_py"]:
    del sys.modules[name]
builtins.__import__ = without
for module, names in gone.items():
    for name in names.split():
        vars(module).pop(name, None)
import_all()
from goaitools_py import Chat
from goaitools_py.stores import SQLiteStore
with Chat("sim") as chat, SQLiteStore("chat.db") as store:
    chat.conversation(store, "ada").send("My name is Ada.")
    assert "Ada" in chat.conversation(store, "ada").send("What is my name?").text
"""


def test_nothing_of_posix_is_needed_at_import(tmp_path: Path) -> None:
    """Every module can be imported, and a conversation in SQLite works, without what other systems lack."""
    ran = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert ran.returncode == 0, ran.stderr


def test_a_file_of_tests_needs_nothing_of_posix_to_be_read() -> None:
    """On Windows `-m quick` reads these files, too. What a test needs there, it imports itself."""
    absent = {"fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
    found = []
    tests = PACKAGE.parent / "tests"
    for path in sorted(tests.rglob("*.py")):
        if path.relative_to(tests).as_posix().startswith(WHOLE_FILES):
            continue  # it has no quick test, and is not read
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ImportFrom):
                names = {(node.module or "").partition(".")[0]}
            elif isinstance(node, ast.Import):
                names = {alias.name.partition(".")[0] for alias in node.names}
            else:
                continue
            found += [(path.name, name) for name in sorted(names & absent)]

    assert found == []
