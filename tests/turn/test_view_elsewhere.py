"""The form that a host needs, in the requests beside a turn: a strategy's questions and token counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import Chat, Compactor, MessageLimit, Summarize
from goaitools_py.base.values import replace
from goaitools_py.state.records import with_host
from goaitools_py.state.state import dump_state, load_state
from goaitools_py.states import state_from_messages
from goaitools_py.testing import Raw, ScriptedBackend
from goaitools_py.turn.request import host_mark

from ..history._damage import Words

LONG = "functions.look:0"
"""An id of a call that not every host takes."""


def at_host(wire: str, backend: Any, rules: str) -> bytes:
    """A state of some turns with calls, that knows the rules of the backend's host."""
    words = Words(wire)
    entries = [
        *words.user("q1"),
        *words.calls(LONG),
        *words.results(LONG),
        *words.says("a1"),
        *(words.user("q2") + words.says("a2") + words.user("q3") + words.says("a3")),
    ]
    state = load_state(state_from_messages(wire, [json.loads(entry) for entry in entries]))
    hosts = with_host((), host_mark(backend.dialect), rules)
    return dump_state(replace(state, meta=replace(state.meta, hosts=hosts)))


def test_a_question_of_a_strategy_has_the_form_of_the_turns(face: Any, wire: str) -> None:
    """The summary is asked for without the id that the host refuses, and so is the turn behind it."""
    backend = ScriptedBackend("They talked.", "a4", wire=wire)
    given = at_host(wire, backend, "i")
    chat = face.chat(backend, compactor=Compactor(MessageLimit(4), Summarize(keep_turns=2)))

    result = chat.chat_with_state(given, user="q4")

    assert result.text == "a4"
    asked = [request.body.decode() for request in backend.requests]
    assert len(asked) == 2
    assert "q1" in asked[0]
    assert all(f'"{LONG}"' not in body for body in asked)
    assert load_state(result.state).meta.hosts == load_state(given).meta.hosts


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_a_count_has_the_form_of_the_turns(wire: str) -> None:
    """The provider counts the request that a turn would send."""
    backend = ScriptedBackend(Raw.body(b'{"input_tokens":14}'), wire=wire)
    given = at_host(wire, backend, "i")

    assert Chat(backend).count_tokens(given, user="q4") == 14

    (request,) = backend.requests
    assert f'"{LONG}"' not in request.body.decode()
    assert "q1" in request.body.decode()


def test_the_rules_of_one_host_are_not_those_of_another(face: Any, wire: str) -> None:
    """A backend with another host sends the history as it is stored."""
    backend = ScriptedBackend("a4", wire=wire)
    given = at_host(wire, backend, "i")
    backend.dialect = replace(backend.dialect, host="127.0.0.1:8080")

    face.chat(backend).chat_with_state(given, user="q4")

    assert f'"{LONG}"' in backend.requests[0].body.decode()
