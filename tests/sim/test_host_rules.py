"""The rules of hosts: each refuses a bad request in the host's form and words, and takes the good one.

The strongest test is the recorded traffic: a host has answered those requests, so no rule of it may refuse
one of them.
"""

from __future__ import annotations

import io
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from goaitools_py.sim import SimServer
from goaitools_py.sim.hosts import HOSTS, HostRule

from ._host_examples import EXAMPLES, ask

RULES = [
    pytest.param(wire, host.name, rule, id=f"{wire}-{host.name}-{rule.name.replace(' ', '_')}")
    for wire, hosts in HOSTS.items()
    for host in hosts.values()
    for rule in host.rules
]
ALL = [pytest.param(wire, name, id=f"{wire}-{name}") for wire, hosts in HOSTS.items() for name in hosts]
VAGUE = "Bad request"


def pattern(rule: HostRule) -> re.Pattern[str]:
    """Matches the words of a rule, whatever place they name."""
    return re.compile(".*?".join(map(re.escape, rule.text.split("{}"))))


# ------------------------------------------------------------------------------------------ each rule


@pytest.mark.parametrize(("wire", "host", "rule"), RULES)
def test_a_rule_refuses_the_bad_form_and_takes_the_good_one(wire: str, host: str, rule: HostRule) -> None:
    """The refusal has the status and the words of the rule. The good form breaks no rule of that name."""
    example = EXAMPLES[wire][rule.name]
    sim = SimServer(rules=host)

    status, answer = ask(sim, wire, example.bad)
    found = [problem for problem in sim.problems if pattern(rule).fullmatch(problem)]
    sim.clear()
    good, _ = ask(sim, wire, example.good)

    assert found, sim.problems
    assert status >= 400
    assert not [problem for problem in sim.problems if pattern(rule).fullmatch(problem)]
    if rule.refusal(example.bad) == next(
        r.refusal(example.bad) for r in HOSTS[wire][host].rules if r.refusal(example.bad)
    ):
        assert status == rule.status
        assert pattern(rule).search(json.dumps(answer, ensure_ascii=False).replace('\\"', '"')), answer
    if not sim.problems:
        assert good == 200


@pytest.mark.parametrize(("wire", "host", "rule"), RULES)
def test_a_rule_has_a_source(wire: str, host: str, rule: HostRule) -> None:
    """An issue of a repository, a page, a file at a commit, or recorded traffic."""
    known = (
        r"\w#\d+|https?://|\.(?:com|ai|io)\b|\.(?:py|go|cpp|jinja)\b|docs|error codes|table|recorded traffic"
    )

    assert re.search(known, rule.source), rule.source


def test_every_example_is_of_a_rule() -> None:
    """No example is left of a rule that is gone."""
    for wire, hosts in HOSTS.items():
        names = {rule.name for host in hosts.values() for rule in host.rules}
        assert set(EXAMPLES[wire]) == names


@pytest.mark.parametrize(("wire", "host"), ALL)
def test_a_plain_conversation_is_taken_everywhere(wire: str, host: str) -> None:
    """A host that answers nothing would pass every other test."""
    sim = SimServer(rules=host)
    body: dict[str, Any] = {"model": "some-model", "max_tokens": 64}
    body["messages"] = [{"role": "user", "content": "hi"}]
    if wire == "openai-responses":
        body = {"model": "some-model", "input": [{"role": "user", "content": "hi"}], "store": False}

    status, answer = ask(sim, wire, body)

    assert (status, sim.problems) == (200, []), answer


# ------------------------------------------------------------------------------- forms, words, replies


