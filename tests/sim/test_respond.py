"""One request, one response, without a socket: the wire, the record, usage and the prompt cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from goaitools_py.sim import Fault, Prompt, Reply, Response, SimServer

PATH = "/v1/chat/completions"
TOOLS = [
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


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def post(sim: SimServer, *messages: Mapping[str, Any], **more: Any) -> Response:
    body = json.dumps({"model": "gpt-4o", "messages": messages, **more}).encode()
    return sim.respond("POST", PATH, {"content-type": "application/json"}, body)


def chunks(response: Response) -> list[dict[str, Any]]:
    lines = [line for line in response.body.decode().split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


# ---------------------------------------------------------------------------------------------- wire


def test_a_completion_is_labelled_as_simulated() -> None:
    """Text, model name and fingerprint all say that no real model answered."""
    answer = json.loads(post(SimServer(), user("Hello.")).body)

    assert answer["choices"][0]["message"]["content"].startswith("[simulated]")
    assert answer["model"] == "sim-gpt-4o"
    assert answer["system_fingerprint"] == "sim"
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_stream_tells_the_same_as_a_completion() -> None:
    """Deltas joined equal the unary message: text, calls with their ids, finish word, usage."""
    sim = SimServer()
    for words in ("My name is Ada.", "Get the score of Red and Blue."):
        sim.clear()
        unary = json.loads(post(sim, user(words), tools=TOOLS).body)
        sim.clear()
        streamed = chunks(
            post(sim, user(words), tools=TOOLS, stream=True, stream_options={"include_usage": True})
        )

        text, calls, finish = "", {}, None
        for chunk in streamed[:-1]:
            (choice,) = chunk["choices"]
            finish = choice["finish_reason"] or finish
            text += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls", ()):
                if "id" in call:
                    calls[call["index"]] = call
                else:
                    calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]

        message = unary["choices"][0]["message"]
        assert text == (message["content"] or "")
        assert [{k: v for k, v in call.items() if k != "index"} for call in calls.values()] == message.get(
            "tool_calls", []
        )
        assert finish == unary["choices"][0]["finish_reason"]
        assert streamed[-1]["choices"] == []
        assert streamed[-1]["usage"] == unary["usage"]


def test_a_stream_has_usage_only_if_asked() -> None:
    """Without include_usage no chunk speaks of usage."""
    streamed = chunks(post(SimServer(), user("Hello."), stream=True))

    assert all("usage" not in chunk for chunk in streamed)
    assert all(chunk["choices"] for chunk in streamed)


def test_arguments_are_streamed_in_pieces() -> None:
    """A tool call's arguments arrive in more than one delta."""
    streamed = chunks(post(SimServer(), user("Get the score of Red."), tools=TOOLS, stream=True))

    deltas = [chunk["choices"][0]["delta"] for chunk in streamed]
    assert sum("tool_calls" in delta and "id" not in delta["tool_calls"][0] for delta in deltas) > 1


def test_forbidden_tools_are_not_called() -> None:
    """With tool_choice none the answer comes in words."""
    answer = json.loads(
        post(SimServer(), user("Get the score of Red."), tools=TOOLS, tool_choice="none").body
    )

    assert "tool_calls" not in answer["choices"][0]["message"]


def test_only_the_chosen_tool_is_called() -> None:
    """A tool named in tool_choice is called though the player asked for another."""
    other = {"type": "function", "function": {"name": "roll_dice"}}
    choice = {"type": "function", "function": {"name": "roll_dice"}}

    answer = json.loads(
        post(SimServer(), user("Get the score of Red."), tools=[*TOOLS, other], tool_choice=choice).body
    )

    assert [c["function"]["name"] for c in answer["choices"][0]["message"]["tool_calls"]] == ["roll_dice"]


def test_call_ids_are_new_in_each_exchange_and_equal_for_equal_requests() -> None:
    """Ids are drawn from the request: 24 hex digits, repeatable, different elsewhere."""
    first = post(SimServer(), user("Get the score of Red and Blue."), tools=TOOLS)
    again = post(SimServer(), user("Get the score of Red and Blue."), tools=TOOLS)
    other = post(SimServer(), user("Hm."), user("Get the score of Red and Blue."), tools=TOOLS)

    ids = [
        [call["id"] for call in json.loads(response.body)["choices"][0]["message"]["tool_calls"]]
        for response in (first, again, other)
    ]

    assert ids[0] == ids[1]
    assert len({*ids[0], *ids[2]}) == 4
    assert all(id.startswith("call_") and len(id) == 29 for id in ids[0])


