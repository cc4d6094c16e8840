"""Conversations to measure with, and an instant model that answers in them in the place of a provider.

Owns: where conversations come from (recorded ones, joined to any length, or our own text), where a turn ends,
the answer's bytes and the in-process transport. Must never know: the measurement.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import zstandard

__all__ = [
    "ANSWER_TEXT",
    "JSON",
    "MODEL",
    "ROOT",
    "Corpus",
    "Turn",
    "answer",
    "compact",
    "corpus",
    "data",
    "instant_client",
    "records",
    "turns_of",
]

JSON: TypeAlias = Mapping[str, Any]
Turn: TypeAlias = tuple[JSON, ...]
"""A user message, any number of tool calls with their results, and an answer without calls."""

ROOT = Path(__file__).resolve().parent.parent
_FILE = "tau-airline-gpt4o"


def compact(value: object) -> bytes:
    """JSON as providers take it, without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Conversations as turns, with the system message and the tools that all of them had."""

    source: str
    conversations: tuple[tuple[Turn, ...], ...]
    system: str = ""
    tools: tuple[JSON, ...] = ()

    def of_length(self, messages: int, *, start: int = 0) -> list[Turn]:
        """Turns with exactly so many messages together.

        They come from conversation `start`, then from the next ones. A turn that would go beyond the
        length is left out.
        """
        found: list[Turn] = []
        left = messages
        count = len(self.conversations)
        for number in itertools.count(start):
            if left <= 0 or number - start > 100 * count:
                return found
            for turn in self.conversations[number % count]:
                if len(turn) <= left:
                    found.append(turn)
                    left -= len(turn)
        raise AssertionError("unreachable")


def data() -> Path:
    """Where recorded traffic and conversations are, if they are anywhere."""
    return Path(os.environ.get("GOAITOOLS_TEST_DATA") or ROOT.parent / "shared" / "data")


@cache
def corpus() -> Corpus:
    """Tau-bench's airline conversations where they are, else self-made ones; `source` says which."""
    found = records(_FILE)
    return _recorded(found) if found else _self_made()


@cache
def records(name: str) -> tuple[JSON, ...]:
    """Every conversation of one file of the data directory; none where it is absent."""
    path = data() / "conversations" / f"{name}.jsonl.zst"
    if not path.is_file():
        return ()
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as reader:
        return tuple(json.loads(line) for line in reader.read().splitlines())


def _recorded(found: Sequence[JSON]) -> Corpus:
    return Corpus(
        source="tau-bench airline, gpt-4o",
        conversations=tuple(tuple(turns_of(record["messages"])) for record in found),
        system=found[0]["messages"][0]["content"],
        tools=tuple(found[0]["tools"]),
    )


def turns_of(messages: Sequence[JSON]) -> Iterator[Turn]:
    """Cut after each answer without calls; what follows the last one was never answered."""
    turn: list[JSON] = []
    for message in messages:
        if message["role"] == "system":
            continue
        turn.append(message)
        if message["role"] == "assistant" and not message.get("tool_calls"):
            yield tuple(turn)
            turn = []


_PLACES = ("Lisbon", "Oslo", "Quito", "Hanoi", "Perth", "Turin", "Accra", "Osaka")
_ASKED = (
    "I would like to change my flight to {} so that it leaves after {}:15, please.",
    "How much would a second bag to {} cost on flight {}?",
    "My connection in {} was cancelled; can you find another before {}:00?",
)
_ANSWERED = (
    "There is a flight to {} at {}:40 with two seats left. Shall I book it for you?",
    "A second bag to {} costs {} dollars. Would you like me to add it to the reservation?",
    "I have found a connection by way of {} that arrives at {}:05. Do you want to take it?",
)


def _self_made() -> Corpus:
    def turn(number: int) -> Turn:
        asked = _ASKED[number % 3].format(_PLACES[number % 8], number * 7919 % 24)
        answered = _ANSWERED[number % 3].format(_PLACES[number * 3 % 8], number * 104729 % 97)
        return ({"role": "user", "content": asked}, {"role": "assistant", "content": answered})

    return Corpus(
        source="self-made text, because the recorded conversations are absent (set GOAITOOLS_TEST_DATA)",
        conversations=tuple(tuple(turn(each * 12 + n) for n in range(12)) for each in range(40)),
    )


MODEL = "gpt-4o"
ANSWER_TEXT = "Your reservation is unchanged. Is there anything else that I can help you with today?"


def answer(message: Mapping[str, Any], *, number: int = 0, prompt_tokens: int = 1200) -> bytes:
    """A chat completion as OpenAI sends it, around a message of the assistant's."""
    return compact(
        {
            "id": f"chatcmpl-{number:032x}",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "gpt-4o-2024-08-06",
            "choices": [
                {
                    "index": 0,
                    "message": {**message, "refusal": None, "annotations": []},
                    "logprobs": None,
                    "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
                }
            ],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": 20,
                "total_tokens": prompt_tokens + 20,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                "completion_tokens_details": {
                    "reasoning_tokens": 0,
                    "audio_tokens": 0,
                    "accepted_prediction_tokens": 0,
                    "rejected_prediction_tokens": 0,
                },
            },
            "service_tier": "default",
            "system_fingerprint": "fp_0123456789",
        }
    )


def instant_client() -> httpx2.Client:
    """An HTTP client that calls a function in place of a server: no socket, always the same answer."""
    body = answer({"role": "assistant", "content": ANSWER_TEXT})
    headers = {"content-type": "application/json", "x-request-id": "req_0123456789"}
    return httpx2.Client(
        transport=httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=body))
    )
