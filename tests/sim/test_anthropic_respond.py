"""The Messages wire without a socket: blocks, events, usage, the prompt cache, pauses and faults."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from goaitools_py.sim import Fault, Prompt, Reply, Response, SimServer

PATH = "/v1/messages"
HEADERS = {"anthropic-version": "2026-10-21"}
MARK = {"type": "ephemeral"}
TOOL = {
    "name": "get_score",
    "input_schema": {"type": "object", "properties": {"team": {"type": "string"}}, "required": ["team"]},
}
HELLO = {"role": "user", "content": "Hello."}
THINKING = {"type": "adaptive"}


def send(sim: SimServer, *messages: Mapping[str, Any], **more: Any) -> Response:
    body = {"model": "claude-x", "max_tokens": 2000, "messages": messages, **more}
    return sim.respond("POST", PATH, HEADERS, orjson.dumps(body))


def post(sim: SimServer, *messages: Mapping[str, Any], **more: Any) -> Any:
    response = send(sim, *messages, **more)
    assert response.status == 200, response.body
    return orjson.loads(response.body)


def events(response: Response) -> list[dict[str, Any]]:
    found = []
    for piece in response.pieces:
        name, data = piece.decode().removesuffix("\n\n").split("\n")
        event = orjson.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def assembled(streamed: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream tells, put together as its documentation says."""
    message: dict[str, Any] = dict(streamed[0]["message"])
    blocks: list[dict[str, Any]] = []
    for event in streamed:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append({**event["content_block"], "_json": ""})
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                block["_json"] += delta["partial_json"]
            else:
                key = delta["type"].removesuffix("_delta")
                block[key] += delta[key]
        elif event["type"] == "message_delta":
            message |= event["delta"]
            message["usage"] = {**message["usage"], **event["usage"]}
    for block in blocks:
        if text := block.pop("_json"):
            block["input"] = orjson.loads(text)
    return {**message, "content": blocks}


