"""The answer to a query: the best passages, as text for the model.

Owns: which passages a page has, its order and its size. Must never know: where passages come from, or how
texts are ranked.

A passage gets a part of the scores of the turns beside it, because a question and its answer are often in two
turns. For the same reason the turns beside a hit are shown, as far as the page has room.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...base.values import Value
from ...types.tokens import text_tokens
from . import search
from .passages import Passage

__all__ = ["DEFAULT_TOKENS", "Page", "page_of"]

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
    if not search.terms_of(query):
        return Page(text="Name words that the passage would contain.", searched=searched)
    order = search.best_order(values)
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
    own = search.scores(query, [search.prepared(passage.text) for passage in passages])
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
    """A long text as its beginning and its best pieces, in order, with marks where something is left out."""
    if len(text) <= most:
        return text
    size = max(_LEAST_PIECE, most // _PIECES)
    pieces: list[str] = re.findall(rf"(?s).{{1,{size}}}(?:\s|$)|.{{1,{size}}}", text)
    ranked = search.best_order(search.scores(query, [search.prepared(piece) for piece in pieces]))
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
    return "".join(found).strip() if kept else text[:most]
