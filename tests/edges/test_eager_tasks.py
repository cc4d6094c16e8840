"""Under Python 3.12's eager tasks a tool begins to run while it is being started."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from goaitools_py import AsyncChat
from goaitools_py.states import inspect_state
from goaitools_py.testing import Calls, ScriptedBackend

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 has no eager tasks")


@pytest.mark.parametrize("pauses", [False, True], ids=["at once", "after a pause"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
def test_a_tool_that_gives_its_turn_up_leaves_no_cancellation(pauses: bool, beside: bool) -> None:
    """The iteration ends, the state can be resumed, and what its reader awaits next is not cancelled."""
    turns: list[Any] = []

    async def stop() -> str:
        """Give the turn up."""
        if pauses:
            await asyncio.sleep(0)
        await turns[0].cancel()
        return "unreachable"

    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(10)
        return "waited"

    async def main() -> bytes:
        asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009
        calls = Calls([("wait", {}), ("stop", {})] if beside else [("stop", {})])
        async with AsyncChat(ScriptedBackend(calls, "Done."), tools=[stop, wait]) as chat:
            turns.append(chat.start(None, user="Stop."))
            async for _ in turns[0]:
                pass
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            return bytes(turns[0].state)

    state = asyncio.run(main())

    assert inspect_state(state).status == "in_progress"


def test_a_tool_that_is_over_at_once_has_its_result() -> None:
    """It has ended before it is waited for."""

    async def look() -> str:
        """Look around."""
        return "a door"

    async def main() -> Any:
        asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009
        async with AsyncChat(ScriptedBackend(Calls([("look", {})] * 3), "Done."), tools=[look]) as chat:
            return await chat.chat(user="Look.")

    result = asyncio.run(main())

    assert [record.result for record in result.tool_log] == ["a door"] * 3
