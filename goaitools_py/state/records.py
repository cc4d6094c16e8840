"""What a state records beside the entries: meta data, turns, the inbox, the open turn's journal.

Owns: these values, and the bounds that a stored one keeps. Must never know: how they are written to bytes,
or what an entry says.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from ..messages import CallKind, Part, ResultFlag, Usage
from ..values import Value, field

__all__ = [
    "IDS_KEPT",
    "MAX_COUNT",
    "MAX_LABEL",
    "MAX_NAME",
    "RULES_VERSION",
    "Amount",
    "Count",
    "InboxItem",
    "Iteration",
    "JournalCall",
    "Label",
    "Meta",
    "Name",
    "OpenTurn",
    "TurnRecord",
    "bounded",
    "bounded_row",
    "digest8",
    "dollars_of",
    "fresh_id",
    "turn_ref",
    "usage_of",
    "usage_row",
    "with_cost",
    "with_cut",
    "with_info",
]


MAX_COUNT: Final = 2**53
"""The largest stored number: all that every JSON reader takes for a whole one."""

MAX_LABEL: Final = 64
MAX_NAME: Final = 256

RULES_VERSION: Final = 1
"""Goes up when the rules for histories become stricter, or a writer's mistake is found: states that an
earlier one wrote are then checked, and repaired, once."""

# Bounds that msgspec enforces when a state is read, and that writing keeps by itself.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=MAX_COUNT)]
Label: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_LABEL)]
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]


def bounded(count: int) -> int:
    """The count within what a state may hold: a provider, or a clock set back, may report anything."""
    return count if 0 <= count <= MAX_COUNT else min(max(count, 0), MAX_COUNT)


def bounded_row(counts: tuple[int, ...]) -> tuple[int, ...]:
    """At least one count, each as `bounded`."""
    if min(counts) >= 0 and max(counts) <= MAX_COUNT:
        return counts
    return tuple(map(bounded, counts))


def turn_ref(conversation: str, number: int) -> str:
    """What names a turn in events and logs: numbers are counted from 1, and none is given twice."""
    return f"{conversation}-{number}"


def digest8(data: bytes | str) -> str:
    """The first 8 bytes of SHA-256 as 11 characters of base64url: a fingerprint, not a secret.

    Of text it is exact: half a surrogate pair, which UTF-8 cannot hold, counts as what it is.
    """
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()[:8])[:11].decode("ascii")


def fresh_id() -> str:
    """A random id for a conversation that begins: 16 hexadecimal digits."""
    return os.urandom(8).hex()


_Row: TypeAlias = Annotated[tuple[Count, ...], msgspec.Meta(max_length=16)]


class Meta(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What can be said of a conversation without reading it; constant size. Unknown keys survive.

    `created` is in milliseconds since the epoch, `updated` in milliseconds after that. `messages` and
    `turns` count the closed history; `processed` counts every turn ever closed. `total` and `usage` are
    [input, cached, cache write, output, reasoning, requests]; `aside` is the part of `total` that summaries
    and the like consumed. `tokens` is what the next request holds before anything new is said; `gauge`:
    [that number as the last usage had it, reasoning in it that leaves with the turn, tokens estimated for
    the newest messages, what they really were, tokens around the history]. `cost`: [billionths of a US
    dollar that the calls of known price cost, calls of unknown price]. `warned`: how many marks were
    told of, four bits each for the context window, the blob's bytes, those inflated, and entries.
    `turn`: digests of ids and messages of the unfinished turn; `ring`: of finished turns id, messages, status
    and, once it has left the history, the reply's text. `systems`: there are, or were, system messages in
    the history. `signed`: there are blocks that the provider signed over what stands before them;
    `unbound`: some of these do not fit what stands before them now. `carry`: what goes along with each
    request, by name, and until when it is good (milliseconds since the epoch, 0 for ever).
    `info`: the metadata of turns that have left the history, up to 4 KiB; `said`: that of the messages that
    wait in the inbox.
    `rules`: the version of the rules under which the closed history was last known to be valid, 0 for none.
    `failed`: class and code of the error of a turn that failed before a model accepted anything of it; of
    others they are the turn's fact "failed".
    `ask_failed`: how long the conversation was when a compactor last asked a model in vain, see `questions`.
    """

    unshown = frozenset({"info", "said"})

    wire: Label
    family: Label = ""
    model: Name = ""
    id: Name = ""
    rev: Count = 0
    parent: Label = ""
    created: Count = 0
    updated: Count = 0
    status: Label = "complete"
    messages: Count = 0
    turns: Count = 0
    processed: Count = 0
    tokens: Count = 0
    total: _Row = ()
    usage: _Row = ()
    preamble: Label = ""
    tools: Label = ""
    context: Label = ""
    events: Annotated[tuple[Label, ...], msgspec.Meta(max_length=64)] = ()
    sticky: dict[str, Any] = field(default_factory=dict)
    cuts: Annotated[tuple[tuple[Count, Label, Count, Count], ...], msgspec.Meta(max_length=64)] = ()
    turn: Annotated[tuple[tuple[Label, Label], ...], msgspec.Meta(max_length=64)] = ()
    ring: Annotated[
        tuple[tuple[Label, Label, Label, Annotated[str, msgspec.Meta(max_length=32_768)]], ...],
        msgspec.Meta(max_length=64),
    ] = ()
    systems: bool = False
    signed: bool = False
    unbound: bool = False
    carry: Annotated[dict[Label, tuple[Name, Count]], msgspec.Meta(max_length=16)] = field(
        default_factory=dict
    )
    aside: _Row = ()
    gauge: _Row = ()
    cost: _Row = ()
    warned: Count = 0
    rules: Count = 0
    info: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    failed: Annotated[tuple[Label, ...], msgspec.Meta(max_length=2)] = ()
    ask_failed: _Row = ()


