"""Views of histories that grow: what was viewed once is not read again.

Owns: the walk over the entries of a history, and which pieces of it stay. Must never know: a provider API, or
what a view changes.

A view of a history is made entry by entry: what becomes of an entry depends on the entries before it. So an
equal beginning gives an equal beginning, and a longer history goes on from a kept walk; see `KeptViews`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple, Self

from .kept_views import BETWEEN, KeptViews

__all__ = ["Viewed", "Walk", "viewed"]


class Walk:
    """The state of a view at some place of a history. A subclass knows what changes."""

    def take(self, entry: bytes) -> Sequence[bytes]:
        """The next entry as it is sent: none, one or several entries. It may hold back entries until a later
        one decides on them."""
        raise NotImplementedError

    def rest(self) -> Sequence[bytes]:
        """What follows if the history ends here, such as entries that were held back. The state does not
        change."""
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


class _Kept(NamedTuple):
    made: bytes
    walk: Walk


_views: Final[KeptViews[_Kept]] = KeptViews()


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
    if known is None or end < len(whole):
        known = _gone_on(known, whole[end + len(BETWEEN) if known is not None else 0 :], start)
        _views.keep(rules, whole, known, len(known.made))
    sent = BETWEEN.join([one for one in (known.made, *known.walk.rest()) if one])
    return Viewed(pieces if sent == whole else _pieces(sent, pieces), known.walk)


def _gone_on(known: _Kept | None, rest: bytes, start: Callable[[], Walk]) -> _Kept:
    """View the rest of a history, behind what is known."""
    walk = start() if known is None else known.walk.copy()
    made = [known.made] if known is not None and known.made else []
    for entry in rest.split(BETWEEN):
        made += walk.take(entry)
    return _Kept(BETWEEN.join(made), walk)


def _pieces(sent: bytes, pieces: Sequence[bytes]) -> list[bytes]:
    """The sent history in pieces, those at its beginning and end that did not change as the very objects."""
    left = [piece for piece in pieces if piece]
    start, end = 0, len(sent)
    head: list[bytes] = []
    tail: list[bytes] = []
    for piece in left:
        at = start + len(piece)
        if not sent.startswith(piece, start) or sent[at : at + len(BETWEEN)] != BETWEEN:
            break
        start = at + len(BETWEEN)
        head.append(piece)
    for piece in reversed(left[len(head) :]):
        at = end - len(piece)
        if (
            at - len(BETWEEN) < start
            or not sent.startswith(piece, at)
            or sent[at - len(BETWEEN) : at] != BETWEEN
        ):
            break
        end = at - len(BETWEEN)
        tail.append(piece)
    return [*head, sent[start:end], *reversed(tail)]
