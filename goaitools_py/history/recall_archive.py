"""Search the turns that are no longer shown to the model, and write the best passages as text for the model.

Owns: which turns these are, how a turn reads as a passage, how a text is split into terms, how terms are
weighed, and which passages a page has, with its order and its size. Must never know: who asks.

A turn is a passage if its original is in the archive, and the history shows no turn with the same text. So a
turn that has only lost its signed thinking is not a passage. Calls of the recall tool and their results are
left out. Else a repeated question would match its own earlier search best.

A text matches a query, in any language, if it has one of its terms. These are the terms:

- A word of a language that writes spaces counts by its first five letters, in lower case and without
  accents. So most inflected forms of a word are found.
- Letters of Chinese, Japanese, Korean and of the languages of South East Asia count as pairs.

The weights are from BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009, sect. 3.2):
a rare term counts more, a term in a long text less. There is no list of stop words. The texts are searched as
they are: an index that serves one query costs more than the query.

A passage gets a part of the scores of the turns beside it, because a question and its answer are often in two
turns. For the same reason the turns beside a hit are shown, as far as the page has room.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import log
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

__all__ = [
    "DEFAULT_TOKENS",
    "Page",
    "Passage",
    "best_order",
    "page_of",
    "passages_of",
    "prepared",
    "scores",
    "searched_parts",
    "terms_of",
]

DEFAULT_TOKENS: Final = 600
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
_TRIES: Final = 4
_LEAST_PIECE: Final = 30
_PIECES: Final = 4
"""A shortened passage has at least this number of pieces, each with this part of its size."""
_FRAME_TOKENS: Final = 24


class Page(Value, frozen=True, kw_only=True):
    """A page: the text for the model, the numbers of the turns in it, and how many turns were searched."""

    _unshown = frozenset({"text"})

    text: str
    numbers: tuple[int, ...] = ()
    searched: int = 0


def page_of(
    passages: Sequence[Passage], query: str, *, page: int = 1, max_tokens: int = DEFAULT_TOKENS
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
    values = _values(passages, query)
    if not terms_of(query):
        return Page(text="Name words that the passage would contain.", searched=searched)
    order = best_order(values)
    shown: dict[int, str] = {}
    taken: set[int] = set()
    for _ in range(min(max(1, page), _MOST_PAGES)):
        shown = _fill(passages, query, [at for at in order if at not in taken], taken, max_tokens)
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


def _values(passages: Sequence[Passage], query: str) -> list[float]:
    """The score of each passage, plus a part of the scores of its neighbours."""
    own = scores(query, [prepared(passage.text) for passage in passages])
    own = [
        value * ASKED if passage.has_asked else value for value, passage in zip(own, passages, strict=True)
    ]
    padded = [0.0, *own, 0.0]
    return [
        value + NEIGHBOUR * (before + after)
        for before, value, after in zip(padded, own, padded[2:], strict=False)
    ]


def _fill(
    passages: Sequence[Passage], query: str, order: Sequence[int], taken: set[int], max_tokens: int
) -> dict[int, str]:
    """The next hits, then the turns beside them, as many as fit; by place."""
    left: float = max_tokens - _FRAME_TOKENS
    shown: dict[int, str] = {}
    hits = order[:HITS]
    beside = [at + step for at in hits for step in (1, -1) if 0 <= at + step < len(passages)]
    for at in [*hits, *beside]:
        if at in shown or at in taken:
            continue
        text = _shown(passages[at], query, max_tokens // 2)
        size = _size(text)
        if size <= left or not shown:  # the best one is always there
            shown[at] = text
            left -= size
    return shown


def _shown(passage: Passage, query: str, max_tokens: int) -> str:
    """A passage as a page shows it: at most `_LONG` characters, and at most `max_tokens` tokens."""
    head = f"[turn {passage.number}, {passage.date}]\n"
    most = _LONG
    for _ in range(_TRIES):
        text = head + _shortened(passage.text, query, most)
        size = _size(text)
        if size <= max_tokens:
            return text
        most = min(most - 1, int(most * max_tokens / size * 0.9))
    return head + passage.text[: max(0, most)]


def _size(text: str) -> float:
    return text_tokens(text.encode("utf-8", "replace")) + 2


def _shortened(text: str, query: str, most: int) -> str:
    """A long text as its beginning and its best pieces, in order, with marks where something is left out. The
    notes that name results stay."""
    if len(text) <= most:
        return text
    size = max(_LEAST_PIECE, most // _PIECES)
    pieces: list[str] = re.findall(rf"(?s).{{1,{size}}}(?:\s|$)|.{{1,{size}}}", text)
    ranked = best_order(scores(query, [prepared(piece) for piece in pieces]))
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


MOST_BYTES: Final = 32 * 2**20
"""How many raw bytes of the archive one call searches, from the newest on."""

_MOST_ARGUMENTS: Final = 300


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


PREFIX: Final = 5
"""Letters of a word that count."""

MOST_TERMS: Final = 64
"""How many terms of a query count, from the first on."""

_K1: Final = 1.2
_B: Final = 0.75

# Han, kana, bopomofo, Hangul; Thai, Lao, Tibetan, Burmese, Khmer. In the second class also the letters of
# India, because Python does not count their vowel signs as letters.
_UNSPACED: Final = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f"
_HAN: Final = "\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUN: Final = re.compile(f"([{_UNSPACED}{_HAN}]+)")
_NO_LETTERS: Final = re.compile(f"[^\\w\u0900-\u0dff{_UNSPACED}]+|_+")
_NO_LETTERS_ASCII: Final = re.compile(r"[^a-z0-9]+")

# Accents; the signs of Hebrew and Arabic that are mostly left out.
_ACCENTS: Final = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670]+")


def prepared(text: str) -> str:
    """The text as `scores` searches it: lower case, no accents, each word between two spaces."""
    text = text.casefold()
    if text.isascii():
        return f"  {_NO_LETTERS_ASCII.sub('  ', text)}  "
    text = unicodedata.normalize("NFKD", text).replace("\u0131", "i")  # the dotless i of Turkish
    text = unicodedata.normalize("NFC", _ACCENTS.sub("", text))
    text = _NO_LETTERS.sub("  ", _RUN.sub(r"  \1  ", text))
    return f"  {text}  "


def terms_of(query: str) -> list[str]:
    """The terms of a query, each once, in the form of a prepared text."""
    found: dict[str, None] = {}
    for word in prepared(query).split():
        if _RUN.fullmatch(word):
            found.update(dict.fromkeys(word[at : at + 2] for at in range(max(1, len(word) - 1))))
        elif len(word) < PREFIX:
            found[f" {word} "] = None
        else:
            found[f" {word[:PREFIX]}"] = None
    return list(found)[:MOST_TERMS]


def scores(query: str, texts: Sequence[str]) -> list[float]:
    """Give the score of each prepared text; 0.0 without a term of the query."""
    found = [0.0] * len(texts)
    lengths = [len(text) for text in texts]
    usual = sum(lengths) / max(1, len(texts))
    for term in terms_of(query):
        counts = [text.count(term) for text in texts]
        having = sum(map(bool, counts))
        if not having:
            continue
        weight = log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for at, count in enumerate(counts):
            if count:
                norm = _K1 * (1 - _B + _B * lengths[at] / usual)
                found[at] += weight * count * (_K1 + 1) / (count + norm)
    return found


def best_order(values: Sequence[float]) -> list[int]:
    """The places of the values above zero, highest value first; of equal values the last place first."""
    return sorted((at for at, value in enumerate(values) if value > 0), key=lambda at: (-values[at], -at))
