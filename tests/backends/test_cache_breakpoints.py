"""A breakpoint behind the preamble, for models of OpenAI whose cache finds nothing else after a cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import Chat, system
from goaitools_py.backends.base import RequestParts
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.sim.openai.responses_rules import responses_refusals
from goaitools_py.testing import ScriptedBackend

HISTORY = {"openai": "messages", "openai-responses": "input"}
TEXT = {"openai": "text", "openai-responses": "input_text"}
USER = b'{"role":"user","content":"Hello."}'

pytestmark = pytest.mark.parametrize("wire", HISTORY)


def sent(wire: str, *, family: str = "openai", model: str = "gpt-5.6-terra", **parts: Any) -> list[Any]:
    """The messages of a request with two system messages before its history."""
    dialect = dialect_of(wire, family=family)
    preamble = dialect.preamble([system("Be brief."), system('You are a "guide".')])
    made = dialect.request(RequestParts(model=model, preamble=preamble, history=[USER], **parts))
    found: list[Any] = json.loads(made.body)[HISTORY[wire]]
    return found


def test_the_last_message_of_the_preamble_ends_a_prefix(wire: str) -> None:
    """Its text as one part with the mark; what stands before and behind it is as ever."""
    first, last, said = sent(wire)

    mark = {"mode": "explicit"}
    assert last["content"] == [
        {"type": TEXT[wire], "text": 'You are a "guide".', "prompt_cache_breakpoint": mark}
    ]
    assert first["content"] == "Be brief."
    assert said == json.loads(USER)


@pytest.mark.parametrize(
    "parts",
    [
        {"model": "gpt-5.4"},
        {"model": "gpt-4o"},
        {"model": "a-model-of-tomorrow"},
        {"family": "azure"},
        {"family": "local"},
        {"family": "api.groq.com"},
        {"cache_marks": False},
    ],
)
def test_who_reads_none_gets_none(wire: str, parts: dict[str, Any]) -> None:
    """Older models find any prefix, other servers might refuse it, and a cold cache is not written."""
    assert [message["content"] for message in sent(wire, **parts)][:2] == ["Be brief.", 'You are a "guide".']


def test_without_a_preamble_there_is_nothing_to_mark(wire: str) -> None:
    """The history has the provider's own breakpoint."""
    made = dialect_of(wire).request(RequestParts(model="gpt-5.6", history=[USER]))

    assert b"prompt_cache_breakpoint" not in made.body


def test_every_request_of_a_conversation_begins_alike(wire: str) -> None:
    """The mark is in each of them, never in the state, and no changed preamble is told."""
    backend = ScriptedBackend("Hello.", "Hello again.", wire=wire, model="gpt-5.6")
    chat = Chat(backend, system="Be brief.")

    first = chat.chat(user="Hello.")
    second = chat.chat_with_state(first.state, user="Hello?")

    bodies = [json.loads(request.body)[HISTORY[wire]] for request in backend.requests]
    assert bodies[0] == bodies[1][: len(bodies[0])]
    assert "prompt_cache_breakpoint" in str(bodies[0])
    assert second.warnings == ()
    if wire == "openai-responses":
        assert responses_refusals(json.loads(backend.requests[1].body)) == []
