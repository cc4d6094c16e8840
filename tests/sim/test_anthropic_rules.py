"""The simulator's own rules for Anthropic Messages: what the provider refuses, and what it takes."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from goaitools_py.sim import SimServer, check_anthropic
from goaitools_py.sim.anthropic.rules import BINDING_BETA, AnthropicRules

USER = {"role": "user", "content": "hi"}
ANSWER = {"role": "assistant", "content": "a"}
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
MARK = {"type": "ephemeral"}
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
THINKING = {"type": "thinking", "thinking": "t", "signature": "s"}


def text(content: Any = "t", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **more}


def use(id: Any = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "f", "input": {}, **more}


def result(id: Any = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": "ok", **more}


def hosted(id: str = "s1") -> dict[str, Any]:
    return {"type": "server_tool_use", "id": id, "name": "web_search", "input": {}}


def found(id: str = "s1") -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": id, "content": []}


def asks(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def says(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def system(*blocks: Any) -> dict[str, Any]:
    return {"role": "system", "content": list(blocks) or "s"}


def request(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "claude-sim", "max_tokens": 2048, "messages": list(messages), **more}


def without(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in value.items() if k != key}


def schema(**members: Any) -> dict[str, Any]:
    return request(USER, tools=[{**TOOL, "input_schema": members}])


def thinks(**thinking: Any) -> dict[str, Any]:
    return request(USER, thinking=thinking)


REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    # the request
    "no model": (without("model", request(USER)), "model: Field required"),
    "model as number": (request(USER, model=5), "model: Input should be a valid string"),
    "no max_tokens": (without("max_tokens", request(USER)), "max_tokens: Field required"),
    "max_tokens 0": (request(USER, max_tokens=0), "max_tokens: must be greater than or equal to 1"),
    "max_tokens as text": (request(USER, max_tokens="9"), "max_tokens: Input should be a valid integer"),
    "max_tokens as truth": (request(USER, max_tokens=True), "max_tokens: Input should be a valid integer"),
    "unknown member": (request(USER, foo=1), "foo: Extra inputs are not permitted"),
    "stream as text": (request(USER, stream="yes"), "stream: Input should be a valid boolean"),
    "empty stop sequence": (request(USER, stop_sequences=[" "]), "must contain non-whitespace"),
    "stop sequence as text": (request(USER, stop_sequences="x"), "stop_sequences: Input should be"),
    "unknown container": (request(USER, container="container_01"), "container: the container was not found"),
    "unknown container as object": (
        request(USER, container={"id": "container_01"}),
        "container: the container was not found",
    ),
    # messages
    "no messages": (without("messages", request()), "messages: Field required"),
    "messages as text": (request() | {"messages": "hi"}, "messages: Input should be a valid array"),
    "empty messages": (request(), "messages: at least one message is required"),
    "message as text": (request("hi"), "messages.0: Input should be an object"),
    "no role": (request({"content": "hi"}), "messages.0.role: Field required"),
    "unknown role": (request({"role": "tool", "content": "hi"}), "messages.0.role: Input should be"),
    "no content": (request({"role": "user"}), "messages.0.content: Field required"),
    "content as number": (request({"role": "user", "content": 5}), "messages.0.content: Input should be"),
    "empty content": (
        request({"role": "user", "content": ""}),
        "messages.0: all messages must have non-empty content except for the optional final assistant ",
    ),
    "empty list": (request(asks()), "messages.0: all messages must have non-empty content"),
    "empty assistant in the middle": (request(USER, says(), USER), "messages.1: all messages must have"),
    "unknown member of a message": (request({**USER, "name": "n"}), "messages.0.name: Extra inputs"),
    "first message assistant": (request(ANSWER, USER), 'first message must use the "user" role'),
    "prefill": (request(USER, ANSWER), "does not support assistant message prefill"),
    "empty prefill": (request(USER, says()), "does not support assistant message prefill"),
    "blocks as prefill": (
        request(USER, says(THINKING, text())),
        "does not support assistant message prefill",
    ),
    # system messages
    "system first": (request(system(), USER), "messages.0: use the top-level 'system' parameter"),
    "system after an assistant": (request(USER, ANSWER, system(), USER), "messages.2: a message with role"),
    "system on an older model": (
        request(USER, system(), model="claude-no-system"),
        "role 'system' is not supported on this model",
    ),
    "image in a system message": (request(USER, system({"type": "image"})), "Input tag 'image'"),
    # blocks
    "block as text": (request(asks("hi")), "messages.0.content.0: Input should be an object"),
    "block without type": (request(asks({"text": "hi"})), "messages.0.content.0.type: Field required"),
    "unknown block": (request(asks({"type": "magic"})), "messages.0.content.0: Input tag 'magic' found"),
    "tool use by the user": (request(asks(use())), "Input tag 'tool_use' found"),
    "result by the assistant": (request(USER, says(result()), USER), "Input tag 'tool_result' found"),
    "text without text": (request(asks({"type": "text"})), "messages.0.content.0.text.text: Field required"),
    "text as number": (request(asks(text(5))), "content.0.text.text: Input should be a valid string"),
    "empty text": (request(asks(text(""))), "messages: text content blocks must be non-empty"),
    "empty text of an assistant": (request(USER, says(text("")), USER), "blocks must be non-empty"),
    "blank text": (request(asks(text(" \n"))), "must contain non-whitespace text"),
    "blank string": (request({"role": "user", "content": " "}), "must contain non-whitespace text"),
    "unknown member of a text": (request(asks(text(foo=1))), "content.0.text.foo: Extra inputs"),
    "citations of a user": (request(asks(text(citations=[{}]))), "content.0.text.citations: Extra inputs"),
    "document of an assistant": (
        request(USER, says({"type": "document", "source": {}}), USER),
        "messages.1.content.0: Input tag 'document' found",
    ),
    "image without source": (request(asks({"type": "image"})), "content.0.image.source: Field required"),
    # thinking in the history
    "thinking without signature": (
        request(USER, says(without("signature", THINKING), text()), USER),
        "messages.1.content.0.thinking.signature: Field required",
    ),
    "signature as number": (request(USER, says({**THINKING, "signature": 5}), USER), "a valid string"),
    "marked thinking": (
        request(USER, says({**THINKING, "cache_control": MARK}, text()), USER),
        "thinking.cache_control: Extra inputs are not permitted",
    ),
    "redacted thinking without data": (
        request(USER, says({"type": "redacted_thinking"}), USER),
        "redacted_thinking.data: Field required",
    ),
    "thinking of a user": (request(asks(THINKING)), "Input tag 'thinking' found"),
    # tool use and results
    "use without id": (request(USER, says(without("id", use())), asks(result())), "tool_use.id: Field req"),
    "use with a bad id": (request(USER, says(use("a b")), asks(result("a b"))), "id: String should match"),
    "use without a name": (request(USER, says(use(name="")), asks(result())), "name: String should have"),
    "input as text": (request(USER, says(use(input="{}")), asks(result())), "input: Input should be a valid"),
    "use unanswered at the end": (
        request(USER, says(use())),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: c1.",
    ),
    "use unanswered": (request(USER, says(use()), USER), "messages.1: `tool_use` ids were found without"),
    "one of two unanswered": (
        request(USER, says(use("c1"), use("c2")), asks(result("c1"))),
        "immediately after: c2.",
    ),
    "answered too late": (
        request(USER, says(use()), USER, ANSWER, asks(result())),
        "messages.1: `tool_use` ids were found without",
    ),
    "text before the result": (request(USER, says(use()), asks(text(), result())), "immediately after: c1."),
    "a message before the result": (
        request(USER, says(use()), USER, asks(result())),
        "immediately after: c1.",
    ),
    "result without a use": (request(asks(result())), "unexpected `tool_use_id`"),
    "result of another use": (request(USER, says(use()), asks(result("c2"))), "tool_result` blocks: c2."),
    "two results": (
        request(USER, says(use()), asks(result(), result())),
        "messages.2.content.1: each tool_use must have a single result.",
    ),
    "result without id": (
        request(USER, says(use()), asks(without("tool_use_id", result()))),
        "tool_result.tool_use_id: Field required",
    ),
    "result as object": (request(USER, says(use()), asks(result(content={}))), "tool_result.content: Input"),
    "thinking in a result": (
        request(USER, says(use()), asks(result(content=[THINKING]))),
        "messages.2.content.0.tool_result.content.0: Input tag 'thinking'",
    ),
    "empty text in a result": (
        request(USER, says(use()), asks(result(content=[text("")]))),
        "text content blocks must be non-empty",
    ),
    "an error without content": (
        request(USER, says(use()), asks(without("content", result(is_error=True)))),
        "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true",
    ),
    "an empty error": (
        request(USER, says(use()), asks(result(is_error=True, content=""))),
        "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true",
    ),
    "an error with a picture": (
        request(
            USER, says(use()), asks(result(content=[text(), {"type": "image", "source": {}}], is_error=True))
        ),
        "messages.2.content.0.tool_result: all content must be type `text` if `is_error` is true",
    ),
    "a toolset's result without its name": (
        request(USER, says(use(toolset_name="computer")), asks(result())),
        "messages.2.content.0.tool_result.toolset_name: must be that of the `tool_use` block c1",
    ),
    "a result with a toolset's name": (
        request(USER, says(use()), asks(result(toolset_name="computer"))),
        "tool_result.toolset_name: must be that",
    ),
    "a tool loop that began without thinking": (
        request(USER, says(use()), asks(result()), says(THINKING, use("c2")), asks(result("c2")), **BUDGET),
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
    ),
    "a text before the use of a tool": (
        request(USER, says(text(), use()), asks(result(), text()), **BUDGET),
        "but found `text`. When `thinking` is enabled, a final `assistant` message must start with",
    ),
    "flag as text": (request(USER, says(use()), asks(result(is_error="no"))), "is_error: Input should be"),
    "two uses with one id": (
        request(USER, says(use(), use()), asks(result())),
        "messages.1.content.1: `tool_use` ids must be unique",
    ),
    "an id used again": (
        request(USER, says(use()), asks(result()), says(use()), asks(result())),
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    "hosted result without its call": (
        request(USER, says(found(), text()), USER),
        "unexpected `tool_use_id` found in `web_search_tool_result` blocks: s1.",
    ),
    "hosted call left behind": (
        request(USER, says(text(), hosted()), USER),
        "`web_search` tool use with id s1 was found without a corresponding `web_search_tool_result` block",
    ),
    # system
    "system as number": (request(USER, system=5), "system: Input should be a valid string or array"),
    "system with an image": (request(USER, system=[{"type": "image"}]), "system.0.type: Input should be"),
    "system with an empty text": (request(USER, system=[text("")]), "system: text content blocks must be"),
    "system with an unknown member": (request(USER, system=[text(foo=1)]), "system.0.text.foo: Extra inputs"),
    # tools
    "tools as object": (request(USER, tools={}), "tools: Input should be a valid array"),
    "tool as text": (request(USER, tools=["f"]), "tools.0: Input should be an object"),
    "tool without name": (request(USER, tools=[without("name", TOOL)]), "tools.0.custom.name: Field req"),
    "tool with a bad name": (request(USER, tools=[{**TOOL, "name": "a b"}]), "name: String should match"),
    "tool with a long name": (request(USER, tools=[{**TOOL, "name": "a" * 129}]), "String should match"),
    "two tools of one name": (request(USER, tools=[TOOL, TOOL]), "tools: Tool names must be unique."),
    "tool without schema": (request(USER, tools=[{"name": "f"}]), "tools.0.custom.input_schema: Field req"),
    "schema as text": (request(USER, tools=[{**TOOL, "input_schema": "{}"}]), "input_schema: Input should"),
    "schema without type": (schema(properties={}), "tools.0.custom.input_schema.type: Field required"),
    "schema of text": (schema(type="string"), "input_schema.type: Input should be 'object'"),
    "schema of choices": (schema(type="object", anyOf=[]), "does not support oneOf, allOf, or anyOf"),
    "tool in OpenAI's shape": (
        request(USER, tools=[{**TOOL, "parameters": {}}]),
        "tools.0.custom.parameters: Extra inputs are not permitted",
    ),
    "choice without tools": (
        request(USER, tool_choice={"type": "auto"}),
        "only be specified while providing",
    ),
    "choice as text": (request(USER, tools=[TOOL], tool_choice="auto"), "tool_choice: Input tag 'None'"),
    "choice in OpenAI's words": (request(USER, tools=[TOOL], tool_choice={"type": "required"}), "'required'"),
    "choice of another tool": (
        request(USER, tools=[TOOL], tool_choice={"type": "tool", "name": "g"}),
        "Tool 'g' not found in provided tools",
    ),
    # cache marks
    "five marks": (
        request(
            asks(text(cache_control=MARK), text(cache_control=MARK)),
            tools=[{**TOOL, "cache_control": MARK}],
            system=[text(cache_control=MARK)],
            cache_control=MARK,
        ),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "mark of another type": (
        request(USER, cache_control={"type": "for ever"}),
        "Input should be 'ephemeral'",
    ),
    "mark of another length": (
        request(asks(text(cache_control={**MARK, "ttl": "2h"}))),
        "messages.0.content.0.text.cache_control.ephemeral.ttl: Input should be '5m' or '1h'",
    ),
    # sampling
    "temperature": (request(USER, temperature=1.0), "temperature: Extra inputs are not permitted"),
    "top_p": (request(USER, top_p=0.5), "top_p: Extra inputs are not permitted"),
    "top_k": (request(USER, top_k=5), "top_k: Extra inputs are not permitted"),
    # thinking
    "thinking of an unknown type": (thinks(type="hard"), "thinking: Input tag 'hard'"),
    "thinking as truth": (request(USER, thinking=True), "thinking: Input tag 'None'"),
    "no budget": (thinks(type="enabled"), "thinking.enabled.budget_tokens: Field required"),
    "budget too small": (thinks(type="enabled", budget_tokens=1023), "greater than or equal to 1024"),
    "budget of everything": (thinks(type="enabled", budget_tokens=2048), "`max_tokens` must be greater"),
    "budget as text": (thinks(type="enabled", budget_tokens="2k"), "Input should be a valid integer"),
    "forced tool and thinking": (
        request(USER, tools=[TOOL], tool_choice={"type": "any"}, thinking={"type": "adaptive"}),
        "Thinking may not be enabled when tool_choice forces tool use.",
    ),
    "unknown binding": (
        thinks(type="adaptive", block_binding={"prefix_mismatch_behavior": "allow"}),
        "Input should be 'error' or 'drop_block'",
    ),
    "binding of no thinking": (thinks(type="disabled", block_binding={}), "block_binding: Extra inputs"),
}
ACCEPTED: dict[str, dict[str, Any]] = {
    "one question": request(USER),
    "a question in blocks": request(asks(text(), text())),
    "users in a row": request(USER, USER),
    "assistants in a row": request(USER, ANSWER, ANSWER, USER),
    "a system prompt": request(USER, system="s"),
    "an empty system prompt": request(USER, system=""),
    "system blocks": request(USER, system=[text(cache_control=MARK)]),
    "system message at the end": request(USER, system()),
    "system messages in the middle": request(USER, system(text()), system(), ANSWER, USER),
    "system message behind results": request(USER, says(use()), asks(result()), system()),
    "use and result": request(USER, says(use()), asks(result())),
    "a toolset's use and result": request(
        USER, says(use(toolset_name="computer")), asks(result(toolset_name="computer"))
    ),
    "a tool loop that began with thinking": request(
        USER, says(use()), asks(result()), USER, says(THINKING, use("c2")), asks(result("c2")), **BUDGET
    ),
    "an answer without thinking": request(USER, ANSWER, USER, **BUDGET),
    "a tool loop without a budget": request(USER, says(use()), asks(result()), thinking={"type": "adaptive"}),
    "text and use": request(USER, says(THINKING, text(), use()), asks(result(), text())),
    "results in any order": request(USER, says(use("c1"), use("c2")), asks(result("c2"), result("c1"))),
    "results in two messages": request(
        USER, says(use("c1"), use("c2")), asks(result("c1")), asks(result("c2"))
    ),
    "uses in two messages": request(USER, says(use("c1")), says(use("c2")), asks(result("c1"), result("c2"))),
    "a question behind the results": request(USER, says(use()), asks(result()), USER),
    "a result without content": request(USER, says(use()), asks(without("content", result()))),
    "a result of blocks": request(
        USER, says(use()), asks(result(content=[text(), {"type": "image", "source": {}}], is_error=False))
    ),
    "an error": request(USER, says(use()), asks(result(content=[text(), text()], is_error=True))),
    "a paused reply": request(USER, says(text(), hosted()), tools=[SEARCH]),
    "a paused reply with results": request(USER, says(hosted(), found()), tools=[SEARCH]),
    "a continued reply": request(USER, says(hosted()), says(found(), text()), USER),
    "a paused reply in a tool loop": request(USER, says(use()), asks(result()), says(hosted())),
    "a blank answer": request(USER, says(text(" ")), USER),
    "a summary of the provider": request(says({"type": "compaction", "content": "s"}), USER),
    "a tool": request(USER, tools=[{**TOOL, "description": "d", "strict": True}]),
    "a tool of the provider": request(USER, tools=[SEARCH, {"type": "custom", **TOOL}]),
    "no tool": request(USER, tools=[]),
    "a forced tool": request(USER, tools=[TOOL], tool_choice={"type": "tool", "name": "f"}),
    "no tool may be called": request(
        USER, tools=[TOOL], tool_choice={"type": "none"}, thinking={"type": "adaptive"}
    ),
    "four marks": request(
        asks(text(cache_control=MARK), text(cache_control={**MARK, "ttl": "1h"})),
        system=[text(cache_control=MARK)],
        cache_control=MARK,
    ),
    "adaptive thinking": thinks(type="adaptive", display="omitted"),
    "a budget": thinks(type="enabled", budget_tokens=1024),
    "thinking between tools": thinks(type="between_tools"),
    "a container of the simulator": request(USER, container={"id": "container_sim_1"}),
    "no container": request(USER, container=None),
    "settings": request(USER, stop_sequences=["x"], metadata={}, service_tier="auto", stream=False),
}


@pytest.mark.parametrize("name", REJECTED)
def test_every_rule_refuses_its_violation(name: str) -> None:
    """Each broken rule is named, in the provider's words, and first."""
    body, expected = REJECTED[name]

    problems = check_anthropic(body)

    assert problems
    assert expected in problems[0]


