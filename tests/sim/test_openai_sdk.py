"""The official OpenAI client understands the simulator: sync and async, unary and streamed, with tools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from goaitools_py.sim import Fault, SimServer

WORDS: list[Any] = [{"role": "user", "content": "Get the score of Red and Blue."}]
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_score",
            "parameters": {
                "type": "object",
                "properties": {"team": {"type": "string"}},
                "required": ["team"],
            },
        },
    }
]


@pytest.fixture
def sim() -> Iterator[SimServer]:
    with SimServer() as server:
        yield server


def client(sim: SimServer) -> openai.OpenAI:
    http = httpx2.Client(trust_env=False)
    return openai.OpenAI(base_url=sim.base_url, api_key="any", max_retries=0, http_client=http)


def answered(message: Any) -> list[Any]:
    """The history after a reply with calls, each call answered."""
    results = [{"role": "tool", "tool_call_id": call.id, "content": "7"} for call in message.tool_calls]
    return [*WORDS, message.model_dump(exclude_none=True), *results]


def test_unary_with_tools(sim: SimServer) -> None:
    """A tool loop runs through the typed client, and the sent-back reply breaks no rule."""
    with client(sim) as api:
        first = api.chat.completions.create(model="m", messages=WORDS, tools=TOOLS)
        history = answered(first.choices[0].message)
        second = api.chat.completions.create(model="m", messages=history, tools=TOOLS)

    assert first.choices[0].finish_reason == "tool_calls"
    assert second.choices[0].message.content == "[simulated] get_score: 7 get_score: 7"
    assert second.usage is not None
    assert second.usage.total_tokens > second.usage.prompt_tokens > 0
    assert sim.problems == []


def test_streamed_with_tools(sim: SimServer) -> None:
    """The client's own accumulator builds the same reply from the stream."""
    with client(sim) as api:
        unary = api.chat.completions.create(model="m", messages=WORDS, tools=TOOLS)
        with api.chat.completions.stream(
            model="m", messages=WORDS, tools=TOOLS, stream_options={"include_usage": True}
        ) as stream:
            streamed = stream.get_final_completion()

    theirs, ours = streamed.choices[0].message.tool_calls, unary.choices[0].message.tool_calls
    assert theirs is not None
    assert ours is not None
    assert [(c.id, c.function.name, c.function.arguments) for c in theirs] == [
        (c.id, c.function.name, c.function.arguments) for c in ours if c.type == "function"
    ]
    assert streamed.usage is not None
    assert unary.usage is not None
    assert streamed.usage.completion_tokens == unary.usage.completion_tokens


def test_async(sim: SimServer) -> None:
    """The async client gets the same answer, unary and streamed."""

    async def both() -> tuple[str | None, str]:
        http = httpx2.AsyncClient(trust_env=False)
        async with openai.AsyncOpenAI(base_url=sim.base_url, api_key="any", http_client=http) as api:
            hello: list[Any] = [{"role": "user", "content": "Hello."}]
            unary = await api.chat.completions.create(model="m", messages=hello)
            stream = await api.chat.completions.create(model="m", messages=hello, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            return unary.choices[0].message.content, text

    unary, streamed = asyncio.run(both())

    assert unary == streamed
    assert streamed.startswith("[simulated]")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault.rate_limit(), openai.RateLimitError),
        (Fault.unauthorized(), openai.AuthenticationError),
        (Fault.not_found(), openai.NotFoundError),
        (Fault.context_length(), openai.BadRequestError),
        (Fault.server_error(), openai.InternalServerError),
        (Fault.reset(), openai.APIConnectionError),
        (Fault.short_body(), openai.APIConnectionError),
    ],
)
def test_faults_become_the_clients_errors(sim: SimServer, fault: Fault, expected: type[Exception]) -> None:
    """Each fault raises what the client raises for the provider's own."""
    sim.push(fault)

    with client(sim) as api, pytest.raises(expected):
        api.chat.completions.create(model="m", messages=WORDS)


def test_a_broken_rule_becomes_a_bad_request(sim: SimServer) -> None:
    """The client reads message, parameter and code of a refusal."""
    with client(sim) as api, pytest.raises(openai.BadRequestError) as caught:
        api.chat.completions.create(model="m", messages=[])

    assert caught.value.code == "empty_array"
    assert caught.value.param == "messages"
