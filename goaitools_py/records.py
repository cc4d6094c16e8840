"""What a state records beside the entries: meta data, turns, the inbox, the open turn's journal.

Owns: these values. Must never know: how they are written to bytes, or what an entry says.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from .messages import Part, ResultFlag, Usage
from .values import Value, field

__all__ = [
    "InboxItem",
    "Iteration",
    "JournalCall",
    "Meta",
    "OpenTurn",
    "TurnRecord",
    "digest8",
    "usage_of",
    "usage_row",
]


def digest8(data: bytes) -> str:
    """The first 8 bytes of SHA-256 as 11 characters of base64url: a fingerprint, not a secret."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()[:8]).decode("ascii").rstrip("=")


class Meta(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What can be said of a conversation without reading it; constant size. Unknown keys survive.

    `created` is in milliseconds since the epoch, `updated` in milliseconds after that. `messages` and
    `turns` count the closed history; `processed` counts every turn ever closed. `total` and `usage` are
    [input, cached, cache write, output, reasoning, requests]. `tokens` estimates the closed history.
    """

    wire: str
    family: str = ""
    model: str = ""
    id: str = ""
    rev: int = 0
    parent: str = ""
    created: int = 0
    updated: int = 0
    status: str = "complete"
    messages: int = 0
    turns: int = 0
    processed: int = 0
    tokens: int = 0
    total: tuple[int, ...] = ()
    usage: tuple[int, ...] = ()
    preamble: str = ""
    tools: str = ""
    context: str = ""
    events: tuple[str, ...] = ()
    sticky: dict[str, Any] = field(default_factory=dict)
    cuts: tuple[tuple[int, str, int, int], ...] = ()


def usage_row(usage: Usage) -> tuple[int, ...]:
    """A usage as the tuple that is stored; () for none."""
    row = (
        usage.input_tokens,
        usage.cached_input_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.requests,
    )
    return row if any(row) else ()


def usage_of(row: Sequence[int]) -> Usage:
    """The usage that `usage_row` stored."""
    if not row:
        return Usage()
    padded = (*row, 0, 0, 0, 0, 0, 0)
    return Usage(
        input_tokens=padded[0],
        cached_input_tokens=padded[1],
        cache_write_tokens=padded[2],
        output_tokens=padded[3],
        reasoning_tokens=padded[4],
        requests=padded[5],
    )


class Iteration(Value, frozen=True, kw_only=True):
    """One model call of a turn: the entries that went with it and came back, as role letters."""

    roles: str
    finish_reason: str = ""
    usage: Usage = Usage()
    start: int = 0
    ms: int = 0


class TurnRecord(Value, frozen=True, kw_only=True):
    """A closed turn's facts: when it began (ms after the conversation), how many entries, which calls."""

    unshown = frozenset({"facts"})

    at: int
    messages: int
    iterations: tuple[Iteration, ...]
    facts: Mapping[str, Any] = {}

    @property
    def entries(self) -> int:
        """How many stored entries the turn has."""
        return sum(len(iteration.roles) for iteration in self.iterations)


class InboxItem(Value, frozen=True, kw_only=True):
    """A message that no model has seen: its entry, its role letter and, for events, topic and id digest."""

    unshown = frozenset({"entry"})

    entry: bytes
    letter: str
    topic: str = ""
    event: str = ""


class JournalCall(Value, frozen=True, kw_only=True):
    """One call of the open reply. `state` is "new", "started" or "done"; a done one has its result."""

    unshown = frozenset({"arguments", "parts"})

    id: str
    name: str
    arguments: str
    kind: str = "function"
    state: Literal["new", "started", "done"] = "new"
    flag: ResultFlag = "ok"
    parts: tuple[Part, ...] = ()
    started: float = 0.0
    seconds: float = 0.0


class OpenTurn(Value, frozen=True, kw_only=True):
    """The unfinished turn: what a model has accepted so far, and the journal of its last reply's calls.

    `entries` ends with the raw reply while `calls` are open. `letters` and `messages` describe the
    entries that belong to no iteration yet. `partial` is text of a reply that broke off: kept, flagged,
    never sent.
    """

    unshown = frozenset({"partial", "facts", "entries"})

    at: int
    entries: tuple[bytes, ...] = ()
    iterations: tuple[Iteration, ...] = ()
    letters: str = ""
    messages: int = 0
    calls: tuple[JournalCall, ...] = ()
    partial: str = ""
    facts: Mapping[str, Any] = {}
