"""`check_history`: which rules of a provider API a list of messages breaks.

Owns: the choice of the dialect with the rules. Must never know: a rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from ..backends.base import Dialect
from ..backends.dialects import WIRES, dialect_of
from ..backends.protocols import ChecksHistory, HistoryFrame, lacks
from ..base import rawjson

__all__ = ["check_history"]

_MOST: Final = 1_000
"""Forged histories have a problem in each of a million places."""


def check_history(
    wire: str | Dialect,
    messages: Sequence[Mapping[str, Any]] | Sequence[bytes],
    *,
    open_calls: Sequence[str] = (),
    open_end: bool = False,
    unique_ids: bool = True,
) -> list[str]:
    """Say which known rules of a provider a history breaks; an empty list means a valid history.

    The rules come from documentation, schemas and recorded traffic. A server may have more.

    Args:
        wire: The name of a built-in provider API, or a dialect with `ChecksHistory`.
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
    entries: Any = messages  # the built-in dialects also check parsed objects
    if isinstance(wire, str):
        if wire not in WIRES:
            raise ValueError(f"no rules for provider API {wire!r}; known are: {', '.join(WIRES)}")
        dialect = dialect_of(wire)
    else:
        dialect = wire
        entries = [one if isinstance(one, bytes) else rawjson.dumps(one) for one in messages]
    if not isinstance(dialect, ChecksHistory):
        raise ValueError(f"no rules: {lacks(dialect, ChecksHistory)}")
    frame = HistoryFrame(open_calls, open_end, unique_ids)
    return list(islice(dialect.history_problems(entries, frame), _MOST))
