"""Reads replies that nest deeper than our reader of JSON goes.

Owns: what of such a reply is cut, and how it is read again. Must never know: what a reply means.

A reply is paid for, so it is taken: a container below the deepest level becomes null. The arguments of a
tool call do not change silently: an object of arguments becomes a JSON string of its very text, which every
dialect reads as the arguments that the model wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .. import rawjson
from ..values import replace
from .base import ProtocolFault, Reply

__all__ = ["read_again", "shallow"]

_ARGUMENTS: Final = ("arguments", "input")
"""Members that hold what a model wrote for a tool: Chat Completions and Responses; Anthropic."""


def shallow(data: bytes) -> bytes:
    """The JSON text without what nests too deep; `data` itself if nothing does."""
    return rawjson.pruned(data, as_text=_ARGUMENTS)


def read_again(body: bytes, read: Callable[[bytes], Reply]) -> Reply:
    """Read a body, and once more without what nests too deep if it cannot be read.

    Raises:
        ProtocolFault: It is no reply either way.
    """
    try:
        return read(body)
    except ProtocolFault:
        cut = shallow(body)
        if cut is body:
            raise
    return replace(read(cut), cut=True)
