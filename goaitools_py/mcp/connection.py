"""One connection to an MCP server, in one event loop.

Owns: the task that opens and closes the client, and when it is opened again. Must never know: how a model
uses a tool.

The client's scopes must be left by the task that entered them. So one task, the supervisor, does both; calls
come from any task of the loop, and `aclose` too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..types.errors import GoAIToolsError

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["CLOSED", "Connection", "MCPConnectionError"]

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
