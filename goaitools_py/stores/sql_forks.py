"""Protects an engine of SQLAlchemy when the process forks.

Owns: abandoning an inherited pool, and when an engine cannot be used in a child. Must never know: SQL.

A child neither uses nor closes its parent's connections, and opens its own. The call for this is
``engine.dispose(close=False)``, as SQLAlchemy's documentation says under "Using Connection Pools with
Multiprocessing or os.fork()". For a SQLite file it is not enough (see `sqlite_file`): an engine that kept a
file open is refused in the child.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Engine, NullPool, Pool

from ..base.process import this_process
from ..types.errors import StoreUnavailableError

__all__ = ["Forks", "forks_of"]

_left: Final[list[Pool]] = []
"""Pools of parents. A pool that is collected may close its connections."""


class Forks:
    """Watches one engine, for all stores over it."""

    def __init__(self, engine: Engine, *, is_async: bool) -> None:
        self._engine = weakref.ref(engine)
        self._is_sqlite = engine.dialect.name == "sqlite"
        in_memory = self._is_sqlite and ":memory:" in (engine.url.database or ":memory:")
        self._is_copied = in_memory and not is_async
        self._process = this_process()
        self._was_used = False
        self._is_refused = False
        self._steps: dict[object, None] = {}

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step on a connection of the engine. `StoreUnavailableError` if the engine is refused here."""
        if self._process is not this_process():
            self.begin_anew()
        if self._is_refused:
            raise StoreUnavailableError(
                "the engine had a SQLite file open when this process was forked, and cannot be used here "
                "without losing saves: make the engine in each process (after the fork), give it "
                "poolclass=NullPool, or use SQLiteStore"
            )
        self._was_used = True
        if not self._is_sqlite:
            yield
            return
        token = object()
        self._steps[token] = None
        try:
            yield
        finally:
            self._steps.pop(token, None)

    def begin_anew(self) -> None:
        """Make the engine usable in a child, or refuse an engine with an open SQLite file."""
        self._process = this_process()
        engine = self._engine()
        if engine is None or self._is_copied:
            return
        if self._is_sqlite:
            was_closed = isinstance(engine.pool, NullPool) and not self._steps
            self._is_refused = self._is_refused or (self._was_used and not was_closed)
            self._steps.clear()
            return
        _left.append(engine.pool)
        engine.dispose(close=False)


_known: Final[weakref.WeakKeyDictionary[Engine, Forks]] = weakref.WeakKeyDictionary()


def forks_of(engine: Engine, *, is_async: bool = False) -> Forks:
    """The watcher of an engine. All stores over an engine share one."""
    found = _known.get(engine)
    if found is None:
        found = _known.setdefault(engine, Forks(engine, is_async=is_async))
    return found


def _in_child() -> None:
    for forks in list(_known.values()):
        forks.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
