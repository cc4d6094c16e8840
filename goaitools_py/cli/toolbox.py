"""Tools for a chat in the terminal: `--tools module:name`.

Owns: what such a text names. Must never know: what a tool does.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["tools_named"]


def tools_named(named: Sequence[str]) -> list[Any]:
    """The tools behind texts such as "game:tools": a tool, a function, or a list of these.

    A module is looked for in the current folder first. Raises ValueError with what is wrong. What the module
    itself raises passes, because its traceback is what helps.
    """
    if named and "" not in sys.path:
        sys.path.insert(0, "")
    return [tool for text in named for tool in _tools(text)]


def _tools(text: str) -> list[Any]:
    module_name, colon, name = text.partition(":")
    if not module_name or not colon or not name:
        raise ValueError(f"--tools is MODULE:NAME, such as game:tools, not {text!r}")
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"--tools {text}: there is no module {error.name!r}") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"--tools {text}: the module {module_name!r} has no {name!r}")
        found = getattr(found, part)
    return list(found) if isinstance(found, Sequence) and not isinstance(found, str) else [found]
