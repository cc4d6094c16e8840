"""What servers add to a reply for themselves is not stored; what any server takes back is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import zstandard

from goaitools_py.backends.base import Reply
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect

JSON = dict[str, Any]

PAGE = {"url": "https://a.example", "title": "A", "content": "x" * 2_000, "score": 0.9}
SEARCHED = {"index": 0, "type": "search", "arguments": "{}", "output": "Title: A\n" * 1_000}
SEARCHED |= {"search_results": {"results": [PAGE, {**PAGE, "url": "https://b.example"}, PAGE]}}
VISITED = {"index": 1, "type": "visit", "arguments": "{}", "browser_results": [{"url": "https://c.example"}]}
EXECUTED = {"executed_tools": [SEARCHED, VISITED], "reasoning": "I search."}
ROUTED = {"provider_metadata": {"gateway": {"routing": {"attempts": [{}] * 9}, "cost": "0.0045405"}}}
SPOKEN = {"audio_content": "", "name": "MiniMax AI"}


def replies(family: str, message: JSON, **top: Any) -> list[Reply]:
    """The same answer whole, and streamed in three ways: all members in one event, or in several."""
    dialect = OpenAIChatDialect(family)
    said = {"role": "assistant", "content": "Yes [1].", **message}
    choice = {"index": 0, "message": said, "finish_reason": "stop"}
    found = [dialect.reply(json.dumps({"id": "c", "choices": [choice], **top}).encode())]
    parts: list[JSON] = [{key: value} for key, value in message.items()]
    for deltas in ([{"role": "assistant", **message}], parts, parts + parts[:1]):  # the last repeats one
        decoder = dialect.decoder()
        ends = {"index": 0, "delta": {}, "finish_reason": "stop"}
        events = [{"id": "c", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        events += [{"choices": [{"index": 0, "delta": {"content": "Yes [1]."}}]}, {"choices": [ends], **top}]
        decoder.feed(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))
        found.append(decoder.finish())
    return found


@pytest.mark.parametrize(
    ("family", "message", "stays"),
    [
        ("api.groq.com", EXECUTED, {"reasoning": "I search."}),
        ("ai-gateway.vercel.sh", ROUTED, {}),
        ("api.minimax.io", SPOKEN, {"name": "MiniMax AI"}),
    ],
)
def test_what_a_server_adds_for_itself_is_not_stored(family: str, message: JSON, stays: JSON) -> None:
    """Whole and streamed, in one piece and in several; all else stays."""
    for reply in replies(family, message):
        (entry,) = reply.entries
        assert json.loads(entry) == {"role": "assistant", "content": "Yes [1].", **stays}


def test_sound_is_no_placeholder() -> None:
    """A member of MiniMax that says something stays."""
    for reply in replies("api.minimax.io", {"audio_content": "ffe3"}):
        assert json.loads(reply.entries[0])["audio_content"] == "ffe3"


def test_pages_that_groq_has_searched_are_sources() -> None:
    """Each page once, without its content."""
    for reply in replies("api.groq.com", EXECUTED):
        assert [one.url for one in reply.citations] == [f"https://{name}.example" for name in "abc"]
        assert reply.citations[0].title == "A"
        assert {one.quoted for one in reply.citations} == {None}


def test_vercels_cost_is_read() -> None:
    """It stands in the metadata, as a text."""
    assert {reply.cost_usd for reply in replies("ai-gateway.vercel.sh", ROUTED)} == {Decimal("0.0045405")}
    for odd in ("NaN", "1e999999", "-1", "", None, [], "9" * 5_000):
        message = {"provider_metadata": {"gateway": {"cost": odd}}}
        assert {reply.cost_usd for reply in replies("ai-gateway.vercel.sh", message)} == {None}


# ---------------------------------------------------------------------------------- the recordings


@lru_cache(maxsize=1)
def _records(path: Path) -> list[JSON]:
    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    return [json.loads(line) for line in lines]


def accepted(data_dir: Path) -> Iterator[tuple[str, JSON]]:
    """Each assistant's message of a request that a server took, with the family of the server."""
    path = data_dir / "recorded" / "openai-chat.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
    for record in _records(path):
        for exchange in record["exchanges"]:
            request = exchange["request"]
            if exchange["response"]["status"] == 200 and isinstance(request.get("body"), dict):
                host = request["host"]
                family = {"api.openai.com": "openai"}.get(host, "azure" if "azure" in host else host)
                for message in request["body"].get("messages", ()):
                    if message["role"] == "assistant":
                        yield family, message


def test_whatever_a_server_has_taken_back_is_stored(data_dir: Path) -> None:
    """An assistant's message of an accepted request, taken for an answer: each member that says something
    stays."""
    seen = 0
    for family, message in accepted(data_dir):
        body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        said = {key for key, value in message.items() if value not in (None, "", [], {})}
        if said == {"role"}:
            continue  # an empty reply is stored nowhere
        (entry,) = OpenAIChatDialect(family).reply(body).entries
        assert said <= set(json.loads(entry)), family
        seen += 1
    assert seen >= 400
