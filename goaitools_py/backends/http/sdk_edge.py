"""Posts bodies through an official SDK, sync and async.

Owns: the life of an SDK's clients (one for each process, and in async code for each event loop), one post and
its deadline, and the warm-up. Must never know: which SDK it is (an `Sdk` says), the content of a body, how
often to retry.

Bodies are sent as ``content=`` bytes. So an SDK's credentials, headers, connection pool and error classes are
used, but not its typed requests, which walk through every message of the history on every call.
`tests/backends/test_sdk_pins.py` has a test for each behaviour of the SDKs that the edges rely on.

After a fork, parent and child have the same open connections, and each would read replies to the other's
requests. So a child does not use a client that has sent anything. It does not close it either: that may send
a goodbye on a connection that the parent still uses. A client that has sent nothing has no connection yet,
and parent and child may both use it.

With their first request both SDKs import more of themselves and look at the platform. With its first
connection the HTTP client imports its event loop. Together this takes tens of milliseconds. So a warm-up
posts once to a server in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar

import httpx2

from ...base.late_calls import call_with_timeout
from ...base.process import PerProcess
from ..base import BackendError, ModelRequest
from ..dialects import host_of
from .deadlines import DeadlineClient, until
from .exchange import HttpAsyncExchange, HttpExchange, bounded_timeout, let_body_take, wire_errors
from .failures import MAX_REDIRECTS, redirected
from .sdk import (
    ClientOptions,
    Line,
    Sdk,
    SdkClient,
    async_http_class,
    async_line,
    callers_line,
    sync_line,
)

__all__ = ["AsyncSdkEdge", "ClientOfProcess", "ClientsOfLoops", "SdkEdge"]

C = TypeVar("C")


def _refused() -> BackendError:
    return BackendError("the client was used before this process was forked", kind="forked")


class _Held(Generic[C]):
    """A client, or None between `pop` and the next use."""

    __slots__ = ("client", "lock", "was_used")

    def __init__(self, client: C) -> None:
        self.client: C | None = client
        self.lock = threading.Lock()
        self.was_used = False


def _held(first: C, make: Callable[[], C] | None, before: _Held[C] | None) -> _Held[C]:
    if before is None:
        return _Held(first)
    if not before.was_used and before.client is not None:
        return before
    if make is None:
        raise _refused()
    return _Held(make())


class ClientOfProcess(Generic[C]):
    """One client for each process.

    Args:
        first: The client of this process.
        make: Makes one for a child of a fork; None if the client is the caller's own.
    """

    def __init__(self, first: C, make: Callable[[], C] | None) -> None:
        self._make = make
        self._held = PerProcess[_Held[C]](partial(_held, first, make))
        self._held.get()

    def get(self) -> C:
        """The client for a request.

        Raises:
            BackendError: It was used before a fork, and a new one cannot be made (kind "forked").
        """
        held = self._held.get()
        held.was_used = True
        client = held.client
        return self._anew(held) if client is None else client

    def pop(self) -> C | None:
        """Forget this process's client, so that the next use makes another one. None if this process has no
        client, or if no other can be made."""
        held = self._held.peek()
        if held is None or self._make is None:
            return None
        with held.lock:
            client, held.client = held.client, None
        return client

    def _anew(self, held: _Held[C]) -> C:
        with held.lock:
            if held.client is None:
                assert self._make is not None  # `pop` makes sure of it
                held.client = self._make()
            return held.client


class _Loops(Generic[C]):
    """The clients of one process. An async client belongs to the loop that opened its connections."""

    def __init__(self, spare: C | None) -> None:
        self.lock = threading.Lock()
        self.spare = spare
        self.clients: dict[asyncio.AbstractEventLoop, C] = {}


def _loops(first: C, before: _Loops[C] | None) -> _Loops[C]:
    return _Loops(first if before is None else before.spare)


class ClientsOfLoops(Generic[C]):
    """A client for each event loop of each process.

    Args:
        first: The first client. No loop has used it yet.
        make: Makes another one.
    """

    def __init__(self, first: C, make: Callable[[], C]) -> None:
        self._make = make
        self._loops = PerProcess[_Loops[C]](partial(_loops, first))
        self._loops.get()

    def get(self) -> C:
        """The running loop's client."""
        loop, loops = asyncio.get_running_loop(), self._loops.get()
        with loops.lock:
            if loop not in loops.clients:
                # Weak keys would not do: an open connection keeps its loop alive, also a closed one.
                loops.clients = {known: c for known, c in loops.clients.items() if not known.is_closed()}
                spare, loops.spare = loops.spare, None
                loops.clients[loop] = self._make() if spare is None else spare
            return loops.clients[loop]

    def is_ready(self) -> bool:
        """True if `get` does not have to make a client."""
        loop, loops = asyncio.get_running_loop(), self._loops.get()
        with loops.lock:
            return loop in loops.clients or loops.spare is not None

    def keep(self, client: C) -> None:
        """Make this the running loop's client, if it does not have one."""
        loop, loops = asyncio.get_running_loop(), self._loops.get()
        with loops.lock:
            loops.clients.setdefault(loop, client)

    def pop(self) -> C | None:
        """Forget the running loop's client and return it; None without one."""
        loops = self._loops.get()
        with loops.lock:
            return loops.clients.pop(asyncio.get_running_loop(), None)


