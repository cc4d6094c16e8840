"""Asking a provider about a request instead of sending it: for a count of its tokens, say.

Owns: cutting a request down to the members that another endpoint takes, and reading a count.
Must never know: which endpoint.
"""

from __future__ import annotations

from collections.abc import Collection

from .. import rawjson
from ..rawjson import RawJSONError
from ..values import replace
from .base import ModelRequest, ProtocolFault

__all__ = ["count_of", "cut_down"]


def cut_down(request: ModelRequest, path: str, members: Collection[str]) -> ModelRequest:
    """The request at another path, with no other members than these; every value's bytes as they are."""
    kept = (
        rawjson.dumps(name) + b":" + value
        for name, value in rawjson.members(request.body).items()
        if name in members
    )
    return replace(request, path=path, body=b"{" + b",".join(kept) + b"}", stream=False)


def count_of(body: bytes) -> int:
    """The number in an answer such as ``{"input_tokens": 14}``. Raises `ProtocolFault`."""
    try:
        found = rawjson.view(body)
    except RawJSONError:
        found = None
    count = found.get("input_tokens") if isinstance(found, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ProtocolFault("the answer to a count is no object with input_tokens")
    return count
