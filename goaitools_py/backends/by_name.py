"""Backends by name, as in ``Chat("openai:MODEL")``: named now, connected at the first call.

Owns: what a backend string means, and when the connection is made.
Must never know: how a request is sent, what is in it.

A chat made at module level therefore needs no key, no SDK and no network.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from typing import Generic, Literal, TypeVar, overload

from ..values import Value
from ._endpoints import endpoint_family
from .base import AsyncBackend, AsyncExchange, Backend, BackendError, Dialect, Exchange, ModelRequest
from .openai_chat import OpenAIChatDialect

__all__ = ["backend_from_name"]

_LATER = ("openai-responses", "anthropic")
_AVAILABLE = "'openai:MODEL' (Chat Completions) and 'sim' (the offline simulator)"

_SIM_MODEL = "sim-game-master"

_B = TypeVar("_B", Backend, AsyncBackend)


@overload
def backend_from_name(name: str, *, is_async: Literal[False]) -> Backend: ...
@overload
def backend_from_name(name: str, *, is_async: Literal[True]) -> AsyncBackend: ...
def backend_from_name(name: str, *, is_async: bool) -> Backend | AsyncBackend:
    """Read a backend string.

    Args:
        name: "openai:MODEL", "sim" or "sim:openai". A model may itself contain colons.
        is_async: Whether `AsyncChat` asks.

    Returns:
        A backend that connects at its first call.

    Raises:
        ValueError: No backend goes by that name; the text lists those that do.
    """
    where = _parsed(name)
    return _LazyAsyncBackend(where) if is_async else _LazyBackend(where)


class _Place(Value, frozen=True, kw_only=True):
    """What a backend string names."""

    model: str
    simulated: bool


def _parsed(name: str) -> _Place:
    wire, _, model = name.partition(":")
    simulated = wire == "sim"
    if simulated:
        wire, model = model or "openai", _SIM_MODEL
    if wire in _LATER:
        raise ValueError(f"the wire {wire!r} comes with a later version; available are {_AVAILABLE}")
    if wire != "openai":
        raise ValueError(f"unknown backend {name!r}; available are {_AVAILABLE}")
    if not model:
        raise ValueError(f"{name!r} names no model; write 'openai:MODEL'")
    return _Place(model=model, simulated=simulated)


class _Lazy(Generic[_B]):
    """What both colours share: the place, and a connection that is made once, whoever comes first."""

    max_retries = 2
    context_window: int | None = None

    def __init__(self, place: _Place) -> None:
        self.model: str | None = place.model
        self._place = place
        self._lock = threading.Lock()
        self._backend: _B | None = None
        self._opened = ExitStack()

    @cached_property
    def dialect(self) -> Dialect:
        """The wire's words; the endpoint family is that of the environment when first asked."""
        if self._place.simulated:
            return OpenAIChatDialect("local")
        return OpenAIChatDialect(endpoint_family(os.environ.get("OPENAI_BASE_URL")))

    def _connected(self, backend_class: Callable[..., _B]) -> _B:
        with self._lock:
            if self._backend is None:
                self._backend = self._connect(backend_class)
            return self._backend

    def _connect(self, backend_class: Callable[..., _B]) -> _B:
        if self._place.simulated:
            from ..sim import SimServer

            server = self._opened.enter_context(SimServer())
            return backend_class(self.model, base_url=server.base_url, api_key="sim")
        try:
            return backend_class(self.model)
        except ValueError as error:
            raise BackendError(str(error), kind="auth") from error.__cause__

    def _disconnected(self) -> tuple[_B | None, ExitStack]:
        """Forget the connection; a later call makes a new one."""
        with self._lock:
            backend, self._backend = self._backend, None
            return backend, self._opened.pop_all()


class _LazyBackend(_Lazy[Backend]):
    def send(self, request: ModelRequest) -> Exchange:
        from .openai_backends import OpenAIChatBackend

        return self._connected(OpenAIChatBackend).send(request)

    def close(self) -> None:
        backend, opened = self._disconnected()
        with opened:
            if backend is not None:
                backend.close()


class _LazyAsyncBackend(_Lazy[AsyncBackend]):
    async def asend(self, request: ModelRequest) -> AsyncExchange:
        from .openai_backends import AsyncOpenAIChatBackend

        return await self._connected(AsyncOpenAIChatBackend).asend(request)

    async def aclose(self) -> None:
        backend, opened = self._disconnected()
        with opened:
            if backend is not None:
                await backend.aclose()
