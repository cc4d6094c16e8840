"""The sequence rules of the Chat Completions API.

Owns: which histories of chat messages a provider accepts. Must never know: where a history comes from.

Shapes: ChatCompletionMessageParam in openai's types/chat. One rule is the server's alone: results answer an
assistant's calls one by one, directly after it. "An assistant message with 'tool_calls' must be followed by
tool messages responding to each 'tool_call_id'", and "messages with role 'tool' must be a response to a
preceeding message with 'tool_calls'" (both 400). Where a compatible server takes more than OpenAI does, the
wider rule holds: a state of this provider API may belong to any of these servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ..protocols import HistoryFrame
from ..wire.tolerance import is_name, listed, parsed

__all__ = ["entry_problems", "is_silent", "problems"]


def problems(messages: Iterable[Mapping[str, Any] | bytes], frame: HistoryFrame) -> Iterator[str]:
    """The problems for which a server of this provider API refuses a history."""
    waiting = set(frame.open_calls)
    caller = "an earlier message"
    answered: set[str] = set()
    first_use: dict[str, str] = {}
    for index, entry in enumerate(messages):
        here = f"messages[{index}]"
        message = parsed(entry)
        role = message.get("role") if isinstance(message, Mapping) else None
        if waiting and role != "tool":
            yield f"{here}: stands before the results of {caller}'s calls {listed(waiting)}"
            waiting = set()
        for problem in entry_problems(message):
            yield f"{here}: {problem}"
        if not isinstance(message, Mapping) or not isinstance(role, str) or role not in _SHAPES:
            continue
        if role == "tool":
            call_id = message.get("tool_call_id")
            if not is_name(call_id):
                pass  # the check of the shape reports it
            elif call_id in waiting:
                waiting.discard(call_id)
                answered.add(call_id)
            elif call_id in answered:
                yield f"{here}: answers call {call_id!r} again"
            else:
                yield f"{here}: answers call {call_id!r}, which no message directly before it made"
        else:
            answered = set()
        if role == "assistant":
            caller = here
            for call_id in _call_ids(message):
                if call_id in waiting:
                    yield f"{here}: two calls have the id {call_id!r}"
                elif call_id in first_use and frame.unique_ids:
                    yield f"{here}: call id reused: {call_id!r} is a call of {first_use[call_id]} too"
                waiting.add(call_id)
            first_use |= dict.fromkeys(waiting, here)
    if waiting and not frame.open_end:
        yield f"the history ends before the results of {caller}'s calls {listed(waiting)}"


def entry_problems(message: object) -> Iterator[str]:
    """The problems for which a server of this provider API refuses a message at any position."""
    if not isinstance(message, Mapping):
        yield "must be a JSON object"
        return
    role = message.get("role")
    shape = _SHAPES.get(role) if isinstance(role, str) else None
    if shape is None:
        yield f"role must be one of {', '.join(_SHAPES)}"
    else:
        yield from shape(message)


def is_silent(message: Mapping[str, Any]) -> bool:
    """True for an assistant's empty message: no text, no call, no refusal, no sound or picture.
    Its reasoning, and the servers' own notes, do not count. An unknown member counts."""
    for key, value in message.items():
        if key not in _SILENT and (value if key in _SAYING else value is not None):
            return False
    content = message.get("content")
    return not any(map(_says, content)) if isinstance(content, list) else not content


_SAYING: Final = frozenset({"tool_calls", "function_call", "refusal", "audio", "images"})
"""Members that say something if they are not empty. OpenRouter's models that draw write ``images``."""

_SILENT: Final = frozenset(
    {
        *("role", "content", "name", "index", "phase", "annotations", "extra_content", "executed_tools"),
        *("reasoning", "reasoning_content", "reasoning_details", "thinking", "thinking_blocks"),
        *("provider_metadata", "provider_specific_fields", "matched_stop", "stop_reason"),
    }
)


def _says(part: Any) -> bool:
    """True for a part of content that is not reasoning and not an empty text."""
    match part:
        case {"type": "text", "text": words} | {"type": "refusal", "refusal": words}:
            return bool(words)
        case {"type": "thinking" | "reasoning" | "redacted_thinking"}:
            return False
    return part is not None


def _assistant_shape(message: Mapping[str, Any]) -> Iterator[str]:
    # An empty array of parts or calls has no effect, and Mistral accepts it (recorded 200s).
    if message.get("content") not in (None, [], ()):
        yield from _content_shape(message)
    elif not any(message.get(key) for key in ("tool_calls", "refusal", "audio", "function_call")):
        yield "an assistant message needs content, tool_calls, refusal or audio"
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, (list, tuple)):
        yield "tool_calls must be an array"
    else:
        for position, call in enumerate(calls or ()):
            for problem in _call_shape(call):
                yield f"tool_calls[{position}]: {problem}"
    if message.get("function_call") is not None:
        yield from _function_shape(message, "function_call", "arguments")


def _call_shape(call: object) -> Iterator[str]:
    if not isinstance(call, Mapping):
        yield "must be an object"
        return
    if not is_name(call.get("id")):
        yield "needs an id"
    kind = call.get("type", "function")  # several compatible servers leave the type out
    if kind == "function":
        yield from _function_shape(call, "function", "arguments")
    elif kind == "custom":
        yield from _function_shape(call, "custom", "input")
    else:
        yield "type must be function or custom"


def _function_shape(owner: Mapping[str, Any], key: str, argument_key: str) -> Iterator[str]:
    function = owner.get(key)
    if not isinstance(function, Mapping):
        yield f"{key} must be an object"
        return
    if not is_name(function.get("name")):
        yield f"{key} needs a name"
    if not isinstance(function.get(argument_key), str):
        yield f"{key}.{argument_key} must be a string"


def _tool_shape(message: Mapping[str, Any]) -> Iterator[str]:
    if not is_name(message.get("tool_call_id")):
        yield "a tool message needs a tool_call_id"
    yield from _content_shape(message)


def _old_function_shape(message: Mapping[str, Any]) -> Iterator[str]:
    if not is_name(message.get("name")):
        yield "a function message needs a name"
    if not isinstance(message.get("content", 0), (str, type(None))):
        yield "the content of a function message must be a string or null"


def _content_shape(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        return
    if not isinstance(content, (list, tuple)):
        yield "content must be a string or an array of parts"
    elif not content:
        yield "content must not be an empty array"
    elif not all(isinstance(part, Mapping) and is_name(part.get("type")) for part in content):
        yield "each part of content must be an object with a type"


_SHAPES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "developer": _content_shape,
    "system": _content_shape,
    "user": _content_shape,
    "assistant": _assistant_shape,
    "tool": _tool_shape,
    "function": _old_function_shape,
}


def _call_ids(message: Mapping[str, Any]) -> Iterator[str]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, (list, tuple)) else ():
        if isinstance(call, Mapping) and is_name(call.get("id")):
            yield call["id"]
