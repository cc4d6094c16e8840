"""Appending: messages and events enter a blob without a model call.

Owns: one pure step from blob to blob. Must never know: a backend's connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..backends.base import Dialect
from ..errors import StateTooLargeError
from ..messages import Message
from ..state.codec import Codec
from ..state.records import digest8
from ..state.state import check_revision, dump_state, hard_limits, load_state, new_state
from ..turn.inbox import admit
from ..turn.repair import checked
from ..values import replace

__all__ = ["append_messages"]


def append_messages(
    blob: bytes,
    messages: Sequence[Message],
    dialect: Dialect,
    *,
    codec: Codec,
    binding: Any,
    min_revision: int | None,
    fresh_id: str,
    now_ms: int,
) -> bytes:
    """The blob with `messages` in its inbox. The history stays compressed; the clock is not asked again
    for a conversation that exists, so that equal input gives equal bytes.

    Raises `StateTooLargeError` if the messages that wait are beyond the limits, or all together beyond twice
    the limits.
    """
    codec.check(binding)
    if blob:
        state = load_state(blob, wire=dialect.wire, codec=codec, binding=binding, min_revision=min_revision)
        state, _ = checked(state, dialect)
    else:
        state = new_state(dialect.wire, id=fresh_id, created=now_ms)
        check_revision(state, min_revision)
    grown = admit(state, messages, dialect)
    if blob and grown.inbox == state.inbox:
        return blob
    meta = msgspec.structs.replace(
        grown.meta, rev=grown.meta.rev + 1, parent=digest8(blob[:112]) if blob else ""
    )
    state = replace(grown, meta=meta)
    try:
        return dump_state(state, codec=codec, binding=binding)
    except StateTooLargeError:
        # What makes it too large is the history, which the next turn may cut; what waits has to fit alone.
        dump_state(replace(state, sealed=(), hot=None, open=None), codec=codec, binding=binding)
        return dump_state(state, codec=codec, binding=binding, limits=hard_limits(codec))
