"""An instant model: what the whole-turn benchmarks have instead of a provider.

Owns: the answer's bytes and the in-process transport. Must never know: what asks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
from _conversations import compact

__all__ = ["ANSWER_TEXT", "MODEL", "answer", "instant_client"]

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
