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
    "process": "",
    "errors": "",
    "rawjson": "",
    "messages": "errors values",
    "render": "messages values",
    "citations": "render values",
    "context_management": "values",
    "options": "context_management messages values",
    "fields": "messages options prices tokens",
    "prices": "messages values",
    "result": "citations messages prices values",
    "events": "messages values",
    "observers": "events",
    # the state
    "state": "",
    "state.dictionary": "errors",
    "state.frames": "errors state.dictionary values",
    "state.codec": "errors state.dictionary state.frames values",
    "state.blob": "errors state.codec state.frames values",
    "seal": "state.codec state.frames",
    "state.text": "errors state.blob",
    "state.records": "messages values",
    "state.segments": "errors messages rawjson state.blob state.records",
    "state.state": "errors state.blob state.codec state.records state.segments values",
    "state.reseal": "state.blob state.codec state.state",
    # what a turn may ask: rules that are pure
    "backends.base": "citations context_management messages values",
    "backends.rules": "rawjson",
    "backends.atoms": "rawjson",
    "backends.capabilities": "values",
    "compaction": "context_management messages values",
    "tools": "backends.base errors messages render values",
    "reading": "backends.base errors messages rawjson render values",
    "media": "messages",
    "tokens": "media messages values",
    "vocabulary": "media messages",
    "turn.meter": "backends.base backends.capabilities messages reading state.records state.state tokens",
    # the turn
    "turn": "",
    "turn.deadlines": "values",
    "turn.flow": "backends.base events process values",
    "turn.answers": "messages tools values",
    "turn.turn_ids": "backends.base rawjson reading state.codec state.records state.state values",
    "turn.inbox": "backends.base messages reading render state.records state.state turn.turn_ids values",
    "turn.journal": "backends.base citations errors messages reading state.records state.state tokens "
    "turn.answers "
    "turn.meter turn.turn_ids values",
    "turn.unsign": "backends.base state.records state.state values",
    "turn.mending": "backends.atoms backends.base backends.rules errors messages rawjson turn.journal values",
    "turn.repair": "backends.base backends.rules state.records state.state turn.mending turn.turn_ids "
    "turn.unsign values",
    "turn.room": "backends.base errors messages state.codec state.records state.segments state.state "
    "turn.journal turn.turn_ids values",
    "turn.admission": "backends.base errors messages state.records state.state turn.journal turn.room values",
    "turn.contexts": "backends.base messages reading render state.records state.state turn.unsign values",
    "turn.cut": "backends.base compaction messages reading render result state.codec state.records "
    "state.state turn.contexts turn.meter turn.questions turn.room turn.turn_ids turn.unsign values",
    "turn.questions": "compaction messages state.records state.state values",
    "turn.ledger": "backends.base errors events messages options prices result state.codec state.records "
    "state.state turn.answers turn.deadlines turn.flow turn.inbox turn.journal turn.meter turn.room "
    "turn.unsign tokens values",
    "turn.bodies": "backends.base turn.deadlines turn.flow turn.ledger",
    "turn.answered": "backends.base messages reading state.records state.state tools turn.answers "
    "turn.journal turn.turn_ids values",
    "turn.asking": "backends.base errors events messages rawjson state.state turn.admission turn.bodies "
    "turn.deadlines turn.flow turn.journal turn.ledger turn.repair turn.voice values",
    "turn.tool_failures": "errors state.records turn.ledger",
    "turn.fitting": "state.records state.state turn.admission turn.journal turn.ledger turn.room",
    "turn.calling": "backends.base errors events messages state.records state.state tools turn.admission "
    "turn.answers "
    "turn.fitting turn.flow turn.journal turn.ledger turn.tool_failures turn.turn_ids values",
    "turn.limits": "errors prices state.records turn.journal turn.ledger",
    "turn.voice": "backends.base context_management state.records tools turn.ledger values",
    "turn.consult": "backends.base compaction messages turn.bodies turn.flow turn.ledger turn.voice values",
    "turn.shrink": "backends.rules compaction errors events messages result state.state turn.consult "
    "turn.cut turn.flow turn.ledger turn.questions turn.unsign turn.voice values",
    "turn.engine": "backends.base backends.capabilities citations errors events messages result "
    "state.records state.state turn.answered turn.asking turn.calling turn.fitting turn.flow "
    "turn.inbox turn.journal turn.ledger turn.limits turn.meter turn.repair turn.room turn.shrink "
    "turn.turn_ids turn.voice values",
    "turn.counting": "backends.base errors state.state turn.asking turn.flow turn.inbox turn.journal "
    "turn.ledger turn.voice",
    # states without a turn
    "history": "",
    "history.estimate": "backends.base history.wires state.codec state.state tokens turn.meter",
    "history.append": "backends.base errors messages state.codec state.records state.state turn.inbox "
    "turn.repair values",
    "history.compact": "errors events result state.state turn.flow turn.ledger turn.repair turn.shrink "
    "turn.voice "
    "values",
    "history.wires": "backends backends.base errors",
    "history.branch": "backends.base history.wires options state.codec state.records state.state turn.meter "
    "turn.turn_ids values",
    "history.rebase": "backends.base errors history.wires state.codec state.records state.state turn.meter "
    "turn.turn_ids turn.unsign values",
    "history.info": "backends.capabilities errors messages state.blob state.codec state.records state.state "
    "turn.answers turn.journal values",
    "history.turns": "backends.base citations history.info history.wires messages reading state.codec "
    "state.records "
    "state.state turn.journal turn.repair values",
    "history.convert": "backends backends.base backends.rules errors history.wires messages options rawjson "
    "reading state.codec state.records state.state turn.journal turn.mending turn.repair turn.unsign values",
    # a conversation in a store: rules that know a store by its shape only
    "threads": "",
    "threads.row": "backends.base errors events history.info history.rebase state.codec state.records "
    "state.state turn.flow "
    "values",
    "threads.thread": "errors events history.branch history.info messages result state.reseal "
    "state.state threads.row "
    "turn.engine turn.flow turn.turn_ids values",
    "threads.kept": "events observers process turn.flow",
    # edges: the only places that touch clocks, sockets, threads, loops, files
    "edges": "",
    "edges.watch": "process",
    "edges.sync_edge": "backends.base edges.watch tools turn.deadlines turn.flow",
    "edges.async_edge": "backends.base edges.wait tools turn.flow",
    "edges.wait": "turn.deadlines",
    "threads.leases": "process",
    "backends": "backends.base backends.capabilities backends.rules citations context_management messages "
    "process rawjson render values",
    "stores": "errors process",
    "integrations": "errors history.info state.blob stores",
    "sim": "",
    # what a user meets
    "conversation": "backends.base errors history.info history.turns messages observers options result "
    "state.codec "
    "state.state threads.kept threads.leases threads.row threads.thread tools turn.answers turn.flow "
    "turn.ledger values",
    "handles": "edges.sync_edge events messages observers result turn.flow",
    "series": "errors messages result",
    "chat": "backends backends.base conversation edges.async_edge edges.sync_edge events handles "
    "history.append "
    "history.compact history.info messages observers options result series state.blob state.codec "
    "state.records tools "
    "turn.answers turn.counting turn.engine turn.flow turn.inbox values",
    "goaitools_py": "backends.base chat compaction context_management conversation errors events handles "
    "history.branch history.convert history.estimate history.info history.rebase history.turns messages "
    "options prices result seal state.codec state.reseal state.text tokens tools turn.answers vocabulary",
    "testing": "backends backends.base backends.rules errors messages rawjson render sim stores values",
    "cli": "backends errors goaitools_py history.convert history.info history.turns messages seal sim "
    "state.blob state.codec stores",
    "__main__": "cli",
}
"""Which part may import which at module level or inside a function. `goaitools_py` is the package's top."""

LAZY = {
    ("errors", "messages"): "an error made without a usage carries an empty one",
    ("messages", "render"): "what a user wrote is known to the module that escapes it",
    ("backends", "sim"): "the backend called 'sim' starts the simulator at its first call",
}
"""Imports against the direction, allowed inside a function only, and why."""

NEVER = (
    ("state.blob", "messages"),
    ("state.codec", "state.blob"),
    ("rawjson", "state.state"),
    ("state.state", "backends.base"),
    ("backends", "state.state"),
    ("backends", "turn.engine"),
    ("compaction", "state.state"),
    ("tools", "turn.engine"),
    ("turn.engine", "chat"),
    ("turn.engine", "handles"),
    ("handles", "turn.engine"),
    ("turn.engine", "backends"),
    ("turn.engine", "edges.sync_edge"),
    ("chat", "stores"),
    ("threads.thread", "edges.sync_edge"),
    ("threads.thread", "edges.async_edge"),
    ("stores", "state.blob"),
    ("seal", "state.state"),
    ("state.blob", "seal"),
    ("state.codec", "seal"),
    ("history.convert", "turn.engine"),
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
    "goaitools_py.fields",
    "goaitools_py.backends.openai.responses",
    "goaitools_py.backends.anthropic.messages",
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
