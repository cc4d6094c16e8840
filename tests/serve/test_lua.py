"""The example in Lua talks to a running server. Lua is that of the Python package lupa; HTTP and JSON are the
test's, in place of LuaSocket and dkjson."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lupa.lua54 import LuaRuntime, lua_type

from goaitools_py import AsyncChat, tool
from goaitools_py.backends import BackendError
from goaitools_py.serve import serve
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

from ._running import running
from ._weather import BAD, Weather
from ._world import World

NPC = Path(__file__).resolve().parent.parent.parent / "examples" / "lua" / "npc.lua"


@tool(external=True)
def roll(sides: int) -> int:
    """Roll a die of the game."""
    raise AssertionError


class Game:
    """A Lua program with the example in it, and what it asked for."""

    def __init__(self, base: str, backend: ScriptedBackend, secret: str) -> None:
        self.backend = backend
        self.lua = LuaRuntime(unpack_returned_tuples=True)
        self.client = httpx.Client(timeout=30)
        self.waits: list[float] = []
        host = self.lua.table(
            request=self.request, encode=self.encode, decode=self.decode, wait=self.waits.append
        )
        npc = self.lua.execute(NPC.read_text(encoding="utf-8"))
        self.npc = npc["new"](host, base, "gate", secret)

    def run(self, code: str) -> Any:
        """Run a function of the game with the character."""
        return self.lua.eval(f"function(npc) {code} end")(self.npc)

    def request(self, method: str, url: str, headers: Any, body: str | None) -> tuple[object, str]:
        try:
            found = self.client.request(method, url, headers=dict(headers), content=body)
        except httpx.TransportError:
            return "closed", ""  # as LuaSocket says it
        return found.status_code, found.text

    def encode(self, value: Any) -> str:
        return json.dumps(value, default=self.plain)

    def decode(self, text: str) -> Any:
        value = json.loads(text)
        return self.lua.table_from(value, recursive=True) if isinstance(value, (dict, list)) else value

    @staticmethod
    def plain(value: Any) -> Any:
        assert lua_type(value) == "table"
        found = dict(value)
        return list(found.values()) if list(found) == list(range(1, len(found) + 1)) else found


@pytest.fixture
def game(request: pytest.FixtureRequest) -> Iterator[Game]:
    """A server whose model says the steps of the test, and a game that is trusted."""
    steps, secret, *answers = request.param
    backend = ScriptedBackend(*steps)
    chat = AsyncChat(backend, tools=[roll])
    with running(Weather(serve(chat, AsyncMemoryStore(), key=World.whose), *answers)) as base:
        made = Game(base, backend, secret)
        yield made
        made.client.close()


@pytest.mark.parametrize("game", [(("Well met.", "Rain again."), "game")], indirect=True)
def test_a_character_speaks_and_knows_what_happened(game: Game) -> None:
    assert game.run('return npc:happened("It begins to rain.", "weather")') is True
    assert game.run('return npc:say("Hello!", "m1").text') == "Well met."
    assert game.run('return npc:say("Hello!", "m1").text') == "Well met."  # once more: no model is asked
    assert game.run('return npc:say("How is it?", "m2").text') == "Rain again."

    assert len(game.backend.requests) == 2
    assert b"It begins to rain." in game.backend.requests[0].body


@pytest.mark.parametrize("game", [((Calls([("roll", {"sides": 6})]), "A five!"), "game")], indirect=True)
def test_the_game_runs_a_tool_itself(game: Game) -> None:
    text = game.run(
        """
        local result = npc:say("Roll!", "m1")
        assert(result.status == "awaiting_tools")
        result = npc:answer(result, function(call)
          assert(call.name == "roll" and call.reason == "external")
          return { ["return"] = 5 }
        end)
        return result.text
        """
    )

    assert text == "A five!"


@pytest.mark.parametrize("game", [((BackendError("away"), "Here I am."), "game")], indirect=True)
def test_a_message_is_sent_again_while_the_provider_is_away(game: Game) -> None:
    assert game.run('return npc:say("Hello!", "m1").text') == "Here I am."


@pytest.mark.parametrize("game", [(("Well met.",), "game", *BAD)], indirect=True)
def test_a_message_is_sent_again_over_a_bad_network(game: Game) -> None:
    """It waits as long as the server says, then 2 and 4 seconds; the turn whose answer was lost was done."""
    assert game.run('return npc:say("Hello!", "m1").text') == "Well met."
    assert game.waits == [0.01, 2, 4]
    assert len(game.backend.requests) == 1


@pytest.mark.parametrize("game", [((), "game", *["html"] * 9)], indirect=True)
def test_it_gives_up_in_the_end(game: Game) -> None:
    """A problem comes out, not an error of Lua."""
    found = game.run('local _, problem = npc:say("Hello!", "m1"); return problem.status, problem.retryable')

    assert found == (502, True)
    assert game.waits == [1, 2, 4, 8]


@pytest.mark.parametrize("game", [((), "bad")], indirect=True)
def test_a_problem_is_told(game: Game) -> None:
    found = game.run('local _, problem = npc:say("Hello!", "m1"); return problem.status, problem.title')

    assert found == (403, "You may not do that.")