@pytest.mark.parametrize("name", ACCEPTED)
def test_valid_requests_pass(name: str) -> None:
    """What the provider takes is not refused."""
    assert check_anthropic(ACCEPTED[name]) == []


def test_the_older_version_takes_more() -> None:
    """Sampling, documents of an assistant and citations of a user are refused on the newer version only."""
    document = {"type": "document", "source": {}}
    body = request(USER, says(document), asks(text(citations=[{}])), temperature=0.5, top_p=0.5, top_k=5)

    assert check_anthropic(body, version="2023-06-01") == []
    assert check_anthropic(request(USER, temperature=1.5), version="2023-06-01") == [
        "temperature: range: 0..1"
    ]
    assert check_anthropic(request(USER, top_p="x"), version="2023-06-01")
    assert len(check_anthropic(body)) == 5


def test_betas_open_members() -> None:
    """Members of a beta are taken when any beta is named, and unknown ones never."""
    body = request(USER, context_management={})

    assert AnthropicRules(betas=frozenset()).refusals(body)
    assert AnthropicRules(betas=frozenset({"context-management-2025-06-27"})).refusals(body) == []
    assert AnthropicRules(betas=frozenset({"x"})).refusals(request(USER, foo=1))


def test_no_value_of_any_type_breaks_the_server() -> None:
    """Every member of a full request may be of any JSON type: it is answered or refused, with sentences."""
    sim = SimServer()
    headers = {"anthropic-version": "2026-10-21", "anthropic-beta": BINDING_BETA}
    full = request(
        asks(text()),
        says(THINKING, text(), use(), hosted(), found()),
        asks(result(content=[text()])),
        system=[text()],
        tools=[TOOL, SEARCH],
        tool_choice={"type": "tool", "name": "f"},
        thinking={"type": "adaptive", "block_binding": {}},
        container={"id": "container_sim"},
        cache_control=MARK,
        stop_sequences=["x"],
    )
    del full["messages"][1]["content"][0], full["tool_choice"]

    statuses = Counter(post(sim, orjson.dumps(changed), headers)[0] for changed in _damaged(full))

    assert set(statuses) == {200, 400}
    assert statuses[200] > 50
    assert statuses[400] > 300
    assert len(sim.problems) >= statuses[400]


