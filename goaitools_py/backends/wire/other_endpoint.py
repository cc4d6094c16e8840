"""Sends the parts of a request to another endpoint, for example to count its tokens.

Owns: reducing a request to the members that the endpoint takes, and reading a count.
Must never know: which endpoint.
"""

from __future__ import annotations

from collections.abc import Collection

from ...base import rawjson
from ...base.rawjson import RawJSONError
from ...base.values import replace
from ..base import ModelRequest, ProtocolFault

__all__ = ["count_of", "cut_down"]


def cut_down(request: ModelRequest, path: str, members: Collection[str]) -> ModelRequest:
    """The request for another path, with only these members. The bytes of their values do not change."""
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
        raise ProtocolFault("the response to a count is not an object with input_tokens")
    return count
