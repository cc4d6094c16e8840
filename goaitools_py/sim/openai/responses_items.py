"""Refusals of OpenAI's Responses endpoint for its input: shapes of items, and items that need each other.

Owns: the rules for one item and for sequences. Must never know: a request's other parameters, except whether
it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .common_rules import Refusal, missing, named, too_long, unsupported, wrong_type
from .responses_reasoning import as_items, genuine, known_id
from .responses_tools import MAX_NAME, tool_list

__all__ = ["input_faults"]

_ROLES = ("assistant", "system", "developer", "user")
_INPUT_PARTS = ("input_text", "input_image", "input_file", "input_audio")
_OUTPUT_PARTS = ("output_text", "refusal")
_PART_FIELDS = {
    "input_text": ("text",),
    "output_text": ("text",),
    "refusal": ("refusal",),
    "summary_text": ("text",),
    "reasoning_text": ("text",),
    "input_image": ("image_url", "file_id"),
    "input_file": ("file_data", "file_id", "file_url"),
    "input_audio": ("input_audio",),
}
_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
}
_OUTPUTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}
_MADE_BY_MODEL = (
    "message",
    "reasoning",
    "function_call",
    "custom_tool_call",
    "tool_search_call",
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "computer_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "program",
    "compaction",
)
_BY_OTHERS = (
    "function_call_output",
    "custom_tool_call_output",
    "tool_search_output",
    "computer_call_output",
    "local_shell_call_output",
    "shell_call_output",
    "apply_patch_call_output",
    "mcp_approval_response",
    "program_output",
    "additional_tools",
    "configuration_update",
    "compaction_trigger",
    "item_reference",
)
_ITEMS = (*_MADE_BY_MODEL, *_BY_OTHERS)
_ID_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
_MAX_ID = 64


def input_faults(body: Mapping[str, Any]) -> Iterator[Refusal]:
    """The problems of `input`: first of each item, then of their sequence."""
    given = body.get("input")
    if given is None or given == []:
        if not any(body.get(key) for key in ("previous_response_id", "prompt", "conversation")):
            yield Refusal(
                "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be "
                "provided.",
                "input",
                "missing_required_parameter",
            )
    elif isinstance(given, list):
        for index, item in enumerate(given):
            if isinstance(item, dict):
                yield from _item(f"input[{index}]", item)
            else:
                yield wrong_type(f"input[{index}]", "an input item", item)
        if all(isinstance(item, dict) and item.get("type", "message") in _ITEMS for item in given):
            items = as_items(body)
            yield from _identities(items)
            yield from _pairing(items)
            yield from _reasoning(items, stored=body.get("store") is not False)
    elif not isinstance(given, str):
        yield wrong_type("input", "one of a string or array of input items", given)


def _item(path: str, item: Mapping[str, Any]) -> Iterator[Refusal]:
    kind = item.get("type", "message")
    if kind not in _ITEMS:
        yield unsupported(path, kind, _ITEMS)
        return
    prefix = _ID_PREFIXES.get(kind)
    identifier = item.get("id")
    if identifier is not None:
        if not isinstance(identifier, str):
            yield wrong_type(f"{path}.id", "a string", identifier)
        elif len(identifier) > _MAX_ID:
            yield too_long(f"{path}.id", identifier, _MAX_ID)
        elif prefix is not None and not identifier.startswith(prefix) and not _foreign(item):
            yield Refusal(
                f"Invalid '{path}.id': '{identifier}'. Expected an ID that begins with '{prefix}'.",
                f"{path}.id",
                "invalid_value",
            )
    if kind == "message":
        yield from _message(path, item)
    elif kind in _CALLS:
        yield from _call(path, item, _CALLS[kind])
    elif kind in _OUTPUTS:
        yield from _output(path, item)
    elif kind == "reasoning":
        yield from _reasoning_item(path, item)
    elif kind == "compaction" and not isinstance(item.get("encrypted_content"), str):
        yield missing(f"{path}.encrypted_content")
    elif kind == "additional_tools":
        yield from tool_list(f"{path}.tools", item.get("tools") or [])


def _foreign(item: Mapping[str, Any]) -> bool:
    """DeepSeek's reasoning has other ids, and no encrypted content."""
    return item.get("type") == "reasoning" and not item.get("encrypted_content")


