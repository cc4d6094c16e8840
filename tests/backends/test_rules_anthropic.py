"""Facts about the rules of the Anthropic wire: what its server takes has no problems, what it refuses has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py.backends.dialects import WIRES
from goaitools_py.testing import check_history

JSON = dict[str, Any]


def check(messages: list[Any], **options: Any) -> list[str]:
    return check_history("anthropic", messages, **options)


def user(*blocks: Any) -> JSON:
    return {"role": "user", "content": list(blocks)}


def said(*blocks: Any) -> JSON:
    return {"role": "assistant", "content": list(blocks)}


def text(words: Any = "words") -> JSON:
    return {"type": "text", "text": words}


def call(id: Any, **more: Any) -> JSON:
    return {"type": "tool_use", "id": id, "name": "look", "input": {}} | more


def result(id: Any, **more: Any) -> JSON:
    return {"type": "tool_result", "tool_use_id": id} | more


def hosted(id: str) -> JSON:
    return {"type": "server_tool_use", "id": id, "name": "web_search", "input": {}}


def found(id: str) -> JSON:
    return {"type": "web_search_tool_result", "tool_use_id": id, "content": []}


THOUGHT = {"type": "thinking", "thinking": "", "signature": "s"}
ASK, SAY = user(text()), said(text())
SYSTEM = {"role": "system", "content": [text()]}

# ------------------------------------------------------------------------------------------------ accepted

ACCEPTED: dict[str, list[JSON]] = {
    "nothing": [],
    "a question": [ASK],
    "strings": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, ASK],
    "several of one role": [ASK, ASK, SAY, SAY, ASK],
    "an answer first": [SAY, ASK],
    "system after a question": [ASK, SYSTEM, SAY, ASK],
    "a call and its result": [ASK, said(text(), call("a")), user(result("a")), SAY],
    "two calls": [
        ASK,
        said(call("a"), call("b")),
        user(result("b"), result("a", content=[text()], is_error=True)),
        SAY,
    ],
    "a toolset's call": [
        ASK,
        said(call("a", toolset_name="computer"), call("b", toolset_name=None)),
        user(result("a", toolset_name="computer"), result("b")),
    ],
    "words behind results": [ASK, said(call("a")), user(result("a"), text())],
    "a question behind results": [ASK, said(call("a")), user(result("a")), ASK, SAY],
    "a second answer before the results": [
        ASK,
        said(call("a")),
        said(call("b")),
        user(result("a"), result("b")),
    ],
    "system behind results": [ASK, said(call("a")), user(result("a")), SYSTEM, SAY],
    "thinking first": [ASK, said(THOUGHT, call("a")), user(result("a")), said(THOUGHT, text())],
    "thinking between": [ASK, said(text(), THOUGHT, text())],
    "results without content": [ASK, said(call("a")), user(result("a", content=[]))],
    "a hosted call and its result": [ASK, said(hosted("h"), found("h"), text()), ASK],
    "a result after a pause": [ASK, said(hosted("h")), said(found("h"), text()), ASK],
    "a hosted result after the caller's": [
        ASK,
        said(hosted("h"), call("a")),
        user(result("a")),
        said(found("h"), text()),
        ASK,
    ],
    "white space beside a call": [ASK, said(text(" "), call("a")), user(result("a"))],
    "white space beside words": [user(text("\n"), text())],
    "unknown blocks": [user({"type": "brand_new"}), said({"type": "brand_new", "id": "x"}), ASK],
}


@pytest.mark.parametrize("messages", ACCEPTED.values(), ids=ACCEPTED)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_what_the_server_takes_has_no_problems(messages: list[JSON], *, as_bytes: bool) -> None:
    """As parsed messages and as raw bytes."""
    given: list[Any] = [json.dumps(one).encode() for one in messages] if as_bytes else messages

    assert check(given) == []


# ------------------------------------------------------------------------------------------------- refused

REFUSED: dict[str, tuple[list[Any], str]] = {
    "no object": ([7], "must be a JSON object"),
    "no JSON": ([b"{"], "must be a JSON object"),
    "no role": ([{"content": "x"}], "role must be one of user, assistant, system"),
    "another wire's role": ([{"role": "tool", "content": "x"}], "role must be"),
    "a role of another type": ([{"role": ["user"], "content": "x"}], "role must be"),
    "no content": ([{"role": "user"}], "content must be a string or an array"),
    "an empty string": ([{"role": "user", "content": ""}], "not white space"),
    "an empty array": ([user()], "must not be an empty array"),
    "a block without a type": ([user({"text": "x"})], "each block"),
    "a block that is none": ([user("x")], "each block"),
    "an empty text": ([user(text(""), text())], "must not be empty"),
    "a text that is none": ([user(text(7))], "must be a string"),
    "white space": ([user(text(" "), text("\n"))], "not white space"),
    "thinking last": ([ASK, said(text(), THOUGHT)], "cannot be thinking"),
    "a call of the user's": ([user(call("a"))], "only an assistant message holds a tool_use"),
    "a call without an id": ([said(call(None))], "needs an id and a name"),
    "a call without a name": ([said(call("a", name=""))], "needs an id and a name"),
    "an input that is none": ([said(call("a", input="{}"))], "must be an object"),
    "a result of the assistant's": ([said(result("a"))], "only a user message holds a tool_result"),
    "a result without an id": ([user(result(None))], "needs a tool_use_id"),
    "an empty text in a result": (
        [said(call("a")), user(result("a", content=[text("")]))],
        "must not be empty",
    ),
    "a result of another type": (
        [said(call("a")), user(result("a", content=7))],
        "the content of a tool_result must be a string or an array",
    ),
    "a toolset's result without its name": (
        [said(call("a", toolset_name="computer")), user(result("a"))],
        "the result of call 'a' needs the call's toolset_name",
    ),
    "a result with a toolset's name": (
        [said(call("a")), user(result("a", toolset_name="computer"))],
        "the result of call 'a' needs the call's toolset_name",
    ),
    "an error without content": (
        [said(call("a")), user(result("a", is_error=True))],
        "with is_error must not be empty",
    ),
    "an empty error": ([said(call("a")), user(result("a", is_error=True, content=""))], "must not be empty"),
    "an error with a picture": (
        [said(call("a")), user(result("a", is_error=True, content=[text(), {"type": "image"}]))],
        "with is_error holds text only",
    ),
    "no results": ([ASK, said(call("a")), ASK], "stands before the results of messages[1]'s calls 'a'"),
    "half of the results": ([said(call("a"), call("b")), user(result("a"))], "calls 'b'"),
    "results in two messages": (
        [said(call("a"), call("b")), user(result("a")), user(result("b"))],
        "calls 'b'",
    ),
    "words before results": ([said(call("a")), user(text(), result("a"))], "must stand before all else"),
    "a result twice": ([said(call("a")), user(result("a"), result("a"))], "answers call 'a' again"),
    "a result of nothing": ([ASK, user(result("a"))], "did not make"),
    "a result too late": ([said(call("a")), user(result("a")), SAY, user(result("a"))], "did not make"),
    "system before results": ([said(call("a")), SYSTEM, user(result("a"))], "stands before the results"),
    "one id twice": ([said(call("a"), call("a")), user(result("a"))], "two calls have the id 'a'"),
    "an id again": (
        [said(call("a")), user(result("a")), said(call("a")), user(result("a"))],
        "call id reused: 'a' is a call of messages[0] too",
    ),
    "open at the end": ([ASK, said(call("a"))], "ends before the results of messages[1]'s calls 'a'"),
    "a hosted call left open": ([said(hosted("h")), ASK], "hosted calls 'h'"),
    "a hosted call open at the end": ([said(hosted("h"))], "ends before the results"),
    "another's hosted result": ([said(hosted("h"), found("i")), ASK], "hosted calls 'h'"),
}


@pytest.mark.parametrize(("messages", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_the_server_refuses_is_a_problem(messages: list[Any], problem: str) -> None:
    """The sentence names what is wrong, and no content."""
    problems = check(messages)

    assert any(problem in one for one in problems), problems
    assert not any("words" in one for one in problems)


def test_open_calls_may_wait_in_the_middle_of_a_turn() -> None:
    """The caller's own and a paused reply's."""
    assert check([ASK, said(call("a"))], open_end=True) == []
    assert check([ASK, said(hosted("h"))], open_end=True) == []


def test_calls_from_before_are_known() -> None:
    """New entries are checked alone: what was open before them is handed in."""
    assert check([user(result("a"))], open_calls=["a"]) == []
    assert "did not make" in check([user(result("b"))], open_calls=["a"])[0]
    assert "an earlier message's calls 'a'" in check([ASK], open_calls=["a"])[0]


def test_reused_ids_of_an_imported_history_are_no_problem() -> None:
    """A server took them, so they may stand."""
    reused = [said(call("a")), user(result("a")), said(call("a")), user(result("a"))]

    assert check(reused, unique_ids=False) == []


def test_the_wire_is_known_by_its_name() -> None:
    """As states and backends spell it."""
    assert "anthropic" in WIRES
