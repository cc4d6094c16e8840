"""Facts about real traffic: every recorded Anthropic exchange is read, and goes back as it was accepted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import zstandard

from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.base import ProtocolFault, Reply, RequestParts
from goaitools_py.testing import check_history
from goaitools_py.types.messages import user

Exchange = dict[str, Any]

DIALECT = AnthropicDialect()


@pytest.fixture(scope="session")
def recordings(data_dir: Path) -> list[dict[str, Any]]:
    """All records of this wire."""
    path = data_dir / "recorded" / "anthropic-messages.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
    return _records(path)


@lru_cache(maxsize=1)
def _records(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    return [json.loads(line) for line in lines]


def answered(records: list[dict[str, Any]]) -> Iterator[Exchange]:
    """Every exchange that got an answer."""
    for record in records:
        yield from (one for one in record["exchanges"] if one["response"]["status"] == 200)


def response_of(exchange: Exchange) -> bytes:
    response = exchange["response"]
    return response["sse"].encode() if "sse" in response else json.dumps(response["body"]).encode()


def read(exchange: Exchange) -> Reply:
    if "sse" not in exchange["response"]:
        return DIALECT.reply(response_of(exchange))
    decoder = DIALECT.decoder()
    decoder.feed(response_of(exchange))
    return decoder.finish()


def answer_of(exchange: Exchange) -> dict[str, Any]:
    """The message, of a stream as the recording's own reader assembled it."""
    whole: dict[str, Any] = exchange.get("assembled") or exchange["response"]["body"]
    return whole


def test_every_answer_is_stored_whole(recordings: list[dict[str, Any]]) -> None:
    """Unary or streamed: the content equals the answer's, block for block, and its members in their order."""
    streamed = 0
    for exchange in answered(recordings):
        (entry,) = read(exchange).entries
        stored, answer = json.loads(entry)["content"], answer_of(exchange)["content"]
        assert stored == answer
        assert [list(block) for block in stored] == [list(block) for block in answer]
        streamed += "sse" in exchange["response"]

    assert streamed > 100


def test_every_unary_answer_is_stored_verbatim(recordings: list[dict[str, Any]]) -> None:
    """The content's very bytes."""
    unary = [one for one in answered(recordings) if "body" in one["response"]]
    for exchange in unary:
        content = json.dumps(exchange["response"]["body"]["content"]).encode()
        assert read(exchange).entries == (b'{"role":"assistant","content":' + content + b"}",)

    assert len(unary) > 300


