"""What decoding a streamed reply costs per event, on the Chat wire.

Owns: the stream's bytes and the two readers. Must never know: how time is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx2
import openai
from _conversations import compact
from _report import Report, at_most, info
from _timing import interleaved
from openai.types.chat import ChatCompletionChunk

from goaitools_py.backends.dialects import dialect_of

__all__ = ["run"]

_WORDS = ("Your", " flight", " to", " Lisbon", " leaves", " at", " 14", ":", "15", ".", " Shall", " I", "?\n")
_READ_BYTES = 16 * 1024


def run(*, short: bool = False) -> Report:
    """Decode one long answer, cut into events and into reads of 16 KiB, and read it with the SDK."""
    events = list(_events(200 if short else 1000))
    whole = b"".join(events)
    reads = [whole[at : at + _READ_BYTES] for at in range(0, len(whole), _READ_BYTES)]
    sides: dict[str, Callable[[], object]] = {
        "events": lambda: _ours(events),
        "reads": lambda: _ours(reads),
        "sdk": lambda: _with_sdk(whole),
    }
    found = interleaved(sides, short=short)
    per_event = {name: blocks.minimum / len(events) for name, blocks in found.items()}
    medians = {name: blocks.median / len(events) for name, blocks in found.items()}
    return Report(
        title="Stream decoder: CPU per event, Chat wire",
        method=f"{len(events)} events of about {len(whole) // len(events)} bytes; CPU time of one "
        "thread; blocks interleaved; minima",
        figures=[
            at_most(
                5.0, "one event per read", per_event["events"], "µs", note=f"median {medians['events']:.1f}"
            ),
            at_most(5.0, "reads of 16 KiB", per_event["reads"], "µs", note=f"median {medians['reads']:.1f}"),
            info("openai.Stream over the same bytes", per_event["sdk"], "µs"),
            info("times less than openai.Stream", per_event["sdk"] / per_event["reads"], "x"),
        ],
    )


def _events(words: int) -> Iterator[bytes]:
    base = {
        "id": "chatcmpl-0123456789abcdefghijklmnopqrs",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "gpt-4o-2024-08-06",
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
    }

    def event(delta: object, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"data: " + compact({**base, "choices": [choice], "usage": None}) + b"\n\n"

    yield event({"role": "assistant", "content": "", "refusal": None})
    for number in range(words):
        yield event({"content": _WORDS[number % len(_WORDS)]})
    yield event({}, "stop")
    usage = {"prompt_tokens": 1200, "completion_tokens": words, "total_tokens": 1200 + words}
    yield b"data: " + compact({**base, "choices": [], "usage": usage}) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _ours(chunks: list[bytes]) -> object:
    decoder = dialect_of("openai").decoder()
    for chunk in chunks:
        decoder.feed(chunk)
    return decoder.finish()


def _with_sdk(whole: bytes) -> object:
    request = httpx2.Request("POST", "https://api.openai.com/v1/chat/completions")
    response = httpx2.Response(200, content=whole, request=request)
    stream = openai.Stream(cast_to=ChatCompletionChunk, response=response, client=_CLIENT)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


_CLIENT = openai.OpenAI(api_key="sk-none")
