"""An MCP server for the tests, written with the Python package. `python _server.py [PORT [sse]]`: with a
port it speaks streamable HTTP on 127.0.0.1, or the older SSE, without one over its standard streams."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, ElicitationResult, Image, MCPServer, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("tests", log_level="CRITICAL")
READS = ToolAnnotations(read_only_hint=True)
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


@server.tool(annotations=READS)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=READS)
def picture() -> Image:
    """A picture."""
    return Image(data=PIXEL, format="png")


@server.tool()
def delete(name: str) -> str:
    """Delete something. It has no annotations."""
    return f"deleted {name}"


@server.tool(annotations=READS)
def fail() -> str:
    """Fail."""
    raise ValueError("it failed")


@server.tool(annotations=READS)
async def slow(seconds: float, ctx: Context) -> str:
    """Take some time, and tell how far it is."""
    await ctx.report_progress(1, 2, "half")
    await asyncio.sleep(seconds)
    return "done"


@server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
def die_once(mark: str) -> str:
    """End the process, unless the file is there already."""
    if Path(mark).exists():
        return "alive"
    Path(mark).touch()
    os._exit(9)


@server.tool(annotations=READS)
async def wait(mark: str) -> str:
    """Wait for ever. Files beside the mark say that the wait has begun, and that it was cancelled."""
    Path(mark + ".begun").touch()
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        Path(mark + ".cancelled").touch()
        raise
    return "done"


class Colour(BaseModel):
    """What a player may choose."""

    colour: str
    count: int = 1


class Sure(BaseModel):
    """Whether it is to be done."""

    sure: bool


def which(thing: str) -> Elicit[Colour]:
    """Ask for the colour."""
    return Elicit(f"Which colour for the {thing}?", Colour)


def whether(colour: Annotated[ElicitationResult[Colour], Resolve(which)]) -> Elicit[Sure] | Sure:
    """Ask whether it is to be done, if there is a colour."""
    return Elicit("Are you sure?", Sure) if colour.action == "accept" else Sure(sure=False)


@server.tool(annotations=READS)
def paint(
    thing: str,
    colour: Annotated[ElicitationResult[Colour], Resolve(which)],
    sure: Annotated[ElicitationResult[Sure], Resolve(whether)],
) -> str:
    """Paint something. Asks for the colour, and then whether it is to be done."""
    if colour.action != "accept":
        return f"not painted ({colour.action})"
    return f"painted {thing} {colour.data.colour} x{colour.data.count}, {sure.action}"


@server.tool(annotations=READS)
def pid() -> int:
    """The id of this process."""
    return os.getpid()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run(transport="sse", host="127.0.0.1", port=int(sys.argv[1]))
    elif len(sys.argv) > 1:
        server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]), json_response=False)
    else:
        server.run(transport="stdio")