def _damaged(value: Any) -> Iterator[Any]:
    """The value with one of its parts, at any depth, replaced by each kind of JSON value, or gone."""
    odd: list[Any] = [None, True, 0, -1, 1.5, "", "x", [], {}, [5], {"a": 1}]
    if isinstance(value, dict):
        for key in value:
            yield without(key, value)
            yield from ({**value, key: other} for other in (*odd, *_damaged(value[key])))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield value[:index] + value[index + 1 :]
            damaged = (*odd, *_damaged(value[index]))
            yield from ([*value[:index], other, *value[index + 1 :]] for other in damaged)


# ------------------------------------------------------------------------------------- the recordings


def exchanges(data_dir: Path) -> Iterator[tuple[str, dict[str, Any], int, Any]]:
    path = data_dir / "recorded" / "anthropic-messages.jsonl.zst"
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        for line in lines:
            record = orjson.loads(line)
            for exchange in record["exchanges"]:
                sent, answer = exchange["request"], exchange["response"]
                if sent["path"].partition("?")[0] == "/v1/messages":
                    name = f"{record['id']}:{exchange['seq']}"
                    yield name, sent, answer["status"], answer.get("body")


def recorded_rules(sent: dict[str, Any]) -> AnthropicRules:
    """As strict as the provider was: it knew its containers, and took an id that came twice."""
    version = sent["headers"].get("anthropic-version", "2023-06-01")
    return AnthropicRules(version=version, knows_container=lambda _: True, ids_stay_unique=False)


