"""What goes with every request beside the history: preamble, tools, settings; what a change says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from goaitools_py import ChatOptions, ModelSettings, ProviderTool, TurnError, event, system, tool, user
from goaitools_py.backends.base import BackendError
from goaitools_py.sim import Reply
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend

from ._reading import head, preamble, roles, roles_sent, unmarked_history, users


@pytest.fixture
def backend() -> ScriptedBackend:
    """Answers with the same word, often enough for any test here."""
    return ScriptedBackend(*["Noted."] * 6)


def codes(result: Any) -> list[str]:
    """A result's warnings by code."""
    return [warning.code for warning in result.warnings]


@tool
def look(place: str) -> str:
    """Look at a place."""
    return place


@tool
def ask(person: str) -> str:
    """Ask a person."""
    return person


# ---------------------------------------------------------------------------------------------- system


def test_the_preamble_is_sent_first_and_never_stored(face: Any, sim: Any, run: Any) -> None:
    """`system=` and a leading run of system messages lead each request; no state holds a word of them."""
    chat = face.on(sim, system="You are a guide.")

    first = run(chat, messages=[system("Be brief.")], user="My name is Ada.")
    second = run(chat, first.state, messages=[system("Be brief.")], user="Who am I?")

    for request in sim.requests:
        assert preamble(request) == ["You are a guide.", "Be brief."]
        assert "system" not in roles_sent(request)
    assert roles(second.state) == ["user", "assistant"] * 2
    assert inspect_state(second.state).has_preamble
    assert codes(second) == []
    assert sim.problems == []


def test_a_later_system_message_is_history(face: Any, backend: ScriptedBackend) -> None:
    """A system message behind any other is said at its place, and stored there."""
    chat = face.chat(backend)

    state = chat.chat(messages=[user("Hello."), system("From now on, in French.")], user="And you?").state

    assert [m["role"] for m in state_messages(state)] == ["user", "system", "user", "assistant"]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("You are a guide.", []),
        ("You are a cook.", ["preamble_changed"]),
        (None, ["preamble_missing"]),
    ],
)
def test_a_changed_preamble_is_a_warning(
    face: Any, backend: ScriptedBackend, second: Any, expected: list[str]
) -> None:
    """The digest of the last turn's preamble is compared: changed and missing are told apart."""
    chat = face.chat(backend)
    first = chat.chat(user="Hello.", system="You are a guide.")

    result = chat.chat_with_state(first.state, user="Hello.", system=second)

    assert codes(first) == []
    assert codes(result) == expected


def test_a_preamble_that_comes_later_is_a_warning(face: Any, backend: ScriptedBackend) -> None:
    """A first preamble in the middle of a conversation changes the prefix as well."""
    chat = face.chat(backend)
    before = chat.chat(user="Hello.").state

    assert codes(chat.chat_with_state(before, user="Hello.", system="New.")) == ["preamble_changed"]


# ----------------------------------------------------------------------------------------------- tools


def test_tools_are_canonical(face: Any, backend: ScriptedBackend) -> None:
    """Whatever the order they are given in, equal tools are equal bytes, and no change is told."""
    chat = face.chat(backend)
    hosted = ProviderTool({"type": "custom", "custom": {"name": "draw"}})

    first = chat.chat(user="Hello.", tools=[look, hosted, ask])
    second = chat.chat_with_state(first.state, user="Hello.", tools=[ask, look, hosted])

    lists = [request.body.split(b',"messages":')[0] for request in backend.requests]
    assert lists[0] == lists[1]
    assert codes(second) == []


@pytest.mark.parametrize("tools", [[], [look], [look, ask, lambda: None][:2]], ids=["none", "one", "same"])
def test_changed_tools_are_a_warning(face: Any, backend: ScriptedBackend, tools: Any) -> None:
    """Adding or removing a tool restarts prompt caches, so it is told."""
    chat = face.chat(backend)
    before = chat.chat(user="Hello.", tools=[look, ask]).state

    result = chat.chat_with_state(before, user="Hello.", tools=tools)

    assert codes(result) == ([] if len(tools) == 2 else ["tools_changed"])


def test_a_changed_model_is_a_warning(face: Any, backend: ScriptedBackend) -> None:
    """The state knows which model was asked last."""
    chat = face.chat(backend)
    before = chat.chat(user="Hello.").state

    result = chat.chat_with_state(before, user="Hello.", settings=ModelSettings(model="another"))

    assert codes(result) == ["model_changed"]
    assert backend.bodies()[1]["model"] == "another"
    assert inspect_state(result.state).model == "another"


