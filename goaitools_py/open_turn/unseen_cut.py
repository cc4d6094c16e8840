"""Tells from a usage that a server has cut the prompt, and did not say so.

Owns: the signs of such a cut, and what is no sign. Must never know: a turn, a warning, or a provider's JSON.

Ollama cuts what does not fit into ``num_ctx`` (4,096 by default) from the front, answers 200, and counts
what is left: 60,000 words were sent, and 2,050 tokens counted (ollama/ollama#17427, 2026-07). Nothing else
says it.

A count is a sign if the request cannot have so few tokens: it has more words. That is looked at where it
costs little: if what is new is large already, if the count has fallen although the history has only grown, or
if no count of it was known. Text of few spaces, such as code, shows it later. These are no signs:

- A server that counts only what its cache did not have. The count is then about as large as what is new.
- A hosted tool whose finds were counted once. The history itself is not that large.
- A provider that edits the context because it was asked to. The caller leaves such replies out.
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
"""A count below this part of the one before it is looked at."""
_BYTES: Final = 5
"""An entry of words has at least so many bytes for each word, so a cheap look comes before the count."""
_NEW: Final = 256
"""Tokens that a request has around what is new, at most, on a server that counts only that."""
_ESTIMATED: Final = 2
"""Bytes of what is new for each token that such a server may count at most: twice the usual number."""
_WIDER: Final = 1.1
_ONE_TOKEN: Final = 12
"""So many bytes more than characters are at least one token: six Chinese characters."""


class Before(Value, frozen=True, kw_only=True):
    """The history before a request's new entries.

    Attributes:
        size: Gives its bytes.
        load: Loads its entries.
    """

    size: Callable[[], int]
    load: Callable[[], Sequence[bytes]]


def cut_at(
    gauge: Gauge, usage: Usage, sent: Sequence[bytes], before: Before, read: Entries, *, window: int = 0
) -> int:
    """The tokens that a server has left of the prompt; 0 if it has not cut it, as far as its usage says.

    Args:
        gauge: What was known before the request.
        usage: What the server has counted.
        sent: The entries that the request added to the one before it.
        before: The history before them.
        read: Reads entries.
        window: The tokens that the server has left of an earlier prompt; 0 if it cut none.
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
    if left < _NEW + new // _ESTIMATED:  # before the history is read
        return 0
    entries = before.load()
    old, _ = read(entries)
    added, more = read(sent)
    if left < 2 * (more + read(entries[-1:])[1]) + _NEW:
        return 0
    return left if _least((*old, *added)) > left else 0


def _least(messages: Sequence[Message]) -> int:
    """The fewest tokens that the messages can have on any vocabulary: no token holds more than a word."""
    words = 0
    for message in messages:
        for part in message.parts:
            if isinstance(part, Text):
                more = len(part.text.encode("utf-8", "replace")) - len(part.text)
                words += len(part.text.split()) + more // _ONE_TOKEN
    return words
