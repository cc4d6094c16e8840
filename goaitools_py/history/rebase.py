"""Rebase: two states that grew from the same base become one state with the additions of both.

Owns: the pure step from three blobs to one. Must never know: a store, or which worker saved first.

The additions of `theirs` stay where they are, and the additions of `mine` follow. Appended messages can
always be joined. Turns can be joined if only one side has new turns. If both sides have new turns, that is a
conflict, unless the caller allows it. The model has then answered the later turns without the earlier turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from ..backends.base import Dialect
from ..backends.dialects import dialect_for, known_dialect
from ..base.values import replace
from ..open_turn.meter import unanchored
from ..open_turn.turn_ids import TURN_IDS_FACT, UNANSWERED, id_rows, said_in
from ..state.closed_turns import ClosedTurn, has_gap, with_numbers
from ..state.codec import PLAIN, BlobLimits, Codec
from ..state.media_rows import named_results, result_named, results_of, with_results
from ..state.records import IDS_KEPT, InboxItem, Meta, digest8, usage_of, usage_row
from ..state.row_codec import bounded
from ..state.state import (
    ConversationState,
    closed_entries,
    closed_turns,
    dump_state,
    hard_limits,
    load_state,
    new_state,
    rebuild,
)
from ..types.errors import StateConflictError
from .archive_reading import REDACTED
from .convert.state import translated
from .rewrite.rewritten import is_signed, unsigned_turns, with_unique_calls

__all__ = ["begun_at", "holds_state", "rebase_state", "with_arrived"]


def rebase_state(
    mine: bytes | bytearray | memoryview,
    *,
    base: bytes | bytearray | memoryview | None,
    theirs: bytes | bytearray | memoryview,
    concurrent_turns: bool = False,
    codec: Codec = PLAIN,
    binding: Any = None,
    dialect: Dialect | None = None,
) -> bytes:
    """Join two states that both grew from `base`: the additions of `theirs`, then the additions of `mine`.

    No model and no tool is called. An event that both have, by its id, enters once. So do the messages of a
    turn that both have, by its `turn_id`. Of waiting events with the same topic the newest stays. Messages
    that one side took back, because the provider refused them, are taken out.

    Args:
        mine: The state that could not be saved.
        base: The state that `mine` grew from; None or empty if `mine` began the conversation.
        theirs: The state that was saved meanwhile.
        concurrent_turns: Put my turns behind theirs if both have new turns. The model has answered mine
            without knowing theirs. Signed thinking is taken out of mine, because its prefix changes. A call
            of mine with the id of a call of theirs gets another id.
        codec: How the blobs are protected.
        binding: The owner, for sealed blobs.
        dialect: The dialect of a provider API that is not built in.

    Raises:
        StateConflictError: Both have new turns, or the same turn, or they did not grow from this base.
        StateError: One of the blobs cannot be read.
    """
    if bytes(theirs) in (bytes(base or b""), bytes(mine)):
        return mine if isinstance(mine, bytes) else bytes(mine)
    my, old, their = _three(mine, base, theirs, codec, binding)
    _check_kinship(my, old, their, has_base=bool(base))
    shared = _new_ids(my, old) & _new_ids(their, old)
    if not _has_moved(my, old):
        joined = _without(their, my, old)
        joined = _with_inbox(joined, _unsaid(my, old, their if shared else None), my.meta, old.meta)
        joined = _with_claims(joined, my, old)
    elif not _has_moved(their, old):
        joined = _without(my, their, old)
        joined = _with_inbox(joined, _unsaid(their, old, my if shared else None), their.meta, old.meta)
        joined = _with_claims(joined, their, old)
    elif shared:
        raise StateConflictError(
            "both states have the same turn, and each has a reply to it; go on from one of them"
        )
    elif concurrent_turns:
        joined = _behind(my, old, their, dialect_for(my.meta.wire, dialect))
    else:
        raise StateConflictError(
            "both states have new turns since their base; run my turn again on theirs, or pass "
            "concurrent_turns=True"
        )
    joined = _with_both(joined, my.meta, old.meta, their.meta)
    meta = msgspec.structs.replace(joined.meta, rev=joined.meta.rev + 1, parent=digest8(bytes(theirs)[:112]))
    return dump_state(replace(joined, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))


def with_arrived(
    my: ConversationState, *, base: bytes, theirs: bytes, codec: Codec, binding: Any
) -> ConversationState | None:
    """The state of a running turn with the messages that came into `theirs` since `base`, from which it grew.

    Everything else that `theirs` has added is in it, too, so that it grows from `theirs` now. None if no
    message came, or if `theirs` has a turn or is another conversation: then the turn's next save tells.
    """
    their = load_state(theirs, codec=codec, binding=binding)
    if base:
        old = load_state(base, codec=codec, binding=binding)
        if their.meta.created != old.meta.created:  # deleted, and begun anew
            return None
    else:
        old, my = (
            new_state(their.meta.wire, id=their.meta.id, created=their.meta.created),
            _since(my, their.meta.created),
        )
    if not my.meta.wire == old.meta.wire == their.meta.wire or _has_moved(their, old):
        return None
    shared = _new_ids(my, old) & _new_ids(their, old)
    joined = _with_inbox(
        _without(my, their, old), _unsaid(their, old, my if shared else None), their.meta, old.meta
    )
    if not _added(my.inbox, joined.inbox):  # that one was taken out alone is no reason for a request
        return None
    return _with_both(joined, my.meta, old.meta, their.meta)


def _with_both(joined: ConversationState, my: Meta, old: Meta, their: Meta) -> ConversationState:
    """A joined state with the revision, the costs and the texts about the conversation of both sides."""
    meta = msgspec.structs.replace(
        joined.meta,
        rev=max(my.rev, their.rev),
        updated=max(my.updated, their.updated),
        total=_sum(my.total, old.total, their.total),
        aside=_sum(my.aside, old.aside, their.aside),
        cost=_row_sum(my.cost, old.cost, their.cost),
        title=my.title if my.title != old.title else their.title,
        about=_about(my, old, their),
    )
    return replace(joined, meta=meta)


def holds_state(
    theirs: bytes, mine: bytes, *, base: bytes | None, codec: Codec = PLAIN, binding: Any = None
) -> bool:
    """True if `theirs` has everything that `mine` added to `base`.

    For a worker that got no answer to its save: was it saved? False if a cut has since removed the additions
    of `mine`, if a message that `mine` claimed was taken back, if one that `mine` released is still claimed,
    or if a model has accepted one that `mine` took back.
    """
    my, old, their = _three(mine, base, theirs, codec, binding)
    if their.meta.parent == digest8(mine[:112]):
        return True
    entries, gone = closed_entries(my), _taken_back(my, old)
    return (
        (my.open is None or my.open in (old.open, their.open))
        and closed_entries(their)[: len(entries)] == entries
        and all(cut in their.meta.cuts for cut in my.meta.cuts)
        and _added(gone, their.inbox) == list(their.inbox)
        and not _unsaid(my, old, their)
        and _has_claims(their, my, old)
        and not _has_accepted(their, my, gone)
    )


def _has_claims(their: ConversationState, my: ConversationState, old: ConversationState) -> bool:
    """True if `their` has the claims that `my` has made since `old`, and lacks those that it has released. A
    model may have answered a claimed message."""
    changed = _claims_since(my, old)
    if not changed:
        return True
    heard, waiting = _heard(their), set(their.inbox)
    return all(
        new in waiting or new.entry in heard if new.is_taken else item not in waiting
        for item, new in changed.items()
    )


def _has_accepted(their: ConversationState, my: ConversationState, gone: list[InboxItem]) -> bool:
    """True if a model has accepted one of these messages in `their`, and not in `my`."""
    if not gone:
        return False
    known, now = ({*state.meta.events, *_ids_of(state.meta)} for state in (my, their))
    fresh, accepted = now - known, _heard(their) - _heard(my)
    return any(item.id in fresh or accepted[item.entry] for item in gone)


def _heard(state: ConversationState) -> Counter[bytes]:
    """How often the history has each entry; the inbox does not count."""
    return Counter([*closed_entries(state), *(state.open.entries if state.open is not None else ())])


def begun_at(blob: bytes, created: int, *, codec: Codec = PLAIN, binding: Any = None) -> bytes:
    """The blob, with another time for the begin of its conversation: milliseconds since the epoch.

    For a worker that began a conversation at the same moment as another worker, if the other state was saved
    first.
    """
    state = load_state(blob, codec=codec, binding=binding)
    if state.meta.created == created:
        return blob
    return dump_state(_since(state, created), codec=codec, binding=binding, limits=hard_limits(codec))


def _three(
    mine: Any, base: Any, theirs: Any, codec: Codec, binding: Any
) -> tuple[ConversationState, ConversationState, ConversationState]:
    """Mine, the base, and theirs, all of one provider API."""
    my, their = (load_state(blob, codec=codec, binding=binding) for blob in (mine, theirs))
    if base:
        old = load_state(base, codec=codec, binding=binding)
    else:
        my = _since(my, their.meta.created)
        old = new_state(their.meta.wire, id=their.meta.id, created=their.meta.created)
    if my.meta.wire == old.meta.wire == their.meta.wire:
        return my, old, their
    # One side was converted. A conversion loses thinking, so the side that only waits is converted to the API
    # of the side that has a turn.
    only_waits = (not base or my.meta.wire == old.meta.wire) and not _has_moved(my, old)
    if only_waits and not base:  # nothing was converted before: take the base of the state that is
        old = new_state(my.meta.wire, id=their.meta.id, created=their.meta.created)
    wire, at = (their if only_waits else my).meta.wire, old.meta.updated
    limits = hard_limits(codec)
    found = [_converted(state, wire, at, limits) for state in (my, old, their)]
    return found[0], found[1], found[2]


def _converted(state: ConversationState, wire: str, at: int, limits: BlobLimits) -> ConversationState:
    """The state in this provider API. Equal states give equal results, so additions are still found."""
    if state.meta.wire == wire:
        return state
    source, target = known_dialect(state.meta.wire), known_dialect(wire)
    if source is None or target is None:
        return state
    return translated(state, source, target, limits=limits, at=at)[0]


def _new_ids(state: ConversationState, old: ConversationState) -> set[str]:
    """Digests of the turn ids that the state has and the old one does not have."""
    return _ids_of(state.meta) - _ids_of(old.meta)


def _ids_of(meta: Meta) -> set[str]:
    return {row.id for row in meta.turn} | {row.id for row in meta.ring}


def _taken_back(state: ConversationState, old: ConversationState) -> list[InboxItem]:
    """Messages that waited in the old state and not in this one, which has no new turn: the provider refused
    them."""
    topics = {item.topic for item in state.inbox if item.topic}
    return [item for item in _added(state.inbox, old.inbox) if item.topic not in topics]


def _without(state: ConversationState, other: ConversationState, old: ConversationState) -> ConversationState:
    """The state without the messages that the other state took back, if they still wait, and without their
    event ids, turn ids and context.

    Messages that a model has accepted in this state stay, and so do their ids: they must not be sent twice.
    """
    gone = _taken_back(other, old)
    ids = {row[:2] for row in old.meta.turn} - {row[:2] for row in other.meta.turn}
    left = _added(gone, state.inbox)
    if len(left) == len(state.inbox):
        return state
    marks = {item.event for item in _added(left, state.inbox) if item.event}
    events = tuple(mark for mark in state.meta.events if mark not in marks)
    accepted = state.open.facts.get(TURN_IDS_FACT, ()) if state.open is not None else ()
    turn = tuple(row for row in state.meta.turn if row.id in accepted or row[:2] not in ids)
    meta = msgspec.structs.replace(state.meta, events=events, turn=turn, context="")
    return replace(state, inbox=tuple(left), meta=meta)


def _with_claims(
    state: ConversationState, other: ConversationState, old: ConversationState
) -> ConversationState:
    """The state with the claims that the other one has made since the old one, and without those that it has
    released: a model may read a claimed message. A message with another claim by now keeps it."""
    changed = _claims_since(other, old)
    if not changed:
        return state
    return replace(state, inbox=tuple([changed.get(item, item) for item in state.inbox]))


def _claims_since(state: ConversationState, old: ConversationState) -> dict[InboxItem, InboxItem]:
    """The messages with another claim than in the old state, each with its new form."""
    now = {item.claimed(""): item for item in state.inbox if item.id}
    pairs = ((item, now.get(item.claimed(""), item)) for item in old.inbox if item.id)
    return {item: new for item, new in pairs if new != item}


def _said_under(state: ConversationState, id: str) -> list[str]:
    """The digests of what was said under a turn id, as far as its rows tell."""
    return [said for row in id_rows(state.meta) if row.id == id and (said := said_in(row))]


def _unsaid(
    state: ConversationState, old: ConversationState, other: ConversationState | None
) -> list[InboxItem]:
    """The messages that wait in the state and not in the old state. With `other`: only messages that the
    other state lacks."""
    added = _added(old.inbox, state.inbox)
    if other is None or not added:
        return added
    # The messages of a steering send name their turn. Its context may differ in a second delivery.
    shared = _new_ids(state, old) & _new_ids(other, old)
    # One id for two messages is a mistake of the caller, and no reason to lose one of them.
    shared = {id for id in shared if len({*_said_under(state, id), *_said_under(other, id)}) < 2}
    added = [item for item in added if item.turn not in shared]
    said = Counter(closed_entries(other))
    said.subtract(closed_entries(old))
    said.update(item.entry for item in _added(old.inbox, other.inbox))
    if other.open is not None:
        said.update(other.open.entries)
    unsaid: list[InboxItem] = []
    for item in added:
        if said[item.entry] > 0:
            said[item.entry] -= 1
        else:
            unsaid.append(item)
    return unsaid


def _check_kinship(
    my: ConversationState, old: ConversationState, their: ConversationState, *, has_base: bool
) -> None:
    metas = (my.meta, their.meta)
    same = all(meta.wire == old.meta.wire and meta.processed >= old.meta.processed for meta in metas)
    if has_base:
        same = same and all(meta.created == old.meta.created and meta.rev >= old.meta.rev for meta in metas)
    if not same:
        raise StateConflictError(
            "the two states did not grow from this base; load the state and run the turn again"
        )


def _since(state: ConversationState, created: int) -> ConversationState:
    """The state, with another begin of its conversation; the absolute times of its turns and cuts stay.

    Two workers may begin the same conversation at once. Both then use the begin that was saved first, because
    others identify the conversation by it.
    """
    later = state.meta.created - created
    if not later:
        return state

    def at(ms: int) -> int:
        return bounded(ms + later)

    turns = [
        replace(turn, record=replace(turn.record, at=at(turn.record.at))) for turn in closed_turns(state)
    ]
    cuts = tuple(cut._replace(at=at(cut.at)) for cut in state.meta.cuts)
    meta = msgspec.structs.replace(state.meta, created=created, updated=at(state.meta.updated), cuts=cuts)
    opened = state.open
    if opened is not None:
        opened = replace(opened, at=at(opened.at))
    return rebuild(replace(state, meta=meta, open=opened), turns)


def _has_moved(state: ConversationState, old: ConversationState) -> bool:
    """True if the state has a turn, a part of a turn, or a cut that the old one does not have."""
    return (
        state.meta.processed != old.meta.processed
        or state.open != old.open
        or state.meta.cuts != old.meta.cuts
        or state.history_bytes() != old.history_bytes()
    )


def _added(old: Iterable[InboxItem], new: Iterable[InboxItem]) -> list[InboxItem]:
    """The items of `new` that `old` does not have, in order."""
    # A message that a turn has claimed since is the same message.
    known = Counter(item.claimed("") for item in old)
    added: list[InboxItem] = []
    for item in new:
        bare = item.claimed("")
        if known[bare]:
            known[bare] -= 1
        else:
            added.append(item)
    return added


def _with_inbox(
    state: ConversationState, added: list[InboxItem], other: Meta, old: Meta
) -> ConversationState:
    """The state with the messages that were added to another one's inbox, and with the new ids there.

    An id that only the old state had was taken back with its turn. It may be used again, so it is not added.
    """
    meta = state.meta
    fresh = [item for item in added if not item.event or item.event not in meta.events]
    topics = {item.topic for item in fresh if item.topic}
    inbox = (*(item for item in state.inbox if item.topic not in topics), *fresh)
    events = tuple(dict.fromkeys((*meta.events, *other.events)))
    known = _ids_of(meta) | {row.id for row in old.turn}
    turn = (*meta.turn, *(row for row in other.turn if row.id not in known))
    meta = msgspec.structs.replace(meta, events=events[-IDS_KEPT:], turn=turn[-IDS_KEPT:])
    if added and other.said != old.said:
        meta = msgspec.structs.replace(meta, said={**meta.said, **other.said})
    if added and other.context not in ("", old.context):
        meta = msgspec.structs.replace(meta, context=other.context)
    return replace(state, inbox=inbox, meta=meta)


def _behind(
    my: ConversationState, old: ConversationState, their: ConversationState, dialect: Dialect
) -> ConversationState:
    """Their state, followed by the new turns of mine."""
    count = my.meta.processed - old.meta.processed
    turns = closed_turns(my)
    if my.open is not None or their.open is not None or not 0 < count <= len(turns):
        raise StateConflictError(
            "both states have new turns, and one that is unfinished or cut cannot be joined; run my turn "
            "again on theirs"
        )
    if old.open is not None:  # both sides went on with the same turn, and joining them would repeat it
        raise StateConflictError(
            "both states went on from the same unfinished turn; run my turn again on theirs"
        )
    heard = _added(my.inbox, old.inbox)
    if heard and _added(their.inbox, old.inbox):
        raise StateConflictError(
            "both states answered the same waiting messages; run my turn again on theirs"
        )
    own = turns[-count:]
    if "rewound" in _cuts_since(my, old):
        raise StateConflictError(
            "my turn replaces an earlier one, and theirs came behind that; run my turn again on theirs"
        )
    if REDACTED in _cuts_since(their, old):
        raise StateConflictError(
            "theirs was redacted, and my turn may repeat what was taken out; run my turn again on theirs"
        )
    before = closed_turns(their)
    if any(turn in before for turn in own):  # mine has a cut among its new turns, or theirs grew from mine
        raise StateConflictError(
            "both states have the same turn, and each has a reply to it; go on from one of them"
        )
    if my.meta.signed:
        own = unsigned_turns(own, dialect)
    own = with_unique_calls(own, before, dialect)
    first = their.meta.processed + 1
    own = [_renumbered(turn, number) for number, turn in enumerate(own, first)]
    behind = [*with_numbers(before), *own]
    joined = rebuild(their, behind)
    answered = {row.id for row in my.meta.ring if row.status != UNANSWERED}
    theirs = [row for row in their.meta.ring if row.status != UNANSWERED or row.id not in answered]
    known = {row.id for row in theirs}
    ring = (*theirs, *(row for row in my.meta.ring if row.id not in known))
    # An id without its message would refuse a second delivery: an edit may have taken the message out.
    gone = {row.id for row in old.meta.turn} - {row.id for row in my.meta.turn}
    meta = msgspec.structs.replace(
        their.meta,
        messages=their.meta.messages + sum(turn.record.messages for turn in own),
        turns=their.meta.turns + len(own),
        processed=their.meta.processed + count,
        gap=has_gap(behind, their.meta.processed + count),
        tokens=their.meta.tokens + max(0, my.meta.tokens - old.meta.tokens),
        gauge=unanchored(their.meta).gauge,
        usage=my.meta.usage,
        context="",
        systems=their.meta.systems or my.meta.systems,
        signed=their.meta.signed or any(is_signed(turn.entries, dialect) for turn in own),
        ring=ring[-IDS_KEPT:],
        turn=tuple(row for row in their.meta.turn if row.id not in gone),
        rules=min(their.meta.rules, my.meta.rules),
    )
    joined = replace(_with_results(joined, my, own), meta=meta)
    waiting = tuple(_added(heard, joined.inbox))  # without a message that has another claim by now
    joined = _with_inbox(replace(joined, inbox=waiting), _added(old.inbox, my.inbox), my.meta, old.meta)
    joined = replace(joined, meta=msgspec.structs.replace(joined.meta, context=""))
    return _with_claims(joined, my, old)


def _with_results(
    joined: ConversationState, my: ConversationState, own: Iterable[ClosedTurn]
) -> ConversationState:
    """The joined state with the whole results that my turns name.

    Raises `StateConflictError` if a turn of theirs names another result by the same number.
    """
    if not any(results_of(state.parts) for state in (my, joined)):
        return joined
    named = named_results(entry for turn in own for entry in turn.entries)
    found = [part for part in results_of(my.parts) if part.entries in named]
    if any(result_named(joined.parts, part.entries) is not None for part in found):
        raise StateConflictError(
            "both states have kept a large result of the same call; run my turn again on theirs"
        )
    return replace(joined, parts=with_results(joined.parts, [*results_of(joined.parts), *found]))


def _cuts_since(state: ConversationState, old: ConversationState) -> set[str]:
    """The kinds of cuts that the state has and the old one does not have."""
    return {cut.by for cut in state.meta.cuts if cut not in old.meta.cuts}


def _renumbered(turn: ClosedTurn, number: int) -> ClosedTurn:
    return replace(turn, record=replace(turn.record, facts={**turn.record.facts, "n": number}))


def _about(my: Meta, old: Meta, their: Meta) -> dict[str, str]:
    """Their metadata of the conversation, with the names that mine set or removed since the old state."""
    if my.about == old.about:
        return their.about
    merged = {name: value for name, value in their.about.items() if name in my.about or name not in old.about}
    return merged | {name: value for name, value in my.about.items() if old.about.get(name) != value}


def _sum(mine: tuple[int, ...], old: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
    return usage_row(usage_of(_row_sum(mine, old, theirs)))


def _row_sum(mine: tuple[int, ...], old: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
    """The sum of a counter: theirs, plus the growth from old to mine."""
    size = max(len(mine), len(old), len(theirs))
    padded = ((*row, *[0] * (size - len(row))) for row in (mine, old, theirs))
    return tuple(max(0, t + m - o) for m, o, t in zip(*padded, strict=True))
