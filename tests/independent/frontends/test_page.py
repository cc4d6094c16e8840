"""The page of `goaitools serve` in Chromium: what a person does, and what the page shows.

The browser is Debian's, or `GOAITOOLS_CHROMIUM`; `.ci/run` installs it if it is missing. Screenshots are left
in `build/page`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import uvicorn
from mcp import Client
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from goaitools_py import AsyncChat, tool, user
from goaitools_py.backends import BackendError
from goaitools_py.backends.base import ModelRequest
from goaitools_py.mcp import MCPTools
from goaitools_py.serve.page.page_app import PageSettings, page_app
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.tools import Tool, ToolContext

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

TOKEN = "a token of this test"
SCENARIOS = (
    "type_and_stream", "type_on", "type_on_too_late", "code_is_code", "copy_of_code",
    "edit_a_message", "edit_while_a_call_waits",
    "rename_and_delete", "approve", "approve_after_a_reload", "deny_and_approve", "parallel",
    "approve_while_the_provider_fails", "reload_in_mid_reply", "a_title_after_the_page_was_closed",
    "odd_addresses", "stop", "stop_and_reload",
    "a_message_that_waits", "regenerate", "a_provider_that_fails",
    "two_tabs", "upload", "refused_files", "hostile_text_stays_text", "a_hostile_conversation", "resend",
    "inspect_fork_and_rewind", "keyboard", "as_it_is_written", "a_question", "an_address", "progress",
    "sign_in", "pictures",
)  # fmt: skip


WRITTEN = '{"rate":1.10,"7":1,"account":1,"account":12345678901234567891,"note":"\u202eto Eve\u200b"}'
"""Arguments that change when JavaScript reads them, with characters that nobody sees."""


class Model:
    """Replies by what the user says, and the tools that they call. It is scripted, and no language model."""

    def __init__(self, *more_tools: Any) -> None:
        self.inside: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.held: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.ran: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

        @tool(idempotent=True)
        async def look(at: str) -> str:
            """Look at something, until the test has seen enough."""
            self.ran[at] += 1
            self.inside[at].set()
            await self.held[at].wait()
            return f"seen {at}"

        @tool(requires_approval=True)
        def fire(at: str) -> str:
            """Fire at something."""
            self.ran[at] += 1
            return f"hit {at}"

        @tool
        async def climb(ctx: ToolContext, at: str) -> str:
            """Climb, and say how far it is."""
            ctx.report_progress(3, 4, "nearly there")
            await self.held[at].wait()
            return f"at the top of {at}"

        def paid(account: int, **rest: Any) -> str:
            return f"paid {account}"

        pay = Tool("pay", "Pay somebody.", {"type": "object"}, paid, requires_approval=True)
        weigh = Tool("weigh", "Weigh something.", {"type": "object"}, external=True)
        self.chat = AsyncChat(
            ScriptedBackend(*[self.answer] * 500), tools=[look, fire, climb, pay, weigh, *more_tools]
        )

    def answer(self, request: ModelRequest) -> Any:
        """The reply to a request of Chat Completions."""
        messages = json.loads(request.body)["messages"]
        last = messages[-1]["content"]
        if messages[-1]["role"] == "tool":
            self.counts[last] += 1
            if last == "hit shaky" and self.counts[last] == 1:
                return BackendError("away")
            return f"Done: {last}"
        if not isinstance(last, str):
            return "I see a picture." if any(part["type"] == "image_url" for part in last) else "No picture."
        what, _, rest = last.partition(" ")
        self.counts[last] += 1
        match what:
            case "climb":
                return Calls([("climb", {"at": rest})])
            case "look":
                return Calls([("look", {"at": rest})], text="Let me see.")
            case "fire":
                return Calls([("fire", {"at": rest})] * (2 if rest == "two" else 1), text="Now.")
            case "parallel":
                return Calls([("look", {"at": rest}), ("fire", {"at": rest})])
            case "book" | "sign":
                return Calls([(what, {"show": rest})])
            case "pay":
                return Calls([("pay", WRITTEN)])
            case "weigh":
                return Calls([("weigh", "{}")])
            case "evil":
                return Calls([("fire", {"at": rest})], text=rest)
            case "code":
                return "So:\n```py\nprint(1)\n```\nand `x` is 1."
            case "count":
                return f"This is reply {self.counts[last]}."
            case "fail":
                return BackendError("away") if self.counts[last] == 1 else "It works again."
            case "What":
                return (
                    "The curtain is down, and somebody has left a lamp on the stage.\n\n"
                    "Behind it stands a locked box. You will need a code of four digits."
                )
        return f"You said: {last}"


class Seat(BaseModel):
    """What the box office asks for."""

    row: int = Field(ge=1, le=9, title="Row", description="From 1 to 9.")
    name: str = Field(min_length=2)
    side: Literal["left", "right"]
    vegan: bool = False


def box_office() -> MCPServer:
    """A server of MCP whose tools ask the user."""
    server = MCPServer("box office", log_level="CRITICAL")

    @server.tool()
    async def book(show: str, ctx: Context) -> str:
        """Book a seat."""
        answer = await ctx.elicit(f"Which seat for <b>{show}</b>?", Seat)
        return f"{answer.action}: {getattr(answer, 'data', None)!r}"

    @server.tool()
    async def sign(show: str, ctx: Context) -> str:
        """Sign a contract."""
        answer = await ctx.elicit_url("Sign here.", f"https://sign.test/{show}", "e1")
        return f"signing: {answer.action}"

    return server


def control(model: Model, store: AsyncMemoryStore) -> Starlette:
    """What a scenario may ask of the tools, and of a program beside the server."""

    async def inside(request: Request) -> JSONResponse:
        await model.inside[request.path_params["name"]].wait()
        return JSONResponse(True)

    async def release(request: Request) -> JSONResponse:
        model.held[request.path_params["name"]].set()
        return JSONResponse(True)

    async def ran(request: Request) -> JSONResponse:
        return JSONResponse(model.ran[request.path_params["name"]])

    async def append(request: Request) -> JSONResponse:
        key = request.path_params["name"]
        await model.chat.conversation(store, key).append(user("added"))
        return JSONResponse(True)

    each = (inside, release, ran, append)
    return Starlette(routes=[Route(f"/{one.__name__}/{{name}}", one, methods=["POST"]) for one in each])


@asynccontextmanager
async def served(app: Any) -> Any:
    """The application on a free port of the loopback: its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=2))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@pytest.fixture(scope="session")
