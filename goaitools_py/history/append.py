"""Appending: messages and events are added to a blob without a model call.

Owns: one pure step from blob to blob. Must never know: a backend's connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..backends.base import Dialect
from ..base.values import replace
from ..open_turn.inbox import admit
from ..state.codec import Codec
from ..state.records import digest8
from ..state.state import check_revision, dump_state, hard_limits, load_state, new_state, soft_limits
from ..types.errors import StateTooLargeError
from ..types.messages import Message
from .archive.keeping import Retention
from .rewrite.repair import checked
from .wires import dialect_for

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
    retain_bytes: int = 0,
    converts: bool = False,
) -> bytes:
    """The blob with `messages` in its inbox. The same blob if nothing was added.

    The history stays compressed. `fresh_id` and `now_ms` are used only for a new conversation, so equal input
    gives equal bytes. `retain_bytes`: how many bytes the archive may take, if a repair changes turns and
    keeps their originals; 0 keeps nothing. `converts`: later turns convert states of other provider APIs.
    Then the messages wait in the state's own provider API.

    Raises `StateTooLargeError` if the waiting messages alone exceed the limits, or the whole state exceeds
    twice the limits.
    """
    codec.check(binding)
    if blob:
        wire = None if converts else dialect.wire
        state = load_state(blob, wire=wire, codec=codec, binding=binding, min_revision=min_revision)
        if state.meta.wire != dialect.wire:
            dialect = dialect_for(state.meta.wire, None)
        retention = None
        if retain_bytes:
            limits = soft_limits(codec)
            retention = Retention(most_bytes=retain_bytes, codec=codec, binding=binding, limits=limits)
        state, _ = checked(state, dialect, retention=retention)
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
        # The next turn can cut a history that is too large. It cannot cut waiting messages: they must fit.
        dump_state(replace(state, sealed=(), hot=None, open=None), codec=codec, binding=binding)
        return dump_state(state, codec=codec, binding=binding, limits=hard_limits(codec))
