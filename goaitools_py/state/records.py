"""The records of a state beside its closed turns: meta data, the inbox, the open turn's journal.

Owns: these values, and the facts of the meta data about models, cuts and cost. Must never know: how they are
written to bytes, or the content of an entry.
"""

from __future__ import annotations

import binascii
import hashlib
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from ..base.values import Value, field, replace
from ..types.messages import CallKind, Part, ResultFlag, Usage
from .closed_turns import ClosedTurn, Iteration, TurnRecord
from .letters import ASSISTANT
from .row_codec import (
    MAX_LABEL,
    MAX_NAME,
    NO_MORE,
    Count,
    Label,
    Name,
    bounded,
    bounded_row,
    cut_end,
    inbox_end,
    iteration_facts,
    with_taken,
)

__all__ = [
    "HOSTS_KEPT",
    "IDS_KEPT",
    "MAX_MEDIA",
    "MAX_MODELS",
    "MAX_OPEN_CALLS",
    "MAX_RESTS",
    "PINNED_DROPPED",
    "RULES_VERSION",
    "UNKNOWN_MARK",
    "CutFacts",
    "CutRow",
    "HostRow",
    "InboxItem",
    "JournalCall",
    "MediaRow",
    "Meta",
    "OpenTurn",
    "RingRow",
    "TurnIdRow",
    "cut_facts",
    "digest4",
    "digest8",
    "dollars_of",
    "fresh_id",
    "host_row",
    "model_at",
    "model_index",
    "models_with",
    "turn_ref",
    "usage_of",
    "usage_row",
    "with_cost",
    "with_cut",
    "with_host",
    "with_info",
]


RULES_VERSION: Final = 2
"""Raise it when the rules for histories become stricter, or when a mistake of a writer is found. A state with
an earlier version is then checked, and repaired, once. 2: a failed result of Anthropic's API holds text, and
nothing else."""


UNKNOWN_MARK: Final = "?"
"""In `Meta.preamble` and `Meta.tools`, in place of a digest, after a conversion: another provider API writes
the same preamble and tools in another way, so the next turn cannot compare them."""


def host_row(rows: Sequence[HostRow], host: str) -> HostRow | None:
    """The row of the host with this digest; None without a row."""
    return next((row for row in rows if row.host == host), None)


def with_host(rows: Sequence[HostRow], host: str, rules: str) -> tuple[HostRow, ...]:
    """The rows with these rules of a host, as the newest row. The oldest rows go."""
    found = host_row(rows, host)
    row = HostRow(host, rules) if found is None else found._replace(rules=rules)
    return (*(one for one in rows if one.host != host), row)[-HOSTS_KEPT:]


def turn_ref(conversation: str, number: int) -> str:
    """Name a turn for events and logs. Turns are counted from 1, and no number is given twice."""
    return f"{conversation}-{number}"


def digest8(data: bytes | str) -> str:
    """Give the first 8 bytes of SHA-256 as 11 characters of base64url: a fingerprint, not a secret.

    Different texts have different fingerprints, also where they differ only in half a surrogate pair, which
    UTF-8 cannot hold.
    """
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    written = binascii.b2a_base64(hashlib.sha256(data).digest()[:8], newline=False)
    return written[:11].translate(_URL_SAFE).decode("ascii")


def digest4(data: str) -> str:
    """Give the first 4 bytes of SHA-256 as 8 hexadecimal digits, to find a row among few."""
    return hashlib.sha256(data.encode("utf-8", "surrogatepass")).digest()[:4].hex()


_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def fresh_id() -> str:
    """Make a random id for a new conversation: 16 hexadecimal digits."""
    return os.urandom(8).hex()


MAX_MODELS: Final = 16
"""How many different models a state tells apart."""
_Row: TypeAlias = Annotated[tuple[Count, ...], msgspec.Meta(max_length=16)]


class CutRow(NamedTuple):
    """One cut: when (milliseconds after the conversation began), by which strategy, how much it removed."""

    at: Count
    by: Label
    turns: Count
    messages: Count
    more: msgspec.Raw = NO_MORE


class TurnIdRow(NamedTuple):
    """The digests of a turn's id and of its messages, while the turn is not finished."""

    id: Label
    said: Label
    more: msgspec.Raw = NO_MORE


class RingRow(NamedTuple):
    """A finished turn: the digests of its id and of its messages, its status, and the text of its reply. The
    text is "" while the reply is in the history."""

    id: Label
    said: Label
    status: Label
    text: Annotated[str, msgspec.Meta(max_length=32_768)]
    more: msgspec.Raw = NO_MORE


