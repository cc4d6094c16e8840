"""Tools say how far they are while they run, and who listens to the turn hears it then."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, ToolContext, ToolFinished, ToolStarted, tool
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.events import Event, ToolProgress

SECONDS = 60.0
KINDS = (ToolStarted, ToolProgress, ToolFinished)


def told(events: list[Event]) -> list[tuple[Any, ...]]:
    """What was told of tools: kind, call, and how far it was."""
    found: list[tuple[Any, ...]] = []
    for one in events:
        if isinstance(one, ToolProgress):
            found.append(("Progress", one.call_id[-1], one.progress, one.total, one.message))
        elif isinstance(one, KINDS):
            found.append((type(one).__name__[4:], one.call_id[-1]))
    return found


def run(face: Any, *tools: Any, calls: list[Any], hear: Any = None, **fields: Any) -> list[Event]:
    """The events of a turn whose model makes these calls."""
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if hear is not None:
            hear(event)

    kind = AsyncChat if face.is_async else Chat
    chat = kind(ScriptedBackend(Calls(calls), "Done."), tools=[*tools], on_event=listen, **fields)
    result = chat.chat(user="Go.")
    assert (asyncio.run(result) if face.is_async else result).text == "Done."
    return events


def test_a_report_is_told_while_the_tool_runs(face: Any) -> None:
    """Each waits until the listener has heard the one before."""
    heard = threading.Semaphore(0)

    @tool
    def brew(ctx: ToolContext[Any], cups: int) -> str:
        """Brew."""
        for cup in range(1, cups + 1):
            ctx.report_progress(cup, cups, f"cup {cup}")
            assert heard.acquire(timeout=SECONDS)
        return "brewed"

    events = run(
        face,
        brew,
        calls=[("brew", {"cups": 3})],
        hear=lambda event: heard.release() if isinstance(event, ToolProgress) else None,
        tool_threads=True,
    )

    assert told(events) == [
        ("Started", "0"),
        ("Progress", "0", 1, 3, "cup 1"), ("Progress", "0", 2, 3, "cup 2"), ("Progress", "0", 3, 3, "cup 3"),
        ("Finished", "0"),
    ]  # fmt: skip
    (first, *_) = [one for one in events if isinstance(one, ToolProgress)]
    assert (first.name, first.iteration, first.turn_ref != "") == ("brew", 1, True)


def test_an_async_tool_reports_in_the_loop() -> None:
    heard = asyncio.Event()

    @tool
    async def brew(ctx: ToolContext[Any]) -> str:
        """Brew."""
        ctx.report_progress(0.5)
        await asyncio.wait_for(heard.wait(), SECONDS)
        return "brewed"

    async def main() -> list[Event]:
        events = []
        chat = AsyncChat(ScriptedBackend(Calls([("brew", {})]), "Done."), tools=[brew])
        async with chat.start(None, user="Go.") as turn:
            async for event in turn:
                events.append(event)
                if isinstance(event, ToolProgress):
                    heard.set()
        return events

    assert told(asyncio.run(main())) == [
        ("Started", "0"),
        ("Progress", "0", 0.5, None, ""),
        ("Finished", "0"),
    ]


def test_a_tool_in_the_turns_own_thread_is_told_of_when_it_ends() -> None:
    """The newest report of each call."""

    @tool
    def brew(ctx: ToolContext[Any], cups: int) -> str:
        """Brew."""
        for cup in range(1, cups + 1):
            ctx.report_progress(cup, cups)
        return "brewed"

    events: list[Event] = []
    chat = Chat(
        ScriptedBackend(Calls([("brew", {"cups": 2}), ("brew", {"cups": 3})]), "Done."),
        tools=[brew],
        tool_threads=False,
        on_event=events.append,
    )
    chat.chat(user="Go.")

    assert told(events) == [
        ("Started", "0"), ("Progress", "0", 2, 2, ""), ("Finished", "0"),
        ("Started", "1"), ("Progress", "1", 3, 3, ""), ("Finished", "1"),
    ]  # fmt: skip


def test_reports_that_come_faster_than_they_are_read_are_one(face: Any) -> None:
    """A listener that is slow costs neither memory nor time; the last report is told."""
    begun, read = threading.Event(), threading.Event()

    @tool
    def brew(ctx: ToolContext[Any]) -> str:
        """Brew."""
        ctx.report_progress(0)
        assert begun.wait(SECONDS)
        for cup in range(1, 10_001):
            ctx.report_progress(cup)
        read.set()
        return "brewed"

    def hear(event: Event) -> None:
        if isinstance(event, ToolProgress) and event.progress == 0:
            begun.set()
            assert read.wait(SECONDS)

    events = run(face, brew, calls=[("brew", {})], hear=hear, tool_threads=True)

    amounts = [one.progress for one in events if isinstance(one, ToolProgress)]
    assert (amounts[0], amounts[-1], len(amounts) < 5) == (0, 10_000, True)


def test_calls_beside_each_other_report_under_their_own_ids(face: Any) -> None:
    """Both run until both were heard."""
    both = threading.Barrier(3)

    @tool
    def brew(ctx: ToolContext[Any], cups: int) -> str:
        """Brew."""
        ctx.report_progress(cups)
        both.wait(SECONDS)
        return "brewed"

    heard: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, ToolProgress):
            heard.append(event.call_id)
            if len(heard) == 2:
                both.wait(SECONDS)

    events = run(
        face, brew, calls=[("brew", {"cups": 7}), ("brew", {"cups": 8})], hear=hear, tool_threads=True
    )

    found = {(one.call_id[-1], one.progress) for one in events if isinstance(one, ToolProgress)}
    assert found == {("0", 7), ("1", 8)}


def test_a_report_after_the_calls_end_is_not_told(face: Any) -> None:
    """Such as one of a call that took too long: the turn has gone on, and calls of a later reply have the
    same places."""
    late, over = threading.Event(), threading.Event()
    contexts: list[ToolContext[Any]] = []

    @tool(timeout=0.05)
    def brew(ctx: ToolContext[Any]) -> str:
        """Brew."""
        contexts.append(ctx)
        if len(contexts) == 1:
            assert late.wait(SECONDS)
            ctx.report_progress(99)
        else:
            contexts[0].report_progress(98)
            late.set()
        over.set()
        return "brewed"

    events: list[Event] = []
    kind = AsyncChat if face.is_async else Chat
    backend = ScriptedBackend(Calls([("brew", {})]), Calls([("brew", {})]), "Done.")
    chat: Any = kind(backend, tools=[brew], on_event=events.append, tool_threads=True)
    asyncio.run(chat.chat(user="Go.")) if face.is_async else chat.chat(user="Go.")

    assert over.wait(SECONDS)
    assert [one.progress for one in events if isinstance(one, ToolProgress)] == []


def test_nobody_has_to_listen(face: Any) -> None:
    """A report then costs nothing."""
    seen: list[int] = []

    @tool
    def brew(ctx: ToolContext[Any]) -> str:
        """Brew."""
        ctx.report_progress(1)
        seen.append(len(ctx._heard))
        return "brewed"

    kind = AsyncChat if face.is_async else Chat
    chat: Any = kind(ScriptedBackend(Calls([("brew", {})]), "Done."), tools=[brew])
    result = chat.chat(user="Go.")
    assert (asyncio.run(result) if face.is_async else result).text == "Done."
    assert seen == [0]


def test_the_message_is_content(face: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It shows where content was asked for, and nowhere else."""

    @tool
    def brew(ctx: ToolContext[Any]) -> str:
        """Brew."""
        ctx.report_progress(1, 2, "Harrogate")
        return "brewed"

    with caplog.at_level(logging.DEBUG, logger="goaitools_py"):
        events = run(face, brew, calls=[("brew", {})])
    (event,) = [one for one in events if isinstance(one, ToolProgress)]

    assert event.to_dict(content=True)["message"] == "Harrogate"
    assert "Harrogate" not in f"{event!r} {event.to_dict()} {caplog.text}"
    (record,) = [one for one in caplog.records if getattr(one, "event", "") == "tool.progress"]
    assert (record.progress, record.total) == (1, 2)  # type: ignore[attr-defined]

    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="goaitools_py"):
        run(face, brew, calls=[("brew", {})], log_content=True)
    assert "brew Harrogate" in caplog.text
