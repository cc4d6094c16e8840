"""Cut the history of a state: the request for a compactor, and the new state.

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

from ...backends.base import Dialect
from ...backends.protocols import CompactsHistory
from ...backends.read_entries import read_entries
from ...base.json_scan import separators
from ...base.values import Value, replace
from ...compaction.base import CompactionRequest
from ...compaction.compactor import RECALL, with_recall_note
from ...compaction.strategies import drop_to, fitting
from ...compaction.turn_views import TurnView, note_of, with_pinned, without_oldest_pins
from ...open_turn.meter import gauge_of, next_tokens, server_window
from ...open_turn.room import Size, stored_size, written_size
from ...open_turn.turn_ids import given_up, with_texts
from ...state.closed_turns import ClosedTurn, Iteration, TurnRecord, has_gap, numbers_of, with_numbers
from ...state.codec import LIMITS, BlobLimits, Codec
from ...state.letters import EVENT, SYSTEM, USER, Mark
from ...state.records import PINNED_DROPPED, Meta, usage_of, with_cut, with_info
from ...state.state import ConversationState, closed_turns, rebuild
from ...types.messages import Message, ToolResult
from ...types.render import note_message
from ...types.result import CompactionReport
from ..archive_keeping import Retention, marked, with_record
from .backoff import is_resting, row_after_cut
from .contexts import with_newest_context
from .rewritten import is_signed, unsigned_turns

__all__ = [
    "EMERGENCY",
    "LimitCut",
    "compaction_request",
    "cut_to",
    "emergency_turns",
    "is_providers",
    "limit_cut",
    "lost_pins",
    "removed_turns",
]


class _Words(Value, frozen=True):
    """Reads and writes entries for a strategy, and estimates their tokens from their bytes."""

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
    """The words of a state. `size`: the bytes of the entries of its closed turns.

    Only entries count: with the bytes stored beside them the rate would be too low, and lower at each cut.
    """
    size += sum(map(len, state.open.entries if state.open is not None else ()))
    tokens = state.meta.tokens - gauge_of(state.meta).frame
    return _Words(dialect, tokens / size if tokens > 0 and size else 0.25)


def _views(state: ConversationState, dialect: Dialect) -> tuple[TurnView, ...]:
    turns = closed_turns(state, checked=False)
    words = _words(
        state, dialect, sum(len(entry) for turn in turns if turn.record.is_sent for entry in turn.entries)
    )
    numbers = numbers_of([turn.record for turn in turns])
    return tuple(
        TurnView(
            position=position,
            message_count=turn.record.messages,
            tokens=words.tokens(turn.entries) if turn.record.is_sent else 0,
            entries=turn.entries,
            roles=tuple(iteration.roles for iteration in turn.record.iterations),
            words=words,
            facts=turn.record.facts,
            seconds=turn.record.at / 1000,
            id=_id_of(state.meta.id, turn, number),
            marks=_marks(turn),
        )
        for position, (turn, number) in enumerate(zip(turns, numbers, strict=True))
    )


def _marks(turn: ClosedTurn) -> dict[int, Mark]:
    """Speakers and pins, by the place of the message in the turn."""
    found: dict[int, Mark] = {}
    start = 0
    for iteration in turn.record.iterations:
        if iteration.more:
            found.update({start + at: mark for at, mark in iteration.marks.items()})
        start += len(iteration.roles)
    return found


def _id_of(conversation: str, turn: ClosedTurn, number: int) -> str:
    """An id that no other turn has.

    The time alone is not enough: a clock may be set back, and a summary has the time of its first turn.
    """
    record = turn.record
    told = hashlib.sha256(f"{conversation}\n{record.at}\n{number}".encode("utf-8", "surrogatepass"))
    for entry in turn.entries:
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
    """Make the request for a compactor. The history is parsed only when the compactor asks for the turns."""
    opened, meta = state.open, state.meta
    size, tokens = state.history_bytes(), next_tokens(state, dialect)
    return CompactionRequest(
        message_count=meta.messages
        + len(state.inbox)
        + (opened.messages + len(opened.calls) if opened is not None else 0),
        turn_count=meta.turns,
        pending_count=len(state.inbox),
        token_count=tokens,
        history_bytes=size,
        usage=usage_of(meta.usage),
        most_blob_bytes=most_blob_bytes,
        context_window=context_window,
        server_window=server_window(meta) or None,
        idle_seconds=idle_seconds,
        is_cold=is_cold,
        rests=lambda compactor: is_resting(state, compactor, tokens),
        load_turns=partial(_views, state, dialect),
        load_blob_bytes=blob_bytes,
        write_note=partial(_note, _words(state, dialect, size)),
    )


def removed_turns(request: CompactionRequest, kept: Sequence[TurnView]) -> tuple[TurnView, ...]:
    """The turns that the cut removes or rewrites, as they were before."""
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
    retention: Retention | None = None,
) -> tuple[ConversationState, CompactionReport]:
    """The state with only the `kept` turns, and a report of the change.

    The newest context block stays. Signed blocks are taken out of the kept turns, because their prefix
    changes. An open turn is not changed. Its signed blocks do not fit any more, and the state says so
    (`Meta.unbound`).

    `at`: now, in milliseconds after the conversation began; it enters the list of cuts.
    `limits`: the limits of the state. Replies that move to the meta data may take a part of them.
    `retention`: the limits for the record of the cut in the archive; None: keep no record.
    """
    turns = with_numbers(closed_turns(state))
    before = request.turns
    lost = lost_pins(before, kept) if by == EMERGENCY else ()
    journal = state.meta
    if lost:
        cuts = with_cut(journal, at, PINNED_DROPPED, 0, len(lost))
        journal = msgspec.structs.replace(journal, cuts=cuts)
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
    if retention is not None:
        rest = marked(turns, rest)
    rebuilt = rebuild(state, rest)
    stays = {view.position for view in kept}
    removed = [turn for position, turn in enumerate(turns) if position not in stays]
    reworded = [
        turns[view.position]
        for view, turn in zip(kept, made, strict=True)
        if view.position >= 0 and turn.last_reply() != turns[view.position].last_reply()
    ]
    messages = sum(turn.record.messages for turn in rest)
    tokens = sum(view.tokens for view in kept)
    if kept and state.open is not None:
        tokens += kept[0].words.tokens(state.open.entries)
    size = sum(len(entry) for turn in rest for entry in turn.entries)
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
            removed,
        ),
        messages=messages,
        turns=len(kept),
        tokens=tokens + gauge_of(state.meta).frame,
        context=state.meta.context if has_context else "",  # so the next turn sends it again
        signed=still,
        unbound=still and not fits,
        cuts=with_cut(journal, at, by, report.removed_turns, report.removed_messages, removed=removed),
        gap=has_gap(rest, state.meta.processed),
        info=with_info(state.meta, [turn.record for turn in removed]),
        ask_failed=row_after_cut(state.meta.ask_failed, state.history_bytes(), rebuilt.history_bytes()),
    )
    cut = replace(rebuilt, meta=meta)
    if retention is not None:
        cut = with_record(cut, state, turns, rest, retention, at=at)
    return cut, report


def is_providers(kept: Sequence[TurnView], request: CompactionRequest) -> bool:
    """True for a cut that only applies a compaction of the provider: signed blocks stay valid.

    The provider's compaction comes first, and the newest turns follow unchanged. The provider does not look
    at pinned messages before it.
    """
    at = next((at for at, turn in enumerate(kept) if turn.is_turn or turn.note), len(kept))
    if at == len(kept) or not kept[at].has_boundary:
        return False
    rest = kept[at + 1 :] if kept[at].position < 0 else kept[at:]
    newest = request.turns[len(request.turns) - len(rest) :]
    return all(map(operator.is_, rest, newest))


def _turn(view: TurnView, turns: Sequence[ClosedTurn], before: Sequence[TurnView]) -> ClosedTurn:
    """The turn to store for a view: unchanged, rewritten, or a note with the time of the oldest turn."""
    if view.position < 0:
        at = turns[0].record.at if turns else 0
        iterations = tuple(Iteration(roles=roles) for roles in view.roles)
        facts = {**view.facts, "n": 0}  # a note is no turn
        record = TurnRecord(at=at, messages=view.message_count, iterations=iterations, facts=facts)
        return ClosedTurn(view.entries, record)
    turn = turns[view.position]
    if view is before[view.position]:
        return turn
    turn = turn.with_iterations(view.roles, view.entries, messages=view.message_count)
    start = 0
    marked_ones: list[Iteration] = []
    for iteration in turn.record.iterations:
        end = start + len(iteration.roles)
        marks = {at - start: mark for at, mark in view.marks.items() if start <= at < end}
        marked_ones.append(iteration.with_roles(iteration.roles, marks))
        start = end
    facts = {**turn.record.facts, "rewritten": True}
    if "flags" in facts:  # those of calls that are gone go with them
        calls = {call.id for message in view.messages for call in message.tool_calls}
        facts["flags"] = {id: flag for id, flag in facts["flags"].items() if id in calls}
        if not facts["flags"]:
            del facts["flags"]
    return replace(turn, record=replace(turn.record, iterations=tuple(marked_ones), facts=facts))


EMERGENCY: Final = "emergency"
"""The name in the list of cuts for a cut that a limit forces, in the place of a strategy."""


def emergency_turns(request: CompactionRequest, *, may_empty: bool) -> Sequence[TurnView]:
    """The turns that stay in an emergency: pinned messages, and the newest turns, of at most half of the
    bytes of the history together; at least one turn.

    Pinned messages go, the oldest first, if they are more than the half, and everything else is gone.
    `may_empty`: the newest turn may go, too. It goes if nothing else can.
    """
    turns = request.turns
    half = sum(turn.entry_bytes for turn in turns) // 2
    pinned = sum(turn.pinned_bytes for turn in turns)
    kept = with_pinned(turns, drop_to(turns, max(0, half - pinned), _unpinned_bytes))
    if not may_empty or (pinned <= half and _are_fewer(kept, request)):
        return kept
    kept = with_pinned(turns, ())
    if pinned <= half and _are_fewer(kept, request):
        return kept
    return without_oldest_pins(kept, half)


def _unpinned_bytes(turn: TurnView) -> int:
    return turn.entry_bytes - turn.pinned_bytes


def _are_fewer(kept: Sequence[TurnView], request: CompactionRequest) -> bool:
    """True if something goes beside the note about the archive, which the cut would write again."""
    return any(turn.note != RECALL for turn in removed_turns(request, kept))


_KINDS: Final = {SYSTEM: "a system message", USER: "a message of the user", EVENT: "an event"}


def lost_pins(before: Sequence[TurnView], kept: Sequence[TurnView]) -> list[tuple[int, str]]:
    """The pinned messages that a cut drops, in order: the position of each one's turn, and its kind."""
    left = {turn.position: list(turn.pinned_entries) for turn in kept if turn.position >= 0}
    found: list[tuple[int, str]] = []
    for turn in before:
        stays = left.get(turn.position, [])
        if not turn.pinned_entries or len(stays) == len(turn.pinned_entries):
            continue
        for piece in turn.pieces:
            if not piece.is_pinned:
                continue
            if piece.entries[0] in stays:
                stays.remove(piece.entries[0])
            else:
                found.append((turn.position, _KINDS[piece.letters]))
    return found


