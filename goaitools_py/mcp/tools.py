"""The tools of one MCP server, for the `tools=` of a chat: `MCPTools`.

Owns: the server's tools as `Tool` objects, the way of a call to the server's loop, and the effects of a
broken connection. Must never know: a turn, or the protocol.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from ..base import rawjson
from ..base.advice import missing_extra_error
from ..base.display import shown_host
from ..tools import Tool, ToolContext, ToolReturn
from ..tools.call import UnknownOutcome
from .connection import CLOSED, Connection, MCPConnectionError
from .described import Approve, checked_only, named, returned, schema_of, waits
from .questions import Questions

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["MCPTools"]

_log = logging.getLogger("goaitools_py.tool")

T = TypeVar("T")

_UNREAD: Final = (
    "what it answered cannot be read: it is no JSON, or nests too deep, for example in the schema of one "
    "tool. That can be mended at the server only"
)

_KEY: Final = "goaitools.idempotency-key"
"""The member of a call's ``_meta`` that has the tool call's idempotency key."""

_NO_FIT: Final = "The tool has run. Its answer does not fit the output schema of the tool, so it is left out."


class MCPTools:
    """The tools of an MCP server: ``async with MCPTools("http://…/mcp") as fs: AsyncChat(…, tools=[*fs])``.

    For `Chat` use ``with``, or `open` and `close`: the connection then has an event loop in a thread of its
    own. The tools are listed once, when it opens; their order and schemas stay as they are, so that a
    provider's prompt cache holds, until `refresh`.

    Args:
        server: The URL of a server (streamable HTTP), `mcp.StdioServerParameters` of a program to start, or
            an `mcp.Client` that was not entered yet.
        prefix: Stands before each tool's name, for tools of several servers in one chat.
        only: The names, at the server, of the tools to take; None takes all.
        approve: Which calls wait for an approval. "destructive": a call waits unless its tool claims to read
            only or to add only. "all", "none", or a function of the tool's name and its arguments.
        trust_hints: True believes the server that a tool is idempotent: its call runs again after a broken
            connection or a crash.
        timeout: Seconds for one call, and for the connection to open.
        transport: "sse" for a URL of the older transport.
        ask: True lets the server ask the user (elicitation): the call then waits for an answer, in the state.
            False declines.
        headers: HTTP headers of each request to a URL, such as a key. A redirect to another origin is not
            followed.

    Raises:
        ImportError: The extra ``[mcp]`` is not installed.
    """

    def __init__(
        self,
        server: Any,
        *,
        prefix: str = "",
        only: Sequence[str] | None = None,
        approve: Approve = "destructive",
        trust_hints: bool = False,
        timeout: float = 60.0,
        transport: Literal["http", "sse"] = "http",
        ask: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if not callable(approve) and approve not in ("destructive", "all", "none"):
            raise ValueError(f"approve must be 'destructive', 'all', 'none' or a function; got {approve!r}")
        if isinstance(only, str):
            raise TypeError("only is a list of names, not a text")
        if only is not None and not isinstance(only, Collection):
            raise TypeError(f"only is a list of names, not {type(only).__name__}")
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be str, not {type(prefix).__name__}")
        for name, flag in (("trust_hints", trust_hints), ("ask", ask)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be True or False, not {type(flag).__name__}")
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
            raise TypeError(f"timeout must be a positive number of seconds, not {type(timeout).__name__}")
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout}")
        if transport not in ("http", "sse"):
            raise ValueError(
                f"transport must be 'http' or 'sse', for a URL; got {transport!r}; for a program to start "
                "pass mcp.StdioServerParameters(command=…, args=[…]) as the server"
            )
        self._questions = Questions(_label(server))
        self._make = _maker(
            server,
            transport,
            self._questions if ask else None,
            _checked_headers(server, headers),
            self._heard,
        )
        self._has_unread = False
        self._name = _named(server)
        self._prefix, self._only, self._approve = prefix, only, approve
        self._trusts, self._timeout = trust_hints, timeout
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tools: tuple[Tool[..., Any], ...] = ()

    def __repr__(self) -> str:
        return f"MCPTools({len(self._tools)} tools, prefix={self._prefix!r})"

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        if self._connection is None:
            raise MCPConnectionError("the MCP tools are not open: use with, async with or open()")
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    # ------------------------------------------------------------------------- for AsyncChat

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; a program that was started ends. Any task of the loop may call this."""
        if self._connection is not None:
            await self._connection.aclose()

    async def refresh(self) -> bool:
        """List the server's tools again. True if they are others now: give the new ones to your turns.

        Their names and schemas are a part of the prefix that a provider caches, so this costs a cache.
        """
        return await self._there(self._list())

    # ------------------------------------------------------------------------------ for Chat

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> Self:
        """Connect, with an event loop in a thread of its own. `close` ends both.

        Raises:
            MCPConnectionError: The server cannot be reached.
        """
        if self._thread is not None:
            return self
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="goaitools-mcp", daemon=True)
        self._thread.start()
        try:
            self._wait(self._open(), None)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Close the connection and its thread; a program that was started ends."""
        thread, self._thread = self._thread, None
        loop = self._loop
        if thread is None or loop is None:
            return
        try:
            if self._connection is not None:
                asyncio.run_coroutine_threadsafe(self._connection.aclose(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    # -------------------------------------------------------------------------- the server's tools

    async def _open(self) -> None:
        if self._connection is not None:
            raise RuntimeError("these MCP tools were opened before: make another MCPTools")
        self._connection = Connection(self._make, name=self._name, timeout=self._timeout)
        try:
            await self._list()
        except BaseException:
            await self._connection.aclose()
            raise

    async def _list(self) -> bool:
        assert self._connection is not None
        client = await self._connection.client()
        self._has_unread = False
        try:
            async with asyncio.timeout(self._timeout):
                found = await _all_tools(client)
        except TimeoutError:
            late = f"{self._name} has not listed its tools within {self._timeout:g} s"
            raise MCPConnectionError(f"{late}: {_UNREAD}" if self._has_unread else late) from None
        names = named(checked_only(self._only, found), self._prefix)
        before = self._tools
        tools = (self._usable(found[name], short) for name, short in names.items())
        self._tools = tuple(tool for tool in tools if tool is not None)
        return [_said(tool) for tool in before] != [_said(tool) for tool in self._tools]

    async def _heard(self, message: object) -> None:
        """Note a message that the package `mcp` could not read. It may be the answer to a request."""
        self._has_unread = self._has_unread or isinstance(message, Exception)

    def _usable(self, told: Any, name: str) -> Tool[..., Any] | None:
        """Make the tool; None with a warning if its description cannot be sent to a model."""
        try:
            rawjson.dumps([[[[[[told.input_schema]]]]]])  # a request has fewer levels around it
            return self._tool(told, name)
        except (ValueError, RecursionError) as error:
            facts = {"event": "mcp.left_out", "tool": told.name, "error": type(error).__name__}
            _log.warning(
                "the MCP tool %r is left out: its description cannot be used", told.name, extra=facts
            )
            return None

    def _tool(self, told: Any, name: str) -> Tool[..., Any]:
        hints = told.annotations
        idempotent = (
            self._trusts and hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)
        )
        run: Callable[..., Any] = self._runs(told.name, name, idempotent=idempotent)
        return Tool(
            name,
            told.description or told.title or "",
            schema_of(told.input_schema, told.name),
            run,
            timeout=self._timeout,
            idempotent=idempotent,
            requires_approval=waits(hints, self._approve, told.name),
            # A turn of a `Chat` can be stopped while a tool runs in a thread, and not in its own one.
            thread=True if self._thread is not None else None,
        )

    def _runs(self, at_server: str, name: str, *, idempotent: bool) -> Callable[..., Any]:
        if self._thread is not None:

            def run(ctx: ToolContext[Any], **arguments: Any) -> ToolReturn:
                call = self._call(ctx, at_server, name, arguments, idempotent)
                return self._wait(call, self._timeout, ctx._left)

            return run

        async def run_async(ctx: ToolContext[Any], **arguments: Any) -> ToolReturn:
            return await self._there(self._call(ctx, at_server, name, arguments, idempotent))

        return run_async

    # ----------------------------------------------------------------------------------- one call

    async def _call(
        self, ctx: ToolContext[Any], at_server: str, name: str, arguments: dict[str, Any], idempotent: bool
    ) -> ToolReturn:
        from mcp import MCPError

        assert self._connection is not None
        for is_last in (not idempotent, True):
            client = await self._connection.client()
            try:
                with self._questions.of(ctx, name) as questions:
                    result = await client.call_tool(
                        at_server,
                        arguments,
                        progress_callback=_progress_of(ctx),
                        meta={_KEY: ctx.idempotency_key} if ctx.idempotency_key else None,  # type: ignore[arg-type]
                    )
            except MCPError as error:
                if not _is_broken(error):
                    questions.check()
                    return ToolReturn(f"The server refused the call: {error.message}", is_error=True)
                self._connection.broke(client)
            except OSError:
                self._connection.broke(client)
            except RuntimeError:
                if _is_entered(client):  # then it is the answer that the client refuses
                    questions.check()
                    return ToolReturn(_NO_FIT, is_error=True)
                self._connection.broke(client)
            else:
                questions.check()
                return returned(result)
            if is_last:
                break
        raise UnknownOutcome(
            "The connection to the tool's server broke; it is unknown whether the tool took effect."
        )

    # -------------------------------------------------------------------------------- between loops

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the connection's loop, which may be another one than the running loop."""
        loop = self._loop
        if loop is None or loop is asyncio.get_running_loop():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    def _wait(
        self,
        work: Coroutine[Any, Any, T],
        seconds: float | None,
        left: list[Callable[[], object]] | None = None,
    ) -> T:
        """Run a coroutine in the loop of the thread, and wait for it in this one. `left`: gets a function
        that cancels the coroutine if the turn does not wait for it any longer."""
        assert self._loop is not None
        if self._thread is None:
            work.close()
            raise MCPConnectionError(CLOSED)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        if left is not None:
            left.append(future.cancel)
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise UnknownOutcome(
                f"The tool did not finish within {seconds:g} s; it is unknown whether it took effect."
            ) from None
        except BaseException:
            future.cancel()
            raise


