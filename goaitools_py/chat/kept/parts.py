"""A conversation as a head, and parts that the store keeps beside it.

Owns: which parts are loaded with the head, the check that they are all there, and the way from a blob to a
head and back. Must never know: a store's engine, or the content of a part.

A turn needs the head, and the parts that are history or media. It works with the head, and each new state of
it is a head again: it lists the parts that were loaded, and has the bytes of the parts that are new. Archive
and results stay in the store, and each new head carries its list on. A cut adds a part. If the newest part in
the store has room, it is loaded for the save, and both become one.

The row decides how it is read, and ``parts=`` only how it is written. So a handle with ``parts="inline"``
loads all parts that a head lists, and works with the whole blob. Its save drops the parts from the store, in
one step. A blob that leaves a kept conversation is whole, too: it has the closed history in its body.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from ...base.values import replace
from ...history.archive_keeping import with_joined, with_room
from ...state.apart import StateHead
from ...state.blob_header import HAS_DIRECTORY
from ...state.codec import HEADER_BYTES, Codec
from ...state.parts import ARCHIVE, ELSEWHERE, INLINE, MEDIA, RESULT, SEALED_HISTORY, Part, part_missing
from ...state.state import dump_state, hard_limits, load_state
from ...state.whole_blobs import outline, parts_of
from ...stores.base import StoredHead
from ...types.errors import StateError

__all__ = [
    "LOADED",
    "PartsPlace",
    "as_head",
    "as_loaded",
    "has_new_archive",
    "head_of",
    "later_whole",
    "made_whole",
    "names_of",
    "part_with_room",
    "parts_in",
    "results_in",
    "whole_or_unreadable",
    "with_at_hand",
    "with_shared_part",
]

PartsPlace = Literal["inline", "store"]
"""Where the parts of a conversation are kept: in its blob, or beside it."""

LOADED: Final = (SEALED_HISTORY, MEDIA)
"""The kinds of parts that a turn needs. They are loaded with the head."""


_FLAGS: Final = 7
"""The byte of the header that says whether a blob has a directory."""


def head_of(
    found: StoredHead, codec: Codec, binding: Any, *, kinds: Collection[int] | None = None
) -> tuple[StateHead, frozenset[bytes]]:
    """Give the loaded head, and the names of all parts that the store keeps of it.

    The head is not opened here, and the bytes of the parts are not compared with their names: its reader
    does that. A head that cannot be read is given, too: the caller treats it as any unreadable blob.

    Args:
        found: The head and its parts.
        codec: How the blob is protected.
        binding: The owner of the blob.
        kinds: The kinds of parts that were asked for; None for all.

    Raises:
        StatePartMissingError: The head lists a part of these kinds that is not there.
    """
    loaded = {part.name: bytes(part.data) for part in found.parts}
    head = StateHead.loaded(bytes(found.blob), loaded, codec, binding)
    for name in head.names.keys() - loaded.keys():
        # The list is not verified, so it may be damaged. Then no part is missing.
        if (kinds is None or head.names[name] in kinds) and _is_readable(found.blob, codec, binding):
            raise part_missing(head.names[name], name)
    # A loaded part that the head does not list counts, too: the next save drops it.
    return head, frozenset(head.names) | loaded.keys()


def _listed(blob: bytes, codec: Codec) -> list[Part]:
    """Give the parts that a blob lists elsewhere, unverified. For most blobs one byte tells that it lists no
    part; bytes that are no blob list none, too."""
    if len(blob) < HEADER_BYTES or not blob[_FLAGS] & HAS_DIRECTORY:
        return []
    try:
        return [part for part in outline(blob, hard_limits(codec))[1] if part.place == ELSEWHERE]
    except StateError:
        return []


def names_of(blob: bytes, codec: Codec) -> Mapping[bytes, int]:
    """Give the kinds of the parts that a blob lists and that are not in it, by name. They are not verified;
    bytes that are no blob list no parts."""
    if isinstance(blob, StateHead):
        return blob.names
    return {part.digest: part.kind for part in _listed(blob, codec)}


def _is_readable(blob: bytes, codec: Codec, binding: Any) -> bool:
    try:
        parts_of(blob, codec=codec, binding=binding)
    except StateError:
        return False
    return True


def whole_or_unreadable(blob: bytes) -> bytes:
    """Give the whole blob of a head. A head that cannot be read is given unchanged.

    Raises `StateError` if one of its parts cannot be used.
    """
    if not isinstance(blob, StateHead):
        return blob
    try:
        return blob.whole
    except StateError:
        if _is_readable(blob, blob.codec, blob.binding):
            raise
        return bytes(blob)


class _WholeLater:
    """Makes a state whole when a `ChatResult` is asked for it."""

    __slots__ = ("_head",)

    def __init__(self, head: StateHead) -> None:
        self._head = head

    def __call__(self) -> bytes:
        return self._head.whole

    @property
    def size(self) -> int:
        return self._head.size


def later_whole(blob: bytes) -> Any:
    """Give a blob for a `ChatResult`, which makes it whole when it is read."""
    return _WholeLater(blob) if isinstance(blob, StateHead) else blob


def made_whole(error: BaseException | None) -> None:
    """Make the states of an error and of its causes whole, before the error leaves the conversation."""
    while error is not None:
        for name in ("state", "base"):
            blob = getattr(error, name, None)
            if isinstance(blob, StateHead):
                with suppress(StateError):  # it can still be loaded here
                    setattr(error, name, blob.whole)
        error = error.__cause__


def as_head(blob: bytes, codec: Codec, binding: Any) -> bytes:
    """Give a whole blob as a head. A blob that cannot be one is given unchanged: it is saved whole."""
    if isinstance(blob, StateHead) or not blob:
        return blob
    try:
        state = load_state(blob, codec=codec, binding=binding)
        # Hard limits: a turn that was paid for must not fail here because of its size.
        return dump_state(
            replace(state, is_apart=True), codec=codec, binding=binding, limits=hard_limits(codec)
        )
    except StateError:
        return blob


def as_loaded(blob: bytes) -> bytes:
    """Give a saved head with the parts at hand that a turn loads."""
    if not isinstance(blob, StateHead) or all(kind in LOADED for kind in blob.names.values()):
        return blob
    at_hand = {name: data for name, data in blob.at_hand.items() if blob.names[name] in LOADED}
    return StateHead.of(bytes(blob), at_hand, blob.names, blob.codec, blob.binding)


def parts_in(blob: bytes, codec: Codec, binding: Any) -> Mapping[bytes, bytes]:
    """Give the stored bytes of the parts that a blob has in it, or at hand, by their names."""
    found = parts_of(blob, codec=codec, binding=binding)
    inline = {part.digest: bytes(part.stored) for part in found if part.place == INLINE}
    # A head has parts in it if a handle has saved the blob whole.
    return {**inline, **blob.at_hand} if isinstance(blob, StateHead) else inline


def results_in(blob: bytes) -> list[bytes]:
    """Name the parts with whole results that a head lists and that are not at hand."""
    if not isinstance(blob, StateHead):
        return []
    return [name for name, kind in blob.names.items() if kind == RESULT and name not in blob.at_hand]


def with_at_hand(blob: bytes, more: Mapping[bytes, bytes]) -> bytes:
    """Give a head with more parts at hand."""
    if not isinstance(blob, StateHead) or not more:
        return blob
    return StateHead.of(bytes(blob), {**blob.at_hand, **more}, blob.names, blob.codec, blob.binding)


def has_new_archive(head: StateHead, kept: Collection[bytes]) -> bool:
    """True if a part of the archive is at hand that the store does not keep: a cut has made it, or the blob
    was whole."""
    if ARCHIVE not in head.names.values():  # as of most heads
        return False
    return any(name not in kept and head.names.get(name) == ARCHIVE for name in head.at_hand)


def part_with_room(head: StateHead) -> bytes | None:
    """Name the stored part that a new part of the archive of a head may join; None: no part has room."""
    try:
        parts = head.placed(parts_of(head, codec=head.codec, binding=head.binding))
    except StateError:
        return None
    part = with_room(parts)
    return None if part is None else part.digest


def with_shared_part(head: StateHead, stored: bytes) -> bytes:
    """Join the new part of the archive of a head with the part that `part_with_room` named.

    `stored`: the bytes of the named part. Gives the same head if they are damaged.
    """
    codec, binding = head.codec, head.binding
    state = load_state(head, codec=codec, binding=binding)
    shared = with_joined(state, stored, codec, binding)
    if shared is state:
        return head
    # Hard limits: a turn that was paid for must not fail here because of its size.
    return dump_state(shared, codec=codec, binding=binding, limits=hard_limits(codec))
