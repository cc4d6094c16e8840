"""The presets: which limits and strategies they are, and how they fit a model's window."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns, Summarize, TokenLimit
from goaitools_py.backends import AnthropicBackend
from goaitools_py.testing import ScriptedBackend

PRESETS = ("default", "cheap", "never_forgets")


def _made(name: str, model: Any, **fields: Any) -> Compactor:
    made: Compactor = getattr(Compactor, name)(model, **fields)
    return made


def _limit(compactor: Compactor) -> int:
    assert isinstance(compactor.trigger, TokenLimit)
    return compactor.trigger.max_tokens


def test_each_preset_is_what_the_page_says() -> None:
    """Limits, strategies, and which of them keep and search what was cut."""
    usual, cheap, whole = (_made(name, "claude-sonnet-5") for name in PRESETS)

    assert (_limit(usual), _limit(cheap), _limit(whole)) == (8_000, 5_000, 5_000)
    assert usual.strategy == whole.strategy == Summarize(keep_turns=2)
    assert cheap.strategy == KeepRecentTurns(2)
    assert (usual.retained_bytes, cheap.retained_bytes, whole.retained_bytes) == (65_536, 0, 2**20)
    assert (usual.recalled_tokens, cheap.recalled_tokens, whole.recalled_tokens) == (0, 0, 600)


@pytest.mark.parametrize("name", PRESETS)
def test_what_stands_beside_the_history_is_added(name: str) -> None:
    """Tools and `system=` count in `TokenLimit`, so they must not take the history's part."""
    assert (
        _limit(_made(name, "claude-sonnet-5", beside=4_000)) == _limit(_made(name, "claude-sonnet-5")) + 4_000
    )


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("model", ["claude-3-haiku", "anthropic:claude-3-haiku", "openai/gpt-4o", "a:model"])
def test_a_name_may_have_a_provider_and_need_not_be_known(name: str, model: str) -> None:
    """A known window that is large, and an unknown one, leave the limit as it is."""
    assert _limit(_made(name, model)) == _limit(_made(name, "claude-sonnet-5"))


@pytest.mark.parametrize("name", PRESETS)
def test_the_limit_is_at_most_half_of_the_window(name: str) -> None:
    """The answer, and what the next turn says, need room too."""
    small = AnthropicBackend("some-model", api_key="none", context_window=6_000)

    assert _limit(_made(name, small)) == 3_000
    assert _limit(_made(name, "gpt-3.5-turbo", beside=20_000 - 14_000)) == 16_385 // 2
    with pytest.raises(ValueError, match="too few are left"):
        _made(name, small, beside=2_500)


@pytest.mark.parametrize("name", PRESETS)
def test_wrong_arguments_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match="a model's name"):
        _made(name, 8_000)
    with pytest.raises(ValueError, match="beside"):
        _made(name, "gpt-4o", beside=-1)


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_cuts_a_conversation(name: str) -> None:
    """Of five turns the last two stay; what the others said is in a summary, in the archive, or gone."""
    script = ScriptedBackend(*["I see, go on."] * 5, "They talked.")
    compactor = _made(name, script)
    with Chat(script) as chat:
        state = chat.run_turns(
            None, [f"I open door {number} and walk into a room." for number in range(5)]
        ).state
        report = chat.compact_state(state, compactor)

    assert report.removed_turns == 3
