"""Each transport of an MCP server, for both chats: calls, and turns that are stopped in the middle of one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from goaitools_py import AsyncChat, Chat
from goaitools_py.mcp import MCPTools
from goaitools_py.states import read_history
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.errors import TurnError
from goaitools_py.types.events import ToolProgress

from .conftest import SECONDS

Served = Callable[..., MCPTools]


def script(*calls: tuple[str, dict[str, Any]]) -> ScriptedBackend:
    """A model that makes these calls, adds two numbers in the next turn, and says "Done." at the end."""
    return ScriptedBackend(Calls(list(calls)), Calls([("add", {"a": 20, "b": 22})]), "Done.")


def outcomes(state: bytes) -> list[tuple[str, str, str]]:
    return [(one.name, one.flag, one.result) for one in read_history(state).tool_calls()]


def appears(path: Path) -> bool:
    end = time.monotonic() + SECONDS
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return path.exists()


def ours() -> list[str]:
    """The threads of this package that run. The one that watches times stays, and has another name."""
    names = [one.name for one in threading.enumerate()]
    return [name for name in names if name in ("goaitools-mcp", "goaitools-tool")]


def quiet() -> bool:
    """True once no such thread runs."""
    end = time.monotonic() + SECONDS
    while ours() and time.monotonic() < end:
        time.sleep(0.02)
    return not ours()


def test_calls_over_each_transport(served: Served) -> None:
    """A result, an error of the tool, and progress; both chats."""
    told: list[Any] = []
    calls = [("add", {"a": 1, "b": 2}), ("fail", {}), ("slow", {"seconds": 0})]

    def hear(event: Any) -> None:
        if isinstance(event, ToolProgress):
            told.append((event.name, event.progress, event.total, event.message))

    with served() as tools, Chat(script(*calls), on_event=hear) as chat:
        first = chat.chat(user="Go.", tools=[*tools])

    async def main() -> Any:
        async with served() as tools:
            return await AsyncChat(script(*calls), on_event=hear).chat(user="Go.", tools=[*tools])

    for result in (first, asyncio.run(main())):
        assert [row[:2] for row in outcomes(result.state)] == [
            ("add", "ok"),
            ("fail", "error"),
            ("slow", "ok"),
            ("add", "ok"),
        ]
        assert result.text == "Done."
    assert told == [("slow", 1, 2, "half")] * 2


def test_a_chat_that_is_stopped_in_a_call(served: Served, tmp_path: Path) -> None:
    """The server is told, the call is unknown to the model, nothing runs on, and the next turn works."""
    mark = str(tmp_path / "mark")
    with served() as tools, Chat(script(("wait", {"mark": mark})), tools=[*tools]) as chat:
        turn = chat.start(None, user="Wait.")
        raised: list[BaseException] = []

        def run() -> None:
            try:
                turn.result()
            except BaseException as error:
                raised.append(error)

        runner = threading.Thread(target=run)
        runner.start()
        assert appears(Path(mark + ".begun"))
        turn.cancel()
        runner.join(SECONDS)
        assert not runner.is_alive()
        assert appears(Path(mark + ".cancelled"))

        result = chat.chat_with_state(turn.state, user="Go on.")

    assert [type(error) for error in raised] == [RuntimeError]
    assert [row[:2] for row in outcomes(result.state)] == [("wait", "unknown"), ("add", "ok")]
    assert result.text == "Done."
    assert quiet()


@pytest.mark.parametrize("how", ["cancel", "task"])
def test_an_async_chat_that_is_stopped_in_a_call(served: Served, tmp_path: Path, how: str) -> None:
    """As above, by the turn's handle and by a cancelled task."""
    mark = str(tmp_path / "mark")

    async def main() -> Any:
        async with served() as tools:
            before = len(asyncio.all_tasks())
            chat = AsyncChat(script(("wait", {"mark": mark})), tools=[*tools])
            turn = chat.start(None, user="Wait.")
            running = asyncio.create_task(turn.result())
            assert await asyncio.to_thread(appears, Path(mark + ".begun"))
            if how == "cancel":
                await turn.cancel()
            else:
                running.cancel()
            await asyncio.wait({running}, timeout=SECONDS)
            assert running.cancelled() or type(running.exception()) is RuntimeError
            assert await asyncio.to_thread(appears, Path(mark + ".cancelled"))
            result = await chat.chat_with_state(turn.state, user="Go on.")
            assert len(asyncio.all_tasks()) == before
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    result = asyncio.run(main())

    assert [row[:2] for row in outcomes(result.state)] == [("wait", "unknown"), ("add", "ok")]
    assert result.text == "Done."


def test_a_call_that_takes_too_long_is_ended_at_the_server(served: Served, tmp_path: Path) -> None:
    """By the turn's own limit, which is shorter than that of the tools."""
    mark = str(tmp_path / "mark")
    with served() as tools, Chat(script(("wait", {"mark": mark})), tools=[*tools]) as chat:
        with pytest.raises(TurnError) as error:
            chat.chat(user="Wait.", timeout=1.5)
        assert appears(Path(mark + ".cancelled"))
        result = chat.resume(error.value.state)

    assert [row[:2] for row in outcomes(result.state)] == [("wait", "unknown"), ("add", "ok")]
    assert quiet()
