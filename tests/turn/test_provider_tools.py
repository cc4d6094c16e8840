"""Provider tools that the client runs: each call waits, and is answered in the provider's own shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    ClearToolResults,
    Compactor,
    Deny,
    Image,
    KeepRecentTurns,
    Limits,
    MessageLimit,
    ProviderTool,
    ToolReturn,
)
from goaitools_py.compaction import DropMedia
from goaitools_py.states import inspect_state, pending_calls, read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend, check_history

from ._answers import Answer, anthropic_answer, chat_answer, responses_answer
from ._reading import ANTHROPIC, CHAT, HISTORY, RESPONSES

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
QUIET = "quiet " * 300
SHOT = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
PRINTED = [{"stdout": "a b", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]

CALLS: dict[str, dict[str, Any]] = {
    "computer_call": {
        "id": "cu_1",
        "call_id": "c1",
        "actions": [{"type": "screenshot"}],
        "pending_safety_checks": [],
    },
    "local_shell_call": {
        "id": "lsh_1",
        "call_id": "c1",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    "shell_call": {
        "id": "sh_1",
        "call_id": "c1",
        "action": {"commands": ["ls"]},
        "environment": {"type": "local"},
    },
    "apply_patch_call": {"id": "ap_1", "call_id": "c1", "operation": {"type": "delete_file", "path": "a"}},
    "tool_search_call": {"id": "ts_1", "call_id": "c1", "execution": "client", "arguments": {"q": "x"}},
    "mcp_approval_request": {"id": "c1", "name": "roll", "arguments": "{}", "server_label": "dice"},
}
KINDS = list(CALLS)

ANSWERS: list[Any] = [
    ("computer_call", ToolReturn(SHOT), {"type": "computer_call_output", "call_id": "c1", "output": SHOT}),
    (
        "computer_call",
        ToolReturn({"output": SHOT, "acknowledged_safety_checks": [{"id": "s"}]}),
        {
            "type": "computer_call_output",
            "call_id": "c1",
            "output": SHOT,
            "acknowledged_safety_checks": [{"id": "s"}],
        },
    ),
    (
        "computer_call",
        ToolReturn({"type": "computer_call_output", "call_id": "another", "output": SHOT}),
        {"type": "computer_call_output", "call_id": "c1", "output": SHOT},
    ),
    (
        "computer_call",
        ToolReturn(Image.from_bytes(PNG)),
        {
            "type": "computer_call_output",
            "call_id": "c1",
            "output": {
                "type": "computer_screenshot",
                "image_url": "data:image/png;base64,iVBORw0KGgoAAAAAAAAAAA==",
            },
        },
    ),
    (
        "local_shell_call",
        ToolReturn("a b"),
        {"type": "local_shell_call_output", "id": "lsh_1", "call_id": "c1", "output": "a b"},
    ),
    ("shell_call", ToolReturn(PRINTED), {"type": "shell_call_output", "call_id": "c1", "output": PRINTED}),
    ("shell_call", ToolReturn("a b"), {"type": "shell_call_output", "call_id": "c1", "output": PRINTED}),
    (
        "apply_patch_call",
        ToolReturn("done"),
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed", "output": "done"},
    ),
    (
        "apply_patch_call",
        ToolReturn("no such file", is_error=True),
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "failed", "output": "no such file"},
    ),
    (
        "tool_search_call",
        ToolReturn([]),
        {
            "type": "tool_search_output",
            "call_id": "c1",
            "execution": "client",
            "status": "completed",
            "tools": [],
        },
    ),
    (
        "mcp_approval_request",
        Approve(),
        {"type": "mcp_approval_response", "approval_request_id": "c1", "approve": True},
    ),
    (
        "mcp_approval_request",
        Deny("Not today."),
        {
            "type": "mcp_approval_response",
            "approval_request_id": "c1",
            "approve": False,
            "reason": "Not today.",
        },
    ),
    (
        "mcp_approval_request",
        ToolReturn({"approve": True, "reason": "Fine."}),
        {"type": "mcp_approval_response", "approval_request_id": "c1", "approve": True, "reason": "Fine."},
    ),
]

THINK = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "One moment.", "annotations": []}],
}
LOOK = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c2",
    "name": "look",
    "arguments": '{"place":"hall"}',
}


def asks(kind: str, *others: dict[str, Any]) -> Answer:
    """A reply with reasoning and a call of a provider tool, and what else is in it."""
    return responses_answer(THINK, {"type": kind, **CALLS[kind]}, *others)


class Bench:
    """A chat with a provider tool and a tool of our own that counts its runs."""

    def __init__(self, face: Any, *steps: Any, wire: str = RESPONSES, **fields: Any) -> None:
        self.wire = wire
        self.looks: list[str] = []
        self.backend = ScriptedBackend(*steps, wire=wire)

        def look(place: str) -> str:
            """Look at a place."""
            self.looks.append(place)
            return QUIET

        self.chat = face.chat(self.backend, **{"tools": [look], "tool_threads": False, **fields})

    def sent(self, number: int = -1) -> list[Any]:
        """The history of one request."""
        history: list[Any] = self.backend.bodies()[number][HISTORY[self.wire]]
        return history

    def check(self, *states: bytes) -> None:
        """Every request's history, and the closed view of every state, is accepted."""
        for number in range(len(self.backend.requests)):
            assert check_history(self.wire, self.sent(number)) == []
        for state in states:
            assert check_history(self.wire, state_messages(state)) == []


