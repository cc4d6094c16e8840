"""Every call that a turn makes to the outside fails once, and the conversation goes on to its end."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from goaitools_py import Chat, TurnError, tool
from goaitools_py.testing import Calls, ScriptedBackend

from ._fail import MODES, STEPS, WIRES, Broken, Fault, World, hooked


def _reference(wire: str, face: Any, hooks: Any) -> list[World]:
    """The world before each step of a run in which nothing fails, and after the last."""
    world = World(wire, face)
    hooks.world = world
    worlds = []
    for number in range(len(STEPS)):
        world.step = number
        worlds.append(world.copied())
        world.run(range(number, number + 1))
    worlds.append(world)
    return worlds


def test_a_tool_for_which_there_is_no_thread_runs_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of the one that did start is kept, the others have not started, and `resume` runs them."""
    ran: list[str] = []
    start = threading.Thread.start
    threads: list[threading.Thread] = []

    @tool
    def act(id: str) -> str:
        """Do something."""
        ran.append(id)
        return f"R{id}"

    def scarce(thread: threading.Thread) -> None:
        threads.append(thread)
        if len(threads) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    backend = ScriptedBackend(Calls([("act", {"id": id}) for id in "abc"]), "Done.")
    chat = Chat(backend, tools=[act], tool_threads=True)
    monkeypatch.setattr(threading.Thread, "start", scarce)

    with pytest.raises(TurnError) as caught:
        chat.chat(user="Do it.")
    ran_at_once = list(ran)
    result = chat.resume(caught.value.state)

    assert isinstance(caught.value.__cause__, RuntimeError)
    assert ran_at_once == ["a"]
    assert sorted(ran) == ["a", "b", "c"]
    assert [record.flag for record in result.tool_log] == ["ok", "ok", "ok"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_that_fails_loses_nothing(wire: str, face: Any) -> None:
    """For every kind of call, every one of them, and every natural way to fail."""
    stride = 1 if os.environ.get("GOAITOOLS_ALL_FAILURES") else 29
    broken: list[str] = []
    count = 0
    with hooked() as hooks:
        worlds = _reference(wire, face, hooks)
        faults = [
            (step, Fault(kind, nth, mode))
            for step in range(len(STEPS))
            for kind, modes in MODES.items()
            for nth in range(worlds[step].hits[kind] + 1, worlds[step + 1].hits[kind] + 1)
            for mode in modes
        ]
        for step, fault in faults[::stride]:
            world = worlds[step].copied()
            world.fault = fault
            hooks.world = world
            count += 1
            try:
                world.run()
                if not world.fired:
                    raise Broken("it did not come to the call that was to fail")
            except Exception as exc:
                broken.append(f"step {step}, {fault}: {type(exc).__name__} {exc}"[:300])

    print(f"\n{count} of {len(faults)} injections on {wire}: {dict(worlds[-1].hits)}")
    assert not broken, f"{len(broken)} of {count}:\n" + "\n".join(broken[:40])
