"""Imports point one way, importing costs little, and nothing in the package can run what it reads."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import goaitools_py

PACKAGE = Path(goaitools_py.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

ALLOWED = {
    # words and bytes
    "values": "",
    "errors": "",
    "rawjson": "",
    "messages": "errors values",
    "render": "messages values",
    "options": "messages values",
    "prices": "messages values",
    "result": "messages prices values",
    "events": "messages values",
    # the state
    "dictionary": "errors",
    "frames": "dictionary errors",
    "blob": "dictionary errors frames values",
    "seal": "blob frames",
    "text": "blob errors",
    "records": "messages values",
    "segments": "blob errors messages rawjson records",
    "state": "blob errors records segments values",
    "reseal": "blob state",
    # what a turn may ask: rules that are pure
    "backends.base": "messages values",
    "backends.rules": "rawjson",
    "backends.atoms": "rawjson",
    "backends.capabilities": "values",
    "compaction": "messages values",
    "tools": "backends.base errors messages values",
    "reading": "backends.base errors messages rawjson",
    "media": "messages",
    "tokens": "media messages values",
    "vocabulary": "media messages",
    "meter": "backends.base backends.capabilities messages reading records state tokens",
    # the turn
    "deadlines": "values",
    "flow": "backends.base events values",
    "answers": "tools values",
    "turn_ids": "backends.base rawjson reading records state values",
    "inbox": "backends.base messages reading records render state turn_ids values",
    "journal": "answers backends.base errors messages meter reading records state tokens turn_ids values",
    "unsign": "backends.base records state values",
    "mending": "backends.atoms backends.base backends.rules errors journal messages rawjson values",
    "repair": "backends.base backends.rules mending records state turn_ids unsign values",
    "contexts": "backends.base messages reading records render state unsign values",
    "cut": "backends.base compaction contexts messages meter reading records render result state turn_ids "
    "unsign values",
    "ledger": "answers backends.base blob deadlines errors events flow inbox journal messages options "
    "prices records result state unsign values",
    "asking": "backends.base deadlines errors events flow journal ledger repair values voice",
    "calling": "answers errors events flow journal ledger messages records tools values",
    "voice": "backends.base ledger records tools values",
    "consult": "backends.base compaction flow ledger messages values voice",
    "shrink": "backends.rules compaction consult cut errors events flow ledger messages result state unsign "
    "values voice",
    "engine": "asking backends.base backends.capabilities calling errors events flow inbox journal ledger "
    "messages meter records repair result shrink state turn_ids values voice",
    "counting": "asking backends.base errors flow inbox journal ledger state voice",
    # states without a turn
    "estimate": "backends backends.base blob meter state tokens",
    "append": "backends.base blob inbox messages records repair state values",
    "compact": "errors flow ledger repair result shrink state values voice",
    "wires": "backends backends.base errors",
    "branch": "backends.base blob meter options records state turn_ids values wires",
    "rebase": "backends.base blob errors meter records state unsign values wires",
    "history": "answers backends backends.base backends.capabilities backends.rules blob errors journal "
    "mending messages options rawjson reading records repair state unsign values wires",
    # a conversation in a store: rules that know a store by its shape only
    "row": "backends.base blob errors flow rebase records state values",
    "threads": "branch engine errors events flow messages reseal result row state turn_ids values",
    "kept": "events flow",
    # edges: the only places that touch clocks, sockets, threads, loops, files
    "watch": "",
    "edge": "backends.base deadlines flow tools watch",
    "async_edge": "backends.base deadlines flow tools",
    "leases": "",
    "backends": "backends.base backends.capabilities messages rawjson render values",
    "stores": "errors",
    "integrations": "blob errors history stores",
    "sim": "",
    # what a user meets
    "conversation": "answers backends.base blob errors flow history kept ledger leases messages options "
    "result row state threads values",
    "chat": "answers append async_edge backends backends.base blob compact conversation counting edge engine "
    "events flow inbox messages options result tools",
    "goaitools_py": "answers backends.base blob branch chat compaction conversation errors estimate events "
    "history messages options prices rebase reseal result seal text tokens tools vocabulary",
    "testing": "backends backends.base backends.rules errors messages rawjson render sim stores values",
    "cli": "backends errors goaitools_py history messages sim stores",
    "__main__": "cli",
}
"""Which part may import which at module level or inside a function. `goaitools_py` is the package's top."""

