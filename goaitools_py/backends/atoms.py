"""Entries that hold the results of several calls, taken apart and put together again without a byte changed.

Owns: where a wire puts several results into one entry. Must never know: why somebody takes one apart, or
whether a provider would take what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from .. import rawjson

__all__ = ["apart", "together"]


def apart(wire: str, entry: bytes) -> list[bytes]:
    """The entry as one entry for each result in it, and for each run of what stands beside them.

    The very entry alone if it holds one thing only.

    Raises:
        RawJSONError: The entry is not a JSON object.
    """
    return _WIRES[wire].apart(entry) if wire in _WIRES else [entry]


def together(wire: str, results: Sequence[bytes]) -> list[bytes]:
    """Entries of one result each as the wire has the results of one exchange; the same where that is so."""
    return _WIRES[wire].together(results) if wire in _WIRES and len(results) > 1 else list(results)


def _blocks_apart(entry: bytes) -> list[bytes]:
    content = rawjson.members(entry).get("content", b"")
    blocks = rawjson.items(content) if content.startswith(b"[") else []
    runs = [(is_result, list(run)) for is_result, run in groupby(blocks, _is_result)]
    pieces = [piece for is_result, run in runs for piece in ([[one] for one in run] if is_result else [run])]
    if len(pieces) < 2:
        return [entry]
    empty = _with_blocks(entry, ())  # what is put together many times is small
    return [_with_blocks(empty, piece) for piece in pieces]


def _blocks_together(results: Sequence[bytes]) -> list[bytes]:
    blocks = [block for entry in results for block in rawjson.items(rawjson.members(entry)["content"])]
    return [_with_blocks(results[0], blocks)]


def _with_blocks(entry: bytes, blocks: Sequence[bytes]) -> bytes:
    return rawjson.replaced(entry, {"content": b"[" + b",".join(blocks) + b"]"})


def _is_result(block: bytes) -> bool:
    return block.startswith(b"{") and rawjson.members(block).get("type") == b'"tool_result"'


class _Wire(NamedTuple):
    apart: Callable[[bytes], list[bytes]]
    together: Callable[[Sequence[bytes]], list[bytes]]


_WIRES: Mapping[str, _Wire] = {"anthropic": _Wire(_blocks_apart, _blocks_together)}
"""The wires of which one entry holds all results of an exchange; on the others each has its own."""
