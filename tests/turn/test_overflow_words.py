"""What a server says of a request that is too long, and what the turn makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import ProviderRejectedError, RateLimitError
from goaitools_py.sim import Fault, Reply

from ._reading import CHAT

OVERFLOWS = {
    "Ollama": Fault.error(400, "prompt too long; exceeded max context length by 4 tokens"),
    "Perplexity": Fault.error(400, "x", type="too_many_prompt_tokens"),
    "vLLM": Fault.error(
        400, "The decoder prompt (length 21535) is longer than the maximum model length of 16384."
    ),
    "Gemini": Reply.raw(
        b'[{"error":{"code":400,"message":"The input token count (1200293) exceeds the maximum number of '
        b'tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]',
        status=400,
    ),
}
NO_OVERFLOWS = {
    "rate": (Fault.error(429, "Too many tokens per minute"), RateLimitError),
    "rate, as 400": (Fault.error(400, "Too many tokens per minute"), ProviderRejectedError),
    "output": (
        Fault.error(
            400, "max_tokens is too large: 32000. This model supports at most 16384 completion tokens."
        ),
        ProviderRejectedError,
    ),
    "output, vLLM": (
        Fault.error(
            400,
            "'max_tokens' is too large: 8192. This model's maximum context length is 4096 tokens and your "
            "request has 12 input tokens (8192 > 4096 - 12).",
        ),
        ProviderRejectedError,
    ),
}


def grown(chat: Any, turns: int = 8) -> bytes:
    state: bytes = chat.run_turns(
        None, [f"Message {number}, " + "and so on " * 40 for number in range(turns)]
    ).state
    return state


@pytest.mark.parametrize("wire", [CHAT])
@pytest.mark.parametrize("server", OVERFLOWS)
def test_the_words_of_a_server_start_the_emergency_cut(face: Any, sim: Any, run: Any, server: str) -> None:
    """One cut, one more request, and the answer."""
    chat = face.on(sim)
    state = grown(chat)
    before = len(sim.requests)
    sim.push(OVERFLOWS[server], Reply.text("Hello."))

    result = run(chat, state, user="Hello?")

    first, second = sim.requests[before:]
    assert result.text == "Hello."
    assert "emergency_cut" in [warning.code for warning in result.warnings]
    assert len(second.body) < len(first.body)
    assert sim.problems == []


@pytest.mark.parametrize("wire", [CHAT])
@pytest.mark.parametrize("case", NO_OVERFLOWS)
def test_other_limits_cut_nothing(face: Any, sim: Any, run: Any, case: str) -> None:
    """A shorter history would not help against them."""
    fault, expected = NO_OVERFLOWS[case]
    chat = face.on(sim)
    state = grown(chat)
    before = len(sim.requests)
    sim.push(fault)

    with pytest.raises(expected) as caught:
        run(chat, state, user="Hello?")

    assert len(sim.requests) == before + 1
    assert len(caught.value.state) >= len(state)
