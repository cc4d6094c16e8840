"""What the simulated providers do with a context by themselves: clear, compact, and say so.

A recorded answer shows the shape of a compaction; no traffic with cleared results or thinking was recorded.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import orjson
import pytest
import zstandard

from goaitools_py.sim import Prompt, Reply, Response, SimServer
from goaitools_py.sim.anthropic.edits import CLEARED

EDITING, IN_REPLY = "context-management-2025-06-27", "compact-2026-01-12"
LONG = "The harbour is grey, and its water is still. " * 40
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("look", "pay")]
NAME = {"role": "user", "content": "My name is Ada."}
ASK = {"role": "user", "content": "What is my name?"}
THINKING = {"type": "enabled", "budget_tokens": 1024}


class Listener:
    """A model that answers nothing much, and keeps what it saw."""

    def __init__(self, *replies: Reply) -> None:
        self.seen: list[Prompt] = []
        self._replies = list(replies)

    def __call__(self, prompt: Prompt) -> Reply:
        self.seen.append(prompt)
        return self._replies.pop(0) if self._replies else Reply.text("[simulated] Yes.")


def sent(sim: SimServer, messages: Any, *edits: Any, **more: Any) -> Response:
    """One request to the Messages wire."""
    headers = {"anthropic-version": "2026-10-21", "anthropic-beta": f"{EDITING},{IN_REPLY}"}
    body = {"model": "m", "max_tokens": 2000, "messages": messages, "tools": TOOLS, **more}
    if edits:
        body["context_management"] = {"edits": edits}
    return sim.respond("POST", "/v1/messages", headers, orjson.dumps(body))


def post(sim: SimServer, messages: Any, *edits: Any, **more: Any) -> dict[str, Any]:
    """The answer to one request to the Messages wire."""
    response = sent(sim, messages, *edits, **more)
    assert response.status == 200, response.body
    answer: dict[str, Any] = orjson.loads(response.body)
    return answer


def used(*names: str) -> list[dict[str, Any]]:
    """A conversation in which these tools were used, one after the other, each for a long result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for n, name in enumerate(names):
        use = {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": {"n": n}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"{n}: {LONG}"}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return messages


def results(prompt: Prompt) -> list[bool]:
    """For each tool result that a model saw, whether it was still there."""
    return [said.text != CLEARED for said in prompt.history if said.role == "tool"]


def uses(count: int) -> dict[str, Any]:
    return {"type": "tool_uses", "value": count}


def tokens(count: int) -> dict[str, Any]:
    return {"type": "input_tokens", "value": count}


@pytest.mark.parametrize(
    ("edit", "stays"),
    [
        ({"trigger": uses(3)}, [False, True, True, True]),
        ({"trigger": uses(4)}, [True] * 4),
        ({"trigger": uses(1), "keep": uses(1)}, [False, False, False, True]),
        ({"trigger": tokens(1_000), "keep": uses(0)}, [False] * 4),
        ({"trigger": tokens(50_000), "keep": uses(0)}, [True] * 4),
        ({"keep": uses(0)}, [True] * 4),
        ({"trigger": uses(1), "keep": uses(1), "exclude_tools": ["look"]}, [True, False, True, True]),
        ({"trigger": uses(1), "keep": uses(3), "clear_at_least": tokens(300)}, [False, True, True, True]),
        ({"trigger": uses(1), "keep": uses(3), "clear_at_least": tokens(600)}, [True] * 4),
    ],
)
def test_old_tool_results_are_not_seen(edit: dict[str, Any], stays: list[bool]) -> None:
    """From the oldest on, as its members say; what is gone is no input, and the answer tells of it."""
    model = Listener()
    sim = SimServer(model=model)
    messages = used("look", "pay", "look", "pay")

    whole = post(sim, messages)
    answer = post(sim, messages, {"type": "clear_tool_uses_20250919", **edit})

    gone = stays.count(False)
    less = whole["usage"]["input_tokens"] - _input(answer)
    applied = answer["context_management"]["applied_edits"]
    assert results(model.seen[1]) == stays
    assert "context_management" not in whole
    assert [one["cleared_tool_uses"] for one in applied] == ([gone] if gone else [])
    assert [one["cleared_input_tokens"] for one in applied] == ([less] if gone else [])
    assert less >= gone * 400
    assert sim.problems == []


def _input(answer: Mapping[str, Any]) -> int:
    usage = answer["usage"]
    return int(
        usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    )


@pytest.mark.parametrize(
    ("wish", "inputs"), [(None, ["0", "1"]), (True, ["", ""]), (["look"], ["", "1"]), (["pay"], ["0", ""])]
)
def test_what_was_written_for_a_call_goes_too_if_asked(wish: Any, inputs: list[str]) -> None:
    """For all tools, or for those that are named."""
    model = Listener()
    edit = {"trigger": uses(1), "keep": uses(0), "clear_tool_inputs": wish}

    post(SimServer(model=model), used("look", "pay"), {"type": "clear_tool_uses_20250919", **edit})

    calls = [call.arguments for said in model.seen[0].history for call in said.calls]
    assert ["".join(filter(str.isdigit, written)) for written in calls] == inputs


@pytest.mark.parametrize(
    ("keep", "left"),
    [(None, 1), ("all", 3), ({"type": "all"}, 3), (2, 2), (9, 3)],
)
def test_thinking_of_old_turns_is_not_input(keep: Any, left: int) -> None:
    """All but the newest turns' thinking goes; signatures are checked over what was sent."""
    sim = SimServer()
    history: list[Any] = []
    for n in range(3):
        history.append({"role": "user", "content": f"Note {n}."})
        sim.push(Reply.text("Yes.", thinking=LONG))
        history.append({"role": "assistant", "content": post(sim, history, thinking=THINKING)["content"]})
    asked = [*history, ASK]
    wish = {"type": "thinking_turns", "value": keep} if isinstance(keep, int) else keep
    edit = {"type": "clear_thinking_20251015"} | ({"keep": wish} if wish else {})

    whole = _input(post(sim, asked, thinking=THINKING))
    answer = post(sim, asked, edit, thinking=THINKING)

    applied = answer["context_management"]["applied_edits"]
    assert [one["cleared_thinking_turns"] for one in applied] == ([3 - left] if left < 3 else [])
    assert sum(one["cleared_input_tokens"] for one in applied) == whole - _input(answer)
    assert (whole - _input(answer) > 400 * (3 - left)) == (left < 3)
    again = [*asked, {"role": "assistant", "content": answer["content"]}, ASK]
    post(sim, again, edit, thinking=THINKING)
    assert sim.problems == []


@pytest.mark.parametrize(
    ("edits", "thinking", "words"),
    [
        ([{"type": "clear_thinking_20251015"}], None, "requires `thinking` to be enabled"),
        ([{"type": "clear_thinking_20251015"}], {"type": "disabled"}, "requires `thinking` to be enabled"),
        ([{"type": "clear_thinking_20251015", "keep": "most"}], THINKING, "Input should be 'all'"),
        (
            [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": "2"}}],
            THINKING,
            "valid integer",
        ),
        (
            [{"type": "clear_tool_uses_20250919"}, {"type": "clear_thinking_20251015"}],
            THINKING,
            "must be the first",
        ),
    ],
)
def test_what_is_refused(edits: Any, thinking: Any, words: str) -> None:
    """Thinking is cleared where there is some, and before anything else."""
    sim = SimServer()

    response = sent(sim, [ASK], *edits, **({"thinking": thinking} if thinking else {}))

    assert response.status == 400
    assert words in sim.problems[0]


# -------------------------------------------------------------------------------------- compaction

COMPACT = {"type": "compact_20260112", "trigger": tokens(50_000)}
_NOISE = random.Random(7)
VERY_LONG = " ".join(f"{_NOISE.getrandbits(64):x}" for _ in range(13_000))
"""No compression makes it small: what a block was made of is no part of what is read of it."""
TALK = [NAME, {"role": "assistant", "content": "Hello, Ada."}, {"role": "user", "content": VERY_LONG}]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_anthropic_compacts_before_it_answers(is_streamed: bool, api: anthropic.Anthropic) -> None:
    """The block comes first, it alone is the input, and what it took is among the iterations: as recorded."""
    asked: Any = {"model": "m", "max_tokens": 2000, "messages": [*TALK, ASK], "betas": [IN_REPLY]}
    asked["context_management"] = {"edits": [COMPACT]}
    if is_streamed:
        with api.beta.messages.stream(**asked) as stream:
            answer = stream.get_final_message()
    else:
        answer = api.beta.messages.create(**asked)

    block, text = answer.content
    spent, said = answer.usage.iterations or []
    assert block.type == "compaction"
    assert text.type == "text"
    assert "Ada" in str(block.content)
    assert "Ada" in text.text
    assert (spent.type, said.type) == ("compaction", "message")
    assert spent.input_tokens > 50_000
    assert answer.usage.input_tokens == said.input_tokens
    assert 10 < answer.usage.input_tokens < 100
    assert answer.context_management is not None
    assert answer.context_management.applied_edits == []


def test_the_shape_is_the_recorded_one(data_dir: Path) -> None:
    """Members and blocks of a recorded answer with a compaction are those of the simulated one."""
    for body in _recorded(data_dir, "anthropic-messages", "compact_20260112"):
        if not isinstance(body, dict) or body.get("content", [{}])[0].get("type") != "compaction":
            continue
        answer = post(SimServer(), [*TALK, ASK], COMPACT)

        assert [block["type"] for block in answer["content"]] == [block["type"] for block in body["content"]]
        assert answer["context_management"] == body["context_management"]
        for ours, theirs in zip(answer["usage"]["iterations"], body["usage"]["iterations"], strict=True):
            assert ours["type"] == theirs["type"]
            assert set(theirs) - {"cache_creation"} <= set(ours)
        return
    raise AssertionError("no compaction was recorded")


def _recorded(data_dir: Path, wire: str, mark: str) -> Iterator[Any]:
    path = data_dir / "recorded" / f"{wire}.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
    with path.open("rb") as file:
        for line in io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file)):
            if mark.encode() in line:
                yield from (one["response"].get("body") for one in orjson.loads(line)["exchanges"])


