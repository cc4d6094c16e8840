"""Provisional. A server for pages, bots and games: an ASGI application over the conversations of a store.

Owns: this door. Must never know: an HTTP server, or who your users are. It needs the extra ``[serve]``.
"""

from __future__ import annotations

from ..base.extras import lacking

try:
    from .app import ServeApp, serve
    from .carried import CarriedApp, Revisions
    from .limits import ServeLimits
    from .redis_relay import RedisRelay
    from .relay import MemoryRelay, Opened, Relay, RelayLostError
    from .whose import Refused, Who
except ModuleNotFoundError as error:
    raise lacking(error, "goaitools_py.serve", "serve") from None

__all__ = [
    "CarriedApp",
    "MemoryRelay",
    "Opened",
    "RedisRelay",
    "Refused",
    "Relay",
    "RelayLostError",
    "Revisions",
    "ServeApp",
    "ServeLimits",
    "Who",
    "serve",
]