def test_an_output_limit_cuts_the_reply() -> None:
    """max_completion_tokens ends the reply with the finish word length."""
    answer = json.loads(post(SimServer(), user("My name is Ada."), max_completion_tokens=4).body)

    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 4


def test_a_lone_surrogate_comes_back() -> None:
    """Text that is no valid Unicode does not break the answer."""
    answer = json.loads(post(SimServer(), user("My name is A\ud800.")).body)

    assert "A\ud800" in answer["choices"][0]["message"]["content"]


def test_another_model_can_be_put_in() -> None:
    """Any callable from prompt to reply serves as the model."""

    def echo(prompt: Prompt) -> Reply:
        return Reply.text(f"[simulated] {prompt.history[-1].text}")

    answer = json.loads(post(SimServer(model=echo), user("Hello.")).body)

    assert answer["choices"][0]["message"]["content"] == "[simulated] Hello."


def test_models_are_listed() -> None:
    """GET /v1/models names the game master."""
    response = SimServer().respond("GET", "/v1/models", {}, b"")

    assert [model["id"] for model in json.loads(response.body)["data"]] == ["sim-game-master"]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/nothing"), ("GET", PATH), ("POST", "/chat/completions")]
)
def test_other_addresses_are_not_found(method: str, path: str) -> None:
    """Anything but the endpoint is 404 in OpenAI's error shape."""
    response = SimServer().respond(method, path, {}, b"{}")

    assert response.status == 404
    assert json.loads(response.body)["error"]["message"] == f"Invalid URL ({method} {path})"


# ------------------------------------------------------------------------------------ rules and record


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"a":1',
        b'{"a"}',
        b'{"a":1,}',
        b'{"a":1}x',
        b"{1:2}",
        b'{"a":NaN}',
        b"\xff",
        b'{"a":' + b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    """Whatever bytes come, the answer is a 400 in OpenAI's error shape."""
    sim = SimServer()

    response = sim.respond("POST", PATH, {}, body)

    assert response.status == 400
    assert json.loads(response.body)["error"]["type"] == "invalid_request_error"
    assert sim.requests[0].parsed is None
    assert len(sim.problems) == 1


def test_a_broken_rule_is_answered_as_the_provider_does_and_recorded() -> None:
    """A request that breaks rules gets 400 with the first of them; the record has them all."""
    sim = SimServer()
    orphan = {"role": "tool", "tool_call_id": "c1", "content": "x"}

    response = post(sim, orphan, orphan)

    error = json.loads(response.body)["error"]
    assert response.status == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] == "messages.[0].role"
    assert error["code"] is None
    assert sim.requests[0].status == 400
    assert sim.problems == list(sim.requests[0].problems)
    assert len(sim.problems) == 2
    assert sim.problems[0] == error["message"]


def test_a_request_is_recorded_as_it_came() -> None:
    """The record has path, headers, the body's bytes and the parsed body."""
    sim = SimServer()
    body = b'{ "model":"m", "messages":[{"role":"user","content":"hi"}]}'

    sim.respond("POST", PATH + "?a=1", {"x-trace": "7"}, body)

    (recorded,) = sim.requests
    assert (recorded.method, recorded.path, recorded.body) == ("POST", PATH + "?a=1", body)
    assert recorded.headers == {"x-trace": "7"}
    assert recorded.parsed == json.loads(body)
    assert (recorded.status, recorded.problems) == (200, ())


def test_a_record_shows_no_content() -> None:
    """The repr of a recorded request holds neither its body nor its headers."""
    sim = SimServer()
    sim.respond(
        "POST", PATH, {"authorization": "Bearer k-1"}, b'{"model":"m","messages":[],"note":"private"}'
    )

    shown = repr(sim.requests)

    assert "k-1" not in shown
    assert "private" not in shown


def test_clear_forgets_everything() -> None:
    """After clear there is no script, no record, no problem and no cached prefix."""
    sim = SimServer()
    post(sim, user("x" * 500))
    post(sim)
    sim.push(Reply.text("queued"))

    sim.clear()

    assert (sim.requests, sim.problems) == ([], [])
    answer = json.loads(post(sim, user("x" * 500)).body)
    assert answer["choices"][0]["message"]["content"] != "queued"
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_every_answer_has_a_request_id() -> None:
    """Good answers and errors alike carry an x-request-id of their own."""
    sim = SimServer()

    ids = [
        dict(post(sim, *messages).headers)["x-request-id"]
        for messages in ([user("Hello.")], [], [user("Hello.")])
    ]

    assert len(set(ids)) == 3


