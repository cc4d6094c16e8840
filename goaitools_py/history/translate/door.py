"""Conversion of a blob to another provider API, with a list of the losses.

Owns: the public function and its result. Must never know: an entry.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...backends.base import Dialect
from ...backends.dialects import WIRES, dialect_of
from ...base.values import Value, replace
from ...state.codec import PLAIN, Codec
from ...state.records import digest8
from ...state.state import dump_state, hard_limits, load_state
from ..wires import dialect_for
from .losses import Loss
from .state import translated

__all__ = ["Conversion", "convert_state"]


class Conversion(Value, frozen=True):
    """A converted state, and the losses of the conversion.

    Attributes:
        state: The blob of the other provider API.
        losses: The values that are not in it, by turn and kind, without content. Empty: everything went
            along.
    """

    _unshown = frozenset({"state"})

    state: bytes
    losses: tuple[Loss, ...] = ()


def convert_state(
    blob: bytes | bytearray | memoryview,
    to: str,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
    source: Dialect | None = None,
) -> Conversion:
    """Convert a conversation to another provider API. No model is asked; equal blobs give equal results.

    Texts, calls with their results, pictures, events, context blocks, notes, waiting messages, an unfinished
    turn with its waiting calls, times, usage, cost, metadata and the title go along. Thinking does not, and
    never becomes text. The archive of cuts stays as it is and can be read and searched, but a cut from before
    the conversion cannot be undone.

    Args:
        blob: The state.
        to: The other provider API: "openai", "openai-responses" or "anthropic".
        codec: How the blob is protected; the result is protected in the same way.
        binding: The owner, for a sealed blob.
        min_revision: The least revision that it may have.
        dialect: The dialect of `to` for another endpoint than the provider's own, such as a compatible
            server, or for a provider API of your own; see `goaitools_py.backends`.
        source: The dialect that wrote the state, for a provider API that is not built in.

    Returns:
        A `Conversion`. A state of that provider API already comes back as it is, without losses.

    Raises:
        StateError: The blob cannot be read, its history cannot be mended, or one of the dialects has no
            `TranslatesReplies`.
        ValueError: `to` is not a known provider API, or not the provider API of `dialect`.
    """
    if dialect is None and to not in WIRES:
        raise ValueError(f"to must be one of {', '.join(WIRES)}, got {to!r}")
    if dialect is not None and dialect.wire != to:
        raise ValueError(f"the dialect is of the provider API {dialect.wire!r}, not {to!r}")
    state = load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    if state.meta.wire == to:
        return Conversion(bytes(blob))
    written_by = dialect_for(state.meta.wire, source)
    state, losses = translated(state, written_by, dialect or dialect_of(to))
    meta = msgspec.structs.replace(state.meta, rev=state.meta.rev + 1, parent=digest8(bytes(blob)[:112]))
    converted = dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))
    return Conversion(converted, losses)
