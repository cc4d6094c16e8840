"""The sequence rules of each wire: which histories a provider takes.

Owns: roles, shapes and the pairing of calls with results, as pure functions over the wires' own JSON.
Must never know: how a history came about, how it is mended, or who sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..rawjson import RawJSONError, loads

__all__ = ["WIRES", "check_history"]


def check_history(
    wire: str,
    messages: Sequence[Mapping[str, Any]] | Sequence[bytes],
    *,
    open_calls: Sequence[str] = (),
    open_end: bool = False,
    unique_ids: bool = True,
) -> list[str]:
    """Say what a provider would refuse in a history; an empty list means that it takes it.

    The whole history costs time in its length. A turn needs only what is new: hand in the new entries and,
    as `open_calls`, the calls that the entries before them left open.

    Args:
        wire: The wire whose rules hold, one of `WIRES`.
        messages: The history's entries in order, as parsed JSON objects or as raw JSON bytes.
        open_calls: Ids of calls before `messages` that still wait for their results.
        open_end: Let calls at the very end wait for their results, as in the middle of a turn.
        unique_ids: Count it as a problem, by the words "call id reused", when two exchanges use one call
            id. Real histories hold such ids and providers took them, so False is right for what was
            already accepted, such as an imported history.

    Returns:
        One sentence for each problem, with indexes into `messages` and call ids, never content.

    Raises:
        ValueError: No rules are known for `wire`.
    """
    rules = _RULES.get(wire)
    if rules is None:
        raise ValueError(f"no rules for wire {wire!r}; known wires: {', '.join(WIRES)}")
    return list(rules(messages, _Frame(open_calls, open_end, unique_ids)))


class _Frame(NamedTuple):
    """What holds around the entries: the options of `check_history`, for every wire's rules."""

    open_calls: Sequence[str]
    open_end: bool
    unique_ids: bool


# ------------------------------------------------------------------------------ OpenAI Chat Completions
#
# Shapes: ChatCompletionMessageParam in openai's types/chat. That an assistant's calls are answered one by
# one, directly after it, is a rule of the server alone: "An assistant message with 'tool_calls' must be
# followed by tool messages responding to each 'tool_call_id'", and "messages with role 'tool' must be a
# response to a preceeding message with 'tool_calls'" (both 400). Where a compatible server takes more than
# OpenAI does, the wider rule holds: a state of this wire may belong to any of them.


def _openai_problems(messages: Iterable[Mapping[str, Any] | bytes], frame: _Frame) -> Iterator[str]:
    waiting = set(frame.open_calls)
    caller = "an earlier message"
    answered: set[str] = set()
    first_use: dict[str, str] = {}
    for index, entry in enumerate(messages):
        here = f"messages[{index}]"
        message = _parsed(entry)
        role = message.get("role") if isinstance(message, Mapping) else None
        if waiting and role != "tool":
            yield f"{here}: stands before the results of {caller}'s calls {_listed(waiting)}"
            waiting = set()
        if not isinstance(message, Mapping):
            yield f"{here}: must be a JSON object"
            continue
        shape = _OPENAI_SHAPES.get(role) if isinstance(role, str) else None
        if shape is None:
            yield f"{here}: role must be one of {', '.join(_OPENAI_SHAPES)}"
            continue
        for problem in shape(message):
            yield f"{here}: {problem}"
        if role == "tool":
            call_id = message.get("tool_call_id")
            if not _is_name(call_id):
                pass  # a matter of its shape
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
        yield f"the history ends before the results of {caller}'s calls {_listed(waiting)}"


def _assistant_shape(message: Mapping[str, Any]) -> Iterator[str]:
    # An empty array of parts or calls says nothing, and Mistral takes it (recorded 200s).
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
    if not _is_name(call.get("id")):
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
    if not _is_name(function.get("name")):
        yield f"{key} needs a name"
    if not isinstance(function.get(argument_key), str):
        yield f"{key}.{argument_key} must be a string"


def _tool_shape(message: Mapping[str, Any]) -> Iterator[str]:
    if not _is_name(message.get("tool_call_id")):
        yield "a tool message needs a tool_call_id"
    yield from _content_shape(message)


def _old_function_shape(message: Mapping[str, Any]) -> Iterator[str]:
    if not _is_name(message.get("name")):
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
    elif not all(isinstance(part, Mapping) and _is_name(part.get("type")) for part in content):
        yield "each part of content must be an object with a type"


_OPENAI_SHAPES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "developer": _content_shape,
    "system": _content_shape,
    "user": _content_shape,
    "assistant": _assistant_shape,
    "tool": _tool_shape,
    "function": _old_function_shape,
}


# ------------------------------------------------------------------------------------------- every wire


def _parsed(entry: Mapping[str, Any] | bytes) -> object:
    if not isinstance(entry, bytes):
        return entry
    try:
        return loads(entry)
    except RawJSONError:
        return None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _call_ids(message: Mapping[str, Any]) -> Iterator[str]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, (list, tuple)) else ():
        if isinstance(call, Mapping) and _is_name(call.get("id")):
            yield call["id"]


def _listed(ids: Iterable[str]) -> str:
    return ", ".join(sorted(map(repr, ids)))


_RULES: Mapping[str, Callable[[Sequence[Mapping[str, Any] | bytes], _Frame], Iterator[str]]] = {
    "openai": _openai_problems,
}

WIRES: tuple[str, ...] = tuple(_RULES)
"""The wires whose rules are known."""
