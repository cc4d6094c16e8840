"""What a server adds for itself and refuses in a request: no request and no state holds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py.backends.base import ModelRequest
from goaitools_py.testing import Raw, ScriptedBackend

from ..backends.test_servers_own import EXECUTED, ROUTED
from ._answers import chat_answer
from ._reading import CHAT
from ._talk import FORMS, Talk


def strict(*names: str, answer: Callable[[ModelRequest], Raw]) -> Callable[[ModelRequest], Any]:
    """A server that refuses these members in a message."""

    def step(request: ModelRequest) -> Any:
        for message in json.loads(request.body)["messages"]:
            assert set(names).isdisjoint(message), "a request holds what the server refuses"
        return answer(request)

    return step


@pytest.mark.parametrize(("kept", "stream"), FORMS)
@pytest.mark.parametrize("wire", [CHAT])
@pytest.mark.parametrize("message", [EXECUTED, ROUTED], ids=["groq", "vercel"])
def test_no_turn_sends_it_back(face: Any, wire: str, message: Any, kept: bool, stream: bool) -> None:
    """Three turns, three requests, and nothing to repair."""
    answer = chat_answer({"content": "Yes.", **message})
    backend = ScriptedBackend(*[strict("executed_tools", "provider_metadata", answer=answer)] * 3, wire=wire)
    talk = Talk(face, face.chat(backend), kept=kept, streamed=stream)

    results = [talk.say("And?") for _ in range(3)]

    assert len(backend.requests) == 3
    assert [result.warnings for result in results] == [()] * 3
    assert len(results[-1].state) < 2_000