# ------------------------------------------------------------------------------------------- the warm-up


_WARM_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
)


def _rehearse(post: Callable[[str], Awaitable[object]]) -> None:
    """Run `post` once with the address of a server on the loopback. Without a loopback it does nothing.

    It starts an event loop. Where one runs already, call it in another thread.
    """
    with contextlib.suppress(OSError):
        asyncio.run(_posted_once(post))


async def _posted_once(post: Callable[[str], Awaitable[object]]) -> None:
    server = await asyncio.start_server(_answered, "127.0.0.1", 0)
    async with server:
        await post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_WARM_ANSWER)
        await writer.drain()
    writer.close()


_Client = TypeVar("_Client", bound=SdkClient)

_UNREAD = {"X-Stainless-Raw-Response": "stream"}
"""The header by which `with_streaming_response` of both SDKs asks for a response with an unread body."""

_REHEARSAL_SECONDS = 5.0
"""How long the post of a warm-up may take."""


# ------------------------------------------------------------------------------------------- one post


def _address(client: SdkClient, options: ClientOptions) -> str:
    """The address before a request's path. For a client that was made here it is the whole address, so the
    SDK need not build one for each request. For a caller's own client it is empty, because that client may
    look at the path, or move to another address.
    """
    return str(client.base_url).rstrip("/") if options.client is None else ""


def _server(client: SdkClient) -> tuple[str, int]:
    """The host and the port of a client's server."""
    url = client.base_url
    return url.host, url.port or (80 if url.scheme == "http" else 443)


def _post_arguments(
    sdk: Sdk[_Client], client: _Client, address: str, request: ModelRequest, timeout: float | None
) -> dict[str, Any]:
    accept = {"Accept": "text/event-stream"} if request.stream else {}
    headers = {"Content-Type": "application/json", **accept, **sdk.headers(client, request), **_UNREAD}
    # The SDK does not retry, so it need not make a key by which the server would recognise a retry.
    # No HTTP client follows a redirect by itself, not even a caller's own: see `failures`.
    options: dict[str, Any] = {
        "headers": headers,
        "max_retries": 0,
        "idempotency_key": "",
        "follow_redirects": False,
    }
    if timeout is not None or address:  # a client that was made here always gets one: see `heads`
        options["timeout"] = bounded_timeout(client.timeout, timeout)
    path = address + request.path
    return {"path": path, "content": request.body, "cast_to": httpx2.Response, "options": options}


# ------------------------------------------------------------------------------------------ the edges


