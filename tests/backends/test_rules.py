"""Facts about the rules of the provider APIs: what a provider takes has no problems, what it refuses has."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from goaitools_py.backends.dialects import WIRES
from goaitools_py.testing import check_history

DATA = Path(os.environ.get("GOAITOOLS_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
JSON = dict[str, Any]


def lines(*path: str) -> list[bytes]:
    file = DATA.joinpath(*path)
    if not file.exists():
        pytest.skip(f"no data at {file}")
    with file.open("rb") as stream:
        return zstandard.ZstdDecompressor().stream_reader(stream).read().splitlines()


# --------------------------------------------------------------------------------------------- vocabulary


def msg(role: str, content: Any = "words", **more: Any) -> JSON:
    return {"role": role, "content": content, **more}


def call(id: Any, **more: Any) -> JSON:
    return {"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}} | more


def calls(*ids: Any) -> JSON:
    return msg("assistant", None, tool_calls=[call(id) for id in ids])


def result(id: Any, **more: Any) -> JSON:
    return msg("tool", tool_call_id=id, **more)


def without(message: JSON, key: str) -> JSON:
    return {k: v for k, v in message.items() if k != key}


SYS, USER, SAY = msg("system"), msg("user"), msg("assistant")

# ------------------------------------------------------------------------------------------------ accepted

ACCEPTED: dict[str, list[JSON]] = {
    "nothing": [],
    "a question": [USER],
    "question and answer": [SYS, USER, SAY, USER],
    "developer": [msg("developer"), USER],
    "system in mid conversation": [USER, SAY, SYS, USER],
    "two users in a row": [USER, USER, SAY, SAY],
    "assistant first": [SAY, USER],
    "empty strings": [msg("user", ""), msg("assistant", ""), msg("system", "")],
    "parts": [msg("user", [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}])],
    "an exchange": [USER, calls("a"), result("a"), SAY],
    "an exchange that ends with its result": [USER, calls("a"), result("a")],
    "parallel calls": [USER, calls("a", "b", "c"), result("a"), result("b"), result("c"), SAY],
    "results in another order": [USER, calls("a", "b"), result("b"), result("a"), SAY],
    "exchange after exchange": [USER, calls("a"), result("a"), calls("b"), result("b"), USER],
    "a user beside the results": [USER, calls("a"), result("a"), USER],
    "text and calls": [USER, msg("assistant", "wait", tool_calls=[call("a")]), result("a")],
    "calls without a content key": [USER, without(calls("a"), "content"), result("a")],
    "calls beside an empty array": [USER, msg("assistant", [], tool_calls=[call("a")]), result("a")],
    "an empty array of calls": [USER, msg("assistant", "text", tool_calls=[]), USER],
    "null calls": [USER, msg("assistant", "text", tool_calls=None, function_call=None, refusal=None), USER],
    "a call without a type": [
        USER,
        msg("assistant", "", tool_calls=[without(call("a"), "type")]),
        result("a"),
    ],
    "a custom call": [
        USER,
        msg(
            "assistant",
            None,
            tool_calls=[{"id": "a", "type": "custom", "custom": {"name": "n", "input": ""}}],
        ),
        result("a"),
    ],
    "arguments that are not JSON": [
        USER,
        msg("assistant", None, tool_calls=[call("a", function={"name": "n", "arguments": "{"})]),
        result("a"),
    ],
    "a result of parts": [USER, calls("a"), result("a", content=[{"type": "text", "text": "x"}])],
    "an empty result": [USER, calls("a"), result("a", content="")],
    "a refusal": [USER, msg("assistant", None, refusal="no"), USER],
    "audio": [USER, {"role": "assistant", "audio": {"id": "au"}}, USER],
    "the old function call": [
        USER,
        msg("assistant", None, function_call={"name": "n", "arguments": "{}"}),
        msg("function", "x", name="n"),
    ],
    "an old function's null": [USER, msg("function", None, name="n")],
    "unknown keys": [USER, msg("assistant", "x", reasoning_content="r", annotations=[]), USER],
}


@pytest.mark.parametrize("history", ACCEPTED.values(), ids=ACCEPTED)
def test_an_accepted_history_has_no_problem(history: list[JSON]) -> None:
    """What OpenAI or a compatible server takes is taken, parsed and as bytes alike."""
    assert check_history("openai", history) == []
    assert check_history("openai", [json.dumps(message).encode() for message in history]) == []


# ------------------------------------------------------------------------------------------------ rejected


def odd_call(**changes: Any) -> list[Any]:
    return [USER, msg("assistant", None, tool_calls=[call("a") | changes]), result("a")]


def function(**changes: Any) -> JSON:
    return {"name": "n", "arguments": "{}"} | changes


# name: (history, index of the message at fault or None for the end, words of the problem)
REJECTED: dict[str, tuple[list[Any], int | None, str]] = {
    # entries and roles
    "not an object": ([USER, "hello"], 1, "must be a JSON object"),
    "null entry": ([None], 0, "must be a JSON object"),
    "array entry": ([[USER]], 0, "must be a JSON object"),
    "no role": ([{"content": "x"}], 0, "role must be one of"),
    "unknown role": ([msg("model")], 0, "role must be one of"),
    "role in capitals": ([msg("User")], 0, "role must be one of"),
    "role is null": ([{"role": None, "content": "x"}], 0, "role must be one of"),
    "role is a list": ([{"role": ["user"], "content": "x"}], 0, "role must be one of"),
    # content
    "user without content": ([{"role": "user"}], 0, "content must be"),
    "user with null": ([msg("user", None)], 0, "content must be"),
    "user with a number": ([msg("user", 5)], 0, "content must be"),
    "user with an object": ([msg("user", {"type": "text"})], 0, "content must be"),
    "user with no parts": ([msg("user", [])], 0, "must not be an empty array"),
    "system without content": ([{"role": "system"}], 0, "content must be"),
    "developer with null": ([msg("developer", None)], 0, "content must be"),
    "part without a type": ([msg("user", [{"text": "x"}])], 0, "each part"),
    "part with an empty type": ([msg("user", [{"type": "", "text": "x"}])], 0, "each part"),
    "part that is a string": ([msg("user", ["x"])], 0, "each part"),
    "second part broken": ([msg("user", [{"type": "text", "text": "x"}, None])], 0, "each part"),
    "assistant with nothing": ([USER, {"role": "assistant"}], 1, "needs content"),
    "assistant with null": ([USER, msg("assistant", None)], 1, "needs content"),
    "assistant with no parts": ([USER, msg("assistant", [])], 1, "needs content"),
    "assistant with no calls": ([USER, msg("assistant", None, tool_calls=[])], 1, "needs content"),
    "assistant with an empty refusal": ([USER, msg("assistant", None, refusal="")], 1, "needs content"),
    "assistant with a number": ([USER, msg("assistant", 1)], 1, "content must be"),
    "assistant with an untyped part": ([USER, msg("assistant", [{}])], 1, "each part"),
    # shapes of calls
    "calls not an array": ([USER, msg("assistant", "x", tool_calls={"id": "a"})], 1, "must be an array"),
    "call not an object": ([USER, msg("assistant", "x", tool_calls=["a"])], 1, "tool_calls[0]: must be"),
    "call without id": (
        [USER, msg("assistant", "x", tool_calls=[without(call("a"), "id")])],
        1,
        "needs an id",
    ),
    "call with empty id": ([USER, calls("")], 1, "needs an id"),
    "call with a number as id": ([USER, calls(7)], 1, "needs an id"),
    "call with a list as id": ([USER, calls([])], 1, "needs an id"),
    "call of an unknown type": (odd_call(type="retrieval"), 1, "type must be"),
    "call with a null type": (odd_call(type=None), 1, "type must be"),
    "call without a function": (odd_call(function=None), 1, "function must be an object"),
    "function without a name": (odd_call(function={"arguments": "{}"}), 1, "needs a name"),
    "function with an empty name": (odd_call(function=function(name="")), 1, "needs a name"),
    "function without arguments": (odd_call(function={"name": "n"}), 1, "arguments must be a string"),
    "arguments as an object": (odd_call(function=function(arguments={})), 1, "arguments must be a string"),
    "custom call as a function": (odd_call(type="custom"), 1, "custom must be an object"),
    "custom call without input": (odd_call(type="custom", custom={"name": "n"}), 1, "input must be a string"),
    "old call without a name": ([USER, msg("assistant", None, function_call={})], 1, "needs a name"),
    "old result without a name": ([USER, msg("function")], 1, "needs a name"),
    "old result without content": ([USER, {"role": "function", "name": "n"}], 1, "string or null"),
    "old result with parts": ([USER, msg("function", [], name="n")], 1, "string or null"),
    "second call broken": (
        [
            USER,
            msg("assistant", None, tool_calls=[call("a"), call("b", function={})]),
            result("a"),
            result("b"),
        ],
        1,
        "tool_calls[1]: ",
    ),
    # shapes of results
    "result without id": ([USER, calls("a"), msg("tool"), result("a")], 2, "needs a tool_call_id"),
    "result with null id": ([USER, calls("a"), result(None), result("a")], 2, "needs a tool_call_id"),
    "result with a list as id": ([USER, calls("a"), result([]), result("a")], 2, "needs a tool_call_id"),
    "result without content": ([USER, calls("a"), without(result("a"), "content")], 2, "content must be"),
    "result with null": ([USER, calls("a"), result("a", content=None)], 2, "content must be"),
    "result with an object": ([USER, calls("a"), result("a", content={})], 2, "content must be"),
    # pairing
    "result first": ([result("a"), USER], 0, "no message directly before it made"),
    "result after system": ([SYS, result("a"), USER], 1, "no message directly before it made"),
    "result without a call": ([USER, SAY, result("a")], 2, "no message directly before it made"),
    "result for another id": ([USER, calls("a"), result("b"), result("a")], 2, "no message directly before"),
    "result twice": ([USER, calls("a"), result("a"), result("a"), SAY], 3, "again"),
    "result again after the answer": (
        [USER, calls("a"), result("a"), SAY, result("a")],
        4,
        "no message directly",
    ),
    "result before its call": ([USER, result("a"), calls("a")], 1, "no message directly before it made"),
    "result after a user": (
        [USER, calls("a"), USER, result("a")],
        2,
        "before the results of messages[1]'s calls",
    ),
    "no result": ([USER, calls("a"), SAY], 2, "stands before the results"),
    "no result, then a user": ([USER, calls("a"), USER], 2, "stands before the results"),
    "no result, then a system message": (
        [USER, calls("a"), SYS, result("a")],
        2,
        "stands before the results",
    ),
    "no result, then other calls": (
        [USER, calls("a"), calls("b"), result("b")],
        2,
        "stands before the results",
    ),
    "half the results": ([USER, calls("a", "b"), result("a"), SAY], 3, "stands before the results"),
    "results torn apart": ([USER, calls("a", "b"), result("a"), USER, result("b")], 3, "calls 'b'"),
    "no result, then rubbish": ([USER, calls("a"), 5], 2, "stands before the results"),
    "two calls with one id": ([USER, calls("a", "a"), result("a")], 1, "two calls have the id 'a'"),
    "id reused": ([USER, calls("a"), result("a"), calls("a"), result("a")], 3, "call id reused: 'a'"),
    "id reused later": (
        [USER, calls("a"), result("a"), SAY, USER, calls("b", "a"), result("b"), result("a")],
        5,
        "reused",
    ),
    "open end": ([USER, calls("a")], None, "ends before the results of messages[1]'s calls 'a'"),
    "half open end": (
        [USER, calls("a", "b"), result("b")],
        None,
        "ends before the results of messages[1]'s calls 'a'",
    ),
}


@pytest.mark.parametrize(("history", "index", "words"), REJECTED.values(), ids=REJECTED)
def test_a_rejected_history_is_named_at_its_place(history: list[Any], index: int | None, words: str) -> None:
    """Each thing a provider refuses is a problem that names the message at fault and what is wrong."""
    problems = check_history("openai", history)

    place = "the history" if index is None else f"messages[{index}]: "
    assert any(problem.startswith(place) and words in problem for problem in problems), problems


@pytest.mark.parametrize(("history", "index", "words"), REJECTED.values(), ids=REJECTED)
def test_bytes_and_parsed_entries_have_the_same_problems(
    history: list[Any], index: int | None, words: str
) -> None:
    """It makes no difference whether entries come parsed or as a state holds them."""
    raw = [json.dumps(message).encode() for message in history]

    assert check_history("openai", raw) == check_history("openai", history)


def test_all_problems_are_listed_in_order() -> None:
    """One pass finds every problem, in the order of the messages."""
    history = [msg("user", None), calls("a", "b"), result("x"), result("a"), USER, msg("model")]

    assert [problem.split(":")[0] for problem in check_history("openai", history)] == [
        "messages[0]",
        "messages[2]",
        "messages[4]",
        "messages[5]",
    ]


def test_an_entry_that_is_not_json_is_a_problem() -> None:
    """Bytes that do not parse are a problem of the history, not an exception."""
    assert check_history("openai", [b'{"role":"user"']) == ["messages[0]: must be a JSON object"]


def test_no_content_stands_in_a_problem() -> None:
    """Problems may be logged: they hold indexes and ids, never what was said or called."""
    secret = "s3cret"
    history = [
        msg("user", {"x": secret}),
        msg(secret),
        msg(
            "assistant",
            [secret],
            tool_calls=[call("a", function={"name": "", "arguments": [secret]}), secret],
        ),
        result("b", content={"x": secret}),
        secret.encode(),
    ]

    problems = check_history("openai", history)

    assert len(problems) > 6
    assert secret not in "".join(problems)


# ------------------------------------------------------------------------------------------------- options


def test_an_open_end_may_be_allowed() -> None:
    """In the middle of a turn the last calls wait; everything before them must still be answered."""
    waiting = [USER, calls("a", "b"), result("a")]

    assert check_history("openai", waiting, open_end=True) == []
    assert check_history("openai", [*waiting, USER, calls("c")], open_end=True) != []


def test_new_entries_are_checked_against_the_calls_left_open() -> None:
    """What is new can be checked alone, given the ids that the history before it left open."""
    new = [result("b"), SAY, USER]

    assert check_history("openai", new, open_calls=["b"]) == []
    assert check_history("openai", new) != []
    assert check_history("openai", new, open_calls=["a", "b"]) != []
    assert check_history("openai", [USER], open_calls=["a"]) == [
        "messages[0]: stands before the results of an earlier message's calls 'a'"
    ]


def test_calls_left_open_before_nothing_new_are_an_open_end() -> None:
    """Without new entries, the calls left open are what remains."""
    assert check_history("openai", [], open_calls=["a"]) != []
    assert check_history("openai", [], open_calls=["a"], open_end=True) == []


def test_reused_ids_may_be_allowed() -> None:
    """Reuse between exchanges is the one problem that can be switched off; within a message it stays."""
    reused = [USER, calls("a"), result("a"), calls("a"), result("a")]

    assert len(check_history("openai", reused)) == 1
    assert check_history("openai", reused, unique_ids=False) == []
    assert check_history("openai", [USER, calls("a", "a"), result("a")], unique_ids=False) != []


def test_an_unknown_wire_is_an_error_that_names_the_known_ones() -> None:
    """A wire without rules is a ValueError, never a silent yes."""
    assert "openai" in WIRES
    with pytest.raises(ValueError, match=r"no rules for provider API 'telex'; known are: openai"):
        check_history("telex", [])


# --------------------------------------------------------------------------------------------- real traffic

PAIRING = re.compile(r"tool_call_id|must be followed by tool messages|must be a response to a prece+ding")


def exchanges() -> Iterator[tuple[str, list[JSON], int, JSON]]:
    """Each recorded chat request with what the server said: (where, messages, status, error)."""
    for line in lines("recorded", "openai-chat.jsonl.zst"):
        record = json.loads(line)
        for number, exchange in enumerate(record["exchanges"]):
            messages = exchange["request"]["body"].get("messages")
            if messages is not None:
                body = exchange["response"].get("body")
                error = body.get("error") if isinstance(body, dict) else None
                where = f"{record['id']} exchange {number} at {exchange['request']['host']}"
                yield (
                    where,
                    messages,
                    exchange["response"]["status"],
                    error if isinstance(error, dict) else {},
                )


def test_every_recorded_request_that_a_server_took_has_no_problem() -> None:
    """What OpenAI and the compatible servers answered with 2xx is accepted, reused ids aside."""
    taken = [(where, messages) for where, messages, status, _ in exchanges() if status < 300]

    problems = {where: check_history("openai", messages, unique_ids=False) for where, messages in taken}

    assert problems
    assert {where: found for where, found in problems.items() if found} == {}


def is_about_the_sequence(error: JSON) -> bool:
    """Whether an error is one of shape or pairing; what a certain model cannot do is not."""
    missing = error.get("code") == "missing_required_parameter" and str(error.get("param")).startswith(
        "messages["
    )
    return missing or PAIRING.search(str(error.get("message"))) is not None


def test_every_recorded_refusal_of_the_sequence_is_flagged() -> None:
    """A request refused for a missing piece of a message, or for the pairing of calls, has a problem."""
    refused = [
        (where, messages)
        for where, messages, status, error in exchanges()
        if status == 400 and is_about_the_sequence(error)
    ]

    assert [where for where, messages in refused if not check_history("openai", messages)] == []


@pytest.mark.parametrize(
    "file", ["aider", "mtbench", "mtbench101", "oasst-eval", "sgd", "sweagent", "tau-airline-gpt4o"]
)
def test_every_real_conversation_has_no_problem(file: str) -> None:
    """Real conversations are accepted; OpenAI itself reused call ids in some of them."""
    conversations = [json.loads(line) for line in lines("conversations", f"{file}.jsonl.zst")]

    problems = {c["id"]: check_history("openai", c["messages"], unique_ids=False) for c in conversations}

    assert problems
    assert {name: found for name, found in problems.items() if found} == {}