IDS_KEPT: Final = 64
"""How many turn ids, and how many event ids, a state remembers."""

_CUTS_KEPT: Final = 16


def with_cut(
    meta: Meta, at: int, by: str, turns: int, messages: int
) -> tuple[tuple[int, str, int, int], ...]:
    """The journal of cuts with one more row; the oldest go, but never the newest that took something away:
    a rewind must not go back beyond that."""
    rows = (*meta.cuts, (at, by[:64], turns, messages))
    kept = rows[-_CUTS_KEPT:]
    if any(row[2] or row[3] for row in kept):
        return kept
    newest = [row for row in rows if row[2] or row[3]][-1:]
    return (*newest, *kept[len(newest) :])


_MAX_INFO_BYTES: Final = 4096


def with_info(meta: Meta, removed: Sequence[TurnRecord]) -> dict[str, str]:
    """What the meta keeps of the metadata of turns, with that of turns that leave the history now. A later
    value replaces an earlier one; what does not fit into 4 KiB with newer ones goes."""
    known = dict(meta.info)
    for record in removed:
        for name, value in record.facts.get("metadata", {}).items():
            known.pop(name, None)
            known[name] = value
    left = _MAX_INFO_BYTES
    kept: dict[str, str] = {}
    for name, value in reversed(known.items()):
        size = len(msgspec.json.encode({name: value}))
        if size <= left:
            left -= size
            kept[name] = value
    return dict(reversed(kept.items()))


def with_cost(meta: Meta, nano: int | None) -> Meta:
    """The meta with the cost of one more model call, in billionths of a dollar; None if it is unknown."""
    known, unknown = (*meta.cost, 0, 0)[:2]
    if not meta.cost and meta.total:
        unknown = 1  # calls of before anybody kept costs
    known, unknown = (known, unknown + 1) if nano is None else (known + nano, unknown)
    return msgspec.structs.replace(meta, cost=bounded_row((known, unknown)))


def dollars_of(meta: Meta) -> Decimal | None:
    """What the conversation cost in its life, in US dollars; None if a part is unknown."""
    if not meta.cost:
        return None if meta.total else Decimal(0)
    return Decimal(meta.cost[0]).scaleb(-9) if not meta.cost[1] else None


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
    return bounded_row(row) if any(row) else ()


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
    """One call of the open reply. `state` is "new", "waiting" (for what `reason` says), "started" or "done";
    a done one has its result."""

    unshown = frozenset({"arguments", "parts"})

    id: str
    name: str
    arguments: str
    kind: CallKind = "function"
    state: Literal["new", "waiting", "started", "done"] = "new"
    reason: Literal["", "approval", "external"] = ""
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
