"""Backends by name, as in ``Chat("openai:MODEL")``. They connect at the first call.

Owns: the meaning of a backend string, and when the connection is made.
Must never know: the content of a request, and how it is sent.

So a chat at module level needs no key, no SDK and no network.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, overload

from ..base.process import PerProcess
from ..base.values import Value
from .base import (
    AsyncBackend,
    AsyncExchange,
    Backend,
    BackendError,
    Dialect,
    Exchange,
    ModelRequest,
    warm_up,
    warm_up_async,
)
from .dialects import WIRES, dialect_of, endpoint_family, host_of

__all__ = ["backend_from_name"]

_AVAILABLE = (
    "'openai:MODEL' (Chat Completions), 'openai-responses:MODEL' (Responses), 'anthropic:MODEL' (Messages) "
    "and 'sim' or 'sim:WIRE' (the offline simulator)"
)

_BASE_URL = {
    "openai": "OPENAI_BASE_URL",
    "openai-responses": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
}
"""The environment variable from which the SDK takes the server, if no `base_url` is given."""

_SIM_MODEL = "sim-game-master"

_B = TypeVar("_B", Backend, AsyncBackend)


@overload
def backend_from_name(
    name: str, *, is_async: Literal[False], max_concurrent_calls: int | None = None, http: str | None = None
) -> Backend: ...
@overload
def backend_from_name(
    name: str, *, is_async: Literal[True], max_concurrent_calls: int | None = None, http: str | None = None
) -> AsyncBackend: ...
def backend_from_name(
    name: str, *, is_async: bool, max_concurrent_calls: int | None = None, http: str | None = None
) -> Backend | AsyncBackend:
    """Read a backend string.

    Args:
        name: "WIRE:MODEL", where WIRE is the provider API "openai", "openai-responses" or "anthropic"; or
            "sim" or "sim:WIRE" for the offline simulator. A model's name may contain colons.
        is_async: True for an `AsyncChat`.
        max_concurrent_calls: At most so many requests at a time, as for the backend's class.
        http: As for the backend's class.

    Returns:
        A backend that connects at its first call.

    Raises:
        ValueError: No backend has that name; the text lists the names. Or the limit is below 1.
        TypeError: The limit is not an int, or `http` cannot be used.
        ImportError: `http` is "aiohttp", and aiohttp is not installed.
    """
    where = _parsed(name)
    if max_concurrent_calls is not None:
        from .gate import checked_limit

        checked_limit(max_concurrent_calls)
    if http is not None:
        from .http.client import checked_http

        checked_http(http, is_async=is_async)
    given = {"max_concurrent_calls": max_concurrent_calls, "http": http}
    made = _LazyAsyncBackend if is_async else _LazyBackend
    return made(where, {option: value for option, value in given.items() if value is not None})


class _Place(Value, frozen=True, kw_only=True):
    """The parts of a backend string."""

    wire: str
    model: str
    simulated: bool


def _parsed(name: str) -> _Place:
    wire, colon, model = name.partition(":")
    simulated = wire == "sim"
    if simulated:
        wire, model = model if colon else "openai", _SIM_MODEL
    if wire not in WIRES:
        raise ValueError(f"unknown backend {name!r}; available are {_AVAILABLE}{_elsewhere(name)}")
    if not model:
        raise ValueError(f"{name!r} names no model; write '{wire}:MODEL'")
    return _Place(wire=wire, model=model, simulated=simulated)


def _elsewhere(name: str) -> str:
    """A hint for an unknown name, for the error text."""
    wire, colon, model = name.partition(":")
    if wire == "sim":
        return f"; the simulator has {', '.join(repr(f'sim:{one}') for one in WIRES)}"
    if wire.lower() in WIRES:
        return f"; did you mean '{wire.lower()}:{model}'?"
    if wire.startswith(("gpt", "o1", "o3", "o4")):
        return f"; did you mean 'openai:{name}'?"
    if wire.startswith("claude"):
        return f"; did you mean 'anthropic:{name}'?"
    return "; another server with such an API takes OpenAIChatBackend(MODEL, base_url=…)" if colon else ""


def _sync_class(wire: str) -> Callable[..., Backend]:
    match wire:
        case "openai":
            from .openai.backends import OpenAIChatBackend

            return OpenAIChatBackend
        case "openai-responses":
            from .openai.backends import OpenAIResponsesBackend

            return OpenAIResponsesBackend
        case _:
            from .anthropic.backends import AnthropicBackend

            return AnthropicBackend


def _async_class(wire: str) -> Callable[..., AsyncBackend]:
    match wire:
        case "openai":
            from .openai.backends import AsyncOpenAIChatBackend

            return AsyncOpenAIChatBackend
        case "openai-responses":
            from .openai.backends import AsyncOpenAIResponsesBackend

            return AsyncOpenAIResponsesBackend
        case _:
            from .anthropic.backends import AsyncAnthropicBackend

            return AsyncAnthropicBackend


class _Connection(Generic[_B]):
    """The backend that one process has opened. After a fork the child uses its parent's backend, because that
    handles forks itself, but not its parent's simulator, because that runs in threads of the parent."""

    def __init__(self, before: _Connection[_B] | None) -> None:
        self.lock = threading.Lock()
        self.is_simulated = False
        self.backend: _B | None = None
        if before is not None and not before.is_simulated:
            self.backend = before.backend
        self.opened = ExitStack()