def test_every_reply_says_what_the_answer_says(recordings: list[dict[str, Any]]) -> None:
    """Text, thinking, calls, whether they may run, the meaning of the stop word, and the usage."""
    stops = {"end_turn": "end", "tool_use": "end", "max_tokens": "length", "pause_turn": "pause"}
    for exchange in answered(recordings):
        reply, answer = read(exchange), answer_of(exchange)
        blocks = answer["content"]
        assert reply.text == "".join(block["text"] for block in blocks if block["type"] == "text")
        thoughts = [block["thinking"] for block in blocks if block["type"] == "thinking"]
        assert reply.reasoning == "".join(thoughts)
        assert [(call.id, call.name, call.parsed) for call in reply.calls] == [
            (block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"
        ]
        assert (reply.finish_reason, reply.stop) == (answer["stop_reason"], stops[answer["stop_reason"]])
        assert reply.run_calls is (answer["stop_reason"] == "tool_use" and bool(reply.calls))
        signed = [
            block.get("signature") or block.get("data") for block in blocks if "thinking" in block["type"]
        ]
        assert reply.signed is any(signed)
        assert (reply.id, reply.model) == (answer["id"], answer["model"])
        usage = answer["usage"]
        cached, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        assert reply.usage.input_tokens == usage["input_tokens"] + cached + written
        assert (reply.usage.cached_input_tokens, reply.usage.cache_write_tokens) == (cached, written)
        assert reply.usage.output_tokens == usage["output_tokens"]


def test_containers_are_carried(recordings: list[dict[str, Any]]) -> None:
    """In every recorded thread the next request named the container that the answer gave."""
    carried = 0
    for record in recordings:
        for first, second in zip(record["exchanges"], record["exchanges"][1:], strict=False):
            if first["response"]["status"] == 200 and second["request"]["body"].get("container"):
                name, until = read(first).carried["container"]
                assert name == second["request"]["body"]["container"]
                assert until > 1_700_000_000_000
                carried += 1

    assert carried


def test_streams_are_told_as_they_are_read(recordings: list[dict[str, Any]]) -> None:
    """The deltas of a stream, cut into odd chunks, are its text and its thinking."""
    streams = [one for one in answered(recordings) if "sse" in one["response"]]
    for exchange in streams:
        decoder, stream = DIALECT.decoder(), response_of(exchange)
        deltas = [delta for at in range(0, len(stream), 97) for delta in decoder.feed(stream[at : at + 97])]
        reply = decoder.finish()
        assert "".join(delta.text for delta in deltas if delta.kind == "text") == reply.text
        assert "".join(delta.text for delta in deltas if delta.kind == "reasoning") == reply.reasoning
        assert reply == read(exchange)

    assert streams


def test_a_stream_cut_short_anywhere_is_interrupted(recordings: list[dict[str, Any]]) -> None:
    """The shortest recorded stream with a call, ended cleanly before each of its events but the last one:
    what comes before ``message_stop`` is the whole reply."""
    streams = [one for one in answered(recordings) if "sse" in one["response"] and read(one).calls]
    events = response_of(min(streams, key=lambda one: len(response_of(one)))).split(b"\n\n")[:-1]

    assert b"message_stop" in events[-1]
    for count in range(len(events) - 1):
        decoder = DIALECT.decoder()
        decoder.feed(b"".join(event + b"\n\n" for event in events[:count]))
        with pytest.raises(ProtocolFault) as caught:
            decoder.finish()
        assert caught.value.fault.kind == "interrupted"


def test_error_answers_are_classified(recordings: list[dict[str, Any]]) -> None:
    """Every recorded status of refusal, by what the caller can do about it."""
    kinds = {400: "rejected", 401: "auth", 404: "rejected"}
    codes = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
    seen = set()
    for record in recordings:
        for exchange in record["exchanges"]:
            status = exchange["response"]["status"]
            if status != 200:
                fault = DIALECT.fault(status, exchange["response"]["headers"], response_of(exchange))
                assert (fault.kind, fault.code, fault.retryable) == (kinds[status], codes[status], False)
                seen.add(status)

    assert seen == kinds.keys()


def test_requests_that_were_accepted_break_no_rule(recordings: list[dict[str, Any]]) -> None:
    """What the server took, other clients' habits included, has no problems here."""
    for exchange in answered(recordings):
        messages = exchange["request"]["body"]["messages"]
        is_continued = messages[-1]["role"] == "assistant"  # after a pause
        assert check_history("anthropic", messages, unique_ids=False, open_end=is_continued) == []


def test_recorded_requests_can_be_viewed(recordings: list[dict[str, Any]]) -> None:
    """Messages as other clients wrote them, unknown blocks included, read as neutral ones."""
    for exchange in answered(recordings):
        for message in exchange["request"]["body"]["messages"]:
            seen = DIALECT.view([json.dumps(message).encode()])
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            assert [one.tool_call_id for one in seen if one.role == "tool"] == results
            assert [call.id for one in seen for call in one.tool_calls] == calls
            if not results:
                texts = [block["text"] for block in blocks if block["type"] == "text"]
                assert [one.text for one in seen] == ["".join(texts)]


def solid(value: Any) -> Any:
    """As accepted replays are compared: without nulls, empty things and cache marks, typography folded."""
    if isinstance(value, str):
        return value.translate(FOLDED)
    if isinstance(value, dict):
        kept = {key: solid(member) for key, member in value.items() if key != "cache_control"}
        return {key: member for key, member in kept.items() if member not in (None, "", [], {})}
    return [solid(member) for member in value] if isinstance(value, list) else value


FOLDED = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-"})


def test_what_the_server_accepted_back_is_what_is_stored(recordings: list[dict[str, Any]]) -> None:
    """For every exact replay that got a 200, streamed answers too."""
    compared = 0
    for record in recordings:
        for link in record["replay_links"]:
            first, second = record["exchanges"][link["from"]], record["exchanges"][link["to"]]
            if link["kind"] == "exact" and second["response"]["status"] == 200:
                (entry,) = read(first).entries
                messages = second["request"]["body"]["messages"]
                replayed = [solid(one["content"]) for one in messages if one["role"] == "assistant"]
                assert solid(json.loads(entry)["content"]) in replayed, (record["id"], link)
                compared += 1

    assert compared > 100


def test_every_stored_answer_fits_the_request_type(recordings: list[dict[str, Any]], data_dir: Path) -> None:
    """Sent back as it is, and without its thinking, its calls, and its open hosted calls."""
    schema = json.loads((data_dir / "schemas" / "sdk-anthropic-messages-beta.schema.json").read_bytes())
    validator = jsonschema_rs.validator_for(_any_of(schema))
    (asked,) = DIALECT.entries([user("And?")])
    for exchange in answered(recordings):
        reply = read(exchange)
        for entries in (
            reply.entries,
            DIALECT.without_calls(reply).entries,
            DIALECT.unsigned(reply.entries),
            DIALECT.settled(reply.entries),
        ):
            history = [asked, *filter(None, entries), asked]
            request = DIALECT.request(RequestParts(model="claude-opus-4-8", history=history))
            assert validator.is_valid(json.loads(request.body)), exchange["seq"]


def _any_of(schema: Any) -> Any:
    """The schema with overlapping alternatives allowed to overlap."""
    if isinstance(schema, dict):
        renamed = {"anyOf" if key == "oneOf" else key: value for key, value in schema.items()}
        return {key: _any_of(value) for key, value in renamed.items() if key != "discriminator"}
    return [_any_of(item) for item in schema] if isinstance(schema, list) else schema


def test_answers_without_thinking_and_open_calls_break_no_rule(recordings: list[dict[str, Any]]) -> None:
    """Cut as a change of the prefix or a new turn would cut them, they may stand in a history."""
    (asked,) = DIALECT.entries([user("And?")])
    stripped = 0
    for exchange in answered(recordings):
        reply = DIALECT.without_calls(read(exchange))
        entries = DIALECT.unsigned(DIALECT.settled(reply.entries))
        assert check_history("anthropic", [asked, *filter(None, entries), asked]) == []
        stripped += any(new is not old for new, old in zip(entries, reply.entries, strict=True))

    assert stripped
