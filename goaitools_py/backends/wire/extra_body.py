"""Merges a caller's `extra_body` into the members of a request: one rule for every provider API.

Owns: which value wins, which members are merged, and which may never be set. Must never know: a provider
API's own members.

The rule:

1. A member of `extra_body` wins over the setting that writes the same member.
2. None leaves the member out of the request, also if a setting wrote it.
3. The objects in `MERGED` are merged, one level deep: a setting gives one part of them and `extra_body`
   another. Where both give the same key, `extra_body` wins. Every other object is replaced as a whole,
   because most of them are variants with a ``type``, and a mixture of two variants is not valid.
4. Items that a dialect needs in a list stay in it, behind the caller's.
5. A member that would take over the history, the way of answering, or the conversation's state is a
   `ValueError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...base import rawjson
from ...base.values import Value

__all__ = ["MERGED", "WRITTEN_HERE", "Refused", "encoded", "with_extra"]

MERGED: Final = frozenset({"reasoning", "thinking", "output_config", "text"})
"""Objects with a part that an option writes: `reasoning_effort`, `thinking_budget_tokens`, `output_type`."""


class Refused(Value, frozen=True):
    """Why a member may not be set, and the values that are allowed nevertheless."""

    why: str
    but: tuple[Any, ...] = ()


WRITTEN_HERE: Final = Refused("the chat writes it itself")


def with_extra(
    values: Mapping[str, Any],
    extra: Mapping[str, Any],
    *,
    refused: Mapping[str, Refused],
    needed: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, Any]:
    """The members that settings write, with `extra_body` merged in. None: leave the member out.

    Args:
        values: Members that settings write, by name.
        extra: The caller's `extra_body`.
        refused: Members that `extra_body` may not set.
        needed: Items that a request always has, as a list for each member.

    Raises:
        ValueError: `extra_body` sets a member that it may not set.
        TypeError: The value in `extra_body` for one of `needed` is not a list.
    """
    for key, refusal in refused.items():
        if key in extra and extra[key] not in refusal.but:
            raise ValueError(f"extra_body cannot set {key!r}: {refusal.why}")
    merged = dict(values)
    for key, value in extra.items():
        ours = values.get(key)
        if key in MERGED and isinstance(value, Mapping) and isinstance(ours, Mapping):
            merged[key] = {**ours, **value}
        else:
            merged[key] = value
    for key, items in (needed or {}).items():
        given = merged.get(key)
        if given is None:
            given = ()
        elif not isinstance(given, (list, tuple)):
            raise TypeError(f"{key!r} in extra_body must be a list, not {type(given).__name__}")
        merged[key] = [*given, *(item for item in items if item not in given)]
    return merged


def encoded(values: Mapping[str, Any]) -> dict[str, bytes]:
    """Each member as JSON; b"", which `body_of` leaves out, for None."""
    return {key: b"" if value is None else rawjson.dumps(value) for key, value in values.items()}
