"""Splits entries that hold the results of several calls, and joins them again, without changing a byte.

Owns: which provider API puts several results into one entry, and which results are marked as failed. Must
never know: why an entry is split, or whether a provider accepts the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from ..base import rawjson

__all__ = ["apart", "failed_calls", "together"]


def apart(wire: str, entry: bytes) -> list[bytes]:
    """Split an entry: one entry for each result, and one for each run of other blocks between results.

    An entry with one block or run is returned as it is.

    Raises:
        RawJSONError: The entry is not a JSON object.
    """
    return _WIRES[wire].apart(entry) if wire in _WIRES else [entry]


def together(wire: str, results: Sequence[bytes]) -> list[bytes]:
    """Join entries of one result each into the form that the provider API has for one exchange."""
    return _WIRES[wire].together(results) if wire in _WIRES and len(results) > 1 else list(results)


def failed_calls(wire: str, entry: bytes) -> frozenset[str]:
    """The ids of the calls that the entry with their results marks as failed.

    Raises:
        RawJSONError: The entry is not a JSON object.
    """
    if wire not in _WIRES or b'"is_error"' not in entry:
        return frozenset()
    message = rawjson.view(entry)
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    ids = (block.get("tool_use_id") for block in blocks if block.get("is_error") is True)
    return frozenset(id for id in ids if isinstance(id, str))


def _blocks_apart(entry: bytes) -> list[bytes]:
    content = rawjson.members(entry).get("content", b"")
    blocks = rawjson.items(content) if content.startswith(b"[") else []
    runs = [(is_result, list(run)) for is_result, run in groupby(blocks, _is_result)]
    pieces = [piece for is_result, run in runs for piece in ([[one] for one in run] if is_result else [run])]
    if len(pieces) < 2:
        return [entry]
    empty = _with_blocks(entry, ())  # keeps what is spliced into small
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
"""Provider APIs with one entry for all results of an exchange. On the others each result has an entry."""
