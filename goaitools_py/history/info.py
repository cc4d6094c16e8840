"""Facts about a state that need no reading of its messages.

Owns: `StateInfo`, and the functions that read only meta data, inbox, open turn and the roles of entries. Must
never know: the JSON of an entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal

from ..backends.base import Dialect
from ..backends.capabilities import capabilities
from ..backends.dialects import dialect_for
from ..base.values import Value, field
from ..open_turn import journal
from ..open_turn.meter import next_tokens, server_window
from ..open_turn.steps import failure_of
from ..state.apart import blob_size
from ..state.blob_header import peek
from ..state.codec import PLAIN, SUITE_PLAIN, SUITES, BlobLimits, Codec
from ..state.letters import ASSISTANT, EVENT, SYSTEM, TOOL, USER
from ..state.parts import ARCHIVE, MEDIA, RESULT, Part
from ..state.records import counts_of, dollars_of, turn_ref, usage_of
from ..state.segments import count_letters
from ..state.state import ConversationState, hard_limits, load_state, newest_number, soft_limits
from ..state.whole_blobs import outline
from ..types.answers import PendingCall
from ..types.errors import StateError, StateInvalidError
from ..types.events import Filled
from ..types.messages import Usage
from ..types.options import CONTEXT_MARKS
from ..types.tokens import TokenCounter

__all__ = [
    "StateInfo",
    "estimate_tokens",
    "has_open_turn",
    "inspect_state",
    "pending_calls",
    "refs_of",
    "when",
]


class StateInfo(Value, frozen=True, kw_only=True):
    """Facts about a conversation. Sizes are in bytes.

    Attributes:
        status: "complete"; "awaiting_tools" if calls wait for answers, see `pending_calls`; "in_progress" or
            "failed" for a turn that `resume` can finish. "sealed" if the key of the state was not given. Then
            only `suite`, `key_id`, sizes of the blob and of its parts, and `format_version` are known, and
            not verified. All other facts are empty, and times are in the year 1.
        tokens: Input tokens of the next request before new messages: the last real usage, plus an estimate of
            the entries since then.
        aside_usage: The part of `total_usage` that compaction consumed, such as for summaries.
        total_cost_usd: See `ChatResult.total_cost_usd`.
        context_window: The context window of the model in tokens; None for an unknown model. If the server
            has cut a longer prompt: the tokens that it kept.
        cuts: The cuts, the newest last: (time, name of the strategy, turns removed, messages removed).
        failure: Class and code of the error that the unfinished turn ended with, such as
            ``("RateLimitError", "rate_limit_exceeded")``. The code is "" if the provider gave no code.
        roles: How many stored entries of the history each role has: "user", "event", "assistant", "tool",
            "system". A reply may take several entries, and the results of several calls may be one.
        filled: How much of each limit the history takes, as a fraction: "tokens" of the context window if
            that is known, "blob_bytes", "decoded_bytes" and "entries" of the codec's limits.
        sticky_settings: The settings that `sticky_settings=True` keeps for the next turns.
        pending: The calls that `resume` takes answers for; see `pending_calls`.
        turn_ids: How many ids of turns the state remembers, to recognise a turn that comes again.
        event_ids: The same of events.
        topics: The topics of the waiting events.
        archive_bytes: The stored size of the archive, in the blob or in a store; `archive_records`: how many
            cuts and changes it has.
        media_bytes: The stored size of the media parts; `media`: how many media they hold.
        result_bytes: The stored size of the long results that are kept whole; `results`: how many these are.
        suite: How the blob is protected: "plain", "signed" or "encrypted".
        key_id: The id of the key that protects it, as `Key.id`; 0 without one.
        title: The title that the application gave the conversation; see `update_state`.
        metadata: The metadata that the application gave the conversation; see `update_state`.
    """

    _unshown = frozenset({"title", "metadata", "topics", "sticky_settings"})

    wire: str
    endpoint: str
    model: str
    conversation_id: str
    revision: int
    status: str
    created_at: datetime
    updated_at: datetime
    turns: int
    turns_processed: int
    messages: int
    waiting_messages: int
    open_calls: int
    tokens: int
    usage: Usage
    total_usage: Usage
    blob_bytes: int
    history_bytes: int
    format_version: int
    has_preamble: bool
    has_tools: bool
    aside_usage: Usage = Usage()
    total_cost_usd: Decimal | None = None
    context_window: int | None = None
    cuts: tuple[tuple[datetime, str, int, int], ...] = ()
    failure: tuple[str, str] | None = None
    title: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, int] = field(default_factory=dict)
    filled: Mapping[Filled, float] = field(default_factory=dict)
    sticky_settings: Mapping[str, Any] = field(default_factory=dict)
    pending: tuple[PendingCall, ...] = ()
    turn_ids: int = 0
    event_ids: int = 0
    topics: tuple[str, ...] = ()
    archive_bytes: int = 0
    archive_records: int = 0
    media_bytes: int = 0
    media: int = 0
    result_bytes: int = 0
    results: int = 0
    suite: str = "plain"
    key_id: int = 0

    @property
    def is_sealed(self) -> bool:
        """True if the state has a key that was not given, so that most facts are empty."""
        return self.status == "sealed"

    @property
    def warning_level(self) -> Literal["", "approaching", "at_limit"]:
        """How near the history is to a limit: "approaching" from 70 %, "at_limit" from 90 % of the fullest in
        `filled`. These are the default `context_marks`; a chat with other marks warns at its own marks."""
        fullest = max(self.filled.values(), default=0.0)
        approaching, at_limit = CONTEXT_MARKS
        return "at_limit" if fullest >= at_limit else "approaching" if fullest >= approaching else ""

    @property
    def context_fraction(self) -> float | None:
        """The part of the model's context window in use; None if the window is not known."""
        return self.tokens / self.context_window if self.context_window else None


