"""The official OpenAI client understands the Responses wire: sync and async, streamed, with reasoning."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from goaitools_py.sim import Fault, Reply, SimServer

ASK: Any = {"role": "user", "content": "Get the score of Red and Blue."}
TOOLS: list[Any] = [
    {
        "type": "function",
        "name": "get_score",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"team": {"type": "string"}},
            "required": ["team"],
            "additionalProperties": False,
        },
    }
]
STATELESS: dict[str, Any] = {
    "model": "m",
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "low", "summary": "auto"},
    "tools": TOOLS,
}


@pytest.fixture
def sim() -> Iterator[SimServer]:
    with SimServer() as server:
        yield server


def client(sim: SimServer) -> openai.OpenAI:
    http = httpx2.Client(trust_env=False)
    url = sim.base_url_for("openai-responses")
    return openai.OpenAI(base_url=url, api_key="any", max_retries=0, http_client=http)


def async_client(sim: SimServer) -> openai.AsyncOpenAI:
    http = httpx2.AsyncClient(trust_env=False)
    url = sim.base_url_for("openai-responses")
    return openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0, http_client=http)


def replayed(response: Any) -> list[Any]:
    """A response's items as its client sends them back, and an output for each call."""
    items = [item.model_dump(exclude_unset=True) for item in response.output]
    calls = [item for item in response.output if item.type == "function_call"]
    return items + [
        {"type": "function_call_output", "call_id": call.call_id, "output": "7"} for call in calls
    ]


def test_a_tool_loop_with_reasoning(sim: SimServer) -> None:
    """Reasoning goes round through the typed client; nothing is removed, and no rule is broken."""
    with client(sim) as api:
        first = api.responses.create(input=[ASK], **STATELESS)
        history = [ASK, *replayed(first)]
        second = api.responses.create(input=history, **STATELESS)
        history += [*replayed(second), {"role": "user", "content": "Thank you."}]
        third = api.responses.create(input=history, **STATELESS)

    assert [item.type for item in first.output] == ["reasoning", "function_call", "function_call"]
    assert second.output_text == "[simulated] get_score: 7 get_score: 7"
    assert third.status == "completed"
    assert not any(made.input_transformations for made in (first, second, third))
    assert third.usage is not None
    assert third.usage.input_tokens_details.cached_tokens > 0
    assert third.usage.output_tokens_details.reasoning_tokens > 0
    assert sim.problems == []


def test_removed_reasoning_is_typed(sim: SimServer) -> None:
    """The client reads which reasoning was left out, and why."""
    with client(sim) as api:
        first = api.responses.create(input=[ASK], **STATELESS)
        changed: Any = {"role": "user", "content": "Get the score of Green and Blue."}
        second = api.responses.create(input=[changed, *replayed(first)], **STATELESS)

    assert second.input_transformations is not None
    (gone,) = second.input_transformations
    assert (gone.id, gone.action, gone.reason) == (first.output[0].id, "removed", "prefix_mismatch")


def test_streamed_by_the_clients_own_accumulator(sim: SimServer) -> None:
    """`responses.stream` builds the same reply as `responses.create`, and it can be sent back."""
    with client(sim) as api:
        unary = api.responses.create(input=[ASK], **STATELESS)
        with api.responses.stream(input=[ASK], **STATELESS) as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_response()
        after = api.responses.create(input=[ASK, *replayed(streamed)], **STATELESS)

    assert replayed(streamed)[0]["id"] == replayed(unary)[0]["id"]
    assert [item.type for item in streamed.output] == [item.type for item in unary.output]
    assert [getattr(item, "arguments", None) for item in streamed.output] == [
        getattr(item, "arguments", None) for item in unary.output
    ]
    assert "response.reasoning_summary_text.delta" in kinds
    assert kinds[-1] == "response.completed"
    assert not after.input_transformations


def test_items_done_can_be_sent_back(sim: SimServer) -> None:
    """The items of `output_item.done` are as good as those of the terminal event."""
    with client(sim) as api:
        events = list(api.responses.create(input=[ASK], stream=True, **STATELESS))
        done = [e.item for e in events if e.type == "response.output_item.done"]
        calls = [item for item in done if item.type == "function_call"]
        outputs = [{"type": "function_call_output", "call_id": c.call_id, "output": "7"} for c in calls]
        history = [ASK, *[item.model_dump(exclude_unset=True) for item in done], *outputs]
        after = api.responses.create(input=history, **STATELESS)

    assert len(calls) == 2
    assert not after.input_transformations
    assert sim.problems == []


def test_async(sim: SimServer) -> None:
    """The async client gets the same answer, unary and streamed, and goes through a tool loop."""

    async def both() -> tuple[str, str, str]:
        async with async_client(sim) as api:
            unary = await api.responses.create(model="m", input="Hello.")
            stream = await api.responses.create(model="m", input="Hello.", stream=True)
            text = "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])
            async with api.responses.stream(input=[ASK], **STATELESS) as told:
                first = await told.get_final_response()
            second = await api.responses.create(input=[ASK, *replayed(first)], **STATELESS)
            return unary.output_text, text, second.output_text

    unary, streamed, looped = asyncio.run(both())

    assert unary == streamed
    assert streamed.startswith("[simulated]")
    assert looped == "[simulated] get_score: 7 get_score: 7"


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
        api.responses.create(model="m", input="hi")


def test_a_broken_rule_becomes_a_bad_request(sim: SimServer) -> None:
    """The client reads message, parameter and code of a refusal."""
    with client(sim) as api, pytest.raises(openai.BadRequestError) as caught:
        api.responses.create(model="m", input="hi", previous_response_id="resp_1")

    assert caught.value.code == "previous_response_not_found"
    assert caught.value.param == "previous_response_id"
    assert "Previous response with id 'resp_1' not found." in caught.value.message


def test_endings_in_mid_stream_are_events(sim: SimServer) -> None:
    """The client yields `error`, `response.failed` and `response.incomplete` as ordinary events."""
    sim.push(Fault.error_event(), Reply.text("Well", finish="failed"), Reply.text("Well", finish="length"))

    with client(sim) as api:
        last = [list(api.responses.create(model="m", input="hi", stream=True))[-1] for _ in range(3)]

    assert [event.type for event in last] == ["error", "response.failed", "response.incomplete"]
    assert last[0].type == "error"
    assert last[0].message == "The server is overloaded. Please try again later."
    assert last[1].type == "response.failed"
    assert last[1].response.error is not None
    assert last[2].type == "response.incomplete"
    assert last[2].response.incomplete_details is not None
    assert last[2].response.incomplete_details.reason == "max_output_tokens"


def test_a_custom_tool(sim: SimServer) -> None:
    """A custom tool's call and output go round."""
    shell: Any = {"type": "custom", "name": "shell"}
    sim.push(Reply.calls(("shell", "ls")))

    with client(sim) as api:
        first = api.responses.create(model="m", input=[ASK], tools=[shell])
        (call,) = first.output
        assert call.type == "custom_tool_call"
        output: Any = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "a.txt"}
        sent: Any = [ASK, call.model_dump(exclude_unset=True), output]
        second = api.responses.create(model="m", input=sent, tools=[shell])

    assert call.input == "ls"
    assert "a.txt" in second.output_text
    assert sim.problems == []
