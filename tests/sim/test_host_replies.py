"""How hosts reply: ids of calls, reasoning, signatures, the place of the usage, and errors of an account."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest

from goaitools_py.sim import Fault, Reply, SimServer

from ._host_examples import ask


def test_an_empty_account_at_minimax_is_a_200() -> None:
    """Its errors about the account are in `base_resp`, with status 200."""
    sim = SimServer(rules="minimax")
    sim.push(Fault.rate_limit(), Fault.quota(), Fault.unauthorized())
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

    answers = [ask(sim, "openai", body) for _ in range(3)]

    assert [(status, answer["base_resp"]["status_code"]) for status, answer in answers] == [
        (200, 1002),
        (200, 1008),
        (200, 1004),
    ]


def test_a_failed_call_at_groq_can_be_scripted() -> None:
    """The error has the code by which it is known."""
    sim = SimServer(rules="groq")
    sim.push(Fault.bad_request("Failed to call a function.", code="tool_use_failed"))

    status, answer = ask(sim, "openai", {"model": "m", "messages": [{"role": "user", "content": "hi"}]})

    assert (status, answer["error"]["code"]) == (400, "tool_use_failed")


@pytest.mark.parametrize(
    ("host", "member", "ids"),
    [
        ("deepseek", "reasoning_content", r"call_\d\d_[0-9a-f]{22}"),
        ("moonshot", "reasoning_content", r"functions\.f:\d"),
        ("mistral", None, r"[A-Za-z0-9]{9}"),
        ("groq", "reasoning", r"[0-9a-z]{9}"),
        ("vllm", "reasoning", r"chatcmpl-tool-[0-9a-f]{16}"),
        ("openrouter", "reasoning_details", r"tool_f_[0-9a-f]{20}"),
        ("ollama", "reasoning", r"call_[0-9a-f]{8}"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
def test_a_reply_has_the_hosts_ids_and_reasoning(
    host: str, member: str | None, ids: str, streamed: bool
) -> None:
    """A history that grew there is one of that host."""
    with SimServer(rules=host) as sim, openai.OpenAI(base_url=sim.base_url, api_key="any") as client:
        sim.push(Reply.calls(("f", "{}"), ("f", "{}")))
        given: Any = {
            "model": "some-model",
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {"name": "f"}}],
        }
        if streamed:
            deltas = [
                chunk.choices[0].delta.model_dump(exclude_unset=True)
                for chunk in client.chat.completions.create(**given, stream=True)
                if chunk.choices
            ]
            found = [
                call["id"] for delta in deltas for call in delta.get("tool_calls") or () if call.get("id")
            ]
            members = {key for delta in deltas for key in delta}
        else:
            message = (
                client.chat.completions.create(**given).choices[0].message.model_dump(exclude_unset=True)
            )
            found = [call["id"] for call in message["tool_calls"]]
            members = set(message)

    assert len(set(found)) == 2
    assert all(re.fullmatch(ids, one) for one in found), found
    assert member is None or member in members
    assert not {"refusal", "annotations"} & members


@pytest.mark.parametrize("stream", [False, True])
def test_gemini_signs_the_first_call(stream: bool) -> None:
    """And takes the signed call back, but not without the signature."""
    sim = SimServer(rules="gemini")
    sim.push(Reply.calls(("f", "{}"), ("f", "{}")))
    ask_body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [], "stream": stream}
    del ask_body["tools"]

    _, answer = ask(sim, "openai", ask_body)

    assert json.dumps(answer).count("thought_signature") == 1


def test_the_usage_of_a_stream_at_moonshot_is_in_its_choice() -> None:
    """And there is no chunk without choices."""
    sim = SimServer(rules="moonshot")
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}

    _, text = ask(sim, "openai", {**body, "stream_options": {"include_usage": True}})
    chunks = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-2]]

    assert chunks[-1]["choices"][0]["usage"]["prompt_tokens"] > 0
    assert all(chunk["choices"] for chunk in chunks)


@pytest.mark.parametrize("host", ["openai", "azure", "xai"])
@pytest.mark.parametrize("other", ["openai", "azure"])
def test_reasoning_is_read_by_its_own_host_only(host: str, other: str) -> None:
    """Encrypted content of one resource is refused by another."""
    here, there = SimServer(rules=host), SimServer(rules=other)
    body: dict[str, Any] = {"model": "gpt-5", "input": [{"role": "user", "content": "hi"}], "store": False}
    body |= {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]}
    _, answer = ask(here, "openai-responses", body)

    again = {**body, "input": [*body["input"], *answer["output"], {"role": "user", "content": "And?"}]}
    status, refused = ask(there, "openai-responses", again)

    assert status == (200 if host == other else 400), refused


def test_the_thinking_of_deepseek_is_not_anthropics() -> None:
    """Its signatures mean nothing to Anthropic. DeepSeek reads the text."""
    body: dict[str, Any] = {"model": "claude-sonnet-4-5", "max_tokens": 64}
    first = {"role": "user", "content": "hi"}
    _, answer = ask(SimServer(rules="deepseek"), "anthropic", {**body, "messages": [first]})
    turn = {"role": "assistant", "content": answer["content"]}
    again = {**body, "messages": [first, turn, first]}

    assert answer["content"][0]["type"] == "thinking"
    assert ask(SimServer(rules="deepseek"), "anthropic", again)[0] == 200
    assert ask(SimServer(rules="anthropic"), "anthropic", again)[0] == 400
