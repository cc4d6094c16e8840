"""How many tokens a conversation is, and what its next request will be.

Owns: what a state keeps of its `Gauge`, and which entries are counted when. Must never know: how tokens are
estimated, or when somebody asks.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import msgspec

from ..backends.base import Dialect, Reply
from ..backends.capabilities import capabilities
from ..messages import Message, Text, ToolResult
from ..reading import read_entries
from ..state.records import Meta, bounded, bounded_row
from ..state.state import ConversationState
from ..tokens import Gauge, ReasoningStays, Said, TokenCounter, TokenEstimate, learned

__all__ = [
    "BelowZeroError",
    "booked",
    "checked_count",
    "count_entries",
    "gauge_of",
    "next_tokens",
    "unanchored",
    "with_unanswered",
]

_BYTES_PER_TOKEN = 4
"""What is left for an entry that nobody can read, or that the caller's counter failed for."""


def gauge_of(meta: Meta) -> Gauge:
    """What a state knows. Tokens that another than `booked` wrote are an estimate."""
    anchor, thinking, estimated, real, frame = (*meta.gauge, 0, 0, 0, 0, 0)[:5]
    return Gauge(
        tokens=meta.tokens,
        is_anchored=bool(anchor) and anchor == meta.tokens,
        frame=min(frame, meta.tokens),
        thinking=thinking,
        estimated=estimated,
        real=real,
    )


def _kept(meta: Meta, gauge: Gauge) -> Meta:
    anchor = gauge.tokens if gauge.is_anchored else 0
    row = (anchor, gauge.thinking, gauge.estimated, gauge.real, gauge.frame)
    return msgspec.structs.replace(
        meta, tokens=bounded(gauge.tokens), gauge=bounded_row(row) if any(row) else ()
    )


def unanchored(meta: Meta) -> Meta:
    """The meta of a conversation whose preamble, tools or model changed: the last usage was of others."""
    return msgspec.structs.replace(meta, gauge=(0, *meta.gauge[1:])) if meta.gauge else meta


def booked(
    meta: Meta, sent: Sequence[bytes], reply: Reply, dialect: Dialect, counter: TokenCounter | None = None
) -> Meta:
    """The meta after a reply: what its usage says of the next request, and of this conversation's words.

    Args:
        meta: As it was when the request went out.
        sent: The entries that the request added to the one before it.
        reply: The reply.
        dialect: The wire's words.
        counter: The caller's own, if there is one.
    """
    messages, unread = _read(sent, dialect)
    words = Message(role="assistant", parts=(Text(reply.text),), tool_calls=reply.calls)
    said = Said(
        sent=unread + _count(messages, dialect.wire, counter),
        has_media=bool(unread) or any(not isinstance(part, Text) for one in messages for part in one.parts),
        replied=_count((words,), dialect.wire, counter),
        has_reasoning=bool(reply.reasoning) or reply.signed,
        goes_on=bool(reply.calls) and reply.run_calls,
        stays=_stays(reply, dialect.wire, meta.model),
    )
    return _kept(meta, learned(gauge_of(meta), reply.usage, said))


def _stays(reply: Reply, wire: str, model: str) -> ReasoningStays:
    """Chat Completions sends reasoning back only where a server showed it as text. In recorded usages of the
    other wires it counts while the results of its calls go back, and not behind the next user message;
    models that bind their thinking keep it."""
    if wire == "openai":
        return "loop" if reply.reasoning else "never"
    return "always" if capabilities(model).binds_thinking else "loop"


def with_unanswered(meta: Meta, unanswered: Sequence[bytes], dialect: Dialect) -> Meta:
    """The meta of a turn that closes with entries which no reply followed: nobody has counted them yet."""
    if not unanswered:
        return meta
    gauge = gauge_of(meta)
    tokens = bounded(gauge.expected(count_entries(unanswered, dialect)))
    return msgspec.structs.replace(meta, tokens=tokens)


def next_tokens(state: ConversationState, dialect: Dialect, counter: TokenCounter | None = None) -> int:
    """Input tokens of the next request: the last real usage, and an estimate of all that came since."""
    opened, gauge = state.open, gauge_of(state.meta)
    since = [item.entry for item in state.inbox]
    results: list[Message] = []
    if opened is not None:
        since[:0] = opened.entries[len(opened.entries) - len(opened.letters) :]
        results = [_result(ToolResult(call_id=call.id, parts=call.parts)) for call in opened.calls]
    estimate = count_entries(since, dialect, counter) + _count(results, dialect.wire, counter)
    if not gauge.tokens:
        estimate += state.history_bytes() // _BYTES_PER_TOKEN
    return gauge.expected(estimate)


def _result(result: ToolResult) -> Message:
    return Message(role="tool", parts=result.parts, tool_call_id=result.call_id)


def count_entries(entries: Sequence[bytes], dialect: Dialect, counter: TokenCounter | None = None) -> int:
    """Tokens of stored entries, uncalibrated."""
    messages, unread = _read(entries, dialect)
    return unread + _count(messages, dialect.wire, counter)


def _read(entries: Sequence[bytes], dialect: Dialect) -> tuple[tuple[Message, ...], int]:
    """The entries as messages; or, if they cannot be read, none and a rough number."""
    if not entries:
        return (), 0
    try:
        return read_entries(dialect, entries), 0
    except Exception:  # a paid reply is not lost for want of a number
        return (), sum(map(len, entries)) // _BYTES_PER_TOKEN


def _count(messages: Sequence[Message], wire: str, counter: TokenCounter | None) -> int:
    own = TokenEstimate(wire)
    total = own.between(messages) if counter is None else 0
    for message in messages:
        try:
            total += own.count(message) if counter is None else checked_count(counter, message)
        except Exception:  # a caller's own, and the same holds
            total += own.count(message)
    return total


class BelowZeroError(ValueError):
    """A counter gave a number of tokens below 0."""


def checked_count(counter: TokenCounter, message: Message) -> int:
    """The counter's number. Raises what that raises; TypeError for no whole number, `BelowZeroError`."""
    found = operator.index(counter.count(message))
    if found < 0:
        raise BelowZeroError("a counter gave a number of tokens below 0")
    return found
