"""Redaction: remove a text from all places of a state.

Owns: the order of the steps, and the report. Must never know: how an entry is rewritten, or a store.

::

    drop the values of a later release -> rewrite entries and rows -> take signed blocks out behind the first
    change -> rewrite the archive -> do it again, which must find nothing
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ...backends.base import Dialect
from ...base.values import Value, replace
from ...state.codec import PLAIN, Codec
from ...state.parts import ELSEWHERE
from ...state.records import digest8, with_cut
from ...state.state import ConversationState, closed_entries, dump_state, hard_limits, load_state
from ..archive.undoing import REDACTED
from ..wires import dialect_for
from .archived import cuts_of
from .entries import Redactor
from .matching import Finder, Match, found_again
from .passes import Pass, RedactedPlace
from .strip_unknown import strip_unknown

__all__ = ["RedactedPlace", "Redaction", "redact_state"]

_OPAQUE: Final = (b'"encrypted_content"', b'"redacted_thinking"')
_PASSES: Final = 4


class Redaction(Value, frozen=True, kw_only=True):
    """The result of `redact_state`. Apart from the state, it has no content of the conversation.

    Attributes:
        state: The new state; the given bytes if nothing had to change.
        count: How many matches were replaced.
        places: Where; oldest turns first.
        kept: How many matches were left, because they are words of the provider API, such as ``"user"`` in
            ``"role": "user"``.
        unsigned: How many entries have lost signed or encrypted reasoning, or its id. The provider would not
            accept them behind the change.
        sealed: How many entries still hold pieces that only the provider can read, and that cannot be
            searched. These are encrypted reasoning from before the first change, and compactions of the
            provider.
        dropped: How many values of a later release were dropped, because this release cannot read them.
        erased: Of a kept conversation: how many rows of unreadable bytes were deleted; None if the store
            cannot list its rows, so that they cannot be found. 0 for a state alone.
    """

    _unshown = frozenset({"state"})

    state: bytes
    count: int
    places: tuple[RedactedPlace, ...]
    kept: int
    unsigned: int
    sealed: int
    dropped: int
    erased: int | None = 0


def redact_state(
    blob: bytes | bytearray | memoryview,
    match: Match,
    with_: str = "[redacted]",
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
) -> Redaction:
    """Redact a text in a state: messages, tool calls and results, archive, waiting messages, metadata.

    Text is matched without its escapes: in tool arguments, in JSON in a result, in events, and across the
    parts of a message. The result keeps the rules of the provider API. Signed thinking behind the first
    change is taken out. A second call changes nothing.

    It does not search pictures and other media that are no text, digests, numbers outside of tool arguments,
    and blocks that only the provider can read (`Redaction.sealed`).

    Args:
        blob: The state.
        match: A text, with upper and lower case as given; a compiled regular expression; or a function that
            takes a text and gives the (start, end) of each match.
        with_: The replacement. It must have a visible character, and must not match.
        codec: How the blob is protected, before and after.
        binding: The owner, for a sealed blob.
        min_revision: The least revision that it may have.
        dialect: The dialect of a provider API that is not built in.

    Raises:
        TypeError, ValueError: The match cannot be searched, or `with_` would be found again.
        ValueError: Parts of the state are kept in a store: use `redact` of the conversation.
        StateError: The blob cannot be read, or a part of it is damaged.
    """
    redactor = Redactor(Finder(match, with_))
    given = load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    if any(part.place == ELSEWHERE for part in given.parts):
        raise ValueError(
            "a store keeps parts of this state, and the blob does not have them: use redact() of a "
            "conversation with parts='store'"
        )
    dialect = dialect_for(given.meta.wire, dialect)
    known, dropped = strip_unknown(given)
    first = Pass(known, redactor, dialect, codec, binding)
    state, places = first.state, first.places
    for _ in range(_PASSES):
        again = Pass(state, redactor, dialect, codec, binding)
        if not again.places:
            break
        state, places = again.state, [*places, *again.places]
    else:
        raise found_again()
    dropped += first.dropped
    found = Redaction(
        state=bytes(blob),
        count=sum(place.count for place in places),
        places=tuple(places),
        kept=first.kept,
        unsigned=first.unsigned,
        sealed=_sealed(state, codec, binding),
        dropped=dropped,
    )
    if not places and not dropped:
        return found
    meta = msgspec.structs.replace(state.meta, rev=given.meta.rev + 1, parent=digest8(bytes(blob)[:112]))
    if places:
        # A redaction has no clock, so the row has the time of the last write. It tells another worker, which
        # saves a turn on the old state, that the history has changed.
        meta = msgspec.structs.replace(meta, cuts=with_cut(meta, meta.updated, REDACTED, 0, 0))
    limits = hard_limits(codec)
    new = dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=limits)
    return replace(found, state=new)


def _sealed(state: ConversationState, codec: Codec, binding: Any) -> int:
    entries = [*closed_entries(state), *(state.open.entries if state.open is not None else ())]
    entries += [entry for cut in cuts_of(state, codec, binding) for entry in cut.entries]
    return sum(any(mark in entry for mark in _OPAQUE) for entry in entries)