def when(created: int, ms: int) -> datetime:
    """The time `ms` milliseconds after `created`. Raises `StateInvalidError` for an impossible time."""
    try:
        return datetime.fromtimestamp(created / 1000, UTC) + timedelta(milliseconds=ms)
    except (OverflowError, ValueError, OSError) as exc:
        raise StateInvalidError("the state holds a time that no calendar has") from exc


def has_open_turn(blob: bytes, *, codec: Codec, binding: Any) -> bool:
    """True if a turn of the state is not finished. False for a state that cannot be read."""
    try:
        return load_state(blob, codec=codec, binding=binding).open is not None
    except StateError:
        return False


def refs_of(blob: bytes, *, codec: Codec, binding: Any) -> dict[str, Any]:
    """The ids and counts of an event between two turns; see `Event`, and `counts_of`."""
    state = load_state(blob, codec=codec, binding=binding)
    id = state.meta.id
    refs = {"conversation_id": id, "turn_ref": turn_ref(id, newest_number(state))}
    return {**refs, **counts_of(state.meta, state.open)}


def inspect_state(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
) -> StateInfo:
    """Describe a blob of any provider API, without reading its messages.

    Without the key of a sealed blob it gives the public facts; see `StateInfo.status`. With a key, or with
    `min_revision`, a blob that the key does not open is refused.

    Raises `StateError` if the blob cannot be read.
    """
    if codec.suite == SUITE_PLAIN and min_revision is None and peek(blob).suite != SUITE_PLAIN:
        return _sealed(blob, hard_limits(codec))
    state = load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    meta = state.meta
    header, parts = outline(blob, hard_limits(codec))
    opened = state.open
    window = capabilities(meta.model).context_window if meta.model else None
    if cut := server_window(meta):
        window = min(cut, window or cut)
    return StateInfo(
        wire=meta.wire,
        endpoint=meta.family,
        model=meta.model,
        conversation_id=meta.id,
        revision=meta.rev,
        status=meta.status,
        created_at=when(meta.created, 0),
        updated_at=when(meta.created, meta.updated),
        turns=meta.turns,
        turns_processed=meta.processed,
        messages=meta.messages + (opened.messages if opened else 0),
        waiting_messages=len(state.inbox),
        open_calls=sum(1 for call in opened.calls if call.state != "done") if opened else 0,
        tokens=meta.tokens,
        usage=usage_of(meta.usage),
        total_usage=usage_of(meta.total),
        blob_bytes=blob_size(blob),
        history_bytes=state.history_bytes(),
        format_version=header.version,
        has_preamble=bool(meta.preamble),
        has_tools=bool(meta.tools),
        aside_usage=usage_of(meta.aside),
        total_cost_usd=dollars_of(meta),
        context_window=window,
        cuts=tuple((when(meta.created, row.at), row.by, row.turns, row.messages) for row in meta.cuts),
        failure=failure_of(state),
        title=meta.title,
        metadata=dict(meta.about),
        roles=_roles(state),
        filled=_filled(state, window, blob_size(blob), soft_limits(codec)),
        sticky_settings=dict(meta.sticky),
        pending=journal.pending(state),
        turn_ids=len({row.id for row in meta.ring} | {row.id for row in meta.turn}),
        event_ids=len(meta.events),
        topics=tuple(dict.fromkeys(item.topic for item in state.inbox if item.topic)),
        suite=SUITES[header.suite],
        key_id=header.key_id,
        **_stored(parts),
    )


