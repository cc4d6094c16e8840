"""Questions of a server to the user wait in the state, and are answered in whatever process goes on."""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp_types import ElicitRequestFormParams, ElicitResult

from goaitools_py import Approve, AsyncChat, Chat, Deny, PendingCall
from goaitools_py.frontends import AISDK, PLAIN_JSON
from goaitools_py.mcp import MCPTools
from goaitools_py.mcp.elicitation import CallQuestions, ServerQuestions
from goaitools_py.states import pending_calls, read_history, redact_state
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.tools import ToolContext, ToolReturn, Waiting
from goaitools_py.types.answers import pending_inside

from . import _server

SERVER = Path(_server.__file__)
PAINT = Calls([("paint", {"thing": "door"})])
TRANSPORTS = ["stdio", "stdio, old protocol", "http", "http, old protocol", "sse"]


@pytest.fixture(params=TRANSPORTS)
def painter(request: pytest.FixtureRequest) -> Any:
    """Makes the tools of a server, each time over a connection of its own."""
    kind, _, old = str(request.param).partition(", ")
    mode: Any = {"mode": "legacy"} if old else {}
    if kind == "stdio":
        program = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
        return lambda: MCPTools(Client(program, **mode), timeout=600)
    if kind == "http":
        url = request.getfixturevalue("url")
        return lambda: MCPTools(Client(url, **mode), timeout=600)
    return lambda: MCPTools(request.getfixturevalue("sse_url"), transport="sse", timeout=600)


