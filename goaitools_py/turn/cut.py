"""Cutting a state's history: what a compactor sees of it, and the state that follows.

Owns: the way from `ConversationState` to `CompactionRequest` and back. Must never know: when to cut.
"""

from __future__ import annotations

import base64
import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from ..backends.base import CompactsHistory, Dialect
from ..compaction.base import CompactionRequest
from ..compaction.strategies import drop_to, fitting
from ..compaction.turns import TurnView, note_of
from ..messages import Message, ToolResult
from ..reading import read_entries
from ..render import note_message
from ..result import CompactionReport
from ..state.codec import LIMITS, BlobLimits, Codec
from ..state.records import Iteration, Meta, TurnRecord, usage_of, with_cut, with_info
from ..state.state import ConversationState, closed_turns, rebuild
from ..values import Value, replace
from .contexts import with_newest_context
from .meter import gauge_of, next_tokens
from .questions import row_after_cut
from .room import Size, stored_size, written_size
from .turn_ids import given_up, reply_of, with_texts
from .unsign import Turn, is_signed, unsigned_turns

__all__ = [
    "LimitCut",
    "compaction_request",
    "cut_to",
    "emergency_turns",
    "is_providers",
    "limit_cut",
    "removed_turns",
]


class _Words(Value, frozen=True):
    """A dialect's words, and this conversation's tokens for each of their bytes."""

    dialect: Dialect
    tokens_per_byte: float

    def read(self, entries: Sequence[bytes]) -> tuple[Message, ...]:
        return read_entries(self.dialect, entries)

    def write(
        self, messages: Sequence[Message], turn: Sequence[Message], flags: Mapping[str, Any]
    ) -> tuple[bytes, ...]:
        if all(message.role != "tool" for message in messages):
            return tuple(self.dialect.entries(messages))
        calls = {call.id: call for message in turn for call in message.tool_calls}
        results: list[ToolResult] = []
        for message in messages:
            call = calls.get(message.tool_call_id or "")
            if message.role != "tool" or call is None:
                raise ValueError("a piece of tool results can only be replaced by results of the same calls")
            results.append(
                ToolResult(
                    call_id=call.id,
                    name=call.name,
                    parts=message.parts,
                    flag=flags.get(call.id, "ok"),
                    kind=call.kind,
                )
            )
        return tuple(self.dialect.results(results))

    def is_settled(self, entries: Sequence[bytes]) -> bool:
        return all(new is old for new, old in zip(self.dialect.settled(entries), entries, strict=True))

    def tokens(self, entries: Sequence[bytes]) -> int:
        return round(sum(map(len, entries)) * self.tokens_per_byte)

    def is_boundary(self, entry: bytes) -> bool:
        return isinstance(self.dialect, CompactsHistory) and self.dialect.is_boundary(entry)


def _words(state: ConversationState, dialect: Dialect, size: int) -> _Words:
    """`size`: bytes of the closed turns' entries. With what is stored beside them they would seem lighter
    than they are, more so at each cut."""
    size += sum(map(len, state.open.entries if state.open is not None else ()))
    tokens = state.meta.tokens - gauge_of(state.meta).frame
    return _Words(dialect, tokens / size if tokens > 0 and size else 0.25)


def _views(state: ConversationState, dialect: Dialect) -> tuple[TurnView, ...]:
    turns = closed_turns(state)
    words = _words(state, dialect, sum(len(entry) for entries, _ in turns for entry in entries))
    return tuple(
        TurnView(
            position=position,
            message_count=record.messages,
            tokens=words.tokens(entries),
            entries=entries,
            roles=tuple(iteration.roles for iteration in record.iterations),
            words=words,
            facts=record.facts,
            seconds=record.at / 1000,
            id=_id_of(state.meta.id, entries, record),
        )
        for position, (entries, record) in enumerate(turns)
    )


def _id_of(conversation: str, entries: Sequence[bytes], record: TurnRecord) -> str:
    """What tells a turn from every other. When it began does not: a clock may be set back, and a summary
    begins when the first of its turns did."""
    number = record.facts.get("number", "")
    told = hashlib.sha256(f"{conversation}\n{record.at}\n{number}".encode("utf-8", "surrogatepass"))
    for entry in entries:
        told.update(b"\n")
        told.update(entry)
    return base64.b32encode(told.digest()[:15]).decode().lower()


def _note(words: _Words, text: str, kind: str) -> TurnView:
    return note_of(words, words.dialect.entries([note_message(text, kind)]), kind)