def test_recorded_requests_pass(data_dir: Path) -> None:
    """No request that the real provider answered breaks a rule."""
    refused: dict[str, list[str]] = {}
    passed = 0

    for name, sent, status, _ in exchanges(data_dir):
        if status == 200:
            problems = [refusal.message for refusal in recorded_rules(sent).refusals(sent["body"])]
            refused |= {name: problems} if problems else {}
            passed += not problems

    assert refused == {}
    assert passed > 500


def test_options_are_needed_for_no_more_than_they_say(data_dir: Path) -> None:
    """Without its two options the rules refuse the recorded containers and the repeated id, nothing else."""
    refused = set()

    for _, sent, status, _ in exchanges(data_dir):
        if status == 200:
            version = sent["headers"].get("anthropic-version", "2023-06-01")
            refused |= set(check_anthropic(sent["body"], version=version))

    assert {message.rpartition(": ")[2] for message in refused} == {
        "`tool_use` ids must be unique",
        "the container was not found or has expired",
    }


def test_recorded_refusal_is_said_in_the_same_words(data_dir: Path) -> None:
    """The one recorded 400 about a history is refused here with its very sentence."""
    recorded = [
        (sent["body"], body["error"]["message"])
        for _, sent, status, body in exchanges(data_dir)
        if status == 400 and "messages" in body["error"]["message"]
    ]

    assert [check_anthropic(sent, version="2023-06-01")[0] for sent, _ in recorded] == [
        message for _, message in recorded
    ]
    assert len(recorded) == 1