def _message(path: str, message: Mapping[str, Any]) -> Iterator[Refusal]:
    role, content = message.get("role"), message.get("content")
    if role is None:
        yield missing(f"{path}.role")
    elif role not in _ROLES:
        yield unsupported(path, role, _ROLES)
    elif content is None:
        yield missing(f"{path}.content")
    elif isinstance(content, list):
        allowed = _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS
        for index, part in enumerate(content):
            yield from _part(f"{path}.content[{index}]", part, allowed)
    elif not isinstance(content, str):
        yield wrong_type(f"{path}.content", "one of an array of objects or string", content)


def _part(path: str, part: Any, allowed: Sequence[str]) -> Iterator[Refusal]:
    if not isinstance(part, dict):
        yield wrong_type(path, "an object", part)
    elif "type" not in part:
        yield missing(f"{path}.type")
    elif part["type"] not in allowed:
        yield unsupported(path, part["type"], allowed)
    else:
        fields = _PART_FIELDS[part["type"]]
        if all(part.get(field) is None for field in fields):
            yield missing(f"{path}.{fields[0]}")
        elif fields in (("text",), ("refusal",)) and not isinstance(part[fields[0]], str):
            yield wrong_type(f"{path}.{fields[0]}", "a string", part[fields[0]])


def _call(path: str, call: Mapping[str, Any], text: str) -> Iterator[Refusal]:
    yield from _call_id(path, call)
    yield from named(f"{path}.name", call.get("name"), at_most=MAX_NAME)
    if call.get(text) is None:
        yield missing(f"{path}.{text}")
    elif not isinstance(call[text], str):
        yield wrong_type(f"{path}.{text}", "a string", call[text])


def _output(path: str, output: Mapping[str, Any]) -> Iterator[Refusal]:
    yield from _call_id(path, output)
    content = output.get("output")
    if content is None:
        yield missing(f"{path}.output")
    elif isinstance(content, list):
        for index, part in enumerate(content):
            yield from _part(f"{path}.output[{index}]", part, _INPUT_PARTS)
    elif not isinstance(content, str):
        yield wrong_type(f"{path}.output", "one of an array of objects or string", content)


def _call_id(path: str, item: Mapping[str, Any]) -> Iterator[Refusal]:
    identifier = item.get("call_id")
    if identifier is None:
        yield missing(f"{path}.call_id")
    elif not isinstance(identifier, str):
        yield wrong_type(f"{path}.call_id", "a string", identifier)
    elif not identifier:
        yield Refusal(
            f"Invalid '{path}.call_id': empty string. Expected a string with minimum length 1, but got an "
            "empty string instead.",
            f"{path}.call_id",
            "empty_string",
        )
    elif len(identifier) > _MAX_ID:
        yield too_long(f"{path}.call_id", identifier, _MAX_ID)


def _reasoning_item(path: str, item: Mapping[str, Any]) -> Iterator[Refusal]:
    summary, content = item.get("summary"), item.get("content")
    if summary is None:
        yield missing(f"{path}.summary")
    for key, parts, kind in (("summary", summary, "summary_text"), ("content", content, "reasoning_text")):
        if parts is not None and not isinstance(parts, list):
            yield wrong_type(f"{path}.{key}", "an array of objects", parts)
        for index, part in enumerate(parts if isinstance(parts, list) else ()):
            yield from _part(f"{path}.{key}[{index}]", part, (kind,))
    if not genuine(item.get("encrypted_content")):
        content = item["encrypted_content"]
        yield Refusal(
            f"The encrypted content {content[:4]}...{content[-4:]} could not be verified. Reason: Encrypted "
            "content could not be decrypted or parsed.",
            None,
            "invalid_encrypted_content",
        )