def compaction_request(
    state: ConversationState,
    dialect: Dialect,
    *,
    blob_bytes: Callable[[], int],
    most_blob_bytes: int = 2**63,
    context_window: int | None = None,
    idle_seconds: float = 0.0,
    is_cold: bool = False,
) -> CompactionRequest:
    """What a compactor may look at. Nothing is parsed before it asks for the turns."""
    opened, meta = state.open, state.meta
    size = state.history_bytes()
    return CompactionRequest(
        message_count=meta.messages
        + len(state.inbox)
        + (opened.messages + len(opened.calls) if opened is not None else 0),
        turn_count=meta.turns,
        pending_count=len(state.inbox),
        token_count=next_tokens(state, dialect),
        history_bytes=size,
        usage=usage_of(meta.usage),
        most_blob_bytes=most_blob_bytes,
        context_window=context_window,
        idle_seconds=idle_seconds,
        is_cold=is_cold,
        load_turns=partial(_views, state, dialect),
        load_blob_bytes=blob_bytes,
        write_note=partial(_note, _words(state, dialect, size)),
    )


def removed_turns(request: CompactionRequest, kept: Sequence[TurnView]) -> tuple[TurnView, ...]:
    """The turns that go or are rewritten, as they were."""
    stays = {view.position for view in kept if view.position >= 0 and view is request.turns[view.position]}
    return tuple(view for view in request.turns if view.position not in stays)


def cut_to(
    state: ConversationState,
    request: CompactionRequest,
    kept: Sequence[TurnView],
    dialect: Dialect,
    *,
    by: str,
    at: int,
    limits: BlobLimits = LIMITS,
) -> tuple[ConversationState, CompactionReport]:
    """The state with only the `kept` turns, and what that changed.

    Of the context blocks the newest stays. What was signed over the turns that go is taken out of those that
    stay. An open turn is not touched;
    if it holds signed blocks, they do not fit any more, and its state says so (`Meta.unbound`).

    `at`: milliseconds after the conversation began; it goes into the state's journal of cuts.
    `limits`: those of the state, of which the replies that leave the history for the meta data take a part.
    """
    turns = closed_turns(state)
    before = request.turns
    made = [_turn(view, turns, before) for view in kept]
    still = state.meta.signed
    if is_providers(kept, request):
        rest, has_context, fits = made, False, not state.meta.unbound
    else:
        placed = [(view.position, turn) for view, turn in zip(kept, made, strict=True)]
        rest, has_context = with_newest_context(state, turns, placed, dialect)
        fits = False
        if still:
            rest = unsigned_turns(rest, dialect)
            still = state.open is not None and is_signed(state.open.entries, dialect)
    rebuilt = rebuild(state, rest)
    stays = {view.position for view in kept}
    removed = [turn for position, turn in enumerate(turns) if position not in stays]
    reworded = [
        turns[view.position]
        for view, turn in zip(kept, made, strict=True)
        if view.position >= 0 and tuple(reply_of(*turn)) != tuple(reply_of(*turns[view.position]))
    ]
    messages = sum(record.messages for _, record in rest)
    tokens = sum(view.tokens for view in kept)
    if kept and state.open is not None:
        tokens += kept[0].words.tokens(state.open.entries)
    size = sum(len(entry) for entries, _ in rest for entry in entries)
    report = CompactionReport(
        outcome="compacted",
        by=by,
        removed_turns=len(removed),
        rewritten_turns=sum(view.position >= 0 and view is not before[view.position] for view in kept),
        removed_messages=max(0, state.meta.messages - messages),
        messages_before=state.meta.messages,
        messages_after=messages,
        bytes_before=sum(view.entry_bytes for view in before),
        bytes_after=size,
        tokens_before=sum(view.tokens for view in before),
        tokens_after=sum(view.tokens for view in kept),
    )
    meta = msgspec.structs.replace(
        given_up(
            with_texts(state.meta, [*removed, *reworded], dialect, limits=limits),
            [record for _, record in removed],
        ),
        messages=messages,
        turns=len(kept),
        tokens=tokens + gauge_of(state.meta).frame,
        context=state.meta.context if has_context else "",  # say it again
        signed=still,
        unbound=still and not fits,
        cuts=with_cut(state.meta, at, by, report.removed_turns, report.removed_messages),
        info=with_info(state.meta, [record for _, record in removed]),
        ask_failed=row_after_cut(state.meta.ask_failed, state.history_bytes(), rebuilt.history_bytes()),
    )
    return replace(rebuilt, meta=meta), report


