"""Objects of a user's module: `--tools module:name`, the chat of `goaitools serve module:name`; and `--mcp`.

Owns: the objects that these texts name. Must never know: the effect of a tool or a chat.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ["object_named", "tools_named", "tools_of_servers"]


def tools_named(named: Sequence[str]) -> list[Any]:
    """The tools behind texts such as "game:tools": a tool, a function, or a list of these.

    A module is looked for in the current folder first. Raises ValueError that describes a mistake in the
    text. An exception inside the module passes, because its traceback helps its author.
    """
    return [tool for text in named for tool in _tools(text)]


@contextmanager
def tools_of_servers(servers: Sequence[str]) -> Iterator[list[Any]]:
    """The tools of MCP servers, connected as long as the block runs. A text is a URL, or a command.

    Raises GoAIToolsError for a server that cannot be reached, or without the extra.
    """
    if not servers:
        yield []
        return
    from ..types.errors import GoAIToolsError

    try:
        from mcp import StdioServerParameters
    except ImportError:
        raise GoAIToolsError("--mcp needs the extra: pip install 'goaitools-py[mcp]'") from None
    from ..mcp import MCPTools

    with ExitStack() as opened:
        tools: list[Any] = []
        for server in servers:
            place: Any = server
            if not server.startswith(("http://", "https://")):
                try:
                    command, *rest = shlex.split(server) or [server]
                except ValueError as error:
                    raise GoAIToolsError(f"--mcp {server}: this is no command: {error}") from None
                place = StdioServerParameters(command=command, args=rest)
            tools += opened.enter_context(MCPTools(place))
        yield tools


def _tools(text: str) -> list[Any]:
    found = object_named(text, f"--tools {text}")
    return list(found) if isinstance(found, Sequence) and not isinstance(found, str) else [found]


def object_named(text: str, label: str) -> Any:
    """The object behind a text such as "game:chat"; as `tools_named`. `label`: how an error calls it."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    module_name, colon, name = text.partition(":")
    if not module_name or not colon or not name:
        option = label.partition(" ")[0]
        raise ValueError(f"{option} is MODULE:NAME, such as game:tools, not {text!r}")
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"{label}: there is no module {error.name!r}") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{label}: the module {module_name!r} has no {name!r}")
        found = getattr(found, part)
    return found
