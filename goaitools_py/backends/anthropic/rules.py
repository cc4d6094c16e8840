"""The sequence rules of Anthropic's Messages API.

Owns: which histories of messages a provider accepts. Must never know: where a history comes from.

Shapes: MessageParam in anthropic's types. The rest are rules of the server alone (all 400): "`tool_use` ids
were found without `tool_result` blocks immediately after", "unexpected `tool_use_id` found in `tool_result`
blocks", "text content blocks must be non-empty" and "must contain non-whitespace text", "all messages must
have non-empty content except for the optional final assistant message", "the final block in an assistant
message cannot be `thinking`", "content cannot be empty if `is_error` is true", "all content must be type
`text` if `is_error` is true"; and of a toolset's member "`toolset_name` is required on a member result (the
API rejects a mismatch)" (anthropic 2.13, lib/tools/_toolsets/_runnable.py). Consecutive messages of one role
"will be combined into a single turn": recorded 200s have a user message directly after results, and results
after a second assistant message.
A hosted tool's call may have its result in the next answer: after a pause that answer follows directly, and
beside calls of the caller's own tools it follows their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..protocols import HistoryFrame
from ..wire.tolerance import is_name, listed, parsed

__all__ = ["entry_problems", "problems"]

_ROLES = ("user", "assistant", "system")
_THINKING = ("thinking", "redacted_thinking")
_HOSTED = ("server_tool_use", "mcp_tool_use")


def problems(messages: Iterable[Mapping[str, Any] | bytes], frame: HistoryFrame) -> Iterator[str]:
    """The problems for which a server of this provider API refuses a history."""
    waiting = set(frame.open_calls)
    families: dict[str, object] = {}
    hosted: set[str] = set()
    caller = "an earlier message"
    first_use: dict[str, str] = {}
    for index, entry in enumerate(messages):
        here = f"messages[{index}]"
        message = parsed(entry)
        role = message.get("role") if isinstance(message, Mapping) else None
        for problem in entry_problems(message):
            yield f"{here}: {problem}"
        if not isinstance(message, Mapping) or role not in _ROLES:
            continue
        blocks = _blocks(message.get("content"))
        if role == "user":
            for problem in (*_answers(blocks, waiting, caller), *_mismatches(blocks, families)):
                yield f"{here}: {problem}"
        elif waiting and role == "system":
            yield f"{here}: stands before the results of {caller}'s calls {listed(waiting)}"
        if role != "assistant":
            if hosted and not waiting:
                yield f"{here}: stands before the results of {caller}'s hosted calls {listed(hosted)}"
            waiting, hosted = set(), set()
            continue
        caller = here
        made = _ids(blocks, "tool_use")
        for call_id in made:
            if call_id in waiting:
                yield f"{here}: two calls have the id {call_id!r}"
            elif call_id in first_use and frame.unique_ids:
                yield f"{here}: call id reused: {call_id!r} is a call of {first_use[call_id]} too"
            waiting.add(call_id)
        first_use |= dict.fromkeys(made, here)
        families |= {
            block["id"]: block.get("toolset_name")
            for block in blocks
            if block.get("type") == "tool_use" and is_name(block.get("id"))
        }
        hosted |= set(_ids(blocks, *_HOSTED))
        hosted -= {block.get("tool_use_id") for block in blocks if is_name(block.get("tool_use_id"))}
    for ids, kind in ((waiting, "calls"), (hosted, "hosted calls")):
        if ids and not frame.open_end:
            yield f"the history ends before the results of {caller}'s {kind} {listed(ids)}"


def _answers(blocks: Sequence[Mapping[str, Any]], waiting: set[str], caller: str) -> Iterator[str]:
    """Each call has one result, before any other content."""
    left = set(waiting)
    has_begun = False
    for block in blocks:
        if block.get("type") != "tool_result":
            has_begun = True
            continue
        call_id = block.get("tool_use_id")
        if not is_name(call_id):
            pass  # the check of the shape reports it
        elif call_id in left:
            left.discard(call_id)
            if has_begun:
                yield f"the result of call {call_id!r} must stand before all else"
        elif call_id in waiting:
            yield f"answers call {call_id!r} again"
        else:
            yield f"answers call {call_id!r}, which the message directly before it did not make"
    if left:
        yield f"stands before the results of {caller}'s calls {listed(left)}"


def _mismatches(blocks: Sequence[Mapping[str, Any]], families: Mapping[str, object]) -> Iterator[str]:
    """Only the result of a toolset's member names a toolset: its own."""
    for block in blocks:
        call_id = block.get("tool_use_id")
        if block.get("type") == "tool_result" and isinstance(call_id, str) and call_id in families:
            family = families[call_id]
            if (block.get("toolset_name") or None) != (family or None):
                yield f"the result of call {call_id!r} needs the call's toolset_name"