def test_a_changed_server_is_a_warning(face: Any, sim: Any) -> None:
    """A conversation that goes on at another endpoint of the same wire says so."""
    backend = ScriptedBackend("Noted.", wire=sim.wire)
    before = face.chat(backend, settings=ModelSettings(model="sim-model")).chat(user="Hello.").state

    result = face.on(sim).chat_with_state(before, user="Hello.")

    assert codes(result) == ["endpoint_changed"]


# -------------------------------------------------------------------------------------------- settings


def test_fields_win_over_options_and_options_over_defaults(face: Any, backend: ScriptedBackend) -> None:
    """Settings merge field by field: each value comes from the nearest place that gives it."""
    chat = face.chat(
        backend, ChatOptions(settings=ModelSettings(temperature=0.1, seed=1, top_p=0.1, stop="a"))
    )

    chat.chat(
        ChatOptions(user="Hello.", settings=ModelSettings(temperature=0.2, seed=2)),
        settings=ModelSettings(temperature=0.3),
    )

    body = backend.bodies()[0]
    assert (body["temperature"], body["seed"], body["top_p"], body["stop"]) == (0.3, 2, 0.1, "a")


def test_other_options_are_replaced(face: Any, backend: ScriptedBackend) -> None:
    """Anything but settings is taken whole from the nearest place."""
    chat = face.chat(backend, ChatOptions(system="default", tools=[look]), context="default")

    chat.chat(ChatOptions(system="option", user="from options"), user="from keyword", tools=[ask])

    body = backend.bodies()[0]
    assert body["messages"][0]["content"] == "option"
    assert body["messages"][1]["content"][1]["text"] == "from keyword"
    assert [t["function"]["name"] for t in body["tools"]] == ["ask"]


def test_none_switches_off(face: Any, backend: ScriptedBackend) -> None:
    """None is not "not given": it takes a default away, a single setting as well as all."""
    chat = face.chat(
        backend, system="You are a guide.", tools=[look], settings=ModelSettings(seed=1, top_p=0.5)
    )

    chat.chat(user="Hello.", system=None, tools=None, settings=ModelSettings(seed=None))
    chat.chat(user="Hello.", settings=None)

    first, second = backend.bodies()
    assert [m["role"] for m in first["messages"]] == ["user"]
    assert "tools" not in first
    assert ("seed" in first, first["top_p"]) == (False, 0.5)
    assert ("seed" in second, "top_p" in second) == (False, False)


def test_settings_stick_when_asked_to(face: Any, backend: ScriptedBackend) -> None:
    """Sampling and reasoning of an earlier turn hold; model, stop and extras never do."""
    chat = face.chat(backend)
    given = ModelSettings(
        temperature=0.2, reasoning_effort="low", model="other", stop="x", extra_body={"extra": 1}
    )
    state = chat.chat(user="Hello.", settings=given).state

    state = chat.chat_with_state(state, user="Hello.", sticky_settings=True).state
    chat.chat_with_state(state, user="Hello.")

    _, sticky, plain = backend.bodies()
    assert (sticky["temperature"], sticky["reasoning_effort"]) == (0.2, "low")
    assert sticky["model"] == "scripted"
    assert not {"stop", "extra"} & set(sticky)
    assert not {"temperature", "reasoning_effort"} & set(plain)


def test_a_sticky_setting_can_be_taken_back(face: Any, backend: ScriptedBackend) -> None:
    """None overrides what stuck, and it does not come back with the turn after."""
    chat = face.chat(backend, sticky_settings=True)
    state = chat.chat(user="Hello.", settings=ModelSettings(temperature=0.2, seed=5)).state
    state = chat.chat_with_state(state, user="Hello.", settings=ModelSettings(temperature=None)).state

    chat.chat_with_state(state, user="Hello.")

    assert [body.get("temperature") for body in backend.bodies()] == [0.2, None, None]
    assert [body.get("seed") for body in backend.bodies()] == [5, 5, 5]


def test_settings_are_recorded_with_the_turn(face: Any, backend: ScriptedBackend) -> None:
    """What a turn was asked with is in its history; what may hold secrets is not."""
    chat = face.chat(backend)
    given = ModelSettings(
        temperature=0.2, extra_body={"token": "canary"}, extra_headers={"X-Token": "canary"}
    )

    state = chat.chat(user="Hello.", settings=given, metadata={"channel": "web"}).state

    stored = read_history(state).turns[0]
    assert stored.facts["settings"] == {"temperature": 0.2}
    assert stored.metadata == {"channel": "web"}
    assert backend.requests[0].headers["X-Token"] == "canary"
    assert backend.bodies()[0]["token"] == "canary"


