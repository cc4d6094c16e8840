"""Dialects and backends by name, as in ``Chat("openai:MODEL")``, and the operator of a server by its URL.

Owns: which name means which dialect or backend, when the caller's own dialect counts, when a connection is
made, and which URL means which operator. Must never know: the content of a request, and how it is sent.

A dialect's module is imported when it is first needed, because most programs use one. A backend connects at
its first call. So a chat at module level needs no key, no SDK and no network.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property, lru_cache
from typing import Any, Generic, Literal, TypeVar, overload

from ..base.process import PerProcess
from ..base.values import Value
from ..types.errors import StateProviderError
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

__all__ = [
    "WIRES",
    "backend_from_name",
    "checked_url",
    "dialect_for",
    "dialect_of",
    "endpoint_family",
    "is_plain_loopback",
    "known_dialect",
]

WIRES = ("openai", "openai-responses", "anthropic")
"""The provider APIs of the states that this release can read."""


def dialect_of(wire: str, *, family: str | None = None, model: str = "") -> Dialect:
    """The dialect of a provider API.

    Args:
        wire: One of `WIRES`.
        family: The operator of the endpoint; None for the company that made the provider API.
        model: The model, if the dialect's requests depend on it; "" if unknown.

    Raises:
        ValueError: This release does not have the provider API.
    """
    match wire:
        case "openai":
            from .openai_chat.dialect import OpenAIChatDialect

            return OpenAIChatDialect(family or "openai")
        case "openai-responses":
            from .openai_responses.dialect import OpenAIResponsesDialect

            return OpenAIResponsesDialect(family or "openai")
        case "anthropic":
            from .anthropic.dialect import AnthropicDialect

            return AnthropicDialect(family=family or "anthropic", model=model)
    raise ValueError(
        f"this release cannot read entries of the provider API {wire!r}; it speaks {', '.join(WIRES)}"
    )


_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_OWN = {"openai": "api.openai.com", "anthropic": "api.anthropic.com"}
_AZURE = (".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")
_AWS = ("bedrock-mantle.", "bedrock-runtime.", "aws-external-anthropic.")
"""Prefixes of the hosts that both SDKs use for an AWS region, such as bedrock-mantle.us-east-1.api.aws."""
_AWS_ENDS = (".api.aws", ".amazonaws.com")


def checked_url(base_url: object) -> None:
    """Raise ValueError for an address without its scheme: no request would ever get there."""
    if isinstance(base_url, str) and base_url and not base_url.startswith(("http://", "https://")):
        raise ValueError("base_url must begin with http:// or https://, such as http://127.0.0.1:11434/v1")


@lru_cache(maxsize=256)
def endpoint_family(base_url: str | None, wire: str = "openai") -> str:
    """Name the family that a base URL belongs to.

    Args:
        base_url: None or "" for the SDK's default.
        wire: The provider API of the server.

    Returns:
        "openai" and "anthropic" for the companies' own hosts and their regions; "azure" for Azure's resource
        hosts, which on "anthropic" are "foundry"; "aws" for Bedrock and Anthropic's gateway at AWS;
        "local" for this machine; for every other server its host name, without the port.
    """
    if not base_url:
        return "anthropic" if wire == "anthropic" else "openai"
    host = _host(base_url)
    for company, own in _OWN.items():
        if host == own or host.endswith("." + own):
            return company
    if host.endswith(_AZURE):
        return "foundry" if wire == "anthropic" else "azure"
    if host.startswith(_AWS) and host.endswith(_AWS_ENDS):
        return "aws"
    return "local" if host in _LOOPBACK else host


def is_plain_loopback(base_url: str | None) -> bool:
    """True for ``http://`` on this machine."""
    return bool(base_url) and str(base_url).startswith("http://") and _host(str(base_url)) in _LOOPBACK


def _host(base_url: str) -> str:
    from urllib.parse import urlsplit  # not at the top: a backend named by a string may never need it

    return urlsplit(base_url).hostname or ""


def dialect_for(wire: str, dialect: Dialect | None) -> Dialect:
    """The dialect of a state's provider API. `dialect`: for a provider API that is not built in.

    Raises `StateProviderError` if neither `dialect` nor a built-in dialect fits.
    """
    if dialect is not None and dialect.wire == wire:
        return dialect
    if dialect is not None or wire not in WIRES:
        known = dialect.wire if dialect is not None else ", ".join(WIRES)
        raise StateProviderError(
            f"the state's entries are of the wire {wire[:40]!r}, and the dialects at hand read {known}; pass "
            "the dialect= that wrote them",
            expected=known,
            found=wire,
        )
    return dialect_of(wire)


def known_dialect(wire: str) -> Dialect | None:
    """The dialect of a built-in provider API; None for another name."""
    return dialect_of(wire) if wire in WIRES else None


# ---------------------------------------------------------------------------------------------- backends


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
    name: str, *, is_async: Literal[False], max_concurrent_calls: int | None = None
) -> Backend: ...
@overload
def backend_from_name(
    name: str, *, is_async: Literal[True], max_concurrent_calls: int | None = None
) -> AsyncBackend: ...
def backend_from_name(
    name: str, *, is_async: bool, max_concurrent_calls: int | None = None
) -> Backend | AsyncBackend:
    """Read a backend string.

    Args:
        name: "WIRE:MODEL", where WIRE is the provider API "openai", "openai-responses" or "anthropic"; or
            "sim" or "sim:WIRE" for the offline simulator. A model's name may contain colons.
        is_async: True for an `AsyncChat`.
        max_concurrent_calls: At most so many requests at a time, as for the backend's class.

    Returns:
        A backend that connects at its first call.

    Raises:
        ValueError: No backend has that name; the text lists the names. Or the limit is below 1.
        TypeError: The limit is not an int.
    """
    where = _parsed(name)
    if max_concurrent_calls is not None:
        from .gate import checked_limit

        checked_limit(max_concurrent_calls)
    made = _LazyAsyncBackend if is_async else _LazyBackend
    return made(where, {} if max_concurrent_calls is None else {"max_concurrent_calls": max_concurrent_calls})


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
        return dialect_of(wire, family=family, model=model)

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