class SdkEdge(Generic[_Client]):
    """One sync client for each process, and the posts through it. Threads may share both.

    In a child of a fork, a `client` or `http_client` of the caller's that was used before is refused.
    """

    def __init__(self, sdk: Sdk[_Client], options: ClientOptions) -> None:
        self._sdk = sdk
        owned = options.client is None and options.http_client is None
        line = (sync_line if options.client is None else callers_line)(sdk, options)
        first, http_client = line.client, line.http_client
        self._line = ClientOfProcess(line, partial(sync_line, sdk, options) if owned else None)
        # A caller's client, and code that fetches a token, may wait for anything, and keep no deadline.
        self._keeps_time = (
            isinstance(http_client, DeadlineClient)
            and http_client.is_exact
            and not callable(options.api_key)
            and getattr(first, "credentials", None) is None
        )
        self._address = _address(first, options)
        self.family = sdk.family(first)
        self.host = host_of(str(first.base_url))
        self.server = _server(first)

    def send(self, request: ModelRequest) -> HttpExchange:
        """Post a request; return once 2xx headers are there. Raises `BackendError`."""
        line, whole, head = self._line.get(), request.timeout, request.head_timeout
        client = line.client
        soon = whole if head is None else head
        if soon is None:
            response = self._response(line, request, None)
        elif self._keeps_time:
            with until(soon):
                response = self._response(line, request, soon)
        else:
            try:
                response = call_with_timeout(
                    soon, lambda: self._response(line, request, soon), httpx2.Response.close
                )
            except TimeoutError:
                host = client.base_url.host or "the server"
                raise BackendError(f"{host} did not answer in time", timed_out=True) from None
        if head is not None:
            let_body_take(response, bounded_timeout(client.timeout, whole))
        return HttpExchange(response, self._sdk.errors.request_id)

    def _response(self, line: Line[_Client], request: ModelRequest, seconds: float | None) -> httpx2.Response:
        client, ask = line.client, line.post
        given = _post_arguments(self._sdk, client, self._address, request, seconds)
        for hop in range(MAX_REDIRECTS + 1):
            try:
                return ask(**given)  # type: ignore[no-any-return]
            except Exception as error:
                ask, given = redirected(self._sdk, client, error, given, hop)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the connections, unless they are the caller's own. The next request opens new ones."""
        line = self._line.pop()
        if line is not None:
            line.client.close()


class AsyncSdkEdge(Generic[_Client]):
    """An async client for each event loop, since connections belong to the loop that opened them.

    A `client` or `http_client` of the caller's is used as it is, in any loop. In a child of a fork, one that
    was used before is refused.
    """

    def __init__(self, sdk: Sdk[_Client], options: ClientOptions) -> None:
        self._sdk = sdk
        self._options = options
        self._new = new = partial(async_line, sdk, options)
        # Made now and not in the first turn, so that a missing key raises where the backend is made.
        line = new() if options.client is None else callers_line(sdk, options)
        first = line.client
        owned = options.client is None and options.http_client is None
        self._own = ClientsOfLoops(line, new) if owned else None
        self._lines = self._own or ClientOfProcess(line, None)
        self._address = _address(first, options)
        self.family = sdk.family(first)
        self.host = host_of(str(first.base_url))
        self.server = _server(first)

    async def asend(self, request: ModelRequest) -> HttpAsyncExchange:
        """Post a request; return once 2xx headers are there. Raises `BackendError`.

        The caller has to see that the headers come in time.
        """
        line = self._lines.get()
        client, ask = line.client, line.post
        given = _post_arguments(self._sdk, client, self._address, request, request.timeout)
        for hop in range(MAX_REDIRECTS + 1):
            try:
                response = await ask(**given)
                break
            except Exception as error:
                ask, given = redirected(self._sdk, client, error, given, hop)
        return HttpAsyncExchange(response, self._sdk.errors.request_id)

    async def warm_up(self) -> None:
        """Make the running loop's client, and import everything that a request needs, both in a thread."""
        if self._own is not None and not self._own.is_ready():
            self._own.keep(await asyncio.to_thread(self._new))
        await asyncio.to_thread(_rehearse, self._rehearsed)

    async def _rehearsed(self, root: str) -> None:
        # A separate client: a caller's hooks and credentials are for real requests.
        http_client = async_http_class(self._sdk, self._options)(trust_env=False)
        options = ClientOptions(http_client=http_client, base_url=root, api_key="none")
        line = async_line(self._sdk, options)
        request = ModelRequest(path="/", body=b"{}", timeout=_REHEARSAL_SECONDS)
        given = _post_arguments(self._sdk, line.client, root, request, _REHEARSAL_SECONDS)
        try:
            response = await line.post(**given)
            await response.aclose()
        except (self._sdk.errors.base, *wire_errors()):
            pass  # even if it failed, everything is imported now
        finally:
            await line.client.close()

    async def aclose(self) -> None:
        """Close the running loop's connections, unless they are the caller's own. The next request opens new
        ones."""
        line = None if self._own is None else self._own.pop()
        if line is not None:
            await line.client.close()
