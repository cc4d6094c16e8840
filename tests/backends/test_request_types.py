"""What the SDKs' types of answers have and their types of requests do not: each such key is known here.

A newer SDK that adds one fails these tests: then the key is cut out by a reply reader, or named as one that
is left as it came.
"""

from __future__ import annotations

import collections.abc
import json
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from anthropic.types import ContentBlock, ContentBlockParam
from anthropic.types.beta import BetaContentBlock, BetaContentBlockParam
from openai.types.chat.chat_completion_assistant_message_param import ChatCompletionAssistantMessageParam
from openai.types.chat.chat_completion_message import ChatCompletionMessage
from openai.types.responses.response_input_item_param import ResponseInputItemParam
from openai.types.responses.response_output_item import ResponseOutputItem

from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect

# ------------------------------------------------------------------------------------ reading the types


def _fields(kind: Any) -> dict[str, Any]:
    if hasattr(kind, "model_fields"):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
    return typing.get_type_hints(kind, include_extras=True)


def _bare(kind: Any) -> Any:
    while typing.get_origin(kind) in (typing.Annotated, typing.Required, typing.NotRequired):
        kind = typing.get_args(kind)[0]
    return kind


def _members(kind: Any) -> list[Any]:
    """The members of a union; the type itself if it is none."""
    kind = _bare(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [one for part in typing.get_args(kind) for one in _members(part)]
    return [kind]


def _tags(kind: Any) -> set[str]:
    """What a type of objects may have for its ``type``; empty for one without."""
    named = _members(_fields(kind).get("type", Any))
    return {tag for one in named if typing.get_origin(one) is typing.Literal for tag in typing.get_args(one)}


def _objects(kinds: Iterable[Any]) -> Iterator[Any]:
    """The types of objects among these, or in lists of these."""
    for kind in kinds:
        origin = typing.get_origin(kind)
        if isinstance(origin, type) and issubclass(origin, collections.abc.Iterable) and origin is not dict:
            yield from _objects(one for part in typing.get_args(kind) for one in _members(part))
        elif isinstance(kind, type) and kind.__module__.startswith(("openai.", "anthropic.")):
            yield kind


def _differences(path: str, answer: Any, requests: list[Any], seen: set[Any]) -> Iterator[str]:
    """Paths of keys that an answer may have and no request, or only not null ("=null")."""
    taken: dict[str, list[Any]] = {}
    for kind in requests:
        for name, annotation in _fields(kind).items():
            taken.setdefault(name, []).extend(_members(annotation))
    for name, annotation in _fields(answer).items():
        given = _members(annotation)
        if name not in taken:
            yield f"{path}.{name}"
            continue
        if type(None) in given and type(None) not in taken[name]:
            yield f"{path}.{name}=null"
        for inner in _objects(given):
            tags = _tags(inner)
            fitting = [
                one for one in _objects(taken[name]) if not tags or not _tags(one) or tags & _tags(one)
            ]
            if fitting and (inner, path) not in seen:
                seen.add((inner, path))
                here = f"{path}.{name}" + (f"<{min(tags)}>" if tags else "")
                yield from _differences(here, inner, fitting, seen)


def _all_differences(answers: Any, requests: Any) -> set[str]:
    found: set[str] = set()
    takes = list(_objects(_members(requests)))
    for answer in _objects(_members(answers)):
        (kind,) = _tags(answer)
        fitting = [one for one in takes if kind in _tags(one)]
        found |= set(_differences(kind, answer, fitting, set())) if fitting else {kind}
    return found


# -------------------------------------------------------------------------------------- what is known

_AS_IT_CAME = (
    "tool_search_output.tools<",  # the caller's own tools, as the caller wrote them
    "additional_tools.tools<",
    "function_call_output.output<",  # a cache breakpoint that the caller has set
    "custom_tool_call_output.output<",
)
"""Beginnings of paths of keys that are kept although the request's type has them otherwise, except those
of `_ALSO_CUT`."""

_ALSO_CUT = frozenset(
    {
        "function_call_output.output<input_file>.detail=null",
        *(
            f"custom_tool_call_output.output<{part}>.prompt_cache_breakpoint=null"
            for part in ("input_file", "input_image", "input_text")
        ),
        *(
            f"custom_tool_call_output.output<input_file>.{key}=null"
            for key in ("detail", "file_data", "file_url", "filename")
        ),
    }
)

_CHAT = {"message.annotations", "message.tool_calls=null", "message.function_call=null"} | {
    f"message.audio.{key}" for key in ("data", "expires_at", "transcript")
}


_NEEDED: dict[str, dict[str, Any]] = {
    "compaction": {"encrypted_content": "AAAA"},
    "function_call_output": {"call_id": "c1", "output": "7"},
    "custom_tool_call_output": {"call_id": "c2", "output": "7"},
    "apply_patch_call_output": {"call_id": "c", "status": "completed"},
    "computer_call_output": {"call_id": "c", "output": {}},
    "shell_call_output": {"call_id": "c", "output": []},
    "local_shell_call_output": {"call_id": "c", "output": ""},
}
"""What an item must have, or no request could hold it."""

_CALLS = [
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x"},
]


def _item(path: str) -> dict[str, Any]:
    """A smallest item with the key that a path names."""
    path, _, is_null = path.partition("=")
    kind, *steps, last = path.split(".")
    value: dict[str, Any] = {last: None if is_null else "made-up"}
    for step in reversed(steps):
        name, _, tag = step.partition("<")
        inner = {"type": tag.rstrip(">"), **value} if tag else value
        is_object = name in ("action", "error") or kind == "computer_call_output"
        value = {name: inner if is_object else [inner]}
    role = {"role": "assistant"} if kind == "message" else {}
    return {"type": kind, **role, **_NEEDED.get(kind, {}), "kept": 1, **value}


def _has(item: Any, key: str) -> bool:
    if isinstance(item, dict):
        return key in item or any(_has(value, key) for value in item.values())
    return isinstance(item, list) and any(_has(value, key) for value in item)


_SAID = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
}