LAZY = {
    ("errors", "messages"): "an error made without a usage carries an empty one",
    ("backends", "sim"): "the backend called 'sim' starts the simulator at its first call",
}
"""Imports against the direction, allowed inside a function only, and why."""

NEVER = (
    ("blob", "messages"),
    ("rawjson", "state"),
    ("state", "backends.base"),
    ("backends", "state"),
    ("backends", "engine"),
    ("compaction", "state"),
    ("tools", "engine"),
    ("engine", "chat"),
    ("engine", "backends"),
    ("engine", "edge"),
    ("chat", "stores"),
    ("threads", "edge"),
    ("threads", "async_edge"),
    ("stores", "blob"),
    ("seal", "state"),
    ("blob", "seal"),
    ("history", "engine"),
    ("sim", "backends.base"),
    ("goaitools_py", "sim"),
)
"""What must never be known, over however many steps."""


class Import(NamedTuple):
    """One import of a module of ours. `lazy`: it stands inside a function."""

    source: str
    target: str
    lazy: bool


def imports_of(module: str) -> Iterator[Import]:
    """The imports of a module from the package; those for type checkers only are left out."""
    path = MODULES[module]
    folder = list(path.relative_to(PACKAGE).parts[:-1])

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for other in node.orelse:
                yield from walk(other, lazy)
            return
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder[: len(folder) - node.level + 1] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                deeper = ".".join([*base, alias.name])
                yield Import(module, deeper if deeper in MODULES else ".".join(base) or "__init__", lazy)
        lazy = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in ast.iter_child_nodes(node):
            yield from walk(child, lazy)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), False)


IMPORTS = sorted({found for module in MODULES for found in imports_of(module)})


def part(module: str) -> str:
    """The row of the table that a module belongs to: its own, else its package's."""
    if module == "__init__":
        return "goaitools_py"
    while module not in ALLOWED and "." in module:
        module = module.rpartition(".")[0]
    return module


def reachable(start: str) -> set[str]:
    """Everything that a part knows of, over any number of steps of the table."""
    found: set[str] = set()
    left = [start]
    while left:
        for name in ALLOWED[left.pop()].split():
            if name not in found:
                found.add(name)
                left.append(name)
    return found


# -------------------------------------------------------------------------------------------- direction


def test_every_part_has_a_row() -> None:
    """The table names every module and package, and nothing that is not there."""
    assert {part(module) for module in MODULES} == set(ALLOWED)


def test_imports_are_those_of_the_table() -> None:
    """No part imports another that its row does not name; exceptions stand inside functions."""
    wrong = [
        found
        for found in IMPORTS
        if (source := part(found.source)) != (target := part(found.target))
        and target not in ALLOWED[source].split()
        and not (found.lazy and (source, target) in LAZY)
    ]

    assert wrong == []


def test_imports_are_relative() -> None:
    """Modules of the package name each other relatively, so that the table sees every import."""
    absolute = [
        (module, name)
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
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


def test_the_exceptions_are_in_use() -> None:
    """An exception that nothing needs any more is taken out of the list."""
    used = {(part(found.source), part(found.target)) for found in IMPORTS if found.lazy}

    assert set(LAZY) <= used


def test_the_table_points_one_way() -> None:
    """No part imports another that imports it, over any number of steps."""
    rows = {name: row.split() for name, row in ALLOWED.items()}

    graphlib.TopologicalSorter(rows).prepare()


def test_modules_do_not_import_in_circles() -> None:
    """Also inside a package no import at module level leads back to where it began."""
    known: dict[str, set[str]] = {}
    for found in IMPORTS:
        if not found.lazy and not found.source.startswith(f"{found.target}."):
            known.setdefault(found.source, set()).add(found.target)

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
    "goaitools_py.backends.openai_responses",
    "goaitools_py.backends.anthropic_messages",
)
NEEDED = {
    "importing the package": "import goaitools_py",
    "naming backends and reading states": (
        "from goaitools_py import AsyncChat, Chat, event, inspect_state, read_history, state_messages\n"
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


# ----------------------------------------------------------------------------------------------- safety


def test_nothing_can_run_what_it_reads() -> None:
    """No file of the package mentions pickle, eval, exec or import by name."""
    forbidden = re.compile(r"pickle|\beval\(|\bexec\(|\b__import__\(|import_module|\bmarshal\b|\bshelve\b")

    found = [name for name, path in MODULES.items() if forbidden.search(path.read_text(encoding="utf-8"))]

    assert found == []
