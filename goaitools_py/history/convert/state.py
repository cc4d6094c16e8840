"""A whole state of one provider API as a state of another: turns with their records, open turn, inbox, facts.

Owns: which values of a state are written anew, which stay, and which are dropped, and the conversion of a
blob. Must never know: a provider's JSON, or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ...backends.base import Dialect, RequestParts
from ...backends.dialects import WIRES, dialect_for, dialect_of
from ...backends.protocols import problems_of
from ...base import rawjson
from ...base.values import Value, replace
from ...open_turn import journal, steps
from ...open_turn.inbox import inbox_messages
from ...open_turn.meter import elsewhere, unanchored
from ...open_turn.turn_ids import UNKNOWN_SAID, said_converted, with_texts
from ...state.closed_turns import FACTS, ClosedTurn, Iteration, TurnRecord, has_gap, numbers_of, with_numbers
from ...state.codec import PLAIN, BlobLimits, Codec
from ...state.parts import ARCHIVE, IGNORABLE_PARTS
from ...state.records import (
    RULES_VERSION,
    UNKNOWN_MARK,
    CutRow,
    InboxItem,
    JournalCall,
    Meta,
    OpenTurn,
    RingRow,
    TurnIdRow,
    digest8,
    with_cut,
)
from ...state.row_codec import NO_MORE
from ...state.state import (
    ConversationState,
    closed_turns,
    dump_state,
    hard_limits,
    load_state,
    newest_number,
    rebuild,
)
from ...types.errors import StateInvalidError
from ..message_places import new_digests
from ..rewrite.repair import checked, repaired
from .entries import Books, Loss, Moved, Translator

_Row = TypeVar("_Row", TurnIdRow, RingRow)

__all__ = ["Conversion", "convert_state", "translated"]

_CONVERTED: Final = "converted"
"""The name in the list of cuts for a conversion, in the place of a strategy."""

_ITERATION_ENDS: Final = frozenset({"m", "who", "q", "pin"})
_CUT_ENDS: Final = frozenset({"n", "size", "sum", "record", "records"})
_INBOX_ENDS: Final = frozenset({"who", "pin", "id", "taken", "turn"})


def translated(
    state: ConversationState, source: Dialect, target: Dialect, *, limits: BlobLimits, at: int | None = None
) -> tuple[ConversationState, tuple[Loss, ...]]:
    """The state on the provider API of `target`, and the losses.

    Equal states give equal results. The archive stays as it is, in its own provider API.

    Args:
        state: The conversation.
        source: Reads its entries.
        target: Writes the new entries.
        limits: How large the state may be. A call with its result counts as ten JSON values.
        at: Now, in milliseconds after the conversation began; None: when the state was written last.

    Raises:
        StateInvalidError: The history cannot be read, or cannot be mended for the other provider.
        StateTooLargeError: It has more calls or results than values are allowed.
        StateProviderError: One of the dialects has no `TranslatesReplies`.
    """
    state, _ = checked(state, source)
    closed = False
    opened = state.open
    if opened is not None and not _goes_on(opened, source, target, limits):
        state, closed = steps.close_turn(state, source), True
        state, _ = repaired(state, source)
    translator = Translator(source, target, limits)
    found = _translated(state, translator, state.meta.updated if at is None else at)
    books = translator.books
    if closed:
        books.turn = state.meta.processed
        books.lose("open_turn")
    found, log = repaired(found, target)
    books.turn = 0
    books.lose("mended", sum(log.values()))
    meta = msgspec.structs.replace(found.meta, rules=RULES_VERSION)
    return replace(found, meta=meta), books.losses()


def _translated(state: ConversationState, translator: Translator, at: int) -> ConversationState:
    books = translator.books
    old = with_numbers(closed_turns(state))
    turns: list[ClosedTurn] = []
    reworded: list[ClosedTurn] = []
    for turn, number in zip(old, numbers_of([turn.record for turn in old]), strict=True):
        books.turn = number
        new, has_shifted = _turn(turn, translator)
        turns.append(new)
        if has_shifted:
            reworded.append(turn)
    books.turn = newest_number(state)
    opened = _open_turn(state.open, translator) if state.open is not None else None
    books.turn = 0
    inbox = _inbox(state, translator)
    all_turns = turns if opened is None else [*turns, opened.closed()]
    said = new_digests(state, all_turns, inbox, translator.source, translator.target)
    turns = [turn for turn in turns if turn.entries]
    kept = tuple(part for part in state.parts if part.kind not in IGNORABLE_PARTS)
    books.lose("later", len(state.extras) + len(state.later) + len(state.parts) - len(kept))
    books.lose("archive", sum(part.entries for part in kept if part.kind == ARCHIVE))
    base = replace(
        state,
        meta=with_texts(state.meta, reworded, translator.source),
        extras={},
        later=(),
        parts=kept,
        inbox=inbox,
        open=opened,
    )
    found = rebuild(base, turns)
    return replace(found, meta=_meta(found, turns, said, translator.target, books, at))


# --------------------------------------------------------------------------------------------- turns


def _turn(turn: ClosedTurn, translator: Translator) -> tuple[ClosedTurn, bool]:
    """The turn, and whether the text of a reply has changed."""
    record = turn.record
    iterations, moved = _iterations(turn, translator)
    entries = tuple(entry for one in moved for entry in one.entries)
    new = TurnRecord(
        at=record.at,
        messages=len(translator.target.view(entries)),
        iterations=iterations,
        facts=_facts(record.facts, moved, translator),
    )
    return ClosedTurn(entries, new), any(one.shifts for one in moved)


def _iterations(turn: ClosedTurn, translator: Translator) -> tuple[tuple[Iteration, ...], list[Moved]]:
    flags = turn.record.facts.get("flags", {})
    moved = [translator.moved(entries, iteration.roles, flags) for iteration, entries in turn.by_iteration()]
    iterations = tuple(
        replace(iteration, roles=one.letters, more=_end(iteration.more, _ITERATION_ENDS, translator.books))
        for iteration, one in zip(turn.record.iterations, moved, strict=True)
    )
    return iterations, moved


def _facts(facts: Mapping[str, Any], moved: Sequence[Moved], translator: Translator) -> Mapping[str, Any]:
    """The facts that this release knows, with the new ids of calls and the new places of citations."""
    known = {name: value for name, value in facts.items() if name in FACTS}
    translator.books.lose("later", len(facts) - len(known))
    failed = {id: "error" for one in moved for id in sorted(one.failed)}
    if failed or "flags" in known:
        known["flags"] = {
            **{translator.id(id): flag for id, flag in known.get("flags", {}).items()},
            **failed,
        }
    if "citations" in known and any(one.shifts for one in moved):
        known["citations"] = [_shifted(row, moved) for row in known["citations"]]
    return known


def _shifted(row: Any, moved: Sequence[Moved]) -> Any:
    """The row of a citation, moved by the length of the text that was put into its reply before it."""
    reply = row.get("reply") if isinstance(row, Mapping) else None
    if type(reply) is not int or not 0 <= reply < len(moved):
        return row
    shifts = moved[reply].shifts
    places = {
        name: row[name] + sum(length for place, length in shifts if place <= row[name])
        for name in ("start", "end")
        if type(row.get(name)) is int
    }
    return {**row, **places}


def _end(raw: bytes, known: frozenset[str], books: Books) -> bytes:
    """The object at the end of a row, without the names of a later release."""
    if not raw:
        return raw
    unknown = rawjson.names(raw) - known
    if not unknown:
        return raw
    books.lose("later", len(unknown))
    left = rawjson.without(raw, unknown)
    return left if rawjson.names(left) else b""


# ---------------------------------------------------------------------------------------- the open turn


def _goes_on(opened: OpenTurn, source: Dialect, target: Dialect, limits: BlobLimits) -> bool:
    """True if the unfinished turn can go on with the other provider API."""
    trial = _open_turn(opened, Translator(source, target, limits))
    if problems_of(target, trial.entries, open_end=True):
        return False
    state = ConversationState(meta=Meta(wire=target.wire), open=trial)
    try:
        journal.check_journal(state, target)
    except StateInvalidError:
        return False
    return True


def _open_turn(opened: OpenTurn, translator: Translator) -> OpenTurn:
    turn = ClosedTurn(
        opened.entries[: len(opened.entries) - len(opened.letters)],
        TurnRecord(at=opened.at, messages=0, iterations=opened.iterations, facts=opened.facts),
    )
    iterations, moved = _iterations(turn, translator)
    rest = translator.moved(opened.unanswered, opened.letters, opened.facts.get("flags", {}))
    entries = tuple(entry for one in (*moved, rest) for entry in one.entries)
    extras = len(opened.extras) + sum(len(call.extras) for call in opened.calls)
    translator.books.lose("later", extras)
    return replace(
        opened,
        entries=entries,
        iterations=iterations,
        letters=rest.letters,
        messages=len(translator.target.view(entries)),
        calls=tuple(_open_call(call, translator) for call in opened.calls),
        facts=_facts(opened.facts, (*moved, rest), translator),
        extras={},
    )


def _open_call(call: JournalCall, translator: Translator) -> JournalCall:
    """The call under its new id. A provider's tool does not exist elsewhere: without a result its call is
    closed."""
    moved = replace(call, id=translator.id(call.id), extras={})
    if call.kind == "function":
        return moved
    if call.kind == "provider":
        moved = replace(moved, kind="function")
        if call.state == "done":
            return moved
        return journal.synthetic(moved, "unknown" if call.state == "started" else "not_run")
    if not translator.takes("custom_call"):
        written = rawjson.dumps({"input": call.arguments}).decode()
        return replace(moved, kind="function", arguments=written)
    return moved


def _inbox(state: ConversationState, translator: Translator) -> tuple[InboxItem, ...]:
    moved: list[InboxItem] = []
    for item in state.inbox:
        (message, *_) = inbox_messages(replace(state, inbox=(item,)), translator.source)
        (entry, *_) = translator.said(message)
        more = _end(item.more, _INBOX_ENDS, translator.books)
        moved.append(replace(item, entry=entry, more=more))
    return tuple(moved)


# -------------------------------------------------------------------------------------------- facts


def _meta(
    state: ConversationState,
    turns: Sequence[ClosedTurn],
    said: Mapping[str, str],
    target: Dialect,
    books: Books,
    at: int,
) -> Meta:
    """The meta data of the converted state. Usage, cost, texts and names stay.

    `said`: the digests of the converted messages, by turn id.
    """
    meta = elsewhere(unanchored(state.meta))
    sticky = {name: value for name, value in meta.sticky.items() if _takes(target, name, value)}
    books.lose("setting", len(meta.sticky) - len(sticky))
    books.lose("carried", len(meta.carry))
    books.lose("later", sum(bool(bytes(row.more)) for rows in (meta.turn, meta.ring) for row in rows))
    return msgspec.structs.replace(
        meta,
        wire=target.wire,
        status=_status(state),
        messages=sum(turn.record.messages for turn in turns),
        turns=len(turns),
        preamble=meta.preamble and UNKNOWN_MARK,
        tools=meta.tools and UNKNOWN_MARK,
        output=meta.output and UNKNOWN_MARK,
        sticky=sticky,
        turn=tuple(_as_found(row, said) for row in meta.turn),
        ring=tuple(_as_found(row, said) for row in meta.ring),
        cuts=with_cut(_with_known_cuts(meta, books), at, _CONVERTED, 0, 0),
        signed=False,
        unbound=False,
        carry={},
        gap=has_gap(turns, meta.processed),
    )


def _as_found(row: _Row, found: Mapping[str, str]) -> _Row:
    """The row of a turn id with the digest of its converted messages."""
    said = said_converted(row, found[row.id]) if row.id in found else UNKNOWN_SAID
    return row._replace(said=said, more=NO_MORE)


def _status(state: ConversationState) -> str:
    status = state.meta.status
    return "in_progress" if status == "awaiting_tools" and not journal.is_waiting(state) else status


def _with_known_cuts(meta: Meta, books: Books) -> Meta:
    cuts = tuple(_cut(row, books) for row in meta.cuts)
    return msgspec.structs.replace(meta, cuts=cuts)


def _cut(row: CutRow, books: Books) -> CutRow:
    more = bytes(row.more)
    left = _end(more, _CUT_ENDS, books)
    return row if left == more else row._replace(more=msgspec.Raw(left))


def _takes(target: Dialect, name: str, value: Any) -> bool:
    """Whether the provider API has a setting."""
    try:
        target.request(RequestParts(model="any", history=(), settings={name: value}))
    except (TypeError, ValueError):
        return False
    return True


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
    limits = hard_limits(codec)
    state, losses = translated(state, written_by, dialect or dialect_of(to), limits=limits)
    meta = msgspec.structs.replace(state.meta, rev=state.meta.rev + 1, parent=digest8(bytes(blob)[:112]))
    converted = dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=limits)
    return Conversion(converted, losses)
