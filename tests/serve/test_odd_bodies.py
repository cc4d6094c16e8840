"""Bodies of the right shape with other values in them, on every route that reads one.

The client has made a mistake, or means harm: the answer says so. It is never an error of the server, and no
record of the log says that the server failed.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from goaitools_py.testing import Calls

from .._odd_values import changed
from ._world import World, asynchronous
from .test_carried import Carried

PICTURE = {
    "type": "file",
    "media_type": "image/png",
    "url": "data:image/png;base64,iVBORw0KGgo=",
    "name": "a.png",
}
CALLS = Calls([("fire", {"at": "y"}), ("ask_player", {"question": "Why?"})], text="Well.")
ANSWERS = {
    "call_1_0": {"approve": True, "arguments": {"at": "z"}},
    "call_1_1": {"return": {"why": ["because"]}, "is_error": False},
}
EVENTS = [{"text": "It rains.", "topic": "weather", "id": "e1"}, {"text": "Ada won."}]
DYNAMIC = {"type": "dynamic-tool", "toolName": "fire", "input": {"at": "y"}}
AISDK_SAID = {
    "id": "hall", "trigger": "submit-message", "messageId": "a1",
    "messages": [
        {"id": "u0", "role": "user", "parts": [{"type": "text", "text": "Before."}]},
        {
            "id": "a1", "role": "assistant", "metadata": {"state": "gas1.AAAA"},
            "parts": [{"type": "text", "text": "x"}],
        },
        {
            "id": "m2", "role": "user",
            "parts": [
                {"type": "text", "text": "Look."},
                {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="},
            ],
        },
    ],
}  # fmt: skip
AISDK_ANSWERED = {
    "id": "hall", "trigger": "submit-message",
    "messages": [
        {
            "id": "a1", "role": "assistant",
            "parts": [
                {**DYNAMIC, "toolCallId": "call_1_0", "state": "approval-responded",
                 "approval": {"id": "call_1_0", "approved": False, "reason": "no"}},
                {**DYNAMIC, "toolCallId": "call_1_1", "state": "output-available", "output": {"a": [1]}},
                {**DYNAMIC, "toolCallId": "c9", "state": "output-error", "errorText": "gone"},
            ],
        },
    ],
}  # fmt: skip
AGUI = {"threadId": "hall", "runId": "r1", "protocolVersion": "1.0", "tools": [], "context": [], "state": {}}
AGUI_SAID = {
    **AGUI,
    "messages": [
        {"id": "r0", "role": "reasoning", "content": "Hm."},
        {
            "id": "m2", "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {
                    "type": "image",
                    "source": {"type": "data", "value": "iVBORw0KGgo=", "mimeType": "image/png"},
                },
                {"type": "document", "source": {"type": "url", "value": "data:,x", "mimeType": "text/plain"}},
            ],
        },
    ],
}  # fmt: skip
AGUI_ANSWERED = {
    **AGUI,
    "resume": [
        {
            "interruptId": "call_1_0",
            "status": "resolved",
            "payload": {"approved": True, "arguments": {"at": "z"}},
        },
        {"interruptId": "c9", "status": "cancelled"},
    ],
    "messages": [
        {
            "id": "t1",
            "role": "tool",
            "toolCallId": "call_1_1",
            "content": [{"type": "text", "text": "because"}],
        },
        {"id": "t2", "role": "tool", "toolCallId": "c9", "content": "x", "error": "gone"},
    ],
}
HALL = "/conversations/hall"
BODIES: list[tuple[str, Any]] = [
    (f"{HALL}/turns", {"text": "Hi.", "turn_id": "m2", "again": "", "context": None, "metadata": {"a": "b"}}),
    (f"{HALL}/turns", {"parts": [{"type": "text", "text": "Look."}, PICTURE], "turn_id": "m2"}),
    (f"{HALL}/answers", {"answers": ANSWERS}),
    (f"{HALL}/events", EVENTS),
    ("/events", {"hall": EVENTS, "yard": EVENTS}),
    ("/aisdk", AISDK_SAID),
    ("/aisdk", AISDK_ANSWERED),
    ("/agui", AGUI_SAID),
    ("/agui", AGUI_ANSWERED),
]  # fmt: skip
CARRIED: list[tuple[str, Any]] = [
    ("/turns", {"text": "Look.", "turn_id": "m2", "conversation": "hall", "metadata": {"a": "b"}}),
    ("/turns", {"parts": [{"type": "text", "text": "Look."}, PICTURE], "turn_id": "m2"}),
    ("/answers", {"answers": ANSWERS}),
    ("/events", {"events": EVENTS, "conversation": "hall"}),
    ("/messages", {"conversation": "hall"}),
]
ROUNDS = 60


@pytest.mark.parametrize(
    "number", range(len(BODIES)), ids=[f"{path}{at}" for at, (path, _) in enumerate(BODIES)]
)
@asynchronous
async def test_an_odd_body_is_the_clients_mistake(number: int, caplog: pytest.LogCaptureFixture) -> None:
    """While two calls wait, and in a new conversation."""
    path, whole = BODIES[number]
    seed = f"odd bodies {number}"
    print("seed", seed)
    r = random.Random(seed)
    for _ in range(ROUNDS):
        world = World(CALLS, *["Yes."] * 6)
        if r.random() < 0.7:
            status, _ = await world.ask(
                "POST", f"{HALL}/turns", {"text": "Go.", "turn_id": "m1"}, user="game"
            )
            assert status == 200
        body = changed(r, whole)
        async with world.asked("POST", path, body, user="game") as answer:
            found = await answer.body()
        assert answer.status in (200, 204, 400, 403, 404, 409, 413, 415, 422), (json.dumps(body), found)
        assert b"went wrong" not in found, (json.dumps(body), found)
        faults = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert faults == [], (json.dumps(body), faults)


@pytest.mark.parametrize(
    "number", range(len(CARRIED)), ids=[f"{path}{at}" for at, (path, _) in enumerate(CARRIED)]
)
@asynchronous
async def test_an_odd_body_with_a_state_is_the_clients_mistake(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The same where the client carries the state."""
    path, whole = CARRIED[number]
    seed = f"odd carried bodies {number}"
    print("seed", seed)
    r = random.Random(seed)
    for _ in range(ROUNDS):
        world = Carried(CALLS, *["Yes."] * 6)
        state = (await world.ask("POST", "/turns", {"text": "Go.", "turn_id": "m1"}, user="game"))[1]["state"]
        body = changed(r, {**whole, "state": state})
        async with world.asked("POST", path, body, user="game") as answer:
            found = await answer.body()
        assert answer.status in (200, 204, 400, 403, 404, 409, 413, 415, 422), (json.dumps(body)[:900], found)
        assert b"went wrong" not in found, (json.dumps(body)[:900], found)
        faults = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert faults == [], (json.dumps(body)[:900], faults)
