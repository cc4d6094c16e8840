"""Facts about real traffic: every recorded response is read, kept whole, and goes back in a valid request."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import zstandard

from goaitools_py.backends.base import Delta, ProtocolFault, Reply, RequestParts
from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect
from goaitools_py.testing import check_history

Exchange = dict[str, Any]
JSON = dict[str, Any]


@pytest.fixture(scope="session")
def recordings(data_dir: Path) -> list[JSON]:
    """All records of this wire."""
    path = data_dir / "recorded" / "openai-responses.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
    return _records(path)


@lru_cache(maxsize=1)
def _records(path: Path) -> list[JSON]:
    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def validator(data_dir: Path) -> jsonschema_rs.Validator:
    """Holds requests to the type that OpenAI's SDK publishes."""
    path = data_dir / "schemas" / "sdk-openai-responses.schema.json"
    if not path.is_file():
        pytest.skip(f"no schema: {path.name} is not in the data directory")
    return jsonschema_rs.validator_for(json.loads(path.read_bytes()))


def exchanges(records: list[JSON]) -> Iterator[Exchange]:
    """Every call of the one path that this wire has."""
    for record in records:
        yield from (one for one in record["exchanges"] if one["request"]["path"].endswith("/responses"))


def dialect_of(exchange: Exchange) -> OpenAIResponsesDialect:
    host = exchange["request"]["host"]
    return OpenAIResponsesDialect({"api.openai.com": "openai"}.get(host, host))


def is_clients_search(item: JSON) -> bool:
    """Whether an item is a call of the one recorded provider tool that the client runs."""
    return item.get("type") == "tool_search_call" and item["execution"] == "client"


def response_of(exchange: Exchange) -> bytes:
    response = exchange["response"]
    if "sse" in response:
        return str(response["sse"]).encode()
    return str(response["text"]).encode() if "text" in response else json.dumps(response["body"]).encode()


def output_of(exchange: Exchange) -> list[JSON]:
    """The items of a successful exchange, as the recording holds them."""
    whole = exchange.get("assembled") or exchange["response"]["body"]
    found: list[JSON] = whole["output"]
    return found


def read(exchange: Exchange) -> tuple[Reply, list[Delta]]:
    dialect, response = dialect_of(exchange), response_of(exchange)
    if "sse" not in exchange["response"]:
        return dialect.reply(response), []
    decoder = dialect.decoder()
    deltas = decoder.feed(response)
    return decoder.finish(), deltas


def is_reply(exchange: Exchange) -> bool:
    response = exchange["response"]
    body = response.get("body") or {}
    return response["status"] < 300 and body.get("status") not in ("queued", "in_progress")


def is_empty(exchange: Exchange) -> bool:
    """True if the only item of a response is a message without text."""
    return [item.get("content") and item["content"][0].get("text") for item in output_of(exchange)] == [""]


def replies(records: list[JSON]) -> Iterator[tuple[Exchange, Reply, list[Delta]]]:
    for exchange in filter(is_reply, exchanges(records)):
        yield exchange, *read(exchange)


def items_of(reply: Reply) -> list[JSON]:
    return [json.loads(entry) for entry in reply.entries]


# ------------------------------------------------------------------------------------------ reading


def test_every_answer_is_stored_whole(recordings: list[JSON]) -> None:
    """Unary or streamed: one entry for each item, every key kept; nothing recorded is response-only."""
    compared = 0
    for exchange, reply, _ in replies(recordings):
        assert items_of(reply) == ([] if is_empty(exchange) else output_of(exchange)), exchange["seq"]
        compared += 1

    assert compared > 400


def test_every_unary_item_is_stored_verbatim(recordings: list[JSON]) -> None:
    """Each entry stands in the response with the very same bytes."""
    compared = 0
    for exchange, reply, _ in replies(recordings):
        if "body" in exchange["response"]:
            body = response_of(exchange)
            assert all(entry in body for entry in reply.entries)
            compared += len(reply.entries)

    assert compared > 300