def test_what_is_older_than_a_compaction_is_not_read_again() -> None:
    """The client sends everything; it costs what stands behind the block, and no second compaction is made.
    Thinking behind it is good with and without what stands before it."""
    model = Listener(Reply.text("A summary."), Reply.text("Hello.", thinking="Hm."))
    sim = SimServer(model=model)
    first = post(sim, [*TALK, ASK], COMPACT, thinking=THINKING)
    behind = [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": "And?"}]

    whole = post(sim, [*TALK, ASK, *behind], COMPACT, thinking=THINKING)
    short = post(sim, [ASK, *behind], COMPACT, thinking=THINKING)

    assert [block["type"] for block in first["content"]] == ["compaction", "thinking", "text"]
    assert [block["type"] for block in whole["content"]] == ["thinking", "text"]
    assert _input(whole) == _input(short) < 400
    assert [said.text for said in model.seen[2].history] == ["A summary.Hello.", "And?"]
    assert VERY_LONG not in str(model.seen[1].history)
    assert sim.problems == []


def test_nothing_to_compact_is_nothing_done() -> None:
    """Below the threshold the answer says that nothing was done, as recorded."""
    answer = post(SimServer(), [NAME], COMPACT)

    assert [block["type"] for block in answer["content"]] == ["text"]
    assert answer["context_management"] == {"applied_edits": []}
    assert "iterations" not in answer["usage"]


# ------------------------------------------------------------------------------------------- OpenAI

COMPACTION = [{"type": "compaction", "compact_threshold": 1_000}]


def respond(sim: SimServer, items: Any, **more: Any) -> dict[str, Any]:
    """One request to the Responses wire."""
    body = {"model": "m", "input": items, "store": False, "context_management": COMPACTION, **more}
    body["include"] = ["reasoning.encrypted_content"]
    response = sim.respond("POST", "/v1/responses", {}, orjson.dumps(body))
    assert response.status == 200, response.body
    answer: dict[str, Any] = orjson.loads(response.body)
    return answer


@pytest.mark.parametrize("is_streamed", [False, True])
def test_openai_compacts_behind_its_answer(is_streamed: bool, gpt: openai.OpenAI) -> None:
    """As recorded: the item comes last, its tokens are output, and later requests read from it on."""
    said: Any = [NAME, {"role": "user", "content": VERY_LONG[:6_000]}, ASK]
    asked: Any = {"model": "m", "context_management": COMPACTION, "store": False}
    if is_streamed:
        with gpt.responses.stream(input=said, **asked) as stream:
            answer = stream.get_final_response()
    else:
        answer = gpt.responses.create(input=said, **asked)
    going_on: Any = [*said, *answer.output, ASK]
    later = gpt.responses.create(input=going_on, **asked)

    assert [item.type for item in answer.output] == ["message", "compaction"]
    assert answer.usage is not None
    assert later.usage is not None
    assert answer.usage.input_tokens > 1_000 > later.usage.input_tokens
    assert answer.usage.output_tokens > later.usage.output_tokens + 10
    assert "Ada" in later.output_text
    assert [item.type for item in later.output] == ["message"]


def test_the_order_is_the_recorded_one(data_dir: Path) -> None:
    """The answer in which a provider compacted by itself has its item behind the message."""
    found = [
        [item["type"] for item in body["output"]]
        for body in _recorded(data_dir, "openai-responses", "compact_threshold")
        if isinstance(body, dict) and "compaction" in [item["type"] for item in body["output"]]
    ]

    made = [item["type"] for item in respond(SimServer(), [{"role": "user", "content": LONG * 3}])["output"]]

    assert found
    assert all(order == made for order in found)


def test_reasoning_behind_it_is_good_with_and_without_what_is_older() -> None:
    """And an answer that calls tools is not compacted: its results are still to come."""
    sim = SimServer()
    thinks = {"reasoning": {"effort": "low"}, "tools": [{"type": "function", "name": "f", "parameters": {}}]}
    old = [NAME, {"role": "user", "content": LONG * 3}]
    first = respond(sim, old, **thinks)
    sim.push(Reply.calls(("f", "{}")))
    behind = [*first["output"], ASK]
    called = respond(sim, [*old, *behind], **thinks, max_output_tokens=900)
    sim.push(Reply.calls(("f", "{}"), text=LONG * 3))
    large = respond(sim, [*old, *behind], **thinks)

    result = {
        "type": "function_call_output",
        "call_id": called["output"][-1]["call_id"],
        "output": "1",
    }
    whole = respond(sim, [*old, *behind, *called["output"], result], **thinks)
    short = respond(sim, [*behind[-2:], *called["output"], result], **thinks)

    assert [item["type"] for item in first["output"]] == ["reasoning", "message", "compaction"]
    assert [item["type"] for item in large["output"]] == ["reasoning", "message", "function_call"]
    assert "input_transformations" not in whole
    assert "input_transformations" not in short
    assert whole["usage"]["input_tokens"] == short["usage"]["input_tokens"] < 1_000
    assert sim.problems == []


@pytest.fixture
def served() -> Iterator[SimServer]:
    with SimServer() as server:
        yield server


@pytest.fixture
def api(served: SimServer) -> Iterator[anthropic.Anthropic]:
    http = httpx2.Client(trust_env=False)
    url = served.base_url_for("anthropic")
    with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0, http_client=http) as client:
        yield client
    assert served.problems == []


@pytest.fixture
def gpt(served: SimServer) -> Iterator[openai.OpenAI]:
    http = httpx2.Client(trust_env=False)
    url = served.base_url_for("openai-responses")
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0, http_client=http) as client:
        yield client
    assert served.problems == []
