"""Redact the values beside the entries of a state: meta data, turn facts, inbox, open turn.

Owns: which of these values are text, and which are numbers, digests and words of this package; and taking
every name, fact, segment and part of a later release out of a state. Must never know: how an entry is
rewritten, or how a state is written.

A redaction must not carry values that it cannot read, so it takes them out and counts them. All other
operations keep them. Each function gives the same object if nothing in it changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from ...base import rawjson
from ...base.values import replace
from ...state.closed_turns import FACTS, Iteration, TurnRecord
from ...state.parts import IGNORABLE_PARTS
from ...state.records import CutRow, InboxItem, JournalCall, Meta, OpenTurn, fresh_id
from ...state.row_codec import (
    MAX_LABEL,
    MAX_NAME,
    NO_MORE,
    CutEnd,
    InboxEnd,
    IterationEnd,
    inbox_end,
    iteration_end,
    known_end,
)
from ...state.state import ConversationState, closed_turns, rebuild
from ...types.messages import Part, Text
from .entry_texts import Redactor

__all__ = [
    "NO_TEXT_FACTS",
    "inbox_without",
    "known_record",
    "meta_without",
    "open_without",
    "record_without",
    "strip_unknown",
]

_LONGEST_TEXT: Final = 32_768
NO_TEXT_FACTS: Final = frozenset(
    {
        "answers",
        "c",
        "calls_started",
        "claim",
        "done",
        "flags",
        "n",
        "pin",
        "repaired",
        "rewritten",
        "same_call",
        "status",
        "turn_ids",
        "unsent",
    }
)
"""The turn facts that hold no text: numbers, digests and words of this package. All others are searched."""


# -------------------------------------------------------------------------------------------- values


def _cut(redactor: Redactor, text: str, most: int) -> str:
    """A text that has a bound in the state."""
    new = redactor.text(text)
    return text if new == text else new[:most]


def _label(redactor: Redactor, text: str) -> str:
    return _cut(redactor, text, MAX_LABEL)


def _name(redactor: Redactor, text: str) -> str:
    return _cut(redactor, text, MAX_NAME)


def _values(redactor: Redactor, value: Any) -> Any:
    """JSON-able values: all text in them is content, keys too. The same object if nothing in it changes."""
    return value if redactor.is_absent_in(value) else _walked(redactor, value)


def _walked(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, str):
        new = redactor.text(value)
        return value if new == value else new
    if isinstance(value, dict | Mapping):  # a dict is found fast
        names = [*map(redactor.text, value)]
        items = [_walked(redactor, item) for item in value.values()]
        is_same = all(map(_is, items, value.values())) and names == [*value]
        return value if is_same else dict(zip(names, items, strict=True))
    if isinstance(value, list | tuple):
        items = [_walked(redactor, item) for item in value]
        if all(map(_is, items, value)):
            return value
        return tuple(items) if isinstance(value, tuple) else items
    return value


# --------------------------------------------------------------------------------------------- turns


def record_without(redactor: Redactor, record: TurnRecord) -> TurnRecord:
    """The record of a turn."""
    iterations = _iterations(redactor, record.iterations)
    facts = _facts(redactor, record.facts)
    if iterations is record.iterations and facts is record.facts:
        return record
    return replace(record, iterations=iterations, facts=facts)


def _iterations(redactor: Redactor, iterations: tuple[Iteration, ...]) -> tuple[Iteration, ...]:
    found = tuple(_iteration(redactor, one) for one in iterations)
    return iterations if all(map(_is, found, iterations)) else found


def _iteration(redactor: Redactor, one: Iteration) -> Iteration:
    reason = redactor.text(one.finish_reason)
    more = one.more
    if more:
        end = iteration_end(more)
        who = [[place, _name(redactor, name)] for place, name in end.who]
        request = _name(redactor, end.q)
        changes: dict[str, Any] = {"who": who} if who != [list(pair) for pair in end.who] else {}
        if request != end.q:
            changes["q"] = request
        if changes:
            more = rawjson.replaced(more, {name: rawjson.dumps(value) for name, value in changes.items()})
    if reason == one.finish_reason and more is one.more:
        return one
    return replace(one, finish_reason=reason, more=more)


def _facts(redactor: Redactor, facts: Mapping[str, Any]) -> Mapping[str, Any]:
    found = {
        name: _values(redactor, value) if name not in NO_TEXT_FACTS else value
        for name, value in facts.items()
    }
    if isinstance(flags := facts.get("flags"), Mapping):
        found["flags"] = {redactor.id(id): flag for id, flag in flags.items()}
    if "failed" in found:
        found["failed"] = [one[:MAX_LABEL] for one in found["failed"]]
    return facts if found == facts else found


def _is(new: object, old: object) -> bool:
    return new is old


# ------------------------------------------------------------------------------- inbox and open turn


def inbox_without(redactor: Redactor, inbox: Sequence[InboxItem]) -> tuple[InboxItem, ...]:
    """The waiting messages. Different topics stay different."""
    topics: dict[str, str] = {}
    taken, numbers = {item.topic for item in inbox}, dict[str, int]()
    for topic in [*dict.fromkeys(item.topic for item in inbox)]:
        new = _name(redactor, topic)
        if new != topic:
            stem = new[: MAX_NAME - _LONGEST_TAIL]
            for number in range(
                numbers.get(stem, 0), len(inbox) + len(taken)
            ):  # twenty thousand may be equal
                new = stem + f"{number:b}".translate(_SPACES) if number else stem
                if new not in taken:
                    numbers[stem] = number
                    break
            taken.add(new)
        topics[topic] = new
    return tuple(_item(redactor, item, topics[item.topic]) for item in inbox)


_LONGEST_TAIL: Final = 32
_SPACES: Final = str.maketrans("01", "\N{NO-BREAK SPACE} ")
"""Numbers could match again, and most matches have no space at their end."""


def _item(redactor: Redactor, item: InboxItem, topic: str) -> InboxItem:
    entry, more = redactor.entry(item.entry), item.more
    if more and (who := inbox_end(more).who) is not None:
        new = _name(redactor, who)
        more = rawjson.replaced(more, {"who": rawjson.dumps(new)}) if new != who else more
    if entry is item.entry and topic == item.topic and more is item.more:
        return item
    return replace(item, entry=entry, topic=topic, more=more)


def open_without(redactor: Redactor, turn: OpenTurn) -> OpenTurn:
    """The unfinished turn. The calls that wait have the same ids as in its last reply."""
    entries = tuple(map(redactor.entry, turn.entries))
    calls = tuple(_call(redactor, call) for call in turn.calls)
    partial = redactor.text(turn.partial)
    iterations = _iterations(redactor, turn.iterations)
    facts = _facts(redactor, turn.facts)
    if (
        all(map(_is, entries, turn.entries))
        and all(map(_is, calls, turn.calls))
        and partial == turn.partial
        and iterations is turn.iterations
        and facts is turn.facts
    ):
        return turn
    return replace(turn, entries=entries, calls=calls, partial=partial, iterations=iterations, facts=facts)


def _call(redactor: Redactor, call: JournalCall) -> JournalCall:
    is_item = call.kind == "provider"  # its arguments and its result are items of the provider API
    arguments = (redactor.item if is_item else redactor.arguments)(call.arguments)
    parts = tuple(_part(redactor, part, is_item=is_item) for part in call.parts)
    name = call.name if is_item else redactor.id(call.name)
    id = redactor.id(call.id)
    if (id, name, arguments) == (call.id, call.name, call.arguments) and all(map(_is, parts, call.parts)):
        return call
    return replace(call, id=id, name=name, arguments=arguments, parts=parts)


def _part(redactor: Redactor, part: Part, *, is_item: bool) -> Part:
    if isinstance(part, Text):
        new = redactor.item(part.text) if is_item else redactor.text(part.text)
        return part if new == part.text else replace(part, text=new)
    if part.url is not None and redactor.text(part.url) != part.url:
        return Text(redactor.finder.replacement)
    name = part.name and redactor.text(part.name)
    data = part.data
    if data is not None:
        with suppress(UnicodeDecodeError):
            read = data.decode()
            new = redactor.text(read)
            data = data if new == read else new.encode("utf-8", "replace")
    return part if name == part.name and data is part.data else replace(part, name=name, data=data)


# ----------------------------------------------------------------------------------------- meta data


def meta_without(redactor: Redactor, meta: Meta) -> Meta:
    """The meta data. Counts, digests and the provider API stay; a row of `carry` that matches leaves."""
    carry = {name: row for name, row in meta.carry.items() if not _matches(redactor, name, row[0])}
    redactor.finder.count += len(meta.carry) - len(carry)
    changed = {
        "family": _label(redactor, meta.family),
        "model": _name(redactor, meta.model),
        "models": tuple((_label(redactor, family), _name(redactor, model)) for family, model in meta.models),
        "id": _conversation_id(redactor, meta.id),
        "sticky": _values(redactor, meta.sticky),
        "cuts": tuple(_cut_row(redactor, row) for row in meta.cuts),
        "ring": tuple(row._replace(text=_cut(redactor, row.text, _LONGEST_TEXT)) for row in meta.ring),
        "carry": carry,
        "info": _values(redactor, meta.info),
        "said": _values(redactor, meta.said),
        "failed": tuple(_label(redactor, one) for one in meta.failed),
        "title": _name(redactor, meta.title),
        "about": _values(redactor, meta.about),
    }
    changed = {name: value for name, value in changed.items() if value != getattr(meta, name)}
    return msgspec.structs.replace(meta, **changed) if changed else meta


def _cut_row(redactor: Redactor, row: CutRow) -> CutRow:
    by = _label(redactor, row.by)
    return row if by == row.by else row._replace(by=by)


def _matches(redactor: Redactor, *texts: str) -> bool:
    return any(redactor.finder.spans(text) for text in texts)


_LETTERS: Final = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")


def _conversation_id(redactor: Redactor, id: str) -> str:
    """A new random id if the old one matches. An id made of the old one would be the same for two
    conversations, or could be guessed back."""
    found = len(redactor.finder.spans(id))
    if not found:
        return id
    redactor.finder.count += found
    fresh = fresh_id()
    for one in (fresh, fresh.translate(_LETTERS), fresh.translate(_LETTERS).upper()):
        if not redactor.finder.spans(one):
            return one
    return redactor.finder.replacement[:MAX_NAME]


# ----------------------------------------------------------------------------- values of a later release


def strip_unknown(state: ConversationState) -> tuple[ConversationState, int]:
    """Remove names, segments and parts that this release does not know. Give the state, and their number.

    Gives the same object if the count is 0. Reads the turn columns, and writes the history anew if a row in
    them has an unknown name.
    """
    meta, count = _known_meta(state.meta)
    parts = tuple(part for part in state.parts if part.kind not in IGNORABLE_PARTS)
    count += len(state.extras) + len(state.later) + len(state.parts) - len(parts)
    inbox: list[InboxItem] = []
    for item in state.inbox:
        more, gone = known_end(InboxEnd, item.more)
        inbox.append(replace(item, more=more) if gone else item)
        count += gone
    opened, of_open = _known_open(state.open)
    turns = [(turn, *known_record(turn.record)) for turn in closed_turns(state)]
    of_turns = sum(dropped for *_, dropped in turns)
    count += of_open + of_turns
    if not count:
        return state, 0
    state = replace(state, meta=meta, extras={}, later=(), parts=parts, inbox=tuple(inbox), open=opened)
    if of_turns:
        state = rebuild(state, [replace(turn, record=record) for turn, record, _ in turns])
    return state, count


def _known_meta(meta: Meta) -> tuple[Meta, int]:
    ends = [known_end(CutEnd, row.more) for row in meta.cuts]
    count = sum(gone for _, gone in ends)
    count += sum(bool(row[-1]) for rows in (meta.turn, meta.ring, meta.media) for row in rows)
    if not count:
        return meta, 0
    cuts = [row._replace(more=msgspec.Raw(more)) for row, (more, _) in zip(meta.cuts, ends, strict=True)]
    changed = msgspec.structs.replace(
        meta,
        cuts=tuple(cuts),
        turn=tuple(row._replace(more=NO_MORE) for row in meta.turn),
        ring=tuple(row._replace(more=NO_MORE) for row in meta.ring),
        media=tuple(row._replace(more=NO_MORE) for row in meta.media),
    )
    return changed, count


def _known_iterations(iterations: Sequence[Iteration]) -> tuple[tuple[Iteration, ...], int]:
    ends = [known_end(IterationEnd, one.more) for one in iterations]
    found = tuple(
        replace(one, more=more) if gone else one for one, (more, gone) in zip(iterations, ends, strict=True)
    )
    return found, sum(gone for _, gone in ends)


def _known_facts(facts: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    known = {name: value for name, value in facts.items() if name in FACTS}
    return known, len(facts) - len(known)


def known_record(record: TurnRecord) -> tuple[TurnRecord, int]:
    """Give the record of a turn without unknown names, and how many there were."""
    iterations, count = _known_iterations(record.iterations)
    facts, more = _known_facts(record.facts)
    if not count + more:
        return record, 0
    return replace(record, iterations=iterations, facts=facts), count + more


def _known_open(turn: OpenTurn | None) -> tuple[OpenTurn | None, int]:
    if turn is None:
        return None, 0
    iterations, count = _known_iterations(turn.iterations)
    facts, more = _known_facts(turn.facts)
    calls = tuple(_known_call(call) for call in turn.calls)
    count += more + len(turn.extras) + sum(len(call.extras) for call in turn.calls)
    if not count:
        return turn, 0
    return replace(turn, iterations=iterations, facts=facts, calls=calls, extras={}), count


def _known_call(call: JournalCall) -> JournalCall:
    return replace(call, extras={}) if call.extras else call
