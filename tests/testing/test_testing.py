"""The test kit that users of the package get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import Chat, ReasoningDelta, TextDelta
from goaitools_py.backends import OpenAIChatBackend
from goaitools_py.backends.base import BackendError
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.sim import SimServer
from goaitools_py.states import inspect_state, read_history
from goaitools_py.testing import Calls, Raw, ScriptedBackend, check_history
from goaitools_py.testing._reply_shapes import SHAPES
from goaitools_py.testing.fixtures import sim_server as sim_server
from goaitools_py.types.errors import ProviderUnavailableError

WIRES = ("openai", "openai-responses", "anthropic")


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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Calls(("charge", {"euros": 5})),
            r"Calls\(\[\('charge', .*\)\]\); got a tuple whose item 0 .* str",
        ),
        (lambda: Calls("charge"), "list of pairs.*got str"),
        (lambda: Calls({"charge": {}}), "list of pairs.*got dict"),
        (
            lambda: Calls([("charge", {}), ("charge", 5)]),
            "got a list whose item 1 is no such pair, but tuple",
        ),
        (lambda: Calls(["ab"]), "item 0 is no such pair, but str"),
        (lambda: Raw(b"{}"), r"list of chunks, got bytes; .*Raw\.body"),
        (lambda: ScriptedBackend(3), "a step is text.*got int"),
        (lambda: ScriptedBackend("One.").then(None), "a step is text.*got NoneType"),
        (lambda: ScriptedBackend(["One.", "Two."]), r"got list: .*ScriptedBackend\(\*steps\)"),
        (lambda: ScriptedBackend(b"{}"), r"got bytes: .*Raw\.body"),
        (lambda: ScriptedBackend(OSError), r"got the class OSError: pass OSError\("),
    ],
)
def test_a_mistake_in_a_script_is_refused_where_it_is_written(make: Any, words: str) -> None:
    """Not at the request that comes to it; the text shows the right form."""
    with pytest.raises(TypeError, match=words):
        make()


@pytest.mark.parametrize("pairs", [[], (), [("charge", {"euros": 5})], (["charge", '{"euros":5}'],)])
def test_calls_are_pairs_in_any_sequence(pairs: Any) -> None:
    """Lists and tuples, in and out; arguments are a mapping or JSON text."""
    assert Calls(pairs).calls is pairs


def test_a_mistake_in_a_function_of_a_script_is_no_outage(face: Any) -> None:
    """It reaches the test as what it is, with its own traceback; a provider has nothing to do with it."""

    def broken(request: Any) -> str:
        return {"hello": "Hi."}[request.model]

    chat = face.chat(ScriptedBackend(broken, max_retries=2))

    with pytest.raises(AssertionError, match="function of request 1 raised AttributeError") as caught:
        chat.chat(user="hello")

    assert isinstance(caught.value.__cause__, AttributeError)


def test_a_function_of_a_script_may_fail_as_a_provider(face: Any) -> None:
    """A `BackendError` that it raises, and any exception that it returns, is a provider's."""

    def down(request: Any) -> str:
        raise BackendError("down")

    for step in (down, lambda request: OSError("down")):
        with pytest.raises(ProviderUnavailableError):
            face.chat(ScriptedBackend(step)).chat(user="hello")


def test_what_a_function_of_a_script_returns_is_an_answer(face: Any) -> None:
    """Nothing else is turned into text: a function without a return would say "None"."""
    with pytest.raises(AssertionError, match=r"request 1 returned what is no answer.*NoneType"):
        face.chat(ScriptedBackend(lambda request: None)).chat(user="hello")


def test_the_simulator_is_a_fixture(sim_server: SimServer) -> None:
    """The fixture gives a running simulator that keeps what it was asked."""
    with Chat(OpenAIChatBackend("sim", base_url=sim_server.base_url, api_key="sim")) as chat:
        result = chat.chat(user="My name is Ada. What is my name?")

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


def _history_of(body: Any) -> list[Any]:
    """The history in a request body of any wire."""
    history: list[Any] = body["input"] if "input" in body else body["messages"]
    return history


