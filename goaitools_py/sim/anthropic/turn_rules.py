"""The order rules of Messages histories: calls and results in pairs, hosted calls finished.

Owns: the rules between blocks and turns. Must never know: the shape of a single block, which is checked
before, or the settings of a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..openai.common_rules import Refusal
from .blocks import is_answer, is_hosted_call

__all__ = ["begins_thinking", "hosted_calls", "is_paused", "is_summary", "pairing", "repeated_ids", "texts"]


def _listed(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def texts(content: Any) -> list[str]:
    """The texts in a message's content, in order."""
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    texts = [b.get("text") for b in blocks if isinstance(b, dict) and b.get("type") == "text"]
    return [text for text in texts if isinstance(text, str)]


def is_summary(message: Mapping[str, Any]) -> bool:
    """True if the message begins with a compaction of the provider."""
    blocks = _listed(message)
    return bool(blocks) and blocks[0]["type"] == "compaction"


def is_paused(message: Mapping[str, Any]) -> bool:
    """True if the message is a reply that paused while the provider's own tools run."""
    blocks = _listed(message)
    return bool(blocks) and (is_hosted_call(blocks[-1]) or is_answer(blocks[-1]))


@dataclass(frozen=True, slots=True)
class _At:
    """A block and its position."""

    message: int
    block: int
    value: Mapping[str, Any]

    @property
    def path(self) -> str:
        return f"messages.{self.message}.content.{self.block}"

    @property
    def kind(self) -> str:
        return str(self.value["type"])


def _turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[list[_At]]:
    """The blocks of each turn. Consecutive messages of one role are one turn."""
    role, turn = None, list[_At]()
    for index, message in enumerate(messages):
        if message["role"] != role:
            if role is not None:
                yield turn
            role, turn = message["role"], []
        turn += [_At(index, at, block) for at, block in enumerate(_listed(message))]
    yield turn


def pairing(messages: Sequence[Mapping[str, Any]]) -> Iterator[Refusal]:
    """Every tool use has one result at the start of the next turn, and there are no other results."""
    waiting: list[_At] = []
    for turn in _turns(messages):
        yield from _results(turn, waiting)
        waiting = [at for at in turn if at.kind == "tool_use"]
    if waiting:
        yield _unanswered(waiting)


def begins_thinking(messages: Sequence[Mapping[str, Any]]) -> Iterator[Refusal]:
    """With a thinking budget, an answer that continues after tool results begins with thinking.

    The text is publicly reported (continuedev/continue#4470). Anthropic's documentation says that now the
    request is answered without thinking; here it is refused, as servers behind other clouds do it.
    """
    turns = list(_turns(messages))
    if not any(at.kind == "tool_result" for at in turns[-1]):
        return
    first: _At | None = None
    for turn in reversed(turns[:-1]):
        role = messages[turn[0].message]["role"] if turn else ""
        if role == "assistant":
            first = turn[0]
        elif any(at.kind != "tool_result" for at in turn):
            break
    if first is None:
        return
    if first.kind not in ("thinking", "redacted_thinking"):
        yield Refusal(
            f"{first.path}.type: Expected `thinking` or `redacted_thinking`, but found `{first.kind}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding "
            "the lastmost set of `tool_use` and `tool_result` blocks). To avoid this requirement, disable "
            "`thinking`."
        )


def repeated_ids(messages: Sequence[Mapping[str, Any]], *, everywhere: bool) -> Iterator[Refusal]:
    """The id of a tool use is unique in the whole history, or in one turn."""
    seen: set[str] = set()
    for turn in _turns(messages):
        seen = seen if everywhere else set()
        for at in turn:
            if at.kind in ("tool_use", "server_tool_use"):
                if at.value["id"] in seen:
                    yield Refusal(f"{at.path}: `tool_use` ids must be unique")
                seen.add(at.value["id"])


def _results(turn: Sequence[_At], waiting: Sequence[_At]) -> Iterator[Refusal]:
    left = {at.value["id"]: at for at in waiting}
    answered: set[str] = set()
    is_leading = True
    for at in turn:
        if at.kind != "tool_result":
            is_leading = False
            continue
        identifier = at.value["tool_use_id"]
        if identifier in answered:
            yield Refusal(
                f"{at.path}: each tool_use must have a single result. Found multiple `tool_result` blocks "
                f"with id: {identifier}"
            )
        elif identifier not in left:
            yield Refusal(
                f"{at.path}: unexpected `tool_use_id` found in `tool_result` blocks: {identifier}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        elif is_leading:
            yield from _other_toolset(at, left[identifier])
            del left[identifier]
            answered.add(identifier)
    if left:
        yield _unanswered(list(left.values()))


def _other_toolset(result: _At, call: _At) -> Iterator[Refusal]:
    """A result names the toolset of its call: "`toolset_name` is required on a member result (the API rejects
    a mismatch)" (anthropic 2.13, lib/tools/_toolsets/_runnable.py). The text is the simulator's own."""
    if (result.value.get("toolset_name") or None) != (call.value.get("toolset_name") or None):
        yield Refusal(
            f"{result.path}.tool_result.toolset_name: must be that of the `tool_use` block {call.value['id']}"
        )


def _unanswered(calls: Sequence[_At]) -> Refusal:
    return Refusal(
        f"messages.{calls[-1].message}: `tool_use` ids were found without `tool_result` blocks immediately "
        f"after: {', '.join(str(at.value['id']) for at in calls)}. Each `tool_use` block must have a "
        "corresponding `tool_result` block in the next message."
    )


def hosted_calls(messages: Sequence[Mapping[str, Any]]) -> Iterator[Refusal]:
    """A result of the provider's tools follows its call, and no earlier call is without a result."""
    waiting: dict[str, tuple[int, str]] = {}
    known: set[str] = set()
    for index, message in enumerate(messages):
        for at, block in enumerate(_listed(message)):
            if is_hosted_call(block):
                known.add(block["id"])
                waiting[block["id"]] = (index, str(block.get("name")))
            elif is_answer(block):
                identifier = str(block.get("tool_use_id"))
                waiting.pop(identifier, None)
                if identifier not in known:
                    yield Refusal(
                        f"messages.{index}.content.{at}: unexpected `tool_use_id` found in `{block['type']}` "
                        f"blocks: {identifier}. Each `{block['type']}` block must have a corresponding "
                        "`server_tool_use` block before it."
                    )
    turn_start = _last_turn(messages)
    for identifier, (index, name) in waiting.items():
        if index < turn_start:
            yield Refusal(
                f"messages.{index}: `{name}` tool use with id {identifier} was found without a corresponding "
                f"`{name}_tool_result` block"
            )


def _last_turn(messages: Sequence[Mapping[str, Any]]) -> int:
    """The index after which there are only messages of the assistant and results of its open tool loop."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        blocks = _listed(message)
        answers = bool(blocks) and all(block["type"] == "tool_result" for block in blocks)
        if message["role"] == "user" and not answers:
            return index + 1
    return 0
