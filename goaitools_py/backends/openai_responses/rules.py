"""The sequence rules of the Responses API.

Owns: which histories of input items a provider accepts. Must never know: where a history comes from.

Shapes: ResponseInputItemParam in openai's types/responses. The rest are rules of the server alone, known by
its refusals: "No tool output found for function call", "No tool call found for function call output", and
"Item of type 'reasoning' was provided without its required following item" (all 400, the first and the last
recorded). Items of one reply may stand in any order, so other items may stand between calls and results. But
an assistant's message without a type is not an item of a reply, and may not stand there (recorded 400). Where
a compatible server takes more than OpenAI does, the wider rule holds. Calls of provider tools that the client
runs are answered like functions, an approval request by its response. Calls that the server runs (a shell in
a container, a search for tools) pass, and so do items of unknown types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..protocols import HistoryFrame
from ..wire.tolerance import is_name, listed, parsed

__all__ = ["entry_problems", "problems"]

_ANSWERS = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "computer_call_output": "computer_call",
    "local_shell_call_output": "local_shell_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
    "tool_search_output": "tool_search_call",
    "mcp_approval_response": "mcp_approval_request",
}
"""The calls that each kind of output answers."""

_CALLS = frozenset(_ANSWERS.values())


def _is_servers(item: Mapping[str, Any]) -> bool:
    """True for a call that the server runs itself, and for its result."""
    if item.get("type") in ("tool_search_call", "tool_search_output"):
        return item.get("execution") != "client"
    environment = item.get("environment")
    kind = environment.get("type") if isinstance(environment, Mapping) else None
    return item.get("type") == "shell_call" and kind not in (None, "local")


def _call_id(item: Mapping[str, Any], kind: str | None) -> object:
    """The id of a call, or of the call that an output answers."""
    if kind == "mcp_approval_request":
        return item.get("id")
    if kind == "mcp_approval_response":
        return item.get("approval_request_id")
    found = item.get("call_id")
    return item.get("id") if kind == "local_shell_call_output" and not is_name(found) else found


def problems(messages: Iterable[Mapping[str, Any] | bytes], frame: HistoryFrame) -> Iterator[str]:
    """The problems for which a server of this provider API refuses a history."""
    waiting: dict[str, str | None] = dict.fromkeys(frame.open_calls)  # None: a function or a custom tool
    caller = "an earlier item"
    answered: set[str] = set()
    first_use: dict[str, str] = {}
    hosted: set[object] = set()
    lonely: str | None = None
    is_encrypted = False
    for index, entry in enumerate(messages):
        here = f"messages[{index}]"
        item = parsed(entry)
        kind = _kind(item) if isinstance(item, Mapping) else None
        is_callers = (
            isinstance(item, Mapping) and kind in _ROLES and (kind != "assistant" or "type" not in item)
        )
        # DeepSeek, which encrypts nothing, takes any assistant's message after reasoning.
        is_no_answer = is_callers and (kind != "assistant" or is_encrypted)
        if lonely is not None and (is_no_answer or kind in _ANSWERS):
            yield f"{lonely}: reasoning without the item that has to follow it"
        if kind != "reasoning":
            lonely = None
        # Items of the reply that made the calls may follow them; once results came, it is over.
        is_over = is_callers or (bool(answered) and kind not in _ANSWERS)
        if waiting and is_over:
            yield f"{here}: stands before the results of {caller}'s calls {listed(waiting)}"
            waiting = {}
        for problem in entry_problems(item):
            yield f"{here}: {problem}"
        if not isinstance(item, Mapping) or kind is None:
            continue
        call_id = _call_id(item, kind)
        if not isinstance(call_id, str) or not call_id:
            pass  # the check of the shape reports it
        elif _is_servers(item) or (kind in _ANSWERS and call_id in hosted):
            hosted.add(call_id)
        elif kind in _ANSWERS:
            if call_id in waiting:
                if waiting.pop(call_id) not in (_ANSWERS[kind], None):
                    yield f"{here}: a {kind} cannot answer call {call_id!r}"
                answered.add(call_id)
            elif call_id in answered:
                yield f"{here}: answers call {call_id!r} again"
            else:
                yield f"{here}: answers call {call_id!r}, which no item before it made"
        elif kind in _CALLS:
            if call_id in waiting:
                yield f"{here}: two calls have the id {call_id!r}"
            elif call_id in first_use and frame.unique_ids:
                yield f"{here}: call id reused: {call_id!r} is a call of {first_use[call_id]} too"
            caller = caller if waiting else here
            waiting[call_id] = kind
            first_use.setdefault(call_id, here)
        if kind not in _ANSWERS:
            answered = set()
        if kind == "reasoning":
            lonely, is_encrypted = here, bool(item.get("encrypted_content"))
    if lonely is not None:
        yield f"{lonely}: reasoning without the item that has to follow it"
    if waiting and not frame.open_end:
        yield f"the history ends before the results of {caller}'s calls {listed(waiting)}"


def entry_problems(item: object) -> Iterator[str]:
    """The problems for which a server of this provider API refuses an item at any position."""
    kind = _kind(item) if isinstance(item, Mapping) else None
    if not isinstance(item, Mapping) or kind is None:
        yield "must be a JSON object with a type or a role"
    else:
        yield from _SHAPES.get(kind, _no_shape)(item)


def _kind(item: Mapping[str, Any]) -> str | None:
    """The role of a message, the type of another item; None if both are missing."""
    kind = item.get("type")
    if kind not in (None, "message"):
        return kind if is_name(kind) else None
    role = item.get("role")
    return role if is_name(role) else None


def _message_shape(item: Mapping[str, Any]) -> Iterator[str]:
    if item.get("role") not in _ROLES:
        yield f"role must be one of {', '.join(_ROLES)}"
    yield from _content_shape(item, "content")


def _content_shape(item: Mapping[str, Any], key: str) -> Iterator[str]:
    content = item.get(key)
    if isinstance(content, str):
        return
    if not isinstance(content, (list, tuple)):
        yield f"{key} must be a string or an array of parts"
    elif not all(isinstance(part, Mapping) and is_name(part.get("type")) for part in content):
        yield f"each part of {key} must be an object with a type"


def _call_shape(item: Mapping[str, Any]) -> Iterator[str]:
    yield from _names(item, "call_id", "name")
    written = "input" if item.get("type") == "custom_tool_call" else "arguments"
    if not isinstance(item.get(written), str):
        yield f"{written} must be a string"


def _output_shape(item: Mapping[str, Any]) -> Iterator[str]:
    yield from _names(item, "call_id")
    yield from _content_shape(item, "output")


def _client_call_shape(item: Mapping[str, Any]) -> Iterator[str]:
    yield from _names(item, "call_id")


def _client_output_shape(item: Mapping[str, Any]) -> Iterator[str]:
    yield from _names(item, "call_id")
    if not isinstance(item.get("output"), (Mapping, list, tuple)):
        yield "output must be an object or an array"


def _local_output_shape(item: Mapping[str, Any]) -> Iterator[str]:
    if not is_name(item.get("call_id")) and not is_name(item.get("id")):
        yield "needs call_id"
    if not isinstance(item.get("output"), str):
        yield "output must be a string"


def _patch_output_shape(item: Mapping[str, Any]) -> Iterator[str]:
    yield from _names(item, "call_id")
    if item.get("status") not in ("completed", "failed"):
        yield "status must be completed or failed"


def _request_shape(item: Mapping[str, Any]) -> Iterator[str]:
    yield from _names(item, "id")


def _response_shape(item: Mapping[str, Any]) -> Iterator[str]:
    yield from _names(item, "approval_request_id")
    if not isinstance(item.get("approve"), bool):
        yield "approve must be true or false"


def _reasoning_shape(item: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(item.get("summary"), (list, tuple)):
        yield "summary must be an array"


def _compaction_shape(item: Mapping[str, Any]) -> Iterator[str]:
    yield from _names(item, "encrypted_content")


def _names(item: Mapping[str, Any], *keys: str) -> Iterator[str]:
    for key in keys:
        if not is_name(item.get(key)):
            yield f"needs {key}"


def _no_shape(item: Mapping[str, Any]) -> Iterator[str]:
    # A message of an unknown role has no type, or the type "message".
    return iter(()) if item.get("type") not in (None, "message") else _message_shape(item)


_ROLES = ("developer", "system", "user", "assistant")

_SHAPES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    **dict.fromkeys(_ROLES, _message_shape),
    "function_call": _call_shape,
    "custom_tool_call": _call_shape,
    "function_call_output": _output_shape,
    "custom_tool_call_output": _output_shape,
    **dict.fromkeys(("computer_call", "local_shell_call", "apply_patch_call"), _client_call_shape),
    "shell_call": _client_call_shape,
    "computer_call_output": _client_output_shape,
    "local_shell_call_output": _local_output_shape,
    "shell_call_output": _client_output_shape,
    "apply_patch_call_output": _patch_output_shape,
    "mcp_approval_request": _request_shape,
    "mcp_approval_response": _response_shape,
    "reasoning": _reasoning_shape,
    "compaction": _compaction_shape,
}
