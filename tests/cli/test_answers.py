"""`/answer` in `goaitools chat`: results of external calls, and questions of MCP servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import pytest

from goaitools_py import Chat, Tool
from goaitools_py.cli.chat_input import is_address, question_lines, typed_answer
from goaitools_py.cli.line_chat import LineChat
from goaitools_py.stores import SQLiteStore
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.answers import PendingCall

SEAT = {
    "type": "object",
    "properties": {
        "row": {"type": "integer"},
        "side": {"type": "string", "enum": ["left", "right"]},
        "name": {"type": "string"},
    },
    "required": ["row", "side"],
}
ASK = Tool("ask_a_human", "Ask the support team.", {"type": "object", "properties": {}}, external=True)


@pytest.fixture
def store() -> Iterator[SQLiteStore]:
    """An empty store in memory."""
    with SQLiteStore(":memory:") as made:
        yield made


def question(**asked: Any) -> PendingCall:
    """A server's question."""
    arguments = json.dumps({"tool": "book", "message": "Which seat?", **asked})
    return PendingCall(id="c/1", name="elicitation", arguments=arguments, reason="external")


def test_a_question_is_shown_with_its_form() -> None:
    """Who asks, what, each member, and what was wrong with the last answer. Nothing acts on the terminal."""
    call = question(schema=SEAT, server="127.0.0.1:8000", problem="row must be \x1b[2Jof the type integer")

    lines = list(question_lines(call))

    assert lines[:2] == [
        "  127.0.0.1:8000 asks: Which seat?",
        "  form: row (integer), side (string; one of left, right), name (string; optional)",
    ]
    assert lines[2].startswith("  the last answer: row must be")
    assert "\x1b" not in lines[2]
    assert list(question_lines(question(url="https://example.com/pay"))) == [
        "  asks: Which seat?",
        "  address: https://example.com/pay",
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("row=3 side=left", {"row": 3, "side": "left"}),
        ("row=3 side=left name='Ada Lovelace'", {"row": 3, "side": "left", "name": "Ada Lovelace"}),
        ('{"row": 3, "side": "left"}', {"row": 3, "side": "left"}),
        ("row=three", {"row": "three"}),
    ],
)
def test_a_form_takes_names_and_values(text: str, value: Any) -> None:
    """Numbers are numbers. What does not fit the form is refused by the form, and asked for again."""
    assert typed_answer(question(schema=SEAT), text) == value


def test_a_form_with_one_member_takes_the_value_alone() -> None:
    """`/answer 3`."""
    form = {"type": "object", "properties": {"row": {"type": "integer"}}}

    assert typed_answer(question(schema=form), "3") == {"row": 3}
    assert typed_answer(question(schema=form), "row=3") == {"row": 3}


@pytest.mark.parametrize("text", ["left", "row 3", "seat=3", "side='left"])
def test_what_is_no_answer_to_a_form_is_told_the_form(text: str) -> None:
    """With the names of its members."""
    with pytest.raises(ValueError, match="a form: /answer row=VALUE side=VALUE name=VALUE"):
        typed_answer(question(schema=SEAT), text)
    with pytest.raises(ValueError, match="This is no JSON"):
        typed_answer(question(schema=SEAT), "{row: 3}")


@pytest.mark.parametrize(
    "call",
    [
        PendingCall(id="c", name="ask_a_human", arguments="{}", reason="external"),
        PendingCall(id="c", name="elicitation", arguments="{}", reason="external"),
        PendingCall(id="c", name="elicitation", arguments="not json", reason="external"),
        PendingCall(id="c", name="elicitation", arguments="[]", reason="external"),
        PendingCall(id="c", name="elicitation", arguments='{"message": "x", "url": "y"}', reason="approval"),
    ],
)
def test_another_call_takes_the_text(call: PendingCall) -> None:
    """A tool of the user's own may have any name and any arguments."""
    assert list(question_lines(call)) == []
    assert not is_address(call)
    assert typed_answer(call, "row=3 it is") == "row=3 it is"


def test_answer_gives_the_result_of_an_external_call(
    store: SQLiteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines say so; without such a call nothing happens."""
    script = ScriptedBackend(Calls([("ask_a_human", {})]), "They say yes.")

    code = LineChat(Chat(script, tools=[ASK]), store, "ada").run(
        ["/answer x", "Ask.", "/answer it is fine", "/answer y"]
    )

    out, err = capsys.readouterr()
    assert (code, out.strip()) == (0, "They say yes.")
    assert err.count("No call waits for a result.") == 2
    assert "/answer TEXT gives the first result that is waited for" in err
    assert b"it is fine" in script.requests[1].body


def test_answer_answers_a_server(store: SQLiteStore, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong value is asked for again; the server gets the right one."""
    pytest.importorskip("mcp")
    from mcp.server.mcpserver import Elicit, MCPServer, Resolve
    from pydantic import create_model

    from goaitools_py.mcp import MCPTools

    seat: Any = create_model("Seat", row=(int, ...))
    server = MCPServer("tests", log_level="CRITICAL")

    def which_seat(show: str) -> Any:
        return Elicit(f"Which row for {show}?", seat)

    which_seat.__annotations__["return"] = Elicit[seat]

    def book(show: str, seat: Any) -> str:
        """Book a seat."""
        return f"{show}: row {seat.row}"

    book.__annotations__.update(show=str, seat=Annotated[seat, Resolve(which_seat)])
    which_seat.__annotations__["show"] = str
    book.__annotations__["return"] = str
    server.tool()(book)
    script = ScriptedBackend(Calls([("book", {"show": "Hamlet"})]), "You have a seat.")

    with MCPTools(server, approve="none") as tools, Chat(script, tools=[*tools]) as chat:
        code = LineChat(chat, store, "ada").run(["Book Hamlet.", "/answer row=three", "/answer row=3"])

    out, err = capsys.readouterr()
    assert (code, out.strip()) == (0, "You have a seat.")
    assert "asks: Which row for Hamlet?" in err
    assert "form: row (integer)" in err
    assert "the last answer: row must be of the type integer" in err
    assert b"Hamlet: row 3" in script.requests[1].body


def test_approve_says_that_an_address_was_visited() -> None:
    """A question with an address has no form."""
    assert is_address(question(url="https://example.com/pay"))
    assert not is_address(question(schema=SEAT))