# ------------------------------------------------------------------------------------------ the server


def post(sim: SimServer, body: bytes, headers: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
    response = sim.respond("POST", "/v1/messages?beta=true", headers, body)
    return response.status, orjson.loads(response.body), dict(response.headers)


def test_the_server_refuses_with_the_first_rule() -> None:
    """A refused request gets Anthropic's error with the request's id in body and header, and is recorded."""
    sim = SimServer()

    body = orjson.dumps(request(foo=1))
    status, error, headers = post(sim, body, {"anthropic-version": "2026-10-21"})

    assert status == 400
    assert error == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "foo: Extra inputs are not permitted"},
        "request_id": headers["request-id"],
    }
    assert sim.problems == [
        "foo: Extra inputs are not permitted",
        "messages: at least one message is required",
    ]


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b"{", {"anthropic-version": "2026-10-21"}, "The request body is not valid JSON."),
        (orjson.dumps(request(USER)), {}, "anthropic-version: header is required"),
        (
            orjson.dumps(request(USER, temperature=1)),
            {"anthropic-version": "2026-10-21"},
            "temperature: Extra inputs are not permitted",
        ),
    ],
)
def test_the_server_reads_body_and_version(body: bytes, headers: dict[str, str], expected: str) -> None:
    """Broken JSON, a missing version, and a version that takes less are said in Anthropic's shape."""
    status, error, _ = post(SimServer(), body, headers)

    assert (status, error["error"]["message"]) == (400, expected)


def test_the_server_takes_sampling_on_the_older_version() -> None:
    """The rules follow the header of each request."""
    body = orjson.dumps(request(USER, temperature=0.5))

    assert post(SimServer(), body, {"anthropic-version": "2023-06-01"})[0] == 200
