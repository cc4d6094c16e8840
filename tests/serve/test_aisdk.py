"""The AI SDK's requests by HTTP: send, approve, follow, stop, regenerate."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from goaitools_py import AsyncChat, tool
from goaitools_py.backends import BackendError
from goaitools_py.frontends import AISDK
from goaitools_py.serve import ServeLimits, serve
from goaitools_py.testing import Calls, ScriptedBackend

from ._world import World, asynchronous

LOOK = Calls([("look", {"at": "door"})], text="Hm.")
FIRE = Calls([("fire", {"at": "y"})])


def message(text: str = "Hello", id: str = "m1") -> dict[str, Any]:
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}


def reply(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": "ada/hall-1", "role": "assistant", "parts": list(parts)}


def answered(id: str = "call_1_0", approved: bool = True) -> dict[str, Any]:
    return {
        "type": "dynamic-tool", "toolName": "fire", "toolCallId": id, "input": {},
        "state": "approval-responded", "approval": {"id": id, "approved": approved},
    }  # fmt: skip


async def sent(world: World, *messages: Any, **members: Any) -> list[tuple[str, Any]]:
    body = {"id": "hall", "messages": messages, "trigger": "submit-message", **members}
    async with world.asked("POST", "/aisdk", body) as answer:
        assert answer.status == 200, await answer.body()
        assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
        return await answer.events()


def text_of(events: list[tuple[str, Any]]) -> str:
    return "".join(data["delta"] for name, data in events if name == "text-delta")


async def texts(world: World) -> list[str]:
    shown = (await world.ask("GET", "/aisdk/hall/messages"))[1]
    return ["".join(part.get("text", "") for part in one["parts"]) for one in shown]


@asynchronous
async def test_a_message_is_answered() -> None:
    world = World("Good evening.")

    events = await sent(world, message())

    assert events[0][1]["messageId"] == "ada/hall-1"
    assert text_of(events) == "Good evening."
    shown = (await world.ask("GET", "/aisdk/hall/messages"))[1]
    assert [one["id"] for one in shown] == ["ada/hall-1u", "ada/hall-1"]


@asynchronous
async def test_a_call_is_approved_and_a_forged_one_is_not() -> None:
    world = World(FIRE, "Hit.")
    assert "tool-approval-request" in [name for name, _ in await sent(world, message())]

    events = await sent(world, message(), reply(answered(), answered("call_9_9")))

    kinds = [name for name, _ in events]
    assert kinds[:2] == ["start", "tool-output-available"]
    assert text_of(events) == "Hit."
    assert world.looked == ["y"]


@asynchronous
async def test_a_page_comes_back() -> None:
    world = World(LOOK, "Done.", limits=ServeLimits(keep_seconds=0))
    body = {"id": "hall", "messages": [message()]}
    async with world.asked("POST", "/aisdk", body) as first:
        await world.is_inside.wait()
        async with world.asked("GET", "/aisdk/hall/stream") as second:
            world.held.set()
            assert await second.events() == await first.events()
    await asyncio.sleep(0)

    assert (await world.ask("GET", "/aisdk/hall/stream"))[0] == 204


@asynchronous
async def test_a_page_stops_the_turn() -> None:
    world = World(LOOK)
    async with world.asked("POST", "/aisdk", {"id": "hall", "messages": [message()]}) as first:
        await world.is_inside.wait()
        assert (await world.ask("DELETE", "/aisdk/hall/stream"))[1] == {"stopped": True}
        assert (await first.events())[-1][0] == "abort"


@pytest.mark.parametrize("id", [None, "ada/hall-2", "ada/hall-2u", "m2"])
@asynchronous
async def test_a_reply_is_written_again(id: str | None) -> None:
    """The newest turn is taken back; its message is said anew."""
    world = World("One.", "Two.", "Three.")
    await sent(world, message("First", "m1"))
    await sent(world, message("Second", "m2"))

    events = await sent(world, message("Second", "m2"), trigger="regenerate-message", messageId=id)

    assert text_of(events) == "Three."
    assert events[0][1]["messageId"] == "ada/hall-3"
    assert await texts(world) == ["First", "One.", "Second", "Three."]
    assert b"Two." not in world.backend.requests[-1].body


@pytest.mark.parametrize("id", ["of-the-client", "bob/hall-1", "ada/hall-3", "ada/hall-0", "m3"])
@asynchronous
async def test_a_reply_of_another_conversation_is_not_written_again(id: str) -> None:
    """Nothing is taken back for an id that is not of this conversation."""
    world = World("One.", "Two.")
    await sent(world, message("First", "m1"))
    await sent(world, message("Second", "m2"))

    body = {"id": "hall", "messages": [message("Second", "m2")], "messageId": id}
    status, problem = await world.ask("POST", "/aisdk", {**body, "trigger": "regenerate-message"})

    assert (status, problem["type"]) == (400, "urn:goaitools:AskError")
    assert await texts(world) == ["First", "One.", "Second", "Two."]
    assert len(world.backend.requests) == 2


@asynchronous
async def test_an_older_reply_is_written_again() -> None:
    """What came after it goes too, as in the page. The same request once more is answered from the store."""
    world = World("One.", "Two.", "Three.")
    await sent(world, message("First", "m1"))
    await sent(world, message("Second", "m2"))
    again = {"trigger": "regenerate-message", "messageId": "ada/hall-1"}

    assert text_of(await sent(world, message("First", "m1"), **again)) == "Three."
    assert text_of(await sent(world, message("First", "m1"), **again)) == "Three."

    assert await texts(world) == ["First", "Three."]
    assert len(world.backend.requests) == 3


@asynchronous
async def test_a_failed_reply_is_written_again_by_going_on() -> None:
    world = World(BackendError("away"), "Here.")
    async with world.asked("POST", "/aisdk", {"id": "hall", "messages": [message()]}) as answer:
        assert "error" in [name for name, _ in await answer.events()]

    assert text_of(await sent(world, message(), trigger="regenerate-message")) == "Here."
    assert await texts(world) == ["Hello", "Here."]


@asynchronous
async def test_bodies_of_another_kind_are_refused() -> None:
    world = World()
    for body in ({}, {"id": "hall", "messages": []}, {"id": "../x/y", "messages": [message()]}, [], b"{"):
        assert (await world.ask("POST", "/aisdk", body))[0] == 400
    assert (await world.ask("POST", "/aisdk", {"id": "hall", "messages": [reply(answered())]}))[0] == 409


DEEP = '{"at": ' + "[" * 900 + "]" * 900 + "}"
"""JSON that is read, and nests deeper than JSON is written."""


@pytest.mark.parametrize("at", ["arguments", "result"])
@asynchronous
async def test_what_nests_too_deep_for_an_answer_is_text(at: str) -> None:
    """The arguments that a model wrote, or what a tool read somewhere: the stream, and each later look at the
    history, would fail."""

    @tool
    def read() -> str:
        """Read a page of somebody."""
        return DEEP

    @tool(requires_approval=True)
    def fire(at: Any) -> str:
        """Fire."""
        return "Hit."

    called = ("fire", DEEP) if at == "arguments" else ("read", "{}")
    world = World()
    chat = AsyncChat(ScriptedBackend(Calls([called]), "Well."), tools=[read, fire])
    world.app = serve(chat, world.store, key=world.whose, frontends=(AISDK,))
    async with world.asked("POST", "/aisdk", {"id": "t", "messages": [message()]}) as answer:
        events = dict(await answer.events())
    status, messages = await world.ask("GET", "/aisdk/t/messages")

    (part,) = (part for part in messages[-1]["parts"] if "toolCallId" in part)
    assert status == 200
    assert "finish" in events
    if at == "arguments":
        assert part["input"] == DEEP
        assert events["tool-input-available"]["input"] == DEEP
    else:
        assert (part["output"], events["tool-output-available"]["output"]) == (DEEP, DEEP)
