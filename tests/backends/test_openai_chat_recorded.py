"""Facts about real traffic: every recorded chat exchange is read, and goes back as servers accepted it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import zstandard

from goaitools_py.backends.base import ProtocolFault, Reply
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect

Exchange = dict[str, Any]


@pytest.fixture(scope="session")
def recordings(data_dir: Path) -> list[dict[str, Any]]:
    """All records of this wire."""
    path = data_dir / "recorded" / "openai-chat.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
    return _records(path)


@lru_cache(maxsize=1)
def _records(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    return [json.loads(line) for line in lines]


def exchanges(records: list[dict[str, Any]]) -> Iterator[Exchange]:
    for record in records:
        yield from record["exchanges"]


def dialect_of(exchange: Exchange) -> OpenAIChatDialect:
    host = exchange["request"]["host"]
    return OpenAIChatDialect({"api.openai.com": "openai"}.get(host, "azure" if "azure" in host else host))


def response_of(exchange: Exchange) -> bytes:
    response = exchange["response"]
    if "sse" in response:
        return response["sse"].encode()
    return response["text"].encode() if "text" in response else json.dumps(response["body"]).encode()


def read(exchange: Exchange) -> Reply | ProtocolFault:
    dialect, response = dialect_of(exchange), response_of(exchange)
    try:
        if "sse" not in exchange["response"]:
            return dialect.reply(response)
        decoder = dialect.decoder()
        decoder.feed(response)
        return decoder.finish()
    except ProtocolFault as fault:
        return fault


def answer_of(exchange: Exchange) -> dict[str, Any] | None:
    """The message of a successful exchange, as the recording holds it."""
    whole = exchange.get("assembled") or exchange["response"].get("body")
    choices = whole.get("choices") if isinstance(whole, dict) else None
    return choices[0]["message"] if choices else None


def solid(value: Any) -> Any:
    """A value without nulls and empty things."""
    if isinstance(value, dict):
        return {key: solid(member) for key, member in value.items() if member not in (None, "", [], {})}
    return [solid(member) for member in value] if isinstance(value, list) else value


def kept(message: dict[str, Any], family: str) -> Any:
    """An independent reading of what may be left out: the response-only keys, and what is empty."""
    message = copy.deepcopy(message)
    message.pop("annotations", None)
    sound = message.pop("audio", None)
    if sound and sound["id"]:
        message["audio"] = {"id": sound["id"]}
    if not any((message.get("function_call") or {}).values()):
        message.pop("function_call", None)
    for call in message.get("tool_calls") or ():
        if not any((call.get("custom") or {}).values()):
            call.pop("custom", None)
        if family in ("openai", "azure"):
            call.pop("index", None)
    return solid(message)


def test_every_response_is_read(recordings: list[dict[str, Any]]) -> None:
    """A 2xx response is a reply or, where the provider broke the stream off, a typed finding."""
    replies = [read(one) for one in exchanges(recordings) if one["response"]["status"] < 300]

    broken = [reply for reply in replies if isinstance(reply, ProtocolFault)]
    assert replies
    assert len(broken) <= len(replies) // 100
    assert all(reply.fault.kind in ("interrupted", "rejected", "protocol") for reply in broken)


def test_every_answer_is_stored_whole(recordings: list[dict[str, Any]]) -> None:
    """Unary or streamed: what is stored equals the answer, less the response-only keys."""
    compared = 0
    for exchange in exchanges(recordings):
        answer, reply = answer_of(exchange), None
        if answer is not None and exchange["response"]["status"] < 300:
            reply = read(exchange)
        if isinstance(reply, Reply):
            (entry,) = reply.entries
            family = dialect_of(exchange).family
            assert solid(json.loads(entry)) == kept(answer or {}, family), exchange["seq"]
            compared += 1

    assert compared


def test_every_unary_answer_is_stored_verbatim(recordings: list[dict[str, Any]]) -> None:
    """Each stored member stands in the response with the very same bytes."""
    for exchange in exchanges(recordings):
        if "body" in exchange["response"] and exchange["response"]["status"] < 300:
            body = response_of(exchange)
            reply = read(exchange)
            assert isinstance(reply, Reply)
            if not reply.entries:  # it says nothing
                assert (reply.text, reply.calls) == ("", ())
                continue
            message = json.loads(reply.entries[0])
            for call in message.get("tool_calls", ()):
                assert json.dumps(call["function"]).encode() in body
            for key in message.keys() - {"tool_calls", "audio"}:
                # What was put where nothing was: see the table of exceptions.
                added = (
                    key == "content"
                    and message[key] == ""
                    and json.loads(body)["choices"][0]["message"]["content"] is None
                ) or (key == "content" and message[key] is None and b'"content": ""' in body)
                assert added or f"{json.dumps(key)}: {json.dumps(message[key])}".encode() in body


def test_every_reply_says_what_the_answer_says(recordings: list[dict[str, Any]]) -> None:
    """Text, calls, and whether they may run."""
    for exchange in exchanges(recordings):
        answer, reply = answer_of(exchange), None
        if answer is not None and exchange["response"]["status"] < 300:
            reply = read(exchange)
        if isinstance(reply, Reply) and answer is not None:
            wanted = [
                (call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in answer.get("tool_calls") or ()
            ]
            assert reply.text == (answer.get("content") or "")
            assert [(call.id, call.name, call.arguments) for call in reply.calls] == wanted
            assert reply.run_calls is (bool(wanted) and reply.finish_reason != "length")
            assert reply.usage.input_tokens > 0
            assert reply.model


def test_streams_are_told_as_they_are_read(recordings: list[dict[str, Any]]) -> None:
    """The deltas of a stream, cut into odd chunks, are its text."""
    for exchange in exchanges(recordings):
        if "sse" in exchange["response"] and isinstance(read(exchange), Reply):
            decoder, stream = dialect_of(exchange).decoder(), response_of(exchange)
            deltas = [
                delta for at in range(0, len(stream), 97) for delta in decoder.feed(stream[at : at + 97])
            ]
            reply = decoder.finish()
            assert "".join(delta.text for delta in deltas if delta.kind == "text") == reply.text
            assert "".join(delta.text for delta in deltas if delta.kind == "reasoning") == reply.reasoning
            assert reply == read(exchange)


def test_a_stream_cut_anywhere_is_the_same_reply(recordings: list[dict[str, Any]]) -> None:
    """The shortest recorded stream with calls, cut in two at every byte."""
    streams = [
        one
        for one in exchanges(recordings)
        if "sse" in one["response"] and '"tool_calls"' in response_of(one).decode()
    ]
    shortest = min(streams, key=lambda exchange: len(response_of(exchange)))
    stream, whole = response_of(shortest), read(shortest)

    for cut in range(len(stream) + 1):
        decoder = dialect_of(shortest).decoder()
        decoder.feed(stream[:cut])
        decoder.feed(stream[cut:])
        assert decoder.finish() == whole


def test_error_answers_are_classified(recordings: list[dict[str, Any]]) -> None:
    """Every recorded status of refusal, by what the caller can do about it."""
    kinds = {400: "rejected", 401: "auth", 404: "rejected", 422: "rejected", 429: "rate_limit"}
    for exchange in exchanges(recordings):
        response = exchange["response"]
        if response["status"] in kinds:
            fault = dialect_of(exchange).fault(response["status"], response["headers"], response_of(exchange))
            # Groq refuses what its own model wrote: another try may succeed.
            blames_reply = fault.code == "tool_use_failed"
            assert fault.kind == ("protocol" if blames_reply else kinds[response["status"]])
            assert fault.code


def test_recorded_requests_can_be_viewed(recordings: list[dict[str, Any]]) -> None:
    """Messages as other clients wrote them, unknown parts included, read as neutral ones."""
    for exchange in exchanges(recordings):
        body = exchange["request"]["body"]
        for message in body.get("messages", ()) if isinstance(body, dict) else ():
            (seen,) = dialect_of(exchange).view([json.dumps(message).encode()])
            assert [call.id for call in seen.tool_calls] == [
                call["id"] for call in message.get("tool_calls") or ()
            ]
            if isinstance(message.get("content"), str):
                assert seen.text == message["content"]


FOLDED = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-"})


def comparable(value: Any) -> Any:
    """As accepted replays are compared: arguments parsed, typography folded, one text part a string."""
    if isinstance(value, str):
        return value.translate(FOLDED)
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], dict) and value[0].get("type") == "text":
            return comparable(value[0]["text"])
        return [comparable(member) for member in value]
    if isinstance(value, dict):
        value = solid({key: member for key, member in value.items() if key != "cache_control"})
        if isinstance(value.get("arguments"), str):
            value["arguments"] = json.loads(value["arguments"])
        return {key: comparable(member) for key, member in value.items()}
    return value


def agrees(ours: Any, answer: Any, accepted: Any) -> bool:
    """Whether every key that answer and accepted request share is in ours, with the accepted value."""
    if isinstance(accepted, dict) and isinstance(answer, dict):
        shared = answer.keys() & accepted.keys()
        return isinstance(ours, dict) and all(
            key in ours and agrees(ours[key], answer[key], accepted[key]) for key in shared
        )
    if isinstance(accepted, list) and isinstance(answer, list):
        return (
            isinstance(ours, list)
            and len(ours) == len(accepted) == len(answer)
            and all(map(agrees, ours, answer, accepted))
        )
    return bool(ours == accepted)


def test_what_servers_accepted_back_is_what_is_stored(recordings: list[dict[str, Any]]) -> None:
    """For every exact replay that got a 2xx, each key that went back is stored with its value."""
    compared = 0
    for record in recordings:
        for link in record["replay_links"]:
            first, second = record["exchanges"][link["from"]], record["exchanges"][link["to"]]
            if link["kind"] != "exact" or second["response"]["status"] >= 300:
                continue
            reply = read(first)
            assert isinstance(reply, Reply)
            ours, answer = comparable(json.loads(reply.entries[0])), comparable(answer_of(first))
            messages = second["request"]["body"]["messages"]
            replayed = [comparable(message) for message in messages if message["role"] == "assistant"]
            assert any(agrees(ours, answer, accepted) for accepted in replayed), (record["id"], link)
            compared += 1

    assert compared