def _progress_of(ctx: ToolContext[Any]) -> Any:
    """Make the function that takes a server's reports; None if nothing listens to the call."""
    if not ctx._heard:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        ctx.report_progress(progress, total, message or "")

    return report


def _said(tool: Tool[..., Any]) -> tuple[object, ...]:
    return tool.name, tool.description, tool.parameters


async def _all_tools(client: Client) -> dict[str, Any]:
    """The server's tools by name, of all pages. Raises MCPConnectionError if the server gives no list."""
    from mcp import MCPError
    from mcp_types import PARSE_ERROR

    found: dict[str, Any] = {}
    seen: set[str] = set()
    cursor: str | None = None
    while cursor not in seen:
        if cursor is not None:
            seen.add(cursor)
        try:
            page = await client.list_tools(cursor=cursor, cache_mode="bypass" if cursor is None else "use")
        except MCPError as error:  # its text is the server's
            why = f": {_UNREAD}" if error.code == PARSE_ERROR else ""
            raise MCPConnectionError(
                f"the MCP server did not list its tools (code {error.code}){why}"
            ) from None
        except ValueError as error:  # the text of the error quotes the answer
            raise MCPConnectionError(
                f"what the MCP server answered is no list of tools ({type(error).__name__})"
            ) from None
        found |= {tool.name: tool for tool in page.tools}
        cursor = page.next_cursor
        if not cursor:
            return found
    raise MCPConnectionError("the MCP server lists its tools without an end: a cursor came twice")


def _is_entered(client: Client) -> bool:
    try:
        return client.session is not None
    except RuntimeError:
        return False


def _is_broken(error: Any) -> bool:
    from mcp_types import CONNECTION_CLOSED

    return bool(error.code == CONNECTION_CLOSED)


def _label(server: Any) -> str:
    """The host of a URL, or the program; "" for others. More of a URL or of a command may hold a key."""
    if isinstance(server, str):
        return shown_host(server)
    command = getattr(server, "command", None)
    return command if isinstance(command, str) else ""


def _named(server: Any) -> str:
    """How errors name a server."""
    label = _label(server)
    at = f" at {label}" if isinstance(server, str) else f" {label!r}"
    return f"the MCP server{at if label else ''}"


def _checked_headers(server: Any, headers: Mapping[str, str] | None) -> dict[str, str]:
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


def _maker(
    server: Any,
    transport: str,
    questions: Questions | None,
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
