"""Search the turns that are no longer shown to the model, and write the best passages as text for the model.

Owns: which turns these are, how a turn reads as a passage, and which passages a page has, with its order and
its size. Must never know: who asks, or how a text is matched: see `ranking`.

A turn is a passage if its original is in the archive, and the history shows no turn with the same text. So a
turn that has only lost its signed thinking is not a passage. Calls of the recall tool and their results are
left out. Else a repeated question would match its own earlier search best.

A passage gets a part of the scores of the turns beside it, because a question and its answer are often in two
turns. For the same reason the turns beside a hit are shown, as far as the page has room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

from ..backends.base import Dialect
from ..backends.read_entries import read_entries
from ..base.values import Value, replace
from ..compaction.compactor import RECALL
from ..state.closed_turns import ClosedTurn, numbers_of
from ..state.codec import Codec
from ..state.media import shortened
from ..state.media_rows import result_notes
from ..state.parts import ARCHIVE, Part
from ..state.state import ConversationState, closed_turns
from ..types.errors import StateError
from ..types.messages import Message
from ..types.tokens import text_tokens
from .archive_reading import stored_records
from .archive_records import Record, check_archive
from .info import when
from .ranking import best_order, counts_of, prepared, rarest, scores, terms_of

__all__ = ["Page", "Passage", "page_of", "passages_of", "searched_parts"]

_DEFAULT_TOKENS: Final = 600
HITS: Final = 5
"""Hits of a page."""

NEIGHBOUR: Final = 0.15
"""The part of a turn's score that the turns beside it get."""

ASKED: Final = 1 / 3
"""The part of its score that a turn keeps in which the model searched."""

_LONG: Final = 1_200
"""Characters of a passage that are shown; of a longer one, the best pieces."""

_MOST_PAGES: Final = 20
_MOST_NOTES: Final = 4
_TRIES: Final = 8
_LEAST_PIECE: Final = 30
_PIECES: Final = 4
"""A shortened passage has at least this number of pieces, each with this part of its size."""
_FRAME_TOKENS: Final = 24
_SENTENCE_ENDS: Final = (". ", "! ", "? ", "\n", "。")


class Page(Value, frozen=True, kw_only=True):
    """A page: the text for the model, the numbers of the turns in it, and how many turns were searched."""

    _unshown = frozenset({"text"})

    text: str
    numbers: tuple[int, ...] = ()
    searched: int = 0


def page_of(
    passages: Sequence[Passage], query: str, *, page: int = 1, max_tokens: int = _DEFAULT_TOKENS
) -> Page:
    """Search the passages, and give a page of the best ones.

    Args:
        passages: The earlier turns, oldest first.
        query: The words to search for.
        page: From 1 on. The pages have different turns.
        max_tokens: The size of the text, as `tokens.text_tokens` estimates it.
    """
    if not passages:
        return Page(text="All turns of this conversation are still shown above; there are no earlier ones.")
    searched = len(passages)
    if not terms_of(query):
        return Page(text="Name words that the passage would contain.", searched=searched)
    order, term = _order(passages, query)
    shown: dict[int, str] = {}
    taken: set[int] = set()
    for _ in range(min(max(1, page), _MOST_PAGES)):
        hits = [at for at in order if at not in taken][:HITS]
        shown = _fill(passages, (query, term), hits, taken, max_tokens)
        if not shown:
            break
        taken |= shown.keys()
    if not shown:
        return Page(text=_nothing(searched, is_first=not taken), searched=searched)
    texts = [f"{len(shown)} of {searched} earlier turns, oldest first:"]
    texts += [shown[at] for at in sorted(shown)]
    return Page(
        text="\n\n".join(texts),
        numbers=tuple(passages[at].number for at in sorted(shown)),
        searched=searched,
    )


def _nothing(searched: int, *, is_first: bool) -> str:
    found = "No" if is_first else "No further"
    return f"{found} passage among {searched} earlier turns. Try other words once; else it is not known."


def _order(passages: Sequence[Passage], query: str) -> tuple[list[int], str]:
    """The places of the passages, best first, and the term that decided the first place.

    A passage gets a part of the scores of its neighbours.

    A long passage counts as its best part. Else it would lose against short ones that match less.
    """
    parts = [(at, part) for at, passage in enumerate(passages) for part in _parts(passage.text)]
    texts = [prepared(part) for _, part in parts]
    counts = counts_of(query, texts)
    own = [0.0] * len(passages)
    for (at, _), value in zip(parts, scores(counts, texts), strict=True):
        own[at] = max(own[at], value * ASKED if passages[at].has_asked else value)
    padded = [0.0, *own, 0.0]
    values = [
        value + NEIGHBOUR * (before + after)
        for before, value, after in zip(padded, own, padded[2:], strict=False)
    ]
    term = rarest(counts)
    having = {at for (at, _), count in zip(parts, counts.get(term, ()), strict=False) if count}
    return best_order(values, having), term