class Again:
    """The parameters of a question."""

    mode = "form"
    message = "Again?"
    requested_schema: ClassVar[Any] = {"properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}


class Talk:
    """A conversation whose every step has a connection of its own, as in another process."""

    def __init__(self, color: str, painter: Any, *steps: Any) -> None:
        self._is_sync = color == "sync"
        self._painter = painter
        self._backend = ScriptedBackend(*steps)
        self.state = b""
        self.pending: tuple[PendingCall, ...] = ()

    def say(self, text: str, **options: Any) -> Any:
        """Say something."""
        return self._do("chat_with_state", user=text, **options)

    def answer(self, *answers: Any) -> Any:
        """Answer the calls that wait, in their order."""
        given = {call.id: one for call, one in zip(self.pending, answers, strict=True)}
        return self._do("resume", given)

    def _do(self, name: str, *args: Any, **fields: Any) -> Any:
        if self._is_sync:
            with self._painter() as tools, Chat(self._backend, tools=[*tools]) as chat:
                result = getattr(chat, name)(self.state, *args, **fields)
        else:
            result = asyncio.run(self._do_async(name, *args, **fields))
        self.state, self.pending = result.state, result.pending
        return result

    async def _do_async(self, name: str, *args: Any, **fields: Any) -> Any:
        async with self._painter() as tools, AsyncChat(self._backend, tools=[*tools]) as chat:
            return await getattr(chat, name)(self.state, *args, **fields)

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The questions that wait."""
        assert {(call.name, call.reason) for call in self.pending} <= {("elicitation", "external")}
        return [json.loads(call.arguments) for call in self.pending]

    @property
    def result(self) -> str:
        """What the model has read of the call."""
        messages = read_history(self.state).all_messages()
        return next(message.text for message in messages if message.role == "tool")


@pytest.fixture(params=["sync", "async"])
def color(request: pytest.FixtureRequest) -> str:
    """Which chat runs the turns."""
    return str(request.param)


def test_questions_wait_in_the_state_until_all_are_answered(color: str, painter: Any) -> None:
    """One by one, each step over a new connection; earlier answers are not asked for again."""
    talk = Talk(color, painter, PAINT, "Done.")

    assert talk.say("Paint.").status == "awaiting_tools"
    (first,) = talk.asked
    assert (first["tool"], first["message"]) == ("paint", "Which colour for the door?")
    assert first["schema"]["required"] == ["colour"]
    assert talk.answer(ToolReturn({"colour": "red", "count": 2})).status == "awaiting_tools"
    (second,) = talk.asked
    assert second["message"] == "Are you sure?"

    assert talk.answer(ToolReturn({"sure": True})).text == "Done."
    assert talk.result == "painted door red x2, accept"


@pytest.mark.parametrize(
    ("answers", "result"),
    [
        ([Deny("No.")], "not painted (decline)"),
        ([ToolReturn("away", is_error=True)], "not painted (decline)"),
        ([Approve({"colour": "blue"}), Deny("No.")], "painted door blue x1, decline"),
        ([ToolReturn('{"colour": "blue"}'), Approve({"sure": False})], "painted door blue x1, accept"),
    ],
    ids=["denied", "an error", "the second one denied", "JSON text"],
)
def test_an_answer_may_be_given_in_several_ways(answers: list[Any], result: str) -> None:
    talk = Talk("sync", lambda: MCPTools(_server.server), PAINT, "Done.")
    talk.say("Paint.")
    for answer in answers:
        last = talk.answer(answer)

    assert (last.text, talk.result) == ("Done.", result)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({}, "the answer lacks colour"),
        ("red", "the answer lacks colour"),
        ({"colour": 5}, "colour must be of the type string"),
        ({"colour": "red", "count": True}, "count must be of the type integer"),
        ({"colour": "red", "count": "2"}, "count must be of the type integer"),
        ({"colour": "red", "secret": "x"}, "members that the form does not have"),
    ],
)
def test_an_answer_that_does_not_fit_the_form_is_asked_for_again(content: Any, problem: str) -> None:
    """The server never sees it; the question says what is wrong, and quotes nothing of the answer."""
    talk = Talk("sync", lambda: MCPTools(_server.server), PAINT, "Done.")
    talk.say("Paint.")
    assert talk.answer(ToolReturn(content)).status == "awaiting_tools"
    assert problem in talk.asked[0]["problem"]
    assert talk.asked[0]["message"] == "Which colour for the door?"

    talk.answer(ToolReturn({"colour": "red"}))
    assert talk.asked[0]["message"] == "Are you sure?"


@pytest.mark.parametrize(
    ("wanted", "good", "bad", "problem"),
    [
        ({"type": "integer", "minimum": 3}, 3, 2, "does not keep to minimum, which is 3"),
        ({"type": "number", "maximum": 3}, 3.0, 3.5, "maximum"),
        ({"type": "string", "minLength": 2}, "ab", "a", "minLength"),
        ({"type": "string", "maxLength": 2}, "ab", "abc", "maxLength"),
        ({"type": "array", "minItems": 1}, [1], [], "minItems"),
        ({"type": "array", "maxItems": 1}, [1], [1, 2], "maxItems"),
        ({"type": "string", "enum": ["x"]}, "x", "y", "one of the values"),
        ({"type": "string", "oneOf": [{"const": "x", "title": "X"}]}, "x", "y", "one of the values"),
        ({"type": "array", "items": {"enum": ["x"]}}, ["x"], ["x", "y"], "an item of it must be one of"),
        ({"type": "array", "items": {"anyOf": [{"const": "x"}]}}, ["x"], ["y"], "an item of it must be one"),
        ({"type": ["string", "null"]}, None, 5, "of the type string or null"),
        ({"type": "boolean", "minimum": 5}, True, 1, "of the type boolean"),
    ],
)
def test_an_answer_keeps_to_what_the_form_says_of_a_member(
    wanted: Any, good: Any, bad: Any, problem: str
) -> None:
    """Bounds and choices, too."""
    assert asked_again(wanted, good) is None
    assert problem in str(asked_again(wanted, bad))


@pytest.mark.parametrize(
    "wanted",
    [
        True,
        None,
        {"type": 5},
        {"type": [{}]},
        {"type": "x", "enum": 5},
        {"minimum": "a", "items": 3},
        {"oneOf": [1]},
    ],
)
def test_an_odd_form_allows_everything(wanted: Any) -> None:
    """The server judges what this package does not understand; the question is not lost by it."""
    for value in (5, "a", [1], None, {"a": []}):
        assert asked_again(wanted, value) is None
    assert asked_again({}, 5, properties=None, required=7) == (
        "the answer has 1 members that the form does not have: it has "
    )


def asked_again(wanted: Any, value: Any, **schema: Any) -> str | None:
    """Answer a question with one member. Gives the problem that the question then names, None if it fits."""

    class Params(Again):
        requested_schema: ClassVar[Any] = {"properties": {"it": wanted}, "required": ["it"], **schema}

    first = CallQuestions(ToolContext(deps=None), "ask")
    first.answer(Params())
    with pytest.raises(Waiting) as waits:
        first.check()
    ((id, *_),) = json.loads(waits.value.asks)
    answers = {id: ToolReturn({"it": value})}
    again = CallQuestions(ToolContext(deps=None, answers=answers, _asked=waits.value.asks), "ask")
    if again.answer(Params()) == {"action": "accept", "content": {"it": value}}:
        again.check()
        return None
    with pytest.raises(Waiting) as waits:
        again.check()
    ((_, _, arguments, *_),) = json.loads(waits.value.asks)
    return str(json.loads(arguments)["problem"])


def test_a_new_message_goes_past_a_question() -> None:
    talk = Talk("sync", lambda: MCPTools(_server.server), PAINT, "Something else.")
    talk.say("Paint.")

    assert talk.say("Never mind.", on_pending="deny").text == "Something else."
    assert talk.pending == ()


def test_a_server_may_be_declined_always() -> None:
    talk = Talk("sync", lambda: MCPTools(_server.server, ask=False), PAINT, "Done.")

    assert talk.say("Paint.").text == "Done."
    assert "painted" not in talk.result


def test_a_callback_of_your_client_answers_itself() -> None:
    """Nothing waits then."""

    async def answer(context: Any, params: Any) -> ElicitResult:
        content: Any = {"colour": "green"} if "colour" in params.message else {"sure": True}
        return ElicitResult(action="accept", content=content)

    client = Client(_server.server, elicitation_callback=answer)
    talk = Talk("sync", lambda: MCPTools(client), PAINT, "Done.")

    assert (talk.say("Paint.").text, talk.result) == ("Done.", "painted door green x1, accept")


def test_calls_beside_a_question_run_once(color: str, painter: Any) -> None:
    """The one that waits runs again, the other one does not."""
    talk = Talk(color, painter, Calls([("paint", {"thing": "door"}), ("add", {"a": 1, "b": 2})]), "Done.")
    first = talk.say("Both.")
    if first.status == "awaiting_tools":  # an older protocol does not say whose question it is
        talk.answer(ToolReturn({"colour": "red"}))
        talk.answer(ToolReturn({"sure": True}))

    results = [m.text for m in read_history(talk.state).all_messages() if m.role == "tool"]
    assert results[0] in ("painted door red x1, accept", "not painted (decline)")
    assert results[1:] == ["3"]


def test_a_question_that_may_be_of_several_calls_is_declined(caplog: pytest.LogCaptureFixture) -> None:
    """Older protocols do not say whose it is; nobody gets the answer to another call's question."""

    async def main() -> list[Any]:
        questions = ServerQuestions()

        async def asked() -> Any:
            task = asyncio.create_task(questions.answer(None, Again()), context=contextvars.Context())
            return (await task).action

        with questions.of(ToolContext(deps=None, call_id="c1"), "one") as one:
            alone = await asked()
            with questions.of(ToolContext(deps=None, call_id="c2"), "two") as two:
                both, own = await asked(), (await questions.answer(None, Again())).action
            two_waits, one_waits = [raises(call.check) for call in (two, one)]
        return [alone, both, own, two_waits, one_waits, await asked()]

    with caplog.at_level("WARNING", logger="goaitools_py"):
        assert asyncio.run(main()) == ["cancel", "decline", "cancel", True, True, "decline"]
    assert [record.event for record in caplog.records] == ["mcp.declined"] * 2  # type: ignore[attr-defined]


def raises(check: Any) -> bool:
    try:
        check()
    except Waiting:
        return True
    return False


# ------------------------------------------------------------------------------------ what is around it


def test_front_ends_show_the_question_and_take_the_answer() -> None:
    talk = Talk("sync", lambda: MCPTools(_server.server), PAINT, "Done.")
    talk.say("Paint.")
    (call,) = talk.pending
    how: Any = {"conversation_id": "hall", "pending": talk.pending}
    part = AISDK.history(read_history(talk.state), **how)[-1]["parts"][-1]
    assert (part["toolName"], part["state"], part["toolCallId"]) == (
        "elicitation",
        "input-available",
        call.id,
    )
    assert part["input"]["message"] == "Which colour for the door?"

    body = json.dumps({"answers": {call.id: {"return": {"colour": "red"}}}}).encode()
    given = PLAIN_JSON.read(body).answers_to(talk.pending)
    assert given == {call.id: ToolReturn({"colour": "red"})}
    done = {**part, "state": "output-available", "output": {"colour": "red"}}
    shown = {"id": "hall", "messages": [{"id": "a", "role": "assistant", "parts": [done]}]}
    assert AISDK.read(json.dumps(shown).encode()).answers_to(talk.pending) == given


def test_a_question_and_earlier_answers_are_redacted() -> None:
    talk = Talk("sync", lambda: MCPTools(_server.server), PAINT, "Done.")
    talk.say("Paint.")
    talk.answer(ToolReturn({"colour": "Harrogate"}))
    assert "Harrogate" in talk.pending[0].arguments

    def secrets(text: str) -> list[tuple[int, int]]:
        return [found.span() for found in re.finditer("Harrogate", text)]

    (call,) = pending_calls(redact_state(talk.state, secrets).state)
    assert "Harrogate" not in call.arguments
    assert json.loads(call.arguments)["message"] == "Are you sure?"


def test_the_same_question_twice_in_one_call_is_two_questions() -> None:
    """Each has its own answer."""

    asks = ""
    answers: dict[str, Any] = {}
    heard: list[Any] = []
    for _ in range(3):
        questions = CallQuestions(ToolContext(deps=None, answers=answers, _asked=asks), "loop")
        heard = [questions.answer(Again()) for _ in range(2)]
        try:
            questions.check()
        except Waiting as waiting:
            asks = waiting.asks
            answers = {json.loads(asks)[0][0]: ToolReturn({"yes": not answers})}

    assert heard == [
        {"action": "accept", "content": {"yes": True}},
        {"action": "accept", "content": {"yes": False}},
    ]


def test_a_url_is_agreed_to_or_not() -> None:
    class Params:
        mode = "url"
        message = "Sign in."
        url = "https://example.com/login"

    first = CallQuestions(ToolContext(deps=None), "login")
    assert first.answer(Params()) == {"action": "cancel"}
    with pytest.raises(Waiting) as waiting:
        first.check()
    ((id, name, arguments, reason, _),) = json.loads(waiting.value.asks)
    assert (name, reason, json.loads(arguments)["url"]) == ("elicitation", "external", Params.url)

    again = CallQuestions(ToolContext(deps=None, answers={id: ToolReturn(None)}), "login")
    assert again.answer(Params()) == {"action": "accept"}


@pytest.mark.parametrize(
    ("server", "named"),
    [
        ("https://user:canary@desk.example.com:8443/mcp?key=canary", "desk.example.com:8443"),
        (StdioServerParameters(command="npx", args=["--key", "canary"]), "npx"),
        (_server.server, None),
    ],
)
def test_a_question_names_its_server(server: Any, named: str | None) -> None:
    """The host or the program, and nothing that may hold a key."""
    call = CallQuestions(ToolContext(deps=None), "ask", MCPTools(server)._questions._server)
    params = ElicitRequestFormParams(message="Who?", requested_schema={"type": "object", "properties": {}})

    assert call.answer(params) == {"action": "cancel"}
    with pytest.raises(Waiting) as waits:
        call.check()

    (asked,) = pending_inside("c", waits.value.asks)
    assert asked.parsed.get("server") == named
    assert "canary" not in asked.arguments