class _Lazy(Generic[_B]):
    """The shared part of both backends: the parsed name, and a connection that is made once."""

    max_retries = 2
    context_window: int | None = None

    def __init__(self, place: _Place, options: Mapping[str, Any]) -> None:
        self.model: str | None = place.model
        self._options = options
        self._place = place
        self._connections: PerProcess[_Connection[_B]] = PerProcess(_Connection)

    @cached_property
    def dialect(self) -> Dialect:
        """The dialect. The family of the endpoint is read from the environment when this is first read."""
        wire, model = self._place.wire, self._place.model
        named = os.environ.get(_BASE_URL[wire])
        family = "local" if self._place.simulated else endpoint_family(named, wire)
        return dialect_of(wire, family=family, model=model, host=host_of(named))

    @property
    def server(self) -> tuple[str, int] | None:
        """The host and the port that requests go to; None before the first."""
        return getattr(self._connections.get().backend, "server", None)

    def _connected(self, backend_class: Callable[..., _B]) -> _B:
        connection = self._connections.get()
        with connection.lock:
            if connection.backend is None:
                connection.backend = self._connect(backend_class, connection)
            return connection.backend

    def _connect(self, backend_class: Callable[..., _B], connection: _Connection[_B]) -> _B:
        if self._place.simulated:
            from ..sim import SimServer

            connection.is_simulated = True
            server = connection.opened.enter_context(SimServer())
            url = server.base_url_for(self._place.wire)
            return backend_class(self.model, base_url=url, api_key="sim", **self._options)
        try:
            return backend_class(self.model, **self._options)
        except ValueError as error:
            key = "ANTHROPIC_API_KEY" if self._place.wire == "anthropic" else "OPENAI_API_KEY"
            raise BackendError(str(error), kind="auth", key_variable=key, sdk_error=error.__cause__) from None

    def _disconnected(self) -> tuple[_B | None, ExitStack]:
        """Drop the connection; a later call makes a new one."""
        connection = self._connections.get()
        with connection.lock:
            backend, connection.backend = connection.backend, None
            return backend, connection.opened.pop_all()


class _LazyBackend(_Lazy[Backend]):
    def warm_up(self) -> None:
        warm_up(self._connected(_sync_class(self._place.wire)))

    def send(self, request: ModelRequest) -> Exchange:
        return self._connected(_sync_class(self._place.wire)).send(request)

    def close(self) -> None:
        backend, opened = self._disconnected()
        with opened:
            if backend is not None:
                backend.close()


class _LazyAsyncBackend(_Lazy[AsyncBackend]):
    async def warm_up(self) -> None:
        await warm_up_async(await self._connected_aside())

    async def asend(self, request: ModelRequest) -> AsyncExchange:
        backend = self._connections.get().backend
        return await (backend or await self._connected_aside()).asend(request)

    async def _connected_aside(self) -> AsyncBackend:
        """Connect in a thread: importing an SDK takes a second or more, and the loop goes on meanwhile."""
        import asyncio  # not at the top: a Chat needs none

        return await asyncio.to_thread(lambda: self._connected(_async_class(self._place.wire)))

    async def aclose(self) -> None:
        backend, opened = self._disconnected()
        with opened:
            if backend is not None:
                await backend.aclose()
