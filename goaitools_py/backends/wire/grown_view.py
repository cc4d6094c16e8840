"""Views of histories that grow: an entry that was viewed once is not read again.

Owns: the walk over the entries of a history, and which pieces of it stay. Must never know: a provider API, or
the changes of a view.

A view of a history is made entry by entry: the sent form of an entry depends on the entries before it. So an
equal beginning gives an equal beginning, and a longer history goes on from a kept walk; see `KeptViews`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple, Self

from .kept_views import BETWEEN, KeptViews

__all__ = ["Viewed", "Walk", "viewed"]


class Walk:
    """The state of a view at some place of a history. A subclass knows the changes."""

    def take(self, entry: bytes) -> Sequence[bytes]:
        """The next entry as it is sent: any number of entries. It may hold back entries until a later
        one decides on them."""
        raise NotImplementedError

    def rest(self) -> Sequence[bytes]:
        """The entries that follow if the history ends here, for example entries that were held back.

        The state does not change.
        """
        return ()

    def copy(self) -> Self:
        """A walk with the same state, that goes on by itself."""
        raise NotImplementedError


class Viewed(NamedTuple):
    """A history as it is sent.

    Attributes:
        pieces: The given pieces, the very list if nothing changes. Unchanged pieces at the beginning and at
            the end are the very objects.
        walk: The walk at the end. It must not go on.
    """

    pieces: Sequence[bytes]
    walk: Walk


class _KnownView(NamedTuple):
    """A view, as far as its history goes.

    Attributes:
        clean: So many bytes of the history are sent as they are, with the joint behind them.
        made: What is sent behind them, in pieces.
        size: The number of its bytes.
        walk: The walk here. It never goes on itself.
    """

    clean: int
    made: tuple[bytes, ...]
    size: int
    walk: Walk


_views: Final[KeptViews[_KnownView]] = KeptViews()
_MOST_PIECES: Final = 64
"""More pieces of a view are joined."""


def viewed(rules: Hashable, start: Callable[[], Walk], whole: bytes, pieces: Sequence[bytes]) -> Viewed:
    """View a history.

    Args:
        rules: Names all that the changes depend on, beside the history.
        start: Makes the walk for the beginning of a history.
        whole: The pieces that are not empty, joined by ``,\\n``.
        pieces: The history.
    """
    if not whole:
        return Viewed(pieces, start())
    end, known = _views.find(rules, whole) or (0, None)
    if known is None:
        known = _gone_on(_KnownView(0, (), 0, start()), whole, 0)
    elif end < len(whole):
        known = _gone_on(known, whole, end + len(BETWEEN))
    if end < len(whole):
        _views.keep(rules, whole, known, known.size)
    clean, rest = known.clean, [*known.made, *known.walk.rest()]
    same = 0 if known.made else _same(whole, clean, rest)
    clean += sum(len(one) + len(BETWEEN) for one in rest[:same])
    if clean > len(whole) and same == len(rest):
        return Viewed(pieces, known.walk)
    sent = BETWEEN.join(rest[same:])
    return Viewed(_pieces([piece for piece in pieces if piece], whole, clean, sent), known.walk)


def _same(whole: bytes, at: int, entries: Sequence[bytes]) -> int:
    """How many of these entries stand in the history, from the place `at` on."""
    for count, entry in enumerate(entries):
        end = at + len(entry)
        if not whole.startswith(entry, at) or not (end == len(whole) or whole.startswith(BETWEEN, end)):
            return count
        at = end + len(BETWEEN)
    return len(entries)


def _gone_on(known: _KnownView, whole: bytes, at: int) -> _KnownView:
    """View the rest of a history, from the place `at` on."""
    walk, clean, made = known.walk.copy(), known.clean, [*known.made]
    size = known.size
    for entry in whole[at:].split(BETWEEN):
        for sent in walk.take(entry):
            if not made and _same(whole, clean, (sent,)):
                clean += len(sent) + len(BETWEEN)
            else:
                made.append(sent)
                size += len(sent)
    if len(made) > _MOST_PIECES:
        made = [BETWEEN.join(made)]
    return _KnownView(clean, tuple(made), size, walk)


def _pieces(pieces: Sequence[bytes], whole: bytes, clean: int, sent: bytes) -> list[bytes]:
    """The sent history in pieces, those at its beginning and end that did not change as the very objects."""
    at = 0
    head: list[bytes] = []
    for piece in pieces:
        if at + len(piece) + len(BETWEEN) > clean:
            break
        head.append(piece)
        at += len(piece) + len(BETWEEN)
    if at < clean:
        sent = whole[at:clean] + sent if sent else whole[at : clean - len(BETWEEN)]
    end = len(sent)
    tail: list[bytes] = []
    for piece in reversed(pieces[len(head) :]):
        begin = end - len(piece)
        if begin < len(BETWEEN) or not sent.startswith(piece, begin):
            break
        if not sent.startswith(BETWEEN, begin - len(BETWEEN)):
            break
        end = begin - len(BETWEEN)
        tail.append(piece)
    return [*head, *([sent[:end]] if end else []), *reversed(tail)]