_PIN_SHARES: Final = (0.75, 0.5, 0.25, 0.0)
"""Shares of the pinned messages that stay, if a history of pinned messages alone does not fit."""

_SHARES: Final = (0.95, 0.85, 0.6, 0.3, 0.0)
"""Shares of the limits to cut to; the first that fits is used. After the first share the next turns need no
cut. The others are for histories with newest turns that compress less well, or are rewritten."""

_ROWS_KEPT: Final = 8
"""How many rows of each kind stay in the meta data if even a state without history is too large."""


class LimitCut(Value, frozen=True, kw_only=True):
    """A cut that brings a state within its limits: the kept turns, the new state and the report."""

    _unshown = frozenset({"kept", "state"})

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
    retention: Retention | None = None,
    recalls: bool = False,
) -> LimitCut | None:
    """Drop as few of the oldest turns as needed for the state to fit; None if no cut is enough.

    Args:
        state: The conversation.
        request: Its turns.
        dialect: Reads and writes the entries.
        codec: Tells whether a blob is compressed.
        limits: The limits to reach.
        fits: True for a state that is within the limits.
        least: How many turns stay at least.
        at: Now, in milliseconds after the conversation began.
        retention: The limits for the record of the cut in the archive, if there is room for it; None: keep no
            record.
        recalls: True if the model can search the archive. Then a note tells the model so, if a record is
            kept.
    """
    turns = request.turns
    closed = stored_size(replace(state, inbox=()), codec)
    size = written_size(state, codec, most_values=limits.max_values)
    entry_bytes = sum(turn.entry_bytes for turn in turns)
    newest = turns[len(turns) - least :]
    pinned = sum(turn.pinned_bytes for turn in turns)
    tried = entry_bytes
    for share, pins in (*[(share, 1.0) for share in _SHARES], *[(0.0, pins) for pins in _PIN_SHARES]):
        targets = _targets(limits, share, size, closed, entry_bytes)
        kept = with_pinned(turns, fitting(turns, targets, least) if share else newest)
        if pins < 1:
            kept = without_oldest_pins(kept, int(pins * pinned), but=newest)
        if (left := sum(turn.entry_bytes for turn in kept)) >= tried:
            continue
        tried = left
        is_last = left <= sum(turn.entry_bytes for turn in newest)
        make = partial(cut_to, state, request, dialect=dialect, by=EMERGENCY, at=at, limits=limits)
        if retention is not None:
            noted = with_recall_note(request, kept) if recalls else kept
            cut, report = make(noted, retention=retention)
            if fits(cut):
                return LimitCut(kept=noted, state=cut, report=report)
        cut, report = make(kept)
        if not fits(cut) and is_last:
            cut = replace(cut, meta=_lean(cut.meta))
        if fits(cut):
            return LimitCut(kept=kept, state=cut, report=report)
    return None


