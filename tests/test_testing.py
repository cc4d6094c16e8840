"""The test kit that users of the package get."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Chat, TextDelta
from goaitools_py.backends.base import BackendError
from goaitools_py.errors import ProviderUnavailableError
from goaitools_py.sim import SimServer
from goaitools_py.testing import Calls, Raw, ScriptedBackend, check_history
from goaitools_py.testing.fixtures import sim_server as sim_server


def test_a_script_is_said_in_order_on_both_chats(face: Any) -> None:
    """A scripted backend answers each request with its next step, whatever the chat's colour."""
    backend = ScriptedBackend("One.", "Two.")
    chat = face.chat(backend)

    first = chat.chat_with_state(None, user="a")
    second = chat.chat_with_state(first.state, user="b")

    assert (first.text, second.text) == ("One.", "Two.")
    backend.assert_finished()


def test_an_unused_step_is_reported() -> None:
    """A test that expected more requests than came can find out."""
    backend = ScriptedBackend("never said")

    with pytest.raises(AssertionError, match="1 scripted steps"):
        backend.assert_finished()


def test_a_request_beyond_the_script_is_an_assertion_error() -> None:
    """A request that the script does not know of is not answered with something made up."""
    chat = Chat(ScriptedBackend())

    with pytest.raises(AssertionError, match="no step"):
        chat.chat(user="hello")


def test_a_streamed_script_arrives_word_by_word(face: Any) -> None:
    """A scripted text is streamed as deltas that join to it."""
    chat = face.chat(ScriptedBackend("one two three"))

    deltas = [event.text for event in chat.start(None, user="go") if isinstance(event, TextDelta)]

    assert len(deltas) == 3
    assert "".join(deltas) == "one two three"


def test_a_scripted_exception_and_a_function_are_steps(face: Any) -> None:
    """A step may raise, or be computed from the request."""
    backend = ScriptedBackend(
        BackendError("down"), lambda request: f"{len(request.body)} bytes", model="scripted-1"
    )
    chat = face.chat(backend)

    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat(user="hello")
    result = chat.resume(caught.value.state)

    assert result.text == f"{len(backend.requests[-1].body)} bytes"


def test_scripted_calls_reach_the_tools(face: Any) -> None:
    """`Calls` makes the chat run tools; `Raw` sends a body as it is."""

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    body = b'{"choices":[{"message":{"role":"assistant","content":"raw"},"finish_reason":"stop"}]}'
    chat = face.chat(ScriptedBackend(Calls([("double", {"number": 4})]), Raw.body(body)), tools=[double])

    result = chat.chat(user="double 4")

    assert result.text == "raw"
    assert [record.result for record in result.tool_log] == ["8"]


def test_the_simulator_is_a_fixture(sim_server: SimServer, face: Any) -> None:
    """The fixture gives a running simulator that keeps what it was asked."""
    result = face.on(sim_server).chat(user="My name is Ada. What is my name?")

    assert "Ada" in result.text
    assert len(sim_server.requests) == 1


def test_check_history_names_an_unanswered_call() -> None:
    """A history with a call that nobody answered is reported."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "well?"},
    ]

    assert check_history("openai", history)
    assert not check_history("openai", history[:1])


def test_scripted_calls_are_stored_alike_streamed_or_not(face: Any) -> None:
    """A stream is the same message in pieces: beside calls without text the content is null in both."""

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    for text in ("", "Let me see."):
        stored = []
        for listener in (None, lambda event: None):
            backend = ScriptedBackend(Calls([("double", {"number": 4})], text=text), "8")
            face.chat(backend, tools=[double]).chat(user="double 4", on_event=listener)
            stored.append(backend.bodies()[1]["messages"][1])
            assert bool(backend.requests[0].stream) is (listener is not None)

        assert stored[0] == stored[1]
        assert stored[0]["content"] == (text or None)