# ----------------------------------------------------------------------------------- waiting, answering


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_of_a_provider_tool_waits(face: Any, run: Any, kind: str) -> None:
    """The result says for what, with the provider's own item; so does the blob alone."""
    bench = Bench(face, asks(kind))

    result = run(bench.chat, user="Go.")

    (call,) = result.pending
    assert result.status == "awaiting_tools"
    assert (call.id, call.name, call.kind) == ("c1", kind, "provider")
    assert call.raw == {"type": kind, **CALLS[kind]}
    assert call.reason == ("approval" if kind == "mcp_approval_request" else "external")
    assert pending_calls(result.state) == result.pending
    assert inspect_state(result.state).status == "awaiting_tools"
    bench.check(result.state)


@pytest.mark.parametrize(("kind", "answer", "item"), ANSWERS)
def test_an_answer_goes_out_in_the_providers_own_shape(
    face: Any, run: Any, kind: str, answer: Any, item: dict[str, Any]
) -> None:
    """The reply with the call goes back as it came, and the answer directly behind it."""
    bench = Bench(face, asks(kind), "Done.", "Bye.")
    waiting = run(bench.chat, user="Go.")

    result = bench.chat.resume(waiting.state, {"c1": answer})
    later = run(bench.chat, result.state, user="Thanks.")

    assert (result.text, result.status, result.pending) == ("Done.", "complete", ())
    assert bench.sent(1)[1:] == [THINK, {"type": kind, **CALLS[kind]}, item]
    assert bench.sent(2)[1:4] == bench.sent(1)[1:]
    (record,) = result.tool_log
    assert (record.call.name, record.call.kind) == (kind, "provider")
    bench.check(waiting.state, result.state, later.state)


@pytest.mark.parametrize(("kind", "answer", "item"), ANSWERS)
def test_an_answer_that_comes_again_gives_the_stored_reply(
    face: Any, kind: str, answer: Any, item: dict[str, Any]
) -> None:
    """Platforms deliver a button press more than once: nothing is sent, and the first answer holds."""
    bench = Bench(face, asks(kind), "Done.")
    waiting = bench.chat.chat(user="Go.")
    result = bench.chat.resume(waiting.state, {"c1": answer})

    again = bench.chat.resume(result.state, {"c1": answer})

    assert (again.text, again.duplicate, again.warnings) == ("Done.", True, ())
    assert len(bench.backend.requests) == 2