_ROLES: Final = {USER: "user", EVENT: "event", ASSISTANT: "assistant", TOOL: "tool", SYSTEM: "system"}


def _roles(state: ConversationState) -> dict[str, int]:
    found = Counter(state.open.roles if state.open is not None else "")
    for segment in state.segments:
        found += count_letters(segment)
    return {role: found[letter] for letter, role in _ROLES.items() if found[letter]}


def _filled(
    state: ConversationState, window: int | None, blob_bytes: int, soft: BlobLimits
) -> dict[Filled, float]:
    opened = state.open.entries if state.open is not None else ()
    waiting = [item.entry for item in state.inbox]
    decoded = state.history_bytes() + sum(map(len, (*opened, *waiting)))
    entries = sum(segment.entries for segment in state.segments) + len(opened) + len(waiting)
    found: dict[Filled, float] = {"tokens": state.meta.tokens / window} if window else {}
    return found | {
        "blob_bytes": blob_bytes / soft.max_blob_bytes,
        "decoded_bytes": decoded / soft.max_decoded_bytes,
        "entries": entries / soft.max_entries,
    }


def _stored(parts: Sequence[Part]) -> dict[str, Any]:
    """The bytes of archive, media and results as stored, and how many of each there are."""
    archive, media, results = (
        [part for part in parts if part.kind == kind] for kind in (ARCHIVE, MEDIA, RESULT)
    )
    return {
        "archive_bytes": sum(part.stored_len for part in archive),
        "archive_records": sum(part.entries for part in archive),
        "media_bytes": sum(part.stored_len for part in media),
        "media": sum(part.entries for part in media),
        "result_bytes": sum(part.stored_len for part in results),
        "results": len(results),
    }


_NO_TIME: Final = datetime.min.replace(tzinfo=UTC)


def _sealed(blob: bytes | bytearray | memoryview, limits: BlobLimits) -> StateInfo:
    """The public facts of a sealed blob, without its key."""
    header, parts = outline(blob, limits)
    return StateInfo(
        wire="",
        endpoint="",
        model="",
        conversation_id="",
        revision=0,
        status="sealed",
        created_at=_NO_TIME,
        updated_at=_NO_TIME,
        turns=0,
        turns_processed=0,
        messages=0,
        waiting_messages=0,
        open_calls=0,
        tokens=0,
        usage=Usage(),
        total_usage=Usage(),
        blob_bytes=blob_size(blob),
        history_bytes=0,
        format_version=header.version,
        has_preamble=False,
        has_tools=False,
        suite=SUITES[header.suite],
        key_id=header.key_id,
        **_stored(parts),
    )


def pending_calls(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
) -> tuple[PendingCall, ...]:
    """The calls that `resume` takes answers for, of a blob of any provider API.

    These are the calls that wait for an approval or for a result from outside, and the calls that had started
    when their process died. Raises `StateError` if the blob cannot be read.
    """
    return journal.pending(load_state(blob, codec=codec, binding=binding, min_revision=min_revision))


def estimate_tokens(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    counter: TokenCounter | None = None,
    dialect: Dialect | None = None,
) -> int:
    """Estimate the input tokens of the next request, without new messages. Waiting messages are counted.

    The estimate starts from the last real usage, which includes preamble and tools of that request. For the
    provider's own number see `Chat.count_tokens`.

    Args:
        blob: The conversation, of any provider API.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        counter: Counts the entries after the last usage; None: `TokenEstimate`.
        dialect: The dialect of a provider API that is not built in.

    Raises:
        StateError: The blob cannot be read, or its provider API is not built in: pass `dialect`.
    """
    state = load_state(blob, codec=codec, binding=binding)
    return next_tokens(state, dialect_for(state.meta.wire, dialect), counter)