REPLIES: dict[str, Reply | None] = {
    "the model's own": None,
    "text": Reply.text("One two  three\n", thinking="Let me  see."),
    "calls": Reply.calls(("get_score", '{"team":"Red"}'), ("get_score", "{}"), text="Look:", thinking="Hm."),
    "redacted": Reply.text("x", redacted=True),
    "paused": Reply.pause("Searching.", arguments='{"query":"é"}', container="container_sim_1"),
    "refused": Reply.refusal("No."),
    "cut": Reply.text("One", finish="length"),
    "nothing": Reply.text(""),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_stream_tells_the_same_as_a_message(name: str) -> None:
    """Put together, the events are the unary message: blocks, signatures, ids, reason, usage, container."""
    asked = {"role": "user", "content": "Get the score of Red and Blue."}
    answers = []
    for stream in (False, True):
        sim = SimServer()
        if (reply := REPLIES[name]) is not None:
            sim.push(reply)
        answers.append(send(sim, asked, tools=[TOOL], thinking=THINKING, stream=stream))

    unary, streamed = orjson.loads(answers[0].body), events(answers[1])

    assert assembled(streamed) == unary
    assert answers[1].streamed
    assert [streamed[0]["type"], streamed[-1]["type"]] == ["message_start", "message_stop"]
    assert unary["content"]


def test_the_reply_says_that_it_is_simulated() -> None:
    """Text, thoughts and model name all say that no real model answered."""
    message = post(SimServer(), HELLO, thinking=THINKING)

    thinking, text = message["content"]
    assert message["model"] == "sim-claude-x"
    assert thinking["thinking"].startswith("[simulated]")
    assert text["text"].startswith("[simulated]")


def test_events_come_in_the_providers_order() -> None:
    """A block's signature is one delta right before its stop, arguments come in pieces after an empty one."""
    sim = SimServer()
    sim.push(Reply.calls(("get_score", '{"team":"Red"}'), thinking="Let me see."))

    streamed = events(send(sim, HELLO, tools=[TOOL], thinking=THINKING, stream=True))

    told = [event.get("delta", event).get("type", event["type"]) for event in streamed]
    assert told == [
        "message_start",
        "content_block_start",
        "ping",
        "thinking_delta",
        "thinking_delta",
        "thinking_delta",
        "signature_delta",
        "content_block_stop",
        "content_block_start",
        "input_json_delta",
        "input_json_delta",
        "input_json_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    pieces = [e["delta"]["partial_json"] for e in streamed if "partial_json" in e.get("delta", {})]
    assert pieces == ["", '{"team"', ':"Red"}']
    assert streamed[8]["content_block"]["input"] == {}


def test_shapes_are_those_of_the_recordings(data_dir: Path) -> None:
    """Events and answers have no member that real ones do not have, and lack none that all real ones have."""
    recorded = _recorded_members(data_dir)
    sim = SimServer()
    made: dict[str, set[str]] = {}
    for reply in REPLIES.values():
        for stream in (False, True):
            if reply is not None:
                sim.push(reply)
            answer = send(sim, HELLO, tools=[TOOL], thinking=THINKING, stream=stream)
            values = events(answer) if stream else [orjson.loads(answer.body)]
            for value in values:
                for name, members in _members(value):
                    made.setdefault(name, set()).update(members)

    unknown = {name: members - recorded[name][0] for name, members in made.items() if name in recorded}
    missing = {name: recorded[name][1] - members for name, members in made.items() if name in recorded}

    assert set(made) - set(recorded) == {"start.redacted_thinking"}  # none was recorded in a stream
    # No streamed answer with a container was recorded; the SDK's types have it there.
    assert {n: members for n, members in unknown.items() if members} == {"message_delta.delta": {"container"}}
    assert {name: members for name, members in missing.items() if members} == {}


def _members(value: dict[str, Any]) -> list[tuple[str, set[str]]]:
    """The members of an event or a message, and of what is in it, by where they are."""
    kind = value["type"]
    found = [(kind, set(value))]
    if kind == "message_start":
        found += [("message_start.message", set(value["message"])), ("usage", set(value["message"]["usage"]))]
    elif kind == "message":
        found += [("usage", set(value["usage"]))]
        found += [(block["type"], set(block)) for block in value["content"]]
    elif kind == "content_block_start":
        block = value["content_block"]
        found += [(f"start.{block['type']}", set(block))]
    elif kind == "content_block_delta":
        found += [(value["delta"]["type"], set(value["delta"]))]
    elif kind == "message_delta":
        found += [("message_delta.delta", set(value["delta"])), ("delta.usage", set(value["usage"]))]
    return found


def _recorded_members(data_dir: Path) -> dict[str, tuple[set[str], set[str]]]:
    """By where they are: all members that ever came, and those that came always."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    path = data_dir / "recorded" / "anthropic-messages.jsonl.zst"
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        answers = [exchange["response"] for line in lines for exchange in orjson.loads(line)["exchanges"]]
    for answer in answers:
        values = [answer["body"]] if isinstance(answer.get("body"), dict) else []
        data = [line[6:] for line in answer.get("sse", "").split("\n") if line.startswith("data: ")]
        values += [orjson.loads(line) for line in data]
        for value in values:
            if "type" in value and answer["status"] == 200:
                for name, members in _members(value):
                    ever, always = found.setdefault(name, (set(), set(members)))
                    ever |= members
                    always &= members
    return found


# ------------------------------------------------------------------------------------------ the model


def test_the_model_sees_what_it_sees_on_other_wires() -> None:
    """System prompt, system messages, text, calls, results and pictures reach the model in neutral words."""
    seen: list[Prompt] = []

    def model(prompt: Prompt) -> Reply:
        seen.append(prompt)
        return Reply.text("x")

    use = {"type": "tool_use", "id": "c1", "name": "get_score", "input": {"team": "Red"}}
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "7"}]}
    post(
        SimServer(model=model),
        {"role": "user", "content": [{"type": "image", "source": {}}, {"type": "text", "text": "Score?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Well."}, use]},
        {"role": "user", "content": [answer, {"type": "text", "text": "Quick!"}]},
        {"role": "system", "content": "Be kind."},
        system=[{"type": "text", "text": "S"}],
        tools=[TOOL, {"type": "web_search_20250305", "name": "web_search"}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )

    (prompt,) = seen
    assert [(said.role, said.text) for said in prompt.history] == [
        ("system", "S"),
        ("user", "Score?"),
        ("assistant", "Well."),
        ("tool", "7"),
        ("user", "Quick!"),
        ("system", "Be kind."),
    ]
    assert prompt.history[1].media == 1
    assert [(call.id, call.arguments) for call in prompt.history[2].calls] == [("c1", '{"team":"Red"}')]
    assert [offer.name for offer in prompt.offers] == ["get_score"]
    assert (prompt.must_call, prompt.parallel, prompt.max_tokens) == (True, False, 2000)


@pytest.mark.parametrize(
    ("choice", "offers"),
    [
        ({"type": "none"}, []),
        ({"type": "tool", "name": "other"}, ["other"]),
        ({"type": "auto"}, ["get_score", "other"]),
    ],
)
def test_only_what_may_be_called_is_offered(choice: Any, offers: list[str]) -> None:
    """tool_choice narrows the offers down."""
    seen: list[list[str]] = []

    def model(prompt: Prompt) -> Reply:
        seen.append([offer.name for offer in prompt.offers])
        return Reply.text("x")

    post(SimServer(model=model), HELLO, tools=[TOOL, {**TOOL, "name": "other"}], tool_choice=choice)

    assert seen == [offers]


def test_the_game_master_says_the_same_on_both_wires() -> None:
    """The text of an answer does not depend on the wire."""
    sim = SimServer()
    words = [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "What is my name?"},
    ]

    here = post(sim, *words)["content"][0]["text"]
    there = sim.respond("POST", "/v1/chat/completions", {}, orjson.dumps({"model": "m", "messages": words}))

    assert here == orjson.loads(there.body)["choices"][0]["message"]["content"]
    assert "Ada" in here


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply.text("x"), "end_turn"),
        (Reply.calls(("f", "{}")), "tool_use"),
        (Reply.text("x", finish="length"), "max_tokens"),
        (Reply.calls(("f", '{"te'), finish="length"), "max_tokens"),
        (Reply.text("x", finish="content_filter"), "refusal"),
        (Reply.text("x", finish="stop"), "end_turn"),
        (Reply.text("x", finish="model_context_window_exceeded"), "model_context_window_exceeded"),
        (Reply.text("x", finish=""), ""),
        (Reply.refusal("No."), "refusal"),
        (Reply.pause(), "pause_turn"),
    ],
)
def test_stop_reasons(reply: Reply, reason: str) -> None:
    """Neutral finish words become the wire's, and its own are sent as they are."""
    sim = SimServer()
    sim.push(reply)

    assert post(sim, HELLO)["stop_reason"] == reason


def test_an_output_limit_cuts_the_reply() -> None:
    """max_tokens cuts off what is too long, and says so."""
    message = post(SimServer(), HELLO, max_tokens=3)

    assert message["stop_reason"] == "max_tokens"
    assert len(message["content"][0]["text"]) == 12


def test_broken_arguments_are_seen_only_in_a_stream() -> None:
    """A stream carries the broken text; an answer has no form for it."""
    sim = SimServer()
    sim.push(Reply.calls(("f", '{"a": 1')), Reply.calls(("f", '{"a": 1')))

    unary = post(sim, HELLO)
    streamed = events(send(sim, HELLO, stream=True))

    assert unary["content"][0]["input"] == {}
    pieces = [event["delta"].get("partial_json", "") for event in streamed if "delta" in event]
    assert "".join(pieces) == '{"a": 1'


def test_call_ids_are_made_up_given_or_missing() -> None:
    """None is an id of the simulator's, which the rules take; "" leaves it out."""
    sim = SimServer()
    sim.push(Reply.calls(("f", "{}"), ("f", "{}"), ("f", "{}"), ids=(None, "x", "")))

    made, given, missing = post(sim, HELLO)["content"]

    assert made["id"].startswith("toolu_sim_")
    assert given["id"] == "x"
    assert "id" not in missing


# ------------------------------------------------------------------------------------ pause, container


@pytest.mark.parametrize("reply", [Reply.pause("Searching."), Reply.text("Searching.", finish="pause_turn")])
def test_a_paused_reply_is_continued(reply: Reply) -> None:
    """Sent back as it is, a paused reply is taken, its call answered, and the question answered too."""
    sim = SimServer()
    sim.push(reply)
    question = {"role": "user", "content": "My name is Ada. What is my name?"}

    paused = post(sim, question)
    turn = {"role": "assistant", "content": paused["content"]}
    rest = post(sim, question, turn)
    after = send(sim, question, turn, {"role": "assistant", "content": rest["content"]}, HELLO)

    text, call = paused["content"]
    assert (text["text"], call["type"]) == ("Searching.", "server_tool_use")
    assert rest["content"][0] == {
        "type": "web_search_tool_result",
        "tool_use_id": call["id"],
        "content": [],
    }
    assert "Your name is Ada." in rest["content"][1]["text"]
    assert after.status == 200


def test_a_paused_reply_that_is_not_continued_is_refused() -> None:
    """Something else behind an open hosted call is a 400, until the call is taken out."""
    sim = SimServer()
    sim.push(Reply.pause("Searching."))
    paused = post(sim, HELLO)["content"]

    refused = send(sim, HELLO, {"role": "assistant", "content": paused}, HELLO)
    settled = send(sim, HELLO, {"role": "assistant", "content": paused[:1]}, HELLO)

    assert refused.status == 400
    assert b"was found without a corresponding `web_search_tool_result`" in refused.body
    assert settled.status == 200


def test_the_container_is_known_again() -> None:
    """A reply names its container and how long it lives, and only such a name is taken back."""
    sim = SimServer()
    sim.push(Reply.text("x", container="container_sim_a"))

    container = post(sim, HELLO)["container"]

    assert set(container) == {"id", "expires_at"}
    assert send(sim, HELLO, container=container["id"]).status == 200
    assert send(sim, HELLO, container="container_other").status == 400


# ------------------------------------------------------------------------------------------------ usage


LONG = "word " * 200
ASKED = {"role": "user", "content": LONG}


def counts(message: Any) -> tuple[int, int, int]:
    """What was read from the cache, written to it, and neither."""
    usage = message["usage"]
    assert usage["cache_creation"]["ephemeral_5m_input_tokens"] == usage["cache_creation_input_tokens"]
    return (
        usage["cache_read_input_tokens"],
        usage["cache_creation_input_tokens"],
        usage["input_tokens"],
    )


def test_nothing_is_cached_without_a_mark() -> None:
    """Requests without a cache mark neither write nor read, whatever came before."""
    sim = SimServer()

    plain = [counts(post(sim, ASKED)) for _ in range(2)]
    post(sim, ASKED, cache_control=MARK)
    after = counts(post(sim, ASKED))

    assert plain[0] == plain[1] == after
    assert plain[0][:2] == (0, 0)
    assert plain[0][2] > 250


def test_the_three_counts_make_the_whole() -> None:
    """Read, written and uncached tokens are the same sum, cached or not."""
    sim = SimServer()

    plain = counts(post(sim, ASKED))
    first = counts(post(sim, ASKED, cache_control=MARK))
    second = counts(post(sim, ASKED, cache_control=MARK))

    assert sum(plain) == sum(first) == sum(second)
    assert first == (0, sum(plain), 0)
    assert second[0] > 0.85 * sum(plain)
    assert second[2] == 0


def blocks(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text, **more}]}