def test_a_streamed_item_is_a_done_or_the_completed_one(recordings: list[JSON]) -> None:
    """Each entry of a streamed reply has the bytes of the stream's last event."""
    compared = 0
    for exchange, reply, _ in replies(recordings):
        if "sse" in exchange["response"]:
            (last,) = (
                line
                for line in response_of(exchange).splitlines()
                if line.startswith(b"data:") and b'"type":"response.completed"' in line.replace(b": ", b":")
            )
            assert all(entry in last for entry in reply.entries)
            compared += len(reply.entries)

    assert compared > 100


def test_deltas_tell_what_the_reply_says(recordings: list[JSON]) -> None:
    """What was told piece by piece is the reply's text and reasoning."""
    streamed = 0
    for exchange, reply, deltas in replies(recordings):
        if "sse" in exchange["response"]:
            told = {kind: "".join(d.text for d in deltas if d.kind == kind) for kind in ("text", "reasoning")}
            assert told == {"text": reply.text, "reasoning": reply.reasoning}
            streamed += bool(told["text"]) + bool(told["reasoning"])

    assert streamed > 50


def test_every_reply_says_what_the_answer_says(recordings: list[JSON]) -> None:
    """Text, calls, whether they may run, and whether something in it is signed."""
    for exchange, reply, _ in replies(recordings):
        output = output_of(exchange)
        wanted = [
            (item["call_id"], item["name"], item["arguments"])
            for item in output
            if item["type"] == "function_call"
        ]
        said = [
            "".join(part["text"] for part in item["content"]) for item in output if item["type"] == "message"
        ]
        assert reply.text == "\n\n".join(filter(None, said))
        own = [call for call in reply.calls if call.kind == "function"]
        assert [(call.id, call.name, call.arguments) for call in own] == wanted
        assert [call.id for call in reply.calls if call.kind == "provider"] == [
            item["call_id"] for item in output if is_clients_search(item)
        ]
        assert reply.run_calls is bool(reply.calls)
        assert reply.stop == "end"
        assert reply.signed is any(
            item["type"] == "reasoning" and ("encrypted_content" in item or not item.get("content"))
            for item in output
        )


def test_usage_is_what_the_provider_counted(recordings: list[JSON]) -> None:
    """Every token count of every answer."""
    for exchange, reply, _ in replies(recordings):
        counted = (exchange.get("assembled") or exchange["response"]["body"])["usage"]
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (
            counted["input_tokens"],
            counted["output_tokens"],
        )
        details = counted["input_tokens_details"]
        assert reply.usage.cached_input_tokens == details["cached_tokens"]
        assert reply.usage.cache_write_tokens == details.get("cache_write_tokens", 0)
        assert reply.usage.reasoning_tokens == counted["output_tokens_details"]["reasoning_tokens"]
        assert reply.usage.requests == 1


def test_an_unfinished_response_is_no_reply(recordings: list[JSON]) -> None:
    """A queued or running response, as background mode answers, is a finding and not an empty reply."""
    unfinished = 0
    for exchange in exchanges(recordings):
        if exchange["response"]["status"] < 300 and not is_reply(exchange):
            with pytest.raises(ProtocolFault) as caught:
                read(exchange)
            assert (caught.value.fault.kind, caught.value.fault.code) == ("protocol", "queued")
            unfinished += 1

    assert unfinished


def test_error_answers_are_classified(recordings: list[JSON]) -> None:
    """Every recorded error: its kind by status, and reasoning that fits nothing as what it is."""
    kinds = set()
    for exchange in exchanges(recordings):
        response = exchange["response"]
        if response["status"] >= 300:
            fault = dialect_of(exchange).fault(response["status"], {}, response_of(exchange))
            is_about_reasoning = "reasoning" in str(response["body"]["error"]["message"]) and (
                response["body"]["error"]["code"] is None
            )
            wanted = (
                "signature" if is_about_reasoning else "auth" if response["status"] == 401 else "rejected"
            )
            assert (fault.kind, fault.retryable) == (wanted, False)
            kinds.add(fault.kind)

    assert kinds == {"auth", "rejected", "signature"}


