"""The output of a response: its items, and the events of a stream for them.

Owns: the shapes of items and of their events. Must never know: the request's rules, or the response around
the items. Shapes and order come from recorded streams of api.openai.com.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..model.prompt import Call, sealed
from .common_rules import WORDS, pieces
from .responses_reasoning import announced, written_id

__all__ = ["Item", "OutputItems", "item_events"]

Item = dict[str, Any]

_OBFUSCATED = 16
_FILLER = "simulated filler"
_CUSTOM = "custom_tool_call"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputItems:
    """The content of a response, ready to be written.

    Attributes:
        key: The name of the reply: 32 hex digits, from which the ids of its items are made.
        thinking: None for a reply without reasoning.
        encrypted: The encrypted content of the reasoning, None to leave it out.
        custom: The tools that are called with custom calls.
        ended: False for a reply that broke off; its last item is incomplete.
        summary: The provider's compaction of the conversation; None without one. Its item comes last, as
            recorded.
        asked: The items of the request.
    """

    key: str
    text: str = field(default="", repr=False)
    refused: str = field(default="", repr=False)
    calls: tuple[Call, ...] = ()
    thinking: str | None = field(default=None, repr=False)
    summarised: bool = False
    encrypted: str | None = field(default=None, repr=False)
    custom: Collection[str] = ()
    ended: bool = True
    summary: str | None = field(default=None, repr=False)
    asked: Sequence[Mapping[str, Any]] = field(default=(), repr=False)

    def items(self) -> list[Item]:
        """The output items in order: the reasoning, the message, the calls."""
        items = [] if self.thinking is None else [self._reasoning(self.thinking)]
        # A reply that broke off while thinking has no other item.
        if self.text or self.refused or not (self.calls or (items and not self.ended)):
            items.append(self._message(len(items)))
        items += [self._call(call, place) for place, call in enumerate(self.calls, start=len(items))]
        if not self.ended and "status" in items[-1]:
            items[-1]["status"] = "incomplete"
        if self.summary is not None:
            content = sealed(self.summary, [*self.asked, *items])
            named = written_id("cmp", reply=self.key, place=len(items), led=False)
            items.append({"id": named, "type": "compaction", "encrypted_content": content})
        return items

    def _id(self, kind: str, place: int) -> str:
        return written_id(kind, reply=self.key, place=place, led=self.thinking is not None)

    def _reasoning(self, thinking: str) -> Item:
        item: Item = {"id": self._id("rs", 0), "type": "reasoning", "content": []}
        if self.encrypted is not None:
            item["encrypted_content"] = self.encrypted
        summary = [{"type": "summary_text", "text": thinking}] if self.summarised and thinking else []
        return {**item, "summary": summary}

    def _message(self, place: int) -> Item:
        content: list[Item] = []
        if self.text or not self.refused:
            content.append({"type": "output_text", "annotations": [], "logprobs": [], "text": self.text})
        if self.refused:
            content.append({"type": "refusal", "refusal": self.refused})
        return {
            "id": self._id("msg", place),
            "type": "message",
            "status": "completed",
            "content": content,
            "phase": "commentary" if self.calls else "final_answer",
            "role": "assistant",
        }

    def _call(self, call: Call, place: int) -> Item:
        custom = call.name in self.custom
        item: Item = {
            "id": self._id("ctc" if custom else "fc", place),
            "type": _CUSTOM if custom else "function_call",
            "status": "completed",
            "input" if custom else "arguments": call.arguments,
        }
        if call.id:
            item["call_id"] = call.id
        return {**item, "name": call.name}


# ------------------------------------------------------------------------------------------- events


def item_events(item: Item, place: int, *, obfuscated: bool) -> Iterator[Item]:
    """The events of one item, from its ``.added`` to its ``.done``, without sequence numbers."""
    yield {"type": "response.output_item.added", "item": _begun(item), "output_index": place}
    where = {"item_id": item["id"], "output_index": place}
    for event in _inside(item):
        if obfuscated and "delta" in event:
            event["obfuscation"] = _FILLER[: -len(event["delta"]) % _OBFUSCATED]
        yield {**event, **where}
    yield {"type": "response.output_item.done", "item": item, "output_index": place}


def _begun(item: Item) -> Item:
    """The item in its ``.added`` event: empty; for reasoning, with encrypted content that cannot be used."""
    if item["type"] == "reasoning":
        begun = {**item, "summary": []}
        if "encrypted_content" in item:
            begun["encrypted_content"] = announced(item["encrypted_content"])
        return begun
    if item["type"] == "compaction":
        return {**item, "encrypted_content": announced(item["encrypted_content"])}
    if item["type"] == "message":
        return {**item, "status": "in_progress", "content": []}
    return {**item, "status": "in_progress", "input" if item["type"] == _CUSTOM else "arguments": ""}


def _inside(item: Item) -> Iterator[Item]:
    if item["type"] == "reasoning":
        for index, part in enumerate(item["summary"]):
            for event in _summary_events(part):
                yield {**event, "summary_index": index}
    elif item["type"] == "message":
        for index, part in enumerate(item["content"]):
            for event in _part_events(part):
                yield {**event, "content_index": index}
    elif item["type"] != "compaction":
        custom = item["type"] == _CUSTOM
        name, key = (
            ("custom_tool_call_input", "input") if custom else ("function_call_arguments", "arguments")
        )
        for piece in pieces(item[key]):
            yield {"type": f"response.{name}.delta", "delta": piece}
        yield {"type": f"response.{name}.done", key: item[key]}


def _summary_events(part: Item) -> Iterator[Item]:
    yield {"type": "response.reasoning_summary_part.added", "part": {**part, "text": ""}}
    for word in WORDS.findall(part["text"]):
        yield {"type": "response.reasoning_summary_text.delta", "delta": word}
    yield {"type": "response.reasoning_summary_text.done", "text": part["text"]}
    yield {"type": "response.reasoning_summary_part.done", "part": part}


def _part_events(part: Item) -> Iterator[Item]:
    kind, key = ("output_text", "text") if part["type"] == "output_text" else ("refusal", "refusal")
    extra: Item = {"logprobs": []} if kind == "output_text" else {}
    yield {"type": "response.content_part.added", "part": {**part, key: ""}}
    for word in WORDS.findall(part[key]):
        yield {"type": f"response.{kind}.delta", "delta": word, **extra}
    yield {"type": f"response.{kind}.done", key: part[key], **extra}
    yield {"type": "response.content_part.done", "part": part}