def test_marks_may_move() -> None:
    """A mark is no content: the next request reads what was cached, its own mark on a later block."""
    sim = SimServer()
    answer = {"role": "assistant", "content": "Fine."}

    first = counts(post(sim, blocks(LONG, cache_control=MARK)))
    moved = counts(post(sim, ASKED, answer, blocks(LONG + "!", cache_control=MARK)))
    automatic = counts(post(sim, ASKED, answer, blocks(LONG + "!"), answer, HELLO, cache_control=MARK))

    assert first[0] == 0
    assert moved[0] == pytest.approx(sum(first), abs=40)
    assert automatic[0] == pytest.approx(sum(moved), abs=40)
    assert automatic[1] < 100


def test_only_what_is_before_the_last_mark_is_cached() -> None:
    """Behind the mark nothing is written; tools and system have marks of their own."""
    sim = SimServer()
    system = [{"type": "text", "text": LONG, "cache_control": MARK}]
    tools = [{**TOOL, "description": LONG, "cache_control": MARK}]

    with_system = counts(post(sim, ASKED, system=system, tools=[{**TOOL, "description": LONG}]))
    with_tools = counts(post(SimServer(), ASKED, system=LONG, tools=tools))
    again = counts(post(sim, HELLO, system=system, tools=[{**TOOL, "description": LONG}]))

    assert with_system[1] == pytest.approx(2 * with_tools[1], abs=60)
    assert with_system[2] == pytest.approx(250, abs=20)
    assert again[0] == pytest.approx(with_system[1], abs=40)