# --------------------------------------------------------------------------------------------- usage


def usage(response: Response) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(response.body)["usage"]
    return found


def test_prompt_tokens_grow_with_the_request() -> None:
    """A longer history and a tool list cost more tokens; the total is the sum."""
    sim = SimServer()

    short = usage(post(sim, user("Hello.")))
    longer = usage(post(sim, user("Hello."), user("Hello.")))
    tooled = usage(post(sim, user("Hello."), tools=TOOLS))

    assert short["prompt_tokens"] < longer["prompt_tokens"] < tooled["prompt_tokens"]
    assert short["total_tokens"] == short["prompt_tokens"] + short["completion_tokens"]


def test_a_growing_history_is_cached() -> None:
    """The second turn finds all of the first in the cache, up to one block of 32 tokens."""
    sim = SimServer()
    turn = [user("Hello. " * 100), {"role": "assistant", "content": "Hi."}]

    first = usage(post(sim, *turn, tools=TOOLS))
    second = usage(post(sim, *turn, user("And now?"), tools=TOOLS))

    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert 0 <= first["prompt_tokens"] - second["prompt_tokens_details"]["cached_tokens"] <= 32


def test_a_changed_beginning_is_not_cached() -> None:
    """One different byte at the front, or another model, and nothing is cached."""
    sim = SimServer()
    post(sim, user("A" + "x" * 4_000))

    changed = usage(post(sim, user("B" + "x" * 4_000)))
    elsewhere = usage(post(sim, user("A" + "x" * 4_000), model="other"))

    assert changed["prompt_tokens_details"]["cached_tokens"] == 0
    assert elsewhere["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_change_in_the_middle_keeps_what_is_before_it() -> None:
    """The longest common prefix counts, not all or nothing."""
    sim = SimServer()
    post(sim, user("x" * 2_000), user("old" + "y" * 2_000))

    cached = usage(post(sim, user("x" * 2_000), user("new" + "y" * 2_000)))["prompt_tokens_details"][
        "cached_tokens"
    ]

    assert 2_000 / 4 - 32 <= cached <= 2_000 / 4 + 32


def test_white_space_is_part_of_the_prefix() -> None:
    """The cache compares bytes as they came over the wire, not their meaning."""
    sim = SimServer()
    messages = json.dumps([user("x" * 1_000)])
    sim.respond("POST", PATH, {}, b'{"model":"m","messages":%s}' % messages.encode())

    spaced = sim.respond(
        "POST", PATH, {}, b'{"model":"m","messages":%s}' % messages.replace("[", "[ ").encode()
    )

    assert usage(spaced)["prompt_tokens_details"]["cached_tokens"] == 0


# -------------------------------------------------------------------------------------------- script


def test_the_script_goes_before_the_model() -> None:
    """Queued replies answer one request each, in order; then the model is back."""
    sim = SimServer()
    sim.push(Reply.text("one"), Reply.calls(("f", "{}"), text="two"))

    messages = [json.loads(post(sim, user("Hello.")).body)["choices"][0]["message"] for _ in range(3)]

    assert messages[0]["content"] == "one"
    assert (messages[1]["content"], len(messages[1]["tool_calls"])) == ("two", 1)
    assert messages[2]["content"].startswith("[simulated]")


def test_a_refused_request_leaves_the_script_alone() -> None:
    """A request that breaks a rule uses up nothing of the script."""
    sim = SimServer()
    sim.push(Reply.text("one"))

    post(sim)

    assert json.loads(post(sim, user("Hello.")).body)["choices"][0]["message"]["content"] == "one"


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (Fault.rate_limit(), 429, "rate_limit_exceeded"),
        (Fault.quota(), 429, "insufficient_quota"),
        (Fault.server_error(), 500, None),
        (Fault.server_error(503), 503, None),
        (Fault.unauthorized(), 401, "invalid_api_key"),
        (Fault.not_found(), 404, "model_not_found"),
        (Fault.bad_request(code="odd"), 400, "odd"),
        (Fault.context_length(), 400, "context_length_exceeded"),
        (Fault.error(418, "tea", type="t", param="p", code="c"), 418, "c"),
        (Fault.error_body(), 200, None),
        (Fault.error_event(), 200, None),
    ],
)
def test_error_answers(fault: Fault, status: int, code: str | None) -> None:
    """Each error fault answers with its status and OpenAI's error object; it is no rule violation."""
    sim = SimServer()
    sim.push(fault)

    response = post(sim, user("Hello."))

    assert response.status == status
    assert json.loads(response.body)["error"]["code"] == code
    assert sim.problems == []
    assert sim.requests[0].status == status


