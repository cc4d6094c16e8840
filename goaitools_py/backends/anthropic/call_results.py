"""The results of calls at Anthropic: of client toolsets, and several in one message.

Owns: the shape of a toolset's result, and how one message with several results is split and joined without
changing a byte. Must never know: a reply, a turn, or why an entry is split.

One entry in `tools` declares a whole family, such as ``{"type": "computer_toolset_20260801"}``, and has no
name. The model calls its members: the `name` of the ``tool_use`` is the member (``left_click``), its
`toolset_name` the family (``computer``). A member's name is not reserved, so a caller's tool may have it,
too. The ``tool_result`` repeats the `toolset_name`: "`toolset_name` is required on a member result
(the API rejects a mismatch)" (anthropic 2.13, lib/tools/_toolsets/_runnable.py; platform.claude.com/docs,
agents-and-tools/tool-use/computer-use-tool).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from ...base import rawjson
from ...types.messages import Part, Text, ToolCall, ToolResult
from ...types.render import user_text
from .rules import entry_problems
from .writing import tool_result, with_blocks

__all__ = ["failed_calls", "join_results", "output_block", "result_block", "split_results"]

_OWN: Final = ("content", "is_error")
"""The members of a result that a caller may give."""


def output_block(call: ToolCall, value: Any, *, is_error: bool) -> dict[str, Any]:
    """Make the block that answers a call from the given result.

    Args:
        call: The call; its name is the family.
        value: Text, an `Image` or another part, a list of these, or the block's own members (`content`).
        is_error: The call failed.

    Raises:
        ValueError: The value has another shape; the text names the expected one.
    """
    named = {"type": "tool_result", "tool_use_id": call.id, "toolset_name": call.name}
    if isinstance(value, Mapping):
        block = (
            named
            | {key: value[key] for key in _OWN if key in value}
            | ({"is_error": True} if is_error else {})
        )
        if "content" not in block or not _is_json(block):
            raise ValueError(_expected(call))
        block = _safe(block)
    else:
        given = value if isinstance(value, (list, tuple)) else [value]
        parts = [Text(part) if isinstance(part, str) else part for part in given]
        if not all(isinstance(part, Part) for part in parts):
            raise ValueError(_expected(call))
        block = named | tool_result(call.id, parts, is_error=is_error)
    if any(entry_problems({"role": "user", "content": [block]})):
        raise ValueError(_expected(call))
    return block


def _expected(call: ToolCall) -> str:
    return (
        f"the answer to a call of the toolset {call.name!r} is text, an Image, a list of these, or the "
        'members of a tool_result: {"content": […]}; one with is_error=True holds text only'
    )


def _is_json(block: Mapping[str, Any]) -> bool:
    try:
        rawjson.dumps(block)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _safe(block: dict[str, Any]) -> dict[str, Any]:
    """The block with its texts escaped, so that they cannot imitate a block (see `render`)."""
    content = block["content"]
    if isinstance(content, str):
        return block | {"content": user_text(content)}
    if not isinstance(content, (list, tuple)):
        return block
    return block | {
        "content": [
            {**part, "text": user_text(part["text"])}
            if isinstance(part, Mapping) and isinstance(part.get("text"), str)
            else part
            for part in content
        ]
    }


def result_block(result: ToolResult) -> dict[str, Any]:
    """The block of a stored result, as `output_block` made it. A text that replaces a result ("This tool was
    not run.") becomes a valid block."""
    named = {"tool_use_id": result.call_id, "toolset_name": result.name}
    made = _made(result.parts)
    if made is None:
        return tool_result(result.call_id, result.parts, is_error=result.flag != "ok") | named
    return made | named


def _made(parts: Sequence[Part]) -> dict[str, Any] | None:
    text = parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else ""
    if not text.startswith('{"type":"tool_result"'):
        return None
    try:
        made = rawjson.loads(text.encode("utf-8", "replace"))
    except rawjson.RawJSONError:
        return None
    return made if isinstance(made, dict) else None


# ---------------------------------------------------------------------------- results moved one by one


def failed_calls(entry: bytes) -> frozenset[str]:
    """The ids of the calls that the entry marks as failed; see `SplitsResults`."""
    if b'"is_error"' not in entry:
        return frozenset()
    message = rawjson.view(entry)
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    ids = (block.get("tool_use_id") for block in blocks if block.get("is_error") is True)
    return frozenset(id for id in ids if isinstance(id, str))


def split_results(entry: bytes) -> list[bytes]:
    """One entry for each result, and one for each run of other blocks between them; see `SplitsResults`."""
    content = rawjson.members(entry).get("content", b"")
    blocks = rawjson.items(content) if content.startswith(b"[") else []
    runs = [(is_result, list(run)) for is_result, run in groupby(blocks, _is_result)]
    pieces = [piece for is_result, run in runs for piece in ([[one] for one in run] if is_result else [run])]
    if len(pieces) < 2:
        return [entry]
    empty = with_blocks(entry, ())  # keeps what is spliced into small
    return [with_blocks(empty, piece) for piece in pieces]


def join_results(results: Sequence[bytes]) -> list[bytes]:
    """One message with the results of these messages; see `SplitsResults`."""
    if len(results) < 2:
        return list(results)
    blocks = [block for entry in results for block in rawjson.items(rawjson.members(entry)["content"])]
    return [with_blocks(results[0], blocks)]


def _is_result(block: bytes) -> bool:
    return block.startswith(b"{") and rawjson.members(block).get("type") == b'"tool_result"'
