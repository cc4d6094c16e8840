"""Bugs that are planted on purpose, to see that a run finds them.

Owns: one wrong behaviour each. Must never know: how it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from goaitools_py.kept import row
from goaitools_py.kept import turn as thread
from goaitools_py.turn import tool_calls as calling
from goaitools_py.turn.flow import Checkpoint, Flow
from goaitools_py.values import replace

from ._store import Rows

__all__ = ["BUGS", "planted"]

Patch = tuple[Any, str, Any]


def _blind_save(save: Any) -> Any:
    def blind(self: Rows, by: str, key: str, blob: bytes, expected: int | None) -> int:
        old = self.rows.get(key)
        return save(self, by, key, blob, old.version if old else None)  # type: ignore[no-any-return]

    return blind


def _release_any(_: Any) -> Any:
    def release(self: Rows, key: str, token: str) -> None:
        if self.held.get(key, ("", 0.0))[0] == token:
            del self.held[key]
        self.leases.pop(key, None)

    return release


def _unclaimed(make: Any) -> Any:
    def init(self: thread.KeptTurn, *args: Any, **how: Any) -> None:
        make(self, *args, **how)
        self._plan = replace(self._plan, claims=False, is_shared=False)

    return init


def _started_first(start: Any) -> Any:
    def late(*args: Any) -> Flow[None]:
        flow = start(*args)
        answer: Any = None
        while True:
            try:
                effect = flow.send(answer)
            except StopIteration:
                return
            # The start is not kept: the first thing that is known of the call is its result.
            answer = None if isinstance(effect, Checkpoint) else (yield effect)

    return late


def _never(_: Any) -> Any:
    return lambda *_: False


def _without_parts(pieces_of: Any) -> Any:
    return lambda *of: pieces_of(*of)._replace(names=frozenset())


BUGS: Final[dict[str, Callable[[Any], Any]]] = {
    "no compare-and-swap": _blind_save,
    "a release of somebody else's lease": _release_any,
    "no claim before a tool": _unclaimed,
    "a checkpoint after the tool instead of before": _started_first,
    "an approval that comes again runs the call again": _never,
    "a save that leaves out its parts": _without_parts,
}
"""A bug's name, and what it makes of the right thing."""

_PLACES: Final[dict[str, tuple[Any, str]]] = {
    "a save that leaves out its parts": (row, "pieces_of"),
    "no compare-and-swap": (Rows, "save"),
    "a release of somebody else's lease": (Rows, "release"),
    "no claim before a tool": (thread.KeptTurn, "__init__"),
    "a checkpoint after the tool instead of before": (calling, "_start"),
    "an approval that comes again runs the call again": (calling, "_is_used_up"),
}


@contextmanager
def planted(bug: str) -> Iterator[None]:
    """Run with a bug."""
    owner, name = _PLACES[bug]
    right = getattr(owner, name)
    setattr(owner, name, BUGS[bug](right))
    try:
        yield
    finally:
        setattr(owner, name, right)
