"""Views of histories that grow: what was viewed once is not read again.

Owns: the walk over the entries of a history, and what this process remembers of such walks. Must never know:
a provider API, or what a view changes.

A view of a history is made entry by entry: what becomes of an entry depends on the entries before it. So an
equal beginning gives an equal beginning. A request repeats the history of the one before and adds to it.
That one is remembered, as far as the bounds allow, and compared byte by byte. Only what is new is viewed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Final, NamedTuple, Self

__all__ = ["Viewed", "Walk", "viewed"]

_JOINT: Final = b",\n"

_MOST_RUNS: Final = 256
_MOST_BYTES: Final = 32 * 2**20
_LARGEST: Final = 4 * 2**20
"""A history with more bytes is not remembered: it has media, and sending it takes longer than viewing it."""

_MARKS: Final = 3
"""The places of a history from which a walk can go on: the newest, and two before it. A question about the
history, to summarise it or to count its tokens, leaves the older ones good."""


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


class _Mark(NamedTuple):
    """A place in a history up to which it was viewed.

    Attributes:
        read: So many bytes of the given history were read.
        made: So many bytes of the sent history are final.
        walk: The state here; it never goes on itself.
    """

    read: int
    made: int
    walk: Walk


class _Run(NamedTuple):
    given: bytes
    made: bytes
    marks: tuple[_Mark, ...]

    @property
    def size(self) -> int:
        return len(self.given) + len(self.made)


_runs: dict[Hashable, _Run] = {}
_size = 0
_lock: Final = Lock()


def viewed(key: Hashable, start: Callable[[], Walk], whole: bytes, pieces: Sequence[bytes]) -> Viewed:
    """View a history.

    Args:
        key: Names the rules and, if possible, the conversation. Walks with equal keys change the same.
        start: Makes the walk for the beginning of a history.
        whole: The pieces, joined by ``,\\n``.
        pieces: The history. Empty pieces are ignored.
    """
    if not whole:
        return Viewed(pieces, start())
    run = _runs.get(key)
    known = () if run is None else _known(run, whole)
    mark = known[-1] if known else _Mark(0, 0, start())
    made = run.made[: mark.made] if run is not None else b""
    if mark.read < len(whole):
        mark, made = _gone_on(mark, made, whole)
        _keep(key, _Run(whole, made, (*known[1 - _MARKS :], mark)))
    sent = _JOINT.join([one for one in (made, *mark.walk.rest()) if one])
    return Viewed(pieces if sent == whole else _pieces(sent, pieces), mark.walk)


def _known(run: _Run, whole: bytes) -> tuple[_Mark, ...]:
    """The places that this history has in common with an earlier one."""
    for count in range(len(run.marks), 0, -1):
        if _is_there(run, run.marks[count - 1], whole):
            return run.marks[:count]
    return ()


def _is_there(run: _Run, mark: _Mark, whole: bytes) -> bool:
    end = mark.read
    if end != len(whole) and whole[end : end + len(_JOINT)] != _JOINT:
        return False
    return whole.startswith(memoryview(run.given)[:end])


def _gone_on(mark: _Mark, made: bytes, whole: bytes) -> tuple[_Mark, bytes]:
    """View the rest of a history from this place on. Gives the place at its end, and the bytes before it."""
    walk = mark.walk.copy()
    final = [made] if made else []
    for entry in whole[mark.read + len(_JOINT) if mark.read else 0 :].split(_JOINT):
        final += walk.take(entry)
    made = _JOINT.join(final)
    return _Mark(len(whole), len(made), walk), made


def _pieces(sent: bytes, pieces: Sequence[bytes]) -> list[bytes]:
    """The sent history in pieces, those at its beginning and end that did not change as the very objects."""
    left = [piece for piece in pieces if piece]
    start, end = 0, len(sent)
    head: list[bytes] = []
    tail: list[bytes] = []
    for piece in left:
        at = start + len(piece)
        if not sent.startswith(piece, start) or sent[at : at + len(_JOINT)] != _JOINT:
            break
        start = at + len(_JOINT)
        head.append(piece)
    for piece in reversed(left[len(head) :]):
        at = end - len(piece)
        if (
            at - len(_JOINT) < start
            or not sent.startswith(piece, at)
            or sent[at - len(_JOINT) : at] != _JOINT
        ):
            break
        end = at - len(_JOINT)
        tail.append(piece)
    return [*head, sent[start:end], *reversed(tail)]


def _keep(key: Hashable, run: _Run) -> None:
    """Remember a run. It is not needed, so nothing waits for another thread."""
    global _size
    if not _lock.acquire(blocking=False):
        return
    try:
        old = _runs.pop(key, None)
        _size -= old.size if old is not None else 0
        if run.size > _LARGEST:
            return
        _runs[key] = run
        _size += run.size
        while len(_runs) > _MOST_RUNS or _size > _MOST_BYTES:
            _size -= _runs.pop(next(iter(_runs))).size
    finally:
        _lock.release()
