"""The simulator stands alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import goaitools_py.sim


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