def entry_problems(message: object) -> Iterator[str]:
    """The problems for which a server of this provider API refuses a message at any position."""
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping):
        yield "must be a JSON object"
    elif role not in _ROLES:
        yield f"role must be one of {', '.join(_ROLES)}"
    else:
        yield from _shape(message, role)


def _shape(message: Mapping[str, Any], role: str) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        if not content.strip():
            yield "content must have text that is not white space"
        return
    if not isinstance(content, (list, tuple)):
        yield "content must be a string or an array of blocks"
        return
    if not content:
        yield "content must not be an empty array"
    if not all(isinstance(block, Mapping) and is_name(block.get("type")) for block in content):
        yield "each block of content must be an object with a type"
    blocks = _blocks(content)
    yield from _text_shape(blocks)
    if blocks and all(_is_blank(block) for block in blocks):
        yield "content must have text that is not white space"
    for position, block in enumerate(blocks):
        for problem in _block_shape(block, role):
            yield f"content[{position}]: {problem}"
    if role == "assistant" and blocks and blocks[-1].get("type") in _THINKING:
        yield "the last block of an assistant message cannot be thinking"


def _text_shape(blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    if not all(isinstance(text, str) for text in texts):
        yield "the text of a text block must be a string"
    elif "" in texts:
        yield "a text block must not be empty"


def _is_blank(block: Mapping[str, Any]) -> bool:
    """Text of white space only. Beside another block it is taken (recorded 200)."""
    text = block.get("text")
    return block.get("type") == "text" and isinstance(text, str) and text != "" and not text.strip()


def _block_shape(block: Mapping[str, Any], role: str) -> Iterator[str]:
    kind = block.get("type")
    if kind == "tool_use":
        if role != "assistant":
            yield "only an assistant message holds a tool_use"
        if not is_name(block.get("id")) or not is_name(block.get("name")):
            yield "a tool_use needs an id and a name"
        if not isinstance(block.get("input"), Mapping):
            yield "the input of a tool_use must be an object"
    elif kind == "tool_result":
        if role != "user":
            yield "only a user message holds a tool_result"
        if not is_name(block.get("tool_use_id")):
            yield "a tool_result needs a tool_use_id"
        content = block.get("content")
        if not isinstance(content, (str, list, tuple, type(None))):
            yield "the content of a tool_result must be a string or an array of blocks"
        blocks = _blocks(content)
        yield from _text_shape(blocks)
        if block.get("is_error") is True:
            if not content:
                yield "a tool_result with is_error must not be empty"
            if any(inner.get("type") != "text" for inner in blocks):
                yield "a tool_result with is_error holds text only"


def _blocks(content: object) -> list[Mapping[str, Any]]:
    found = content if isinstance(content, (list, tuple)) else ()
    return [block for block in found if isinstance(block, Mapping)]


def _ids(blocks: Iterable[Mapping[str, Any]], *kinds: str) -> list[str]:
    return [block["id"] for block in blocks if block.get("type") in kinds and is_name(block.get("id"))]
