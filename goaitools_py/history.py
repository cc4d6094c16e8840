"""Reading a state without a model: what is in it, and the provider's messages out of it and into it.

Owns: `StateInfo`, `History` and the pure functions that make them. Must never know: a backend or an SDK.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

import msgspec

from . import blob as blobs
from . import journal, rawjson
from .answers import PendingCall
from .backends import rules
from .backends.base import Dialect
from .backends.capabilities import capabilities
from .backends.dialects import dialect_of
from .blob import PLAIN, Codec
from .errors import StateInvalidError
from .mending import Mended, mended
from .messages import Message, ToolCall, Usage
from .options import check_options
from .reading import parse_entries, read_entries
from .records import Iteration, TurnRecord, dollars_of, usage_of, with_cut
from .repair import checked, noted
from .state import ConversationState, closed_turns, dump_state, load_state, new_state, rebuild
from .unsign import Turn, is_signed, unsigned_turns
from .values import Value, replace
from .wires import dialect_for

__all__ = [
    "History",
    "HistoryIteration",
    "HistoryTurn",
    "StateInfo",
    "inspect_state",
    "pending_calls",
    "read_history",
    "state_from_messages",
    "state_messages",
]


class StateInfo(Value, frozen=True, kw_only=True):
    """What a blob says of itself. Sizes are in bytes; `tokens` is what the next request holds before anything
    new is said, by the last real usage and an estimate of what came since.

    `status`: "complete"; "awaiting_tools" if calls wait for answers, see `pending_calls`; "in_progress" and
    "failed" for a turn that `resume` can finish.
    `aside_usage`: the part of `total_usage` that went into summaries and the like. `total_cost_usd`: see
    `ChatResult.total_cost_usd`. `context_window`: that of the model, in tokens, if its name is known.
    `cuts`: (when, by what, turns removed, messages removed), the newest last.
    """

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

    @property
    def context_fraction(self) -> float | None:
        """The part of the model's context window in use; None if the window is not known."""
        return self.tokens / self.context_window if self.context_window else None


class HistoryIteration(Value, frozen=True, kw_only=True):
    """One model call of a turn with what went in and what came back."""

    messages: tuple[Message, ...]
    finish_reason: str
    usage: Usage
    started_at: datetime
    completed_at: datetime

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the model made in this iteration."""
        return tuple(call for message in self.messages for call in message.tool_calls)


class HistoryTurn(Value, frozen=True, kw_only=True):
    """One turn: its iterations, and the facts stored with it (status, settings, metadata, flags)."""

    unshown = frozenset({"facts"})

    iterations: tuple[HistoryIteration, ...]
    started_at: datetime
    facts: Mapping[str, Any]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The turn's messages in order."""
        return tuple(message for iteration in self.iterations for message in iteration.messages)


class History(Value, frozen=True, kw_only=True):
    """A conversation's turns, oldest first; `waiting` are messages that no model has seen."""

    turns: tuple[HistoryTurn, ...]
    waiting: tuple[Message, ...] = ()

    def all_messages(self) -> tuple[Message, ...]:
        """Every message, the waiting ones last."""
        return (*(message for turn in self.turns for message in turn.messages), *self.waiting)

    def iteration(self, number: int) -> HistoryIteration:
        """The n-th model call of the conversation, counted from 0. IndexError beyond the end."""
        every = [iteration for turn in self.turns for iteration in turn.iterations]
        return every[number]


