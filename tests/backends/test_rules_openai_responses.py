"""Facts about the Responses wire's sequence rules: what a provider takes has no problems, the rest has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py.testing import check_history

JSON = dict[str, Any]
WIRE = "openai-responses"


def msg(role: str, content: Any = "words", **more: Any) -> JSON:
    return {"role": role, "content": content, **more}


def call(id: Any, **more: Any) -> JSON:
    return {"type": "function_call", "call_id": id, "name": "look", "arguments": "{}", **more}


def custom(id: Any, **more: Any) -> JSON:
    return {"type": "custom_tool_call", "call_id": id, "name": "run", "input": "ls", **more}


def output(id: Any, kind: str = "function_call_output", **more: Any) -> JSON:
    return {"type": kind, "call_id": id, "output": "ok", **more}


def without(item: JSON, key: str) -> JSON:
    return {k: v for k, v in item.items() if k != key}


USER, GREET, SYS = msg("user"), msg("assistant"), msg("developer")
SAY = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
THINK = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}
READABLE = {
    "type": "reasoning",
    "id": "rs",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "x"}],
}
SEARCH = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {}}
CUSTOM_OUT = "custom_tool_call_output"

SHELL_OUT = {"type": "shell_call_output", "call_id": "s", "output": []}
SERVERS_SHELL = {"type": "shell_call", "call_id": "s", "environment": {"type": "container_reference"}}
PROVIDER_CALLS: list[Any] = [
    {"type": "computer_call", "id": "cu_1", "call_id": "u", "actions": [], "pending_safety_checks": []},
    {
        "type": "local_shell_call",
        "id": "lsh_1",
        "call_id": "l",
        "action": {"type": "exec", "command": ["ls"]},
    },
    {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}, "environment": {"type": "local"}},
    {"type": "apply_patch_call", "call_id": "p", "operation": {"type": "delete_file", "path": "a"}},
    {"type": "tool_search_call", "call_id": "t", "execution": "client", "arguments": {}},
    {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}", "server_label": "m"},
]
PROVIDER_OUTPUTS: list[Any] = [
    {"type": "computer_call_output", "call_id": "u", "output": {"type": "computer_screenshot"}},
    {"type": "local_shell_call_output", "call_id": "l", "id": "lsh_1", "output": "a"},
    SHELL_OUT,
    {"type": "apply_patch_call_output", "call_id": "p", "status": "completed"},
    {"type": "tool_search_output", "execution": "client", "call_id": "t", "tools": []},
    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False},
]


ACCEPTED: dict[str, list[JSON]] = {
    "nothing": [],
    "a question": [USER],
    "instructions first": [SYS, msg("system"), USER],
    "question and answer": [USER, SAY, USER],
    "instructions in mid conversation": [USER, SAY, SYS, USER],
    "users and answers in a row": [USER, USER, SAY, SAY, GREET],
    "parts": [msg("user", [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}])],
    "typed messages": [msg("user", type="message"), msg("developer", type="message")],
    "an exchange": [USER, call("a"), output("a"), SAY],
    "an exchange that ends with its output": [USER, call("a"), output("a")],
    "parallel calls": [
        USER,
        call("a"),
        call("b"),
        custom("c"),
        output("b"),
        output("c", CUSTOM_OUT),
        output("a"),
    ],
    "exchange after exchange": [USER, call("a"), output("a"), call("b"), output("b"), USER],
    "an answer beside its call": [USER, call("a"), SAY, output("a"), USER],
    "thinking between calls": [USER, THINK, call("a"), THINK, call("b"), output("a"), output("b")],
    "thinking and an answer": [USER, THINK, SAY, USER, THINK, SAY],
    "two thoughts in a row": [USER, THINK, THINK, SAY],
    "thinking and a hosted tool": [USER, THINK, SEARCH, THINK, SAY],
    "thinking and an item of an unknown type": [USER, THINK, {"type": "never_heard_of"}],
    "readable thinking and a message without a type": [USER, READABLE, GREET],
    "an output of parts": [call("a"), output("a", output=[{"type": "input_text", "text": "x"}])],
    "hosted calls without outputs": [
        USER,
        {"type": "shell_call", "call_id": "s", "environment": {"type": "container_reference"}},
        {"type": "tool_search_call", "call_id": None, "execution": "server"},
        SAY,
        USER,
    ],
    "a shell of the server's": [USER, SERVERS_SHELL, {**SHELL_OUT, "id": "so_1"}, SAY, USER],
    "each call of a provider tool with its output": [USER, *PROVIDER_CALLS, *PROVIDER_OUTPUTS, SAY],
    "a provider tool's call beside a function's": [
        call("a"),
        PROVIDER_CALLS[0],
        PROVIDER_OUTPUTS[0],
        output("a"),
    ],
    "a compaction": [{"type": "compaction", "encrypted_content": "x"}, USER],
    "tools for later": [{"type": "additional_tools", "role": "developer", "tools": []}, USER],
}


@pytest.mark.parametrize("history", ACCEPTED.values(), ids=ACCEPTED)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_what_a_provider_takes_has_no_problem(history: list[JSON], as_bytes: bool) -> None:
    """As objects or as raw JSON."""
    given: Any = [json.dumps(item).encode() for item in history] if as_bytes else history

    assert check_history(WIRE, given) == []


REFUSED: dict[str, tuple[list[Any], str]] = {
    **{
        f"a {item['type']} without its output": (
            [USER, item, SAY, USER],
            "messages[3]: stands before the results",
        )
        for item in PROVIDER_CALLS
    },
    **{
        f"a {item['type']} without its call": ([USER, item], "messages[1]: answers call")
        for item in PROVIDER_OUTPUTS
    },
    "a shell's output for a patch": (
        [PROVIDER_CALLS[3], {**SHELL_OUT, "call_id": "p"}],
        "messages[1]: a shell_call_output cannot answer call 'p'",
    ),
    "a patch's output without a status": (
        [PROVIDER_CALLS[3], {"type": "apply_patch_call_output", "call_id": "p"}],
        "messages[1]: status must be completed or failed",
    ),
    "an approval that says nothing": (
        [PROVIDER_CALLS[5], {"type": "mcp_approval_response", "approval_request_id": "mcpr_1"}],
        "messages[1]: approve must be true or false",
    ),
    "a call at the end": (
        [USER, call("a")],
        "the history ends before the results of messages[1]'s calls 'a'",
    ),
    "a user before the output": (
        [call("a"), USER, output("a")],
        "messages[1]: stands before the results of messages[0]'s calls 'a'",
    ),
    "instructions before the output": (
        [call("a"), SYS, output("a")],
        "messages[1]: stands before the results",
    ),
    "a message without a type before the output": (
        [call("a"), GREET, output("a")],
        "messages[1]: stands before the results",
    ),
    "one of two outputs": ([call("a"), call("b"), output("a"), USER], "messages[3]: stands before"),
    "one of two outputs, then an answer": (
        [call("a"), call("b"), output("a"), SAY],
        "messages[3]: stands before",
    ),
    "an output alone": ([USER, output("a")], "messages[1]: answers call 'a', which no item before it made"),
    "an output twice": ([call("a"), output("a"), output("a")], "messages[2]: answers call 'a' again"),
    "an output of the wrong kind": (
        [call("a"), output("a", CUSTOM_OUT)],
        "messages[1]: a custom_tool_call_output cannot answer call 'a'",
    ),
    "the other wrong kind": ([custom("a"), output("a")], "messages[1]: a function_call_output cannot answer"),
    "two calls of one id": ([call("a"), custom("a"), output("a")], "messages[1]: two calls have the id 'a'"),
    "an id used again": (
        [call("a"), output("a"), call("a"), output("a")],
        "messages[2]: call id reused: 'a' is a call of messages[0] too",
    ),
    "thinking at the end": ([USER, THINK], "messages[1]: reasoning without the item that has to follow it"),
    "readable thinking at the end": ([USER, READABLE], "messages[1]: reasoning without"),
    "thinking before a user": ([THINK, USER], "messages[0]: reasoning without"),
    "thinking before instructions": ([THINK, SYS], "messages[0]: reasoning without"),
    "thinking before an output": ([call("a"), THINK, output("a")], "messages[1]: reasoning without"),
    "thinking before a message without a type": ([USER, THINK, GREET], "messages[1]: reasoning without"),
    "two thoughts before a user": ([THINK, THINK, USER], "messages[1]: reasoning without"),
    "no object": ([7], "messages[0]: must be a JSON object with a type or a role"),
    "an empty object": ([{}], "messages[0]: must be a JSON object with a type or a role"),
    "a type that is none": ([{"type": 5, "role": "user"}], "messages[0]: must be a JSON object"),
    "an unknown role": ([msg("tool")], "messages[0]: role must be one of developer, system, user, assistant"),
    "no content": ([{"role": "user"}], "messages[0]: content must be a string or an array of parts"),
    "a part without a type": ([msg("user", [{"text": "x"}])], "messages[0]: each part of content must be"),
    "a part that is a string": ([msg("user", ["x"])], "messages[0]: each part of content must be"),
    "a call without a name": ([call("a", name=""), output("a")], "messages[0]: needs name"),
    "a call without an id": ([without(call("a"), "call_id")], "messages[0]: needs call_id"),
    "arguments as an object": (
        [call("a", arguments={}), output("a")],
        "messages[0]: arguments must be a string",
    ),
    "no input": (
        [without(custom("a"), "input"), output("a", CUSTOM_OUT)],
        "messages[0]: input must be a string",
    ),
    "an output without an id": ([output(None)], "messages[0]: needs call_id"),
    "an output of nothing": ([call("a"), output("a", output=None)], "messages[1]: output must be a string"),
    "thinking without a summary": ([without(THINK, "summary"), SAY], "messages[0]: summary must be an array"),
    "an empty compaction": ([{"type": "compaction"}], "messages[0]: needs encrypted_content"),
}


@pytest.mark.parametrize(("history", "problem"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_what_a_provider_refuses_has_a_problem(history: list[Any], problem: str, as_bytes: bool) -> None:
    """One sentence that names the place and says what is wrong."""
    given: Any = [json.dumps(item).encode() for item in history] if as_bytes else history

    problems = check_history(WIRE, given)

    assert problems
    assert problems[0].startswith(problem)


def test_each_mistake_is_told_once() -> None:
    """A missing output does not make every later item wrong."""
    assert len(check_history(WIRE, [call("a"), USER, SAY, USER, SAY])) == 1
    assert len(check_history(WIRE, [THINK, USER, SAY, USER])) == 1


def test_calls_may_be_open_from_before() -> None:
    """A piece of a history is checked with the calls that the items before it left open, of either kind."""
    pieces = [output("a"), output("b", CUSTOM_OUT), SAY]

    assert check_history(WIRE, pieces, open_calls=["a", "b"]) == []
    assert check_history(WIRE, pieces, open_calls=["a"]) == [
        "messages[1]: answers call 'b', which no item before it made"
    ]
    assert check_history(WIRE, [USER], open_calls=["a"]) == [
        "messages[0]: stands before the results of an earlier item's calls 'a'"
    ]


def test_calls_at_the_end_may_wait() -> None:
    """In the middle of a turn; reasoning without its item is wrong even there."""
    assert check_history(WIRE, [USER, THINK, call("a"), call("b")], open_end=True) == []
    assert check_history(WIRE, [USER, call("a"), call("b"), output("a")], open_end=True) == []
    assert check_history(WIRE, [USER, call("a"), THINK], open_end=True)


def test_reused_ids_may_be_let_pass() -> None:
    """Real histories hold them; two open calls of one id are still wrong."""
    assert check_history(WIRE, [call("a"), output("a"), call("a"), output("a")], unique_ids=False) == []
    assert check_history(WIRE, [call("a"), call("a"), output("a")], unique_ids=False)


def test_bytes_that_are_no_json_are_a_problem() -> None:
    """They are named by their place, and not quoted."""
    assert check_history(WIRE, [b"{xyzzy"]) == ["messages[0]: must be a JSON object with a type or a role"]


def test_no_content_is_told() -> None:
    """Problems hold places and call ids, never what was said."""
    problems = check_history(
        WIRE, [msg("user", [{"secret": "xyzzy"}]), call("a", arguments={"secret": "xyzzy"})]
    )

    assert problems
    assert not any("xyzzy" in problem for problem in problems)
