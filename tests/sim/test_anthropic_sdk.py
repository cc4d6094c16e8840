"""The official Anthropic client understands the simulator: sync and async, unary and streamed, with tools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest

from goaitools_py.sim import Fault, Reply, SimServer

WORDS: list[Any] = [{"role": "user", "content": "Get the score of Red and Blue."}]
TOOLS: list[Any] = [
    {
        "name": "get_score",
        "input_schema": {
            "type": "object",
            "properties": {"team": {"type": "string"}},
            "required": ["team"],
        },
    }
]
THINKING: Any = {"type": "adaptive"}
BINDING = "thinking-binding-controls-2026-08-01"
ASKED: Any = {"model": "m", "max_tokens": 4000, "tools": TOOLS, "system": "S", "thinking": THINKING}


@pytest.fixture
def sim() -> Iterator[SimServer]:
    with SimServer() as server:
        yield server


@pytest.fixture
def api(sim: SimServer) -> Iterator[anthropic.Anthropic]:
    http = httpx2.Client(trust_env=False)
    with anthropic.Anthropic(
        base_url=sim.base_url_for("anthropic"), api_key="any", max_retries=0, http_client=http
    ) as client:
        yield client


def answered(message: Any) -> list[Any]:
    """The history after a reply with calls, each call answered."""
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "7"}
        for block in message.content
        if block.type == "tool_use"
    ]
    return [*WORDS, message.to_param(), {"role": "user", "content": results}]


def test_unary_with_tools_and_thinking(sim: SimServer, api: anthropic.Anthropic) -> None:
    """A tool loop runs through the typed client, and what it sends back breaks no rule and no signature."""
    first = api.messages.create(messages=WORDS, **ASKED)
    history = answered(first)
    second = api.messages.create(messages=history, **ASKED)
    history += [second.to_param(), {"role": "user", "content": "Thanks."}]
    third = api.messages.create(messages=history, **ASKED)

    assert first.stop_reason == "tool_use"
    assert [block.type for block in first.content] == ["thinking", "tool_use", "tool_use"]
    assert second.content[1].type == "text"
    assert second.content[1].text == "[simulated] get_score: 7 get_score: 7"
    assert third.content[0].type == "thinking"
    assert sim.problems == []


def test_the_streaming_helper_builds_the_same(sim: SimServer, api: anthropic.Anthropic) -> None:
    """The client's own accumulator makes of the events what a unary answer is, signature included."""
    unary = api.messages.create(messages=WORDS, **ASKED)
    with api.messages.stream(messages=WORDS, **ASKED) as stream:
        streamed = stream.get_final_message()

    assert [block.model_dump() for block in streamed.content] == [
        block.model_dump() for block in unary.content
    ]
    assert (streamed.stop_reason, streamed.usage.output_tokens) == (
        unary.stop_reason,
        unary.usage.output_tokens,
    )
    again = api.messages.create(messages=answered(streamed), **ASKED)
    assert again.content[-1].type == "text"
    assert sim.problems == []


def test_raw_events(api: anthropic.Anthropic) -> None:
    """The typed iterator yields the events in order, text in pieces, without the pings."""
    stream = api.messages.create(
        model="m", max_tokens=100, messages=[{"role": "user", "content": "Hello."}], stream=True
    )

    kinds = [event.type for event in stream]

    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert kinds.count("content_block_delta") > 2


def test_async(sim: SimServer) -> None:
    """The async client gets the same answer, unary and streamed."""

    async def both() -> tuple[str, str]:
        hello: list[Any] = [{"role": "user", "content": "Hello."}]
        http = httpx2.AsyncClient(trust_env=False)
        async with anthropic.AsyncAnthropic(
            base_url=sim.base_url_for("anthropic"), api_key="any", http_client=http
        ) as api:
            unary = await api.messages.create(model="m", max_tokens=100, messages=hello)
            async with api.messages.stream(model="m", max_tokens=100, messages=hello) as stream:
                text = "".join([piece async for piece in stream.text_stream])
        (block,) = unary.content
        assert block.type == "text"
        return block.text, text

    unary, streamed = asyncio.run(both())

    assert unary == streamed
    assert streamed.startswith("[simulated]")


