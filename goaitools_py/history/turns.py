"""Reads a stored conversation as a `History`: its turns, and the iterations of each turn; also as Markdown.

Owns: the way from a state to these values, the form of the Markdown, and the escapes that keep a message from
changing it. Must never know: a provider's JSON, or a backend.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count
from typing import Any, Final, TypeAlias

from msgspec import Raw

from ..backends.base import Dialect
from ..backends.dialects import dialect_for
from ..backends.read_entries import read_entries
from ..base.rawjson import view
from ..base.values import replace
from ..compaction.compactor import RECALL
from ..open_turn import steps
from ..open_turn.inbox import inbox_messages
from ..open_turn.steps import failure_in
from ..open_turn.turn_ids import SAME_CALL, TURN_IDS_FACT
from ..state.closed_turns import FACTS, ClosedTurn, Iteration, TurnRecord, numbers_of
from ..state.codec import PLAIN, Codec
from ..state.letters import ASSISTANT, GIVEN
from ..state.media_rows import named_results, results_of
from ..state.parts import Part
from ..state.records import IDS_KEPT, JournalCall, Meta, model_at, turn_ref
from ..state.state import closed_turns, load_state, newest_number
from ..types.errors import StateInvalidError
from ..types.messages import Message, Text
from ..types.render import files_in, is_file
from .archive_reading import archive_of
from .archive_records import Record
from .info import when
from .rewrite.repair import REPAIRED, checked
from .transcript import History, HistoryCall, HistoryIteration, HistoryMatch, HistoryTurn, TurnStatus

__all__ = [
    "History",
    "HistoryCall",
    "HistoryIteration",
    "HistoryMatch",
    "HistoryTurn",
    "TurnStatus",
    "read_history",
    "replies",
    "to_markdown",
]


def read_history(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
    archived: bool = False,
) -> History:
    """Read the whole conversation as a `History`, the same for all provider APIs.

    An unfinished turn is the last one. It has the messages that it would have if it were closed now. Its
    status and its calls are as they are: a call that waits is marked so, and has no result.

    Args:
        blob: The state.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        min_revision: The least revision; see `load_state`.
        dialect: The dialect of a provider API that is not built in.
        archived: The whole transcript: also the turns that compactions removed, and the originals of changed
            turns, from the archive that ``Compactor(…, retain=True)`` keeps. In the order of their numbers,
            without the notes that compactions left. Turns without a record in the archive are missing.

    Raises:
        StateError: The blob cannot be read, or a result that is kept whole is damaged. With `archived` also:
            a part of the archive is damaged, or a store keeps it and the blob does not have it.
    """
    state = load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    dialect = dialect_for(state.meta.wire, dialect)
    # Only the calls, and not the whole turn: a million values of its facts take 170 MB.
    calls, newest = None if state.open is None else state.open.calls, newest_number(state)
    state, _ = checked(steps.close_turn(state, dialect), dialect)
    closed = closed_turns(state)
    numbers = numbers_of([turn.record for turn in closed])
    read = [(turn, number, dialect) for turn, number in zip(closed, numbers, strict=True)]
    if archived:
        read = _transcript(archive_of(state, codec, binding), read, state.meta.wire, dialect)
    counter = count(1)
    turns = tuple(_turn(one, state.meta, calls if one[1] == newest else None, counter) for one in read)
    if results := [part for part in results_of(state.parts) if part.is_here]:
        turns = _with_results(turns, results, codec, binding)
    return History(turns=turns, waiting=inbox_messages(state, dialect))


_Numbered: TypeAlias = tuple[ClosedTurn, int, Dialect]


def _transcript(
    records: Sequence[Record], live: Sequence[_Numbered], wire: str, dialect: Dialect
) -> list[_Numbered]:
    """Each turn once, by number, in its oldest form. That is the original; later forms are copies.

    Turns from before a repair come last, because their original may be unreadable. It counts only if no
    later form of the turn is left.
    """
    dialects = {wire: dialect}
    kept: list[_Numbered] = []
    broken: list[_Numbered] = []
    for record in records:
        if record.wire not in dialects:
            dialects[record.wire] = dialect_for(record.wire, None)
        own = dialects[record.wire]
        numbers = numbers_of([turn.record for turn in record.turns])
        turns = [(turn, number, own) for turn, number in zip(record.turns, numbers, strict=True)]
        if record.by == REPAIRED:
            broken += [one for one in turns if _is_readable(one)]
        else:
            kept += turns
    found: dict[int, _Numbered] = {}
    for one in (*kept, *live, *broken):
        found.setdefault(one[1], one)
    return [found[number] for number in sorted(found) if number]


def _is_readable(one: _Numbered) -> bool:
    turn, _, dialect = one
    with suppress(StateInvalidError):
        for _iteration, entries in turn.by_iteration():
            read_entries(dialect, entries)
        return True
    return False


def _turn(
    one: _Numbered, meta: Meta, unfinished: Sequence[JournalCall] | None, counter: Iterator[int]
) -> HistoryTurn:
    """One turn. `unfinished`: the calls of the unfinished turn, if this is the turn that it would be if it
    were closed.

    `counter`: gives the numbers of the iterations.
    """
    turn, number, dialect = one
    record, created = turn.record, meta.created
    messages = [_with_marks(read_entries(dialect, own), iteration) for iteration, own in turn.by_iteration()]
    iterations: list[HistoryIteration] = []
    metadata = dict(record.facts.get("metadata", {}))
    for iteration, own, calls in zip(
        record.iterations, messages, _calls(record, messages, unfinished or ()), strict=True
    ):
        if (
            unfinished is not None
            and iterations
            and not (iteration.finish_reason or iteration.usage.requests)
        ):
            # No model was asked with these messages yet: they are no iteration of their own.
            before = iterations[-1]
            iterations[-1] = replace(before, messages=(*before.messages, *own), calls=(*before.calls, *calls))
            continue
        started = record.at + iteration.start
        asked = number and iteration.finish_reason
        endpoint, model = model_at(meta, iteration.model) if asked else ("", "")
        iterations.append(
            HistoryIteration(
                messages=own,
                calls=calls,
                finish_reason=iteration.finish_reason,
                usage=iteration.usage,
                started_at=when(created, started),
                completed_at=when(created, started + iteration.ms),
                model=model,
                endpoint=endpoint,
                wire=dialect.wire,
                request_id=iteration.request_id,
                number=next(counter),
                metadata=metadata,
            )
        )
    return HistoryTurn(
        iterations=tuple(iterations),
        started_at=when(created, record.at),
        facts=_readable(record.facts),
        number=number,
        completed_at=None if unfinished is not None else _completed_at(record, iterations, created),
        id=turn_ref(meta.id, number) if number else "",
        status=_status(record, number) if unfinished is None else _unfinished(meta.status),
    )


def _completed_at(
    record: TurnRecord, iterations: Sequence[HistoryIteration], created: int
) -> datetime | None:
    done = record.facts.get("done")
    if type(done) is int:
        return when(created, record.at + done)
    return iterations[-1].completed_at if ASSISTANT in record.letters else None


_ENDS: Final[Mapping[str, TurnStatus]] = {
    "truncated": "truncated",
    "refused": "refused",
    "limited": "limited",
    "awaiting_tools": "awaiting_tools",
    "failed": "failed",
}


def _unfinished(status: str) -> TurnStatus:
    """The status of an unfinished turn, from the status of its state."""
    return _ENDS.get(status, "in_progress")


def _status(record: TurnRecord, number: int) -> TurnStatus:
    """How a closed turn ended. It was interrupted if it has no answer, unless an error ended it."""
    facts = record.facts
    if failure_in(facts) is not None:
        return "failed"
    if (known := _ENDS.get(str(facts.get("status")))) is not None:
        return known
    is_answered = record.letters.endswith(ASSISTANT) and "interrupted" not in facts
    return "complete" if is_answered or not number or not record.letters else "interrupted"


# ------------------------------------------------------------------------------------------------ calls


def _calls(
    record: TurnRecord, messages: Sequence[Sequence[Message]], unfinished: Sequence[JournalCall]
) -> list[tuple[HistoryCall, ...]]:
    """The calls of each iteration, each with its result. A result belongs to the oldest call of its id that
    has no result yet."""
    flags = record.facts.get("flags", {})
    found: list[list[HistoryCall]] = [[] for _ in messages]
    waiting: dict[str, list[tuple[int, int]]] = {}
    own: list[list[int]] = [[] for _ in messages]
    for at, said in enumerate(messages):
        for message in said:
            for call in message.tool_calls:
                waiting.setdefault(call.id, []).append((at, len(found[at])))
                found[at].append(
                    HistoryCall(**{name: getattr(call, name) for name in call.__struct_fields__})
                )
            if message.role != "tool" or not (places := waiting.get(message.tool_call_id or "")):
                continue
            asked, place = places.pop(0)
            if asked != at:  # else the provider ran it
                own[asked].append(place)
            flag = flags.get(message.tool_call_id, "ok")
            found[asked][place] = replace(found[asked][place], parts=message.parts, flag=flag)
    for at, iteration in enumerate(record.iterations):
        times = iteration.call_ms
        if len(times) == len(own[at]):  # else calls were taken out or put in since
            for place, ms in zip(sorted(own[at]), times, strict=True):
                found[at][place] = replace(found[at][place], seconds=ms / 1000 if ms else None)
    if unfinished:
        _as_they_stand(found, unfinished)
    return [tuple(calls) for calls in found]


def _as_they_stand(found: Sequence[list[HistoryCall]], unfinished: Sequence[JournalCall]) -> None:
    """Take away the results that only closing the turn would give, and say which calls wait."""
    last = next((calls for calls in reversed(found) if calls), [])
    reasons = {
        call.id: "in_doubt" if call.state == "started" else call.reason
        for call in unfinished
        if call.state != "done"
    }
    for place, call in enumerate(last):
        if call.id in reasons:
            last[place] = replace(call, flag=None, parts=(), seconds=None, waits_for=reasons[call.id])


def _with_results(
    turns: Sequence[HistoryTurn], results: Sequence[Part], codec: Codec, binding: Any
) -> tuple[HistoryTurn, ...]:
    """The turns with the whole text of each result that a call's result names."""
    kept = {part.entries: part for part in results}

    def whole(call: HistoryCall) -> HistoryCall:
        texts = [part.text.encode("utf-8", "replace") for part in call.parts if isinstance(part, Text)]
        if call.name == RECALL or not (found := named_results(texts) & kept.keys()):
            return call
        raw = kept[min(found)].raw(codec, binding)
        return replace(call, whole=raw.decode("utf-8", "replace"))

    return tuple(
        replace(
            turn,
            iterations=tuple(
                replace(one, calls=tuple(map(whole, one.calls))) if one.calls else one
                for one in turn.iterations
            ),
        )
        for turn in turns
    )


