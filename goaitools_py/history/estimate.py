"""Estimating a stored conversation's size in tokens.

Owns: the way from a blob to the number. Must never know: a backend or an SDK.
"""

from __future__ import annotations

from typing import Any

from ..backends.base import Dialect
from ..state.codec import PLAIN, Codec
from ..state.state import load_state
from ..tokens import TokenCounter
from ..turn.meter import next_tokens
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
    """Input tokens of the next request if nothing more is said: what waits in the state is counted.

    Anchored at the last real usage, so preamble and tools of that request are in it. For the provider's own
    number see `Chat.count_tokens`.

    Args:
        blob: The conversation, of any wire.
        codec: How it is protected.
        binding: For sealed codecs: what the blob belongs to.
        counter: What counts what no usage has counted yet; None: `TokenEstimate`.
        dialect: That of a wire which is not built in.

    Raises:
        StateError: The blob cannot be read, or nothing here reads its wire: pass `dialect`.
    """
    state = load_state(blob, codec=codec, binding=binding)
    return next_tokens(state, dialect_for(state.meta.wire, dialect), counter)
