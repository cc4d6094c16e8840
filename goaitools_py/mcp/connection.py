"""One connection to an MCP server, in one event loop.

Owns: the making of a client, the task that opens and closes it, and when it is opened again. Must never know:
how a model uses a tool.

The client's scopes must be left by the task that entered them. So one task, the supervisor, does both; calls
come from any task of the loop, and `aclose` too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..base.advice import missing_extra_error
from ..base.display import shown_host
from ..types.errors import GoAIToolsError
from .elicitation import ServerQuestions

if TYPE_CHECKING:
    from mcp import Client

__all__ = [
    "CLOSED",
    "Connection",
    "MCPConnectionError",
    "checked_headers",
    "client_maker",
    "server_label",
    "server_name",
]

CLOSED: Final = "the MCP tools are closed: use them within their with block, or before close()"

_CLOSE_SECONDS: Final = 10.0
"""How long the end of a broken connection is waited for."""


class MCPConnectionError(GoAIToolsError):
    """An MCP server cannot be reached, or broke the connection. A later call connects again."""

    retryable = True


class Connection:
    """A client that is opened when it is needed, and again after it broke."""

    def __init__(self, make: Callable[[], Client], *, timeout: float, name: str = "the MCP server") -> None:
        self._make = make
        self._name = name
        self._timeout = timeout
        self._task: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._ready: asyncio.Future[Client] | None = None
        self._leave = asyncio.Event()
        self._is_closed = False
        self._opening = asyncio.Lock()

    @property
    def is_closed(self) -> bool:
        """True after `aclose`: no call can be made any more."""
        return self._is_closed

    async def client(self) -> Client:
        """The open client. Raises MCPConnectionError."""
        if self._client is not None:
            return self._client
        async with self._opening:
            if self._client is not None:
                return self._client
            if self._is_closed:
                raise MCPConnectionError(CLOSED)
            await self._ended()
            self._leave = asyncio.Event()
            self._ready = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._supervise(self._ready, self._leave), name="goaitools-mcp")
            try:
                return await asyncio.wait_for(asyncio.shield(self._ready), self._timeout)
            except TimeoutError:
                await self._ended()
                raise MCPConnectionError(
                    f"no connection to {self._name} within {self._timeout:g} s"
                ) from None
            except BaseException:
                await self._ended()
                raise

    async def _supervise(self, ready: asyncio.Future[Client], leave: asyncio.Event) -> None:
        """Enter the client, wait until it is to be left, and leave it."""
        try:
            async with self._make() as client:
                self._client = client
                if not ready.done():
                    ready.set_result(client)
                await leave.wait()
        except asyncio.CancelledError:
            if not ready.done():
                ready.set_exception(MCPConnectionError("the MCP tools were closed while they connected"))
                ready.exception()
            raise
        except BaseException as error:
            # The text of an error may quote a URL with a key, or the server's text.
            if not ready.done():
                ready.set_exception(MCPConnectionError(f"no connection to {self._name} ({_name(error)})"))
                ready.exception()  # the caller may have gone
        finally:
            if leave is self._leave:
                self._client = None

    def broke(self, client: Client) -> None:
        """Note that this client's connection is gone; the next call opens another one."""
        if client is self._client:
            self._client = None
            self._leave.set()

    async def _ended(self) -> None:
        """Wait for the supervisor of before, or cancel it if it does not end."""
        self._cancel_opening()
        task, self._task = self._task, None
        if task is None:
            return
        self._leave.set()
        done, _ = await asyncio.wait({task}, timeout=_CLOSE_SECONDS)
        if not done:
            task.cancel()
            await asyncio.wait({task}, timeout=_CLOSE_SECONDS)
        elif not task.cancelled():
            task.exception()

    def _cancel_opening(self) -> None:
        """Cancel a supervisor that still connects: it does not look at `_leave` before it has a client."""
        if self._task is not None and self._ready is not None and not self._ready.done():
            self._task.cancel()

    async def aclose(self) -> None:
        """Leave the client. Any task of the loop may call this, also more than once."""
        self._is_closed = True
        self._client = None
        self._leave.set()
        self._cancel_opening()
        async with self._opening:
            await self._ended()


def _name(error: BaseException) -> str:
    """The class of an error; of the first one in a group."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return type(error).__name__


def server_label(server: Any) -> str:
    """The host of a URL, or the program; "" for others. More of a URL or of a command may hold a key."""
    if isinstance(server, str):
        return shown_host(server)
    command = getattr(server, "command", None)
    return command if isinstance(command, str) else ""


def server_name(server: Any) -> str:
    """How errors name a server."""
    label = server_label(server)
    at = f" at {label}" if isinstance(server, str) else f" {label!r}"
    return f"the MCP server{at if label else ''}"


def checked_headers(server: Any, headers: Mapping[str, str] | None) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping) or not all(
        isinstance(each, str) for each in (*headers, *headers.values())
    ):
        raise TypeError("headers must be a dict of text to text")
    if not isinstance(server, str):
        raise TypeError(
            f"headers are for the URL of a server, not for {type(server).__name__}; "
            "give them to a client of your own"
        )
    return dict(headers)


@asynccontextmanager
async def _http(url: str, headers: dict[str, str]) -> AsyncIterator[Any]:
    """The streams of streamable HTTP, with headers of the caller's."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    times = httpx2.Timeout(30.0, read=300.0)  # as mcp has them: a server may hold a response open
    async with (
        httpx2.AsyncClient(headers=headers, timeout=times) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


def client_maker(
    server: Any,
    transport: str,
    questions: ServerQuestions | None,
    headers: dict[str, str],
    heard: Any,
) -> Callable[[], Client]:
    """Give a function that makes a new client, not yet entered, on each call. `heard`: gets the client's
    messages, and the errors of unreadable ones; a client of the caller may have its own handler."""
    try:
        from mcp import Client
    except ModuleNotFoundError as error:
        raise missing_extra_error(error, "MCPTools", "mcp") from None

    answer: Any = None if questions is None else questions.answer
    told: dict[str, Any] = {"elicitation_callback": answer, "message_handler": heard}
    if isinstance(server, Client):
        return lambda: replace(
            server,
            elicitation_callback=server.elicitation_callback or answer,
            message_handler=server.message_handler or heard,
        )
    if isinstance(server, str):
        if not server.startswith(("http://", "https://")):
            raise ValueError(
                "the URL of an MCP server begins with http:// or https://; for a program to start pass "
                "mcp.StdioServerParameters(command=…, args=[…])"
            )
        if transport == "sse":
            from mcp.client.sse import sse_client

            return lambda: Client(sse_client(server, headers=headers), **told)
        if headers:
            return lambda: Client(_http(server, headers), **told)
        return lambda: Client(server, **told)
    if isinstance(server, (Mapping, list, tuple)):
        raise TypeError(
            f"an MCPTools is for one server, got {type(server).__name__}: make one for each; a program to "
            "start is mcp.StdioServerParameters(command=…, args=[…])"
        )
    return lambda: Client(server, **told)
