"""Facts about the table of models."""

from __future__ import annotations

import pytest

from goaitools_py.backends.capabilities import Capabilities, capabilities


@pytest.mark.parametrize(
    ("model", "context_window"),
    [
        ("gpt-4o-mini", 128_000),
        ("gpt-4.1-2025-04-14", 1_047_576),
        ("gpt-5", 272_000),
        ("gpt-5-mini", 272_000),
        ("gpt-5-chat-latest", 128_000),
        ("o3", 200_000),
        ("openai/GPT-4o", 128_000),
        ("ft:gpt-4o-mini-2024-07-18:acme::abc", 128_000),
    ],
)
def test_a_known_model_is_found_by_pattern(model: str, context_window: int) -> None:
    """Dated, fine-tuned and provider-prefixed names find their family's row."""
    assert capabilities(model).context_window == context_window


@pytest.mark.parametrize("model", ["", "gpt-5.9", "o30", "my-gpt-4o", "llama3.2"])
def test_an_unknown_model_gets_the_conservative_answer(model: str) -> None:
    """A name that only resembles a known one is unknown: nothing is guessed."""
    assert capabilities(model) == Capabilities(context_window=None, default_output_tokens=8_192)