def _with_marks(messages: tuple[Message, ...], iteration: Iteration) -> tuple[Message, ...]:
    """The messages of an iteration, with speakers and pins. Each given message is one entry."""
    marks = iteration.marks
    if not marks:
        return messages
    found = list(messages)
    given = [at for at, message in enumerate(messages) if message.role in ("system", "user")]
    places = [at for at, letter in enumerate(iteration.roles) if letter in GIVEN]
    for place, at in zip(places, given, strict=False):
        speaker, pinned = marks.get(place, (None, None))
        found[at] = replace(messages[at], speaker=speaker, pinned=pinned)
    return tuple(found)


def _readable(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The facts, also the facts of a later release, as values."""
    if facts.keys() <= FACTS:
        return facts
    return {name: view(bytes(value)) if isinstance(value, Raw) else value for name, value in facts.items()}


_NAMES: Final = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool result"}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def replies(turns: Sequence[HistoryTurn]) -> Iterator[tuple[HistoryTurn, ...]]:
    """Group turns, oldest first, by the reply that a client shows.

    A turn of messages that came at the end of another one follows it in the same stream. So a client that
    has followed the call shows the turns of the call as one reply, with the id of the first one.
    """
    group: tuple[HistoryTurn, ...] = ()
    for turn in turns:
        if group and not _is_same_call(turn, group[-1]):
            yield group
            group = ()
        group = (*group, turn)
    if group:
        yield group


def _is_same_call(turn: HistoryTurn, before: HistoryTurn) -> bool:
    """True if a turn is of the same call as the turn before it. That one may be of another worker."""
    if SAME_CALL not in turn.facts or turn.number != before.number + 1:
        return False
    ids = [*before.facts.get(SAME_CALL, ()), *before.facts.get(TURN_IDS_FACT, ())]
    return not turn.facts[SAME_CALL] or ids[-IDS_KEPT:] == list(turn.facts[SAME_CALL])


def to_markdown(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
    archived: bool = False,
) -> str:
    """Write a conversation as a Markdown document: a heading for each turn, each message in a fenced block.

    Each text is in a code block with a fence that is longer than any fence in the text. So no heading, link
    or HTML in it takes effect. Control characters are shown as ``�``. Thinking is left out; a picture,
    document or sound is a line with its name, type and size. A file of text has its text below that line.

    Args:
        blob: The state.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        min_revision: The least revision that it may have.
        dialect: The dialect of a provider API that is not built in.
        archived: Also the turns that compactions took away, from the archive.

    Raises:
        StateError: The blob cannot be read.
    """
    history = read_history(
        blob, codec=codec, binding=binding, min_revision=min_revision, dialect=dialect, archived=archived
    )
    lines: list[str] = ["# Conversation", ""]
    for turn in history.turns:
        lines += _turn_lines(turn)
    if history.waiting:
        lines += ["## Waiting for the model", ""]
        for message in history.waiting:
            lines += _message_lines(message)
    return "\n".join(lines).rstrip() + "\n"


def _turn_lines(turn: HistoryTurn) -> Iterator[str]:
    name = f"Turn {turn.number}" if turn.number else "Note of a compaction"
    yield f"## {name}, {turn.started_at:%Y-%m-%d %H:%M:%S} UTC"
    yield ""
    for message in turn.messages:
        yield from _message_lines(message)
    for action in turn.actions:
        yield "**Action**"
        yield ""
        yield from _block(action.text)


def _message_lines(message: Message) -> Iterator[str]:
    name = "Event" if message.is_event else _NAMES[message.role]
    speaker = f" ({_inline(message.speaker)})" if message.speaker else ""
    shown = message.text or message.parts or not message.tool_calls
    if shown:
        yield f"**{name}{speaker}**"
        yield ""
        texts = [part for part in message.parts if isinstance(part, Text) and not is_file(part)]
        if text := "".join(part.text for part in texts):
            yield from _block(text)
        for file in files_in(message):
            named = f" {_inline(file.name)}" if file.name else ""
            size = "" if file.data is None else f", {len(file.data)} bytes"
            yield f"- {type(file).__name__.lower()}{named} of type {_inline(file.media_type)}{size}"
            yield ""
            if file.data is not None and file.media_type.startswith("text/"):
                yield from _block(file.data.decode("utf-8", "replace"))
    for call in message.tool_calls:
        yield f"**Tool call: {_inline(call.name)}**"
        yield ""
        yield from _block(call.arguments, "json")


def _block(text: str, language: str = "text") -> Iterator[str]:
    text = _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield text
    yield fence
    yield ""


def _inline(text: str) -> str:
    """A name within a line: only letters, digits and a few signs, so that it cannot be Markdown or HTML."""
    return re.sub(r"[^\w .,:/+-]", "\ufffd", text)[:200]