def told() -> dict[str, Any]:
    """What came of each scenario."""
    folder = Path(os.environ.get("GOAITOOLS_FRONTENDS") or ROOT / "build" / "frontends") / "page"
    chromium = os.environ.get("GOAITOOLS_CHROMIUM") or shutil.which("chromium")
    if chromium is None or shutil.which("node") is None or not (folder / "node_modules").is_dir():
        pytest.skip("no browser: `.ci/run` installs chromium and its driver")
    pictures = ROOT / "build" / "page"
    pictures.mkdir(parents=True, exist_ok=True)

    async def all_of_them() -> dict[str, Any]:
        async with AsyncExitStack() as stack:
            tools = await stack.enter_async_context(
                MCPTools(Client(box_office(), mode="legacy"), approve="none")
            )
            model = Model(*tools)
            store = AsyncMemoryStore()
            apps = [
                page_app(model.chat, store, PageSettings(model="scripted")),
                page_app(model.chat, AsyncMemoryStore(), PageSettings(model="scripted", token=TOKEN)),
                control(model, store),
            ]
            urls = [await stack.enter_async_context(served(app)) for app in apps]
            node = await asyncio.create_subprocess_exec(
                "node", HERE / "page.mjs", folder, str(chromium), *urls, pictures,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                async with asyncio.timeout(240):
                    out, wrong = await node.communicate()
            finally:
                if node.returncode is None:
                    node.kill()
                for held in model.held.values():
                    held.set()
        assert node.returncode == 0, wrong.decode()
        return json.loads(out)  # type: ignore[no-any-return]

    return asyncio.run(all_of_them())


def test_a_person_uses_the_page(told: dict[str, Any]) -> None:
    """Each scenario ends as it should. The console is silent, so no policy was broken and nothing raised.
    axe-core finds nothing, in light and dark: empty, with a call that waits, the inspector, a dialog, …

    It is one test, so that several workers do not open several browsers.
    """
    assert {name: wrong for name, wrong in told["scenarios"].items() if wrong is not None} == {}
    assert tuple(told["scenarios"]) == SCENARIOS
    assert told["console"] == []
    assert {name: found for name, found in told["axe"].items() if found} == {}
    assert len(told["axe"]) == 22