class HostRow(NamedTuple):
    """The rules that one host of the provider API was found to have: the digest of the API, its host and its
    port, and the letters of the rules (`goaitools_py.backends.host_rules`)."""

    host: Label
    rules: Label
    more: msgspec.Raw = NO_MORE


class MediaRow(NamedTuple):
    """One medium: the digest of its bytes, and the number of the newest cut with a record in the archive that
    names it; 0 without a record. Its part has the same place among the parts with media."""

    digest: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{43}\Z")]
    archived: Count
    more: msgspec.Raw = NO_MORE


MAX_RESTS: Final = 4
"""How many resting compactors a state records."""

MAX_MEDIA: Final = 256
"""How many different media a state stores once. All further media stay in their entries."""


class Meta(Value, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Facts of a conversation that can be read without its entries. Their size is bounded. Keys of a later
    release stay beside them: see `segments`.

    `created`: milliseconds since the epoch; `updated`: milliseconds after `created`.
    `messages`, `turns`: counts of the closed history; `processed`: every turn that was ever closed.
    `total`: [input, cached, cache write, output, reasoning, requests] of the whole life; `usage`: the same of
    the last model call; `aside`: the part of `total` that went into summaries and the like.
    `tokens`: the size of the next request before anything new is said. `gauge`: [that number by the last
    usage, reasoning in it that leaves with the turn, tokens estimated for the newest messages, their real
    number, tokens around the history, and if a server cuts the prompt the tokens that it leaves].
    `cost`: [billionths of a US dollar for the calls of known price, number of calls of unknown price].
    `warned`: how many marks were reported, four bits each for the context window, the blob's bytes, the
    inflated bytes, and entries.
    `turn`: ids and messages of the unfinished turn as digests; `ring`: the rows of finished turns.
    `systems`: there are, or were, system messages in the history.
    `signed`: there are blocks with a provider's signature over everything before them; `unbound`: the
    history before some of them has changed.
    `carry`: values that go along with each request, by name, each with the end of its validity (milliseconds
    since the epoch; 0: no end).
    `info`: the metadata of turns that have left the history, up to 4 KiB; `said`: the metadata of the
    messages that wait in the inbox.
    `rules`: the version of the rules by which the closed history was last found valid; 0: never checked.
    `failed`: class and code of the error of a turn that failed before a model accepted any of it. Other
    turns have them as their fact "failed".
    `ask_failed`: lengths at the last failed question of a compactor to a model, and since; see `questions`.
    `rests`: a row for each compactor that rests; see `history.rewrite.backoff`.
    `title`, `about`: the application's texts about the conversation; a model never sees them.
    `models`: pairs (endpoint family, model); empty while all iterations have `family` and `model`.
    `output`: the digest of the format that the last request asked its answer in; "" for text.
    `hosts`: a row for each host whose refusals have shown its rules, the newest last; at most `HOSTS_KEPT`.
    `gap`: the newest closed turn is not number `processed`. Then the next turn has its number as a fact.
    `media`: a row for each medium that is stored once. While a state is in memory, these are the rows that
    were loaded, and the rows of the archive; the rows of new media are added when the state is written.
    """

    _unshown = frozenset({"about", "info", "said", "title"})

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
    cuts: Annotated[tuple[CutRow, ...], msgspec.Meta(max_length=64)] = ()
    turn: Annotated[tuple[TurnIdRow, ...], msgspec.Meta(max_length=64)] = ()
    ring: Annotated[tuple[RingRow, ...], msgspec.Meta(max_length=64)] = ()
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
    title: Name = ""
    about: dict[str, str] = field(default_factory=dict)
    models: Annotated[tuple[tuple[Label, Name], ...], msgspec.Meta(max_length=MAX_MODELS)] = ()
    gap: bool = False
    media: Annotated[tuple[MediaRow, ...], msgspec.Meta(max_length=4 * MAX_MEDIA)] = ()
    output: Label = ""
    hosts: Annotated[tuple[HostRow, ...], msgspec.Meta(max_length=64)] = ()
    rests: Annotated[tuple[_Row, ...], msgspec.Meta(max_length=MAX_RESTS)] = ()


PINNED_DROPPED: Final = "pinned_dropped"
"""The name in the journal of cuts, in the place of a strategy, for the row directly before a cut that dropped
pinned messages. Its number of messages is theirs."""

HOSTS_KEPT: Final = 8
"""How many hosts a state remembers."""

IDS_KEPT: Final = 64
"""How many turn ids, and how many event ids, a state remembers."""
_CUTS_KEPT: Final = 16


class CutFacts(Value, frozen=True, kw_only=True):
    """The object at the end of a cut's row. `number`: how many turns had ever been closed before the cut.
    `size`, `digest`: bytes and a digest of the entries that the cut took out of the history. `record`: the
    digest of the cut's record in the archive; "" without a record."""

    number: int
    size: int
    digest: str
    record: str = ""


def with_cut(
    meta: Meta, at: int, by: str, turns: int, messages: int, *, removed: Sequence[ClosedTurn] = ()
) -> tuple[CutRow, ...]:
    """Add a row to the journal of cuts. The oldest rows go, but never the newest one that removed something:
    a rewind must not go back beyond it."""
    entries = [entry for turn in removed for entry in turn.entries]
    facts: dict[str, Any] = {"n": bounded(meta.processed)}
    if entries:
        facts |= {"size": sum(map(len, entries)), "sum": digest8(b"\n".join(entries))}
    rows = (*meta.cuts, CutRow(at, by[:64], turns, messages, msgspec.Raw(msgspec.json.encode(facts))))
    kept = rows[-_CUTS_KEPT:]
    if any(row.turns or row.messages for row in kept):
        return kept
    newest = [row for row in rows if row.turns or row.messages][-1:]
    return (*newest, *kept[len(newest) :])


def cut_facts(row: CutRow) -> CutFacts | None:
    """Read the object at the end of a cut's row; None if another writer left it out."""
    end = cut_end(row.more)
    if end.n is None:
        return None
    return CutFacts(number=end.n, size=end.size, digest=end.sum, record=end.record)


def models_with(meta: Meta, family: str, model: str) -> tuple[tuple[str, str], ...]:
    """Give the pairs of `meta.models` with this model among them; () while all requests went to one model.

    There are at most `MAX_MODELS` pairs. The model of an iteration with another pair is recorded as unknown.
    """
    pair = (family[:MAX_LABEL], model[:MAX_NAME])
    known = meta.models or (((meta.family, meta.model),) if meta.model else ())
    if pair in known:
        return meta.models
    return (*known, pair)[:MAX_MODELS] if known else ()


def model_index(meta: Meta) -> int:
    """Give the place of the present model among `meta.models`; `MAX_MODELS` if it is not among them."""
    if not meta.models:
        return 0
    pair = (meta.family, meta.model[:MAX_NAME])
    return meta.models.index(pair) if pair in meta.models else MAX_MODELS


def model_at(meta: Meta, index: int) -> tuple[str, str]:
    """Give endpoint family and model of an iteration; both are "" if they are not known."""
    known = meta.models or ((meta.family, meta.model),)
    return known[index] if 0 <= index < len(known) else ("", "")


_MAX_INFO_BYTES: Final = 4096


def with_info(meta: Meta, removed: Sequence[TurnRecord]) -> dict[str, str]:
    """Add the metadata of turns that leave the history to `meta.info`. A later value replaces an earlier one.
    Newer names come first; a name that does not fit into 4 KiB with them goes."""
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
    """Add the cost of one more model call, in billionths of a US dollar; None if it is unknown."""
    known, unknown = (*meta.cost, 0, 0)[:2]
    if not meta.cost and meta.total:
        unknown = 1  # the costs of the earlier calls were not recorded
    known, unknown = (known, unknown + 1) if nano is None else (known + nano, unknown)
    return msgspec.structs.replace(meta, cost=bounded_row((known, unknown)))


def dollars_of(meta: Meta) -> Decimal | None:
    """Give the cost of the conversation's whole life in US dollars; None if a part is unknown."""
    if not meta.cost:
        return None if meta.total else Decimal(0)
    return Decimal(meta.cost[0]).scaleb(-9) if not meta.cost[1] else None


def usage_row(usage: Usage) -> tuple[int, ...]:
    """Give a usage as the tuple that is stored; () if all its counts are 0."""
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
    """Read the usage that `usage_row` made."""
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


def counts_of(meta: Meta, opened: OpenTurn | None) -> dict[str, Any]:
    """The fields of an event that tell how large a conversation is: its messages, and its tokens for life."""
    messages = meta.messages + (opened.messages if opened is not None else 0)
    return {"message_count": messages, "total_usage": usage_of(meta.total)}


class InboxItem(Value, frozen=True, kw_only=True):
    """A message that no model has seen: its entry, its role letter and, for events, topic and id digest.

    `more`: the JSON object at the end of its row, as in `Iteration`.
    """

    _unshown = frozenset({"entry", "more"})

    entry: bytes
    letter: str
    topic: str = ""
    event: str = ""
    more: bytes = b""

    @property
    def speaker(self) -> str | None:
        """The speaker of the message, if it is recorded."""
        return inbox_end(self.more).who if self.more else None

    @property
    def pinned(self) -> bool | None:
        """True or False if the message is pinned or unpinned against the rule of its role, else None."""
        pin = inbox_end(self.more).pin if self.more else None
        return None if pin is None else bool(pin)

    @property
    def id(self) -> str:
        """The id under which the message can be withdrawn; "" without one. An event with an id of its own has
        the digest of that id."""
        return (inbox_end(self.more).id if self.more else "") or self.event

    @property
    def turn(self) -> str:
        """The digest of the id of the turn that the message was sent with; "" if it came without a turn."""
        end = inbox_end(self.more) if self.more else None
        return "" if end is None else end.turn or end.id

    @property
    def claim(self) -> str | bool:
        """The mark of the claim while a turn has claimed the message; "" without a claim."""
        return inbox_end(self.more).taken if b'"taken"' in self.more else ""

    @property
    def is_taken(self) -> bool:
        """True while a turn has claimed the message."""
        return bool(self.claim)

    def claimed(self, claim: str) -> InboxItem:
        """This message with this mark of a claim; "" for no mark. The same object if that is so already."""
        return self if self.claim == claim else replace(self, more=with_taken(self.more, claim))


class JournalCall(Value, frozen=True, kw_only=True):
    """One call of the open reply.

    `state`: "new", "waiting" (see `reason`), "started", or "done": then `flag` and `parts` are its
    result. `extras`: the keys of a later release.
    """

    _unshown = frozenset({"arguments", "parts", "extras"})

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
    extras: Mapping[str, msgspec.Raw] = {}


MAX_OPEN_CALLS: Final = 20_000
"""The most calls of one reply. A call takes 5 KB in memory, and perhaps one byte of a blob. A reply with more
would have 200,000 tokens; no model writes so many."""


class OpenTurn(Value, frozen=True, kw_only=True):
    """The unfinished turn: the entries that a model has accepted, and the journal of its last reply's calls.

    `entries`: they end with the raw reply while `calls` are open.
    `letters`: the role letters of the entries that belong to no iteration yet.
    `messages`: how many messages the turn has.
    `partial`: the text of a reply that broke off. It is kept and flagged, and never sent.
    `extras`: the keys of a later release; they go when the turn is closed.
    """

    _unshown = frozenset({"partial", "facts", "entries", "extras"})

    at: int
    entries: tuple[bytes, ...] = ()
    iterations: tuple[Iteration, ...] = ()
    letters: str = ""
    messages: int = 0
    calls: tuple[JournalCall, ...] = ()
    partial: str = ""
    facts: Mapping[str, Any] = {}
    extras: Mapping[str, msgspec.Raw] = {}

    @property
    def roles(self) -> str:
        """The role letters of all entries."""
        return "".join([*[iteration.roles for iteration in self.iterations], self.letters])

    @property
    def unanswered(self) -> tuple[bytes, ...]:
        """The entries that no reply follows yet."""
        return self.entries[len(self.entries) - len(self.letters) :]

    @property
    def last_reply(self) -> tuple[bytes, ...]:
        """The entries of the last model call's reply; () without a reply."""
        roles = self.iterations[-1].roles if self.iterations else ""
        end = len(self.entries) - len(self.letters)
        return self.entries[end - (len(roles) - len(roles.rstrip(ASSISTANT))) : end]

    def closed(self) -> ClosedTurn:
        """Close the turn. Entries without a reply become an iteration of their own."""
        facts = self.facts
        who, pin = facts.get("who"), facts.get("pin")
        if who is not None or pin is not None:
            facts = {name: value for name, value in facts.items() if name not in ("who", "pin")}
        more = iteration_facts(0, who, pin=pin)
        rest = (Iteration(roles=self.letters, more=more),) if self.letters else ()
        return ClosedTurn(
            self.entries,
            TurnRecord(
                at=self.at,
                messages=self.messages,
                iterations=(*self.iterations, *rest),
                facts=facts,
            ),
        )