def test_a_mark_inside_a_result_counts() -> None:
    """The last block may be in a tool's result."""
    use = {"type": "tool_use", "id": "c1", "name": "get_score", "input": {}}
    inner = {"type": "text", "text": LONG, "cache_control": MARK}
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": [inner]}
    sim = SimServer()
    sent = (HELLO, {"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]})

    first = counts(post(sim, *sent))
    second = counts(post(sim, *sent))

    assert first[1] > 250
    assert second[0] > 220


@pytest.mark.parametrize("changed", ["tools", "system", "messages"])
def test_a_changed_beginning_is_not_cached(changed: str) -> None:
    """Tools come first, then the system prompt, then the messages: what is behind a change is new."""
    sim = SimServer()
    parts: dict[str, Any] = {"tools": [{**TOOL, "description": LONG}], "system": LONG, "messages": [ASKED]}
    kept = {"tools": 0, "system": 270, "messages": 530}
    other = {"tools": [TOOL], "system": "S", "messages": [HELLO]}

    whole = counts(post(sim, *parts.pop("messages"), **parts, cache_control=MARK))
    parts = {
        "tools": [{**TOOL, "description": LONG}],
        "system": LONG,
        "messages": [ASKED],
        changed: other[changed],
    }
    after = counts(post(sim, *parts.pop("messages"), **parts, cache_control=MARK))

    assert whole[1] > 750
    assert after[0] == pytest.approx(kept[changed], abs=40)


def test_output_tokens_count_the_thoughts() -> None:
    """Thinking is part of the output, and told apart; usage may be missing on demand."""
    sim = SimServer()
    sim.push(Reply.text("x" * 40, thinking="y" * 80), Reply.text("x", usage=False))

    usage = post(sim, HELLO, thinking=THINKING)["usage"]
    own = post(sim, HELLO, thinking=THINKING)

    assert (usage["output_tokens"], usage["output_tokens_details"]) == (30, {"thinking_tokens": 20})
    assert "usage" not in own


def test_a_made_up_thought_counts_too() -> None:
    """The simulator's own thought is in the sum like any other."""
    sim = SimServer()
    sim.push(Reply.text("x" * 40))

    message = post(sim, HELLO, thinking=THINKING)

    thought = -(-len(message["content"][0]["thinking"]) // 4)
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": thought}
    assert message["usage"]["output_tokens"] == 10 + thought


# ----------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("fault", "status", "kind", "message"),
    [
        (Fault.overloaded(), 529, "overloaded_error", "Overloaded"),
        (Fault.rate_limit(), 429, "rate_limit_error", "This request would exceed your account's rate limit."),
        (Fault.quota(), 402, "billing_error", "Your credit balance is too low"),
        (Fault.server_error(), 500, "api_error", "Internal server error"),
        (Fault.server_error(503), 503, "api_error", "Internal server error"),
        (Fault.server_error(504), 504, "timeout_error", "Internal server error"),
        (Fault.unauthorized(), 401, "authentication_error", "invalid x-api-key"),
        (Fault.not_found(), 404, "not_found_error", "model: "),
        (Fault.too_large(), 413, "request_too_large", "Request exceeds the maximum size"),
        (Fault.context_length(), 400, "invalid_request_error", "prompt is too long: 9001 tokens > 8192"),
        (Fault.bad_request("Nope."), 400, "invalid_request_error", "Nope."),
        (Fault.error(409, "Twice.", type="conflict_error"), 409, "conflict_error", "Twice."),
        (Fault.error(418, "Tea."), 418, "invalid_request_error", "Tea."),
        (Fault.error_body(), 200, "overloaded_error", "Overloaded"),
    ],
)
def test_faults_are_said_in_anthropics_words(fault: Fault, status: int, kind: str, message: str) -> None:
    """Each fault has the status, the type and the sentence of this provider."""
    sim = SimServer()
    sim.push(fault)

    response = send(sim, HELLO)

    body = orjson.loads(response.body)
    assert (response.status, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert body["error"]["message"].startswith(message)
    assert body["request_id"] == dict(response.headers)["request-id"]


def test_an_error_in_mid_stream() -> None:
    """Status 200, some events, and then an error event as the last one."""
    sim = SimServer()
    sim.push(Fault.error_event(after=3, reply=Reply.text("One two three.")))

    response = send(sim, HELLO, stream=True)

    streamed = events(response)
    assert response.status == 200
    assert [event["type"] for event in streamed] == [
        "message_start",
        "content_block_start",
        "ping",
        "error",
    ]
    assert streamed[-1]["error"] == {"type": "overloaded_error", "message": "Overloaded"}
    assert streamed[-1]["request_id"] == dict(response.headers)["request-id"]


@pytest.mark.parametrize("null", [False, True])
def test_an_answer_without_content(null: bool) -> None:
    """No blocks and no reason, as an answer and as a stream that ends properly."""
    sim = SimServer()
    sim.push(Fault.no_choices(null=null), Fault.no_choices(null=null))

    unary = post(sim, HELLO)
    streamed = events(send(sim, HELLO, stream=True))

    assert (unary["content"], unary["stop_reason"]) == (None if null else [], None)
    assert [event["type"] for event in streamed] == ["message_start", "message_stop"]


# ------------------------------------------------------------------------------------- beside the wire


def test_base_urls() -> None:
    """Each wire has its own; the plain one is OpenAI's."""
    with SimServer() as sim:
        origin = sim.base_url.removesuffix("/v1")

        assert sim.base_url == f"{origin}/v1" == sim.base_url_for("openai")
        assert sim.base_url_for("openai-responses") == f"{origin}/v1"
        assert sim.base_url_for("anthropic") == origin
        with pytest.raises(ValueError, match=r"'cohere'.*'anthropic'"):
            sim.base_url_for("cohere")

    with pytest.raises(RuntimeError, match="not running"):
        sim.base_url_for("anthropic")


@pytest.mark.parametrize(("method", "path"), [("GET", PATH), ("POST", "/v1/complete"), ("DELETE", "/")])
def test_a_wrong_address_is_not_found_in_the_clients_words(method: str, path: str) -> None:
    """Who names an anthropic-version gets Anthropic's 404."""
    response = SimServer().respond(method, path, HEADERS, b"")

    assert response.status == 404
    assert orjson.loads(response.body)["error"] == {"type": "not_found_error", "message": "Not Found"}
    assert dict(response.headers)["request-id"].startswith("req_sim_")
    assert "x-request-id" not in dict(response.headers)


def test_a_lone_surrogate_comes_back() -> None:
    """What orjson refuses is sent as an escape, in text, thoughts and arguments."""
    sim = SimServer()
    sim.push(Reply.calls(("f", '{"a":"\\ud800"}'), text="\ud800", thinking="\udfff"))

    body = send(sim, HELLO, thinking=THINKING).body

    assert body.count(b"\\ud800") == 2
    assert b"\\udfff" in body