@pytest.mark.parametrize(
    ("host", "bad", "status", "expected"),
    [
        ("mistral", "only known members", 422, {"detail": [{"type": "extra_forbidden"}]}),
        ("mistral", "ids of nine", 400, {"object": "error", "code": "3280", "type": "invalid_function_call"}),
        ("groq", "one choice", 400, {"error": {"type": "invalid_request_error"}}),
        ("cerebras", "no reasoning_content of an assistant", 400, {"code": "wrong_api_format"}),
        ("xai", "no empty content", 400, {"code": "Client specified an invalid argument"}),
        ("gemini", "calls are signed", 400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT"}}]),
        ("vllm-qwen", "system first", 400, {"error": {"type": "BadRequestError", "code": 400}}),
        ("llamacpp-qwen", "system first", 500, {"error": {"type": "server_error", "code": 500}}),
        ("minimax", "system first", 400, {"type": "error", "error": {"http_code": "400"}}),
        ("perplexity", "roles alternate", 400, {"error": {"type": "invalid_message", "code": 400}}),
        ("cloudflare", "content is text", 400, {"errors": {"code": 5006}, "success": False}),
        ("litellm", "tools beside calls", 400, {"error": {"type": "None", "code": "400"}}),
        ("qwen", "no developer", 400, {"error": {"code": "invalid_parameter_error"}}),
        ("moonshot", "no mute assistant", 400, {"error": {"type": "invalid_request_error"}}),
    ],
)
def test_a_refusal_has_the_hosts_form(host: str, bad: str, status: int, expected: Any) -> None:
    """As its source shows it; the words are somewhere in it."""
    sim = SimServer(rules=host)

    found, answer = ask(sim, "openai", EXAMPLES["openai"][bad].bad)

    assert found == status
    assert covers(answer, expected), answer
    assert sim.problems[0] in json.dumps(answer, ensure_ascii=False).replace('\\"', '"')


def covers(value: Any, expected: Any) -> bool:
    """Whether all that is expected is in a value."""
    if isinstance(expected, dict):
        return isinstance(value, dict) and all(covers(value.get(k), v) for k, v in expected.items())
    if isinstance(expected, list):
        return isinstance(value, list) and all(map(covers, value, expected))
    return bool(value == expected)


@pytest.mark.parametrize(("wire", "host", "rule"), RULES)
def test_a_vague_refusal_says_nothing(wire: str, host: str, rule: HostRule) -> None:
    """Neither the words nor the code nor the parameter; a template's 500 is a 400 then."""
    sim = SimServer(rules=host, vague=True)

    status, answer = ask(sim, wire, EXAMPLES[wire][rule.name].bad)
    text = json.dumps(answer)

    assert 400 <= status < 500
    assert VAGUE in text
    assert not pattern(rule).search(text.replace(VAGUE, "")) or rule.text == "{}"
    assert rule.code is None or rule.code in ("invalid_request_error",) or rule.code not in text


# ------------------------------------------------------------------------- what only the company refuses

LONG = "chatcmpl-tool-" + "0" * 32
MANY = [
    {"type": "function", "function": {"name": f"f{at}", "parameters": {"type": "object"}}}
    for at in range(129)
]
STRICT = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}
CALLED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": LONG, "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
HI = {"role": "user", "content": "hi"}
RESULT = {"role": "tool", "tool_call_id": LONG, "content": "ok"}
THOUGHT = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "Hello."},
    ],
}
ITEM = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm."}],
}
SAID = {
    "type": "message",
    "role": "assistant",
    "id": "msg_1",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
}
UUID = "8fc1af85-3010-42b2-bcb8-1a6d50000000"


@pytest.mark.parametrize(
    ("wire", "body", "refusing", "taking"),
    [
        pytest.param(
            "openai", {"messages": [HI, CALLED, RESULT]}, "openai azure", "vllm ollama groq", id="long-id"
        ),
        pytest.param(
            "openai", {"messages": [HI], "tools": MANY}, "openai azure groq", "vllm ollama", id="tools"
        ),
        pytest.param(
            "openai", {"messages": [HI], "tools": [STRICT]}, "openai azure", "groq vllm qwen", id="strict"
        ),
        pytest.param(
            "openai", {"messages": [HI], "stop": [*"abcde"]}, "openai azure", "groq vllm", id="stops"
        ),
        pytest.param(
            "openai", {"messages": [HI, RESULT]}, "openai groq mistral", "llamacpp ollama", id="pairs"
        ),
        pytest.param("openai", {"messages": [HI, THOUGHT, HI]}, "openai groq", "mistral", id="thinking"),
        pytest.param(
            "openai-responses",
            {"input": [HI], "num_ctx": 9},
            "openai azure vllm",
            "ollama llamacpp",
            id="member",
        ),
        pytest.param(
            "openai-responses",
            {"input": [HI, ITEM, SAID, HI]},
            "openai azure",
            "vllm ollama llamacpp",
            id="unsealed",
        ),
        pytest.param(
            "openai-responses",
            {"input": [HI, {**SAID, "id": UUID}, HI]},
            "openai azure",
            "deepseek ollama",
            id="uuid",
        ),
        pytest.param(
            "anthropic",
            {"messages": [{**HI, "name": "Ada"}]},
            "anthropic bedrock vertex",
            "deepseek",
            id="extra",
        ),
    ],
)
def test_a_host_takes_what_only_the_company_refuses(
    wire: str, body: dict[str, Any], refusing: str, taking: str
) -> None:
    """The company's own limits are not the limits of others."""
    more = {"openai-responses": {"store": False}, "anthropic": {"max_tokens": 64}}.get(wire, {})
    given = {"model": "some-model", **body, **more}

    found = {host: ask(SimServer(rules=host), wire, given)[0] for host in f"{refusing} {taking}".split()}

    assert found == {**dict.fromkeys(refusing.split(), 400), **dict.fromkeys(taking.split(), 200)}


# ----------------------------------------------------------------------------------- which hosts there are


def test_an_unknown_host_is_named_with_the_known_ones() -> None:
    """A slip is found at once."""
    with pytest.raises(ValueError, match=r"no rules of 'grok', only of anthropic, azure, .*, xai$"):
        SimServer(rules="grok")


def test_a_provider_api_that_a_host_does_not_have_is_not_found() -> None:
    """Rather that than the company's own rules under the host's name."""
    status, _ = ask(SimServer(rules="groq"), "anthropic", {"model": "m", "max_tokens": 1, "messages": []})

    assert status == 404