def _parts(text: str) -> list[str]:
    """A long text in parts that are scored one by one."""
    return [text] if len(text) <= _LONG else _pieces(text, _LONG // 2)


def _fill(
    passages: Sequence[Passage],
    asked: tuple[str, str],
    hits: Sequence[int],
    taken: set[int],
    max_tokens: int,
) -> dict[int, str]:
    """The next hits, then the turns beside them, as many as fit; by place."""
    left: float = max_tokens - _FRAME_TOKENS
    shown: dict[int, str] = {}
    beside = [at + step for at in hits for step in (1, -1) if 0 <= at + step < len(passages)]
    for at in [*hits, *beside]:
        if at in shown or at in taken:
            continue
        text = _shown(passages[at], asked, (max_tokens - _FRAME_TOKENS) // 2)  # the best two always fit
        size = _size(text)
        if size <= left or not shown:  # the best one is always there
            shown[at] = text
            left -= size
    return shown


def _shown(passage: Passage, asked: tuple[str, str], max_tokens: int) -> str:
    """A passage as a page shows it: at most `_LONG` characters, and at most `max_tokens` tokens."""
    head = f"[turn {passage.number}, {passage.date}]\n"
    most = _LONG
    for _ in range(_TRIES):
        text = head + _shortened(passage.text, asked, most)
        size = _size(text)
        if size <= max_tokens:
            return text
        most = min(most - 1, int(most * max_tokens / size * 0.9))
    return head + passage.text[: max(0, most)]


def _size(text: str) -> float:
    return text_tokens(text.encode("utf-8", "replace")) + 2


def _shortened(text: str, asked: tuple[str, str], most: int) -> str:
    """A long text as its beginning and its best pieces, in order, with marks where something is left out. The
    notes that name results stay.

    `asked`: the query, and its rarest term in all passages. The best piece with that term is always there.
    """
    query, term = asked
    if len(text) <= most:
        return text
    size = max(_LEAST_PIECE, most // _PIECES)
    pieces = _pieces(text, size)
    texts = [prepared(piece) for piece in pieces]
    counts = counts_of(query, texts)
    having = {at for at, count in enumerate(counts.get(term, ())) if count}
    ranked = best_order(scores(counts, texts), having)
    kept: set[int] = set()
    for at in (*ranked, 0, *range(1, len(pieces))):
        if sum(len(pieces[one]) for one in kept) + len(pieces[at]) > most:
            break
        kept.add(at)
    found: list[str] = []
    for at, piece in enumerate(pieces):
        if at in kept:
            found.append(piece)
        elif at == 0 or at - 1 in kept:
            found.append(" … ")
    short = "".join(found).strip() if kept else text[:most]
    lost = [note for note in result_notes(text) if note not in short]
    return "\n".join([short, *lost[:_MOST_NOTES]])


def _pieces(text: str, size: int) -> list[str]:
    """The text in pieces of at most `size` characters."""
    ends = [0]
    while ends[-1] < len(text):
        ends.append(_end(text, ends[-1], size))
    return [text[begin:end] for begin, end in pairwise(ends)]


def _end(text: str, begin: int, size: int) -> int:
    """Where a piece ends: behind a sentence, else behind a word, and not within a number or a code."""
    end, half = begin + size, begin + size // 2
    if end >= len(text):
        return len(text)
    sentence = max(text.rfind(sign, half, end) + len(sign) for sign in _SENTENCE_ENDS)
    if sentence > half:
        return sentence
    space = text.rfind(" ", begin, end)
    while space > begin and text[space + 1].isdigit():
        space = text.rfind(" ", begin, space)
    if space > begin:
        return space + 1
    at = end
    while at > half and text[at].isascii() and text[at].isalnum():
        at -= 1
    return at if at > half else end


MOST_BYTES: Final = 32 * 2**20
"""How many raw bytes of the archive one call searches, from the newest on."""

_MOST_ARGUMENTS: Final = 2_000


class Passage(Value, frozen=True, kw_only=True):
    """An earlier turn as text.

    `number`: the number of the turn. `date`: the day on which it began, in UTC. `has_asked`: True if the
    model searched earlier turns in it.
    """

    _unshown = frozenset({"text"})

    number: int
    date: str
    text: str
    has_asked: bool


def searched_parts(state: ConversationState) -> tuple[Part, ...]:
    """The newest parts of the archive, up to `MOST_BYTES`, which a call searches. Oldest first."""
    found: list[Part] = []
    left = MOST_BYTES
    for part in reversed([part for part in state.parts if part.kind == ARCHIVE]):
        left -= part.raw_len
        if left < 0:
            break
        found.append(part)
    return tuple(reversed(found))


def passages_of(
    state: ConversationState,
    dialect: Dialect,
    *,
    codec: Codec,
    binding: Any = None,
    loaded: Mapping[bytes, bytes] | None = None,
    dialect_of: Callable[[str], Dialect | None] = lambda wire: None,
) -> list[Passage]:
    """Give the turns that are no longer shown, oldest first.

    Args:
        state: The state of the running turn.
        dialect: Reads the entries of its provider API.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        dialect_of: Gives the dialect of another provider API, which the conversation had before; None if it
            is unknown. Turns of an unknown provider API are left out.
        loaded: Parts that a store keeps: the bytes by name. A part that is neither in the state nor in
            `loaded` is left out, and so is a damaged part.
    """
    found: list[Part] = []
    for part in searched_parts(state):
        here = part if part.is_here else replace(part, stored=(loaded or {}).get(part.digest, b""))
        if here.is_here:
            with suppress(StateError):
                here.raw(codec, binding)
                found.append(here)
    records: list[Record] = []
    with suppress(StateError):
        check_archive(found, codec, binding)
        for part in found:
            with suppress(StateError):
                records += stored_records((part,), codec, binding)
    return _passages(state, records, dialect, dialect_of)


def _passages(
    state: ConversationState,
    records: Sequence[Record],
    dialect: Dialect,
    dialect_of: Callable[[str], Dialect | None],
) -> list[Passage]:
    dialects: dict[str, Dialect | None] = {state.meta.wire: dialect}
    live = closed_turns(state)
    numbers = numbers_of([turn.record for turn in live])
    copies = {number: turn for number, turn in zip(numbers, live, strict=True) if number}
    found: dict[int, Passage | None] = {}
    for record in records:
        if record.wire not in dialects:
            dialects[record.wire] = dialect_of(record.wire)
        own = dialects[record.wire]
        if own is None:
            continue
        for turn, number in zip(record.turns, numbers_of([t.record for t in record.turns]), strict=True):
            if not number or number in found:  # a note, or a later copy
                continue
            if not turn.record.is_sent:  # the provider would refuse its text in a search result, too
                found[number] = None
                continue
            with suppress(StateError):  # an entry that cannot be read is of no use to the model
                passage = _passage(turn, number, state.meta.created, own)
                shown = copies.get(number)
                is_shown = shown is not None and _lines_of(shown, dialect) == _lines_of(turn, own)
                found[number] = None if is_shown else passage
    return [passage for _, passage in sorted(found.items()) if passage is not None and passage.text]


def _passage(turn: ClosedTurn, number: int, created: int, dialect: Dialect) -> Passage:
    lines, has_asked = _lines_of(turn, dialect)
    date = when(created, turn.record.at).date().isoformat()
    return Passage(number=number, date=date, text="\n".join(lines), has_asked=has_asked)


def _lines_of(turn: ClosedTurn, dialect: Dialect) -> tuple[list[str], bool]:
    """The lines of a passage, and whether the model searched earlier turns in the turn."""
    messages = read_entries(dialect, [shortened(entry) for entry in turn.entries])
    asked = {call.id for message in messages for call in message.tool_calls if call.name == RECALL}
    return list(_lines(messages, asked)), bool(asked)


def _lines(messages: Iterable[Message], asked: set[str]) -> Iterable[str]:
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in asked:
                yield _line("tool", message.said)
            continue
        if message.role != "system" and (said := message.said):
            yield _line("event" if message.is_event else message.role, said)
        for call in message.tool_calls:
            if call.name != RECALL:
                yield _line("call", f"{call.name} {call.arguments[:_MOST_ARGUMENTS]}")


def _line(who: str, said: str) -> str:
    """A message as lines. Later lines are indented, so that no text can look like another message."""
    lines = "\n  ".join(said.strip().splitlines())
    return f"{who}: {lines}"
