"""Facts about recorded compactions: what a provider made of a history is kept whole, and known as that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.base import ProtocolFault, RequestParts
from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect
from goaitools_py.backends.protocols import CompactsHistory
from goaitools_py.base import rawjson
from goaitools_py.compaction import ServerCompaction
from goaitools_py.testing import check_history

RESPONSES = OpenAIResponsesDialect()
ANTHROPIC = AnthropicDialect()
LEFT_OUT = {"instructions", "previous_response_id", "stream"}
"""What the recorded clients sent beside the history: server state, and a system prompt of another kind."""


def recorded(data_dir: Path, wire: str, mark: str) -> list[dict[str, Any]]:
    """The exchanges of all records with this mark in them."""
    path = data_dir / "recorded" / f"{wire}.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().split(b"\n")
    records = [json.loads(line) for line in lines if mark.encode() in line]
    return [exchange for record in records for exchange in record["exchanges"]]


@pytest.fixture
def compactions(data_dir: Path) -> list[dict[str, Any]]:
    """The exchanges with ``/responses/compact``."""
    exchanges = recorded(data_dir, "openai-responses", "response.compaction")
    found = [one for one in exchanges if one["request"]["path"].endswith("/responses/compact")]
    assert len(found) == 7
    return found


def test_both_wires_compact() -> None:
    """A dialect says so by its shape."""
    assert isinstance(RESPONSES, CompactsHistory)
    assert isinstance(ANTHROPIC, CompactsHistory)


def test_every_item_of_a_recorded_compaction_is_kept(compactions: list[dict[str, Any]]) -> None:
    """The user's messages and the compaction item, byte for byte, in a history that the rules take."""
    for exchange in compactions:
        answer = exchange["response"]["body"]
        body = rawjson.dumps(answer)

        reply = RESPONSES.compacted(body)

        assert list(reply.entries) == [bytes(item) for item in rawjson.items(rawjson.members(body)["output"])]
        assert [RESPONSES.is_boundary(entry) for entry in reply.entries].index(True) == len(reply.entries) - 1
        assert reply.usage.input_tokens == answer["usage"]["input_tokens"]
        assert check_history("openai-responses", list(reply.entries)) == []


def test_our_request_is_the_recorded_one(compactions: list[dict[str, Any]]) -> None:
    """The same input, at the same place, with no member that the recorded clients did not send."""
    for exchange in compactions:
        asked = exchange["request"]
        history = [rawjson.dumps(item) for item in asked["body"]["input"]]
        parts = RequestParts(model=asked["body"]["model"], history=history, settings={"temperature": 0.5})

        request = RESPONSES.compaction_request(parts, "ignored")

        assert asked["path"] == f"/v1{request.path}"
        assert json.loads(request.body) == {k: v for k, v in asked["body"].items() if k not in LEFT_OUT}


def test_an_ordinary_answer_is_no_compaction(data_dir: Path) -> None:
    """A server that does not know the wish answers as ever: that stands for nothing."""
    for wire, dialect in (("openai-responses", RESPONSES), ("anthropic-messages", ANTHROPIC)):
        exchange = next(
            one
            for one in recorded(data_dir, wire, "licence")
            if one["response"]["status"] == 200 and isinstance(one["response"].get("body"), dict)
        )
        with pytest.raises(ProtocolFault, match="no compaction"):
            dialect.compacted(rawjson.dumps(exchange["response"]["body"]))


def test_a_compaction_within_a_recorded_reply_is_known(data_dir: Path) -> None:
    """Anthropic's own, in the middle of a turn: the message that holds it is a boundary, others are not."""
    exchanges = recorded(data_dir, "anthropic-messages", "compact_20260112")
    found = 0
    for exchange in exchanges:
        body = exchange["response"].get("body")
        if not isinstance(body, dict) or "content" not in body:
            continue
        (entry,) = ANTHROPIC.reply(rawjson.dumps(body)).entries
        is_one = body["content"][0]["type"] == "compaction"
        assert ANTHROPIC.is_boundary(entry) == is_one
        found += is_one
    assert found == 2


def test_what_we_ask_a_provider_to_do_is_what_was_recorded(data_dir: Path) -> None:
    """The member for a compaction inside a reply, as recorded clients sent it and both providers took it."""
    found = []
    for wire, dialect in (("openai-responses", RESPONSES), ("anthropic-messages", ANTHROPIC)):
        for exchange in recorded(data_dir, wire, '"context_management"'):
            sent = exchange["request"]["body"]
            wanted = sent.get("context_management")
            if not wanted or exchange["response"]["status"] != 200:
                continue
            edit = wanted[0] if isinstance(wanted, list) else wanted["edits"][0]
            count = edit.get("compact_threshold") or edit.get("trigger", {}).get("value")
            if count is None:
                continue  # the client left it to the provider; ours always says
            settings = {"context_management": (ServerCompaction(above_tokens=count),)}

            request = dialect.request(RequestParts(model="m", history=[], settings=settings))

            assert json.loads(request.body)["context_management"] == wanted
            found.append(wire)
    assert len(set(found)) == 2


def test_a_recorded_compaction_inside_a_reply_is_booked_and_names_its_beta(data_dir: Path) -> None:
    """What it took is told apart from the context that follows; whoever sends its block names the beta."""
    exchange = recorded(data_dir, "anthropic-messages", "compact_20260112")[0]

    reply = ANTHROPIC.reply(rawjson.dumps(exchange["response"]["body"]))
    carried = {name: value for name, (value, _) in reply.carried.items()}
    asked = ANTHROPIC.request(RequestParts(model="m", history=list(reply.entries), carried=carried))

    (aside,) = reply.asides.values()
    assert (reply.usage.input_tokens, aside.input_tokens, aside.requests) == (220, 55196, 0)
    assert "compact-2026-01-12" in asked.headers["anthropic-beta"]


def test_what_an_anthropic_compaction_cost() -> None:
    """It is billed among the iterations and nowhere else (recorded so for those within a turn); the block
    with null content is none."""
    block = {"type": "compaction", "content": "Ada is the player.", "encrypted_content": "opaque"}
    spent = {"type": "compaction", "input_tokens": 100, "cache_read_input_tokens": 900, "output_tokens": 50}
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [block],
        "stop_reason": "compaction",
        "usage": {"input_tokens": 0, "output_tokens": 0, "iterations": [spent, {"type": "message"}]},
    }

    reply = ANTHROPIC.compacted(rawjson.dumps(answer))

    assert (reply.usage.input_tokens, reply.usage.cached_input_tokens) == (1000, 900)
    assert (reply.usage.output_tokens, reply.usage.requests) == (50, 1)
    assert json.loads(reply.entries[0])["content"] == [block]
    failed = {**answer, "content": [{**block, "content": None, "encrypted_content": None}]}
    with pytest.raises(ProtocolFault, match="no compaction"):
        ANTHROPIC.compacted(rawjson.dumps(failed))