def test_there_are_as_many_hosts_as_were_asked_for() -> None:
    """Each is of a provider API by its name."""
    wanted = {
        "openai": "openai azure deepseek moonshot mistral groq gemini cerebras xai together fireworks "
        "openrouter vllm-gemma vllm-qwen ollama llamacpp llamacpp-gpt-oss qwen perplexity minimax cloudflare "
        "litellm lmstudio",
        "openai-responses": "openai azure vllm xai ollama llamacpp",
        "anthropic": "anthropic bedrock vertex litellm deepseek",
    }

    for wire, names in wanted.items():
        assert set(names.split()) <= set(HOSTS[wire])


def test_the_page_names_every_host() -> None:
    """`docs/testing.md` lists those that there are."""
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")

    for wire, hosts in HOSTS.items():
        (row,) = re.findall(rf'^\| `"{wire}"` \| (.*) \|$', page, re.MULTILINE)
        assert set(re.findall(r"`([^`]+)`", row)) == set(hosts)


# --------------------------------------------------------------------------------------- recorded traffic

RECORDED = {
    "api.openai.com": "openai",
    "fake-azure-endpoint.openai.azure.com": "azure",
    "openrouter.ai": "openrouter",
    "api.groq.com": "groq",
    "api.cerebras.ai": "cerebras",
    "api.deepseek.com": "deepseek",
    "api.mistral.ai": "mistral",
    "ollama.com": "ollama",
    "api.inference.crusoecloud.com": "vllm",
    "api.anthropic.com": "anthropic",
}
FILES = {"openai": "openai-chat", "openai-responses": "openai-responses", "anthropic": "anthropic-messages"}


def recorded(data_dir: Path, wire: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Host and body of every recorded request that was answered."""
    with (data_dir / "recorded" / f"{FILES[wire]}.jsonl.zst").open("rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8"):
            for exchange in json.loads(line)["exchanges"]:
                request = exchange["request"]
                host, is_taken = RECORDED.get(request["host"]), exchange["response"]["status"] == 200
                if host is not None and is_taken and request["body"]:
                    yield host, request["body"]


@pytest.mark.parametrize("wire", FILES)
def test_a_host_takes_the_recorded_requests_that_it_answered(data_dir: Path, wire: str) -> None:
    """No rule of it refuses one of them. An Azure deployment is named by the path, without a model."""
    taken: Counter[str] = Counter()

    for host, body in recorded(data_dir, wire):
        refused = [
            f"{rule.name}: {found.message}"
            for rule in HOSTS[wire][host].rules
            if (found := rule.refusal(body)) is not None
        ]
        assert refused == [], (host, body)
        taken[host] += 1

    assert len(taken) >= {"openai": 9, "openai-responses": 2, "anthropic": 1}[wire]


def test_a_host_answers_the_recorded_chats_that_it_answered(data_dir: Path) -> None:
    """Whole requests, through the server: the company's rules that hold at the host refuse none either."""
    sims = {host: SimServer(rules=host) for host in RECORDED.values() if host in HOSTS["openai"]}

    for host, body in recorded(data_dir, "openai"):
        status, answer = ask(sims[host], "openai", {"model": "deployment", **body})
        assert status == 200, (host, answer)


def test_nothing_refuses_by_raising() -> None:
    """Rules read bodies of strangers: whatever stands in a member, a rule answers."""
    odd: list[Any] = [
        None,
        3,
        "x",
        [],
        [None],
        {},
        [{}],
        [{"role": 3}],
        [{"role": "user", "content": [3, {}]}],
    ]
    odd += [[{"role": "assistant", "tool_calls": value}] for value in (3, "x", [3], [{}], [{"function": 3}])]
    odd += [[{"function": {"parameters": value}}] for value in (3, [], {"properties": 3}, {"anyOf": [3]})]

    for hosts in HOSTS.values():
        for host in hosts.values():
            for rule in host.rules:
                for value in odd:
                    for key in ("messages", "input", "tools", "response_format", "thinking", "reasoning"):
                        found = rule.refusal({"model": "m", "messages": [], key: value})
                        assert found is None or isinstance(found.message, str)


@pytest.mark.parametrize(("wire", "host"), ALL)
def test_a_damaged_request_is_answered_or_refused(wire: str, host: str) -> None:
    """A host that takes more than the company must still find an answer to whatever it takes."""
    draw = random.Random(f"{wire}/{host}")
    sim = SimServer(rules=host)
    bodies = [body for example in EXAMPLES[wire].values() for body in example]
    statuses: Counter[int] = Counter()

    for body in bodies:
        for _ in range(5):
            damaged = damage(draw, json.loads(json.dumps(body)))
            statuses[ask(sim, wire, damaged)[0]] += 1

    assert set(statuses) <= {200, 400, 422, 500}
    assert len(statuses) > 1


def damage(draw: random.Random, body: Any) -> Any:
    """The request with one thing in it lost, or replaced by another."""
    place: Any = body
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return body
        key = draw.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and draw.random() < 0.8:
            place = place[key]
        elif draw.random() < 0.5:
            del place[key]
            return body
        else:
            place[key] = draw.choice((None, "", "x", 3, [], {}, "c1", ["x"], {"type": "text"}))
            return body
