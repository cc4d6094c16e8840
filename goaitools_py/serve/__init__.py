"""Provisional. A server for pages, bots and games: an ASGI application over the conversations of a store.

Owns: the public names of the server. Must never know: an HTTP server, or who your users are. It needs the
extra ``[serve]``. Begin with `app.py`, the routes; `requests.py` has the work behind them.
"""

from __future__ import annotations

from ..base.advice import missing_extra_error

try:
    from .app import ServeApp, serve
    from .identity import Caller, Refused
    from .relay import MemoryRelay, Opened, RedisRelay, Relay, RelayLostError
    from .serve_limits import ServeLimits
    from .stateless import Revisions, StatelessApp
except ModuleNotFoundError as error:
    raise missing_extra_error(error, "goaitools_py.serve", "serve") from None

__all__ = [
    "Caller",
    "MemoryRelay",
    "Opened",
    "RedisRelay",
    "Refused",
    "Relay",
    "RelayLostError",
    "Revisions",
    "ServeApp",
    "ServeLimits",
    "StatelessApp",
    "serve",
]
