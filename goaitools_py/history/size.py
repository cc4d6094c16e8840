"""Estimating a stored conversation's size in tokens.

Owns: the way from a blob to the number. Must never know: a backend or an SDK.
"""

from __future__ import annotations

from typing import Any

from ..backends.base import Dialect
from ..open_turn.meter import next_tokens
from ..state.codec import PLAIN, Codec
from ..state.state import load_state
from ..types.tokens import TokenCounter
from .wires import dialect_for

__all__ = ["estimate_tokens"]


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