@pytest.mark.parametrize("wire", WIRES)
def test_scripted_calls_are_stored_alike_streamed_or_not(wire: str, face: Any) -> None:
    """A stream is the same reply in pieces: what is stored and sent back is the same, on every wire."""

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    for text, reasoning in (("", ""), ("Let me see.", ""), ("Let me see.", "They want eight.")):
        stored = []
        for listener in (None, lambda event: None):
            calls = Calls([("double", {"number": 4}), ("double", '{"number": 5}')], text, reasoning=reasoning)
            backend = ScriptedBackend(calls, "8", wire=wire)
            face.chat(backend, tools=[double]).chat(user="double 4", on_event=listener)
            stored.append(_history_of(backend.bodies()[1]))
            assert bool(backend.requests[0].stream) is (listener is not None)

        assert stored[0] == stored[1]
        assert check_history(wire, stored[0]) == []
        written = json.dumps(stored[0])
        assert text in written
        assert reasoning in written


@pytest.mark.parametrize("wire", WIRES)
def test_a_script_is_a_conversation_on_every_wire(wire: str, face: Any) -> None:
    """Text, calls, reasoning and a failure are steps on each wire, and its state belongs to that wire."""

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    backend = ScriptedBackend(
        Calls([("double", {"number": 4})], reasoning="Twice four."), "It is 8.", wire=wire
    )
    backend.then(BackendError("down"), Calls([], "Hello again.", reasoning="They are back."))
    chat = face.chat(backend, tools=[double])

    first = chat.chat_with_state(None, user="double 4")
    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat_with_state(first.state, user="hello?")
    last = chat.resume(caught.value.state)

    assert (first.text, last.text) == ("It is 8.", "Hello again.")
    assert [record.result for record in first.tool_log] == ["8"]
    assert inspect_state(last.state).wire == wire
    spoken = [m for m in read_history(last.state).all_messages() if m.role == "assistant"]
    assert [message.reasoning for message in spoken] == ["Twice four.", "", "They are back."]


@pytest.mark.parametrize("wire", WIRES)
def test_each_scripted_text_is_streamed_word_by_word(wire: str, face: Any) -> None:
    """A scripted reply arrives as deltas of text and of reasoning on each wire."""
    chat = face.chat(ScriptedBackend(Calls([], "one two three", reasoning="a b"), wire=wire))

    events = list(chat.start(None, user="go"))

    assert [event.text for event in events if isinstance(event, TextDelta)] == ["one ", "two ", "three"]
    assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["a ", "b"]


def test_an_unknown_wire_is_named_with_those_that_there_are() -> None:
    """A wire that no script can speak is a ValueError that lists the others and says what to do."""
    with pytest.raises(ValueError, match="openai, openai-responses, anthropic, and dialect= takes your own"):
        ScriptedBackend(wire="smoke-signals")


class _Telegraph:
    """The Chat Completions dialect under another name: a third party's wire."""

    wire = "telegraph"
    family = "telegraph"

    def __getattr__(self, name: str) -> Any:
        return getattr(OpenAIChatDialect("telegraph"), name)


def test_a_wire_of_your_own_is_scripted_with_its_shape(face: Any) -> None:
    """`dialect` takes a third party's wire; `shape` says how text and calls look there."""
    dialect: Any = _Telegraph()
    backend = ScriptedBackend("STOP.", dialect=dialect, shape=SHAPES["openai"])

    result = face.chat(backend).chat(user="hello")

    assert result.text == "STOP."
    assert inspect_state(result.state).wire == "telegraph"


def test_a_wire_of_your_own_without_a_shape_takes_raw_bodies_only(face: Any) -> None:
    """Without a shape nothing is made up: `Raw` goes out as it is, text is an error that says why."""
    dialect: Any = _Telegraph()
    body = b'{"choices":[{"message":{"role":"assistant","content":"raw"},"finish_reason":"stop"}]}'
    chat = face.chat(ScriptedBackend(Raw.body(body), "text", dialect=dialect))

    assert chat.chat(user="hello").text == "raw"
    with pytest.raises(AssertionError, match="no shape for text and Calls; pass shape="):
        chat.chat(user="hello")


def test_arguments_that_are_no_json_are_scripted_on_every_wire(face: Any) -> None:
    """A model that writes broken arguments can be played: the chat answers the call with an error."""

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    for wire in WIRES:
        for listener in (None, lambda event: None):
            backend = ScriptedBackend(Calls([("double", '{"number": 4')]), "Sorry.", wire=wire)
            result = face.chat(backend, tools=[double]).chat(user="double 4", on_event=listener)

            assert [record.flag for record in result.tool_log] == ["error"]
            assert result.text == "Sorry."
