"""How large a stored conversation is, written turn by turn, beside other ways to store the same.

Owns: the replay through `chat_with_state` and the other encodings. Must never know: time.
"""

from __future__ import annotations

import gzip
import statistics
from collections import deque
from collections.abc import Sequence
from typing import Any

import zstandard
from _conversations import JSON, Turn, answer, compact, corpus
from _report import Figure, Report, at_most, info

from goaitools_py import Chat, Limits, ProviderTool, Tool
from goaitools_py.states import state_messages
from goaitools_py.testing import Raw, ScriptedBackend

__all__ = ["run", "written_turn_by_turn"]

TARGETS = {2: 100.0, 10: 40.0, 50: 22.0}
"""Per cent of the raw JSON, by messages."""


def run(*, short: bool = False) -> Report:
    """Write conversations of every length. `short` takes fewer of them."""
    figures: list[Figure] = []
    for messages, target in TARGETS.items():
        chains = [corpus().of_length(messages, start=start) for start in range(8 if short else 40)]
        figures += _of_one_length(messages, target, chains)
    return Report(
        title="Blob size: written turn by turn, per cent of the messages' raw JSON",
        method=f"{corpus().source}; scripted replies, preamble and tools sent but not stored; mean of "
        f"{8 if short else 40} conversations; raw JSON is compact UTF-8 of what the blob gives back",
        figures=figures,
    )


def _of_one_length(messages: int, target: float, chains: Sequence[Sequence[Turn]]) -> list[Figure]:
    sizes: dict[str, list[int]] = {}
    for turns in chains:
        blob = written_turn_by_turn(turns)
        stored = state_messages(blob)
        if len(stored) != messages:
            raise AssertionError(f"wrote {messages} messages, the blob holds {len(stored)}")
        for name, size in {"ours": len(blob), **_other_encodings(stored)}.items():
            sizes.setdefault(name, []).append(size)
    mean = {name: statistics.mean(found) for name, found in sizes.items()}
    raw = mean.pop("raw JSON")
    lines = [
        at_most(
            target,
            f"{messages:>2} messages: ours",
            100 * mean.pop("ours") / raw,
            "%",
            timed=False,
            note=f"{statistics.mean(sizes['ours']):,.0f} of {raw:,.0f} bytes",
        )
    ]
    lines += [
        info(f"{messages:>2} messages: {name}", 100 * size / raw, "%", timed=False, note=f"{size:,.0f} bytes")
        for name, size in mean.items()
    ]
    return lines


def _other_encodings(messages: Sequence[JSON]) -> dict[str, int]:
    raw = compact(messages)
    return {
        "raw JSON": len(raw),
        "gzip -6": len(gzip.compress(raw, 6, mtime=0)),
        "zstd -3": len(zstandard.ZstdCompressor(level=3).compress(raw)),
        "JSON of the Go library": len(compact({"version": 1, "provider": "openai", "messages": messages})),
    }


def written_turn_by_turn(turns: Sequence[Turn]) -> bytes:
    """Say the turns to a chat; the model gives the recorded replies. Give the last state."""
    results: deque[str] = deque()
    tools = [_tool(schema, results) for schema in corpus().tools]
    backend = ScriptedBackend()
    chat = Chat(backend, system=corpus().system or None, tools=tools, limits=Limits(max_iterations=100))
    blob, number, said = b"", 0, 0
    for turn in turns:
        asked = [message["content"] for message in turn if message["role"] == "user"]
        results.extend(message["content"] for message in turn if message["role"] == "tool")
        for message in turn:
            said += len(compact(message))
            if message["role"] == "assistant":
                number += 1
                backend.then(Raw.body(answer(message, number=number, prompt_tokens=said // 4)))
        blob = chat.chat_with_state(blob, user=asked[0]).state
    backend.assert_finished()
    return blob


def _tool(schema: JSON, results: deque[str]) -> Tool[..., str] | ProviderTool:
    """A tool that answers what was recorded, in order, whatever it is asked."""
    function: dict[str, Any] = schema["function"]

    def recorded(**_: Any) -> str:
        return results.popleft()

    return Tool(function["name"], function["description"], function["parameters"], recorded)