def _when(created: int, ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(created / 1000, UTC) + timedelta(milliseconds=ms)
    except (OverflowError, ValueError, OSError) as exc:
        raise StateInvalidError("the state holds a time that no calendar has") from exc


def _load(blob: Any, codec: Codec, binding: Any, min_revision: int | None) -> ConversationState:
    return load_state(blob, codec=codec, binding=binding, min_revision=min_revision)


def inspect_state(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
) -> StateInfo:
    """Say what is in a blob, of any wire, without reading its history."""
    state = _load(blob, codec, binding, min_revision)
    meta = state.meta
    opened = state.open
    return StateInfo(
        wire=meta.wire,
        endpoint=meta.family,
        model=meta.model,
        conversation_id=meta.id,
        revision=meta.rev,
        status=meta.status,
        created_at=_when(meta.created, 0),
        updated_at=_when(meta.created, meta.updated),
        turns=meta.turns,
        turns_processed=meta.processed,
        messages=meta.messages + (opened.messages if opened else 0),
        waiting_messages=len(state.inbox),
        open_calls=sum(1 for call in opened.calls if call.state != "done") if opened else 0,
        tokens=meta.tokens,
        usage=usage_of(meta.usage),
        total_usage=usage_of(meta.total),
        blob_bytes=len(blob),
        history_bytes=state.history_bytes(),
        format_version=blobs.peek(blob).version,
        has_preamble=bool(meta.preamble),
        has_tools=bool(meta.tools),
        aside_usage=usage_of(meta.aside),
        total_cost_usd=dollars_of(meta),
        context_window=capabilities(meta.model).context_window if meta.model else None,
        cuts=tuple((_when(meta.created, at), by, turns, count) for at, by, turns, count in meta.cuts),
    )


def pending_calls(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
) -> tuple[PendingCall, ...]:
    """The calls that `resume` takes answers for, of a blob of any wire: those that wait for an approval or
    for a result from outside, and those that had started when their process died."""
    return journal.pending(_load(blob, codec, binding, min_revision))


def read_history(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
) -> History:
    """Read the whole conversation in neutral words. An unfinished turn is shown as it would close.

    `dialect`: that of a wire which is not built in.
    """
    state = _load(blob, codec, binding, min_revision)
    dialect = dialect_for(state.meta.wire, dialect)
    state, _ = checked(journal.close_turn(state, dialect), dialect)
    turns = tuple(
        _turn(entries, record, state.meta.created, dialect) for entries, record in closed_turns(state)
    )
    waiting = read_entries(dialect, [item.entry for item in state.inbox])
    return History(turns=turns, waiting=waiting)


def _turn(entries: Sequence[bytes], record: TurnRecord, created: int, dialect: Dialect) -> HistoryTurn:
    left = iter(entries)
    iterations = []
    for iteration in record.iterations:
        own = list(islice(left, len(iteration.roles)))
        started = record.at + iteration.start
        iterations.append(
            HistoryIteration(
                messages=read_entries(dialect, own),
                finish_reason=iteration.finish_reason,
                usage=iteration.usage,
                started_at=_when(created, started),
                completed_at=_when(created, started + iteration.ms),
            )
        )
    return HistoryTurn(iterations=tuple(iterations), started_at=_when(created, record.at), facts=record.facts)


def state_messages(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
) -> list[Any]:
    """The conversation in the provider's own JSON shape, waiting messages last; the door out.

    `dialect`: that of a wire which is not built in.
    """
    state = _load(blob, codec, binding, min_revision)
    dialect = dialect_for(state.meta.wire, dialect)
    state, _ = checked(journal.close_turn(state, dialect), dialect)
    entries = [entry for turn, _ in closed_turns(state) for entry in turn]
    entries.extend(item.entry for item in state.inbox)
    return parse_entries(entries)


_LETTERS = {"system": "s", "developer": "s", "user": "u", "assistant": "a", "tool": "t"}


def state_from_messages(
    wire: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    conversation_id: str = "",
    created_ms: int = 0,
    codec: Codec = PLAIN,
    binding: Any = None,
    dialect: Dialect | None = None,
    repair: bool = False,
) -> bytes:
    """Make a state of messages in the provider's own JSON shape; the door in.

    A turn begins at each user message that follows an answer. Leading system messages are preamble and
    are refused: pass them as ``system=`` with each call. `dialect`: that of a wire which is not built in.

    `repair`: mend what the provider would refuse, such as calls without results. What was done is in the
    facts of each turn ("repaired", by kind) and in the state's cuts; results that had to be put in are
    flagged "unknown".

    Raises:
        ValueError: The wire is unknown, a leading system message, or the provider would refuse the history.
    """
    dialect = dialect or dialect_of(wire)
    if dialect.wire != wire:
        raise ValueError(f"the dialect is of the wire {dialect.wire!r}, not {wire!r}")
    check_options({"conversation_id": conversation_id or None})
    entries = [rawjson.dumps(message) for message in messages]
    found = _mended(entries, dialect) if repair else None
    if found is not None:
        entries = [one.entry for one in found.entries]
    views = [dialect.view([entry]) for entry in entries]
    if views and views[0] and views[0][0].role == "system":
        raise ValueError("the messages begin with a system message: it is not stored; pass it as system=")
    problems = rules.check_history(wire, entries, unique_ids=False) if wire in rules.WIRES else []
    if problems:
        raise ValueError(f"the provider would refuse this history: {problems[0]}")
    turns: Sequence[Turn] = _split_turns(entries, views, dialect)
    state = new_state(wire, id=conversation_id, created=created_ms)
    cuts = state.meta.cuts
    if found is not None and found.log:
        turns = [turn for turn in unsigned_turns(noted(turns, found), dialect) if turn[0]]
        entries = [entry for own, _ in turns for entry in own]
        cuts = with_cut(state.meta, 0, "repaired", 0, max(0, len(messages) - len(entries)))
    state = rebuild(state, turns)
    meta = msgspec.structs.replace(
        state.meta,
        cuts=cuts,
        rev=1,
        messages=sum(record.messages for _, record in turns),
        turns=len(turns),
        processed=len(turns),
        systems=any(view[0].role == "system" for view in views if view),
        signed=is_signed(entries, dialect),
    )
    return dump_state(replace(state, meta=meta), codec=codec, binding=binding)


def _mended(entries: Sequence[bytes], dialect: Dialect) -> Mended:
    with suppress(StateInvalidError):
        return mended(entries, dialect)
    raise ValueError("the provider would refuse this history, and it cannot be repaired")


def _split_turns(
    entries: Sequence[bytes], views: Sequence[tuple[Message, ...]], dialect: Dialect
) -> list[tuple[list[bytes], TurnRecord]]:
    turns: list[tuple[list[bytes], TurnRecord]] = []
    own: list[bytes] = []
    letters = ""

    def finish() -> None:
        iterations = tuple(Iteration(roles=roles) for roles in _iterations(letters))
        count = len(dialect.view(own))
        turns.append((own, TurnRecord(at=0, messages=count, iterations=iterations)))

    for entry, view in zip(entries, views, strict=True):
        letter = _LETTERS.get(view[0].role, "u")
        if letter == "u" and letters.endswith("a"):
            finish()
            own, letters = [], ""
        own.append(entry)
        letters += letter
    if own:
        finish()
    return turns


def _iterations(letters: str) -> list[str]:
    """Cut a turn's letters after each reply: "uattaa" is "ua" and "ttaa"."""
    return re.findall(r"[^a]*a+|[^a]+$", letters)