# ------------------------------------------------------------------------------ items that go together


def _identities(items: Sequence[Mapping[str, Any]]) -> Iterator[Refusal]:
    seen: set[str] = set()
    for item in items:
        identifier = item.get("id")
        if item["type"] == "item_reference":
            yield Refusal(f"Item with id '{identifier}' not found.", "input")
        elif isinstance(identifier, str):
            if identifier in seen:
                yield Refusal(
                    f"Duplicate item found with id {identifier}. Remove duplicate items from your input and "
                    "try again.",
                    "input",
                )
            seen.add(identifier)
    for item in items[:-1]:
        if item["type"] == "compaction_trigger":
            yield Refusal("A 'compaction_trigger' item must be the final input item.", "input")


def _pairing(items: Sequence[Mapping[str, Any]]) -> Iterator[Refusal]:
    """Every call has one result, anywhere after it, and there are no other results."""
    waiting: dict[tuple[str, str], None] = {}
    answered: set[tuple[str, str]] = set()
    for item in items:
        kind, identifier = item["type"], str(item.get("call_id"))
        if kind in _CALLS:
            if (kind, identifier) in waiting or (kind, identifier) in answered:
                yield Refusal(f"Duplicate '{kind}' item found with call_id {identifier}.", "input")
            else:
                waiting[kind, identifier] = None
        elif kind in _OUTPUTS:
            call = (_OUTPUTS[kind], identifier)
            if call in waiting:
                del waiting[call]
                answered.add(call)
            elif call in answered:
                yield Refusal(f"Duplicate '{kind}' item found with call_id {identifier}.", "input")
            else:
                words = _OUTPUTS[kind].replace("_", " ")
                yield Refusal(f"No tool call found for {words} output with call_id {identifier}.", "input")
    for kind, identifier in waiting:
        yield Refusal(f"No tool output found for {kind.replace('_', ' ')} {identifier}.", "input")


def _reasoning(items: Sequence[Mapping[str, Any]], *, stored: bool) -> Iterator[Refusal]:
    """Reasoning and the item after it are sent together, or neither is sent."""
    sent: set[str] = set()
    for item, following in zip(items, (*items[1:], None), strict=True):
        identifier = item.get("id")
        if item["type"] == "reasoning":
            sent.add(str(identifier))
            if not (stored or item.get("encrypted_content")):
                yield Refusal(
                    f"Item with id '{identifier}' not found. Items are not persisted when `store` is set to "
                    "false. Try again with `store` set to true, or remove this item from your input.",
                    "input",
                )
            elif not _continues(item, following, stored=stored):
                yield Refusal(
                    f"Item '{identifier}' of type 'reasoning' was provided without its required following "
                    "item.",
                    "input",
                )
        known = known_id(identifier)
        leader = known.leader if known else None
        if leader is not None and leader not in sent:
            yield Refusal(
                f"Item '{identifier}' of type '{item['type']}' was provided without its required "
                f"'reasoning' item: '{leader}'.",
                "input",
            )


def _continues(item: Mapping[str, Any], following: Mapping[str, Any] | None, *, stored: bool) -> bool:
    """True if the item after a reasoning item belongs to it."""
    if following is None or following["type"] not in _MADE_BY_MODEL:
        return False
    if following["type"] == "message" and following.get("role") != "assistant":
        return False
    if following.get("id") is None:
        # Recorded: accepted with store=false; refused without it, where the encrypted content was OpenAI's.
        return not (stored and item.get("encrypted_content"))
    ours, theirs = known_id(item.get("id")), known_id(following["id"])
    return ours is None or (theirs is not None and theirs.reply == ours.reply)
