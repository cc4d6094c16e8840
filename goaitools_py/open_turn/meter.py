"""How many tokens a conversation has, and how many its next request will have.

Owns: the part of a `Gauge` that a state keeps, the choice of the entries to count, and the signs of a server
that has silently cut the prompt. Must never know: how tokens are estimated, or the use of the number.

Ollama cuts a prompt that exceeds ``num_ctx`` (4,096 by default) from the front, answers 200, and counts the
rest: 60,000 words were sent, and 2,050 tokens counted (ollama/ollama#17427, 2026-07). The reply has no other
sign of the cut.

A count is a sign if the request has more words than the counted tokens. To save time the words are counted
only in three cases. The new entries are large already. The count has fallen although the history has only
grown. Or no count of the history was known. Text with few spaces, such as code, shows a cut later. These are
not signs:

- A server that counts only tokens outside its cache. The count is then about as large as the new entries.
- A hosted tool: its results were counted once, and are not in the history.
- A provider that edits the context on request. The caller leaves these replies out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from ..backends.base import Dialect, Reply
from ..backends.capabilities import capabilities
from ..backends.protocols import frames_of
from ..backends.read_entries import read_entries
from ..base.json_scan import count_values
from ..base.values import Value, replace
from ..state.records import Meta
from ..state.row_codec import bounded, bounded_row
from ..state.state import ConversationState
from ..types.messages import Message, Text, ToolResult, Usage
from ..types.tokens import (
    ExchangeEstimate,
    Gauge,
    ReasoningStays,
    TokenCounter,
    TokenEstimate,
    learned,
    needs_reply,
)

__all__ = [
    "Before",
    "BelowZeroError",
    "Entries",
    "booked",
    "checked_count",
    "count_entries",
    "cut_at",
    "elsewhere",
    "gauge_of",
    "next_tokens",
    "server_window",
    "unanchored",
    "with_unanswered",
    "without_unsent",
]

Entries = Callable[[Sequence[bytes]], tuple[tuple[Message, ...], int]]
"""Reads entries: their messages, and their tokens as an estimate."""

_FALLEN: Final = 0.8
"""A count below this part of the previous count is checked."""
_BYTES: Final = 5
"""An entry of words has at least so many bytes for each word. This allows a cheap test before the words are
counted."""
_NEW: Final = 256
"""The most tokens that a server which counts only new entries may count beside them."""
_ESTIMATED: Final = 2
"""The fewest bytes of the new entries for each token that this server counts: half the usual number."""
_WIDER: Final = 1.1
_ONE_TOKEN: Final = 12
"""So many bytes more than characters are at least one token: six Chinese characters."""


class Before(Value, frozen=True, kw_only=True):
    """The history before a request's new entries.

    Attributes:
        size: Returns its size in bytes.
        load: Loads its entries.
    """

    size: Callable[[], int]
    load: Callable[[], Sequence[bytes]]


def cut_at(
    gauge: Gauge, usage: Usage, sent: Sequence[bytes], before: Before, read: Entries, *, window: int = 0
) -> int:
    """The tokens that a server has left of the prompt; 0 if the usage shows no cut.

    Args:
        gauge: The gauge before the request.
        usage: The server's usage.
        sent: The entries that the request added to the previous request.
        before: The history before these entries.
        read: Reads entries.
        window: The tokens that the server has left of an earlier prompt; 0 without an earlier cut.
    """
    left = usage.input_tokens
    if not left or usage.cached_input_tokens > left:
        return 0
    if window and gauge.tokens > window:
        return max(window, left) if left <= window * _WIDER + _NEW else 0
    new = sum(map(len, sent))
    if new > _BYTES * left > _BYTES * _NEW and _least(read(sent)[0]) > left:
        return left
    fell = gauge.is_anchored and left < _FALLEN * (gauge.tokens - gauge.thinking)
    if not fell and (gauge.is_anchored or before.size() + new <= 2 * _BYTES * left):
        return 0
    if left < _NEW + new // _ESTIMATED:  # a cheap test before the history is read
        return 0
    # From here on the history is read. The tests above are cheap, and end almost every turn.
    entries = before.load()
    old, _ = read(entries)
    added, more = read(sent)
    if left < 2 * (more + read(entries[-1:])[1]) + _NEW:
        return 0
    return left if _least((*old, *added)) > left else 0


def _least(messages: Sequence[Message]) -> int:
    """The fewest tokens that the messages can have with any vocabulary: a token holds at most one word."""
    words = 0
    for message in messages:
        for part in message.parts:
            if isinstance(part, Text):
                more = len(part.text.encode("utf-8", "replace")) - len(part.text)
                words += len(part.text.split()) + more // _ONE_TOKEN
    return words


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
    # The first number is the anchor. The others calibrate estimates, and go on to hold.
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
        # Before the gauge learns: it would take a cut prompt for a small history, and no trigger would fire
        # again.
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
    # No usage has counted these entries. Without an estimate a trigger would see too small a history.
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
