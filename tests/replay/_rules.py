"""The two rules for a replayed answer: it is the provider's own, and the provider took its like.

Owns: what may differ between an answer and its replay on the Chat Completions wire, written down a second
time and on purpose apart from the package's own list. Must never know: how the replay came about.

A, *verbatim*: a replay equals the answer part for part, less the keys that only responses have.
B, *accepted*: what both the answer and a request that the provider took hold is in ours, equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from goaitools_py import rawjson

from ._recorded import Exchange, comparable

__all__ = ["against_accepted", "against_answer"]

JSON = Mapping[str, Any]

_RESPONSE_ONLY = frozenset({"annotations"})
_LEFT_OUT_WHEN_HOLLOW = frozenset({"refusal", "audio", "function_call", "tool_calls"})
_DASHES_AND_QUOTES = str.maketrans("‘’‚‛“”„‟‐‑‒–—―−", "''''\"\"\"\"-------")


# --------------------------------------------------------------------------------------- A: verbatim


def against_answer(ours: bytes, exchange: Exchange, *, is_first_party: bool) -> list[str]:
    """Say where a replayed answer differs from the provider's own; empty if it is verbatim.

    Args:
        ours: The replayed message as it stands in our request's body.
        is_first_party: The host holds requests to the published type.
    """
    answer = exchange.answer
    if answer is None:
        return ["the recording has no answer"]
    found = json.loads(ours)
    wanted = _request_form(answer, is_first_party=is_first_party)
    if "sse" not in exchange.response:
        problems = list(_differences(found, wanted))
        return problems or list(_changed_bytes(ours, exchange.raw_answer or b""))
    # The recording's reader leaves out keys it does not know; every one must have been in a piece.
    unknown = set(found) - set(wanted) - exchange.delta_keys
    known = _only_known(found, wanted)
    return [*(f"{key} was made up" for key in sorted(unknown)), *_differences(known, wanted)]


def _only_known(found: Any, wanted: Any) -> Any:
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return {key: _only_known(found[key], wanted[key]) for key in found if key in wanted}
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return [_only_known(one, other) for one, other in zip(found, wanted, strict=True)]
    return found


def _request_form(answer: JSON, *, is_first_party: bool) -> dict[str, Any]:
    form = {
        key: value
        for key, value in answer.items()
        if key not in _RESPONSE_ONLY and not (key in _LEFT_OUT_WHEN_HOLLOW and _is_hollow(value))
    }
    if "tool_calls" in form:
        form["tool_calls"] = [_call_form(call, is_first_party) for call in form["tool_calls"]]
    elif form.get("content") is None:
        form["content"] = ""  # null is fine beside calls only
    if "audio" in form:
        form["audio"] = {"id": form["audio"]["id"]}
    return form


def _call_form(call: JSON, is_first_party: bool) -> dict[str, Any]:
    other = "function" if _is_hollow(call.get("function")) else "custom"
    left_out = {other} | ({"index"} if is_first_party else set())
    return {key: value for key, value in call.items() if key not in left_out}


def _is_hollow(value: Any) -> bool:
    return all(map(_is_hollow, value.values())) if isinstance(value, Mapping) else not value


def _differences(found: Any, wanted: Any, where: str = "") -> Iterator[str]:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted({*found, *wanted}):
            if key not in found or key not in wanted:
                yield f"{where}{key} is {'missing' if key in wanted else 'not of the answer'}"
            else:
                yield from _differences(found[key], wanted[key], f"{where}{key}.")
    elif isinstance(wanted, list) and isinstance(found, list):
        if len(found) != len(wanted):
            yield f"{where}: {len(found)} parts, not {len(wanted)}"
        for at, (one, other) in enumerate(zip(found, wanted, strict=False)):
            yield from _differences(one, other, f"{where}{at}.")
    elif found != wanted:
        yield f"{where.rstrip('.')} differs"


def _changed_bytes(ours: bytes, answer: bytes) -> Iterator[str]:
    """Members whose bytes are not the provider's, of those that nothing had to be cut from."""
    theirs = rawjson.members(rawjson.one_line(answer))
    for key, span in rawjson.members(ours).items():
        if key == "tool_calls":
            if list(_argument_spans(span)) != list(_argument_spans(theirs[key])):
                yield "the bytes of arguments changed"
        elif key in theirs and not rawjson.is_null(theirs[key]) and key != "audio" and span != theirs[key]:
            yield f"the bytes of {key} changed"


def _argument_spans(calls: bytes) -> Iterator[bytes]:
    for call in rawjson.items(calls):
        function = rawjson.members(call).get("function", b"null")
        if function.startswith(b"{"):
            yield rawjson.members(function).get("arguments", b"")


# --------------------------------------------------------------------------------------- B: accepted


def against_accepted(ours: JSON, answer: JSON, accepted: JSON) -> list[str]:
    """Say what a provider was sent again and took that our replay lacks or says otherwise.

    Args:
        ours: The answer as our request replays it.
        answer: The answer as the provider sent it.
        accepted: The answer as a request that got 200 replayed it.
    """
    return list(_lacking(comparable(ours), comparable(answer), comparable(accepted), ""))


def _lacking(ours: Any, answer: Any, accepted: Any, where: str) -> Iterator[str]:
    if isinstance(accepted, Mapping) and isinstance(answer, Mapping):
        if not isinstance(ours, Mapping):
            yield f"{where} is no object"
            return
        for key in accepted.keys() & answer.keys():
            if key not in ours:
                yield f"{where}{key} is missing"
            else:
                yield from _lacking(ours[key], answer[key], accepted[key], f"{where}{key}.")
    elif isinstance(accepted, list) and isinstance(answer, list) and isinstance(ours, list):
        for at, (theirs, own) in enumerate(_pairs(accepted, answer)):
            mine = next((part for part in ours if _is_same_part(part, own)), None)
            if mine is None:
                yield f"{where}{at} is missing"
            else:
                yield from _lacking(mine, own, theirs, f"{where}{at}.")
    elif _folded(ours) != _folded(accepted):
        yield f"{where.rstrip('.')} differs"


def _pairs(accepted: Sequence[Any], answer: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """The parts that both hold: those of one id belong together, others by their place."""
    by_id = {part["id"]: part for part in answer if isinstance(part, Mapping) and "id" in part}
    for at, part in enumerate(accepted):
        own_id = part.get("id") if isinstance(part, Mapping) else None
        if own_id in by_id:
            yield part, by_id[own_id]
        elif own_id is None and at < len(answer):
            yield part, answer[at]


def _is_same_part(ours: Any, answer: Any) -> bool:
    if isinstance(ours, Mapping) and isinstance(answer, Mapping) and "id" in answer:
        return ours.get("id") == answer["id"]
    return bool(ours == answer)


def _folded(value: Any) -> Any:
    """A value for comparison: JSON in a string is read, typographic quotes and dashes are plain ones."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return value.translate(_DASHES_AND_QUOTES)
    if isinstance(value, Mapping):
        return {key: _folded(item) for key, item in value.items()}
    return [_folded(item) for item in value] if isinstance(value, list) else value