def test_a_rate_limit_says_when_to_come_back() -> None:
    """Seconds, milliseconds, or neither: as ordered."""
    sim = SimServer()
    sim.push(Fault.rate_limit(retry_after=2), Fault.rate_limit(retry_after_ms=1500), Fault.rate_limit())

    headers = [dict(post(sim, user("Hello.")).headers) for _ in range(3)]

    assert headers[0]["retry-after"] == "2"
    assert headers[1]["retry-after-ms"] == "1500"
    assert not {"retry-after", "retry-after-ms"} & set(headers[2])


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (Fault.null(), b"null"),
        (Fault.html(), b"<!doctype html>"),
        (Fault.broken_json(), b'{"id":'),
        (Reply.raw(b"any", status=201, headers={"x-a": "b"}), b"any"),
        (Reply.sse(b"data: {}\n\n"), b"data: {}\n\n"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_exact_bytes(response: Response, body: bytes, stream: bool) -> None:
    """Scripted bytes are answered as they are, streamed or not."""
    sim = SimServer()
    sim.push(response)

    answer = post(sim, user("Hello."), stream=stream)

    assert (answer.status, answer.body) == (response.status, response.body)
    assert answer.body.startswith(body)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("null", "choices"), [(False, []), (True, None)])
def test_an_answer_without_choices(stream: bool, null: bool, choices: Any) -> None:
    """The list of choices is empty, or null, in a body as in a stream."""
    sim = SimServer()
    sim.push(Fault.no_choices(null=null))

    response = post(sim, user("Hello."), stream=stream)

    answer = chunks(response)[0] if stream else json.loads(response.body)
    assert answer["choices"] == choices


@pytest.mark.parametrize(
    ("reply", "finish"),
    [
        (Reply.text("cut", finish="length"), "length"),
        (Reply.text("", finish="content_filter"), "content_filter"),
        (Reply.calls(("pay", '{"amount": 1'), finish="length"), "length"),
        (Reply.calls(("pay", "{}"), finish="stop"), "stop"),
        (Reply.calls(("pay", "{}"), finish=""), ""),
        (Reply.calls(("pay", "{}")), "tool_calls"),
        (Reply.refusal("no"), "stop"),
    ],
)
def test_finish_words(reply: Reply, finish: str) -> None:
    """The finish word is the wire's own, or the one ordered, however odd."""
    sim = SimServer()
    sim.push(reply, reply)

    unary = json.loads(post(sim, user("Hello.")).body)
    streamed = chunks(post(sim, user("Hello."), stream=True))

    assert unary["choices"][0]["finish_reason"] == finish
    assert streamed[-1]["choices"][0]["finish_reason"] == finish


def test_a_refusal_has_its_own_field() -> None:
    """A refusal leaves content null."""
    sim = SimServer()
    sim.push(Reply.refusal("I will not."))

    message = json.loads(post(sim, user("Hello.")).body)["choices"][0]["message"]

    assert (message["content"], message["refusal"]) == (None, "I will not.")


def test_call_ids_can_be_missing_or_equal() -> None:
    """Ids come as ordered: equal, left out, or the simulator's own."""
    sim = SimServer()
    sim.push(Reply.calls(("a", "{}"), ("b", "{}"), ("c", "{}"), ("d", "{}"), ids=("x", "x", "")))

    calls = json.loads(post(sim, user("Hello.")).body)["choices"][0]["message"]["tool_calls"]

    assert [call.get("id") for call in calls[:3]] == ["x", "x", None]
    assert calls[3]["id"].startswith("call_")


def test_usage_can_be_missing() -> None:
    """A reply without usage has none, in a stream neither."""
    sim = SimServer()
    sim.push(Reply.text("a", usage=False), Reply.text("a", usage=False))

    unary = json.loads(post(sim, user("Hello.")).body)
    streamed = chunks(post(sim, user("Hello."), stream=True, stream_options={"include_usage": True}))

    assert "usage" not in unary
    assert all("usage" not in chunk for chunk in streamed)
