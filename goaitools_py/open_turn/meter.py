"""How many tokens a conversation has, and how many its next request will have.

Owns: the part of a `Gauge` that a state keeps, and the choice of the entries to count. Must never know: how
tokens are estimated, or the use of the number.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from ..backends.base import Dialect, Reply
from ..backends.capabilities import capabilities
from ..backends.protocols import frames_of
from ..backends.read_entries import read_entries
from ..base.json_scan import count_values
from ..base.values import replace
from ..state.bounds import bounded, bounded_row
from ..state.records import Meta
from ..state.state import ConversationState
from ..types.messages import Message, Text, ToolResult
from ..types.tokens import (
    ExchangeEstimate,
    Gauge,
    ReasoningStays,
    TokenCounter,
    TokenEstimate,
    learned,
    needs_reply,
)
from .unseen_cut import Before, cut_at

__all__ = [
    "BelowZeroError",
    "booked",
    "checked_count",
    "count_entries",
    "elsewhere",
    "gauge_of",
    "next_tokens",
    "server_window",
    "unanchored",
    "with_unanswered",
    "without_unsent",
]

_BYTES_PER_TOKEN = 4
"""The rough rate for entries that cannot be read, and for a history without any usage."""


def gauge_of(meta: Meta) -> Gauge:
    """The gauge of a state. It is anchored at a real usage only if `booked` wrote the number of tokens."""
    anchor, thinking, estimated, real, frame = (*meta.gauge, 0, 0, 0, 0, 0)[:5]
    return Gauge(
        tokens=meta.tokens,
        is_anchored=bool(anchor) and anchor == meta.tokens,
        frame=min(frame, meta.tokens),
        thinking=thinking,
        estimated=estimated,
        real=real,
    )


def server_window(meta: Meta) -> int:
    """The tokens at which the server has cut a prompt; 0 without a cut (`unseen_cut`)."""
    return (*meta.gauge, 0, 0, 0, 0, 0, 0)[5]


def _kept(meta: Meta, gauge: Gauge, window: int) -> Meta:
    anchor = gauge.tokens if gauge.is_anchored else 0
    row = (anchor, gauge.thinking, gauge.estimated, gauge.real, gauge.frame, *([window] if window else []))
    return msgspec.structs.replace(
        meta, tokens=bounded(gauge.tokens), gauge=bounded_row(row) if any(row) else ()
    )


def unanchored(meta: Meta) -> Meta:
    """The meta data after the preamble, the tools or the model changed: the last usage no longer applies."""
    return msgspec.structs.replace(meta, gauge=(0, *meta.gauge[1:])) if meta.gauge else meta


def elsewhere(meta: Meta) -> Meta:
    """The meta data after the model or the server changed: the cut size of the old one no longer applies."""
    return msgspec.structs.replace(meta, gauge=meta.gauge[:5]) if len(meta.gauge) > 5 else meta


def booked(
    meta: Meta,
    sent: Sequence[bytes],
    reply: Reply,
    dialect: Dialect,
    counter: TokenCounter | None = None,
    *,
    calibrates: bool = True,
    before: Before | None = None,
) -> Meta:
    """The meta data after a reply. Its usage anchors the size of the next request.

    It does not if the server has cut the prompt: the history is then larger than the count (`server_window`).

    Args:
        meta: The meta data at the time of the request.
        sent: The entries that the request added to the previous request.
        reply: The reply.
        dialect: Reads the entries.
        counter: The caller's token counter; None: `TokenEstimate`.
        calibrates: True: the usage also calibrates later estimates. False, if no estimates follow: the
            entries are then read and counted only if the usage alone does not give the size.
        before: The history before `sent`. None: do not check for a cut.
    """
    gauge, usage = gauge_of(meta), reply.context or reply.usage
    window = server_window(meta) if meta.gauge[5:] else 0
    if before is not None:
        cut = cut_at(gauge, usage, sent, before, partial(_estimated, dialect, counter), window=window)
        if cut:  # the count of a cut prompt does not give the size of the history
            usage, window = replace(usage, input_tokens=0), cut
        elif window:
            window = max(window, usage.input_tokens)
    has_reasoning = bool(reply.reasoning) or reply.signed
    replied = 0
    if needs_reply(usage, has_reasoning=has_reasoning):
        words = Message(role="assistant", parts=(Text(reply.text),), tool_calls=reply.calls)
        replied = _count((words,), dialect, counter)
    counted, has_media = 0, False
    if calibrates or not gauge.is_anchored or not usage.input_tokens:
        messages, unread = _read(sent, dialect)
        counted = unread + _count(messages, dialect, counter)
        has_media = bool(unread) or not all(
            isinstance(part, Text) for message in messages for part in message.parts
        )
    said = ExchangeEstimate(
        sent=counted,
        has_media=has_media,
        replied=replied,
        has_reasoning=has_reasoning,
        goes_on=bool(reply.calls) and reply.run_calls,
        stays=_stays(reply, dialect, meta.model),
    )
    return _kept(meta, learned(gauge, usage, said), window)


def _stays(reply: Reply, dialect: Dialect, model: str) -> ReasoningStays:
    """How long reasoning counts as input of later requests.

    Chat Completions sends reasoning back only if a server showed it as text. In recorded usages of the other
    provider APIs reasoning counts while the results of its calls are sent, until the next user message.
    Models that bind their thinking to the history keep it.
    """
    if not frames_of(dialect).keeps_reasoning:
        return "loop" if reply.reasoning else "never"
    return "always" if capabilities(model).binds_thinking else "loop"


def with_unanswered(meta: Meta, unanswered: Sequence[bytes], dialect: Dialect) -> Meta:
    """The meta data after a turn without a reply to its last entries: adds an estimate of these entries."""
    if not unanswered:
        return meta
    gauge = gauge_of(meta)
    tokens = bounded(gauge.expected(count_entries(unanswered, dialect)))
    return msgspec.structs.replace(meta, tokens=tokens)


def without_unsent(meta: Meta, entries: Sequence[bytes], dialect: Dialect) -> Meta:
    """The meta data after a turn of these entries that later requests leave out.

    Its tokens do not count, and its context may be sent again.
    """
    tokens = max(0, meta.tokens - count_entries(entries, dialect))
    return msgspec.structs.replace(unanchored(meta), tokens=tokens, context="")


def next_tokens(state: ConversationState, dialect: Dialect, counter: TokenCounter | None = None) -> int:
    """Input tokens of the next request: the last real usage, plus an estimate of the later entries."""
    opened, gauge = state.open, gauge_of(state.meta)
    since = [item.entry for item in state.inbox]
    results: list[Message] = []
    if opened is not None:
        since[:0] = opened.unanswered
        results = [_result(ToolResult(call_id=call.id, parts=call.parts)) for call in opened.calls]
    estimate = count_entries(since, dialect, counter) + _count(results, dialect, counter)
    if not gauge.tokens:
        estimate += state.history_bytes() // _BYTES_PER_TOKEN
    return gauge.expected(estimate)


def _result(result: ToolResult) -> Message:
    return Message(role="tool", parts=result.parts, tool_call_id=result.call_id)


def count_entries(entries: Sequence[bytes], dialect: Dialect, counter: TokenCounter | None = None) -> int:
    """An estimate of the tokens of stored entries, without calibration."""
    messages, unread = _read(entries, dialect)
    return unread + _count(messages, dialect, counter)


def _estimated(
    dialect: Dialect, counter: TokenCounter | None, entries: Sequence[bytes]
) -> tuple[tuple[Message, ...], int]:
    messages, unread = _read(entries, dialect)
    return messages, unread + _count(messages, dialect, counter)


_MOST_VALUES: Final = 50_000


def _read(entries: Sequence[bytes], dialect: Dialect) -> tuple[tuple[Message, ...], int]:
    """The entries as messages, and 0; or () and a rough number of tokens.

    The second form is for entries that cannot be read, or that have too many JSON values for an event loop.
    """
    if not entries:
        return (), 0
    if sum([count_values(entry, most=_MOST_VALUES) for entry in entries]) > _MOST_VALUES:
        return (), sum(map(len, entries)) // _BYTES_PER_TOKEN
    try:
        return read_entries(dialect, entries), 0
    except Exception:  # a failed estimate must not lose a reply that is paid for
        return (), sum(map(len, entries)) // _BYTES_PER_TOKEN


def _count(messages: Sequence[Message], dialect: Dialect, counter: TokenCounter | None) -> int:
    own = TokenEstimate(frames_of(dialect))
    total = own.between(messages) if counter is None and len(messages) > 1 else 0
    for message in messages:
        try:
            total += own.count(message) if counter is None else checked_count(counter, message)
        except Exception:  # a failure of the caller's counter must not lose the reply either
            total += own.count(message)
    return total


class BelowZeroError(ValueError):
    """A counter returned a number of tokens below 0."""


def checked_count(counter: TokenCounter, message: Message) -> int:
    """The number of tokens that the caller's counter gives for a message.

    Raises:
        TypeError: The counter did not return a whole number.
        BelowZeroError: The number is below 0.
        Exception: Any exception of the counter.
    """
    found = operator.index(counter.count(message))
    if found < 0:
        raise BelowZeroError("a counter gave a number of tokens below 0")
    return found
