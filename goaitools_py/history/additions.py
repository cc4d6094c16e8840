"""Things that an application adds to a conversation without a model call: messages, events, title, metadata.

Owns: these pure steps from blob to blob, and the step that takes a waiting message back. Must never know: a
turn, a provider's JSON, or a backend's connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ..backends.base import Dialect
from ..backends.dialects import dialect_for
from ..base.values import replace
from ..open_turn import acts
from ..open_turn.inbox import admit, claimed, withdrawn
from ..state.codec import PLAIN, Codec
from ..state.records import digest8
from ..state.row_codec import MAX_NAME
from ..state.state import (
    ConversationState,
    check_revision,
    dump_state,
    hard_limits,
    load_state,
    new_state,
    soft_limits,
)
from ..types.errors import StateTooLargeError
from ..types.messages import Message
from ..types.render import valid_text
from .archive_keeping import Retention
from .rewrite.repair import checked

__all__ = [
    "MAX_METADATA_BYTES",
    "append_messages",
    "check_update",
    "claim_waiting",
    "hand_over",
    "update_state",
    "withdraw_message",
]


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
    ids: Sequence[str] = (),
) -> bytes:
    """The blob with `messages` in its inbox. The same blob if nothing was added.

    The history stays compressed. `fresh_id` and `now_ms` are used only for a new conversation, so equal input
    gives equal bytes. `retain_bytes`: how many bytes the archive may take, if a repair changes turns and
    keeps their originals; 0 keeps nothing. `converts`: later turns convert states of other provider APIs.
    Then the messages wait in the state's own provider API. `ids`: see `admit`.

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
    return _written(blob, state, admit(state, messages, dialect, ids=ids), codec, binding)


def hand_over(
    blob: bytes,
    messages: Sequence[Message],
    dialect: Dialect,
    *,
    turn_id: str,
    context: str | None,
    metadata: Mapping[str, str] | None,
    codec: Codec,
    binding: Any,
    fresh_id: str,
    now_ms: int,
) -> bytes:
    """The blob with the messages of a turn in its inbox, for a turn that runs elsewhere. The same blob if it
    knows them already.

    `turn_id`, `context`, `metadata`: the options of the turn. `fresh_id`, `now_ms`: see `append_messages`.

    Raises:
        TurnConflictError: Other messages came with the same id.
        StateError: The state cannot be used, or has no room. The turn that waits for the lease handles that.
    """
    if blob:
        state = load_state(blob, wire=dialect.wire, codec=codec, binding=binding)
    else:
        state = new_state(dialect.wire, id=fresh_id, created=now_ms)
    known = acts.recognise(state, turn_id, tuple(messages), dialect)
    if known.is_known and not known.messages:
        return blob
    begun = acts.begin(
        state,
        known.messages,
        dialect,
        context=context,
        metadata=metadata,
        key=known.key,
        is_steering=True,
    )
    return _written(blob, state, begun.state, codec, binding)


def claim_waiting(blob: bytes, claim: str, *, codec: Codec, binding: Any) -> bytes:
    """The blob with a mark at each waiting message that could be withdrawn; the same blob without them."""
    state = load_state(blob, codec=codec, binding=binding)
    return _written(blob, state, claimed(state, claim), codec, binding, hard=True)


def withdraw_message(blob: bytes, id: str, *, codec: Codec, binding: Any, is_turn: bool = False) -> bytes:
    """The blob without the waiting messages of this id; the same blob without them, or if a running turn has
    claimed one. `is_turn`: see `inbox.withdrawn`."""
    if not blob:
        return blob
    state = load_state(blob, codec=codec, binding=binding)
    return _written(blob, state, withdrawn(state, id, is_turn=is_turn), codec, binding, hard=True)


def _written(
    blob: bytes,
    state: ConversationState,
    grown: ConversationState,
    codec: Codec,
    binding: Any,
    *,
    hard: bool = False,
) -> bytes:
    """Write a state whose inbox has changed, one revision after the blob. The same blob without a change."""
    if blob and grown.inbox == state.inbox:
        return blob
    meta = msgspec.structs.replace(
        grown.meta, rev=grown.meta.rev + 1, parent=digest8(blob[:112]) if blob else ""
    )
    state = replace(grown, meta=meta)
    limits = hard_limits(codec)
    if hard:
        return dump_state(state, codec=codec, binding=binding, limits=limits)
    try:
        return dump_state(state, codec=codec, binding=binding)
    except StateTooLargeError:
        # The next turn can cut a history that is too large. It cannot cut waiting messages: they must fit.
        dump_state(replace(state, sealed=(), hot=None, open=None), codec=codec, binding=binding)
        return dump_state(state, codec=codec, binding=binding, limits=limits)


MAX_METADATA_BYTES: Final = 4096
"""The most that the metadata of a conversation take, as JSON."""


def update_state(
    blob: bytes | bytearray | memoryview,
    *,
    title: str | None = None,
    metadata: Mapping[str, str | None] | None = None,
    codec: Codec = PLAIN,
    binding: Any = None,
) -> bytes:
    """Set the title and metadata of a conversation, for people and lists. A model never sees them.

    Args:
        title: At most 256 characters; "" takes it away, None leaves it as it is.
        metadata: Names and values to set; a value of None takes its name away, other names stay. All names
            and values take at most 4 KiB as JSON.

    Raises:
        ValueError, TypeError: A title or metadata that cannot be stored.
        StateError: The blob cannot be read.
    """
    check_update(title, metadata)
    state = load_state(blob, codec=codec, binding=binding)
    about = {**state.meta.about, **(metadata or {})}
    about = {name: value for name, value in about.items() if value is not None}
    size = len(msgspec.json.encode(about))
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"the metadata take {size} bytes, and at most {MAX_METADATA_BYTES} are stored")
    meta = msgspec.structs.replace(
        state.meta,
        title=state.meta.title if title is None else title,
        about=about,
        rev=state.meta.rev + 1,
        parent=digest8(bytes(blob)[:112]),
    )
    return dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))


def check_update(title: str | None, metadata: Mapping[str, str | None] | None) -> None:
    """Raise for a title or metadata that no state can hold."""
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be str, not {type(title).__name__}")
    if title is not None and len(title) > MAX_NAME:
        raise ValueError(f"the title has {len(title)} characters, and at most {MAX_NAME} are stored")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping, not {type(metadata).__name__}")
    for name, value in (metadata or {}).items():
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise TypeError("the names and values of metadata must be str; None as a value takes a name away")
    for text in (title or "", *(metadata or {}), *((metadata or {}).values())):
        if text is not None and valid_text(text) is not text:
            raise ValueError("a title or metadata hold a lone surrogate, which UTF-8 cannot write")
