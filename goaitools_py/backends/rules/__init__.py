"""The known sequence rules of each provider API.

Owns: roles, shapes, and the pairing of calls with results, as pure functions over the provider's own JSON.
Must never know: where a history comes from, how it is repaired, or who sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from ..anthropic import rules as anthropic
from ..openai_chat import rules as openai_chat
from ..openai_responses import rules as openai_responses
from ..wire.tolerance import Frame, parsed

__all__ = ["WIRES", "check_entry", "check_history"]


_MOST: Final = 1_000
"""Forged histories have a problem in each of a million places."""


def check_history(
    wire: str,
    messages: Sequence[Mapping[str, Any]] | Sequence[bytes],
    *,
    open_calls: Sequence[str] = (),
    open_end: bool = False,
    unique_ids: bool = True,
) -> list[str]:
    """Say which known rules of a provider a history breaks; an empty list means a valid history.

    The rules come from documentation, schemas and recorded traffic. A server may have more.

    Checking takes time for each entry. A turn has to check only its new entries: pass them and, as
    `open_calls`, the calls that are open before them.

    Args:
        wire: The provider API, one of `WIRES`.
        messages: The history's entries in order, as parsed JSON objects or as raw JSON bytes.
        open_calls: Ids of calls before `messages` that still wait for their results.
        open_end: Let calls at the very end wait for their results, as in the middle of a turn.
        unique_ids: True: report "call id reused" if two exchanges use one call id. Real histories do so, and
            providers accepted them. So use False for a history that was accepted already, such as an
            imported one.

    Returns:
        One sentence for each of the first 1,000 problems, with indexes into `messages` and call ids, never
        content.

    Raises:
        ValueError: No rules are known for `wire`.
    """
    return list(islice(_rules(wire).sequence(messages, Frame(open_calls, open_end, unique_ids)), _MOST))


def check_entry(wire: str, entry: Mapping[str, Any] | bytes) -> list[str]:
    """Say which known rules of a provider one entry breaks at any position; an empty list: it is valid.

    Raises:
        ValueError: No rules are known for `wire`.
    """
    return list(_rules(wire).entry(parsed(entry)))


class _Rules(NamedTuple):
    sequence: Callable[[Sequence[Mapping[str, Any] | bytes], Frame], Iterator[str]]
    entry: Callable[[object], Iterator[str]]


def _rules(wire: str) -> _Rules:
    rules = _RULES.get(wire)
    if rules is None:
        raise ValueError(f"no rules for provider API {wire!r}; known are: {', '.join(WIRES)}")
    return rules


_RULES: Mapping[str, _Rules] = {
    "openai": _Rules(openai_chat.problems, openai_chat.entry_problems),
    "openai-responses": _Rules(openai_responses.problems, openai_responses.entry_problems),
    "anthropic": _Rules(anthropic.problems, anthropic.entry_problems),
}

WIRES: tuple[str, ...] = tuple(_RULES)
"""The provider APIs with known rules."""