def _targets(
    limits: BlobLimits, share: float, size: Size, closed: Size, entry_bytes: int
) -> list[tuple[Callable[[TurnView], int], int]]:
    """How many bytes, entries and JSON values of all turns may stay; each with its measure of a turn."""
    parts = [
        (share * limit - (whole - own)) / max(1, own)
        for limit, whole, own in (
            (limits.max_blob_bytes, size.blob, closed.blob),
            (limits.max_decoded_bytes, size.decoded, closed.decoded),
            (limits.max_segments, size.segments, closed.segments),
        )
    ]
    most_entries = share * limits.max_entries - (size.entries - closed.entries)
    targets: list[tuple[Callable[[TurnView], int], int]] = [
        (lambda turn: turn.entry_bytes, int(max(0.0, min(parts)) * entry_bytes)),
        (lambda turn: len(turn.entries), int(max(0.0, most_entries))),
    ]
    if size.values > limits.max_values:
        targets.append((_values, int(share * limits.max_values)))
    return targets


def _values(turn: TurnView) -> int:
    return sum(map(separators, turn.entries))


def _lean(meta: Meta) -> Meta:
    """The meta data with only the newest rows of each kind, and without replies."""
    ring = tuple(row._replace(text="") for row in meta.ring[-_ROWS_KEPT:])
    return msgspec.structs.replace(
        meta, ring=ring, events=meta.events[-_ROWS_KEPT:], cuts=meta.cuts[-_ROWS_KEPT:]
    )
