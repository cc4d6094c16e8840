"""What another owner has is not there: each route answers as if nobody had a conversation of that name.

Neither the status, nor a header, nor a byte of the body tells whether it exists, waits, runs or has ended.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from goaitools_py.serve import MemoryRelay
from goaitools_py.testing import Calls

from ._world import World, asynchronous, said

LOOK = Calls([("look", {"at": "door"})])
FIRE = Calls([("fire", {"at": "y"})])
ANSWER = {"answers": {"call_1_0": {"approve": True}}}
EVENT = [{"text": "It rains."}]


def message(id: str, **members: Any) -> dict[str, Any]:
    return {"id": id, "role": "user", "parts": [{"type": "text", "text": "Hi."}], **members}


def requests(name: str) -> list[tuple[str, str, Any, dict[str, str]]]:
    """One or more requests on each route that names a conversation, with ids that another owner has."""
    one, ids = f"/conversations/{name}", {"last-event-id": "1.1"}
    answered = {
        "type": "dynamic-tool", "toolName": "fire", "input": {}, "toolCallId": "call_1_0",
        "state": "approval-responded", "approval": {"id": "call_1_0", "approved": True},
    }  # fmt: skip
    reply = {"id": f"ada/{name}-1", "role": "assistant", "parts": [answered]}
    return [
        ("GET", one, None, {}),
        ("GET", f"{one}/messages", None, {}),
        ("GET", f"{one}/turns/current", None, ids),
        ("POST", f"{one}/turns/current", {}, ids),
        ("DELETE", f"{one}/turns/current", None, {}),
        ("POST", f"{one}/answers", ANSWER, {}),
        ("POST", f"{one}/answers", ANSWER, {"accept": "text/event-stream"}),
        ("POST", f"{one}/events", EVENT, {}),
        ("POST", "/events", {name: EVENT}, {}),
        ("POST", "/aisdk", {"id": name, "messages": [reply]}, {}),
        ("GET", f"/aisdk/{name}/stream", None, ids),
        ("DELETE", f"/aisdk/{name}/stream", None, {}),
        ("GET", f"/aisdk/{name}/messages", None, {}),
        ("POST", "/agui", {"threadId": name, "runId": "r", "messages": []}, {}),
        ("GET", f"/agui/{name}/stream", None, ids),
        ("DELETE", f"/agui/{name}/stream", None, {}),
        ("GET", f"/agui/{name}/messages", None, {}),
        ("PATCH", one, {"title": "x"}, {}),
        ("DELETE", one, None, {}),
        # The id of the other owner's message, and a reply of the other owner's that is to be written again.
        ("POST", f"{one}/turns", said("Hi.", "m1"), {}),
        ("DELETE", one, None, {}),
        ("POST", f"{one}/turns", said("Hi.", "m1", again=f"ada/{name}-1"), {}),
        ("DELETE", one, None, {}),
        ("POST", "/aisdk", {"id": name, "messages": [message("m1")], "messageId": f"ada/{name}-1",
                            "trigger": "regenerate-message"}, {}),
        ("DELETE", one, None, {}),
        ("POST", f"{one}/turns", said("Hi.", "m1", edit=f"ada/{name}-1u"), {}),
        ("POST", "/aisdk", {"id": name, "messages": [message(f"ada/{name}-1u")],
                            "messageId": f"ada/{name}-1u"}, {}),
        ("DELETE", one, None, {}),
        ("GET", "/conversations?cursor=ada/", None, {}),
        ("GET", "/conversations?cursor=9999999999999%20ada/", None, {}),
    ]  # fmt: skip


async def answers(world: World, name: str) -> list[tuple[Any, ...]]:
    """What Bob is told, without the name itself, and without ids and times that each run has of its own."""
    found = []
    for method, path, body, headers in requests(name):
        async with world.asked(method, path, body, user="bob", headers=headers) as answer:
            told = (await answer.body()).decode().replace(name, "NAME")
        told = re.sub(r"[0-9a-f]{16}-\d+\.", "RUN.", told)
        told = re.sub(r"scripted-\d+|\d{4}-\d\d-\d\dT[0-9:.+]+", "N", told)
        found.append((method, path.replace(name, "NAME"), answer.status, answer.headers, told))
    return found


@pytest.mark.parametrize("with_relay", [False, True], ids=["alone", "relay"])
@pytest.mark.parametrize("state", ["over", "waiting", "running", "failed"])
@asynchronous
async def test_no_answer_tells_what_another_owner_has(state: str, with_relay: bool) -> None:
    """Ada's conversation is over, waits for an approval, runs, or has failed. Bob names it, with its ids."""
    first = {"over": "Fine.", "waiting": FIRE, "running": LOOK, "failed": RuntimeError("away")}[state]
    world = World(first, *["Fine."] * 20, relay=MemoryRelay() if with_relay else None)
    body = said("I am Ada.", "m1")
    turn = asyncio.create_task(world.ask("POST", "/conversations/hall/turns", body))
    if state == "running":
        await world.is_inside.wait()
    else:
        await turn

    hall, none = await answers(world, "hall"), await answers(world, "none")

    for there, not_there in zip(hall, none, strict=True):
        assert there == not_there
    assert not any("Ada" in str(one) for one in hall)
    world.held.set()
    assert (await turn)[0] == (503 if state == "failed" else 200)
    shown = (await world.ask("GET", "/conversations/hall/messages"))[1]
    assert [one["text"] for one in shown if one["role"] == "user"] == ["I am Ada."]
    assert [b"Ada" in request.body for request in world.backend.requests].count(True) == (
        2 if state == "running" else 1
    )


def test_each_route_that_names_a_conversation_is_asked() -> None:
    """A new route has to come into the list above."""
    asked = {(method, path.partition("?")[0]) for method, path, _, _ in requests("{name}")}
    there = {
        (next(iter(route.methods - {"HEAD"})), route.path)  # type: ignore[attr-defined]
        for route in World().app.routes
    }

    assert asked == there - {("GET", "/openapi.json"), ("GET", "/healthz"), ("GET", "/readyz")}