def test_recorded_requests_can_be_viewed(recordings: list[JSON]) -> None:
    """Items as other clients wrote them, one by one or all at once, read as neutral messages."""
    viewed = 0
    for exchange in exchanges(recordings):
        items = exchange["request"]["body"]["input"]
        if isinstance(items, list):
            dialect = dialect_of(exchange)
            entries = [json.dumps(item).encode() for item in items]
            messages = dialect.view(entries)
            single = [dialect.view([entry]) for entry in entries]
            assert all(len(views) == 1 for views in single)
            assert b",\n".join(message.raw or b"" for message in messages) == b",\n".join(entries)
            assert [call.id for message in messages for call in message.tool_calls] == [
                item["call_id"]
                for item in items
                if item.get("type") == "function_call" or is_clients_search(item)
            ]
            for item, (view,) in zip(items, single, strict=True):
                if isinstance(item.get("content"), str):
                    assert view.text == item["content"]
            viewed += 1

    assert viewed > 400


def test_a_replys_items_are_one_message(recordings: list[JSON]) -> None:
    """Reasoning, text and calls of one reply are one neutral message that holds all of its bytes."""
    for exchange, reply, _ in replies(recordings):
        if is_empty(exchange):
            continue
        (message,) = dialect_of(exchange).view(reply.entries)
        assert (message.role, message.text, message.reasoning) == ("assistant", reply.text, reply.reasoning)
        assert message.tool_calls == reply.calls
        assert message.raw == b",\n".join(reply.entries)


# ------------------------------------------------------------------------------------- sent back


def request_with(exchange: Exchange, entries: list[bytes]) -> JSON:
    parts = RequestParts(model="gpt-5.6-sol", history=[b'{"role":"user","content":"Hi"}', *entries])
    body: JSON = json.loads(dialect_of(exchange).request(parts).body)
    return body


def results_of(reply: Reply) -> list[bytes]:
    return [
        b'{"type":"tool_search_output","execution":"client","call_id":%b,"tools":[]}'
        % json.dumps(call.id).encode()
        if call.kind == "provider"
        else b'{"type":"function_call_output","call_id":%b,"output":"ok"}' % json.dumps(call.id).encode()
        for call in reply.calls
    ]


def has_unpublished_source(body: JSON) -> bool:
    """Whether a web search has a source of a kind that OpenAI sends and its request type does not know."""
    actions = [item["action"] for item in body["input"] if item.get("type") == "web_search_call"]
    return any(source["type"] == "api" for action in actions for source in action.get("sources", ()))


def test_stored_items_make_a_valid_request(
    recordings: list[JSON], validator: jsonschema_rs.Validator
) -> None:
    """What is stored of every answer, with results for its calls, is a request of the published type."""
    unfit = 0
    for exchange, reply, _ in replies(recordings):
        body = request_with(exchange, [*reply.entries, *results_of(reply)])
        assert validator.is_valid(body) is not has_unpublished_source(body), exchange["seq"]
        unfit += has_unpublished_source(body)

    assert unfit == 2


def test_stored_items_are_a_history_that_the_rules_take(recordings: list[JSON]) -> None:
    """The same requests have no problem of order or pairing."""
    for _, reply, _ in replies(recordings):
        assert not check_history(
            "openai-responses", [b'{"role":"user","content":"Hi"}', *reply.entries, *results_of(reply)]
        )


def test_a_reply_without_calls_is_valid_too(recordings: list[JSON]) -> None:
    """What is left of every answer once its calls are cut out has neither orphans nor open calls."""
    cut = 0
    for exchange, reply, _ in replies(recordings):
        left = dialect_of(exchange).without_calls(reply)
        assert not left.calls
        assert not check_history("openai-responses", left.entries)
        if left.entries != reply.entries:
            kinds = [item["type"] for item in items_of(left)]
            assert "function_call" not in kinds
            assert kinds == [] or {"message", "tool_search_call"} & set(kinds)
            cut += 1

    assert cut > 100