@pytest.mark.parametrize(
    ("kind", "answer", "problem"),
    [
        ("computer_call", ToolReturn("no picture"), "computer_screenshot"),
        ("computer_call", ToolReturn({"type": "computer_screenshot"}), "no screenshot"),
        ("computer_call", Approve(), "ToolReturn"),
        ("local_shell_call", ToolReturn(7), "text"),
        ("shell_call", ToolReturn([{"stdout": "a"}]), "stderr"),
        ("apply_patch_call", ToolReturn({"status": "unsure"}), "failed"),
        ("tool_search_call", ToolReturn("none"), "list"),
        ("mcp_approval_request", ToolReturn("yes"), "Approve"),
        ("mcp_approval_request", Approve({"sides": 6}), "no other arguments"),
        ("computer_call", ToolReturn({**SHOT, "image_url": "data:," + "A" * 2_000_000}), "bytes"),
        ("computer_call", ToolReturn({**SHOT, "more": {1, 2}}), "JSON"),
    ],
)
def test_what_is_no_answer_is_refused_before_anything_is_sent(
    face: Any, kind: str, answer: Any, problem: str
) -> None:
    """The text says what is expected; the call waits on."""
    bench = Bench(face, asks(kind), "Done.")
    waiting = bench.chat.chat(user="Go.")

    with pytest.raises(ValueError, match=problem):
        bench.chat.resume(waiting.state, {"c1": answer})

    assert len(bench.backend.requests) == 1
    assert [call.id for call in pending_calls(waiting.state)] == ["c1"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_beside_one_of_our_own_tools(face: Any, run: Any, kind: str) -> None:
    """Ours runs once and at once, the provider's waits; both answers go out in call order."""
    bench = Bench(face, asks(kind, LOOK), "Done.")
    answer = next(answer for name, answer, _ in ANSWERS if name == kind)

    waiting = run(bench.chat, user="Go.")
    result = bench.chat.resume(waiting.state, {"c1": answer})

    assert bench.looks == ["hall"]
    assert [call.id for call in waiting.pending] == ["c1"]
    assert bench.sent(1)[-1] == {"type": "function_call_output", "call_id": "c2", "output": QUIET}
    assert bench.sent(1)[-2]["type"].endswith(("_output", "_response"))
    bench.check(waiting.state, result.state)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mcp_approval_request"])
def test_a_call_that_somebody_refuses_is_denied(face: Any, kind: str) -> None:
    """`Deny` is an answer to any call. It goes out in the shape of its kind, and the turn goes on."""
    bench = Bench(face, asks(kind), "Well.")
    waiting = bench.chat.chat(user="Go.")

    result = bench.chat.resume(waiting.state, {"c1": Deny("not today")})

    assert (result.text, result.status, result.pending) == ("Well.", "complete", ())
    assert bench.sent(1)[-2]["type"] == kind
    assert bench.sent(1)[-1]["type"].endswith("_output")
    assert read_history(result.state).turns[0].facts["flags"] == {"c1": "denied"}
    bench.check(waiting.state, result.state)


# ------------------------------------------------------------------------------ what nobody answered


@pytest.mark.parametrize("kind", KINDS)
def test_what_nobody_answers_is_closed_with_a_valid_output(face: Any, run: Any, kind: str) -> None:
    """A denied, or closed, call stays in the history with an output of its own kind: nothing is dropped."""
    bench = Bench(face, asks(kind, LOOK), "Well.")
    waiting = run(bench.chat, user="Go.")

    closed = state_messages(waiting.state)
    result = run(bench.chat, waiting.state, user="Never mind.", on_pending="deny")

    for items in (closed, bench.sent(1)):
        kinds = [item.get("type") for item in items]
        assert kinds[1:4] == ["reasoning", kind, "function_call"]
        assert [name for name in kinds[4:] if name] == [OUTPUT_OF[kind], "function_call_output"]
    assert read_history(result.state).turns[0].facts["flags"] == {"c1": "denied"}
    bench.check(waiting.state, result.state)


OUTPUT_OF = {kind: item["type"] for kind, _, item in ANSWERS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_may_wait_for_the_answer(face: Any, kind: str) -> None:
    """A queued message stands behind the answer."""
    bench = Bench(face, asks(kind), "Done.")
    answer = next(answer for name, answer, _ in ANSWERS if name == kind)
    waiting = bench.chat.chat(user="Go.")

    queued = bench.chat.chat_with_state(waiting.state, user="And hurry.", on_pending="queue")
    result = bench.chat.resume(queued.state, {"c1": answer})

    assert [call.id for call in queued.pending] == ["c1"]
    assert bench.sent(1)[-1] == {"role": "user", "content": "And hurry."}
    bench.check(queued.state, result.state)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_message_again_still_waits(face: Any, run: Any, kind: str) -> None:
    """A redelivery asks nobody; the answer then goes to the first try's call."""
    bench = Bench(face, asks(kind), "Done.")
    waiting = run(bench.chat, user="Go.", turn_id="m-1")

    again = run(bench.chat, waiting.state, user="Go.", turn_id="m-1")

    assert (again.status, again.pending) == ("awaiting_tools", waiting.pending)
    assert len(bench.backend.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_come_although_none_was_allowed(face: Any, run: Any, kind: str) -> None:
    """The last call of a limited turn allows none: such a call closes as not run, in its own shape."""
    look = responses_answer({**LOOK, "call_id": "c9"})
    bench = Bench(face, look, asks(kind), "Well.")

    limited = run(bench.chat, user="Go.", limits=Limits(max_iterations=1))
    result = run(bench.chat, limited.state, user="And now?")

    assert limited.status == "limited"
    assert OUTPUT_OF[kind] in [item.get("type") for item in bench.sent(2)]
    bench.check(limited.state, result.state)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_that_was_cut_has_no_call(face: Any, run: Any, kind: str) -> None:
    """An incomplete reply's calls are not whole: they are neither pending nor in the next request."""
    cut = responses_answer(SAID, THINK, {"type": kind, **CALLS[kind]}, status="incomplete")
    bench = Bench(face, cut, "Well.")

    first = run(bench.chat, user="Go.")
    result = run(bench.chat, first.state, user="And now?")

    assert (first.status, first.pending) == ("truncated", ())
    assert [item.get("type") for item in bench.sent(1)] == [None, "message", None]
    bench.check(first.state, result.state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", [KeepRecentTurns(1), ClearToolResults(keep=0)])
def test_cuts_keep_calls_and_outputs_together(face: Any, kind: str, strategy: Any) -> None:
    """Whatever a compactor makes of such a turn, the provider takes it."""
    bench = Bench(face, asks(kind, LOOK), "Done.", "Two.", "Three.")
    answer = next(answer for name, answer, _ in ANSWERS if name == kind)
    waiting = bench.chat.chat(user="Go.")
    state = bench.chat.resume(waiting.state, {"c1": answer}).state
    state = bench.chat.chat_with_state(state, user="Two?").state

    report = bench.chat.compact_state(state, Compactor(MessageLimit(1), strategy))
    result = bench.chat.chat_with_state(report.state, user="Three?")

    assert report.outcome == "compacted"
    bench.check(report.state, result.state)


def test_a_screenshot_can_be_dropped(face: Any) -> None:
    """What takes its place is a screenshot too: the provider takes nothing else."""
    large = {**SHOT, "image_url": "data:image/png;base64," + "A" * 8_000}
    bench = Bench(face, asks("computer_call"), "Done.", "Two.", "Three.")
    waiting = bench.chat.chat(user="Go.")
    state = bench.chat.resume(waiting.state, {"c1": ToolReturn(large)}).state
    state = bench.chat.chat_with_state(state, user="Two?").state

    report = bench.chat.compact_state(state, Compactor(MessageLimit(1), DropMedia(after_turns=1)))
    bench.chat.chat_with_state(report.state, user="Three?")

    (output,) = [item for item in bench.sent() if item.get("type") == "computer_call_output"]
    assert output["output"]["type"] == "computer_screenshot"
    assert len(output["output"]["image_url"]) < 200
    bench.check(report.state)


@pytest.mark.parametrize("kind", KINDS)
def test_an_id_that_comes_again_is_another_calls(face: Any, kind: str) -> None:
    """Providers that count their calls use ids again; the answer finds the newer call."""
    bench = Bench(face, asks(kind), "Done.", asks(kind), "Again.")
    answer = next(answer for name, answer, _ in ANSWERS if name == kind)
    first = bench.chat.resume(bench.chat.chat(user="Go.").state, {"c1": answer})

    waiting = bench.chat.chat_with_state(first.state, user="Again.")
    (call,) = waiting.pending
    result = bench.chat.resume(waiting.state, {call.id: answer})

    assert call.id != "c1"
    assert (call.raw or {})["id" if kind == "mcp_approval_request" else "call_id"] == call.id
    bench.check(waiting.state, result.state)


def test_a_call_without_its_output_is_repaired() -> None:
    """A history of elsewhere in which a screenshot is missing: the call gets one that shows nothing."""
    from goaitools_py.states import state_from_messages

    user = {"role": "user", "content": "Go."}
    for kind in KINDS:
        broken = [user, {"type": kind, **CALLS[kind]}, SAID, user]
        state = state_from_messages(RESPONSES, broken, repair=True)
        kinds = [item.get("type") for item in state_messages(state)]
        assert OUTPUT_OF[kind] in kinds
        assert check_history(RESPONSES, state_messages(state)) == []


# --------------------------------------------------------------------------- what the server has answered


def test_a_call_that_the_server_answered_is_not_run(face: Any, run: Any) -> None:
    """Its output stands in the same reply; a call beside it that has none is ours."""
    done = {
        "type": "function_call_output",
        "id": "fo_1",
        "call_id": "c2",
        "output": "quiet",
        "status": "completed",
    }
    other = {**LOOK, "id": "fc_2", "call_id": "c3", "arguments": '{"place":"attic"}'}
    bench = Bench(face, responses_answer(LOOK, done, other), "Done.")

    result = run(bench.chat, user="Look.")

    assert bench.looks == ["attic"]
    assert [item.get("call_id") for item in bench.sent(1)[1:]] == ["c2", "c2", "c3", "c3"]
    assert inspect_state(result.state).messages == len(read_history(result.state).all_messages())
    bench.check(result.state)


def test_a_reply_of_answered_calls_only_is_complete(face: Any, run: Any) -> None:
    """There is nothing left to run, so the turn is over."""
    done = {
        "type": "function_call_output",
        "id": "fo_1",
        "call_id": "c2",
        "output": "quiet",
        "status": "completed",
    }
    bench = Bench(face, responses_answer(LOOK, done, SAID), "Bye.")

    first = run(bench.chat, user="Look.")
    result = run(bench.chat, first.state, user="Thanks.")

    assert (first.text, first.status, bench.looks) == ("One moment.", "complete", [])
    assert bench.sent(1)[1:4] == [LOOK, done, SAID]
    assert inspect_state(result.state).messages == len(read_history(result.state).all_messages())
    bench.check(first.state, result.state)


def test_a_shell_in_a_container_is_the_servers(face: Any, run: Any) -> None:
    """Nobody waits for it; without its output it is cut out of the history when the turn is over."""
    hosted = {**CALLS["shell_call"], "type": "shell_call", "environment": {"type": "container_reference"}}
    done = {"type": "shell_call_output", "id": "so_1", "call_id": "c1", "output": PRINTED}
    bench = Bench(face, responses_answer(hosted, done, SAID), responses_answer(hosted, SAID), "Bye.")

    first = run(bench.chat, user="Go.")
    second = run(bench.chat, first.state, user="Again.")
    third = run(bench.chat, second.state, user="Thanks.")

    assert [one.status for one in (first, second, third)] == ["complete"] * 3
    assert bench.sent(1)[1:4] == [hosted, done, SAID]
    bench.check(first.state, second.state, third.state)


def test_a_hosted_call_that_a_proxy_writes_as_a_function_is_not_run(face: Any, run: Any) -> None:
    """LiteLLM's answers hold Anthropic's hosted calls among the tool calls, and no result of theirs."""
    hosted = {
        "id": "srvtoolu_1",
        "type": "function",
        "function": {"name": "web_search", "arguments": '{"query":"x"}'},
    }
    own = {"id": "c2", "type": "function", "function": {"name": "look", "arguments": '{"place":"hall"}'}}
    bench = Bench(
        face,
        chat_answer({"content": "Here.", "tool_calls": [hosted]}),
        chat_answer({"content": None, "tool_calls": [hosted, own]}, finish="tool_calls"),
        "Done.",
        wire=CHAT,
    )

    first = run(bench.chat, user="Search.")
    second = run(bench.chat, first.state, user="Look.")

    assert (first.text, first.status, bench.looks, second.text) == ("Here.", "complete", ["hall"], "Done.")
    assert b"srvtoolu_1" not in bench.backend.requests[2].body
    bench.check(first.state, second.state)


@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use"])
def test_a_result_in_the_middle_of_a_message(face: Any, run: Any, kind: str) -> None:
    """A compatible server that runs a tool by itself: nothing runs here, and the next request is accepted."""
    call = {"type": kind, "id": "t1", "name": "look", "input": {"place": "hall"}}
    done = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "quiet"}]}
    answer = anthropic_answer(call, done, {"type": "text", "text": "Quiet."})
    bench = Bench(face, answer, "Bye.", wire=ANTHROPIC)

    first = run(bench.chat, user="Look.")
    second = run(bench.chat, first.state, user="Thanks.")

    assert (first.text, first.status, bench.looks) == ("Quiet.", "complete", [])
    bench.check(first.state, second.state)


# ------------------------------------------------------------------------------- the other provider APIs


@pytest.mark.parametrize(
    ("wire", "declared", "answer"),
    [
        (
            ANTHROPIC,
            {"type": "bash_20250124", "name": "bash"},
            anthropic_answer(
                {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}, stop="tool_use"
            ),
        ),
        (
            CHAT,
            {"type": "custom", "custom": {"name": "bash"}},
            chat_answer(
                {
                    "content": None,
                    "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "bash", "input": "ls"}}],
                },
                finish="tool_calls",
            ),
        ),
        (
            RESPONSES,
            {"type": "custom", "name": "bash"},
            responses_answer(
                {"type": "custom_tool_call", "id": "ct_1", "call_id": "c1", "name": "bash", "input": "ls"}
            ),
        ),
    ],
)
def test_a_declared_tool_that_we_do_not_have_waits(
    face: Any, run: Any, wire: str, declared: dict[str, Any], answer: Answer
) -> None:
    """A provider's own tool that arrives under a name: whoever runs it gives the result."""
    bench = Bench(face, answer, "Done.", wire=wire, tools=[ProviderTool(declared)])

    waiting = run(bench.chat, user="List.")
    result = bench.chat.resume(waiting.state, {"c1": ToolReturn("a b")})

    (call,) = waiting.pending
    assert (call.id, call.name, call.reason) == ("c1", "bash", "external")
    assert "a b" in json.dumps(bench.sent(1)[-1])
    assert result.text == "Done."
    bench.check(waiting.state, result.state)


def test_a_name_that_nobody_declared_is_answered_at_once(face: Any, wire: str) -> None:
    """As before: the model is told that there is no such tool."""
    bench = Bench(face, Calls([("bash", {"command": "ls"})]), "Done.", wire=wire)

    assert bench.chat.chat(user="List.").status == "complete"
