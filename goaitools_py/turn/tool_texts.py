"""Tool lists as a provider API writes them, each encoded once.

Owns: the encoded lists of the newest sets of tools in this process. Must never know: a turn, or the code of a
tool.

A chat sends the same tools with each request. Encoding 200 tools with schemas of 4 KB took longer than the
rest of a turn (measured: 3 of 4.3 ms). The digest by which a state remembers them took long, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ..backends.base import Dialect
from ..state.records import digest8
from ..types.request_parts import ProviderTool, ToolSpec

__all__ = ["NO_TOOLS", "ToolText", "tool_text"]

_MOST_SETS: Final = 16
_MOST_BYTES: Final = 2**20
"""A larger list is not kept."""


class ToolText(NamedTuple):
    """A tool list.

    Attributes:
        encoded: As the provider API writes it; b"" for no tools.
        digest: The digest by which a state remembers it; "" for no tools.
    """

    encoded: bytes
    digest: str


class _Kept(NamedTuple):
    """`owners` keeps the objects alive, so that Python does not reuse their ids, which are in the key. They
    hold names and schemas, no functions."""

    owners: tuple[Any, ...]
    text: ToolText


NO_TOOLS: Final = ToolText(b"", "")
_kept: dict[tuple[object, ...], _Kept] = {}


def tool_text(dialect: Dialect, specs: Sequence[ToolSpec | ProviderTool]) -> ToolText:
    """Write a tool list, or return the list that was written for the same specifications.

    A function's specification is recognised by identity: `Tool.spec` gives the same object each time, unless
    the schema is computed from `deps`. A provider's tool is recognised by its JSON, because a program may
    change it in place, for example to renew a key.
    """
    if not specs:
        return NO_TOOLS
    key = (id(dialect), *(id(spec) if isinstance(spec, ToolSpec) else _json(spec) for spec in specs))
    found = _kept.get(key)
    if found is not None:
        return found.text
    encoded = dialect.tools(specs)
    text = ToolText(encoded, digest8(encoded) if encoded else "")
    if len(encoded) <= _MOST_BYTES:
        while len(_kept) >= _MOST_SETS:
            _kept.pop(next(iter(_kept), key), None)  # another thread may have been here first
        _kept[key] = _Kept((dialect, *specs), text)
    return text


def _json(tool: ProviderTool) -> str:
    return json.dumps(dict(tool.raw), sort_keys=True)