def test_unsigned_answers_are_a_valid_history(
    recordings: list[JSON], validator: jsonschema_rs.Validator
) -> None:
    """Without encrypted reasoning all else is there but records of hosted tools directly behind it; only ids
    are gone, which no type but a message's asks for (18 recorded messages had none and were taken)."""
    unsigned = 0
    for exchange, reply, _ in replies(recordings):
        dialect = dialect_of(exchange)
        left = dialect.unsigned([*reply.entries, *results_of(reply)])
        assert all(
            new is old
            for new, old in zip(dialect.unsigned([e for e in left if e]), filter(None, left), strict=True)
        )
        if not reply.signed:
            assert all(new is old for new, old in zip(left, reply.entries, strict=False))
            continue
        kept = [json.loads(entry) for entry in left if entry]
        assert not any(item.get("encrypted_content") for item in kept if item["type"] == "reasoning")
        records = ("web_search_call", "image_generation_call", "code_interpreter_call", "mcp_call")
        wanted = [
            item
            for item, entry in zip(output_of(exchange), left, strict=False)
            if entry or item["type"] not in ("reasoning", *records)
        ]
        for item, full in zip(kept[: len(wanted)], wanted, strict=True):
            assert set(full) - set(item) <= {"id", "encrypted_content"}
            assert all(full[key] == value for key, value in item.items())
        assert not check_history("openai-responses", [e for e in left if e])
        body = request_with(exchange, [entry for entry in left if entry])
        for item in body["input"]:
            if item.get("type") == "message":
                item["id"] = "msg_1"
        assert validator.is_valid(body), exchange["seq"]
        unsigned += 1

    assert unsigned > 50


def test_results_may_take_other_ids(recordings: list[JSON]) -> None:
    """New call ids change exactly the ids of calls."""
    for exchange, reply, _ in replies(recordings):
        ids = [f"new-{n}" for n in range(len(reply.calls))]
        renamed = dialect_of(exchange).with_call_ids(reply, ids)
        wanted, fresh = [] if is_empty(exchange) else copy.deepcopy(output_of(exchange)), iter(ids)
        for item in wanted:
            if item["type"] == "function_call" or is_clients_search(item):
                item["call_id"] = next(fresh)
        assert items_of(renamed) == wanted
        assert [call.id for call in renamed.calls] == ids


# ------------------------------------------------------------------------ what servers took and refused


def test_rules_take_what_servers_took(recordings: list[JSON]) -> None:
    """No accepted history that was sent whole has a problem; both that were refused for their order have."""
    accepted = refused = 0
    for exchange in exchanges(recordings):
        body = exchange["request"]["body"]
        if not isinstance(body.get("input"), list) or body.keys() & {"previous_response_id", "conversation"}:
            continue
        problems = check_history("openai-responses", body["input"], unique_ids=False)
        if exchange["response"]["status"] < 300:
            assert not problems
            accepted += 1
        elif problems:
            refused += 1
            message = exchange["response"]["body"]["error"]["message"]
            assert "required following item" in message or "No tool output" in message

    assert accepted > 400
    assert refused == 2


def agrees(ours: Any, answer: Any, accepted: Any, key: str = "") -> bool:
    """Whether what answer and accepted request share is in ours, with the accepted value."""
    if isinstance(accepted, dict) and isinstance(answer, dict):
        shared = [name for name in answer if name in accepted and accepted[name] not in (None, "", [], {})]
        return all(name in ours and agrees(ours[name], answer[name], accepted[name], name) for name in shared)
    if isinstance(accepted, list) and isinstance(answer, list):
        return len(ours) == len(accepted) and all(map(agrees, ours, answer, accepted))
    if key == "arguments" and isinstance(accepted, str):
        return bool(json.loads(ours) == json.loads(accepted))
    return bool(ours == accepted) or key == "encrypted_content"


def test_what_servers_accepted_back_is_what_is_stored(recordings: list[JSON]) -> None:
    """For every exact replay that got a 2xx, each key that went back is stored with its value."""
    compared = 0
    for record in recordings:
        for link in record["replay_links"]:
            first, second = record["exchanges"][link["from"]], record["exchanges"][link["to"]]
            if link["kind"] != "exact" or second["response"]["status"] >= 300 or not is_reply(first):
                continue
            reply, _ = read(first)
            by_id = {item["id"]: item for item in second["request"]["body"]["input"] if item.get("id")}
            for ours, answer in zip(items_of(reply), output_of(first), strict=True):
                if answer["id"] in by_id:
                    assert agrees(ours, answer, by_id[answer["id"]]), (record["id"], link)
                    compared += 1

    assert compared > 50