def test_the_cache_key_is_the_conversations(face: Any, backend: ScriptedBackend) -> None:
    """Every request of a conversation has the same key, another conversation has another, a setting wins."""
    chat = face.chat(backend)
    state = chat.run_turns(None, ["Hello.", "Hello."]).state
    chat.chat(user="Hello.")
    chat.chat_with_state(state, user="Hello.", settings=ModelSettings(prompt_cache_key="mine"))

    first, second, other, own = (body["prompt_cache_key"] for body in backend.bodies())
    assert first == second
    assert other not in (first, "", None)
    assert own == "mine"


def test_the_conversation_id_stays_with_the_state(face: Any, backend: ScriptedBackend) -> None:
    """A caller may choose it, or choose another later; without a word it is the state's."""
    chat = face.chat(backend)
    first = chat.chat(user="Hello.", conversation_id="thread-7").state
    second = chat.chat_with_state(first, user="Hello.").state
    forked = chat.chat_with_state(first, user="Hello.", conversation_id="thread-8").state

    ids = [inspect_state(state).conversation_id for state in (first, second, forked)]
    assert ids == ["thread-7", "thread-7", "thread-8"]


def test_a_turn_without_a_model_says_what_to_do(face: Any, sim: Any) -> None:
    """No default model is built in; the text names the places for one."""
    backend = sim.backend(None, is_async=face.is_async)

    with pytest.raises(ValueError, match="ModelSettings"):
        face.chat(backend).chat(user="Hello.")

    assert sim.requests == []


# ----------------------------------------------------------------------------------------- the context


@pytest.mark.parametrize("is_later", [False, True], ids=["the first call", "after a tool"])
def test_the_context_of_a_turn_that_comes_again_is_its_first(
    face: Any, wire: str, run: Any, is_later: bool
) -> None:
    """A turn that failed and is delivered again goes on as it was begun: whatever the context is by now, the
    message has one, and nothing is said twice."""
    down = BackendError("down", kind="unavailable")
    calls = [Calls([("look", {"place": "here"})])] if is_later else []
    backend = ScriptedBackend(*calls, down, "Noon.", wire=wire)
    chat = face.chat(backend, tools=[look], tool_threads=False)
    with pytest.raises(TurnError) as caught:
        run(chat, user="What time is it?", turn_id="m1", context="At nine.")

    result = run(chat, caught.value.state, user="What time is it?", turn_id="m1", context="At ten.")

    (said,) = users(result.state)
    assert [said.count(text) for text in ("At nine.", "At ten.", "What time is it?")] == [1, 0, 1]
    assert roles_sent(backend.requests[-1]) == roles(result.state)[:-1]
    assert not any(b"At ten." in request.body for request in backend.requests)
    assert (result.text, result.duplicate) == ("Noon.", False)


# ------------------------------------------------------------------------------------------ the prefix


def test_the_prefix_only_grows(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """Of two requests of a conversation the earlier's messages are the later's beginning, byte for byte."""
    chat = face.on(sim, system="You are a guide.", tools=[scores.get_score])
    sim.push(
        Reply.text("Hello, Ada."),
        Reply.calls(("get_score", '{"team": "Red"}'), ("get_score", "{}"), text="Let me see."),
        Reply.text("7."),
        Reply.calls(("get_score", '{"team":"Bl'), finish="length"),
        Reply.calls(("nothing", ""), ids=("",)),
        Reply.text("Done."),
    )
    state = run(chat, user="I am Ada — “hello” \u2028.", context="12:04").state
    state = chat.append_to_state(state, event("Rain begins.", topic="weather"))
    state = run(chat, state, user="The score?", context="12:05").state
    state = run(chat, state, user="And Blue?").state
    state = run(chat, state, user="Once more.").state
    run(chat, state, user="Thanks.")

    messages = [unmarked_history(request).rstrip(b"]") for request in sim.requests]
    assert len(messages) == 7
    for earlier, later in pairwise(messages):
        assert later.startswith(earlier)
        assert len(later) > len(earlier)
    assert len({head(request) for request in sim.requests}) == 1
    assert sim.problems == []
