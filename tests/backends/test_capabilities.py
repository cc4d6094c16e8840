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
        ("claude-fable-5-2", 1_000_000),
        ("claude-opus-4-6", 1_000_000),
        ("claude-sonnet-4-5-20250929", 200_000),
        ("claude-haiku-4-5@20251001", 200_000),
        ("anthropic/claude-sonnet-5", 1_000_000),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", 200_000),
        ("claude-3-5-sonnet-latest", 200_000),
        ("claude-3-opus-20240229", 200_000),
    ],
)
def test_a_known_model_is_found_by_pattern(model: str, context_window: int) -> None:
    """Dated, fine-tuned and provider-prefixed names find their family's row."""
    assert capabilities(model).context_window == context_window


@pytest.mark.parametrize(
    "model",
    ["", "gpt-5.9", "o30", "my-gpt-4o", "llama3.2", "claude-opus-4-80", "claude-opus-9", "my-claude-opus-5"],
)
def test_an_unknown_model_gets_the_conservative_answer(model: str) -> None:
    """A name that only resembles a known one is unknown: nothing is guessed."""
    assert capabilities(model) == Capabilities(context_window=None, default_output_tokens=8_192)


@pytest.mark.parametrize(
    ("model", "takes", "binds"),
    [
        ("claude-opus-5-5", True, True),
        ("claude-mythos-5-1", True, True),
        ("claude-haiku-5-5-20260901", True, True),
        ("claude-fable-5", True, False),
        ("claude-opus-4-8", True, False),
        ("claude-sonnet-5", False, False),
        ("claude-opus-4-7", False, False),
        ("claude-sonnet-4-20250514", False, False),
        ("claude-opus-9", False, None),
    ],
)
def test_what_claude_models_take_and_check(model: str, takes: bool, binds: bool | None) -> None:
    """System messages within the history, and thinking bound to its prefix; of an unknown one neither."""
    known = capabilities(model)

    assert (known.takes_system_messages, known.binds_thinking) == (takes, binds)


def test_a_model_that_thinks_unasked_has_room_for_it() -> None:
    """Thinking counts towards the output limit, which Anthropic's wire demands."""
    assert capabilities("claude-opus-5-5").default_output_tokens == 16_384
    assert capabilities("claude-3-haiku-20240307").default_output_tokens == 4_096
