"""What a state says of itself, without reading its history.

Owns: `StateInfo` and the functions that need no more than the state's own words. Must never know: a wire.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from ..backends.capabilities import capabilities
from ..errors import StateInvalidError
from ..messages import Usage
from ..state import blob as blobs
from ..state.codec import PLAIN, Codec
from ..state.records import dollars_of, turn_ref, usage_of
from ..state.state import load_state, newest_number
from ..turn import journal
from ..turn.answers import PendingCall
from ..values import Value

__all__ = ["StateInfo", "inspect_state", "pending_calls", "refs_of", "when"]


class StateInfo(Value, frozen=True, kw_only=True):
    """What a blob says of itself. Sizes are in bytes; `tokens` is what the next request holds before anything
    new is said, by the last real usage and an estimate of what came since.

    `status`: "complete"; "awaiting_tools" if calls wait for answers, see `pending_calls`; "in_progress" and
    "failed" for a turn that `resume` can finish.
    `aside_usage`: the part of `total_usage` that went into summaries and the like. `total_cost_usd`: see
    `ChatResult.total_cost_usd`. `context_window`: that of the model, in tokens, if its name is known.
    `failure`: class and code of the error that the unfinished turn ended with, such as
    ``("RateLimitError", "rate_limit_exceeded")``; "" for no code.
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
    failure: tuple[str, str] | None = None

    @property
    def context_fraction(self) -> float | None:
        """The part of the model's context window in use; None if the window is not known."""
        return self.tokens / self.context_window if self.context_window else None


def when(created: int, ms: int) -> datetime:
    """A state's time, `ms` milliseconds after `created`. StateInvalidError beyond the calendar."""
    try:
        return datetime.fromtimestamp(created / 1000, UTC) + timedelta(milliseconds=ms)
    except (OverflowError, ValueError, OSError) as exc:
        raise StateInvalidError("the state holds a time that no calendar has") from exc


def refs_of(blob: bytes, *, codec: Codec, binding: Any) -> dict[str, str]:
    """What an event carries that tells something of a conversation between two turns; see `Event`."""
    state = load_state(blob, codec=codec, binding=binding)
    id = state.meta.id
    return {"conversation_id": id, "turn_ref": turn_ref(id, newest_number(state))}


def inspect_state(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
) -> StateInfo:
    """Say what is in a blob, of any wire, without reading its history."""
    state = load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    meta = state.meta
    opened = state.open
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
        blob_bytes=len(blob),
        history_bytes=state.history_bytes(),
        format_version=blobs.peek(blob).version,
        has_preamble=bool(meta.preamble),
        has_tools=bool(meta.tools),
        aside_usage=usage_of(meta.aside),
        total_cost_usd=dollars_of(meta),
        context_window=capabilities(meta.model).context_window if meta.model else None,
        cuts=tuple((when(meta.created, at), by, turns, count) for at, by, turns, count in meta.cuts),
        failure=journal.failure_of(state),
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
    return journal.pending(load_state(blob, codec=codec, binding=binding, min_revision=min_revision))
