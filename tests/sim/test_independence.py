"""The simulator stands alone."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import goaitools_py
import goaitools_py.sim
from goaitools_py.sim.hosts import HOSTS

PACKAGE = Path(goaitools_py.__file__).parent


def test_the_simulator_is_a_second_opinion() -> None:
    """No file of the simulator imports from outside its own folder but the standard library and orjson."""
    folder = Path(goaitools_py.sim.__file__).parent

    foreign = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level > len(file.relative_to(folder).parts):
                foreign.add(f"{file.name}: {'.' * node.level}{node.module}")
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                foreign.add((node.module or "").partition(".")[0])
            elif isinstance(node, ast.Import):
                foreign |= {alias.name.partition(".")[0] for alias in node.names}

    assert foreign - set(sys.stdlib_module_names) == {"orjson"}


def imports_of_sim() -> Iterator[tuple[str, str, str]]:
    """File, module and name of every import from the simulator outside its own folder."""
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        text = path.read_text(encoding="utf-8")
        if place.parts[0] == "sim" or not re.search(r"\bsim\b", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and re.search(r"(?:^|\.)sim(?:\.|$)", node.module or ""):
                yield from ((str(place), node.module or "", alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((str(place), a.name, "") for a in node.names if ".sim" in a.name)


def test_only_the_simulator_reads_the_rules_of_hosts() -> None:
    """The package would agree with itself, if it read the table by which it is tested."""
    found = list(imports_of_sim())

    readers = {place for place, module, name in found if "hosts" in (*module.split("."), name)}

    assert {place for place in readers if not place.startswith("testing/")} == set()
    assert found


def test_the_backends_know_the_simulator_by_one_name() -> None:
    """`"sim"` as a model's name starts a server. That is all that a backend may know of it."""
    assert {found for found in imports_of_sim() if found[0].startswith("backends/")} == {
        ("backends/by_name.py", "sim", "SimServer")
    }


def test_the_words_of_the_table_are_of_the_simulator_alone() -> None:
    """No module outside has a host's whole sentence: it recognises a refusal by less than that."""
    sentences = {
        rule.text
        for hosts in HOSTS.values()
        for host in hosts.values()
        for rule in host.rules
        if len(rule.text) > 60
    }
    outside = [path for path in PACKAGE.rglob("*.py") if "sim" not in path.relative_to(PACKAGE).parts]

    copied = {
        (path.name, text)
        for path in outside
        for text in sentences
        if text in path.read_text(encoding="utf-8")
    }

    assert copied == set()
