"""Applies a request's ``context_management`` before the simulated model reads it.

Owns: which blocks are cleared, where the model begins to read, and the report of both. Must never know: which
edits are refused, or the reply.

This follows Anthropic's description (platform.claude.com, build-with-claude/context-editing and compaction,
seen November 2026): the newest compaction replaces everything before it, edits are applied in their order,
and the client's history does not change. The simulator keeps no memory: each request is edited anew.
Signatures are checked before that, over the request as sent, so the provider's own edits break no signature.
``pause_after_compaction`` is accepted and not imitated: the reply continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..model.token_counts import estimate_bytes
from .prefix import Prefix, PrefixPiece, block_bytes

__all__ = ["CLEARED", "Edited", "edited", "messages_of", "open_turn", "read_block"]

CLEARED = "[cleared by context_management]"
"""Replaces a tool's result."""

_COMPACT_ABOVE = 150_000
_CLEAR_ABOVE = 100_000
_KEEP_USES = 3
_KEEP_TURNS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """A request as its model reads it.

    Attributes:
        applied: The report of the edits that changed something.
        compacts: True if the request is still large enough to be compacted.
    """

    prefix: Prefix = field(repr=False)
    applied: tuple[Mapping[str, Any], ...] = ()
    compacts: bool = False


def edited(prefix: Prefix, values: Mapping[str, Any]) -> Edited:
    """The edited request. `prefix` must not hold blocks that the model may not read."""
    pieces = prefix.pieces
    start = max((at for at, piece in enumerate(pieces) if _stands_for_all(piece)), default=0)
    first = (read_block(pieces[start]),) if pieces else ()
    prefix = replace(prefix, pieces=(*first, *pieces[start + 1 :]))
    applied: list[Mapping[str, Any]] = []
    compacts = False
    for edit in (values.get("context_management") or {}).get("edits") or ():
        if edit["type"] == "compact_20260112":
            ends_with_user = values["messages"][-1]["role"] == "user"
            compacts = ends_with_user and _tokens(prefix) > _value(edit, "trigger", _COMPACT_ABOVE)
            continue
        clear = _without_thinking if edit["type"] == "clear_thinking_20251015" else _without_results
        shorter, told = clear(prefix, edit)
        if told:
            saved = estimate_bytes(prefix.size) - estimate_bytes(shorter.size)
            applied.append({"type": edit["type"], **told, "cleared_input_tokens": saved})
            prefix = shorter
    return Edited(prefix=prefix, applied=tuple(applied), compacts=compacts)


def messages_of(pieces: Sequence[PrefixPiece], messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages that are not empty after the edits."""
    content: dict[int, list[Mapping[str, Any]]] = {}
    for piece in pieces:
        content.setdefault(piece.message, []).append(piece.value)
    return [{**messages[at], "content": blocks} for at, blocks in content.items()]


def read_block(piece: PrefixPiece) -> PrefixPiece:
    """The block as its model reads it. Of a compaction that is the summary."""
    if not _stands_for_all(piece):
        return piece
    value = {key: inner for key, inner in piece.value.items() if key != "encrypted_content"}
    return _with(piece, "assistant", value)


def open_turn(pieces: Sequence[PrefixPiece]) -> Sequence[PrefixPiece]:
    """The messages from the user's newest text on."""
    asked = [at for at, piece in enumerate(pieces) if _is_asked(piece)]
    return pieces[asked[-1] :] if asked else pieces


def _stands_for_all(piece: PrefixPiece) -> bool:
    return piece.value.get("type") == "compaction" and piece.value.get("content") is not None


def _is_asked(piece: PrefixPiece) -> bool:
    return piece.content.startswith(b"user") and piece.value.get("type") != "tool_result"


def _tokens(prefix: Prefix) -> int:
    return estimate_bytes(prefix.size)


def _value(edit: Mapping[str, Any], name: str, default: int) -> int:
    return default if edit.get(name) is None else int(edit[name]["value"])


# ----------------------------------------------------------------------------------------- thinking


def _without_thinking(prefix: Prefix, edit: Mapping[str, Any]) -> tuple[Prefix, dict[str, Any]]:
    keep = edit.get("keep")
    if keep == "all" or (isinstance(keep, dict) and keep["type"] == "all"):
        return prefix, {}
    turns = _turns(prefix.pieces)
    thinking = sorted({turn for turn, piece in zip(turns, prefix.pieces, strict=True) if piece.is_thinking})
    gone = set(thinking[: max(0, len(thinking) - _value(edit, "keep", _KEEP_TURNS))])
    if not gone:
        return prefix, {}
    left = [
        piece
        for turn, piece in zip(turns, prefix.pieces, strict=True)
        if not (piece.is_thinking and turn in gone)
    ]
    return replace(prefix, pieces=tuple(left)), {"cleared_thinking_turns": len(gone)}


def _turns(pieces: Sequence[PrefixPiece]) -> list[int]:
    """The number of the turn of each block. A turn begins with a text of the user."""
    turn, was_asked, numbers = 0, False, []
    for piece in pieces:
        is_asked = _is_asked(piece)
        turn += is_asked and not was_asked
        was_asked = is_asked
        numbers.append(turn)
    return numbers


# --------------------------------------------------------------------------------------- tool results


def _without_results(prefix: Prefix, edit: Mapping[str, Any]) -> tuple[Prefix, dict[str, Any]]:
    uses = [piece.value for piece in prefix.pieces if piece.value.get("type") == "tool_use"]
    trigger = edit.get("trigger")
    counts_uses = trigger is not None and trigger["type"] == "tool_uses"
    if (len(uses) if counts_uses else _tokens(prefix)) <= _value(edit, "trigger", _CLEAR_ABOVE):
        return prefix, {}
    older = uses[: max(0, len(uses) - _value(edit, "keep", _KEEP_USES))]
    excluded = edit.get("exclude_tools") or ()
    names = {use["id"]: use["name"] for use in older if use["name"] not in excluded}
    results = {piece.value.get("tool_use_id") for piece in prefix.pieces}
    names = {id: name for id, name in names.items() if id in results}
    pieces = tuple(_cleared(piece, names, _clears_input(edit)) for piece in prefix.pieces)
    shorter = replace(prefix, pieces=pieces)
    saved = _tokens(prefix) - _tokens(shorter)
    if not names or saved < _value(edit, "clear_at_least", 0):
        return prefix, {}
    return shorter, {"cleared_tool_uses": len(names)}


def _clears_input(edit: Mapping[str, Any]) -> Callable[[str], bool]:
    wish = edit.get("clear_tool_inputs")
    return lambda name: name in wish if isinstance(wish, list) else wish is True


def _cleared(
    piece: PrefixPiece, names: Mapping[str, str], clears_input: Callable[[str], bool]
) -> PrefixPiece:
    value = piece.value
    if value.get("type") == "tool_result" and value["tool_use_id"] in names:
        return _with(piece, "user", {**value, "content": CLEARED})
    if value.get("type") == "tool_use" and value["id"] in names and clears_input(names[value["id"]]):
        return _with(piece, "assistant", {**value, "input": {}})
    return piece


def _with(piece: PrefixPiece, role: str, value: Mapping[str, Any]) -> PrefixPiece:
    return replace(piece, content=block_bytes(role, value), value=value)