def _responses_paths() -> list[str]:
    found = _all_differences(ResponseOutputItem, ResponseInputItemParam)
    return sorted(path for path in found if path in _ALSO_CUT or not path.startswith(_AS_IT_CAME))


def test_the_types_are_read() -> None:
    """The comparison finds what is known to differ; an SDK of another make would find nothing."""
    found = _all_differences(ResponseOutputItem, ResponseInputItemParam)

    assert {"shell_call_output.output.created_by", "compaction.created_by", "reasoning.status=null"} <= found
    assert found >= _ALSO_CUT


@pytest.mark.parametrize("path", _responses_paths())
def test_what_a_responses_request_does_not_take_is_cut_out(path: str) -> None:
    """Each key of an answer's item that no request may have, or not as null, is not stored."""
    item = _item(path)
    asked = [call for call in _CALLS if call["call_id"] == item.get("call_id")]
    output = [*asked, item, _SAID]
    body = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": output}

    *_, stored, _ = OpenAIResponsesDialect().reply(json.dumps(body).encode()).entries

    key = path.partition("=")[0].rpartition(".")[2]
    assert _has(item, key)
    assert not _has(json.loads(stored), key)
    assert json.loads(stored)["kept"] == 1


def test_what_a_chat_request_does_not_take_is_known() -> None:
    """The table of `chat_reply` says what becomes of each of these."""
    found = set(_differences("message", ChatCompletionMessage, [ChatCompletionAssistantMessageParam], set()))

    assert found <= _CHAT
    assert found >= {"message.annotations", "message.audio.data"}


_CITATION = {"cited_text": "a", "document_index": 0, "document_title": None, "file_id": None}


@pytest.mark.parametrize(
    ("answers", "requests"), [(ContentBlock, ContentBlockParam), (BetaContentBlock, BetaContentBlockParam)]
)
def test_what_an_anthropic_request_does_not_take_is_cut_out(answers: Any, requests: Any) -> None:
    """A caller that is null, and the file's id of a citation: nothing else of the SDK's types differs."""
    found = _all_differences(answers, requests)

    known = {path for path in found if path.endswith((".caller=null", ".file_id"))}
    assert found == known
    for path in known - {path for path in known if path.startswith("text.")}:
        block = {"type": path.partition(".")[0], "id": "t1", "name": "f", "input": {}, "caller": None}
        assert not _has(_anthropic([block, {"type": "text", "text": "x"}]), "caller")


@pytest.mark.parametrize("kind", ["char_location", "page_location", "content_block_location"])
def test_the_file_of_a_citation_is_not_sent_back(kind: str) -> None:
    """Answers name the file that they quote, requests may not: the rest of the citation stays."""
    block = {"type": "text", "text": "x", "citations": [{"type": kind, **_CITATION}]}

    stored = _anthropic([block])

    citation = dict(block["citations"][0])  # type: ignore[arg-type]
    del citation["file_id"]
    assert stored == [{"type": "text", "text": "x", "citations": [citation]}]


def _anthropic(blocks: list[Any]) -> Any:
    body = {"type": "message", "role": "assistant", "content": blocks, "stop_reason": "end_turn", "id": "m"}
    (entry,) = AnthropicDialect().reply(json.dumps(body).encode()).entries
    return json.loads(entry)["content"]
