"""Tells from a usage that a server has silently cut the prompt.

Owns: the signs of a cut, and the exceptions. Must never know: a turn, a warning, or a provider's JSON.

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

from collections.abc import Callable, Sequence
from typing import Final

from ..base.values import Value
from ..types.messages import Message, Text, Usage
from ..types.tokens import Gauge

__all__ = ["Before", "Entries", "cut_at"]

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
