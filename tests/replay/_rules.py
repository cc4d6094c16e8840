"""How two JSON values are held against each other: to the letter, and in what both say.

Owns: the comparisons behind the two rules for a replayed answer. Must never know: a wire, or how a replay
came about.

A, *verbatim*: a replay equals the answer part for part, less the keys that only responses have.
B, *accepted*: what both the answer and a request that the provider took hold is in ours, equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._wire import JSON, comparable

__all__ = ["against_accepted", "differences", "known_part"]

_DASHES_AND_QUOTES = str.maketrans("‘’‚‛“”„‟‐‑‒–—―−", "''''\"\"\"\"-------")
_NAMES = ("id", "call_id", "tool_use_id")


# --------------------------------------------------------------------------------------- to the letter


def differences(found: Any, wanted: Any, where: str = "") -> Iterator[str]:
    """Say where a value is not the wanted one."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted({*found, *wanted}):
            if key not in found or key not in wanted:
                yield f"{where}{key} is {'missing' if key in wanted else 'not of the answer'}"
            else:
                yield from differences(found[key], wanted[key], f"{where}{key}.")
    elif isinstance(wanted, list) and isinstance(found, list):
        if len(found) != len(wanted):
            yield f"{where}: {len(found)} parts, not {len(wanted)}"
        for at, (one, other) in enumerate(zip(found, wanted, strict=False)):
            yield from differences(one, other, f"{where}{at}.")
    elif found != wanted and not (where == "content." and {found or "", wanted or ""} == {""}):
        # An empty content beside calls is stored as null: some servers refuse it.
        yield f"{where.rstrip('.')} differs"


def known_part(found: Any, wanted: Any) -> Any:
    """The value without the keys that the wanted one does not know."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return {key: known_part(found[key], wanted[key]) for key in found if key in wanted}
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return [known_part(one, other) for one, other in zip(found, wanted, strict=True)]
    return found


# ------------------------------------------------------------------------------------ in what both say


def against_accepted(
    ours: Sequence[JSON],
    answer: Sequence[JSON],
    accepted: Sequence[JSON],
    same_value: Mapping[str, str] | None = None,
) -> list[str]:
    """Say what a provider was sent again and took that our replay lacks or says otherwise.

    Args:
        ours: The answer as our request replays it.
        answer: The answer as the provider sent it.
        accepted: The answer as a request that got 200 replayed it.
        same_value: Strings of which the provider sent more than one form, and the one name of each.
    """
    named = [_named(comparable(list(one)), same_value or {}) for one in (ours, answer, accepted)]
    # One part alone is compared like several: `comparable` makes a lone text part its string.
    mine, own, theirs = (one if isinstance(one, list) else [one] for one in named)
    return list(_lacking(mine, own, theirs, ""))


def _named(value: Any, same_value: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _named(item, same_value) for key, item in value.items()}
    if isinstance(value, list):
        return [_named(item, same_value) for item in value]
    return same_value.get(value, value) if isinstance(value, str) else value


def _lacking(ours: Any, answer: Any, accepted: Any, where: str) -> Iterator[str]:
    if isinstance(accepted, str) and isinstance(answer, (list, Mapping)):
        if isinstance(answer, Mapping) or _folded(_words(answer)) == _folded(accepted):
            ours, answer = _words(ours), _words(answer)
        else:  # a client that kept one part of several
            ours, accepted = (ours if isinstance(ours, list) else [ours]), [accepted]
    elif isinstance(answer, str) and isinstance(accepted, (list, Mapping)):
        ours, accepted = _words(ours), _words(accepted)
    if isinstance(accepted, Mapping) and isinstance(answer, Mapping):
        if not isinstance(ours, Mapping):
            yield f"{where} is no object"
            return
        for key in sorted(accepted.keys() & answer.keys()):
            if key not in ours:
                yield f"{where}{key} is missing"
            else:
                yield from _lacking(ours[key], answer[key], accepted[key], f"{where}{key}.")
    elif isinstance(accepted, list) and isinstance(answer, list):
        if not isinstance(ours, list):
            yield f"{where} is no list"
            return
        left = list(ours)
        for at, own in _pairs(accepted, answer):
            found = _place(left, own)
            if found is None:
                yield f"{where}{at} is missing"
            else:
                yield from _lacking(left[found], own, accepted[at], f"{where}{at}.")
                del left[: found + 1]  # what follows in the answer follows in ours
    elif _folded(ours) != _folded(accepted):
        yield f"{where.rstrip('.')} differs"


def _pairs(accepted: Sequence[Any], answer: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Places of parts that both hold, in order, each with the answer's own part."""
    left = list(answer)
    for at, part in enumerate(accepted):
        found = _place(left, part)
        if found is not None:
            yield at, left[found]
            del left[: found + 1]


def _place(parts: Sequence[Any], part: Any) -> int | None:
    """Where a part stands: the one that says the same if there is one, else the first that may be it."""
    alike = [at for at, other in enumerate(parts) if _is_alike(other, part)]
    equal = (at for at in alike if _folded(parts[at]) == _folded(part))
    return next(equal, alike[0] if alike else None)


def _is_alike(one: Any, other: Any) -> bool:
    """Whether two parts may stand for one another: of one kind, and of one name where both have it."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return bool(_kind(one) == _kind(other))
    kinds = {_kind(one), _kind(other)} - {None}  # a server that leaves the only kind out means it
    return len(kinds) < 2 and not any(
        one[name] != other[name] for name in _NAMES if name in one and name in other
    )


def _kind(part: Any) -> Any:
    if isinstance(part, str):
        return "text"
    if not isinstance(part, Mapping):
        return type(part)
    kind = part.get("type") or ("message" if "role" in part else None)
    return "text" if kind in ("text", "input_text", "output_text") else kind


def _words(value: Any) -> Any:
    """The text of content parts, where another says the same as a string."""
    if isinstance(value, Mapping):
        return value.get("text", "")
    return "".join(map(_words, value)) if isinstance(value, list) else value


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