def is_providers(kept: Sequence[TurnView], request: CompactionRequest) -> bool:
    """True for a cut of the provider's own making: what it has signed in the turns that stay holds good.

    Its compaction comes first, and then the newest turns as they were.
    """
    if not kept or not kept[0].has_boundary:
        return False
    rest = kept[1:] if kept[0].position < 0 else kept
    newest = request.turns[len(request.turns) - len(rest) :]
    return all(map(operator.is_, rest, newest))


def _turn(view: TurnView, turns: Sequence[Turn], before: Sequence[TurnView]) -> Turn:
    """A turn as it is stored: as it was, rewritten, or a note, which begins when the oldest turn did."""
    if view.position < 0:
        at = turns[0][1].at if turns else 0
        iterations = tuple(Iteration(roles=roles) for roles in view.roles)
        return view.entries, TurnRecord(
            at=at, messages=view.message_count, iterations=iterations, facts=view.facts
        )
    entries, record = turns[view.position]
    if view is before[view.position]:
        return entries, record
    iterations = tuple(
        replace(iteration, roles=roles)
        for iteration, roles in zip(record.iterations, view.roles, strict=True)
    )
    return view.entries, replace(
        record, messages=view.message_count, iterations=iterations, facts={**record.facts, "rewritten": True}
    )


def emergency_turns(request: CompactionRequest) -> Sequence[TurnView]:
    """The newest turns that make up at most half of the history's bytes, never fewer than one."""
    turns = request.turns
    return drop_to(turns, sum(turn.entry_bytes for turn in turns) // 2, lambda turn: turn.entry_bytes)


_SHARES: Final = (0.95, 0.85, 0.6, 0.3, 0.0)
"""Parts of the limits to cut to, the first that fits. With the first one the next turns need no cut; the
others are for histories whose newest turns compress less, or are rewritten."""

_ROWS_KEPT: Final = 8
"""Rows of each kind in the meta data that stay where even without a history there is no room."""


class LimitCut(Value, frozen=True, kw_only=True):
    """A cut that brings a state within its limits: the turns that stay, and the state then."""

    unshown = frozenset({"kept", "state"})

    kept: Sequence[TurnView]
    state: ConversationState
    report: CompactionReport


def limit_cut(
    state: ConversationState,
    request: CompactionRequest,
    dialect: Dialect,
    *,
    codec: Codec,
    limits: BlobLimits,
    fits: Callable[[ConversationState], bool],
    least: int,
    at: int,
) -> LimitCut | None:
    """Drop the oldest turns, as few as it takes for the state to fit; None if no cut helps.

    Args:
        state: The conversation.
        request: Its turns.
        dialect: The wire's words.
        codec: Says whether a blob is compressed.
        limits: What to come within.
        fits: Says of a state that it is within them.
        least: How many turns stay in any case.
        at: Milliseconds after the conversation began.
    """
    turns = request.turns
    closed = stored_size(replace(state, inbox=()), codec)
    size = written_size(state, codec)
    entry_bytes = sum(turn.entry_bytes for turn in turns)
    tried = len(turns)
    for share in _SHARES:
        targets = _targets(limits, share, size, closed, entry_bytes)
        kept = fitting(turns, targets, least) if share else turns[len(turns) - least :]
        if len(kept) >= tried:
            continue
        tried = len(kept)
        cut, report = cut_to(state, request, kept, dialect, by="emergency", at=at, limits=limits)
        if not fits(cut) and len(kept) == least:
            cut = replace(cut, meta=_lean(cut.meta))
        if fits(cut):
            return LimitCut(kept=kept, state=cut, report=report)
    return None


def _targets(
    limits: BlobLimits, share: float, size: Size, closed: Size, entry_bytes: int
) -> list[tuple[Callable[[TurnView], int], int]]:
    """How much of all turns may stay: of their bytes, and of their entries."""
    parts = [
        (share * limit - (whole - own)) / max(1, own)
        for limit, whole, own in (
            (limits.max_blob_bytes, size.blob, closed.blob),
            (limits.max_decoded_bytes, size.decoded, closed.decoded),
            (limits.max_segments, size.segments, closed.segments),
        )
    ]
    most_entries = share * limits.max_entries - (size.entries - closed.entries)
    return [
        (lambda turn: turn.entry_bytes, int(max(0.0, min(parts)) * entry_bytes)),
        (lambda turn: len(turn.entries), int(max(0.0, most_entries))),
    ]


def _lean(meta: Meta) -> Meta:
    """The meta data with only the newest of what they remember, and no replies."""
    ring = tuple((id, said, status, "") for id, said, status, _ in meta.ring[-_ROWS_KEPT:])
    return msgspec.structs.replace(
        meta, ring=ring, events=meta.events[-_ROWS_KEPT:], cuts=meta.cuts[-_ROWS_KEPT:]
    )
