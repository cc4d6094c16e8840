"""The report of a repair, and its result.

Owns: the kinds of mending, the values that a repair returns, and the check of a history. Must never know: how
anything is mended.

================  ===================================================================================
unreadable        The entry is no JSON object of its provider API. It is dropped.
rewritten         The entry has a shape that the provider refuses. It is written again from its content.
empty             A refused entry has no content left. It is dropped.
result_added      A call has no result. It gets a result with the flag "unknown".
result_moved      A result is not at the place that its call needs. It is moved there.
duplicate_result  A call has more than one result. The first one stays.
stray_result      A result belongs to no call. It is dropped. As a user message it would give a tool's
                  output the authority of the user.
duplicate_call    A reply with calls is in the history twice. One is dropped.
call_renamed      Two calls beside each other have the same id. The second one and its result get a new id.
                  An import also renames a call if an earlier exchange has its id.
orphan            A piece of reasoning lacks its required successor. It is dropped.
unfinished        The call of a hosted tool lacks its result. It is dropped.
calls_removed     No step above makes the calls of a reply valid. The reply stays without them.
reply_removed     No step above makes the reply valid. It is dropped.
================  ===================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ....backends.base import Dialect
from ....backends.protocols import Change, problems_of
from ....base.values import Value
from ....types.errors import StateInvalidError

__all__ = ["Entry", "Mend", "Mended", "require_valid", "summary"]

Mend = Literal[
    "unreadable",
    "rewritten",
    "empty",
    "result_added",
    "result_moved",
    "duplicate_result",
    "stray_result",
    "duplicate_call",
    "call_renamed",
    "orphan",
    "unfinished",
    "calls_removed",
    "reply_removed",
]


class Entry(Value, frozen=True, kw_only=True):
    """One entry of a mended history.

    Attributes:
        entry: The bytes.
        source: The place of the given entry that it was made of; None for an added one.
        letter: Its role letter; "" if nothing was mended.
        flags: The flags of results that were added, by call id.
    """

    _unshown = frozenset({"entry"})

    entry: bytes
    source: int | None
    letter: str
    flags: Mapping[str, str] = {}


class Mended(Value, frozen=True, kw_only=True):
    """A history that its provider takes.

    Attributes:
        entries: The entries.
        log: For each repair its kind, and the place of the given entry. An import also notes the changes of
            `backends.protocols.Change`.
    """

    _unshown = frozenset({"entries"})

    entries: tuple[Entry, ...]
    log: tuple[tuple[Mend | Change, int], ...]


def summary(log: Iterable[tuple[str, int]]) -> dict[str, int]:
    """How often each kind of mending was done, sorted by kind."""
    return dict(sorted(Counter[str](kind for kind, _ in log).items()))


def require_valid(dialect: Dialect, entries: Sequence[bytes]) -> None:
    """Raise `StateInvalidError` unless the provider takes the history."""
    if found := problems_of(dialect, entries):
        raise StateInvalidError(
            f"the state's history cannot be repaired ({found[0]}); the state cannot be used"
        )
