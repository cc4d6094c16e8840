"""How long the connections of an engine of SQLAlchemy wait for an answer.

Owns: the timeouts that an engine shows when it connects. Must never know: SQL.

An engine does not show the settings that it gives to its driver. Listeners get them at each new connection.
"""

from __future__ import annotations

import weakref
from math import inf
from typing import Any, Final

from sqlalchemy import Engine, QueuePool, event

from .clients import answer_setting, warn_once

__all__ = ["EngineWaits", "waits_of"]

_CONNECT: Final = 10.0
"""Seconds that drivers of MySQL wait for a connection, by default."""


class EngineWaits:
    """Watches one engine, for all stores over it.

    Attributes:
        longest: Seconds after which a call has ended in any case, as far as known. 0 on a machine's own
            files, infinity for a driver that may wait for ever.
    """

    def __init__(self, engine: Engine) -> None:
        self.longest = 0.0 if engine.dialect.name == "sqlite" else inf
        setting = answer_setting(engine.dialect.driver)
        if not setting:
            return
        name, it = engine.dialect.driver, weakref.ref(engine)

        @event.listens_for(engine, "do_connect")
        def _connecting(dialect: Any, record: Any, args: Any, given: dict[str, Any]) -> None:
            seconds = given.get(setting)
            if seconds is None:
                if (engine := it()) is not None:
                    warn_once(engine, name, setting)
            elif not dialect.is_async:
                # The sum: a free connection, connecting, a statement without answer, a reset without answer.
                connect = float(given.get("connect_timeout") or _CONNECT)
                self.longest = _for_a_free_connection(it()) + connect + 2 * float(seconds)


def _for_a_free_connection(engine: Engine | None) -> float:
    """Seconds that a pool waits for a connection to come back, before it raises."""
    pool = None if engine is None else engine.pool
    return pool.timeout() if isinstance(pool, QueuePool) else 0.0


_known: Final[weakref.WeakKeyDictionary[Engine, EngineWaits]] = weakref.WeakKeyDictionary()


def waits_of(engine: Engine) -> EngineWaits:
    """The waits of an engine. All stores over an engine share one object."""
    found = _known.get(engine)
    if found is None:
        found = _known.setdefault(engine, EngineWaits(engine))
    return found
