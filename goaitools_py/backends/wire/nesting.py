"""Reads replies that nest deeper than this package's JSON reader allows.

Owns: the cut of these replies, and how they are read again. Must never know: the meaning of a reply.

A reply is paid for, so it is kept: a container below the deepest level becomes null. The arguments of a tool
call are not changed silently. An object of arguments becomes a JSON string of its own text, which every
dialect reads as the arguments that the model wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...base import rawjson
from ...base.values import replace
from ..base import ProtocolFault, Reply

__all__ = ["read_again", "shallow"]

_ARGUMENTS: Final = ("arguments", "input")
"""Members with a model's input for a tool: Chat Completions and Responses; Anthropic."""


def shallow(data: bytes) -> bytes:
    """Cut containers that nest too deep; `data` itself if nothing is cut."""
    return rawjson.pruned(data, as_text=_ARGUMENTS)


def _without_done(body: bytes) -> bytes:
    """A body without the word that ends a stream, which some proxies put behind a whole body, too."""
    if not body[-32:].rstrip().endswith(b"[DONE]"):
        return body
    left = body.rstrip()[: -len(b"[DONE]")].rstrip()
    left = left.removesuffix(b"data:").rstrip()
    return left if left.endswith(b"}") else body


def read_again(body: bytes, read: Callable[[bytes], Reply]) -> Reply:
    """Read a body, without ``[DONE]`` behind it. If it cannot be read, cut the deepest containers and read it
    once more.

    Raises:
        ProtocolFault: The body is not a reply in either form.
    """
    body = _without_done(body)
    try:
        return read(body)
    except ProtocolFault:
        cut = shallow(body)
        if cut is body:
            raise
    return replace(read(cut), cut=True)