def test_the_clients_own_tool_runner(sim: SimServer, api: anthropic.Anthropic) -> None:
    """The beta tool runner gives up message threads, resumes a paused reply, and breaks no rule."""
    asked: list[str] = []

    @anthropic.beta_tool
    def get_score(team: str) -> str:
        """The score of a team."""
        asked.append(team)
        return "7"

    sim.push(Reply.pause("Searching.", thinking="Search."))
    runner = api.beta.messages.tool_runner(
        model="m", max_tokens=4000, tools=[get_score], messages=WORDS, thinking=THINKING
    )
    last = runner.until_done()

    assert asked == ["Red", "Blue"]
    assert last.content[-1].type == "text"
    assert "get_score: 7" in last.content[-1].text
    assert [record.status for record in sim.requests] == [400, 200, 200, 200]
    assert [problem.partition(":")[0] for problem in sim.problems] == ["thread"]


def test_a_broken_signature_is_a_bad_request(api: anthropic.Anthropic) -> None:
    """A changed system prompt is the client's BadRequestError, and names the block."""
    history = answered(api.messages.create(messages=WORDS, **ASKED))

    with pytest.raises(anthropic.BadRequestError) as caught:
        api.messages.create(messages=history, **{**ASKED, "system": "Other."})

    assert caught.value.type == "invalid_request_error"
    assert caught.value.api_message is not None
    assert caught.value.api_message.startswith("messages.1.content.0: Invalid `signature` in `thinking`")
    assert caught.value.api_message.endswith("Changed since then: `system`.")


def test_dropped_thinking_is_reported(api: anthropic.Anthropic) -> None:
    """The beta client sends the control and reads the report, unary and streamed."""
    history = answered(api.messages.create(messages=WORDS, **ASKED))
    binding: Any = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    changed: Any = {**ASKED, "system": "Other.", "thinking": binding, "betas": [BINDING]}

    unary = api.beta.messages.create(messages=history, **changed)
    with api.beta.messages.stream(messages=history, **changed) as stream:
        streamed = stream.get_final_message()

    for message in (unary, streamed):
        assert message.input_transformations is not None
        (dropped,) = message.input_transformations
        assert (dropped.type, dropped.path) == ("thinking_dropped", "messages.1.content.0")
        assert dropped.reason == "prefix_binding_mismatch"


def test_a_container_is_read(sim: SimServer, api: anthropic.Anthropic) -> None:
    """The client reads the container of an answer and of a stream, and may send it back."""
    sim.push(*[Reply.text("x", container="container_sim_1")] * 2)
    hello: Any = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello."}]}

    unary = api.messages.create(**hello)
    streamed = list(api.messages.create(**hello, stream=True))

    assert unary.container is not None
    (delta,) = [event.delta for event in streamed if event.type == "message_delta"]
    assert delta.container == unary.container
    assert unary.container.expires_at.year > 2090
    assert api.messages.create(**hello, container=unary.container.id).content


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault.rate_limit(), anthropic.RateLimitError),
        (Fault.overloaded(), anthropic.InternalServerError),
        (Fault.unauthorized(), anthropic.AuthenticationError),
        (Fault.not_found(), anthropic.NotFoundError),
        (Fault.context_length(), anthropic.BadRequestError),
        (Fault.too_large(), anthropic.APIStatusError),
        (Fault.server_error(), anthropic.InternalServerError),
        (Fault.reset(), anthropic.APIConnectionError),
        (Fault.short_body(), anthropic.APIConnectionError),
    ],
)
def test_faults_become_the_clients_errors(
    sim: SimServer, api: anthropic.Anthropic, fault: Fault, expected: type[Exception]
) -> None:
    """Each fault raises what the client raises for the provider's own."""
    sim.push(fault)

    with pytest.raises(expected):
        api.messages.create(messages=WORDS, **ASKED)


def test_an_error_event_is_the_clients_error(sim: SimServer, api: anthropic.Anthropic) -> None:
    """An error in mid-stream, at status 200, has the provider's type."""
    sim.push(Fault.error_event(after=3))

    with pytest.raises(anthropic.APIStatusError) as caught:
        list(api.messages.create(messages=WORDS, **ASKED, stream=True))

    assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")


def test_pings_without_end_are_read_over(sim: SimServer, api: anthropic.Anthropic) -> None:
    """Keep-alive bytes in mid-stream are no events."""
    sim.push(Fault.pings(after=3))

    stream = api.messages.create(messages=WORDS, **ASKED, stream=True)

    assert next(iter(stream)).type == "message_start"
    stream.close()


def test_the_request_id_is_where_the_client_looks(sim: SimServer, api: anthropic.Anthropic) -> None:
    """Errors and raw answers name the request."""
    raw = api.messages.with_raw_response.create(messages=WORDS, **ASKED)
    with pytest.raises(anthropic.BadRequestError) as caught:
        api.messages.create(model="m", max_tokens=1, messages=[])

    assert raw.headers["request-id"] == "req_sim_000001"
    assert caught.value.request_id == "req_sim_000002"
